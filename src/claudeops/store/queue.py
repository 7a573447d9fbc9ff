"""The queue: sessions enqueued, fired by schedules, claimed and finished; and the commands of operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Final

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, insert, or_, select, update

from claudeops.domain import escalation
from claudeops.domain.commands import Command, CommandName
from claudeops.domain.escalation import EscalationRules
from claudeops.domain.holds import ONE_SLOT, Admission, Capacity, admission, when_lost, when_trial_started
from claudeops.domain.model import (
    Decision,
    Ending,
    Finished,
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
from claudeops.store.calls import audit_marks
from claudeops.store.database import ADD_SESSION, CHANGE_SESSION, CHANGE_SESSION_AS_SEEN, Database
from claudeops.store.events import raise_event
from claudeops.store.finish import write_end
from claudeops.store.rows import UNCLAIMED, TableRow, blocked_values, claimed_values, queued_values, to_session
from claudeops.store.tables import commands, instances, schedule_fires, sessions

_SIGN_OF_LIFE: Final = update(instances).where(instances.c.owner == bindparam("name"))


class SqlQueue:
    """`claudeops.engine.ports.Queue`, over SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._more = False  # the last claim took something, so more may be waiting

    async def enqueue(self, new: NewSession, *, rules: EscalationRules, now: datetime) -> Session | Suppressed:
        """Queue a session, or write the event that says why not."""
        return await self._database.write(partial(_queue, new=new, rules=rules, now=now))

    async def fire(
        self, schedule: str, due_at: datetime, new: NewSession, *, rules: EscalationRules, now: datetime
    ) -> Session | SkipReason | None:
        """Record a due time once, with the session that it queued or the reason why it queued none."""
        fires = schedule_fires.c
        seen = select(fires.fired_at).where(fires.schedule == schedule, fires.due_at == due_at)

        def record(connection: Connection) -> Session | SkipReason | None:
            if connection.execute(seen).first() is not None:
                return None
            result: Session | SkipReason
            if _is_chain_unfinished(connection, schedule):
                result = SkipReason.CHAIN_UNFINISHED
            else:
                started = _queue(connection, new, rules=rules, now=now)
                result = SkipReason.SUPPRESSED if isinstance(started, Suppressed) else started
            became: dict[str, object] = (
                {"session_id": result.id} if isinstance(result, Session) else {"skipped_reason": result.value}
            )
            fired = {"schedule": schedule, "due_at": due_at, "fired_at": now, **became}
            connection.execute(insert(schedule_fires).values(fired))
            return result

        return await self._database.write(record)

    async def last_fire(self, schedule: str) -> datetime | None:
        """Return the latest due time that was recorded for a schedule."""
        query = select(func.max(schedule_fires.c.due_at)).where(schedule_fires.c.schedule == schedule)
        return await self._database.read(lambda connection: connection.execute(query).scalar_one_or_none())

    async def claim(
        self,
        owner: Owner,
        *,
        rules: EscalationRules,
        now: datetime,
        cli_session_id: Callable[[], str],
        log_path: Callable[[int], str],
        chain: int | None = None,
        room: Capacity = ONE_SLOT,
    ) -> Sequence[Session]:
        """Take the oldest sessions that are due; the callables run in the writer's thread.

        Claims come often and mostly find nothing, so a reader looks first, without the write lock, unless the last
        claim took something.
        """
        lowest = rules.lowest.number

        def is_anything_due(connection: Connection) -> bool:
            tiers = (lowest,) if room.lowest_only else None
            if not _anything_due(connection, now, chain=chain, tiers=tiers):
                return False
            return admission(holds.standing(connection, now), now) is not Admission.CLOSED

        def take(connection: Connection) -> list[Session]:
            claim = _Claim(
                connection,
                owner=owner,
                rules=rules,
                now=now,
                cli_session_id=cli_session_id,
                log_path=log_path,
                chain=chain,
            )
            return claim.take(room)

        def give_back(connection: Connection, taken: Sequence[Session]) -> None:
            _give_back(connection, taken, now=now)

        if not self._more and not await self._database.read(is_anything_due):
            return ()
        # Without the undo, a claim that comes too late for its caller leaves rows that say `running` until the next
        # start, though nobody runs them.
        taken = await self._database.write(take, undo=give_back)
        self._more = bool(taken)
        return taken

    async def identify(self, session: Session, cli_session_id: str) -> None:
        """Write the session id that a CLI chose itself, while the session is running."""

        def name(connection: Connection) -> None:
            named = {"cli_session_id": cli_session_id}
            if session.status is not Status.RUNNING or not change(connection, session, named):
                raise StaleAttemptError(f"session {session.id} is no longer running as attempt {session.attempt}.")

        await self._database.write(name)

    async def finish(self, ending: Ending, *, rules: EscalationRules) -> Finished:
        """End a session.

        Raises `StaleAttemptError`, with nothing written, when it is not running as ``ending.attempt``.
        """

        def end(connection: Connection) -> Finished:
            outcome = write_end(connection, ending, rules=rules)
            next_session_id = _queue_next(connection, outcome.decision, at=ending.ended_at)
            head, results = audit_marks(connection, ending.session_id)
            return Finished(
                decision=outcome.decision,
                next_session_id=next_session_id,
                audit_head=head,
                audit_results=results,
            )

        return await self._database.write(end)

    async def request_command(self, name: CommandName, *, by: str, now: datetime) -> None:
        """Write a command for the daemon to take."""
        asked = {"name": name.value, "arguments": "{}", "requested_by": by, "requested_at": now}
        await self._database.write(lambda connection: connection.execute(insert(commands).values(asked)))

    async def take_commands(self, *, now: datetime) -> Sequence[Command]:
        """Take the commands that wait; a reader looks first, every second, so that an empty queue costs no write."""
        waiting = select(commands).where(commands.c.taken_at.is_(None)).order_by(commands.c.id)

        def is_any_waiting(connection: Connection) -> bool:
            return connection.execute(waiting.limit(1)).first() is not None

        def take(connection: Connection) -> Sequence[Command]:
            rows = connection.execute(waiting).all()
            taken = update(commands).where(commands.c.id.in_([row.id for row in rows])).values(taken_at=now)
            connection.execute(taken)
            return tuple(map(_to_command, rows))

        return await self._database.write(take) if await self._database.read(is_any_waiting) else ()

    async def finish_command(self, command_id: int, *, result: str | None, error: str | None, now: datetime) -> None:
        """Write what came of a command."""
        ended = update(commands).where(commands.c.id == command_id).values(ended_at=now, result=result, error=error)
        await self._database.write(lambda connection: connection.execute(ended))


