"""When a chain's calls were put, judged and run, and when its models were asked: what a timeline is drawn of."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Connection, select

from claudeops.domain.calls import VerdictKind
from claudeops.store.tables.sessions import model_calls, sessions, tool_calls

MOST: Final = 1000
"""Calls of each kind."""

_INPUTS: Final = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
_INPUT: Final = 400  # characters of a call's input


class CallSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call. One that a person was asked about stands twice: as the question, and with the answer."""

    session_id: int
    tier: int
    tool_name: str
    input: str  # the beginning of its redacted JSON
    verdict: VerdictKind
    reason: str
    requested_at: datetime
    decided_at: datetime
    ended_at: datetime | None  # None: it never ran, or runs
    is_error: bool | None


class ModelSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a model."""

    session_id: int
    tier: int
    model: str
    input_tokens: int  # with those read from the cache and written to it
    output_tokens: int
    cost_usd: float | None  # None: it has no price
    started_at: datetime
    ended_at: datetime | None


class ChainCalls(msgspec.Struct, frozen=True, kw_only=True):
    """All of a chain, in order; of very many, the first."""

    calls: tuple[CallSpan, ...]
    model_calls: tuple[ModelSpan, ...]


def calls_of(connection: Connection, chain: int) -> ChainCalls:
    """Return the calls of a chain."""
    return ChainCalls(calls=_calls(connection, chain), model_calls=_model_calls(connection, chain))


def audit_head(connection: Connection, session_id: int) -> str:
    """Return the head of a session's audit chain; empty for a session that is not there."""
    query = select(sessions.c.audit_head).where(sessions.c.id == session_id)
    return connection.execute(query).scalar_one_or_none() or ""


def _calls(connection: Connection, chain: int) -> tuple[CallSpan, ...]:
    columns = tool_calls.c
    query = (
        select(tool_calls, sessions.c.tier)
        .join(sessions, sessions.c.id == columns.session_id)
        .where(sessions.c.root_session_id == chain)
        .order_by(columns.id)
        .limit(MOST)
    )
    return tuple(
        CallSpan(
            session_id=row.session_id,
            tier=row.tier,
            tool_name=row.tool_name,
            input=row.input[:_INPUT],
            verdict=VerdictKind(row.verdict),
            reason=row.reason,
            requested_at=row.requested_at,
            decided_at=row.decided_at,
            ended_at=row.ended_at,
            is_error=row.is_error,
        )
        for row in connection.execute(query)
    )


def _model_calls(connection: Connection, chain: int) -> tuple[ModelSpan, ...]:
    columns = model_calls.c
    query = (
        select(model_calls, sessions.c.tier)
        .join(sessions, sessions.c.id == columns.session_id)
        .where(sessions.c.root_session_id == chain)
        .order_by(columns.id)
        .limit(MOST)
    )
    return tuple(
        ModelSpan(
            session_id=row.session_id,
            tier=row.tier,
            model=row.model,
            input_tokens=sum(int(getattr(row, name) or 0) for name in _INPUTS),
            output_tokens=int(row.output_tokens or 0),
            cost_usd=row.cost_usd,
            started_at=row.started_at,
            ended_at=row.ended_at,
        )
        for row in connection.execute(query)
    )
