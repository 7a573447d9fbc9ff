"""The audit trail of tool calls: rows that were changed, removed or inserted later can be detected.

Each row's ``hash`` is the SHA-256, in hex, of the JSON array of the values in `link`'s order; the first row's
``previous_hash`` is the empty text, and ``sessions.audit_head`` is the last row's hash. The results of the calls
(``ended_at``, ``is_error``) arrive after the row was written; when the session has ended, ``sessions.audit_results``
seals them. Head and seal are also in the daemon's log, which exposes a session whose rows and head were made anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.text import clean, clip

StoredRow: TypeAlias = Any
"""A row as the store has read it: its attributes are the columns."""

TOO_LATE: Final = "denied: the verdict before this row was written too late to be told"
"""Why the last row of a call is a deny although an earlier one is an allow. Stored rows are compared with it."""

_SEAL: Final = "results"
"""The first value of a seal, so that no seal can pass for the hash of a row."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A ``tool_calls`` row as it is first written; the fields are columns."""

    session_id: int
    tool_use_id: str
    agent_id: str | None
    tool_name: str
    input: str
    verdict: str
    reason: str
    ran: str | None
    requested_at: datetime
    decided_at: datetime
    previous_hash: str
    hash: str


def link(
    previous_hash: str,
    *,
    session_id: int,
    call: ToolCall,
    verdict: Verdict,
    redacted_input: str,
    requested_at: datetime,
    decided_at: datetime,
    redacted_ran: str | None = None,
) -> Link:
    """Return the row that follows ``previous_hash``; texts are hashed as their columns hold them.

    The input that a denied call would have run is not kept: nothing ran.
    """
    tool_use_id, tool_name = clip(call.tool_use_id), clip(call.tool_name)
    agent_id = None if call.agent_id is None else clip(call.agent_id)
    given, reason = clean(redacted_input), clean(verdict.reason)
    ran = None if redacted_ran is None or verdict.kind is VerdictKind.DENY else clean(redacted_ran)
    texts = (tool_use_id, agent_id, tool_name, given, verdict.kind.value, reason, *_if_any(ran))
    content = (previous_hash, session_id, *texts, _moment(requested_at), _moment(decided_at))
    return Link(
        session_id=session_id,
        tool_use_id=tool_use_id,
        agent_id=agent_id,
        tool_name=tool_name,
        input=given,
        verdict=verdict.kind.value,
        reason=reason,
        ran=ran,
        requested_at=requested_at,
        decided_at=decided_at,
        previous_hash=previous_hash,
        hash=_digest(content),
    )


def row_hash(row: StoredRow) -> str:
    """Return what the ``hash`` of a stored row must be."""
    return sha256(row_content(row)).hexdigest()


def row_content(row: StoredRow) -> bytes:
    """Return what is hashed of a stored row."""
    texts = (row.tool_use_id, row.agent_id, row.tool_name, row.input, row.verdict, row.reason, *_if_any(row.ran))
    content = (row.previous_hash, row.session_id, *texts, _moment(row.requested_at), _moment(row.decided_at))
    return msgspec.json.encode(content)


def seal(rows: Iterable[StoredRow]) -> str:
    """Return what ``audit_results`` must be for a session's rows, in the order of their ids."""
    ends = [(row.hash, None if row.ended_at is None else _moment(row.ended_at), _truth(row.is_error)) for row in rows]
    return _digest((_SEAL, *ends))


def tombstone_hash(row: StoredRow) -> str:
    """Return what the ``hash`` of a stored tombstone must be."""
    content = (row.previous_hash, row.session_id, row.calls, row.audit_head, row.audit_results, row.reason)
    return _digest((*content, _moment(row.buried_at)))


def _if_any(ran: str | None) -> tuple[str, ...]:
    """Return the input that ran as part of the hashed values; rows from before that column are hashed without it."""
    return () if ran is None else (ran,)


def _digest(content: tuple[object, ...]) -> str:
    return sha256(msgspec.json.encode(content)).hexdigest()


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def _truth(value: object) -> bool | None:
    return None if value is None else bool(value)
