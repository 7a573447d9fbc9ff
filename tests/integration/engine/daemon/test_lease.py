"""A daemon that is one no longer stops what it runs, and itself."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import anyio
import pytest

from claudeops import logs
from claudeops.clock import Clock
from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.owner import CLOCK_LIMIT_SECONDS, OWNER_LEASE, Outlook, Owner, SignOfLife
from claudeops.domain.sessions import Session
from claudeops.engine.control import StopControl
from claudeops.engine.daemon.lease import BEAT_SECONDS, STOP_SECONDS, LeaseRenewal
from claudeops.engine.owners import lives, this_owner
from claudeops.errors import AlreadyRunningError, DatabaseUnavailableError
from claudeops.store.recovery import Recovery
from claudeops.store.store import Store
from claudeops.structs import replace
from support.loop_time import loop_time
from support.store_values import (
    NOW,
    OTHER_OWNER,
    OWNER,
    RULES,
    after,
    check,
    claimed,
    ending,
    queued,
    report,
    running,
    started,
)
from support.stores import Database, opened
from support.waiting import PATIENCE_SECONDS, until

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio

FAR_OWNER: Final = replace(OTHER_OWNER, name="node-3", boot_id="boot-3")


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
    taken_over = (await store.recovery.reconcile(OTHER_OWNER, now=after(hours=1), alive=lambda _: False)).sessions
    assert len(taken_over) == 2

    await beating.renew()
    await beating.renew()
    await beating.renew()

    assert {control.cause for _, control in own.values()} == {StopCause.CANCELLED}
    assert logged.getvalue().count('"stale_attempt"') == 2


async def test_node_that_counted_as_dead_says_once_that_it_is_back(store: Store, logged: io.StringIO) -> None:
    beating = pulse(store.recovery, {})
    await beating.renew()
    await store.recovery.reconcile(OTHER_OWNER, now=NOW, alive=lambda _: False)
    assert "node_back" not in logged.getvalue()

    for _ in range(2):
        await beating.renew()

    assert logged.getvalue().count('"node_back"') == 1


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


class SetClock(StandingClock):
    """A clock that goes on by five seconds at each sign of life, and is set by a test."""

    seconds = 0.0
    set_by = timedelta()

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds) + self.set_by

    def monotonic(self) -> float:
        return self.seconds


async def test_a_clock_that_leaps_wakes_what_waits_for_its_hour(store: Store) -> None:
    clock, leaps = SetClock(), list[float]()
    beating = pulse(store.recovery, {}, clock=clock, leapt=lambda: leaps.append(clock.seconds))
    for seconds in (0.0, 5.0, 10.0, 15.0, 20.0):
        clock.seconds = seconds
        if seconds == 10.0:
            clock.set_by = timedelta(hours=-2)
        await beating.renew()

    assert leaps == [10.0]


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


async def test_roles_are_renewed_only_while_the_lock_is_surely_held(store: Store) -> None:
    beats, renewed = list[bool](), list[int]()
    done = anyio.Event()

    def check() -> None:
        beats.append(len(beats) == 1)
        if len(beats) == 1:
            raise DatabaseUnavailableError("the server does not answer.")
        if len(beats) == 3:
            raise AlreadyRunningError("another claudeops daemon holds the lock.")

    async def renew() -> None:
        renewed.append(len(beats))

    def go_on() -> bool:
        passing.leap(1.0)
        return done.is_set()

    with loop_time() as passing:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pulse(store.recovery, {}, check_lock=check, lost=done.set, locked=renew).run)
            await until(go_on)

    assert renewed == [2]


class OffClock(Recovery):
    """Leases in a database whose clock is not this machine's."""

    ahead_seconds: float | None = 0.0

    async def renew_lease(self, owner: Owner, *, now: datetime, digests: Mapping[str, str] | None = None) -> SignOfLife:
        life = await super().renew_lease(owner, now=now, digests=digests)
        return SignOfLife(running=life.running, ahead_seconds=self.ahead_seconds)


