"""Sessions into the queue, out of it and to their ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Final, NamedTuple

import anyio
import anyio.to_thread
from sqlalchemy import ColumnElement, Connection, Integer, Select, bindparam, func, insert, or_, select, update

from claudeops.domain.chains import escalation
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.commands import StopTarget
from claudeops.domain.holds import ONE_SLOT, Admission, Capacity, admission, holds_of, when_lost, when_trial_started
from claudeops.domain.notices.notice import PLAIN, Announcement
from claudeops.domain.owner import Owner
from claudeops.domain.sessions import Decision, Ending, Finished, NewSession, Session, Status, Suppressed, Trigger
from claudeops.domain.spending.budget import Allowance, Shortfall, unpaid
from claudeops.errors import DatabaseUnavailableError, StaleAttemptError, StoreError
from claudeops.store import changes, holds, queries, spend
from claudeops.store.acts.services import release_services
from claudeops.store.alerts import announcements, incidents
from claudeops.store.database import Database
from claudeops.store.events import raise_event
from claudeops.store.finish import running, what_is_there, write_end
from claudeops.store.rows import to_session
from claudeops.store.session_columns import (
    CHANGE_SESSION,
    CHANGE_SESSION_AS_SEEN,
    UNCLAIMED,
    blocked_values,
    cancelled_values,
    claimed_values,
    note_life,
    queued_values,
)
from claudeops.store.tables.columns import UtcDateTime
from claudeops.store.tables.daemon import schedule_fires
from claudeops.store.tables.sessions import sessions
from claudeops.structs import replace

_ADD_SESSION: Final = insert(sessions).returning(*sessions.c)

_LOOK_AHEAD: Final = 50  # sessions, of those that are due
_FRESH: Final = timedelta(seconds=1)
"""For which a look serves further claims: for that long at most a session that became due may come before an older."""

_WAITED_SINCE: Final = func.coalesce(sessions.c.not_before, sessions.c.created_at)
_AHEAD: Final = sessions.alias("ahead")
_WAITS_BEHIND: Final = (  # a fire of a schedule that lets one chain wait for the end of the one before it
    select(_AHEAD.c.id)
    .join(schedule_fires, schedule_fires.c.after_chain == _AHEAD.c.root_session_id)
    .where(schedule_fires.c.session_id == sessions.c.id, _AHEAD.c.status != Status.ENDED.value)
)
_PARENT: Final = sessions.alias("parent")
_INHERIT: Final = (  # a chain belongs to one incident as a whole
    update(sessions)
    .where(sessions.c.id == bindparam("inherits"))
    .values(incident_id=select(_PARENT.c.incident_id).where(_PARENT.c.id == bindparam("of_parent")).scalar_subquery())
)


class Queue:
    """Sessions from the queue to their ends."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._one = anyio.CapacityLimiter(1)  # threads that a directory of logs can keep waiting
        self._seen: Mapping[int, str] = {}  # sessions that a look found due and no claim took, with their log paths
        self._seen_at: datetime | None = None  # when that look was

    async def enqueue(self, new: NewSession, *, rules: EscalationRules, now: datetime) -> Session | Suppressed:
        """Queue a chain's first session, unless maximum tier, dry run or cooldown forbid it.

        A suppressed session leaves an event and no row. A root's ``root_session_id`` is its own id.
        """
        return await self._database.write(partial(queue_chain, new=new, rules=rules, now=now))

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
        """Claim the oldest queued sessions that are due; sets ``running``, attempt + 1, owner, ids, ``started_at``.

        Claims as many as there is ``room`` for, in one transaction; returns none if there is nothing to do. What each
        may spend is reserved for it, as ``allowance_usd``. Two claimers never get the same session. ``chain`` restricts
        the claim to one root. ``log_path`` may ask a file system: it is called in a thread, before the transaction, and
        also for sessions that are not taken then. A row that the rules forbid by now (dry run switched on, maximum tier
        lowered) ends as ``blocked`` with its reason and event, and the next one is tried.

        Sessions that were claimed for a claimer that no longer waits (cancelled, or out of time) are given back: they
        wait again as before, with their attempt raised.

        While a hold stands nothing is claimed, and queued sessions stay queued; a hold that has expired is cleared on
        the way. If a trial session may start (``domain.holds``), one session of the lowest tier is claimed and noted as
        the trial; if only higher tiers wait, one is queued for it, as ``retry``, but not with ``chain``.

        Claimers look often and mostly in vain, so they look without the write lock first; what a look has seen serves
        the claims of the next moment too, until one of them is in vain. Where logs go is decided after the look, before
        the transaction: a directory that gives no answer holds up no verdict. What the look has not seen (a trial
        session that the claim queues itself, a session that became due since) another transaction takes.
        """
        tiers = (rules.lowest.number,) if room.lowest_only else None
        prepared = partial(_Claim, owner=owner, rules=rules, now=now, cli_session_id=cli_session_id, chain=chain)

        def look(connection: Connection) -> Sequence[int]:
            due = _due_ids(connection, now, chain=chain, tiers=tiers, limit=_LOOK_AHEAD)
            standing = holds_of(owner.node, holds.standing(connection, now)) if due else ()
            is_open = due and admission(standing, now) is not Admission.CLOSED
            return due if is_open else ()

        def give_back(connection: Connection, claimed: _Claimed) -> None:
            _give_back(connection, claimed.taken, now=now)

        async def take(log_paths: Mapping[int, str], *, seen_at: datetime) -> _Claimed:
            def claim(connection: Connection) -> _Claimed:
                return prepared(connection, log_paths=log_paths).take(room)

            # By its row, a session whose claimer does not wait any more would run until the next start of a daemon.
            claimed = await self._database.write(claim, undo=give_back)
            if claimed.taken and chain is None and tiers is None:  # else others may be due as well
                self._seen, self._seen_at = claimed.left, seen_at
            return claimed

        seen, seen_at, self._seen = self._seen, self._seen_at, {}
        if seen and seen_at is not None and abs(now - seen_at) < _FRESH:
            claimed = await take(seen, seen_at=seen_at)
            if claimed.taken:
                return claimed.taken
        log_paths: dict[int, str] = {}
        due = await self._database.read(look)
        while due:
            log_paths |= await self._decide(log_path, due)
            claimed = await take(log_paths, seen_at=now)
            if claimed.taken or claimed.undecided is None:
                return claimed.taken
            due = (claimed.undecided,)
        return ()

    async def next_due(self, *, chain: int | None = None) -> datetime | None:
        """Return since or from when the session that comes first may start; ``None``: none is queued."""
        query = select(func.min(_WAITED_SINCE, type_=UtcDateTime())).where(sessions.c.status == Status.QUEUED.value)
        if chain is not None:
            query = query.where(sessions.c.root_session_id == chain)
        return await self._database.read(lambda connection: connection.execute(query).scalar())

    async def _decide(self, log_path: Callable[[int], str], session_ids: Sequence[int]) -> dict[int, str]:
        """Decide where some logs go, in a thread; one that does not come back in time is left to itself."""

        def decide() -> dict[int, str]:
            return {session_id: log_path(session_id) for session_id in session_ids}

        with anyio.move_on_after(self._database.wait_seconds):
            return await anyio.to_thread.run_sync(decide, abandon_on_cancel=True, limiter=self._one)
        wait = f"{self._database.wait_seconds:g} s"
        raise DatabaseUnavailableError(f"nothing was claimed: the directory of the logs gave no answer within {wait}.")

    async def identify(self, session: Session, cli_session_id: str) -> None:
        """Write the session id that a CLI chose itself, as soon as the CLI reports it; only for a running session.

        After a crash a log counts as a row's only if both name the same session.
        """

        def name(connection: Connection) -> None:
            named = {"cli_session_id": cli_session_id}
            if session.status is not Status.RUNNING or not change(connection, session, named):
                raise StaleAttemptError(f"session {session.id} is no longer running as attempt {session.attempt}.")

        await self._database.write(name)

    async def finish(self, ending: Ending, *, rules: EscalationRules) -> Finished:
        """End a session and write everything that follows from it, in one transaction.

        Session row, events, memories merged, service checks, tool ends, calls that the CLI refused, ledger settled,
        spend booked, open questions to people expired, decision, and the next tier's queued session, or the retry's;
        and what the end means for holds.

        Raises `StaleAttemptError`, with nothing written, when it is not running as ``ending.attempt``.
        """

        def end(connection: Connection) -> Finished:
            session = running(connection, ending)
            there = what_is_there(connection, session, at=ending.ended_at)
            outcome, head, results = write_end(connection, session, ending, there, rules=rules)
            next_session_id = _queue_next(connection, session, outcome.decision, at=ending.ended_at)
            if next_session_id is None and (there.chain_actions or there.followed_actions):
                end_chain(connection, session, rules=rules, at=ending.ended_at)
            return Finished(
                decision=outcome.decision,
                next_session_id=next_session_id,
                audit_head=head,
                audit_results=results,
                actions=tuple((settled.kind, bool(settled.success)) for settled in outcome.settlements),
            )

        return await self._database.write(end)

    async def end_queued(
        self, target: StopTarget, *, why: str, rules: EscalationRules, now: datetime
    ) -> tuple[Sequence[int], Mapping[int, str]]:
        """End what is queued of a session or chain, as ``cancelled`` with ``why`` as its error, in one transaction.

        Returns the ids of the sessions that it has ended, and those that run, each with its owner's name.
        """
        column, key = sessions.c.id, target.session_id
        if key is None:
            column, key = sessions.c.root_session_id, target.chain
        unended = select(sessions).where(column == key, sessions.c.status != Status.ENDED.value).order_by(sessions.c.id)

        def end(connection: Connection) -> tuple[Sequence[int], Mapping[int, str]]:
            rows = connection.execute(unended).all()
            queued = [to_session(row) for row in rows if row.status == Status.QUEUED.value]
            ended = [session for session in queued if change(connection, session, cancelled_values(why, now=now))]
            for session in ended:
                end_chain(connection, session, rules=rules, at=now)
            running = {row.id: row.owner for row in rows if row.status == Status.RUNNING.value}
            return [session.id for session in ended], running

        return await self._database.write(end)