def add_session(connection: Connection, new: NewSession, *, now: datetime) -> Session:
    """Insert a queued session; the first one of a chain becomes its own root."""
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


def existing(connection: Connection, session_id: int) -> Session:
    """Return a session that must exist; raises `StoreError` when it does not."""
    session = queries.session(connection, session_id)
    if session is None:
        raise StoreError(f"session {session_id} does not exist.")
    return session


def change(connection: Connection, seen: Session, values: Mapping[str, object]) -> bool:
    """Change a session's row if status and attempt are still as seen; ``False``: somebody was faster."""
    same = {"session": seen.id, "seen_status": seen.status.value, "seen_attempt": seen.attempt}
    return connection.execute(CHANGE_SESSION_AS_SEEN, {**same, **values}).rowcount == 1


def note_life(connection: Connection, owner: Owner, now: datetime) -> None:
    """Write an owner's sign of life."""
    connection.execute(_SIGN_OF_LIFE, {"name": owner.name, "heartbeat": now})


@dataclass(frozen=True, slots=True)
class _Claim:
    """One transaction that takes sessions for an owner."""

    connection: Connection
    _: KW_ONLY
    owner: Owner
    rules: EscalationRules
    now: datetime
    cli_session_id: Callable[[], str]
    log_path: Callable[[int], str]
    chain: int | None

    def take(self, room: Capacity) -> list[Session]:
        """Take the oldest sessions that are due; end those that the rules forbid by now."""
        lowest = self.rules.lowest.number
        taken: list[Session] = []
        while (left := room.beside(taken, lowest_tier=lowest)).sessions > 0:
            found = self._take_one((lowest,) if left.lowest_only else None)
            if found is None:
                break
            taken.append(found)
        if taken:
            note_life(self.connection, self.owner, self.now)
        return taken

    def _take_one(self, tiers: Sequence[int] | None) -> Session | None:
        connection, rules, now = self.connection, self.rules, self.now
        standing = holds.standing_now(connection, now)
        admitted = admission(standing, now)
        if admitted is Admission.CLOSED:
            return None
        if admitted is Admission.TRIAL:
            if not self._prepare_trial():
                return None
            tiers = (rules.lowest.number,)
        waiting = _waiting(of_chain=self.chain is not None, of_tiers=tiers is not None)
        asked = {"now": now, "chain": self.chain, "tiers": tiers}
        waits: list[int] = []  # sessions that wait until another one releases money
        while (row := connection.execute(waiting, {**asked, "but": waits}).one_or_none()) is not None:
            found = to_session(row)
            suppressed, services = _admit(connection, found.tier, rules=rules, now=now, found=found)
            allowed = spend.allow(connection, found, rules=rules, now=now)
            suppressed = suppressed or unpaid(found.tier, allowed, rules.budgets)
            if suppressed is not None:
                _block(connection, found, suppressed, services, now=now)
            elif isinstance(allowed, Shortfall):
                if spend.is_day_spent(connection, allowed, rules=rules, now=now):
                    return None
                waits.append(found.id)
            elif (taken := self._mark(found, allowed)) is not None:
                if admitted is Admission.TRIAL:
                    holds.apply(connection, when_trial_started(standing, found.id, now), now=now)
                return taken
        return None

    def _mark(self, found: Session, allowed: Allowance | None) -> Session | None:
        """Write the owner into a row, and reserve its allowance; ``None``: somebody was faster."""
        named, logged = self.cli_session_id(), self.log_path(found.id)
        values = claimed_values(found, self.owner, now=self.now, cli_session_id=named, log_path=logged)
        if not change(self.connection, found, values):
            return None
        if allowed is not None:
            spend.reserve(self.connection, found.id, allowed.usd, at=self.now)
        return replace(
            found,
            status=Status.RUNNING,
            attempt=found.attempt + 1,
            cli_session_id=named,
            log_path=logged,
            started_at=self.now,
            allowance_usd=allowed.usd if allowed else None,
        )

    def _prepare_trial(self) -> bool:
        """Make sure that a session of the lowest tier is due: a higher one is worth too much to be the trial."""
        lowest = self.rules.lowest
        if _anything_due(self.connection, self.now, chain=self.chain, tiers=(lowest.number,)):
            return True
        if self.chain is not None or not _anything_due(self.connection, self.now, chain=None, tiers=None):
            return False
        trial = NewSession(tier=lowest.number, trigger=Trigger.RETRY, model=lowest.model, harness=lowest.harness)
        add_session(self.connection, trial, now=self.now)
        return True


