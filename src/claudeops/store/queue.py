"""Sessions into the queue and out of it.

What operators ask of the daemon, as rows of ``commands``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from typing import Final

from sqlalchemy import Connection, Select, bindparam, func, insert, select, update

from claudeops.domain import escalation
from claudeops.domain.commands import Command, CommandName
from claudeops.domain.escalation import EscalationRules
from claudeops.domain.holds import Admission, Capacity, admission, when_lost, when_trial_started
from claudeops.domain.model import (
    NewSession,
    Owner,
    Session,
    SkipReason,
    Status,
    Suppressed,
    Trigger,
)
from claudeops.domain.spending.budget import Allowance, Shortfall, unpaid
from claudeops.errors import StaleAttemptError, StoreError
from claudeops.store import holds, queries, spend
from claudeops.store.database import ADD_SESSION, CHANGE_SESSION, CHANGE_SESSION_AS_SEEN
from claudeops.store.events import raise_event
from claudeops.store.rows import UNCLAIMED, TableRow, blocked_values, claimed_values, queued_values, to_session
from claudeops.store.tables import commands, instances, schedule_fires, sessions

_BEAT: Final = update(instances).where(instances.c.owner == bindparam("name"))


def add_session(connection: Connection, new: NewSession, *, now: datetime) -> Session:
    """Insert a queued session; a chain's first one becomes its own root."""
    parent = None
    if new.parent_session_id is not None:
        parent = existing(connection, new.parent_session_id)
    values = queued_values(new, root_session_id=parent.root_session_id if parent else None, now=now)
    key = connection.execute(ADD_SESSION, values).inserted_primary_key
    if key is None:
        raise StoreError("the database gave a new session no id.")
    if parent is None:
        connection.execute(CHANGE_SESSION, {"session": key.id, "root_session_id": key.id})
    return existing(connection, key.id)


def enqueue(connection: Connection, new: NewSession, *, rules: EscalationRules, now: datetime) -> Session | Suppressed:
    """Queue a session, or write the event that says why not."""
    suppressed, services = _admit(connection, new.tier, rules=rules, now=now)
    if suppressed is None:
        return add_session(connection, new, now=now)
    event = escalation.suppression_event(suppressed, tier=new.tier, services=services)
    raise_event(connection, event, session_id=None, at=now)
    return suppressed


def fire(
    connection: Connection,
    schedule: str,
    due_at: datetime,
    new: NewSession,
    *,
    rules: EscalationRules,
    now: datetime,
) -> Session | SkipReason | None:
    """Record a due time once, with the session it queued or the reason why it queued none."""
    fires = schedule_fires.c
    seen = select(fires.fired_at).where(fires.schedule == schedule, fires.due_at == due_at)
    if connection.execute(seen).first() is not None:
        return None
    result: Session | SkipReason
    if queries.chain_unfinished(connection, schedule):
        result = SkipReason.CHAIN_UNFINISHED
    else:
        started = enqueue(connection, new, rules=rules, now=now)
        result = SkipReason.SUPPRESSED if isinstance(started, Suppressed) else started
    became: dict[str, object] = (
        {"session_id": result.id} if isinstance(result, Session) else {"skipped_reason": result.value}
    )
    fired = {"schedule": schedule, "due_at": due_at, "fired_at": now, **became}
    connection.execute(insert(schedule_fires).values(fired))
    return result


def anything_claimable(
    connection: Connection, *, rules: EscalationRules, now: datetime, chain: int | None, room: Capacity
) -> bool:
    """Tell whether a claim could take something."""
    tiers = (rules.lowest.number,) if room.lowest_only else None
    if not queries.anything_due(connection, now, chain=chain, tiers=tiers):
        return False
    return admission(holds.standing(connection, now), now) is not Admission.CLOSED


