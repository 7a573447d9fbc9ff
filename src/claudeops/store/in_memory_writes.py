"""How `InMemoryStore` finds facts in its tables and writes what follows from them."""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING

from claudeops.domain import memory
from claudeops.domain.model import CheckSource, ServiceStatus, VerdictKind
from claudeops.errors import StoreError
from claudeops.store.consequences import (
    NO_WITNESSES,
    Facts,
    Standing,
    fingerprinted,
    healthy_services,
    raised,
)
from claudeops.store.rows import queued_values, to_known_memory, to_past_action, to_session
from claudeops.store.types import clip, known_usd
from claudeops.store.witnesses import to_background, to_reservation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from claudeops.domain.evidence import Background
    from claudeops.domain.memory import MemoryChange
    from claudeops.domain.model import (
        Ending,
        EscalationRules,
        NewEvent,
        NewSession,
        PastAction,
        ServiceCheck,
        Session,
        ToolEnd,
    )
    from claudeops.store.consequences import Consequences, Settlement
    from claudeops.store.in_memory_tables import PlainTables


def add_session(tables: PlainTables, new: NewSession, now: datetime) -> Session:
    """Insert a queued session; a chain's first one becomes its own root."""
    root = None
    if new.parent_session_id is not None:
        parent = tables.row("sessions", new.parent_session_id)
        if parent is None:
            raise StoreError(f"session {new.parent_session_id} does not exist.")
        root = parent.root_session_id
    row = tables.insert("sessions", queued_values(new, root_session_id=root, now=now))
    if root is None:
        row.root_session_id = row.id
    return to_session(row)


def facts(tables: PlainTables, session: Session, ending: Ending, rules: EscalationRules, *, chain_usd: float) -> Facts:
    """Gather what bears on a session's end."""
    report = ending.extraction.report
    standings = {name: _standing(tables, name, besides=session.id) for name in healthy_services(report)}
    own = tables.rows("cooldown_actions", lambda row: row.session_id == session.id)
    return Facts(
        session=session,
        ledger=ledger(tables, rules, ending.ended_at),
        memories=tuple(map(to_known_memory, tables.rows("memories"))),
        reservations=tuple(map(to_reservation, own)),
        standings={name: standing for name, standing in standings.items() if standing is not None},
        chain_started_at=tables.rows("sessions", lambda row: row.id == session.root_session_id)[0].started_at,
        before=background(tables, session, rules.other_names),
        held_services=_held_services(tables, session.root_session_id),
        chain_usd=chain_usd,
    )


def background(tables: PlainTables, session: Session, other_names: Mapping[str, str]) -> Background:
    """Return what the earlier sessions of a chain have left before ``session``."""
    root = session.root_session_id
    earlier = tables.rows("sessions", lambda row: row.root_session_id == root and row.id < session.id)
    named, by_session = {row.id for row in earlier}, attrgetter("session_id")
    return to_background(
        session,
        earlier=earlier,
        checks=sorted(tables.rows("service_checks", lambda row: row.session_id in named), key=by_session),
        actions=sorted(tables.rows("cooldown_actions", lambda row: row.session_id in named), key=by_session),
        other_names=other_names,
    )


def _held_services(tables: PlainTables, root_session_id: int) -> tuple[str, ...]:
    """Return the services whose limit refused an action to a session of a chain."""
    chain = {row.id for row in tables.rows("sessions", lambda row: row.root_session_id == root_session_id)}
    held = {row.held_service for row in tables.rows("tool_calls", lambda row: row.session_id in chain)}
    return tuple(sorted(held - {None}))


def ledger(tables: PlainTables, rules: EscalationRules, now: datetime) -> tuple[PastAction, ...]:
    """Return the actions that any limit may still count."""
    longest = max((limit.window_seconds for limit in rules.limits.values()), default=0.0)
    oldest = now - timedelta(seconds=longest)
    counted = tables.rows("cooldown_actions", lambda row: row.cleared_at is None and row.timestamp > oldest)
    return tuple(map(to_past_action, counted))


def unhealthy_services(tables: PlainTables) -> tuple[str, ...]:
    """Return the services whose latest check was not a healthy one."""
    latest = {row.service: row.status for row in tables.rows("service_checks")}
    return tuple(sorted(service for service, status in latest.items() if status != ServiceStatus.HEALTHY))


def raise_event(tables: PlainTables, event: NewEvent, *, session_id: int | None, at: datetime) -> None:
    """Count the open event of the same fingerprint up, or open one."""
    event = fingerprinted(event)
    tables.noticed.append(raised(event, session_id=session_id, at=at))
    again = {"last_session_id": session_id, "message": event.message, "last_seen": at}
    for row in tables.rows("events", lambda row: row.fingerprint == event.fingerprint and row.resolved_at is None):
        tables.update("events", row, {**again, "count": row.count + 1})
        return
    open_event(tables, event, session_id=session_id, at=at)


def resolve_event(tables: PlainTables, fingerprint: str, *, at: datetime) -> None:
    """Resolve a condition that the daemon itself knows to be over."""
    for row in tables.rows("events", lambda row: row.fingerprint == fingerprint and row.resolved_at is None):
        tables.update("events", row, {"resolved_at": at})


