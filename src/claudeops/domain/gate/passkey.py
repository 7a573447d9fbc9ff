"""Approvals that a passkey signs: what is signed, and what goes on record so that the signature can be checked later.

The challenge is SHA-256 of a nonce and of the text ``<call hash>:<answer>:<approval id>:<expiry>``, so that a signature
is good for one answer to one question about one call. A passkey signs the authenticator data and the SHA-256 digest of
the client data, in which the challenge stands; all of it is kept, with the public key in the form that OpenSSL reads.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

import msgspec

NONCE_BYTES: Final = 32
CHALLENGE_TIME: Final = timedelta(minutes=2)
"""For which a challenge may be signed, once."""

YOUNG: Final = timedelta(minutes=10)
"""How old a login may be by which a passkey is added."""

YES: Final = "approve"
"""The one answer that a passkey signs; a no needs none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Challenge:
    """What a person's passkey is to sign."""

    nonce: bytes = field(repr=False)
    call_hash: str
    approval_id: int
    expires_at: datetime
    answer: str = YES

    @property
    def digest(self) -> bytes:
        """The bytes that stand in the client data, in base64 for URLs."""
        said = f"{self.call_hash}:{self.answer}:{self.approval_id}:{int(self.expires_at.timestamp())}"
        return sha256(self.nonce + said.encode()).digest()


class Assertion(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey's signature under a yes, with all that is needed to check it again."""

    challenge: Challenge
    user_id: int
    rp_id: str  # the host by which the page was called
    credential_id: str  # base64 for URLs, as all that follows
    public_key: str  # SubjectPublicKeyInfo in DER
    authenticator_data: str
    client_data: str
    signature: str
    sign_count: int = 0  # that the authenticator names; 0: it does not count

    @property
    def digest(self) -> str:
        """What the proof of an answer names, as SHA-256 in hex."""
        content = (
            self.challenge.digest.hex(),
            self.user_id,
            self.rp_id,
            self.credential_id,
            self.public_key,
            self.authenticator_data,
            self.client_data,
            self.signature,
        )
        return sha256(msgspec.json.encode(content)).hexdigest()

    @property
    def signed(self) -> bytes:
        """The bytes under the signature. Raises `ValueError` for what is no base64."""
        return unpacked(self.authenticator_data) + sha256(unpacked(self.client_data)).digest()


class PasskeyPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a browser uses a passkey."""

    rp_id: str  # the host
    origin: str  # with scheme and port


class _ClientData(msgspec.Struct):
    type: str
    challenge: str
    origin: str


_CLIENT_DATA: Final = msgspec.json.Decoder(_ClientData)
_PRESENT_AND_VERIFIED: Final = 0b101
_RP_ID_BYTES: Final = 32


def content_fault(found: Assertion) -> str:
    """Return what an assertion does not say that it must say, as the end of a sentence; empty: nothing is missing."""
    try:
        said = _CLIENT_DATA.decode(unpacked(found.client_data))
        data = unpacked(found.authenticator_data)
        is_its_challenge = unpacked(said.challenge) == found.challenge.digest
    except (msgspec.MsgspecError, ValueError):
        return "cannot be read"
    if said.type != "webauthn.get":
        return "is of another kind"
    if not is_its_challenge:
        return "is about another call, answer, question or time"
    if data[:_RP_ID_BYTES] != sha256(found.rp_id.encode()).digest():
        return "is for another site"
    flags = data[_RP_ID_BYTES] if len(data) > _RP_ID_BYTES else 0
    return "" if flags & _PRESENT_AND_VERIFIED == _PRESENT_AND_VERIFIED else "was made without its owner"


class NewPasskey(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey that a user adds."""

    user_id: int
    name: str  # that the user gives it
    rp_id: str  # the host for which it works
    credential_id: str  # base64 for URLs
    public_key: str  # as the authenticator writes it (COSE), in base64 for URLs
    sign_count: int
    created_at: datetime


class Passkey(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey on record."""

    id: int
    user_id: int
    name: str
    rp_id: str
    credential_id: str
    public_key: str
    sign_count: int
    created_at: datetime
    last_used_at: datetime | None = None


def packed(data: bytes) -> str:
    """Return bytes in base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unpacked(text: str) -> bytes:
    """Return the bytes of such a text. Raises `ValueError` for another one."""
    if "+" in text or "/" in text:
        raise ValueError("it is base64, and not for URLs")
    try:
        return base64.b64decode(f"{text}{'=' * (-len(text) % 4)}", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("it is no base64 for URLs") from error


def is_young(began: datetime, now: datetime) -> bool:
    """Return whether a login is young enough to add a passkey."""
    return now - began < YOUNG


def site_fault(host: str, *, is_tls: bool) -> str:
    """Return why no passkey works at a host, as a sentence; empty: one does.

    Browsers offer passkeys by a name, over https; on the machine itself over plain HTTP too, as localhost.
    """
    if not host or host.replace(".", "").isdigit() or ":" in host:
        return (
            "Passkeys work by a name, and not by an address: open this page as localhost, or by CLAUDEOPS_PUBLIC_URL."
        )
    if host != "localhost" and not is_tls:
        return "Passkeys need https: open this page by an https address of CLAUDEOPS_PUBLIC_URL, or as localhost."
    return ""
