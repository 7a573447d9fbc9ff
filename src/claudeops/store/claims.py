"""Claims: which queued sessions a daemon takes, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Final, NamedTuple

import anyio
import anyio.to_thread
from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Integer,
    Select,
    String,
    bindparam,
    case,
    column,
    func,
    or_,
    select,
    table,
)

from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.holds import ONE_SLOT, Admission, Capacity, admission, holds_of, when_lost, when_trial_started
from claudeops.domain.owner import Owner
from claudeops.domain.sessions import NewSession, Session, Status, Trigger
from claudeops.domain.spending.budget import Allowance, Shortfall, unpaid
from claudeops.errors import DatabaseUnavailableError
from claudeops.store import holds, spend
from claudeops.store.database import Database
from claudeops.store.queue import add_session, admit_session, block_session, change
from claudeops.store.rows import to_session
from claudeops.store.session_columns import UNCLAIMED, claimed_values, note_life
from claudeops.store.tables import HEAD
from claudeops.store.tables.columns import UtcDateTime
from claudeops.store.tables.daemon import instances, schedule_fires
from claudeops.store.tables.sessions import other_sessions, sessions
from claudeops.structs import replace

_LOOK_AHEAD: Final = 50  # sessions, of those that are due
_FRESH: Final = timedelta(seconds=1)
"""For which a look serves further claims: for that long at most a session that became due may come before an older."""

_WAITED_SINCE: Final = func.coalesce(sessions.c.not_before, sessions.c.created_at)
_IS_ABOVE: Final = case((sessions.c.tier > bindparam("lowest", type_=Integer), 1))
_IS_HERE: Final = case((func.coalesce(instances.c.site, sessions.c.site) == bindparam("site"), 1))
_ABLE: Final = (  # another daemon that may run a session, and has its tier
    select(instances.c.owner)
    .where(instances.c.owner != bindparam("claimer"), instances.c.max_tier >= sessions.c.tier)
    .where(or_(sessions.c.site.is_(None), sessions.c.site == instances.c.site))
    .where(or_(sessions.c.for_node.is_(None), sessions.c.for_node == instances.c.node))
)
_VERSION: Final = table("alembic_version", column("version_num", String))
_IS_OURS: Final = select(_VERSION.c.version_num).scalar_subquery() <= HEAD
"""The tables are not newer than this code. A claim sees it in its transaction, before the sign of life does."""

_WAITS_FOR: Final = (
    # A session waits for this ``node``, for any of its ``site``, or for any at all; where this one is ``alone``, in any
    # case. One whose tier this one lacks waits for those that have it, as long as there are any.
    (sessions.c.status == Status.QUEUED.value)
    & or_(bindparam("alone", type_=Boolean), sessions.c.site.is_(None), sessions.c.site == bindparam("site"))
    & or_(bindparam("alone", type_=Boolean), sessions.c.for_node.is_(None), sessions.c.for_node == bindparam("node"))
    & or_(sessions.c.tier <= bindparam("highest", type_=Integer), ~_ABLE.exists())
    & _IS_OURS
)
_RUNNING: Final = (
    select(
        func.count().label("in_all"),
        func.count(_IS_ABOVE).label("above"),
        func.count(_IS_HERE).label("of_site"),
        func.count(case((_IS_HERE == 1, _IS_ABOVE))).label("above_of_site"),
    )
    .outerjoin_from(sessions, instances, instances.c.owner == sessions.c.owner)
    .where(sessions.c.status == Status.RUNNING.value)
)
"""How many sessions run, by the rows: of all sites, and of one, which is that of their daemons."""

_WAITS_BEHIND: Final = (  # a fire of a schedule that lets one chain wait for the end of the one before it
    select(other_sessions.c.id)
    .join(schedule_fires, schedule_fires.c.after_chain == other_sessions.c.root_session_id)
    .where(schedule_fires.c.session_id == sessions.c.id, other_sessions.c.status != Status.ENDED.value)
)


class Claims:
    """Sessions out of the queue."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._one = anyio.CapacityLimiter(1)  # threads that a directory of logs can keep waiting
        self._seen: Mapping[int, str] = {}  # sessions that a look found due and no claim took, with their log paths
        self._seen_at: datetime | None = None  # when that look was
        self.may_have_left = True  # sessions that are due, by what the last claim found

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
        """Claim due sessions in the order of the queue; sets ``running``, attempt + 1, owner, ids, ``started_at``.

        Claims as many as there is ``room`` for, in one transaction; returns none if there is nothing to do. What each
        may spend is reserved for it, as ``allowance_usd``. Two claimers never get the same session. ``chain`` restricts
        the claim to one root. ``log_path`` may ask a file system: it is called in a thread, before the transaction, and
        also for sessions that are not taken then. A row that the rules forbid by now (dry run switched on, maximum tier
        lowered) ends as ``blocked`` with its reason and event, and the next one is tried. Left to others are sessions
        of another site, those that another machine alone may run, and those of a tier that this daemon lacks and
        another one has.

        The order is that of `claudeops.domain.sessions.turn_of`. Of a limit that the daemons of a site have together,
        or all of them, what is left is counted in the transaction, by the rows that run.

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
        is_narrow = chain is not None or room.lowest_only or _is_shared(rules)
        prepared = partial(_Claim, owner=owner, rules=rules, now=now, cli_session_id=cli_session_id, chain=chain)

        def give_back(connection: Connection, claimed: _Claimed) -> None:
            _give_back(connection, claimed.taken, now=now)

        async def take(log_paths: Mapping[int, str], *, seen_at: datetime) -> _Claimed:
            def claim(connection: Connection) -> _Claimed:
                return prepared(connection, log_paths=log_paths).take(room)

            # By its row, a session whose claimer does not wait any more would run until the next start of a daemon.
            # Urgent, because a slot is empty meanwhile.
            claimed = await self._database.write(claim, urgent=True, undo=give_back)
            if claimed.taken and not is_narrow:  # else others may be due as well
                self._seen, self._seen_at = claimed.left, seen_at
            return claimed

        self.may_have_left = True
        seen, seen_at, self._seen = self._seen, self._seen_at, {}
        if seen and seen_at is not None and abs(now - seen_at) < _FRESH:
            claimed = await take(seen, seen_at=seen_at)
            if claimed.taken:
                return claimed.taken
        log_paths: dict[int, str] = {}
        look = partial(_look, owner=owner, rules=rules, now=now, chain=chain, room=room)
        due = await self._database.read(look)
        is_whole = not is_narrow and len(due) < _most_seen(room)
        while due:
            log_paths |= await self._decide(log_path, due)
            claimed = await take(log_paths, seen_at=now)
            if claimed.taken or claimed.undecided is None:
                self.may_have_left = not is_whole or bool(claimed.left)
                return claimed.taken
            due = (claimed.undecided,)
        return ()

    async def next_due(self, owner: Owner, *, rules: EscalationRules, chain: int | None = None) -> datetime | None:
        """Return since or from when the first session of an owner's may start; ``None``: none is queued for it."""
        query = select(func.min(_WAITED_SINCE, type_=UtcDateTime())).where(_WAITS_FOR)
        if chain is not None:
            query = query.where(sessions.c.root_session_id == chain)
        return await self._database.read(lambda connection: connection.execute(query, _claimer(owner, rules)).scalar())

    async def _decide(self, log_path: Callable[[int], str], session_ids: Sequence[int]) -> dict[int, str]:
        """Decide where some logs go, in a thread; one that does not come back in time is left to itself."""

        def decide() -> dict[int, str]:
            return {session_id: log_path(session_id) for session_id in session_ids}

        with anyio.move_on_after(self._database.wait_seconds):
            return await anyio.to_thread.run_sync(decide, abandon_on_cancel=True, limiter=self._one)
        wait = f"{self._database.wait_seconds:g} s"
        raise DatabaseUnavailableError(f"nothing was claimed: the directory of the logs gave no answer within {wait}.")


