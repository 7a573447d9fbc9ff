"""What people and programs do by way of pages and API: one table of acts, from which the endpoints of both follow.

Each act is a function of `claudeops.store.acts`, as the commands are, and the value that it returns is the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from claudeops.clock import Clock
from claudeops.domain.alerts.matchers import read_matchers
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.gate.approval import UNSEEN, ApprovalStatus
from claudeops.domain.listing import duration
from claudeops.domain.memories.categories import Category
from claudeops.domain.report.report import ReportedMemory
from claudeops.domain.sessions import LOWEST_TIER, NewSession
from claudeops.errors import ErrorKind
from claudeops.store.acts import Refusal, RefusalKind, holds, incidents, memories, sessions, silences, tokens
from claudeops.store.acts.approvals import AnswerAct, Unseen, answer_approval
from claudeops.store.acts.holds import PauseAct, ResumeAct
from claudeops.store.acts.incidents import IncidentAct
from claudeops.store.acts.memories import MemoryAct, MemoryVerb
from claudeops.store.acts.sessions import StopAct
from claudeops.store.acts.silences import EndedSilence, SilenceAct
from claudeops.store.acts.tokens import MadeToken, TokenAct
from claudeops.store.reading import session_rows
from claudeops.store.reading.session_rows import ListedSession
from claudeops.store.store import Store
from claudeops.structs import replace
from claudeops.web.endpoints import PREFER, WebCall
from claudeops.web.listings import Length
from claudeops.web.passkeys import PasskeyAct, PasskeyChallenge, Passkeys, SignatureChallenge
from claudeops.web.problems import RefusedError

PROMPT_LENGTH: Final = 100_000
"""Characters of a request."""

LONGEST: Final = timedelta(days=366)
"""A silence."""

_LARGEST: Final = 2**31 - 1
_BUSY: Final = "respond-if-busy"

Id = Annotated[int, msgspec.Meta(ge=1, le=_LARGEST)]
Line = Annotated[str, msgspec.Meta(max_length=300)]
Note = Annotated[str, msgspec.Meta(max_length=2000)]
Credential = Annotated[str, msgspec.Meta(max_length=20_000, extra_json_schema={"format": "credential"})]
MatcherText = Annotated[str, msgspec.Meta(max_length=300, extra_json_schema={"format": "matcher"})]
"""As in `alerts.toml`: `service="shop"`."""

ScopeText = Annotated[str, msgspec.Meta(max_length=300, extra_json_schema={"format": "scope"})]
"""Of a token: `read`, `alerts:grafana`."""

Lifetime = Annotated[str, msgspec.Meta(max_length=300, extra_json_schema={"format": "lifetime"})]

A = TypeVar("A", bound=msgspec.Struct)


class Acting(msgspec.Struct, frozen=True, kw_only=True):
    """What acts need of the daemon."""

    store: Store
    key: bytes | None  # by which answers to approvals are proven; None: there is none
    rules: Callable[[], EscalationRules]  # as they are now
    root: Callable[[int, str], NewSession]  # the first session of a chain, by its tier and the request
    highest_tier: int  # that may be started
    clock: Clock
    passkeys: Passkeys
    wake: Callable[[], None] = lambda: None  # what waits for changes in the database


# --- bodies -----------------------------------------------------------------------------------------------


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to say."""


class Request(Body, frozen=True, kw_only=True):
    """What a session is to do."""

    prompt: Annotated[str, msgspec.Meta(min_length=1, max_length=PROMPT_LENGTH)]
    start_tier: Annotated[int, msgspec.Meta(ge=1, le=99)] = LOWEST_TIER
    service: Line = ""  # that it is about
    site: Line = ""  # only a node of which may run it; empty: any


class Stop(Body, frozen=True, kw_only=True):
    """What is to be stopped."""

    chain: bool = False  # everything that is left of the chain


class AnswerBody(Body, frozen=True, kw_only=True):
    """A person's answer."""

    answer: Literal["approve", "deny"]
    call_hash: Line = ""  # of the call that the person was shown; empty: any
    unseen: bool = False  # approve it though parts of it are hidden
    passkey: Credential = ""  # a browser's answer, as JSON; empty: no passkey has signed


class SignatureBody(Body, frozen=True, kw_only=True):
    """The call to which a passkey is to sign a yes."""

    call_hash: Line = ""  # of the call that the person was shown; empty: any


class PasskeyBody(Body, frozen=True, kw_only=True):
    """A passkey that a browser has made."""

    name: Annotated[str, msgspec.Meta(max_length=100)] = ""
    credential: Credential  # its answer, as JSON


class SilenceBody(Body, frozen=True, kw_only=True):
    """What is to be held back, and for how long."""

    matchers: Annotated[list[MatcherText], msgspec.Meta(min_length=1, max_length=20)] | MatcherText
    lasts: Length = "2h"
    comment: Note = ""
    preview: bool = False  # only say what it would hold back