def claim(
    connection: Connection,
    owner: Owner,
    *,
    rules: EscalationRules,
    now: datetime,
    cli_session_id: Callable[[], str],
    log_path: Callable[[int], str],
    chain: int | None,
    room: Capacity,
) -> Sequence[Session]:
    """Take the oldest sessions that are due; those that the rules forbid by now are ended on the way."""
    taken: list[Session] = []
    take = partial(
        _claim_one,
        connection,
        owner,
        rules=rules,
        now=now,
        cli_session_id=cli_session_id,
        log_path=log_path,
        chain=chain,
    )
    while (left := room.beside(taken, lowest_tier=rules.lowest.number)).sessions > 0:
        found = take((rules.lowest.number,) if left.lowest_only else None)
        if found is None:
            break
        taken.append(found)
    if taken:
        renew(connection, owner, now)
    return taken


def give_back(connection: Connection, taken: Sequence[Session], *, now: datetime) -> None:
    """Undo a claim of which nobody was told: what was taken was never started, and waits again as it did before.

    The attempt stays raised, as after every claim. What was reserved goes without a trace, for nothing can have been
    spent of it.
    """
    for session in taken:
        if change(connection, session, UNCLAIMED):
            spend.unreserve(connection, session.id)
            holds.apply(connection, when_lost(holds.standing(connection, now), session.id, now), now=now)


def _claim_one(
    connection: Connection,
    owner: Owner,
    tiers: Sequence[int] | None,
    *,
    rules: EscalationRules,
    now: datetime,
    cli_session_id: Callable[[], str],
    log_path: Callable[[int], str],
    chain: int | None,
) -> Session | None:
    standing = holds.standing_now(connection, now)
    admitted = admission(standing, now)
    if admitted is Admission.CLOSED:
        return None
    probing = admitted is Admission.TRIAL
    if probing:
        if not _prepare_probe(connection, rules, now=now, chain=chain):
            return None
        tiers = (rules.lowest.number,)
    waiting = _waiting(of_chain=chain is not None, of_tiers=tiers is not None)
    asked = {"now": now, "chain": chain, "tiers": tiers}
    waits: list[int] = []  # sessions that wait until another one gives money back
    while (row := connection.execute(waiting, {**asked, "but": waits}).one_or_none()) is not None:
        found = to_session(row)
        suppressed, services = _admit(connection, found.tier, rules=rules, now=now, found=found)
        allowed = spend.allow(connection, found, rules=rules, now=now)
        suppressed = suppressed or unpaid(found.tier, allowed, rules.budgets)
        if suppressed is not None:
            _block(connection, found, suppressed, services, now=now)
            continue
        if isinstance(allowed, Shortfall):
            if spend.is_day_spent(connection, allowed, rules=rules, now=now):
                return None
            waits.append(found.id)
            continue
        named, logged = cli_session_id(), log_path(found.id)
        taken = claimed_values(found, owner, now=now, cli_session_id=named, log_path=logged)
        if change(connection, found, taken):
            _promise(connection, found.id, allowed, now=now)
            if probing:
                holds.apply(connection, when_trial_started(standing, found.id, now), now=now)
            return replace(
                found,
                status=Status.RUNNING,
                attempt=found.attempt + 1,
                cli_session_id=named,
                log_path=logged,
                started_at=now,
                allowance_usd=allowed.usd if allowed else None,
            )
    return None


@cache
def _waiting(*, of_chain: bool, of_tiers: bool) -> Select[tuple[object, ...]]:
    """Return the question for the session that has waited longest, ``but`` for some."""
    waited_since = func.coalesce(sessions.c.not_before, sessions.c.created_at)
    return (
        select(sessions)
        .where(
            queries.due(of_chain=of_chain, of_tiers=of_tiers), sessions.c.id.not_in(bindparam("but", expanding=True))
        )
        .order_by(waited_since, sessions.c.id)
        .limit(1)
    )


def _prepare_probe(
    connection: Connection,
    rules: EscalationRules,
    *,
    now: datetime,
    chain: int | None,
) -> bool:
    """See to it that a session of the lowest tier is due; a higher one is worth too much to be the probe."""
    lowest = rules.lowest
    if queries.anything_due(connection, now, chain=chain, tiers=(lowest.number,)):
        return True
    if chain is not None or not queries.anything_due(connection, now, chain=None, tiers=None):
        return False
    add_session(connection, _probe_session(rules), now=now)
    return True