def open_event(
    tables: PlainTables, event: NewEvent, *, session_id: int | None, at: datetime, resolved_at: datetime | None = None
) -> None:
    """Insert an event that carries its fingerprint."""
    what = {"level": event.level.value, "service": event.service, "message": event.message, "count": 1}
    seen_by = {"session_id": session_id, "last_session_id": session_id, "fingerprint": event.fingerprint}
    when = {"created_at": at, "first_seen": at, "last_seen": at, "resolved_at": resolved_at}
    tables.insert("events", {**what, **seen_by, **when})


def write_consequences(tables: PlainTables, session: Session, ending: Ending, outcome: Consequences) -> None:
    """Write everything that a session's end changes beside its own row and the next one."""
    at = ending.ended_at
    end_calls(tables, session.id, ending.tool_ends)
    settle(tables, outcome.settlements)
    record_checks(tables, session.id, outcome.checks, at)
    for row in tables.rows("cooldown_actions"):
        if row.service in outcome.recovered and row.cleared_at is None:
            tables.update("cooldown_actions", row, {"cleared_at": at})
    for change in outcome.memories:
        remember(tables, session, change, at)
    _forget_faded(tables, at)
    for event in outcome.events:
        raise_event(tables, event, session_id=session.id, at=at)
    resolve_events(tables, session, well=outcome.well, all_well=outcome.all_well, at=at)


def end_calls(tables: PlainTables, session_id: int, ends: Iterable[ToolEnd], *, only_open: bool = False) -> int:
    """Write the results of calls, or those that are not there yet; return how many calls got one."""
    named = {clip(end.tool_use_id): end for end in ends}
    calls = tables.rows(
        "tool_calls",
        lambda row: (
            row.session_id == session_id
            and row.tool_use_id in named
            and row.verdict != VerdictKind.ASK
            and not (only_open and row.ended_at is not None)
        ),
    )
    for row in calls:
        end = named[row.tool_use_id]
        tables.update("tool_calls", row, {"ended_at": end.ended_at, "is_error": end.is_error})
    return len(calls)


def settle(tables: PlainTables, settlements: Iterable[Settlement]) -> None:
    """Write what became of reserved actions."""
    for settled in settlements:
        tables.change("cooldown_actions", settled.id, {"success": settled.success, "error": settled.error})


def book(tables: PlainTables, session_id: int, cost_usd: float | None, at: datetime) -> None:
    """Book what a session cost, where that is known."""
    if (amount := known_usd(cost_usd)) is not None:
        entry = {"kind": "settled", "amount_usd": amount, "created_at": at}
        tables.insert("budget_entries", {"session_id": session_id, **entry})


def record_checks(tables: PlainTables, session_id: int, checks: Iterable[ServiceCheck], at: datetime) -> None:
    """Write what a report says about services."""
    for check in checks:
        seen = {"service": check.service, "status": check.status.value, "detail": check.detail, "checked_at": at}
        tables.insert("service_checks", {"session_id": session_id, "source": CheckSource.REPORT.value, **seen})


def remember(tables: PlainTables, session: Session, change: MemoryChange, at: datetime) -> None:
    """Write what a report does to a memory."""
    standing = {"confidence": change.confidence, "active": change.active, "updated_at": at}
    if change.id is not None:
        tables.change("memories", change.id, standing)
        return
    said = {"service": change.service, "category": change.category, "observation": change.observation}
    source = {"session_id": session.id, "tier": session.tier, "created_at": at}
    tables.insert("memories", {**said, **source, **standing})


def _forget_faded(tables: PlainTables, at: datetime) -> None:
    for row in tables.rows("memories"):
        if memory.has_faded(to_known_memory(row), at):
            tables.update("memories", row, {"active": False})


def resolve_events(
    tables: PlainTables, session: Session, *, well: Collection[str], all_well: bool, at: datetime
) -> None:
    """Resolve what ``session`` found to be over."""
    for row in tables.rows("events", lambda row: row.resolved_at is None):
        over = all_well if row.service is None else row.service in well
        earlier = row.last_session_id != session.id and session.started_at and row.last_seen <= session.started_at
        if over and earlier:
            tables.update("events", row, {"resolved_at": at})


def _standing(tables: PlainTables, service: str, *, besides: int) -> Standing | None:
    failed = {row.id for row in tables.rows("sessions", lambda row: row.outcome in NO_WITNESSES)}
    checks = tables.rows(
        "service_checks",
        lambda row: (
            row.service == service
            and row.session_id != besides
            and not (row.session_id in failed and row.status == ServiceStatus.HEALTHY)
        ),
    )
    if not checks:
        return None
    last = checks[-1]
    actions = tables.rows("cooldown_actions", lambda row: row.service == service)
    checker = None if last.session_id is None else tables.row("sessions", last.session_id)
    root = None if checker is None else tables.row("sessions", checker.root_session_id)
    return Standing(
        status=ServiceStatus(last.status),
        looked_at=last.checked_at if last.session_id is None else root.started_at if root else None,
        last_action_at=max((row.timestamp for row in actions if row.cleared_at is None), default=None),
    )