class MemoryBody(Body, frozen=True, kw_only=True):
    """A fact."""

    observation: Annotated[str, msgspec.Meta(min_length=1, max_length=5000)]
    category: Category = Category.OTHER
    service: Line = ""
    supersedes: Id | None = None  # a memory in whose place it stands


class EditBody(Body, frozen=True, kw_only=True):
    """A fact in the place of a memory."""

    observation: Annotated[str, msgspec.Meta(min_length=1, max_length=5000)]
    category: Category = Category.OTHER
    service: Line = ""


class PauseBody(Body, frozen=True, kw_only=True):
    """Why no session is to start."""

    reason: Note = ""
    stop: bool = False  # those that run, too


class TokenBody(Body, frozen=True, kw_only=True):
    """A token that is to be made."""

    name: Line
    scopes: Annotated[list[ScopeText], msgspec.Meta(min_length=1, max_length=50)] | ScopeText
    expires: Lifetime = "365d"  # after which time it ends, or `never`


# --- acts -------------------------------------------------------------------------------------------------


async def start(acting: Acting, call: WebCall, body: Request) -> ListedSession | Refusal:
    """Queue a session for the daemon."""
    if body.start_tier > acting.highest_tier:
        raise RefusedError(409, f"Tier {body.start_tier} may not run here.", kind=ErrorKind.POLICY)
    if _BUSY in call.headers.get(PREFER.lower(), "") and await _is_busy(acting):
        raise RefusedError(409, "Sessions run or wait already.", kind=ErrorKind.POLICY)
    new = replace(acting.root(body.start_tier, body.prompt), started_by=by(call))
    if service := body.service.strip():
        new = replace(new, services=(service,))
    if site := body.site.strip():
        new = replace(new, site=site)
    return await sessions.start_session(acting.store, new, rules=acting.rules(), now=call.at)


async def stop(acting: Acting, call: WebCall, body: Stop) -> StopAct | Refusal:
    """Stop a session; its end is not waited for."""
    number = call.number("id")
    session = await acting.store.records.session(number)
    if session is None:
        raise RefusedError(404, f"There is no session {number}.")
    return await sessions.stop_session(
        acting.store,
        session,
        chain=body.chain,
        by=by(call),
        rules=acting.rules(),
        served=_served,
        now=acting.clock.now,
        seconds=0.0,
    )


async def acknowledge(acting: Acting, call: WebCall, _: Body) -> IncidentAct | Refusal:
    """Note that a person is on an incident."""
    return await incidents.acknowledge(acting.store.incidents, call.number("number"), by=by(call), now=call.at)


async def resolve(acting: Acting, call: WebCall, _: Body) -> IncidentAct | Refusal:
    """Note that a person says that an incident is over."""
    return await incidents.resolve(acting.store.incidents, call.number("number"), by=by(call), now=call.at)


async def answer(acting: Acting, call: WebCall, body: AnswerBody) -> AnswerAct | Refusal:
    """Approve or deny a call that waits for a person."""
    if acting.key is None:
        raise RefusedError(503, "There is no key by which an answer could be proven.", kind=ErrorKind.RUNTIME)
    is_yes = body.answer == "approve"
    made = None
    if is_yes and body.passkey:
        made = await acting.passkeys.signature(call, body.passkey, approval_id=call.number("id"))
    done = await answer_approval(
        acting.store.approvals,
        acting.key,
        call.number("id"),
        status=ApprovalStatus.APPROVED if is_yes else ApprovalStatus.DENIED,
        by=f"web:{by(call)}",
        now=call.at,
        unseen=body.unseen,
        call_hash=body.call_hash or None,
        assertion=made,
    )
    if isinstance(done, Unseen):
        sentence = f"Approval {done.approval.id} was not given: the call is not shown whole, because {UNSEEN}."
        raise RefusedError(409, sentence, kind=ErrorKind.POLICY, hint='Deny it, or say "unseen" with the yes.')
    return done


async def ask_signature(acting: Acting, call: WebCall, body: SignatureBody) -> SignatureChallenge:
    """Return what a passkey is to sign for a yes."""
    number = call.number("id")
    asked = await acting.store.approvals.approval(number)
    if asked is None or (body.call_hash and body.call_hash != asked.call_hash):
        raise RefusedError(404, f"There is no approval {number} of this call.")
    return await acting.passkeys.ask_signature(call, asked)


async def ask_passkey(acting: Acting, call: WebCall, _: Body) -> PasskeyChallenge:
    """Return what a new passkey is made from."""
    return await acting.passkeys.ask_new(call)


async def add_passkey(acting: Acting, call: WebCall, body: PasskeyBody) -> PasskeyAct:
    """Add a passkey of the person who is logged in."""
    return await acting.passkeys.add(call, name=body.name, text=body.credential)


