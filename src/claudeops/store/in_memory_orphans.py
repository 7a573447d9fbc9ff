"""How `InMemoryStore` takes sessions out of dead hands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claudeops.domain.model import ExtractionMethod, Outcome, Status
from claudeops.domain.recovery import recovery_of
from claudeops.domain.refusals import when_lost, when_started
from claudeops.errors import StaleAttemptError
from claudeops.store import in_memory_holds as holds
from claudeops.store import in_memory_spend as spend
from claudeops.store.consequences import lost_event, settle
from claudeops.store.in_memory_approvals import deny_all
from claudeops.store.in_memory_calls import seal_results
from claudeops.store.in_memory_queueing import in_status
from claudeops.store.in_memory_writes import add_session, end_calls, raise_event
from claudeops.store.orphans import LOOKED_FOR, to_call, to_owner
from claudeops.store.rows import LEASE, lost_values, taken_over_values, to_session
from claudeops.store.witnesses import to_reservation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from claudeops.domain.model import EscalationRules, NewEvent, Owner, Session, ToolEnd
    from claudeops.store.in_memory_tables import PlainTables


def reconcile(
    tables: PlainTables, owner: Owner, *, now: datetime, alive: Callable[[Owner], bool]
) -> tuple[Session, ...]:
    """Register ``owner``, forget dead ones, and take over what those left running."""
    others = (to_owner(row) for row in tables.rows("instances") if row.owner != owner.name)
    living = {other.name for other in others if alive(other)}
    tables.delete("instances", lambda row: row.owner not in living)
    registered = {"owner": owner.name, "pid": owner.pid, "boot_id": owner.boot_id, "heartbeat": now}
    tables.insert("instances", {**registered, "process_started_at": owner.process_started_at})
    deny_all(tables, now)
    holds.apply(tables, when_started(holds.standing(tables, now), now), now=now)
    orphans = [row for row in in_status(tables, Status.RUNNING) if row.owner not in living | {owner.name}]
    for row in orphans:
        tables.update("sessions", row, taken_over_values(to_session(row), owner, now=now))
    return tuple(map(to_session, orphans))


def lose(
    tables: PlainTables,
    lost: Session,
    *,
    rules: EscalationRules,
    tool_ends: Iterable[ToolEnd],
    events: Iterable[NewEvent],
    now: datetime,
) -> Session:
    """End a session of which no result is known, and queue what follows."""
    row = tables.row("sessions", lost.id)
    if row is None or row.status != Status.RUNNING or row.attempt != lost.attempt:
        raise StaleAttemptError(f"session {lost.id} is no longer running as attempt {lost.attempt}.")
    ends = tuple(tool_ends)
    end_calls(tables, lost.id, ends)
    own = tables.rows("cooldown_actions", lambda action: action.session_id == lost.id and action.success is None)
    reserved = [to_reservation(one) for one in own]
    for settled in settle(reserved, ends):
        tables.change("cooldown_actions", settled.id, {"success": settled.success, "error": settled.error})
    calls = tables.rows("tool_calls", lambda call: call.session_id == lost.id)
    following = recovery_of(lost, [to_call(call) for call in calls], rules)
    event = lost_event(lost, following)
    spend.close_calls(tables, row.id, at=now, error=event.message)
    booked = spend.booked_calls(tables, row.id)
    tables.update("sessions", row, lost_values(event.message, booked, now=now))
    spend.settle(tables, row.id, booked.charged_usd if booked.count else None, at=now)
    for told in (event, *events):
        raise_event(tables, told, session_id=lost.id, at=now)
    seal_results(tables, lost.id)
    holds.apply(tables, when_lost(holds.standing(tables, now), lost.id, now), now=now)
    if following is not None:
        add_session(tables, following, now)
    return to_session(row)


def lost(tables: PlainTables) -> tuple[Session, ...]:
    """Return the lost sessions whose log was not taken up as a complete one, the newest first."""
    rows = tables.rows(
        "sessions",
        lambda row: (
            row.outcome == Outcome.LOST
            and row.extraction_method in {None, ExtractionMethod.NONE}
            and row.num_turns is None
            and row.log_path is not None
        ),
    )
    return tuple(to_session(row) for row in rows[::-1][:LOOKED_FOR])


def keep(tables: PlainTables, owner: Owner, *, now: datetime) -> frozenset[tuple[int, int]]:
    """Note that an owner lives and renew its leases; return what it runs, as id and attempt."""
    for row in tables.rows("instances", lambda row: row.owner == owner.name):
        tables.update("instances", row, {"heartbeat": now})
    own = [row for row in in_status(tables, Status.RUNNING) if row.owner == owner.name]
    for row in own:
        tables.update("sessions", row, {"lease_expires_at": now + LEASE})
    return frozenset((row.id, row.attempt) for row in own)
