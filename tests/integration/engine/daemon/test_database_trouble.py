"""No loop of the daemon ends because the database fails, away or damaged; each says so and goes on when it can."""

from __future__ import annotations

import gc
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from claudeops import logs
from claudeops.dispatch.local import LocalDispatcher
from claudeops.domain.commands import CommandName
from claudeops.domain.holds import ApiRefusal
from claudeops.domain.sessions import Decision, DecisionReason, FailureKind, Finished
from claudeops.engine.control import RunningSessions
from claudeops.engine.daemon.commands import CommandRunner
from claudeops.engine.daemon.healthcheck_ping import HealthcheckPing
from claudeops.engine.daemon.housekeeping import DiskFloor, Housekeeping
from claudeops.engine.daemon.lease import LeaseRenewal
from claudeops.engine.meter.availability import Availability
from claudeops.engine.recovery.recovery import SessionRecovery
from claudeops.errors import DatabaseFullError, DatabaseUnavailableError, StoreError
from claudeops.structs import replace
from claudeops.tasks import FIRST_SECONDS, LONGEST_SECONDS, DatabaseTrouble, log_unavailable
from support.estate import Estate, deliver, look, report
from support.store_values import ending
from support.waiting import until

pytestmark = pytest.mark.anyio

FULL = DatabaseFullError("the disk of the server of the database is full, make room there.")
AWAY = DatabaseUnavailableError("the database is locked.")
DAMAGED = StoreError("the database says: database disk image is malformed.")


class Failing:
    """A port of an estate's store, of which calls fail as often as the test says."""

    def __init__(self, port: object, error: StoreError) -> None:
        self._port = port
        self._error = error
        self.failures = 1
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        real = getattr(self._port, name)

        async def call(*args: Any, **kwargs: Any) -> object:
            if self.failures:
                self.failures -= 1
                raise self._error
            answer = await real(*args, **kwargs)
            self.calls.append(name)
            return answer

        return call


async def orders(estate: Estate, commands: Any) -> None:
    now = estate.context.clock.now()
    await estate.store.commands.request(CommandName.STOP_SESSIONS, by="a test", now=now)
    await CommandRunner(
        commands=commands,
        queue=estate.store.queue,
        running=RunningSessions(),
        rules=lambda: estate.context.rules,
        clock=estate.context.clock,
        owner=estate.owner,
        log=estate.context.log,
    ).run()


async def recovery(estate: Estate, recovery: Any) -> None:
    estate.with_context(store=replace(estate.store, recovery=recovery))
    await SessionRecovery(context=estate.context).run()


async def limits(estate: Estate, holds: Any) -> None:
    door = Availability(holds=holds, clock=estate.context.clock, log=estate.context.log)
    door.report_refusal(ApiRefusal(kind=FailureKind.OVERLOADED, message="overloaded"))
    await door.run()


async def heartbeat(estate: Estate, records: Any) -> None:
    beat = HealthcheckPing(records=records, ping=lambda: None, lowest_tier=1, log=estate.context.log)
    session = await estate.queue()
    beat.ended(session, ending(session), Finished(decision=Decision(reason=DecisionReason.HEALTHY)))
    await beat.run()


async def pulse(estate: Estate, recovery: Any) -> None:
    beat = LeaseRenewal(
        recovery=recovery,
        owner=estate.owner,
        clock=estate.context.clock,
        running={},
        check_lock=lambda: None,
        lost=lambda: None,
        log=estate.context.log,
    )
    while True:
        await beat.renew()
        await anyio.lowlevel.checkpoint()


async def disk_floor(estate: Estate, holds: Any) -> None:
    floor = DiskFloor(
        holds=holds,
        clock=estate.context.clock,
        directories=[estate.root],
        floor_bytes=1,
        log=estate.context.log,
        free=lambda _: 0,
    )
    while True:
        await floor.look()


async def upkeep(estate: Estate, database: Any) -> None:
    keeper = Housekeeping(
        database=database,
        records=estate.store.records,
        clock=estate.context.clock,
        results_dir=estate.root / "results",
        retention_days=30,
        running=tuple,
        log=estate.context.log,
    )
    while True:
        await keeper.round()


