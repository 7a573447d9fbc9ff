"""What a session called: tools, with the verdict on each call, and the model, with what a call used and cost."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, exists, func, select, union_all

from claudeops.domain.calls import VerdictKind
from claudeops.domain.listing import Listing, Page
from claudeops.domain.sessions import Status
from claudeops.policy.audit import row_content
from claudeops.policy.replay import RecordedCall
from claudeops.store.reading import earlier, page
from claudeops.store.rows import TableRow
from claudeops.store.tables.sessions import model_calls, sessions, tool_calls

_LOOKED_BACK: Final = 10_000  # calls
_MOST_BEFORE: Final = 20
_MOST_CONTENT: Final = 16 * 1024  # bytes of a link on a page


class ToolCallEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool, as the gate has judged it."""

    call_id: int
    session_id: int
    tool_use_id: str
    agent_id: str | None  # the subagent that called; None: the session itself
    tool_name: str
    input: Any  # as it was asked for, redacted
    ran: Any  # the input that ran instead; None: none did
    verdict: VerdictKind
    reason: str
    requested_at: datetime
    decided_at: datetime
    ended_at: datetime | None  # None: its result was not seen yet, or nothing ran
    is_error: bool | None


class ModelCallEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the model, as the meter has seen it."""

    call_id: int
    session_id: int
    model: str
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    cache_write_1h_tokens: int | None
    cost_usd: float | None  # None: its model has no price
    charged_usd: float | None  # that counts against the budgets
    http_status: int | None
    error: str | None
    started_at: datetime
    ended_at: datetime | None  # None: it is under way


def same_before(
    connection: Connection, session_id: int, tool_use_id: str, *, tool: str, given: str
) -> tuple[ToolCallEntry, ...]:
    """Return calls with the same tool and redacted input among the 10,000 before a call, newest first, at most 20."""
    columns = tool_calls.c
    own = (columns.session_id == session_id, columns.tool_use_id == tool_use_id)
    at = connection.execute(select(func.min(columns.id)).where(*own)).scalar()
    if at is None:  # its row is written once it is answered
        at = (connection.execute(select(func.max(columns.id))).scalar() or 0) + 1
    near = (columns.id < at, columns.id >= at - _LOOKED_BACK)
    query = select(tool_calls).where(*near, columns.tool_name == tool, columns.input == given)
    return tuple(map(_tool, connection.execute(query.order_by(columns.id.desc()).limit(_MOST_BEFORE))))


class AuditLink(msgspec.Struct, frozen=True, kw_only=True):
    """A call as a link of its session's audit chain, with what its hash is made of."""

    call_id: int
    session_id: int
    tool_name: str
    verdict: VerdictKind
    decided_at: datetime
    previous_hash: str  # empty: it is the first of its session
    hash: str
    content: str | None  # what is hashed, in base64; None: it is too long for a page
    head: str | None  # of the session's chain, on the newest call of it; None on the others


def audit_links(connection: Connection, wanted: Listing, *, session_id: int | None = None) -> Page[AuditLink]:
    """Return the links of the audit chains, newest first; of one session, if one is named."""
    query = select(tool_calls)
    if session_id is not None:
        query = query.where(tool_calls.c.session_id == session_id)
    found = page(connection, query, tool_calls.c.id, wanted, lambda row: row)
    named = {row.session_id for row in found.items}
    heads = select(sessions.c.id, sessions.c.audit_head).where(sessions.c.id.in_(named))
    from_newest = wanted.before is None and wanted.after is None
    left = {row.id: row.audit_head for row in connection.execute(heads)} if from_newest else {}
    return Page(
        items=tuple(_link(row, left.pop(row.session_id, None)) for row in found.items),
        before=found.before,
        newest=found.newest,
    )


def _link(row: TableRow, head: str | None) -> AuditLink:
    content = row_content(row)
    return AuditLink(
        call_id=row.id,
        session_id=row.session_id,
        tool_name=row.tool_name,
        verdict=VerdictKind(row.verdict),
        decided_at=row.decided_at,
        previous_hash=row.previous_hash,
        hash=row.hash,
        content=base64.b64encode(content).decode() if len(content) <= _MOST_CONTENT else None,
        head=head,
    )


