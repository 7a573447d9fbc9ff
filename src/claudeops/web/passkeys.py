"""Passkeys of whoever is logged in: what they are to sign, what they have signed, and which there are.

What is to be signed is kept here, in memory: a signature under anything else, under something twice, or after two
minutes is refused. A daemon that starts anew has asked for nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from typing import Annotated, Final

import msgspec

from claudeops.domain.access.logins import Login
from claudeops.domain.gate.approval import Approval
from claudeops.domain.gate.passkey import (
    CHALLENGE_TIME,
    NONCE_BYTES,
    Assertion,
    Challenge,
    NewPasskey,
    Passkey,
    PasskeyPlace,
    is_young,
    packed,
    site_fault,
    unpacked,
)
from claudeops.errors import ErrorKind
from claudeops.store.access.passkeys import MOST, PasskeyStore
from claudeops.web.endpoints import WebCall
from claudeops.web.problems import RefusedError

MOST_CHALLENGES: Final = 1000
"""That wait for a signature at once; beyond that the oldest is forgotten."""

MISSING: Final = "Passkeys need the library webauthn, which is not installed: install claudeops[passkeys]."
_NO_USER: Final = (
    "Passkeys belong to users, and this login is none's: `claudeops user add` adds one, `claudeops login-link --name` "
    "logs it in."
)
_TOO_OLD: Final = "A passkey is added within ten minutes of a login: log out, and log in again."
_UNKNOWN: Final = (
    "This signature is for nothing that waits for one: it was used, or is over, or it is another person's."
)
_NOT_YOURS: Final = "This passkey is none of yours."
_WRONG: Final = "The passkey's answer does not hold."


class SignatureChallenge(msgspec.Struct, frozen=True, kw_only=True):
    """What a passkey is to sign; bytes are in base64 for URLs."""

    challenge: str
    rp_id: str  # the host by which the page was called
    credentials: tuple[str, ...]  # the ids of the person's passkeys there
    expires_at: datetime


class PasskeyChallenge(msgspec.Struct, frozen=True, kw_only=True):
    """What a new passkey is made from; bytes are in base64 for URLs."""

    challenge: str
    rp_id: str
    user_handle: str
    user_name: str
    credentials: tuple[str, ...]  # that the person has already
    algorithms: tuple[int, ...]  # by which it may sign, as COSE numbers them
    expires_at: datetime


class PasskeyAct(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey that was added or removed."""

    passkey_id: int
    passkey_name: str
    handled: bool = True


class _ClientData(msgspec.Struct):
    challenge: str


class _Response(msgspec.Struct):
    client_data: str = msgspec.field(name="clientDataJSON")


class _Sent(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(max_length=2000)]
    response: _Response