# --- a claim ----------------------------------------------------------------------------------------------


class _Claimed(NamedTuple):
    """What a transaction took and left, or the session for which it has no log path yet."""

    taken: Sequence[Session]
    left: Mapping[int, str]  # sessions that may still be due, with their log paths
    undecided: int | None


@dataclass(slots=True)
class _Claim:
    """One transaction that takes sessions for an owner."""

    connection: Connection
    _: KW_ONLY
    owner: Owner
    rules: EscalationRules
    now: datetime
    cli_session_id: Callable[[], str]
    log_paths: Mapping[int, str]  # of the sessions that were seen to be due, the oldest first; decided beforehand
    chain: int | None
    undecided: int | None = None
    is_day_spent: bool = False  # found on the way
    gone: set[int] = field(default_factory=set)  # sessions that are not due any more

    def take(self, room: Capacity) -> _Claimed:
        """Take the oldest sessions that are due; those that the rules forbid by now are ended on the way."""
        standing = holds_of(self.owner.node, holds.standing_now(self.connection, self.now))
        taken: Sequence[Session] = ()
        match admission(standing, self.now):
            case Admission.OPEN:
                taken = self._take_oldest(self.log_paths, room)
            case Admission.TRIAL if room.sessions > 0:
                taken = self._take_oldest(self._due_trials(), ONE_SLOT)
                for found in taken:
                    holds.apply(self.connection, when_trial_started(standing, found.id, self.now), now=self.now)
            case _:
                pass
        if taken:
            note_life(self.connection, self.owner, self.now)
        left = {session_id: path for session_id, path in self.log_paths.items() if session_id not in self.gone}
        return _Claimed(taken, left, self.undecided)

    def _take_oldest(self, seen: Iterable[int], room: Capacity) -> Sequence[Session]:
        lowest = self.rules.lowest.number
        still_due = _still_due(of_chain=self.chain is not None)
        taken: list[Session] = []
        for session_id in seen:
            left = room.beside(taken, lowest_tier=lowest)
            if left.sessions <= 0 or self.undecided is not None or self.is_day_spent:
                break
            sought = {"seen": session_id, "now": self.now, "chain": self.chain}
            row = self.connection.execute(still_due, sought).one_or_none()
            if row is None:
                self.gone.add(session_id)
            elif (row.tier == lowest or not left.lowest_only) and (found := self._take_one(to_session(row))):
                taken.append(found)
        return taken

    def _take_one(self, found: Session) -> Session | None:
        connection, rules, now = self.connection, self.rules, self.now
        suppressed, services = _admit(connection, found.tier, rules=rules, now=now, found=found)
        allowed = spend.allow(connection, found, rules=rules, now=now)
        suppressed = suppressed or unpaid(found.tier, allowed, rules.budgets)
        if suppressed is not None:
            self.gone.add(found.id)
            _block(connection, found, suppressed, services, rules=rules, now=now)
        elif isinstance(allowed, Shortfall):  # it waits until another session gives money back, or until midnight
            self.is_day_spent = spend.is_day_spent(connection, allowed, found.id, rules=rules, now=now)
        elif found.id not in self.log_paths:
            self.undecided = found.id
        else:
            self.gone.add(found.id)
            return self._mark(found, allowed)
        return None

    def _mark(self, found: Session, allowed: Allowance | None) -> Session | None:
        """Have a row say who runs it, and promise it its allowance; ``None``: somebody was faster."""
        named, logged = self.cli_session_id(), self.log_paths[found.id]
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
            log_node=self.owner.node or None,
            started_at=self.now,
            allowance_usd=allowed.usd if allowed else None,
        )

    def _due_trials(self) -> Sequence[int]:
        """Return the sessions of the lowest tier that are due; a higher one is worth too much to be the trial.

        If only higher ones are due, one of the lowest tier is queued.
        """
        lowest = self.rules.lowest
        due = _due_ids(self.connection, self.now, chain=self.chain, tiers=(lowest.number,), limit=_LOOK_AHEAD)
        if due or self.chain is not None or not _due_ids(self.connection, self.now, chain=None, tiers=None):
            return due
        trial = NewSession(tier=lowest.number, trigger=Trigger.RETRY, model=lowest.model, harness=lowest.harness)
        return (add_session(self.connection, trial, now=self.now).id,)


