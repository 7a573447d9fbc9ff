"""Recovery from dead daemons: their sessions are taken over, ended as lost, and completed when their logs turn up.

A daemon that starts, and one that later sees that an owner is dead, do the same: `Recovery.reconcile`. An owner that
has no row in ``instances`` is dead: a take-over removes the row, and only a sign of life of its own writes it again.

Also the sign of life that living daemons write, and the ids that new sessions must not get.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, column, func, literal_column, or_, select, table, text, update

from claudeops.domain.calls import ToolEnd, VerdictKind
from claudeops.domain.chains.backfill import (
    Backfill,
    Backfilled,
    BackfillPart,
    BackfillRecord,
    BackfillRejected,
    backfill_of,
    backfillable,
)
from claudeops.domain.chains.consequences import lost_event, settle
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.chains.recovery import CallOnRecord, recovery_of
from claudeops.domain.events import EventLevel, NewEvent, has_ended, of_node, on_node
from claudeops.domain.holds import HoldKind, when_lost, when_started
from claudeops.domain.notices.notice import Announcement
from claudeops.domain.owner import SESSION_LEASE, Owner, SignOfLife
from claudeops.domain.report.report import ExtractionMethod
from claudeops.domain.sessions import Ending, Outcome, Session, Status
from claudeops.errors import StaleAttemptError, StoreError
from claudeops.store import action_ledger, holds, queries, spend
from claudeops.store.acts.instances import forget, in_row, known_owners, note_dead, refuse_differing, register, to_owner
from claudeops.store.acts.services import renew_services
from claudeops.store.alerts import announcements
from claudeops.store.approvals import deny_approvals
from claudeops.store.calls import seal_results
from claudeops.store.database import Database
from claudeops.store.events import raise_event, raise_late_event, resolve_event, resolve_events
from claudeops.store.finish import book, record_checks, settle_actions
from claudeops.store.knowledge.memories import remember, shelf
from claudeops.store.leases import give_back_all
from claudeops.store.queue import add_session, change, end_chain, existing
from claudeops.store.rows import TableRow, to_session, to_warnings
from claudeops.store.session_columns import THEIR_NOW, has_clock, lost_values, note_life, taken_over_values
from claudeops.store.tables import HEAD, JOBS_MARK
from claudeops.store.tables.daemon import instances, leases
from claudeops.store.tables.events import events
from claudeops.store.tables.sessions import budget_entries, cooldown_actions, sessions, tool_calls
from claudeops.structs import replace

_CLOCK: Final = select(THEIR_NOW)
_VERSION: Final = table("alembic_version", column("version_num"))
_REPAIRS: Final = select(leases.c.name).where(leases.c.owner.is_not(None), leases.c.name.like("service:%")).exists()
_RUNNING: Final = select(sessions).where(sessions.c.status == Status.RUNNING.value).order_by(sessions.c.id)
_OWN_AND_ORPHANED: Final = select(sessions.c.id, sessions.c.attempt, sessions.c.owner).where(
    sessions.c.status == Status.RUNNING.value,
    or_(
        sessions.c.owner == bindparam("name"),
        ~select(instances.c.owner).where(instances.c.owner == sessions.c.owner).exists(),
    ),
)
_BESIDE: Final = select(
    _VERSION.c.version_num,
    _REPAIRS.label("repairs"),
    _OWN_AND_ORPHANED.with_only_columns(sessions.c.id).exists().label("sessions"),
    instances,
).outerjoin_from(_VERSION, instances, instances.c.owner != bindparam("name"))
_BESIDE_ON_SERVER: Final = _BESIDE.add_columns(
    literal_column("obj_description(to_regclass('procrastinate_jobs'), 'pg_class')").label("jobs")
)
"""The database's revision, whether a service has a lease, whether the owner of that ``name`` or one without a row runs
a session, and each other owner; one row without an owner where it is alone. On PostgreSQL also the comment of the table
of jobs, which has its version."""

_CLOCK_EVENT: Final = "clock"  # the fingerprint
_OPEN: Final = select(events.c.fingerprint).where(events.c.resolved_at.is_(None), events.c.service.is_(None))
_MOST_LOGS: Final = 200  # that are looked for at a start
_MOST_LOST: Final = 500
"""How many of the newest lost sessions have their logs looked for again."""


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A running session whose owner is dead."""

    session: Session
    owner: Owner | None  # None: it has no row any more
    silent: timedelta  # since the session's lease was last renewed


