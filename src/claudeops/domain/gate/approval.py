"""Approvals: what a person's answer is bound to, how it is proved, and how a call is displayed.

An answer counts for one call of one session: its hash covers session, attempt, tier, working directory, agent, tool,
the whole input and the contents of the scripts that the input names. A person's answer carries a MAC whose key no
session can read: a row that says ``approved`` without a valid MAC proves nothing.
"""

from __future__ import annotations

import hmac
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final

import msgspec

from claudeops.domain.model import Session, ToolCall

KEY_BYTES: Final = 32

_KEPT: Final = frozenset("\n\t")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories that a terminal obeys or does not show: controls, formats (bidirectional marks, zero-width
characters), private use, lone surrogates, line and paragraph separators."""


class ApprovalStatus(StrEnum):
    """Where a question to a person stands; it only ever moves forward."""

    PENDING = "pending"  # waits for an answer
    APPROVED = "approved"  # a person said yes; the call has not been let through yet
    DENIED = "denied"  # a person said no, or the daemon ended
    EXPIRED = "expired"  # no answer came in time, or the session ended first
    USED = "used"  # its one call has been let through


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """A file that a call would run, as it was when the question was asked."""

    path: str  # absolute
    sha256: str  # of its contents, in hex
    text: str = ""  # redacted and cut, for people to read


@dataclass(frozen=True, kw_only=True, slots=True)
class NewApproval:
    """A new question to a person: one row."""

    session: Session
    call: ToolCall
    call_hash: str
    workdir: str
    redacted_input: str  # redacted JSON of the whole input
    scripts: tuple[Script, ...]
    reason: str  # why the policy wants a person to decide
    requested_at: datetime
    expires_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval:
    """A question to a person, and what became of it."""

    id: int
    session_id: int
    tool_use_id: str
    call_hash: str
    status: ApprovalStatus
    requested_at: datetime
    expires_at: datetime
    decided_at: datetime | None = None
    decided_by: str | None = None
    agent_id: str | None = None
    tool_name: str | None = None
    tier: int | None = None
    workdir: str | None = None
    input: str | None = None
    scripts: str | None = None  # JSON
    reason: str | None = None
    mac: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A person's answer, with its proof."""

    status: ApprovalStatus  # approved or denied
    decided_by: str
    decided_at: datetime
    mac: str


def call_hash(*, session: Session, workdir: str, call: ToolCall, scripts: Sequence[Script]) -> str:
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


def answer(key: bytes, asked: Approval, *, status: ApprovalStatus, decided_by: str, at: datetime) -> Answer:
    """Return a person's answer with its MAC."""
    proof = _mac(key, asked, status=status, decided_by=decided_by, at=at)
    return Answer(status=status, decided_by=decided_by, decided_at=at, mac=proof)


def proven(key: bytes, row: Approval) -> bool:
    """Tell whether an answered row carries the valid MAC of a holder of the key."""
    if row.mac is None or row.decided_by is None or row.decided_at is None:
        return False
    expected = _mac(key, row, status=row.status, decided_by=row.decided_by, at=row.decided_at)
    return hmac.compare_digest(expected.encode(), row.mac.encode("utf-8", "replace"))


def visible(text: str) -> str:
    r"""Return a whole text with everything escaped (``\u202e``) that a terminal would obey or hide.

    Line feeds, tabs and backslashes stay, so that a command reads as it was written.
    """
    return "".join(_escaped(character) for character in text)


def _mac(key: bytes, row: Approval, *, status: ApprovalStatus, decided_by: str, at: datetime) -> str:
    moment = at.astimezone(UTC).isoformat(timespec="microseconds")
    content = (row.id, row.session_id, row.call_hash, status.value, decided_by, moment)
    return hmac.new(key, msgspec.json.encode(content), "sha256").hexdigest()


def _escaped(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - the last of four hex digits