def _give_back(connection: Connection, taken: Sequence[Session], *, now: datetime) -> None:
    """Undo a claim of which nobody was told: what was taken was never started, and waits again as it did before.

    The attempt stays raised, as after every claim. What was reserved goes without a trace, for nothing can have been
    spent of it.
    """
    for session in taken:
        if change(connection, session, UNCLAIMED):
            spend.unreserve(connection, session.id)
            holds.apply(connection, when_lost(holds.standing(connection, now), session.id, now), now=now)


@cache
def _due(*, of_chain: bool, of_tiers: bool) -> ColumnElement[bool]:
    """Return the condition of a session that may be claimed: ``now``, of a ``chain``, of some ``tiers``."""
    condition = (sessions.c.status == Status.QUEUED.value) & or_(
        sessions.c.not_before.is_(None), sessions.c.not_before <= bindparam("now")
    )
    condition &= ~_WAITS_BEHIND.exists()
    if of_chain:
        condition &= sessions.c.root_session_id == bindparam("chain")
    if of_tiers:
        # As an expression: by the column SQLite would read all sessions of the tier that ever ended.
        condition &= (sessions.c.tier + 0).in_(bindparam("tiers", expanding=True))
    return condition


@cache
def _ids(*, of_chain: bool, of_tiers: bool) -> Select[tuple[int]]:
    return (
        select(sessions.c.id)
        .where(_due(of_chain=of_chain, of_tiers=of_tiers))
        .order_by(_WAITED_SINCE, sessions.c.id)
        .limit(bindparam("limit", type_=Integer))
    )