async def claims(estate: Estate, claims: Any) -> None:
    estate.script(look(), deliver(report()))
    await estate.queue()
    await estate.supervisor(claims=claims, dispatcher=LocalDispatcher(interval_seconds=0.05)).run()


LOOPS: Mapping[Callable[[Estate, Any], Coroutine[Any, Any, None]], str] = {  # with what is asked at last, of which port
    claims: "claims.claim",
    orders: "commands.finish",
    recovery: "recovery.unrecovered_sessions",
    limits: "holds.refused",
    heartbeat: "records.session",
    pulse: "recovery.renew_lease",
    disk_floor: "holds.hold",
    upkeep: "retention.checkpoint",
}


@asynccontextmanager
async def running(
    estate: Estate, loop: Callable[[Estate, Any], Coroutine[Any, Any, None]], port: Failing
) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop, estate, port)
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("error", [AWAY, DAMAGED], ids=["away", "damaged"])
@pytest.mark.parametrize(("loop", "at_last"), LOOPS.items(), ids=[loop.__name__ for loop in LOOPS])
async def test_a_loop_survives_a_database_that_fails_and_does_its_work_when_that_is_over(
    estate: Estate, loop: Callable[[Estate, Any], Coroutine[Any, Any, None]], at_last: str, error: StoreError
) -> None:
    name, _, last_call = at_last.partition(".")
    port = Failing(getattr(estate.store, name), error)
    async with running(estate, loop, port):
        await until(lambda: last_call in port.calls)
    told = [json.loads(line) for line in estate.logged.getvalue().splitlines()]
    words = {"upkeep_failed"} if loop is upkeep else {"database_unavailable", "database_refused"}
    failures = [line for line in told if line["event"] in words]
    assert len(failures) == 1, told
    if loop is not upkeep:
        assert {line["level"] for line in failures} == {"error" if error is AWAY else "critical"}


def test_full_disk_of_the_server_is_one_line_of_all_loops_and_one_when_the_last_has_written() -> None:
    logged = io.StringIO()
    logs.configure(level="debug", fmt="json", stream=logged, redact=str)
    log = logs.get_logger()
    first, second = DatabaseTrouble(log, "leases"), DatabaseTrouble(log, "alerts")

    def lines(level: str) -> list[str]:
        told = [json.loads(line) for line in logged.getvalue().splitlines()]
        return [line["event"] for line in told if line["level"] == level]

    for _ in range(2):  # it may fill up again
        logged.truncate(logged.seek(0))
        for trouble in (first, second, first):
            trouble.failed(FULL)
        log_unavailable(log, "trace", FULL)
        assert (lines("error"), lines("debug")) == (["database_full"], ["database_unavailable"] * 4)
        first.over()
        assert lines("info") == []
        second.over()
        second.over()
        assert lines("info") == ["database_has_room"]
        assert lines("debug")[4:] == ["database_recovered"] * 2
    log_unavailable(log, "trace", FULL)
    assert lines("error") == ["database_full", "database_unavailable"]


def test_loop_that_is_gone_keeps_no_disk_full() -> None:
    logged = io.StringIO()
    logs.configure(level="info", fmt="json", stream=logged, redact=str)
    for _ in range(2):
        DatabaseTrouble(logs.get_logger(), "a role that is lost").failed(FULL)
        gc.collect()

    assert logged.getvalue().count('"database_full"') == 2


def test_pauses_grow_to_a_bound_and_begin_anew_after_a_call_that_was_well() -> None:
    logged = io.StringIO()
    logs.configure(level="info", fmt="json", stream=logged, redact=str)
    trouble = DatabaseTrouble(logs.get_logger(), "something")
    trouble.over()
    assert not logged.getvalue()  # there was none
    pauses = [trouble.failed(DAMAGED) for _ in range(8)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[1], pauses[-1]) == (FIRST_SECONDS, 2 * FIRST_SECONDS, LONGEST_SECONDS)
    trouble.over()
    trouble.over()
    assert trouble.failed(AWAY) == FIRST_SECONDS
    told = [json.loads(line)["event"] for line in logged.getvalue().splitlines()]
    assert told == ["database_refused"] * 8 + ["database_recovered", "database_unavailable"]
