"""How `InMemoryStore` writes late what a log says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claudeops.domain.amendment import Amended, Part, Refused
from claudeops.domain.model import DecisionReason, ServiceStatus
from claudeops.store.amendment import OnRecord, amendable, amendment
from claudeops.store.consequences import NO_RESULT_SEEN, fingerprinted, raised
from claudeops.store.in_memory_calls import seal_results
from claudeops.store.in_memory_writes import (
    background,
    book,
    end_calls,
    open_event,
    record_checks,
    remember,
    resolve_events,
    settle,
)
from claudeops.store.rows import to_known_memory, to_session, to_warnings
from claudeops.store.witnesses import to_reservation

if TYPE_CHECKING:
    from datetime import datetime

    from claudeops.domain.model import Ending, NewEvent, Session
    from claudeops.store.in_memory_tables import PlainTables


def amend(tables: PlainTables, ending: Ending) -> Amended | Refused:
    """Write what is missing; refuse what is not this row's, with nothing written."""
    session = amendable(_session(tables, ending.session_id), ending)
    if isinstance(session, Refused):
        return session
    late = amendment(ending, _on_record(tables, session))
    ended = end_calls(tables, session.id, ending.tool_ends, only_open=True)
    if ended:
        seal_results(tables, session.id)
    tables.change("sessions", session.id, late.values)
    settle(tables, late.settlements)
    book(tables, session.id, late.spend, late.at)
    record_checks(tables, session.id, late.checks, late.at)
    for dated in late.memories:
        remember(tables, session, dated.change, dated.at)
    for event in late.events:
        _raise_late_event(tables, event, session_id=session.id, at=late.at)
    resolve_events(tables, session, well=late.well, all_well=False, at=late.at)
    return Amended(
        session=_session(tables, session.id) or session,
        parts=late.parts | {Part.TOOL_ENDS} if ended else late.parts,
    )


def _session(tables: PlainTables, session_id: int) -> Session | None:
    row = tables.row("sessions", session_id)
    return None if row is None else to_session(row)


def _on_record(tables: PlainTables, session: Session) -> OnRecord:
    (row,) = tables.rows("sessions", lambda row: row.id == session.id)
    unseen = tables.rows(
        "cooldown_actions", lambda action: action.session_id == row.id and action.error == NO_RESULT_SEEN
    )
    own = tables.rows("cooldown_actions", lambda action: action.session_id == row.id)
    settled = tables.rows("budget_entries", lambda entry: entry.session_id == row.id and entry.kind == "settled")
    return OnRecord(
        session=session,
        warnings=to_warnings(row.warnings),
        memories=tuple(map(to_known_memory, tables.rows("memories"))),
        spend_settled=bool(settled),
        unseen_ends=tuple(map(to_reservation, unseen)),
        reservations=tuple(map(to_reservation, own)),
        before=background(tables, session, {}),
    )


def _raise_late_event(tables: PlainTables, event: NewEvent, *, session_id: int, at: datetime) -> None:
    """Count a condition up that was not yet over then, or write it as what is known of it by now."""
    event = fingerprinted(event)
    tables.noticed.append(raised(event, session_id=session_id, at=at))
    for known in tables.rows("events", lambda row: row.fingerprint == event.fingerprint):
        if known.resolved_at is not None and known.resolved_at < at:
            continue
        sight = {"count": known.count + 1, "first_seen": min(known.first_seen, at)}
        if known.last_seen <= at:
            sight |= {"last_seen": at, "last_session_id": session_id, "message": event.message}
        tables.update("events", known, sight)
        return
    over_at = _found_over(tables, event.service, besides=session_id, since=at)
    open_event(tables, event, session_id=session_id, at=at, resolved_at=over_at)


def _found_over(tables: PlainTables, service: str | None, *, besides: int, since: datetime) -> datetime | None:
    later = {
        row.id: row
        for row in tables.rows("sessions")
        if row.started_at is not None and row.started_at > since and row.id != besides
    }
    if service is None:
        ends = [row.ended_at for row in later.values() if row.decision_reason == DecisionReason.HEALTHY]
    else:
        checks = tables.rows("service_checks", lambda row: row.service == service and row.session_id in later)
        ends = [row.checked_at for row in checks if row.status == ServiceStatus.HEALTHY]
    return min(ends, default=None)
