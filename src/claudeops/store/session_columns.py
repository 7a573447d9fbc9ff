"""The columns that each step of a session fills, those of a call of its model, and the sign of life of an owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Final

import msgspec
from sqlalchemy import Connection, Update, bindparam, func, update

from claudeops.domain.chains.backfill import report_summary, stream_values
from claudeops.domain.owner import SESSION_LEASE, Owner
from claudeops.domain.sessions import (
    DecisionReason,
    Ending,
    Handover,
    NewSession,
    Outcome,
    Session,
    Status,
    Suppressed,
    turn_of,
)
from claudeops.domain.spending.budget import BookedCall, BookedCalls
from claudeops.domain.spending.tokens import CallState
from claudeops.store.rows import TableRow
from claudeops.store.tables.columns import UtcDateTime
from claudeops.store.tables.sessions import sessions
from claudeops.text import json_text

CHANGE_SESSION: Final = update(sessions).where(sessions.c.id == bindparam("session"))
"""Needs ``session``, the id, and the columns by name when it runs. Built once: building a statement and looking it up
among the compiled ones takes three times as long as running it on SQLite."""

CHANGE_SESSION_AS_SEEN: Final = CHANGE_SESSION.where(
    sessions.c.status == bindparam("seen_status"), sessions.c.attempt == bindparam("seen_attempt")
)
"""Needs ``session``, ``seen_status`` and ``seen_attempt``: changes nothing when somebody was faster."""

THEIR_NOW: Final = func.clock_timestamp(type_=UtcDateTime())

UNCLAIMED: Final[Mapping[str, object]] = {
    "status": Status.QUEUED.value,
    "owner": None,
    "lease_expires_at": None,
    "cli_session_id": None,
    "log_path": None,
    "log_node": None,
    "isolation": None,
    "started_at": None,
}
"""The columns that a claim fills, as they were before it; except the attempt, which counts claims."""

_TOKENS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
)


def queued_values(
    new: NewSession, *, root_session_id: int | None, now: datetime, site: str | None = None
) -> dict[str, object]:
    """Return the columns of a session that is queued; ``site`` is its chain's, unless it has its own."""
    return {
        "root_session_id": root_session_id,
        "parent_session_id": new.parent_session_id,
        "tier": new.tier,
        "ordinal": new.ordinal,
        "harness": new.harness,
        "model": new.model,
        "trigger": new.trigger.value,
        "prompt_text": new.prompt_text,
        "context": _handover_text(new.context),
        "status": Status.QUEUED.value,
        "created_at": now,
        "not_before": new.not_before,
        "ranked_at": turn_of(new.trigger, new.not_before or now),
        "budget_usd": new.budget_usd,
        "services": json_text(new.services) if new.services else None,
        "started_by": new.started_by,
        "site": new.site or site,
        "for_node": new.for_node,
        "attempt": 0,
        "audit_head": "",
    }


def claimed_values(
    found: Session, owner: Owner, *, now: datetime, cli_session_id: str, log_path: str
) -> dict[str, object]:
    """Return the columns that a claim fills."""
    return {
        "status": Status.RUNNING.value,
        "attempt": found.attempt + 1,
        "owner": owner.name,
        "lease_expires_at": now + SESSION_LEASE,
        "cli_session_id": cli_session_id,
        "log_path": log_path,
        "log_node": owner.node or None,
        "isolation": owner.isolation,
        "started_at": now,
    }


def taken_over_values(found: Session, owner: Owner, *, now: datetime) -> dict[str, object]:
    """Return the columns of a running session that another owner takes over."""
    return {"attempt": found.attempt + 1, "owner": owner.name, "lease_expires_at": now + SESSION_LEASE}


def blocked_values(suppressed: Suppressed, *, now: datetime) -> dict[str, object]:
    """Return the columns of a queued session that may no longer run."""
    return {
        "status": Status.ENDED.value,
        "outcome": Outcome.BLOCKED.value,
        "decision_reason": suppressed.reason.value,
        "error": suppressed.message,
        "ended_at": now,
    }