def count_since(connection: Connection, since: datetime) -> int:
    """Return how many calls of tools are on record since a moment; one that a person answered counts once."""
    query = select(func.count()).select_from(tool_calls).where(*_since(since), _is_first())
    return connection.execute(query).scalar_one()


def recorded_before(
    connection: Connection, before: int | None, *, since: datetime, limit: int
) -> tuple[RecordedCall, ...]:
    """Return calls of tools before one, newest first, each with the verdict of the policy and no person's answer."""
    columns = tool_calls.c
    query = (
        select(tool_calls, sessions.c.tier)
        .join(sessions, sessions.c.id == columns.session_id)
        .where(*_since(since), _is_first())
        .order_by(columns.id.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(columns.id < before)
    return tuple(_recorded(row) for row in connection.execute(query))


def _since(moment: datetime) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a call was requested since a moment.

    No index has that moment. The ids of calls do: from the first call on of the sessions that have not ended before.
    """
    session, call = sessions.alias("late"), tool_calls.alias("call")
    first = select(func.min(call.c.id).label("id")).where(call.c.session_id == session.c.id).scalar_subquery()
    ended = select(first.label("id")).where(session.c.ended_at >= earlier(moment))
    under_way = select(first.label("id")).where(session.c.status.in_((Status.QUEUED.value, Status.RUNNING.value)))
    lowest = select(func.min(union_all(ended, under_way).subquery().c.id)).scalar_subquery()
    return tool_calls.c.id >= lowest, tool_calls.c.requested_at >= moment


def _is_first() -> ColumnElement[bool]:
    """Return the condition that no row of the same call was written before."""
    columns, other = tool_calls.c, tool_calls.alias("earlier").c
    same = (other.session_id == columns.session_id, other.tool_use_id == columns.tool_use_id, other.id < columns.id)
    return ~exists().where(*same)


def _recorded(row: TableRow) -> RecordedCall:
    given = _value(row.input)
    command = given.get("command") if isinstance(given, dict) else None
    return RecordedCall(
        call_id=row.id,
        session_id=row.session_id,
        tier=row.tier,
        tool_name=row.tool_name,
        input=given if isinstance(given, dict) else None,
        text=command if isinstance(command, str) else row.input,
        verdict=VerdictKind(row.verdict),
        reason=row.reason,
        requested_at=row.requested_at,
    )


def of_tools(connection: Connection, wanted: Listing, session_id: int) -> Page[ToolCallEntry]:
    """Return a session's calls of tools, newest first."""
    query = select(tool_calls).where(tool_calls.c.session_id == session_id)
    return page(connection, query, tool_calls.c.id, wanted, _tool)


def of_the_model(connection: Connection, wanted: Listing, session_id: int) -> Page[ModelCallEntry]:
    """Return a session's calls of the model, newest first."""
    query = select(model_calls).where(model_calls.c.session_id == session_id)
    return page(connection, query, model_calls.c.id, wanted, _model)


def _tool(row: TableRow) -> ToolCallEntry:
    return ToolCallEntry(
        call_id=row.id,
        session_id=row.session_id,
        tool_use_id=row.tool_use_id,
        agent_id=row.agent_id,
        tool_name=row.tool_name,
        input=_value(row.input),
        ran=None if row.ran is None else _value(row.ran),
        verdict=VerdictKind(row.verdict),
        reason=row.reason,
        requested_at=row.requested_at,
        decided_at=row.decided_at,
        ended_at=row.ended_at,
        is_error=row.is_error,
    )


def _model(row: TableRow) -> ModelCallEntry:
    return ModelCallEntry(
        call_id=row.id,
        session_id=row.session_id,
        model=row.model,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cache_read_tokens=row.cache_read_tokens,
        cache_write_tokens=row.cache_write_tokens,
        cache_write_1h_tokens=row.cache_write_1h_tokens,
        cost_usd=row.cost_usd,
        charged_usd=row.charged_usd,
        http_status=row.http_status,
        error=row.error,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _value(text: str) -> Any:
    """Return an input as a value; what is no JSON is a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
