"""How `InMemoryStore` takes sessions into its queue and out of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from claudeops.domain import escalation
from claudeops.domain.budget import Allowance, Short, unpaid
from claudeops.domain.holds import Admission, admission, when_probing
from claudeops.domain.model import Session, SkipReason, Status, Suppressed
from claudeops.store import in_memory_holds
from claudeops.store import in_memory_spend as spend
from claudeops.store.in_memory_writes import add_session, ledger, raise_event, unhealthy_services
from claudeops.store.queueing import probe_session
from claudeops.store.rows import blocked_values, claimed_values, to_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from types import SimpleNamespace

    from claudeops.domain.model import EscalationRules, NewSession, Owner
    from claudeops.domain.room import Room
    from claudeops.store.in_memory_tables import PlainTables


def enqueue(tables: PlainTables, new: NewSession, *, rules: EscalationRules, now: datetime) -> Session | Suppressed:
    """Queue a session, or write the event that says why not."""
    suppressed, services = _admit(tables, new.tier, rules, now)
    if suppressed is None:
        return add_session(tables, new, now)
    event = escalation.suppression_event(suppressed, tier=new.tier, services=services)
    raise_event(tables, event, session_id=None, at=now)
    return suppressed


def fire(
    tables: PlainTables, schedule: str, due_at: datetime, new: NewSession, *, rules: EscalationRules, now: datetime
) -> Session | SkipReason | None:
    """Record a due time once, with the session it queued or the reason why it queued none."""
    fires = tables.rows("schedule_fires", lambda row: row.schedule == schedule)
    if any(row.due_at == due_at for row in fires):
        return None
    fired: dict[str, object] = {"schedule": schedule, "due_at": due_at, "fired_at": now}
    started = {row.session_id for row in fires}
    if any(row.root_session_id in started for row in in_status(tables, Status.QUEUED, Status.RUNNING)):
        result: Session | SkipReason = SkipReason.CHAIN_UNFINISHED
    else:
        queued = enqueue(tables, new, rules=rules, now=now)
        result = SkipReason.SUPPRESSED if isinstance(queued, Suppressed) else queued
    became = {"skipped_reason": result.value} if isinstance(result, SkipReason) else {"session_id": result.id}
    tables.insert("schedule_fires", {**fired, **became})
    return result


def claim(
    tables: PlainTables,
    owner: Owner,
    *,
    rules: EscalationRules,
    now: datetime,
    cli_session_id: Callable[[], str],
    log_path: Callable[[int], str],
    chain: int | None,
    room: Room,
) -> Sequence[Session]:
    """Take the oldest sessions that are due; those that the rules forbid by now are ended on the way."""
    taken: list[Session] = []
    take = partial(
        _claim_one, tables, owner, rules=rules, now=now, cli_session_id=cli_session_id, log_path=log_path, chain=chain
    )
    while (left := room.beside(taken, lowest_tier=rules.lowest.number)).sessions > 0:
        found = take((rules.lowest.number,) if left.lowest_only else None)
        if found is None:
            break
        taken.append(found)
    return taken


def _claim_one(
    tables: PlainTables,
    owner: Owner,
    tiers: Sequence[int] | None,
    *,
    rules: EscalationRules,
    now: datetime,
    cli_session_id: Callable[[], str],
    log_path: Callable[[int], str],
    chain: int | None,
) -> Session | None:
    in_memory_holds.clear_lapsed(tables, now)
    standing = in_memory_holds.standing(tables, now)
    admitted = admission(standing, now)
    if admitted is Admission.CLOSED:
        return None
    if admitted is Admission.PROBE:
        if not _prepare_probe(tables, rules, now, chain):
            return None
        tiers = (rules.lowest.number,)
    for row in _due(tables, now, chain, tiers):
        found = to_session(row)
        suppressed, services = _admit(tables, found.tier, rules, now, found=found)
        allowed = spend.allow(tables, found, rules=rules, now=now)
        suppressed = suppressed or unpaid(found.tier, allowed, rules.budgets)
        if suppressed is None and isinstance(allowed, Short):
            if spend.is_day_spent(tables, allowed, rules=rules, now=now):
                return None
            continue
        if suppressed is None:
            taken = claimed_values(found, owner, now=now, cli_session_id=cli_session_id(), log_path=log_path(found.id))
            tables.update("sessions", row, taken)
            if isinstance(allowed, Allowance):
                spend.reserve(tables, found.id, allowed.usd, at=now)
            if admitted is Admission.PROBE:
                in_memory_holds.apply(tables, when_probing(standing, found.id, now), now=now)
            return replace(to_session(row), allowance_usd=allowed.usd if isinstance(allowed, Allowance) else None)
        tables.update("sessions", row, blocked_values(suppressed, now=now))
        event = escalation.suppression_event(suppressed, tier=found.tier, services=services)
        raise_event(tables, event, session_id=found.id, at=now)
    return None


def in_status(tables: PlainTables, *statuses: Status) -> list[SimpleNamespace]:
    """Return the sessions of some statuses."""
    return tables.rows("sessions", lambda row: row.status in statuses)


def _due(tables: PlainTables, now: datetime, chain: int | None, tiers: Sequence[int] | None) -> list[SimpleNamespace]:
    """Return the sessions that may be claimed, oldest first."""
    waiting = [
        row
        for row in in_status(tables, Status.QUEUED)
        if (row.not_before is None or row.not_before <= now)
        and chain in {None, row.root_session_id}
        and (tiers is None or row.tier in tiers)
    ]
    return sorted(waiting, key=lambda row: (row.not_before or row.created_at, row.id))


def _prepare_probe(tables: PlainTables, rules: EscalationRules, now: datetime, chain: int | None) -> bool:
    """See to it that a session of the lowest tier is due."""
    lowest = rules.lowest.number
    if _due(tables, now, chain, (lowest,)):
        return True
    if chain is not None or not _due(tables, now, None, None):
        return False
    add_session(tables, probe_session(rules), now)
    return True


def _admit(
    tables: PlainTables, tier: int, rules: EscalationRules, now: datetime, *, found: Session | None = None
) -> tuple[Suppressed | None, tuple[str, ...]]:
    if found is not None and found.context is not None:
        services = escalation.handover_services(found.context)
    else:
        services = unhealthy_services(tables)
    past = ledger(tables, rules, now)
    return escalation.admit(tier=tier, rules=rules, ledger=past, unhealthy_services=services, now=now), services