async def remove_passkey(acting: Acting, call: WebCall, _: Body) -> PasskeyAct:
    """Remove a passkey of the person who is logged in."""
    return await acting.passkeys.remove(call, call.number("id"))


async def silence(acting: Acting, call: WebCall, body: SilenceBody) -> SilenceAct:
    """Hold back alerts for a while."""
    try:
        matchers = read_matchers(_several(body.matchers))
        lasts = duration(body.lasts)
    except (ValueError, OverflowError) as error:
        raise RefusedError(422, f"{error}.") from None
    if not timedelta(0) < lasts <= LONGEST:
        raise RefusedError(422, f"lasts: a silence holds for at most {LONGEST.days} days.")
    return await silences.silence(
        acting.store.silences,
        matchers,
        lasts=lasts,
        comment=body.comment,
        only_preview=body.preview,
        by=by(call),
        now=call.at,
    )


async def end_silence(acting: Acting, call: WebCall, _: Body) -> EndedSilence | Refusal:
    """End a silence before its time."""
    return await silences.end_silence(acting.store.silences, call.number("id"), by=by(call), now=call.at)


async def add_memory(acting: Acting, call: WebCall, body: MemoryBody) -> MemoryAct | Refusal:
    """State a fact that every session is shown."""
    return await memories.add_memory(acting.store.memories, _memory(body, body.supersedes), by=by(call), now=call.at)


async def edit_memory(acting: Acting, call: WebCall, body: EditBody) -> MemoryAct | Refusal:
    """State a fact in the place of a memory."""
    return await memories.add_memory(acting.store.memories, _memory(body, call.number("id")), by=by(call), now=call.at)


def changes(verb: MemoryVerb) -> Callable[[Acting, WebCall, Body], Awaitable[MemoryAct | Refusal]]:
    """Return the act that does this to a memory."""

    async def change(acting: Acting, call: WebCall, _: Body) -> MemoryAct | Refusal:
        return await memories.change_memory(acting.store.memories, verb, call.number("id"), by=by(call), now=call.at)

    return change


async def pause(acting: Acting, call: WebCall, body: PauseBody) -> PauseAct:
    """Start no sessions from now on."""
    return await holds.pause(
        acting.store.holds,
        acting.store.commands,
        reason=body.reason,
        stop=body.stop,
        by=by(call),
        served=_served,
        now=acting.clock.now,
    )


async def resume(acting: Acting, call: WebCall, _: Body) -> ResumeAct:
    """Start sessions again."""
    return await holds.resume(acting.store.holds, now=call.at)


async def make_token(acting: Acting, call: WebCall, body: TokenBody) -> MadeToken | Refusal:
    """Make a token for a program."""
    try:
        expires_at = None if body.expires == "never" else call.at + duration(body.expires)
    except (ValueError, OverflowError):
        raise RefusedError(422, f"expires: {body.expires!r} is no length of time: write 90d or never.") from None
    return await tokens.make_token(
        acting.store.tokens,
        name=body.name,
        scopes=_several(body.scopes),
        expires_at=expires_at,
        by=by(call),
        now=call.at,
    )


async def revoke_token(acting: Acting, call: WebCall, _: Body) -> TokenAct | Refusal:
    """Let a token open nothing from now on."""
    return await tokens.revoke_token(acting.store.tokens, call.number("id"), by=by(call), now=call.at)


# --- what they share --------------------------------------------------------------------------------------


def by(call: WebCall) -> str:
    """Return who does it, for the record: a person by name, a program by its token."""
    if call.caller is None:
        raise RefusedError(401, "This needs a login.", kind=ErrorKind.AUTH)
    return call.caller.known_as


def done_or_refused(done: A | Refusal) -> A:
    """Return what was done. Raises `RefusedError` where nothing was."""
    if not isinstance(done, Refusal):
        return done
    status = _STATUSES[done.kind]
    retry_after = _AGAIN_SECONDS if done.kind is RefusalKind.LATER else None
    sentence = _sentence(done.sentence)
    raise RefusedError(status, sentence, kind=ErrorKind.POLICY, retry_after=retry_after, hint=done.hint)


_AGAIN_SECONDS: Final = 5
_STATUSES: Final[Mapping[RefusalKind, int]] = {
    RefusalKind.MISSING: 404,
    RefusalKind.REFUSED: 409,
    RefusalKind.LATER: 503,
}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _several(given: list[str] | str) -> list[str]:
    """Return the values of a field: a form has one a line."""
    return [line.strip() for line in given.splitlines() if line.strip()] if isinstance(given, str) else given


def _memory(body: MemoryBody | EditBody, supersedes: int | None) -> ReportedMemory:
    return ReportedMemory(
        category=body.category,
        observation=body.observation,
        service=body.service.strip() or None,
        supersedes=supersedes,
    )


async def _served() -> bool:
    return True  # by this very daemon


async def _is_busy(acting: Acting) -> bool:
    return await acting.store.database.read(session_rows.is_busy)