def _due_ids(
    connection: Connection, now: datetime, *, chain: int | None, tiers: Sequence[int] | None, limit: int = 1
) -> Sequence[int]:
    """Return the sessions that a claim could find, those first that have waited longest."""
    query = _ids(of_chain=chain is not None, of_tiers=tiers is not None)
    rows = connection.execute(query, {"now": now, "chain": chain, "tiers": tiers, "limit": limit})
    return [row.id for row in rows]


@cache
def _still_due(*, of_chain: bool) -> Select[tuple[object, ...]]:
    """Return the query for a session that was ``seen`` to be due, if it is still."""
    return select(sessions).where(sessions.c.id == bindparam("seen"), _due(of_chain=of_chain, of_tiers=False))


# --- what several transactions do -------------------------------------------------------------------------


def queue_chain(
    connection: Connection, new: NewSession, *, rules: EscalationRules, now: datetime, about: Announcement = PLAIN
) -> Session | Suppressed:
    """Queue a session, or write the event that says why not; ``about``: how people are told of it."""
    suppressed, services = _admit(connection, new.tier, rules=rules, now=now)
    if suppressed is None:
        return add_session(connection, _after_others(connection, new), now=now)
    event = escalation.suppression_event(suppressed, tier=new.tier, services=services)
    raise_event(connection, event, session_id=None, at=now, about=about)
    return suppressed