def cancelled_values(error: str, *, now: datetime) -> dict[str, object]:
    """Return the columns of a queued session that an operator has stopped before it began."""
    return {
        "status": Status.ENDED.value,
        "outcome": Outcome.CANCELLED.value,
        "decision_reason": DecisionReason.PAUSED.value,
        "error": error,
        "ended_at": now,
    }


def lost_values(error: str, calls: BookedCalls, *, now: datetime) -> dict[str, object]:
    """Return the columns of a session whose daemon is gone: its result is unknown, but what it used is not."""
    return {
        **(_spent_values(calls) if calls.count else {}),
        "status": Status.ENDED.value,
        "outcome": Outcome.LOST.value,
        "decision_reason": DecisionReason.SESSION_FAILED.value,
        "error": error,
        "ended_at": now,
    }


def ended_values(
    ending: Ending, *, cli_session_id: str | None, reason: DecisionReason, warnings: Sequence[str]
) -> dict[str, object]:
    """Return the columns that a session's end fills."""
    return {
        **stream_values(ending, warnings=warnings),
        "status": Status.ENDED.value,
        "outcome": ending.outcome.value,
        "error_category": _value(ending.error_category),
        "failure_kind": _value(ending.failure_kind),
        "error": ending.error,
        "extraction_method": ending.extraction.method.value,
        "decision_reason": reason.value,
        "cli_session_id": ending.cli_session_id or cli_session_id,
        "ended_at": ending.ended_at,
        "duration_ms": ending.duration_ms,
        "exit_code": ending.exit_code,
        "cost_usd": ending.cost_usd,
        "summary": report_summary(ending),
        "stderr_tail": ending.stderr_tail,
    }


def call_values(state: CallState) -> dict[str, object]:
    """Return the columns with what is known of a model call; unknown token counts stay null."""
    usage = state.usage
    used = {} if usage is None else {name: getattr(usage, name) for name in _TOKENS}
    return {
        **used,
        "http_status": state.http_status,
        "cost_usd": state.cost_usd,
        "charged_usd": state.charged_usd,
        "error": state.error,
        "ended_at": state.ended_at,
    }


def to_booked_call(row: TableRow) -> BookedCall:
    """Return a ``model_calls`` row as a value."""
    return BookedCall(
        model=row.model,
        input_tokens=row.input_tokens or 0,
        output_tokens=row.output_tokens or 0,
        cache_read_tokens=row.cache_read_tokens or 0,
        cache_write_tokens=row.cache_write_tokens or 0,
        cost_usd=row.cost_usd,
        charged_usd=row.charged_usd or 0.0,
    )


def _handover_text(handover: Handover | None) -> str | None:
    """Return a handover as JSON."""
    return None if handover is None else json_text(msgspec.to_builtins(handover))


def _value(member: StrEnum | None) -> str | None:
    return None if member is None else member.value


def _spent_values(calls: BookedCalls) -> dict[str, object]:
    return {
        "cost_usd": calls.known_cost_usd,
        "input_tokens": calls.input_tokens,
        "output_tokens": calls.output_tokens,
        "cached_input_tokens": calls.cache_read_tokens,
    }


def has_clock(connection: Connection) -> bool:
    """Return whether the database has a clock of its own, by which signs of life are dated; SQLite has not."""
    return connection.dialect.name != "sqlite"


def note_life(connection: Connection, owner: Owner, now: datetime, **changed: str) -> bool:
    """Note that an owner lives, and what of its row has ``changed``; ``False``: it has no row."""
    row: dict[str, object] = {"name": owner.name, **changed}
    if not has_clock(connection):
        row["heartbeat"] = now
    return connection.execute(_beat(is_dated=has_clock(connection)), row).rowcount == 1


@cache
def _beat(*, is_dated: bool) -> Update:
    """Return the statement of a sign of life; the database dates it, or who says it."""
    from claudeops.store.tables.daemon import instances  # noqa: PLC0415 - lists of sessions do without it

    own = update(instances).where(instances.c.owner == bindparam("name"))
    return own.values(heartbeat=THEIR_NOW) if is_dated else own
