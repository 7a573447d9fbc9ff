"""The store: every port over one open database."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from claudeops.domain.live import EventRaised
from claudeops.store.access.idempotency import SqlIdempotency
from claudeops.store.access.logins import SqlLogins
from claudeops.store.access.passkeys import SqlPasskeys
from claudeops.store.access.tokens import SqlTokens
from claudeops.store.access.users import SqlUsers
from claudeops.store.alerts.desk import SqlAlerts
from claudeops.store.commands import SqlCommands
from claudeops.store.database import BUSY_SECONDS, WAIT_SECONDS, Database, parse_url
from claudeops.store.follow_ups import SqlFollowUps
from claudeops.store.holds import SqlHolds
from claudeops.store.housekeeping import SqlDeletion, SqlHousekeeping
from claudeops.store.knowledge.briefings import SqlBriefings
from claudeops.store.knowledge.memories import SqlMemories
from claudeops.store.migrate import require_head
from claudeops.store.notify.outbox import SqlOutbox
from claudeops.store.notify.questions import SqlQuestions
from claudeops.store.probes import SqlProbes
from claudeops.store.queue import SqlQueue
from claudeops.store.reading.scraped import SqlFigures
from claudeops.store.recovery import SqlRecovery
from claudeops.store.schedules import SqlSchedules
from claudeops.store.sessions import SqlRecords
from claudeops.store.spend import SqlSpending
from claudeops.store.verdicts import SqlVerdicts
from claudeops.store.verify import AuditTrail

_wall_clock: Final = partial(datetime.now, UTC)


def _no_listener(_: EventRaised) -> None:
    return


def _uncounted(_seconds: float | None) -> None:
    return


def _nobody_waits(_approval_id: int) -> None:
    return


@dataclass(frozen=True, kw_only=True, slots=True)
class SqlStore:
    """`claudeops.engine.ports.Store`: an open database and every port to it."""

    database: Database
    queue: SqlQueue
    commands: SqlCommands
    schedules: SqlSchedules
    follow_ups: SqlFollowUps
    holds: SqlHolds
    verdicts: SqlVerdicts
    spending: SqlSpending
    recovery: SqlRecovery
    probes: SqlProbes
    alerts: SqlAlerts
    records: SqlRecords
    briefings: SqlBriefings
    housekeeping: SqlHousekeeping
    outbox: SqlOutbox
    questions: SqlQuestions
    audit: AuditTrail  # for operators
    memories: SqlMemories  # for operators
    deletion: SqlDeletion  # for operators
    figures: SqlFigures  # for the daemon's own metrics
    tokens: SqlTokens  # for operators, and for who calls the daemon
    logins: SqlLogins  # of people
    idempotency: SqlIdempotency  # of programs that call
    users: SqlUsers  # people with a role
    passkeys: SqlPasskeys  # by which they sign

    async def close(self) -> None:
        """Write what was submitted, then close the database; bounded, and safe to call twice."""
        await self.database.close()


def open_store(
    url: str,
    *,
    busy_seconds: float = BUSY_SECONDS,
    wait_seconds: float = WAIT_SECONDS,
    now: Callable[[], datetime] = _wall_clock,
    raised: Callable[[EventRaised], None] = _no_listener,
    answered: Callable[[int], None] = _nobody_waits,
    wrote: Callable[[float | None], None] = _uncounted,
    monotonic: Callable[[], float] = time.monotonic,
) -> SqlStore:
    """Open a database that has been migrated.

    ``busy_seconds`` bounds the wait for another process's lock, ``wait_seconds`` any call as a whole. ``now`` decides
    how much memories have faded when they are read. ``raised`` is called in the writer's thread with every event that
    was committed, ``answered`` in the caller's event loop with every question to people that was answered, or has
    reached nobody, by way of this store. ``wrote`` is called in any thread with the seconds that a transaction took, or
    with ``None`` for one that the database did not take. ``monotonic`` measures for how long alerts are decided about
    in one transaction.

    Raises `DatabaseUnavailableError`, `NewerDatabaseError`, or `ConfigurationError` where the address is wrong or the
    database was not migrated.
    """
    parsed = parse_url(url)
    require_head(parsed, busy_seconds=busy_seconds)
    database = Database(
        parsed, busy_seconds=busy_seconds, wait_seconds=wait_seconds, now=now, raised=raised, wrote=wrote
    )
    return SqlStore(
        database=database,
        queue=SqlQueue(database),
        commands=SqlCommands(database),
        schedules=SqlSchedules(database),
        follow_ups=SqlFollowUps(database),
        holds=SqlHolds(database),
        verdicts=SqlVerdicts(database, answered=answered),
        spending=SqlSpending(database),
        recovery=SqlRecovery(database),
        probes=SqlProbes(database),
        alerts=SqlAlerts(database, monotonic=monotonic),
        records=SqlRecords(database),
        briefings=SqlBriefings(database),
        housekeeping=SqlHousekeeping(database),
        outbox=SqlOutbox(database, unheard=answered),
        questions=SqlQuestions(database),
        audit=AuditTrail(database),
        memories=SqlMemories(database),
        deletion=SqlDeletion(database),
        figures=SqlFigures(database),
        tokens=SqlTokens(database),
        logins=SqlLogins(database),
        idempotency=SqlIdempotency(database),
        users=SqlUsers(database),
        passkeys=SqlPasskeys(database),
    )