def clocks(database: Database) -> list[tuple[object, object, bool]]:
    rows = [row for row in database.rows("events") if row["fingerprint"] == "clock on node attic"]
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


class WithJobs(Recovery):
    """Leases in a database that has the tables of jobs."""

    job_tables = "03.03"

    async def renew_lease(self, owner: Owner, *, now: datetime, digests: Mapping[str, str] | None = None) -> SignOfLife:
        return replace(await super().renew_lease(owner, now=now, digests=digests), job_tables=self.job_tables)


@pytest.mark.parametrize(("own", "says"), [("03.04", []), ("03.03", ["drain"]), (None, [])])
async def test_daemon_drains_when_a_newer_version_has_moved_the_tables_of_jobs(
    store: Store, logged: io.StringIO, own: str | None, says: list[str]
) -> None:
    drained = list[str]()
    recovery = WithJobs(store.database)
    beating = pulse(recovery, {}, job_tables=own, outdated=lambda: drained.append("drain"))
    await beating.renew()
    assert drained == []

    recovery.job_tables = "03.04"
    for _ in range(2):
        await beating.renew()

    assert drained == says
    assert logged.getvalue().count('"schema_newer"') == len(says)


class MovingClock(StandingClock):
    seconds = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def since_boot(self) -> float:
        return self.seconds


def unreachable() -> None:
    raise DatabaseUnavailableError("the server does not answer.")


class WaveringRecovery(Recovery):
    """Leases in a database that is away at times, and slow at others."""

    is_away = False
    hangs = False
    takes_seconds = 0.0

    def __init__(self, store: Store, clock: MovingClock) -> None:
        super().__init__(store.database)
        self._clock = clock

    async def renew_lease(self, owner: Owner, *, now: datetime, digests: Mapping[str, str] | None = None) -> SignOfLife:
        if self.is_away:
            raise DatabaseUnavailableError("the server does not answer.")
        if self.hangs:
            await anyio.sleep_forever()
        life = await super().renew_lease(owner, now=now, digests=digests)
        self._clock.seconds += self.takes_seconds
        return life


@dataclass
class OneOfSeveral:
    """A daemon with a session, beside others."""

    beating: LeaseRenewal
    recovery: WaveringRecovery
    clock: MovingClock
    control: StopControl


@pytest.fixture
async def one_of_several(store: Store, logged: io.StringIO) -> OneOfSeveral:  # noqa: ARG001 - what is logged is taken
    clock, control = MovingClock(), StopControl()
    recovery, session = WaveringRecovery(store, clock), await started(store)
    running = dict[int, tuple[Session, StopControl]]()
    beating = pulse(recovery, running, clock=clock, shares_lock=True)
    await beating.renew()
    running[session.id] = session, control
    return OneOfSeveral(beating, recovery, clock, control)


DEADLINE: Final = OWNER_LEASE.total_seconds() - STOP_SECONDS


async def test_daemon_that_cannot_show_its_life_stops_its_sessions_before_another_may_have_them(
    one_of_several: OneOfSeveral, logged: io.StringIO
) -> None:
    node = one_of_several
    node.recovery.is_away = True
    node.clock.seconds = DEADLINE - 1

    await node.beating.renew()
    assert (node.control.cause, node.beating.may_claim()) == (None, True)
    node.clock.seconds = DEADLINE
    await node.beating.renew()
    await node.beating.renew()

    assert (node.control.cause, node.beating.may_claim()) == (StopCause.LEASE_OVER, False)
    assert logged.getvalue().count('"lease_over"') == 1


async def test_lease_counts_from_when_the_sign_of_life_began(one_of_several: OneOfSeveral) -> None:
    one_of_several.recovery.takes_seconds = 20.0
    await one_of_several.beating.renew()
    one_of_several.recovery.is_away = True
    one_of_several.clock.seconds = DEADLINE - 1
    assert one_of_several.beating.may_claim()
    one_of_several.clock.seconds = DEADLINE
    assert not one_of_several.beating.may_claim()


