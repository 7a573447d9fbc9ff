"""What the gate said to a session's calls, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from sqlalchemy import Connection, select

from claudeops.domain.calls import VerdictKind
from claudeops.store.tables.sessions import tool_calls


class CallVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is on record about one call. No rule is: the reason names it in words, where one decided."""

    verdict: VerdictKind  # the last one: a person's answer stands after the question
    reason: str
    requested_at: datetime  # of the first one
    decided_at: datetime
    ended_at: datetime | None  # None: it runs, or never ran
    is_error: bool | None  # None: not known


def verdicts(connection: Connection, session_id: int) -> Mapping[str, CallVerdict]:
    """Return the verdicts on the calls of a session, by ``tool_use_id``."""
    calls = tool_calls.c
    columns = (calls.verdict, calls.reason, calls.requested_at, calls.decided_at, calls.ended_at, calls.is_error)
    query = select(calls.tool_use_id, *columns).where(calls.session_id == session_id).order_by(calls.id)
    found: dict[str, CallVerdict] = {}
    for row in connection.execute(query):
        first = found.get(row.tool_use_id)
        found[row.tool_use_id] = CallVerdict(
            verdict=VerdictKind(row.verdict),
            reason=row.reason,
            requested_at=row.requested_at if first is None else first.requested_at,
            decided_at=row.decided_at,
            ended_at=row.ended_at,
            is_error=row.is_error,
        )
    return found