class _Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for an answer of a browser."""

    login_id: int
    user_id: int
    place: PasskeyPlace
    expires_at: datetime
    digest: bytes
    signs: Challenge | None = None  # None: a passkey is being added


@dataclass(kw_only=True)
class Passkeys:
    """The passkeys of whoever is logged in."""

    store: PasskeyStore
    tls_hosts: frozenset[str] = frozenset()  # by which we are called over TLS
    draw: Callable[[int], bytes] = secrets.token_bytes
    is_installed: Callable[[], bool] = lambda: find_spec("webauthn") is not None
    _waiting: dict[bytes, _Waiting] = field(default_factory=dict, repr=False)  # by the challenge

    def fault(self, call: WebCall) -> str:
        """Return why no passkey can be used on this connection, as a sentence; empty: one can."""
        if not self.is_installed():
            return MISSING
        login = _login(call)
        if login is None or login.user_id is None:
            return _NO_USER
        host = _host(call)
        return site_fault(host.partition(":")[0] if host[:1] != "[" else host, is_tls=self._is_tls(call))

    def may_add(self, call: WebCall) -> bool:
        """Return whether the login is young enough to add a passkey."""
        login = _login(call)
        return login is not None and is_young(login.created_at, call.at)

    async def listed(self, call: WebCall) -> Sequence[Passkey]:
        """Return the passkeys of whoever is logged in, the oldest first."""
        login = _login(call)
        return () if login is None or login.user_id is None else await self.store.of_user(login.user_id)

    async def ask_signature(self, call: WebCall, asked: Approval) -> SignatureChallenge:
        """Return what a passkey is to sign for a yes. Raises `RefusedError`."""
        login, user_id, place = self._person(call)
        usable = tuple(one.credential_id for one in await self.store.of_user(user_id) if one.rp_id == place.rp_id)
        if not usable:
            sentence = f"You have no passkey for {place.rp_id}: add one on the page /passkeys."
            raise RefusedError(409, sentence, kind=ErrorKind.POLICY)
        signs = Challenge(
            nonce=self.draw(NONCE_BYTES),
            call_hash=asked.call_hash,
            approval_id=asked.id,
            expires_at=call.at + CHALLENGE_TIME,
        )
        new = _Waiting(
            login_id=login.id,
            user_id=user_id,
            place=place,
            expires_at=signs.expires_at,
            digest=signs.digest,
            signs=signs,
        )
        self._keep(call, new)
        return SignatureChallenge(
            challenge=packed(signs.digest), rp_id=place.rp_id, credentials=usable, expires_at=signs.expires_at
        )

    async def signature(self, call: WebCall, text: str, *, approval_id: int) -> Assertion:
        """Return what a passkey of whoever is logged in has signed. Raises `RefusedError`; nothing is signed twice."""
        login, user_id, _ = self._person(call)
        sent, waiting = self._used(call, login, text)
        if waiting.signs is None or waiting.signs.approval_id != approval_id:
            raise _refused(_UNKNOWN)
        passkey = next((one for one in await self.store.of_user(user_id) if one.credential_id == sent.id), None)
        if passkey is None or passkey.rp_id != waiting.place.rp_id:
            raise _refused(_NOT_YOURS)
        from claudeops.web.webauthn_checks import signed  # noqa: PLC0415 - an extra

        made = signed(text, waiting.signs, waiting.place, passkey)
        if made is None:
            raise _refused(_WRONG)
        return made

    async def ask_new(self, call: WebCall) -> PasskeyChallenge:
        """Return what a new passkey is made from. Raises `RefusedError`."""
        login, user_id, place = self._person(call)
        if not self.may_add(call):
            raise _refused(_TOO_OLD)
        from claudeops.web.webauthn_checks import ALGORITHMS  # noqa: PLC0415 - an extra

        digest, expires_at = self.draw(NONCE_BYTES), call.at + CHALLENGE_TIME
        new = _Waiting(login_id=login.id, user_id=user_id, place=place, expires_at=expires_at, digest=digest)
        self._keep(call, new)
        return PasskeyChallenge(
            challenge=packed(digest),
            rp_id=place.rp_id,
            user_handle=packed(f"claudeops:{user_id}".encode()),
            user_name=login.name,
            credentials=tuple(one.credential_id for one in await self.store.of_user(user_id)),
            algorithms=ALGORITHMS,
            expires_at=expires_at,
        )

    async def add(self, call: WebCall, *, name: str, text: str) -> PasskeyAct:
        """Add the passkey that a browser has made. Raises `RefusedError`."""
        login, user_id, _ = self._person(call)
        if not self.may_add(call):
            raise _refused(_TOO_OLD)
        _, waiting = self._used(call, login, text)
        if waiting.signs is not None:
            raise _refused(_UNKNOWN)
        from claudeops.web.webauthn_checks import registered  # noqa: PLC0415 - an extra

        found = registered(text, waiting.digest, waiting.place)
        if found is None:
            raise _refused(_WRONG)
        credential_id, public_key, count = found
        new = NewPasskey(
            user_id=user_id,
            name=" ".join(name.split()) or "passkey",
            rp_id=waiting.place.rp_id,
            credential_id=credential_id,
            public_key=public_key,
            sign_count=count,
            created_at=call.at,
        )
        added = await self.store.add(new, by=login.name)
        if added is None:
            sentence = f"This passkey is there already, or there are {MOST} of them: remove one."
            raise RefusedError(409, sentence, kind=ErrorKind.POLICY)
        return PasskeyAct(passkey_id=added.id, passkey_name=added.name)

    async def remove(self, call: WebCall, passkey_id: int) -> PasskeyAct:
        """Remove a passkey of whoever is logged in. Raises `RefusedError`."""
        login = _login(call)
        if login is None or login.user_id is None:
            raise _refused(_NO_USER)
        gone = await self.store.remove(passkey_id, user_id=login.user_id, by=login.name, now=call.at)
        if gone is None:
            raise RefusedError(404, f"You have no passkey {passkey_id}.")
        return PasskeyAct(passkey_id=gone.id, passkey_name=gone.name)

    def _person(self, call: WebCall) -> tuple[Login, int, PasskeyPlace]:
        """Return whose passkeys count, and where. Raises `RefusedError`."""
        if not self.is_installed():
            raise RefusedError(503, MISSING, kind=ErrorKind.RUNTIME)
        login = _login(call)
        if login is None or login.user_id is None:
            raise _refused(_NO_USER)
        if fault := self.fault(call):
            raise _refused(fault)
        host = _host(call)
        origin = f"{'https' if self._is_tls(call) else 'http'}://{host}"
        return login, login.user_id, PasskeyPlace(rp_id=host.partition(":")[0], origin=origin)

    def _is_tls(self, call: WebCall) -> bool:
        return call.connection.is_tls or _host(call) in self.tls_hosts

    def _keep(self, call: WebCall, new: _Waiting) -> None:
        self._waiting = {key: one for key, one in self._waiting.items() if call.at < one.expires_at}
        while len(self._waiting) >= MOST_CHALLENGES:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[new.digest] = new

    def _used(self, call: WebCall, login: Login, text: str) -> tuple[_Sent, _Waiting]:
        """Return a browser's answer and what it is for, which no other answer can be for from now on."""
        try:
            sent = msgspec.json.decode(text, type=_Sent)
            said = msgspec.json.decode(unpacked(sent.response.client_data), type=_ClientData)
            digest = unpacked(said.challenge)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise _refused(_WRONG) from None
        waiting = self._waiting.get(digest)
        if waiting is None or (waiting.login_id, waiting.user_id) != (login.id, login.user_id):
            raise _refused(_UNKNOWN)
        del self._waiting[digest]
        if call.at >= waiting.expires_at:
            raise _refused(_UNKNOWN)
        return sent, waiting


def _login(call: WebCall) -> Login | None:
    return None if call.caller is None else call.caller.login


def _host(call: WebCall) -> str:
    return call.headers.get("host", "").lower()


def _refused(sentence: str) -> RefusedError:
    return RefusedError(403, sentence, kind=ErrorKind.POLICY)