async def test_sign_of_life_in_which_the_machine_slept_is_none(one_of_several: OneOfSeveral) -> None:
    one_of_several.recovery.takes_seconds = DEADLINE
    await one_of_several.beating.renew()
    assert (one_of_several.control.cause, one_of_several.beating.may_claim()) == (StopCause.LEASE_OVER, False)


async def test_daemon_that_wakes_up_stops_its_sessions_before_it_shows_that_it_lives(
    one_of_several: OneOfSeveral,
) -> None:
    node, stopped = one_of_several, list[StopCause | None]()
    node.clock.seconds = 1_000.0
    node.recovery.is_away = True
    node.beating.changed = lambda: stopped.append(node.control.cause)  # the database is away, which is noted last

    await node.beating.renew()
    assert stopped == [StopCause.LEASE_OVER]
    node.recovery.is_away = False
    await node.beating.renew()

    assert node.beating.may_claim()
    assert node.control.cause is StopCause.LEASE_OVER


async def test_daemon_claims_nothing_before_its_first_sign_of_life_nor_by_a_wrong_clock(
    store: Store,
) -> None:
    beating = pulse(store.recovery, {}, shares_lock=True)
    assert not beating.may_claim()
    await beating.renew()
    assert beating.may_claim()
    beating.compares_clocks, beating.clock_fault = True, "this machine's clock is wrong"
    assert not beating.may_claim()


async def test_daemon_that_is_alone_keeps_its_sessions_and_claims_without_a_sign_of_life(
    one_of_several: OneOfSeveral,
) -> None:
    node = one_of_several
    node.beating.shares_lock = False
    node.recovery.is_away = True
    node.clock.seconds = 10 * DEADLINE

    await node.beating.renew()

    assert (node.control.cause, node.beating.may_claim()) == (None, True)


async def test_sign_of_life_that_does_not_come_back_keeps_no_session_running(one_of_several: OneOfSeveral) -> None:
    node = one_of_several

    def passes() -> bool:
        if node.beating.may_claim():  # after the first one
            node.recovery.hangs = True
        node.clock.seconds += 1.0
        passing.leap(1.0)
        return node.control.cause is not None

    with loop_time() as passing:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(node.beating.run)
            await until(passes)
            tasks.cancel_scope.cancel()

    assert node.control.cause is StopCause.LEASE_OVER


@dataclass
class Sweeps:
    """A daemon that beats as long as it is told to, beside the owners of its database."""

    beating: LeaseRenewal
    clock: MovingClock
    seen: list[Outlook]

    async def beat(self, seconds: float, *, every: float = BEAT_SECONDS) -> int:
        """Beat for some time; return how often dead owners were found."""
        self.seen.clear()
        for _ in range(int(seconds / every)):
            self.clock.seconds += every
            assert await self.beating._hold_lock()
            await self.beating.renew()
        return len(self.seen)


@pytest.fixture
async def sweeps(store: Store, logged: io.StringIO) -> Sweeps:  # noqa: ARG001 - what is logged is taken
    clock, seen = MovingClock(), list[Outlook]()
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: True)
    beating = pulse(store.recovery, {}, clock=clock, found_dead=seen.append, check_lock=unreachable)
    return Sweeps(beating, clock, seen)


async def test_owner_whose_lease_runs_out_after_the_start_is_found(store: Store, sweeps: Sweeps) -> None:
    await store.recovery.reconcile(FAR_OWNER, now=NOW, alive=lambda _: True)

    assert await sweeps.beat(OWNER_LEASE.total_seconds() - BEAT_SECONDS) == 0
    await store.recovery.renew_lease(FAR_OWNER, now=sweeps.clock.now())
    assert await sweeps.beat(OWNER_LEASE.total_seconds() - BEAT_SECONDS) == 0
    assert await sweeps.beat(BEAT_SECONDS) == 1
    assert sweeps.seen[0].owner == OWNER


