"""The hash chain over a session's tool calls: a row that was changed or taken out afterwards shows.

Each row's ``hash`` is the SHA-256, in hex, of the JSON array of the values in `link`'s order; the first
row's ``previous_hash`` is the empty text, and ``sessions.audit_head`` is the last row's hash. Result columns
(``ended_at``, ``is_error``) come later and are not covered.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from claudeops.store.types import clean, clip

if TYPE_CHECKING:
    from datetime import datetime

    from claudeops.domain.model import ToolCall, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A ``tool_calls`` row as it is first written; the fields are columns."""

    session_id: int
    tool_use_id: str
    agent_id: str | None
    tool_name: str
    input: str
    verdict: str
    reason: str
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
    shown_input: str,
    requested_at: datetime,
    decided_at: datetime,
) -> Link:
    """Return the row that follows ``previous_hash``; texts are hashed as their columns hold them."""
    tool_use_id, tool_name = clip(call.tool_use_id), clip(call.tool_name)
    agent_id = None if call.agent_id is None else clip(call.agent_id)
    shown, reason = clean(shown_input), clean(verdict.reason)
    texts = (tool_use_id, agent_id, tool_name, shown, verdict.kind.value, reason)
    content = (previous_hash, session_id, *texts, _moment(requested_at), _moment(decided_at))
    return Link(
        session_id=session_id,
        tool_use_id=tool_use_id,
        agent_id=agent_id,
        tool_name=tool_name,
        input=shown,
        verdict=verdict.kind.value,
        reason=reason,
        requested_at=requested_at,
        decided_at=decided_at,
        previous_hash=previous_hash,
        hash=sha256(msgspec.json.encode(content)).hexdigest(),
    )


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")
