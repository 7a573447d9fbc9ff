"""A daemon that is one no longer stops what it runs, and itself."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from datetime import datetime

import anyio
import pytest

from claudeops import logs
from claudeops.clock import Clock
from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.owner import CLOCK_LIMIT_SECONDS, Owner, SignOfLife
from claudeops.domain.sessions import Session
from claudeops.engine.control import StopControl
from claudeops.engine.daemon.lease import LeaseRenewal
from claudeops.errors import AlreadyRunningError, DatabaseUnavailableError
from claudeops.store.recovery import Recovery
from claudeops.store.store import Store
from support.store_values import NOW, OTHER_OWNER, OWNER, RULES, after, check, ending, report, running, started
from support.stores import Database, opened
from support.waiting import PATIENCE_SECONDS

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio


class StandingClock(Clock):
    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0


class AwayRecovery(Recovery):
    """Leases in a database that cannot be asked."""

    def __init__(self) -> None:
        """There is no database."""

    async def renew_lease(self, owner: Owner, *, now: datetime, digests: Mapping[str, str] | None = None) -> SignOfLife:
        raise DatabaseUnavailableError(f"the database is locked for {owner.name} at {now} ({digests}).")


def held() -> None:
    """Find the lock where it was."""


def taken() -> None:
    raise AlreadyRunningError("another claudeops daemon holds the lock.")


@pytest.fixture
async def store(sqlite: Database) -> AsyncIterator[Store]:
    async with opened(sqlite) as store:
        yield store


@pytest.fixture
def logged() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


def pulse(recovery: Recovery, running: dict[int, tuple[Session, StopControl]], **changes: object) -> LeaseRenewal:
    given: dict[str, object] = {
        "recovery": recovery,
        "owner": OWNER,
        "clock": StandingClock(),
        "running": running,
        "check_lock": held,
        "lost": lambda: None,
        "log": logs.get_logger(),
        **changes,
    }
    return LeaseRenewal(**given)  # type: ignore[arg-type]  # a test names its fields


async def test_a_session_that_somebody_else_took_over_is_stopped(store: Store, logged: io.StringIO) -> None:
    own = {session.id: (session, StopControl()) for session in (await started(store), await started(store))}
    beating = pulse(store.recovery, own)
    await beating.renew()
    assert {control.cause for _, control in own.values()} == {None}
    taken_over = await store.recovery.reconcile(OTHER_OWNER, now=after(hours=1), alive=lambda _: False)
    assert len(taken_over) == 2

    await beating.renew()
    await beating.renew()
    await beating.renew()

    assert {control.cause for _, control in own.values()} == {StopCause.CANCELLED}
    assert logged.getvalue().count('"stale_attempt"') == 2


async def test_a_session_whose_end_was_just_written_is_not_taken_for_a_stale_one(
    store: Store, logged: io.StringIO
) -> None:
    session = await started(store)
    own = {session.id: (session, StopControl())}
    beating = pulse(store.recovery, own)
    await store.queue.finish(ending(session, report(check("web"))), rules=RULES)

    await beating.renew()
    del own[session.id]
    await beating.renew()

    assert "stale_attempt" not in logged.getvalue()


async def test_an_absent_database_stops_nothing(logged: io.StringIO) -> None:
    control = StopControl()
    beating = pulse(AwayRecovery(), {7: (running(), control)})

    for _ in range(3):
        await beating.renew()

    assert control.cause is None
    assert logged.getvalue().count('"database_unavailable"') == 3


async def test_trouble_is_announced_when_it_comes_and_when_it_goes(store: Store) -> None:
    seen: list[str | None] = []
    beating: LeaseRenewal = pulse(AwayRecovery(), {}, changed=lambda: seen.append(beating.trouble))

    for recovery in (AwayRecovery(), AwayRecovery(), store.recovery, store.recovery):
        beating.recovery = recovery
        await beating.renew()

    assert [trouble is None for trouble in seen] == [False, True]


async def test_a_lock_that_is_somebody_elses_ends_the_daemon(logged: io.StringIO) -> None:
    told = anyio.Event()

    with anyio.fail_after(PATIENCE_SECONDS):
        await pulse(AwayRecovery(), {}, check_lock=taken, lost=told.set).run()

    assert told.is_set()
    assert '"lock_lost"' in logged.getvalue()


class OffClock(Recovery):
    """Leases in a database whose clock is not this machine's."""

    ahead_seconds: float | None = 0.0

    async def renew_lease(self, owner: Owner, *, now: datetime, digests: Mapping[str, str] | None = None) -> SignOfLife:
        life = await super().renew_lease(owner, now=now, digests=digests)
        return SignOfLife(running=life.running, ahead_seconds=self.ahead_seconds)