async def test_time_after_which_others_take_over_is_the_operators(store: Store, sweeps: Sweeps) -> None:
    sweeps.beating.lease = timedelta(seconds=24)
    sweeps.beating.stop_seconds = 10.0
    await store.recovery.reconcile(FAR_OWNER, now=NOW, alive=lambda _: True)

    assert await sweeps.beat(24, every=2) == 0  # it has not watched for so long yet
    assert await sweeps.beat(2, every=2) == 1
    sweeps.beating.shares_lock = True
    sweeps.clock.seconds += 13
    assert sweeps.beating.may_claim()
    sweeps.clock.seconds += 1
    assert not sweeps.beating.may_claim()
    assert sweeps.beating._beat_seconds == 2


async def test_daemon_that_was_away_itself_watches_a_lease_before_it_takes_others_for_dead(
    store: Store, sweeps: Sweeps
) -> None:
    await store.recovery.reconcile(FAR_OWNER, now=NOW, alive=lambda _: True)
    await sweeps.beat(BEAT_SECONDS)

    assert await sweeps.beat(600, every=600) == 0
    assert await sweeps.beat(OWNER_LEASE.total_seconds() - BEAT_SECONDS) == 0
    assert await sweeps.beat(BEAT_SECONDS) == 1


@pytest.mark.parametrize("check_lock", [None, held])
async def test_daemon_that_has_the_lock_waits_for_no_lease(
    store: Store, sweeps: Sweeps, check_lock: Callable[[], None] | None
) -> None:
    assert await sweeps.beat(BEAT_SECONDS) == 0
    await store.recovery.reconcile(FAR_OWNER, now=sweeps.clock.now(), alive=lambda _: True)
    sweeps.beating.check_lock = check_lock

    assert await sweeps.beat(BEAT_SECONDS) == 1
    assert sweeps.seen[0].sole


async def test_daemon_that_shares_the_lock_waits_for_the_leases_of_others_and_renews_no_roles_by_it(
    store: Store, sweeps: Sweeps
) -> None:
    await store.recovery.reconcile(FAR_OWNER, now=sweeps.clock.now(), alive=lambda _: True)
    sweeps.beating.check_lock, sweeps.beating.shares_lock = held, True

    assert await sweeps.beat(OWNER_LEASE.total_seconds()) == 0
    assert await sweeps.beat(BEAT_SECONDS) == 1
    assert not sweeps.seen[0].sole


async def test_process_of_this_machine_is_no_longer_waited_for_once_it_is_gone(store: Store, sweeps: Sweeps) -> None:
    me = this_owner()
    sweeps.beating.owner = replace(OWNER, boot_id=me.boot_id, pid_namespace=me.pid_namespace)
    await store.recovery.reconcile(me, now=NOW, alive=lambda _: True)
    assert await sweeps.beat(3 * OWNER_LEASE.total_seconds()) == 0

    gone = replace(me, name="gone", process_started_at=1.0)
    await store.recovery.reconcile(gone, now=sweeps.clock.now(), alive=lambda _: True)
    assert await sweeps.beat(BEAT_SECONDS) == 1


async def test_sessions_that_a_departed_daemon_left_are_found(store: Store, sweeps: Sweeps) -> None:
    await store.recovery.reconcile(FAR_OWNER, now=NOW, alive=lambda _: True)
    await queued(store)
    await claimed(store, owner=FAR_OWNER)
    await store.recovery.depart(FAR_OWNER)

    assert await sweeps.beat(BEAT_SECONDS) == 1


def test_pid_of_another_namespace_means_nothing_here() -> None:
    me = this_owner()
    elsewhere = replace(me, pid_namespace="pid:[1]")
    assert lives(me, Outlook(owner=me, sole=True))
    assert not lives(elsewhere, Outlook(owner=me, sole=True))
    assert lives(elsewhere, Outlook(owner=me, sole=False))
    assert lives(replace(me, pid_namespace=None), Outlook(owner=me, sole=True)), "of an earlier version"
