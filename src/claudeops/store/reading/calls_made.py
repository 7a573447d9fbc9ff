"""What a session called: tools, with the verdict on each call, and the model, with what a call used and cost."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from claudeops.domain.listing import Listing, Page
from claudeops.domain.model import VerdictKind
from claudeops.store.reading import page
from claudeops.store.rows import TableRow
from claudeops.store.tables import model_calls, tool_calls


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