def clocks(database: Database) -> list[tuple[object, object, bool]]:
    rows = [row for row in database.rows("events") if row["fingerprint"] == "clock"]
    return [(row["level"], row["count"], row["resolved_at"] is None) for row in rows]


async def test_clock_that_is_wrong_holds_back_schedules_and_is_said_once(
    store: Store, sqlite: Database, logged: io.StringIO
) -> None:
    recovery = OffClock(store.database)
    beating = pulse(recovery, {}, compares_clocks=True)
    assert beating.holds_back()  # it was never compared

    await beating.renew()
    assert (beating.holds_back(), clocks(sqlite)) == (False, [])
    recovery.ahead_seconds = CLOCK_LIMIT_SECONDS + 1
    for _ in range(3):
        await beating.renew()
    assert (beating.holds_back(), clocks(sqlite)) == (True, [("warning", 1, True)])
    recovery.ahead_seconds = -CLOCK_LIMIT_SECONDS
    for _ in range(3):
        await beating.renew()

    assert (beating.holds_back(), clocks(sqlite)) == (False, [("warning", 1, False)])
    assert [logged.getvalue().count(f'"{event}"') for event in ("clock_off", "clock_right")] == [1, 1]


async def test_event_of_a_wrong_clock_is_over_when_a_later_daemon_finds_it_right(
    store: Store, sqlite: Database, logged: io.StringIO
) -> None:
    recovery = OffClock(store.database)
    recovery.ahead_seconds = CLOCK_LIMIT_SECONDS + 1
    await pulse(recovery, {}, compares_clocks=True).renew()
    recovery.ahead_seconds = 0.0

    await pulse(recovery, {}, compares_clocks=True).renew()

    assert clocks(sqlite) == [("warning", 1, False)]
    assert '"clock_right"' not in logged.getvalue()  # this daemon has never found it wrong


async def test_where_the_database_has_no_clock_of_its_own_schedules_wait_for_nothing(store: Store) -> None:
    assert not pulse(store.recovery, {}).holds_back()


@pytest.mark.parametrize(
    ("ahead", "way", "wrong"),
    [(None, 0.0, False), (30.0, 0.0, False), (31.0, 0.0, True), (-31.0, 0.0, True), (31.0, 4.0, False)],
)
def test_clock_is_wrong_only_by_more_than_the_way_to_the_database_leaves_open(
    ahead: float | None, way: float, wrong: bool
) -> None:
    life = SignOfLife(running=frozenset(), ahead_seconds=ahead, way_seconds=way)
    assert (life.clock_fault() is not None) is wrong


async def test_daemon_drains_when_a_newer_version_has_migrated_its_database_and_says_so_once(
    store: Store, sqlite: Database, logged: io.StringIO
) -> None:
    drained = list[str]()
    beating = pulse(store.recovery, {}, outdated=lambda: drained.append("drain"))
    await beating.renew()
    assert drained == []

    sqlite.execute("UPDATE alembic_version SET version_num = '9999'")
    for _ in range(3):
        await beating.renew()

    assert drained == ["drain"]
    assert logged.getvalue().count('"schema_newer"') == 1
