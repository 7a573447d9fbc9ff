"""The store: every port over one open database."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

import msgspec

from claudeops.domain.live import EventRaised
from claudeops.domain.owner import ALERTS, NOTICES, PROBES, SCHEDULES
from claudeops.store.access.idempotency import Idempotency
from claudeops.store.access.logins import StoredLogins
from claudeops.store.access.passkeys import PasskeyStore
from claudeops.store.access.tokens import Tokens
from claudeops.store.access.users import Users
from claudeops.store.acts.deletion import Deletions
from claudeops.store.alerts.alerts import Alerts
from claudeops.store.alerts.incidents import Incidents
from claudeops.store.alerts.silences import Silences
from claudeops.store.approvals import Approvals
from claudeops.store.calls import Calls
from claudeops.store.claims import Claims
from claudeops.store.commands import Commands
from claudeops.store.connection.engines import BUSY_SECONDS
from claudeops.store.database import (
    WAIT_SECONDS,
    Announce,
    Database,
    no_listener,
    open_database,
    uncounted,
    unnoticed,
    wall_clock,
)
from claudeops.store.follow_ups import FollowUps
from claudeops.store.holds import Holds
from claudeops.store.knowledge.briefings import Briefings
from claudeops.store.knowledge.memories import Memories
from claudeops.store.leases import Leases
from claudeops.store.notify.outbox import Outbox
from claudeops.store.notify.questions import Questions
from claudeops.store.probes import Probes
from claudeops.store.queue import Queue
from claudeops.store.reading.scraped import FiguresReader
from claudeops.store.recovery import Recovery
from claudeops.store.retention import Retention
from claudeops.store.schedules import Schedules
from claudeops.store.sessions import Records
from claudeops.store.spend import ModelCalls
from claudeops.store.verify import AuditTrail


def _nobody_waits(_approval_id: int) -> None:
    return


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """An open database by subject, for code that passes it on; code that needs one subject takes that class only.

    Each of their methods is one transaction, or a read. It may raise `DatabaseUnavailableError` (locked, full,
    unreachable: the same call may work later) and bounds its own wait. A cancelled caller never cuts a transaction: it
    is committed whole or not at all. Methods that take ``attempt``, or a session that runs, raise `StaleAttemptError`,
    and write nothing, if the row has another attempt or has ended.
    """

    database: Database
    leases: Leases
    queue: Queue
    claims: Claims
    commands: Commands
    schedules: Schedules
    follow_ups: FollowUps
    holds: Holds
    calls: Calls
    approvals: Approvals
    spending: ModelCalls
    recovery: Recovery
    probes: Probes
    alerts: Alerts
    incidents: Incidents  # for people
    silences: Silences  # for people
    records: Records
    briefings: Briefings
    retention: Retention
    outbox: Outbox
    questions: Questions
    audit: AuditTrail  # for operators
    memories: Memories  # for operators
    deletion: Deletions  # for operators
    figures: FiguresReader  # for the daemon's own metrics
    tokens: Tokens  # for operators, and for who calls the daemon
    logins: StoredLogins  # of people
    idempotency: Idempotency  # of programs that call
    users: Users  # people with a role
    passkeys: PasskeyStore  # by which they sign

    async def close(self) -> None:
        """Write what was submitted, then close the database; bounded, and safe to call twice."""
        await self.database.close()


def open_store(
    url: str,
    *,
    busy_seconds: float = BUSY_SECONDS,
    wait_seconds: float = WAIT_SECONDS,
    now: Callable[[], datetime] = wall_clock,
    raised: Callable[[EventRaised], None] = no_listener,
    answered: Callable[[int], None] = _nobody_waits,
    requested: Callable[[], None] = unnoticed,
    wrote: Callable[[float | None], None] = uncounted,
    changed: Callable[[], None] = unnoticed,
    announce: Announce | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    is_checked: bool = False,
) -> Store:
    """Open a database that has been migrated.

    ``busy_seconds`` bounds the wait for another process's lock, ``wait_seconds`` any call as a whole. ``now`` decides
    how much memories have faded when they are read. ``raised`` is called in the writer's thread with every event that
    was committed, ``answered`` in the caller's event loop with every question to people that was answered, or has
    reached nobody, by way of this store, ``requested`` there after every command to the daemon. ``wrote`` is called in
    any thread with the seconds that a transaction took, or with ``None`` for one that the database did not take;
    ``changed`` there after each that is news. ``announce`` is called in the writer's thread and in the transaction that
    queues sessions. ``monotonic`` measures for how long alerts are decided about in one
    transaction. ``is_checked``: the caller has just seen that the database is migrated, and keeps others from it.

    Raises `DatabaseUnavailableError`, `NewerDatabaseError`, or `ConfigurationError` where the address is wrong or the
    database was not migrated.
    """
    database = open_database(
        url,
        busy_seconds=busy_seconds,
        wait_seconds=wait_seconds,
        now=now,
        raised=raised,
        wrote=wrote,
        changed=changed,
        announce=announce,
        is_checked=is_checked,
    )
    leases = Leases(database)
    return Store(
        database=database,
        leases=leases,
        queue=Queue(database),
        claims=Claims(database),
        commands=Commands(database, requested=requested),
        schedules=Schedules(database, fence=leases.fence(SCHEDULES)),
        follow_ups=FollowUps(database, fence=leases.fence(SCHEDULES)),
        holds=Holds(database),
        calls=Calls(database),
        approvals=Approvals(database, answered=answered),
        spending=ModelCalls(database),
        recovery=Recovery(database),
        probes=Probes(database, fence=leases.fence(PROBES)),
        alerts=Alerts(database, fence=leases.fence(ALERTS), of_probes=leases.fence(PROBES), monotonic=monotonic),
        incidents=Incidents(database),
        silences=Silences(database),
        records=Records(database),
        briefings=Briefings(database),
        retention=Retention(database),
        outbox=Outbox(database, fence=leases.fence(NOTICES), unheard=answered),
        questions=Questions(database),
        audit=AuditTrail(database),
        memories=Memories(database),
        deletion=Deletions(database),
        figures=FiguresReader(database),
        tokens=Tokens(database),
        logins=StoredLogins(database),
        idempotency=Idempotency(database),
        users=Users(database),
        passkeys=PasskeyStore(database),
    )
