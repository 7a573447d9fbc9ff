"""Approvals: what a person's answer is bound to, how it is proved, and how a call is displayed.

An answer counts for one call of one session: its hash covers session, attempt, tier, working directory, agent, tool,
the whole input and the contents of the scripts that the input names. A person's answer carries a MAC whose key no
session can read: a row that says ``approved`` without a valid MAC proves nothing.

The policy may want several people's yes. They are told apart by name alone, not by the way their answers came: whoever
says yes in two chats is one person. One no ends the question.

A question may demand a passkey: then a yes counts with a passkey's signature alone (`claudeops.domain.gate.passkey`),
whose digest the proof of the answer covers.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final, Protocol

import msgspec

from claudeops.closed_set import ClosedSet
from claudeops.domain.calls import ToolCall
from claudeops.domain.sessions import Session
from claudeops.structs import replace
from claudeops.text import casefold_key

KEY_BYTES: Final = 32

UNSEEN: Final = "parts that look like secrets are hidden as [redacted], and what is hidden runs too"
"""Why a call is not shown whole."""


class ApprovalStatus(ClosedSet):
    """Where a question to a person stands; it only ever moves forward."""

    PENDING = "pending", "waits for an answer"
    APPROVED = "approved", "a person answered yes; the call has not been let through yet"
    DENIED = "denied", "a person answered no, or the daemon ended"
    EXPIRED = "expired", "no answer came in time, or the session ended first"
    USED = "used", "its one call has been let through"


class Answered(StrEnum):
    """What became of a person's answer."""

    DECIDED = "decided"  # it decides the question
    COUNTED = "counted"  # a yes that counts, and others must say yes too
    ALREADY = "already"  # nothing: somebody else was first, or nobody waits for an answer any more
    SAME_PERSON = "same_person"  # nothing: this person's yes counts already
    EXPIRED = "expired"  # nothing: its time was over
    TOKEN_USED = "token_used"  # noqa: S105 - no secret; nothing: the button that it came by was used already
    UNKNOWN = "unknown"  # nothing: there is no such question
    NEEDS_PASSKEY = "needs_passkey"  # nothing: a yes to it needs a passkey's signature
    SIGNED_BEFORE = "signed_before"  # nothing: the passkey is gone, or has signed since


class CalledScript(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a call would run, as it was when the question was asked."""

    path: str  # absolute
    sha256: str  # of its contents, in hex
    text: str = ""  # redacted and cut, for people to read
    hidden: bool = False  # parts of the text are hidden that only have the shape of a secret
    cut: bool = False  # the file goes on after the text


class NewApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A new question to a person: one row."""

    session: Session
    call: ToolCall
    call_hash: str
    workdir: str
    redacted_input: str  # redacted JSON of the whole input
    scripts: tuple[CalledScript, ...]
    reason: str  # why the policy wants a person to decide
    requested_at: datetime
    expires_at: datetime
    services: tuple[str, ...] | None = None  # that the call would change; None: the gate does not know all of them
    needed: int = 1  # how many different people must say yes
    hidden: bool = False  # parts of the input are hidden that only have the shape of a secret
    passkey: bool = False  # a yes counts with a passkey's signature alone


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer, with its proof."""

    status: ApprovalStatus  # approved or denied
    decided_by: str  # ``telegram:alice``, or the operator's name at the shell
    decided_at: datetime
    mac: str
    assertion: str = ""  # the digest of a passkey's signature; empty: none was made


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a person, and what became of it."""

    id: int
    session_id: int
    tool_use_id: str
    call_hash: str
    status: ApprovalStatus
    requested_at: datetime
    expires_at: datetime
    decided_at: datetime | None = None
    decided_by: str | None = None  # everybody who said yes, or who said no
    agent_id: str | None = None
    tool_name: str | None = None
    tier: int | None = None
    workdir: str | None = None
    input: str | None = None
    scripts: str | None = None  # JSON
    reason: str | None = None
    mac: str | None = None  # of the answer that decided
    services: str | None = None  # JSON; None: the gate does not know all that the call would change
    needed: int = 1  # how many different people must say yes
    hidden: bool = False  # parts of the input are hidden that only have the shape of a secret, and may be anything
    unheard: str | None = None  # set once it is known to have reached nobody: which targets failed, and how
    passkey: bool = False  # a yes counts with a passkey's signature alone
    answers: tuple[Answer, ...] = ()  # what was answered so far, whether proven or not, the first one first

    @property
    def agreed(self) -> tuple[str, ...]:
        """Who said yes, each person once; what is written there is not proven."""
        return people(each.decided_by for each in self.answers if each.status is ApprovalStatus.APPROVED)


def call_hash(*, session: Session, workdir: str, call: ToolCall, scripts: Sequence[CalledScript]) -> str:
    """Return what an answer is bound to, as SHA-256 in hex."""
    content = (
        session.id,
        session.attempt,
        session.tier,
        workdir,
        call.agent_id,
        call.tool_use_id,
        call.tool_name,
        call.input,
        [(script.path, script.sha256) for script in scripts],
    )
    return sha256(msgspec.json.encode(content, order="deterministic", enc_hook=str)).hexdigest()


def answer(
    key: bytes, asked: Approval, *, status: ApprovalStatus, decided_by: str, at: datetime, assertion: str = ""
) -> Answer:
    """Return a person's answer with its MAC; ``assertion`` is the digest of a passkey's signature."""
    said = Answer(status=status, decided_by=decided_by, decided_at=at, mac="", assertion=assertion)
    return replace(said, mac=_mac(key, asked, said))


class SignedQuestion(Protocol):
    """A question, as far as the proof of an answer names it."""

    @property
    def id(self) -> int:
        """The question."""

    @property
    def session_id(self) -> int:
        """The session."""

    @property
    def call_hash(self) -> str:
        """The call."""


def proven(key: bytes, asked: SignedQuestion, said: Answer) -> bool:
    """Tell whether an answer to this question carries the valid MAC of a holder of the key."""
    expected = _mac(key, asked, said)
    return hmac.compare_digest(expected.encode(), said.mac.encode("utf-8", "replace"))


def proven_yes(key: bytes, asked: Approval, *, passkey: bool = False) -> tuple[str, ...]:
    """Return who said yes by answers whose proof holds, each person once; nobody, if there is a proven no as well.

    ``passkey``: a yes without a passkey's signature counts for nothing.
    """
    found = [said for said in asked.answers if proven(key, asked, said)]
    if any(said.status is not ApprovalStatus.APPROVED for said in found):
        return ()
    return people(said.decided_by for said in found if said.assertion or not passkey)


def person(decided_by: str) -> str:
    """Return whose answer it is, whichever way it came: ``telegram:Alice``, ``slack:alice`` and ``alice`` are one."""
    kind, colon, name = decided_by.partition(":")
    return casefold_key(name if colon else kind)


def people(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of different people, in order, each as it was written first."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(person(name), name)
    return tuple(found.values())


def join_people(names: Sequence[str]) -> str:
    """Return names of people for a sentence."""
    return " and ".join(names)


def _mac(key: bytes, row: SignedQuestion, said: Answer) -> str:
    moment = said.decided_at.astimezone(UTC).isoformat(timespec="microseconds")
    content = (row.id, row.session_id, row.call_hash, said.status.value, said.decided_by, moment)
    signed = (*content, said.assertion) if said.assertion else content
    return hmac.new(key, msgspec.json.encode(signed), "sha256").hexdigest()