def _give_back(connection: Connection, taken: Sequence[Session], *, now: datetime) -> None:
    """Undo a claim that came too late for its caller: the sessions were never started, and wait again as before.

    The attempt stays raised, as after every claim. The reservation is deleted without a trace, as nothing of it can
    have been spent.
    """
    for session in taken:
        if change(connection, session, UNCLAIMED):
            spend.unreserve(connection, session.id)
            holds.apply(connection, when_lost(holds.standing(connection, now), session.id, now), now=now)


@cache
def _due(*, of_chain: bool, of_tiers: bool) -> ColumnElement[bool]:
    """Return the condition that a session may be claimed; its parameters are ``now``, ``chain`` and ``tiers``."""
    condition = (sessions.c.status == Status.QUEUED.value) & or_(
        sessions.c.not_before.is_(None), sessions.c.not_before <= bindparam("now")
    )
    if of_chain:
        condition &= sessions.c.root_session_id == bindparam("chain")
    if of_tiers:
        condition &= sessions.c.tier.in_(bindparam("tiers", expanding=True))
    return condition


@cache
def _any_due(*, of_chain: bool, of_tiers: bool) -> Select[tuple[int]]:
    return select(sessions.c.id).where(_due(of_chain=of_chain, of_tiers=of_tiers)).limit(1)


def _anything_due(connection: Connection, now: datetime, *, chain: int | None, tiers: Sequence[int] | None) -> bool:
    """Tell whether a claim could find a session."""
    query = _any_due(of_chain=chain is not None, of_tiers=tiers is not None)
    return connection.execute(query, {"now": now, "chain": chain, "tiers": tiers}).first() is not None


@cache
def _waiting(*, of_chain: bool, of_tiers: bool) -> Select[tuple[object, ...]]:
    """Return the query for the session that has waited longest, except the ids in ``but``."""
    waited_since = func.coalesce(sessions.c.not_before, sessions.c.created_at)
    return (
        select(sessions)
        .where(_due(of_chain=of_chain, of_tiers=of_tiers), sessions.c.id.not_in(bindparam("but", expanding=True)))
        .order_by(waited_since, sessions.c.id)
        .limit(1)
    )


def _queue(connection: Connection, new: NewSession, *, rules: EscalationRules, now: datetime) -> Session | Suppressed:
    """Queue a session, or write the event that says why not."""
    suppressed, services = _admit(connection, new.tier, rules=rules, now=now)
    if suppressed is None:
        return add_session(connection, new, now=now)
    event = escalation.suppression_event(suppressed, tier=new.tier, services=services)
    raise_event(connection, event, session_id=None, at=now)
    return suppressed


def _queue_next(connection: Connection, decision: Decision, *, at: datetime) -> int | None:
    """Queue the session that follows from another one's end; return its id."""
    return None if decision.next is None else add_session(connection, decision.next, now=at).id


def _is_chain_unfinished(connection: Connection, schedule: str) -> bool:
    """Tell whether a chain that this schedule started has a session that has not ended."""
    query = (
        select(sessions.c.id)
        .join(schedule_fires, schedule_fires.c.session_id == sessions.c.root_session_id)
        .where(schedule_fires.c.schedule == schedule, sessions.c.status != Status.ENDED.value)
        .limit(1)
    )
    return connection.execute(query).first() is not None


def _admit(
    connection: Connection, tier: int, *, rules: EscalationRules, now: datetime, found: Session | None = None
) -> tuple[Suppressed | None, tuple[str, ...]]:
    """Apply the rules to the services in question: those of the handover, else those known to be unhealthy."""
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


def _to_command(row: TableRow) -> Command:
    """Return a ``commands`` row as a value."""
    return Command(id=row.id, name=row.name, requested_by=row.requested_by, requested_at=row.requested_at)