# --- one transaction --------------------------------------------------------------------------------------


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
        room = _left(self.connection, self.owner, self.rules, room)
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
            sought = {**_claimer(self.owner, self.rules), "seen": session_id, "now": self.now, "chain": self.chain}
            row = self.connection.execute(still_due, sought).one_or_none()
            if row is None:
                self.gone.add(session_id)
            elif (row.tier == lowest or not left.lowest_only) and (found := self._take_one(to_session(row))):
                taken.append(found)
        return taken

    def _take_one(self, found: Session) -> Session | None:
        connection, rules, now = self.connection, self.rules, self.now
        suppressed, services = admit_session(connection, found.tier, rules=rules, now=now, found=found)
        allowed = spend.allow(connection, found, rules=rules, now=now)
        suppressed = suppressed or unpaid(found.tier, allowed, rules.budgets)
        if suppressed is not None:
            self.gone.add(found.id)
            block_session(connection, found, suppressed, services, rules=rules, now=now)
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
        find = partial(_due_ids, self.connection, self.owner, self.rules, self.now)
        due = find(chain=self.chain, tiers=(lowest.number,), limit=_LOOK_AHEAD)
        if due or self.chain is not None or not find(chain=None, tiers=None):
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


def _claimer(owner: Owner, rules: EscalationRules) -> dict[str, object]:
    """Return who claims, where that is and which tiers it has, as the conditions of a claim name them."""
    return {
        "claimer": owner.name,
        "site": owner.site,
        "node": owner.node,
        "alone": owner.is_alone,
        "highest": rules.max_tier,
    }