def _after_others(connection: Connection, new: NewSession) -> NewSession:
    """Return a session with the next free ordinal of its kind: an earlier one may be gone on with several times."""
    if new.parent_session_id is None:
        return new
    same = (
        sessions.c.parent_session_id == new.parent_session_id,
        sessions.c.tier == new.tier,
        sessions.c.trigger == new.trigger.value,
    )
    highest = connection.scalar(select(func.max(sessions.c.ordinal)).where(*same))
    return new if highest is None else replace(new, ordinal=highest + 1)


def _queue_next(connection: Connection, ended: Session, decision: Decision, *, at: datetime) -> int | None:
    """Queue what follows from a session's end; return its id."""
    if decision.next is None:
        return None
    return add_session(connection, incidents.with_news(connection, decision.next, ended, at=at), now=at).id


def _admit(
    connection: Connection, tier: int, *, rules: EscalationRules, now: datetime, found: Session | None = None
) -> tuple[Suppressed | None, tuple[str, ...]]:
    """Ask the rules, with the services in question: a handover's, else those known to be unwell."""
    if not escalation.is_limited(tier, rules):
        return None, ()
    if found is not None and found.context is not None:
        services = escalation.handover_services(found.context)
    else:
        services = queries.unhealthy_services(connection, rules.other_names)
    ledger = queries.ledger(connection, rules, now)
    return escalation.admit(tier=tier, rules=rules, ledger=ledger, unhealthy_services=services, now=now), services


def _block(
    connection: Connection,
    found: Session,
    suppressed: Suppressed,
    services: Sequence[str],
    *,
    rules: EscalationRules,
    now: datetime,
) -> None:
    if change(connection, found, blocked_values(suppressed, now=now)):
        event = escalation.suppression_event(suppressed, tier=found.tier, services=services)
        end = Announcement(tier=found.tier, cost_usd=spend.chain_spent(connection, found.root_session_id))
        own = announcements.of_session(connection, found.id)
        announcements.left(connection, found, event, suppressed.reason, end, at=now, own=own)
        end_chain(connection, found, rules=rules, at=now)


def end_chain(connection: Connection, ended: Session, *, rules: EscalationRules, at: datetime) -> None:
    """Give back what a chain has under repair, and plan the look at what it has changed; for its last session's end."""
    release_services(connection, ended)
    changed, new = changes.plan_follow_up(connection, ended, rules=rules, at=at)
    if new is not None and new.not_before is not None:
        session_id = add_session(connection, new, now=at).id
        changes.set_follow_up(connection, changed, due_at=new.not_before, session_id=session_id)


def add_session(connection: Connection, new: NewSession, *, now: datetime) -> Session:
    """Insert a queued session; a chain's first one becomes its own root."""
    parent = None
    if new.parent_session_id is not None:
        parent = existing(connection, new.parent_session_id)
    values = queued_values(new, root_session_id=parent.root_session_id if parent else None, now=now)
    session = to_session(connection.execute(_ADD_SESSION, values).one())
    if parent is not None:
        connection.execute(_INHERIT, {"inherits": session.id, "of_parent": parent.id})
        return session
    connection.execute(CHANGE_SESSION, {"session": session.id, "root_session_id": session.id})
    return replace(session, root_session_id=session.id)


def existing(connection: Connection, session_id: int) -> Session:
    """Return a row that is there; raises `StoreError`."""
    session = queries.session(connection, session_id)
    if session is None:
        raise StoreError(f"session {session_id} does not exist.")
    return session


def change(connection: Connection, seen: Session, values: Mapping[str, object]) -> bool:
    """Change a row if it still is what was seen; ``False``: somebody was faster."""
    same = {"session": seen.id, "seen_status": seen.status.value, "seen_attempt": seen.attempt}
    return connection.execute(CHANGE_SESSION_AS_SEEN, {**same, **values}).rowcount == 1