class TakeOver(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found."""

    sessions: Sequence[Session] = ()  # taken over, still ``running``
    dead: Sequence[str] = ()  # nodes that died, each found by one sweep alone
    is_back: bool = False  # the daemon that starts runs on a node that counted as dead


class Recovery:
    """Which daemon runs what, and the sessions that dead daemons have left."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._on_record: tuple[str, Mapping[str, str] | None] | None = None  # an owner and its digests, as last written

    async def reconcile(
        self,
        owner: Owner,
        *,
        now: datetime,
        alive: Callable[[Owner], bool],
        starts: bool = True,
        spared: Collection[int] = (),
        digests: Mapping[str, str] = MappingProxyType({}),
    ) -> TakeOver:
        """Take over the running sessions of dead owners; ``starts``: register ``owner`` first.

        Raises `ConfigurationError`, with nothing changed, where a living owner of a fleet has something otherwise that
        all must have alike, by the ``digests``.

        Their attempt is raised, so that the old owners can write no more, and their questions to people are denied.
        End the sessions that it returns with `Queue.finish` or `mark_lost`. Sessions that are ``spared`` keep their
        dead owner. A dead node of a fleet is an event, unless another daemon of it shows life. At the start of the
        first daemon a standing breaker may be probed at once.
        ``alive`` runs in the writer's thread; an owner without a row is dead.
        """

        def take_over(connection: Connection) -> TakeOver:
            known = [other for other in known_owners(connection, now) if other.name != owner.name]
            living = {owner.name, *(other.name for other in known if alive(other))}
            if starts and digests:
                refuse_differing(connection, owner, digests, living, now=now)
            gone = {other.name for other in known} - living
            if starts or gone:
                forget(connection, {*gone, owner.name} if starts else gone)
            for name in gone:
                give_back_all(connection, name, now=now)
            is_back = starts and register(connection, owner, now, **in_row(digests))
            if starts or gone:
                _end_of_the_gone(connection, now, is_alone=owner.is_alone)
            there = {owner.node, *(other.node for other in known if other.name in living)}
            died = () if owner.is_alone else (other for other in known if other.name in gone)  # alone it is no fleet
            dead = note_dead(connection, died, there, now=now)
            if starts and living == {owner.name}:
                holds.apply(connection, when_started(holds.standing(connection, now), now), now=now)
            orphans = [
                to_session(row)
                for row in connection.execute(_RUNNING)
                if row.owner not in living and row.id not in spared
            ]
            for orphan in orphans:
                change(connection, orphan, taken_over_values(orphan, owner, now=now))
            if orphans:
                deny_approvals(connection, [orphan.id for orphan in orphans], at=now)
            taken = tuple(existing(connection, orphan.id) for orphan in orphans)
            return TakeOver(sessions=taken, dead=dead, is_back=is_back)

        return await self._database.write(take_over)

    async def left_behind(
        self, owner: Owner, *, now: datetime, alive: Callable[[Owner], bool]
    ) -> tuple[Sequence[Owner], Sequence[Orphan]]:
        """Return the dead owners that have a row, and the running sessions of these and of owners without one."""

        def look(connection: Connection) -> tuple[Sequence[Owner], Sequence[Orphan]]:
            known = {other.name: other for other in known_owners(connection, now) if other.name != owner.name}
            dead = [other for other in known.values() if not alive(other)]
            living = {owner.name, *known} - {other.name for other in dead}
            rows = [row for row in connection.execute(_RUNNING) if row.owner not in living]
            return dead, [
                Orphan(
                    session=to_session(row),
                    owner=known.get(row.owner),
                    silent=now - (row.lease_expires_at - SESSION_LEASE),
                )
                for row in rows
            ]

        return await self._database.read(look)

    async def mark_lost(
        self,
        session: Session,
        *,
        rules: EscalationRules,
        now: datetime,
        tool_ends: Sequence[ToolEnd] = (),
        events: Sequence[NewEvent] = (),
    ) -> Session:
        """End a session whose daemon is gone as ``lost``, with an event, and queue what follows, in one transaction.

        ``tool_ends`` are the results that its log shows, ``events`` further events about it. A session of the lowest
        tier is followed by the same look once more (``recovery``), unless it was a recovery itself; a session of a
        higher tier by a look of the lowest tier, whose handover says what was under way. Returns the row as it is then.
        """

        def mark(connection: Connection) -> Session:
            _end_calls(connection, session, tool_ends)
            following = recovery_of(session, _calls(connection, session), rules)
            event = lost_event(session, following)
            spend.close_calls(connection, session.id, at=now, error=event.message)
            calls = spend.booked_calls(connection, session.id)
            if not change(connection, session, lost_values(event.message, calls, now=now)):
                raise StaleAttemptError(f"session {session.id} is no longer running as attempt {session.attempt}.")
            spent, reserved = calls.charged_usd if calls.count else None, spend.reserved_of(connection, session.id)
            spend.settle(connection, session.id, spent, reserved_usd=reserved, at=now)
            if following is None:
                end = Announcement(tier=session.tier, cost_usd=spend.chain_spent(connection, session.root_session_id))
                own = announcements.of_session(connection, session.id)
                announcements.left(connection, session, event, Outcome.LOST, end, at=now, own=own)
            for raised in events if following is None else (event, *events):
                raise_event(connection, raised, session_id=session.id, at=now)
            seal_results(connection, session.id)
            holds.apply(connection, when_lost(holds.standing(connection, now), session.id, now), now=now)
            if following is not None:
                add_session(connection, following, now=now)
            else:
                end_chain(connection, session, rules=rules, at=now)
            return existing(connection, session.id)

        return await self._database.write(mark)

    async def unrecovered_sessions(self) -> Sequence[Session]:
        """Return lost sessions that were not backfilled from a complete log, newest first; at most some hundreds."""
        column = sessions.c
        query = select(sessions).where(
            column.outcome == Outcome.LOST.value,
            or_(column.extraction_method.is_(None), column.extraction_method == ExtractionMethod.NONE.value),
            column.num_turns.is_(None),
            column.log_path.is_not(None),
        )
        newest = query.order_by(column.id.desc()).limit(_MOST_LOST)
        return await self._database.read(lambda connection: tuple(map(to_session, connection.execute(newest))))

    async def backfill(self, ending: Ending) -> Backfilled | BackfillRejected:
        """Write what a session's log says and the database does not know yet, in one transaction.

        For a session that has ended before its log was read (a ``lost`` one), or before it was read completely.
        Everything that is written gets the time ``ending.ended_at``, or the row's own end if that is earlier. Each part
        is written once, however often this is called:

        - the report (method, summary, events, memories, service checks), when the row has none;
        - cost and settled spend, when the row's cost is unknown;
        - with either of them, or if the row has nothing from its stream yet: response, tokens, turns,
          counters, warnings;
        - results of tool calls that have none, and the actions that were settled as never seen to end.

        What was settled stays: outcome, error, decision, end, exit. Nothing follows: no decision, no next session, no
        cooldown counter cleared. What is known from later sessions takes precedence: a backfill moves no ``last_seen``
        or ``updated_at`` back, reopens no condition that is over and contradicts no memory that was confirmed since.

        Refuses with `UNKNOWN_SESSION`, `NOT_ENDED` or `OTHER_SESSION` (``ending.cli_session_id`` is not the row's).
        After a `Queue.finish` with the same ending it changes nothing.
        """

        def fill(connection: Connection) -> Backfilled | BackfillRejected:
            session = backfillable(queries.session(connection, ending.session_id), ending)
            if isinstance(session, BackfillRejected):
                return session
            late = backfill_of(ending, _on_record(connection, session, ending))
            ended = _add_results(connection, ending)
            if ended:
                seal_results(connection, session.id)
            _write_backfill(connection, session, late)
            return Backfilled(
                session=queries.session(connection, session.id) or session,
                parts=late.parts | {BackfillPart.TOOL_ENDS} if ended else late.parts,
            )

        return await self._database.write(fill)

    async def renew_lease(self, owner: Owner, *, now: datetime, digests: Mapping[str, str] | None = None) -> SignOfLife:
        """Note that ``owner`` lives and renew its leases; return what it runs, who else there is, and more.

        ``digests`` are of what it decides by, as that is now. A row of ``instances`` that another daemon has removed,
        because it took this one for dead, is written again.
        """
        own = (sessions.c.owner == owner.name, sessions.c.status == Status.RUNNING.value)
        is_known, self._on_record = self._on_record == (owner.name, digests), None  # until it is written

        def renew(connection: Connection) -> SignOfLife:
            is_back = False
            if not note_life(connection, owner, now, **({} if is_known else in_row(digests))):
                is_back = register(connection, owner, now, **in_row(digests))
            beside = _beside(connection, owner.name)
            rows: Sequence[TableRow] = ()
            if beside[0].sessions:
                connection.execute(update(sessions).where(*own).values(lease_expires_at=now + SESSION_LEASE))
                rows = connection.execute(_OWN_AND_ORPHANED, {"name": owner.name}).all()
            if beside[0].repairs:
                renew_services(connection, owner.name, now=now)
            life = SignOfLife(
                running=frozenset((row.id, row.attempt) for row in rows if row.owner == owner.name),
                orphans=frozenset(row.id for row in rows if row.owner != owner.name),
                newer_revision=str(beside[0].version_num) if beside[0].version_num > HEAD else None,
                at=now,
                is_back=is_back,
            )
            others = [row for row in beside if row.owner is not None]
            if not has_clock(connection):
                return replace(life, others=tuple(to_owner(row, now) for row in others))
            sent_at = self._database.now()
            theirs = connection.execute(_CLOCK).scalar_one()
            way = self._database.now() - sent_at
            return replace(
                life,
                job_tables=(beside[0].jobs or "").removeprefix(JOBS_MARK) or None,
                others=tuple(to_owner(row, theirs) for row in others),
                ahead_seconds=(sent_at + way / 2 - theirs).total_seconds(),
                way_seconds=way.total_seconds(),
                at=theirs,
            )

        life = await self._database.write(renew, is_news=False)
        self._on_record = owner.name, digests
        return life

    async def note_clock(self, fault: str | None, owner: Owner, *, now: datetime) -> None:
        """Raise the event that the clock of an owner's machine is wrong, or end the open one without a ``fault``."""

        def note(connection: Connection) -> None:
            if fault is None:
                resolve_event(connection, on_node(_CLOCK_EVENT, owner.node), at=now)
            else:
                event = NewEvent(level=EventLevel.WARNING, message=fault, fingerprint=_CLOCK_EVENT)
                raise_event(connection, of_node(event, owner.node), session_id=None, at=now)

        await self._database.write(note)

    async def skip_ids(self, highest: int, *, now: datetime) -> int:
        """Give new sessions only ids above ``highest``: a restored database does not know which ids have logs.

        Returns the last id that was given before. Where the logs of sessions that were given ids once are unknown now,
        an event says so, and is over at once.
        """

        def skip(connection: Connection) -> int:
            reached = _reached(connection)
            if reached < highest:
                _skip(connection, highest)
                if reached:
                    _note_restored(connection, reached, highest, now)
            return reached

        return await self._database.write(skip)

    async def latest_logs(self, *, since: datetime) -> Sequence[Session]:
        """Return the sessions that ended last, since a moment, and whose logs are kept; at most some hundreds."""
        column = sessions.c
        ended = select(sessions).where(column.ended_at >= since, column.log_path.is_not(None))
        latest = ended.order_by(column.ended_at.desc()).limit(_MOST_LOGS)
        return await self._database.read(lambda connection: tuple(map(to_session, connection.execute(latest))))

    async def depart(self, owner: Owner) -> None:
        """Remove ``owner`` from the running instances, and give back its leases."""

        def leave(connection: Connection) -> None:
            forget(connection, {owner.name})
            give_back_all(connection, owner.name, now=self._database.now())

        await self._database.write(leave)


def _beside(connection: Connection, name: str) -> Sequence[TableRow]:
    looks = _BESIDE_ON_SERVER if has_clock(connection) else _BESIDE
    beside = connection.execute(looks, {"name": name}).all()
    if not beside:
        raise StoreError("the database has no revision: restore it, or copy it anew.")
    return beside


def _end_of_the_gone(connection: Connection, now: datetime, *, is_alone: bool) -> None:
    """End the conditions of machines on which no daemon runs any more, and those of which no machine is known."""
    here = set(connection.execute(select(instances.c.node)).scalars())
    for hold in holds.standing(connection, now):
        if hold.kind is HoldKind.DISK and hold.node not in here:
            holds.release(connection, hold.kind, node=hold.node, now=now)
    for name in set(connection.execute(_OPEN).scalars()):
        if has_ended(name, here, is_alone=is_alone):
            resolve_event(connection, name, at=now)


def _end_calls(connection: Connection, orphan: Session, tool_ends: Iterable[ToolEnd]) -> None:
    """Write which calls ended, and settle the actions that they reserved; one without an end counts as used."""
    ends = tuple(tool_ends)
    calls, actions = tool_calls.c, cooldown_actions.c
    for end in ends:
        connection.execute(
            update(tool_calls)
            .where(calls.session_id == orphan.id, calls.tool_use_id == end.tool_use_id)
            .values(ended_at=end.ended_at, is_error=end.is_error)
        )
    for settled in settle(action_ledger.reservations(connection, orphan.id), ends):
        connection.execute(
            update(cooldown_actions)
            .where(actions.id == settled.id, actions.success.is_(None))
            .values(success=settled.success, error=settled.error)
        )


def _calls(connection: Connection, orphan: Session) -> list[CallOnRecord]:
    query = select(tool_calls).where(tool_calls.c.session_id == orphan.id).order_by(tool_calls.c.id)
    return [_to_call(row) for row in connection.execute(query)]


def _to_call(row: TableRow) -> CallOnRecord:
    """Return a ``tool_calls`` row in the form in which the next session is told of it."""
    return CallOnRecord(
        tool_name=row.tool_name,
        redacted_input=row.input,
        verdict=VerdictKind(row.verdict),
        requested_at=row.requested_at,
        ended_at=row.ended_at,
        is_error=row.is_error,
    )


def _on_record(connection: Connection, session: Session, ending: Ending) -> BackfillRecord:
    warnings = select(sessions.c.warnings).where(sessions.c.id == session.id)
    settled = select(budget_entries.c.id).where(
        budget_entries.c.session_id == session.id, budget_entries.c.kind == "settled"
    )
    return BackfillRecord(
        session=session,
        warnings=to_warnings(connection.execute(warnings).scalar_one()),
        shelf=shelf(connection, session, ending.extraction.report),
        spend_settled=connection.execute(settled.limit(1)).first() is not None,
        unseen_ends=action_ledger.unseen_ends(connection, session.id),
        reservations=action_ledger.reservations(connection, session.id),
        before=queries.background(connection, session, {}),
    )


def _add_results(connection: Connection, ending: Ending) -> int:
    """Write the results that are still missing from the calls; return how many."""
    calls = tool_calls.c
    return sum(
        connection.execute(
            update(tool_calls)
            .where(
                calls.session_id == ending.session_id,
                calls.tool_use_id == end.tool_use_id,
                calls.verdict != VerdictKind.ASK.value,
                calls.ended_at.is_(None),
            )
            .values(ended_at=end.ended_at, is_error=end.is_error)
        ).rowcount
        for end in ending.tool_ends
    )


def _write_backfill(connection: Connection, session: Session, late: Backfill) -> None:
    if late.values:
        connection.execute(update(sessions).where(sessions.c.id == session.id).values(late.values))
    settle_actions(connection, late.settlements)
    book(connection, session.id, late.spend, at=late.at)
    record_checks(connection, session.id, late.checks, at=late.at)
    for dated in late.memories:
        remember(connection, session, [dated.change], at=dated.at)
    for event in late.events:
        raise_late_event(connection, event, session_id=session.id, at=late.at)
    resolve_events(connection, session, healthy=late.healthy_services, all_healthy=False, at=late.at)


def _reached(connection: Connection) -> int:
    """Return the last id that was given to a session, whether or not the session is still there."""
    if connection.dialect.name == "sqlite":
        return connection.execute(text("SELECT seq FROM sqlite_sequence WHERE name = 'sessions'")).scalar() or 0
    last = connection.execute(text("SELECT last_value, is_called FROM sessions_id_seq")).one()
    return last.last_value if last.is_called else 0


def _skip(connection: Connection, highest: int) -> None:
    if connection.dialect.name != "sqlite":
        connection.execute(select(func.setval("sessions_id_seq", highest)))
        return
    # Before the first id there is no row for it.
    known = connection.execute(text("UPDATE sqlite_sequence SET seq = :id WHERE name = 'sessions'"), {"id": highest})
    if not known.rowcount:
        connection.execute(text("INSERT INTO sqlite_sequence VALUES ('sessions', :id)"), {"id": highest})


def _note_restored(connection: Connection, reached: int, highest: int, now: datetime) -> None:
    message = (
        f"the results directory has logs up to session {highest}, and this database knows of none after {reached}: it "
        "was restored from a backup, or another one was in its place. What the sessions after that found and did is in "
        "their logs alone (`claudeops replay FILE` shows it), and does not count towards limits and budgets."
    )
    event = NewEvent(level=EventLevel.WARNING, message=message, fingerprint=f"restored:{reached}:{highest}")
    raise_event(connection, event, session_id=None, at=now)
    resolve_event(connection, event.fingerprint, at=now)