def _is_shared(rules: EscalationRules) -> bool:
    """Return whether daemons have a limit together."""
    return rules.most_of_site is not None or rules.most_in_all is not None


def _left(connection: Connection, owner: Owner, rules: EscalationRules, room: Capacity) -> Capacity:
    """Return what of a daemon's room the limits leave that it has with others."""
    if not _is_shared(rules):
        return room
    at_work = connection.execute(_RUNNING, {"site": owner.site, "lowest": rules.lowest.number}).one()
    room = room.within(rules.most_in_all, running=at_work.in_all, above=at_work.above)
    return room.within(rules.most_of_site, running=at_work.of_site, above=at_work.above_of_site)


@cache
def _due(*, of_chain: bool, of_tiers: bool) -> ColumnElement[bool]:
    """Return the condition of a session that may be claimed: ``now``, of a ``chain``, of some ``tiers``."""
    condition = _WAITS_FOR & or_(sessions.c.not_before.is_(None), sessions.c.not_before <= bindparam("now"))
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
        .order_by(sessions.c.ranked_at, sessions.c.id)
        .limit(bindparam("limit", type_=Integer))
    )


def _look(
    connection: Connection, *, owner: Owner, rules: EscalationRules, now: datetime, chain: int | None, room: Capacity
) -> Sequence[int]:
    """Return the sessions that a claim may take, those first whose turn it is; none while a hold stands."""
    left = _left(connection, owner, rules, room)
    if left.sessions <= 0:
        return ()
    tiers = (rules.lowest.number,) if left.lowest_only else None
    due = _due_ids(connection, owner, rules, now, chain=chain, tiers=tiers, limit=_most_seen(room))
    standing = holds_of(owner.node, holds.standing(connection, now)) if due else ()
    return due if due and admission(standing, now) is not Admission.CLOSED else ()


def _most_seen(room: Capacity) -> int:
    return max(_LOOK_AHEAD, room.sessions)


def _due_ids(
    connection: Connection,
    owner: Owner,
    rules: EscalationRules,
    now: datetime,
    *,
    chain: int | None,
    tiers: Sequence[int] | None,
    limit: int = 1,
) -> Sequence[int]:
    """Return the sessions that a claim could find, those first whose turn it is."""
    query = _ids(of_chain=chain is not None, of_tiers=tiers is not None)
    sought = {**_claimer(owner, rules), "now": now, "chain": chain, "tiers": tiers, "limit": limit}
    rows = connection.execute(query, sought)
    return [row.id for row in rows]


@cache
def _still_due(*, of_chain: bool) -> Select[tuple[object, ...]]:
    """Return the query for a session that was ``seen`` to be due, if it is still."""
    return select(sessions).where(sessions.c.id == bindparam("seen"), _due(of_chain=of_chain, of_tiers=False))
