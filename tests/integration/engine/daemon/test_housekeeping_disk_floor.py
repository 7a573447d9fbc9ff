"""Below the floor nothing is started, above it again everything is; somebody is told once, not by the minute."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.holds import HoldKind
from claudeops.engine.daemon.housekeeping import DiskFloor
from claudeops.errors import DatabaseUnavailableError
from claudeops.structs import replace
from support.estate import Estate, deliver, look, report
from support.waiting import PATIENCE_SECONDS, until

FLOOR = 1000


@dataclass
class Disks:
    """Free bytes, by directory; a test sets them."""

    free: dict[str, int | OSError] = field(default_factory=lambda: {"/results": 5000, "/state": 5000})

    def __call__(self, directory: Path) -> int:
        found = self.free[str(directory)]
        if isinstance(found, OSError):
            raise found
        return found


@pytest.fixture
def disks() -> Disks:
    return Disks()


@pytest.fixture
def floor(estate: Estate, disks: Disks) -> DiskFloor:
    return DiskFloor(
        holds=estate.store.holds,
        clock=estate.context.clock,
        directories=[Path("/results"), Path("/state")],
        floor_bytes=FLOOR,
        log=estate.context.log,
        free=disks,
    )


async def held(estate: Estate) -> bool:
    return any(hold.kind is HoldKind.DISK for hold in await estate.store.holds.standing(estate.context.clock.now()))


def events(estate: Estate) -> list[tuple[object, object]]:
    rows = estate.rows("SELECT level, count, resolved_at FROM events WHERE fingerprint = 'hold:disk' ORDER BY id")
    return [(row["level"], row["resolved_at"] is not None) for row in rows]


@pytest.mark.parametrize("which", ["/results", "/state"])
async def test_one_full_disk_is_enough_and_is_named(estate: Estate, disks: Disks, floor: DiskFloor, which: str) -> None:
    disks.free[which] = FLOOR - 1

    await floor.look()

    (hold,) = await estate.store.holds.standing(estate.context.clock.now())
    assert which in hold.reason
    assert "CLAUDEOPS_DISK_FLOOR_MB" in hold.reason


async def test_the_event_is_raised_once_however_often_one_looks(estate: Estate, disks: Disks, floor: DiskFloor) -> None:
    disks.free["/results"] = 0
    for _ in range(3):
        await floor.look()

    assert events(estate) == [("critical", False)]
    assert estate.logged.getvalue().count("disk_low") == 1


async def test_what_hovers_at_the_floor_does_not_flap(estate: Estate, disks: Disks, floor: DiskFloor) -> None:
    for free in (FLOOR - 1, FLOOR, FLOOR - 1, FLOOR + 50):
        disks.free["/results"] = free
        await floor.look()
    assert await held(estate)

    disks.free["/results"] = FLOOR + 101
    await floor.look()

    assert not await held(estate)
    assert events(estate) == [("critical", True)]


async def test_no_session_starts_below_the_floor_and_the_queue_goes_on_above_it(
    estate: Estate, disks: Disks, floor: DiskFloor
) -> None:
    disks.free["/results"] = 0
    await floor.look()
    estate.script(look(), deliver(report()))
    await estate.queue()
    claimed = await estate.store.claims.claim(
        estate.owner,
        rules=estate.context.rules,
        now=estate.context.clock.now(),
        cli_session_id=lambda: "x",
        log_path=estate.log_path,
    )
    assert len(claimed) == 0
    supervisor = estate.supervisor()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        disks.free["/results"] = 5000
        await floor.look()
        await until(lambda: bool(estate.rows("SELECT 1 FROM sessions WHERE outcome = 'success'")))
        await supervisor.drain(PATIENCE_SECONDS)


async def test_the_hold_of_a_daemon_that_died_is_lifted_at_the_first_look(
    estate: Estate, disks: Disks, floor: DiskFloor
) -> None:
    disks.free["/results"] = 0
    await floor.look()
    disks.free["/results"] = FLOOR + 1
    another = DiskFloor(
        holds=estate.store.holds,
        clock=estate.context.clock,
        directories=[Path("/results")],
        floor_bytes=FLOOR,
        log=estate.context.log,
        free=disks,
    )

    await another.look()

    assert not await held(estate)


async def test_a_disk_that_cannot_be_measured_says_nothing(estate: Estate, disks: Disks, floor: DiskFloor) -> None:
    disks.free = {"/results": OSError(5, "Input/output error"), "/state": 5000}
    await floor.look()
    assert not await held(estate)

    disks.free["/state"] = 0
    await floor.look()
    assert await held(estate)


async def test_with_the_database_away_it_is_tried_again_at_the_next_look(
    estate: Estate, disks: Disks, floor: DiskFloor
) -> None:
    disks.free["/results"] = 0
    holds = floor.holds
    floor.holds = _Away()  # type: ignore[assignment]  # all that is asked of it
    await floor.look()
    floor.holds = holds

    await floor.look()

    assert await held(estate)


async def test_no_floor_holds_nothing(estate: Estate, disks: Disks, floor: DiskFloor) -> None:
    floor.floor_bytes = 0
    disks.free["/results"] = 0

    await floor.look()

    assert not await held(estate)


# --- sessions that run ----------------------------------------------------------------------------------


async def test_a_running_session_goes_on_below_the_floor_and_is_stopped_before_the_disk_is_full(
    estate: Estate, disks: Disks, floor: DiskFloor, tmp_path: Path
) -> None:
    estate.script({"touch": str(tmp_path / "runs")}, {"hang": True})
    await estate.queue()
    supervisor = estate.supervisor()
    floor.stop_all, floor.kill_all = supervisor.running.stop_all, supervisor.running.kill_all
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        await until((tmp_path / "runs").exists)
        disks.free["/state"] = FLOOR // 2
        await floor.look()
        assert [control.cause for _, control in supervisor.running.values()] == [None]
        disks.free["/state"] = FLOOR // 2 - 1
        await floor.look()
        await floor.look()
        await until(lambda: bool(estate.rows("SELECT 1 FROM sessions WHERE status = 'ended'")))
        await supervisor.drain(PATIENCE_SECONDS)
    (row, *retries) = estate.rows('SELECT outcome, error, cost_usd, "trigger" FROM sessions ORDER BY id')
    assert (row["outcome"], row["cost_usd"]) == ("out_of_disk", 0.01)  # politely: what it cost is known
    assert "disk of this machine" in str(row["error"])
    assert [retry["trigger"] for retry in retries] == ["retry"]  # it waits until there is room
    assert estate.logged.getvalue().count("disk_nearly_full") == 1


async def test_one_that_does_not_heed_it_is_killed_with_the_last_of_the_room(
    estate: Estate, disks: Disks, floor: DiskFloor, tmp_path: Path
) -> None:
    deaf = {"ignore": ["SIGTERM", "SIGINT", "interrupt"]}
    estate.with_context(timeouts=replace(estate.context.timeouts, stop_grace=3600))
    estate.script(deaf, {"touch": str(tmp_path / "runs")}, {"hang": True})
    await estate.queue()
    supervisor = estate.supervisor()
    floor.stop_all, floor.kill_all = supervisor.running.stop_all, supervisor.running.kill_all
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await until((tmp_path / "runs").exists)
            disks.free["/results"] = FLOOR // 4 - 1
            await floor.look()
            await until(lambda: bool(estate.rows("SELECT 1 FROM sessions WHERE status = 'ended'")))
            await supervisor.drain(PATIENCE_SECONDS)
    assert [(row["outcome"], row["exit_code"]) for row in estate.rows("SELECT * FROM sessions WHERE id = 1")] == [
        ("out_of_disk", -9)
    ]


async def test_sessions_are_stopped_also_while_the_database_is_away(disks: Disks, floor: DiskFloor) -> None:
    stopped: list[StopCause] = []

    def stop_all(cause: StopCause) -> int:
        stopped.append(cause)
        return 1

    floor.stop_all = stop_all
    floor.holds = _Away()  # type: ignore[assignment]  # all that is asked of it
    disks.free["/results"] = 0

    await floor.look()

    assert stopped == [StopCause.DISK_LOW]


async def test_a_session_that_starts_has_the_disks_looked_at_at_once(
    estate: Estate, disks: Disks, floor: DiskFloor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claudeops.engine.daemon.housekeeping.IDLE_SECONDS", 3600.0)
    session = await estate.queue()
    looks: list[Path] = []

    def free(directory: Path) -> int:
        looks.append(directory)
        return disks(directory)

    floor.free, floor.is_idle = free, lambda: True
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            await tasks.start(floor.run)
            await anyio.wait_all_tasks_blocked()
            before = len(looks)
            floor.started(session)
            await until(lambda: len(looks) > before)
            tasks.cancel_scope.cancel()


async def test_directories_of_one_disk_are_looked_at_in_one_thread(estate: Estate, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    threads: set[threading.Thread] = set()

    def free(directory: Path) -> int:
        threads.add(threading.current_thread())
        return 0 if directory.name == "b" else 5000

    together = DiskFloor(
        holds=estate.store.holds,
        clock=estate.context.clock,
        directories=[tmp_path / "a", tmp_path / "b"],
        floor_bytes=FLOOR,
        log=estate.context.log,
        free=free,
    )

    await together.look()

    assert len(threads) == 1
    assert await held(estate)


class _Away:
    """Holds whose database is away."""

    async def hold(self, *_: object, **__: object) -> None:
        raise DatabaseUnavailableError("the database is away.")