def _probe_session(rules: EscalationRules) -> NewSession:
    """Return the session that tries whether the model API serves us again, where none of its tier waits."""
    lowest = rules.lowest
    return NewSession(tier=lowest.number, trigger=Trigger.RETRY, model=lowest.model, harness=lowest.harness)


def _promise(connection: Connection, session_id: int, allowed: Allowance | None, *, now: datetime) -> None:
    if allowed is not None:
        spend.reserve(connection, session_id, allowed.usd, at=now)


def identify(connection: Connection, session: Session, cli_session_id: str) -> None:
    """Write the session id that a CLI chose itself; only for a running session."""
    if session.status is not Status.RUNNING or not change(connection, session, {"cli_session_id": cli_session_id}):
        raise StaleAttemptError(f"session {session.id} is no longer running as attempt {session.attempt}.")


def _admit(
    connection: Connection, tier: int, *, rules: EscalationRules, now: datetime, found: Session | None = None
) -> tuple[Suppressed | None, tuple[str, ...]]:
    """Ask the rules, with the services in question: a handover's, else those known to be unwell."""
    if not escalation.is_limited(tier, rules):
        return None, ()
    if found is not None and found.context is not None:
        services = escalation.handover_services(found.context)
    else:
        services = queries.unhealthy_services(connection)
    ledger = queries.ledger(connection, rules, now)
    return escalation.admit(tier=tier, rules=rules, ledger=ledger, unhealthy_services=services, now=now), services


def _block(
    connection: Connection, found: Session, suppressed: Suppressed, services: Sequence[str], *, now: datetime
) -> None:
    if change(connection, found, blocked_values(suppressed, now=now)):
        event = escalation.suppression_event(suppressed, tier=found.tier, services=services)
        raise_event(connection, event, session_id=found.id, at=now)


def change(connection: Connection, seen: Session, values: Mapping[str, object]) -> bool:
    """Change a row if it still is what was seen; ``False``: somebody was faster."""
    same = {"session": seen.id, "seen_status": seen.status.value, "seen_attempt": seen.attempt}
    return connection.execute(CHANGE_SESSION_AS_SEEN, {**same, **values}).rowcount == 1


def existing(connection: Connection, session_id: int) -> Session:
    """Return a row that is there; raises `StoreError`."""
    session = queries.session(connection, session_id)
    if session is None:
        raise StoreError(f"session {session_id} does not exist.")
    return session


def renew(connection: Connection, owner: Owner, now: datetime) -> None:
    """Note that an owner lives."""
    connection.execute(_BEAT, {"name": owner.name, "heartbeat": now})


def give(connection: Connection, name: CommandName, *, by: str, now: datetime) -> None:
    """Write what is asked for."""
    order = {"name": name.value, "arguments": "{}", "requested_by": by, "requested_at": now}
    connection.execute(insert(commands).values(order))


def waiting(connection: Connection) -> bool:
    """Tell whether anything is asked for that was not taken."""
    return connection.execute(select(commands.c.id).where(commands.c.taken_at.is_(None)).limit(1)).first() is not None


def take(connection: Connection, *, now: datetime) -> tuple[Command, ...]:
    """Return what was asked for and not taken yet, oldest first; nobody else gets it."""
    rows = connection.execute(select(commands).where(commands.c.taken_at.is_(None)).order_by(commands.c.id)).all()
    if rows:
        taken = update(commands).where(commands.c.id.in_([row.id for row in rows])).values(taken_at=now)
        connection.execute(taken)
    return tuple(map(_to_order, rows))


def end(connection: Connection, order_id: int, *, result: str | None, error: str | None, now: datetime) -> None:
    """Write what came of an order."""
    done = {"ended_at": now, "result": result, "error": error}
    connection.execute(update(commands).where(commands.c.id == order_id).values(done))


def _to_order(row: TableRow) -> Command:
    """Return a row as a value."""
    return Command(id=row.id, name=row.name, requested_by=row.requested_by, requested_at=row.requested_at)
