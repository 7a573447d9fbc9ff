"""Below the floor nothing is started, above it again everything is; somebody is told once, not by the minute."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from claudeops.domain.holds import HoldKind
from claudeops.engine.disk_floor import DiskFloor
from claudeops.errors import DatabaseUnavailableError
from support.estate import deliver, look, report
from support.waiting import until

if TYPE_CHECKING:
    from support.estate import Estate

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
        store=estate.store,
        clock=estate.kit.clock,
        directories=[Path("/results"), Path("/state")],
        floor_bytes=FLOOR,
        log=estate.kit.log,
        free=disks,
    )


async def held(estate: Estate) -> bool:
    return any(hold.kind is HoldKind.DISK for hold in await estate.store.holds(estate.kit.clock.now()))


def events(estate: Estate) -> list[tuple[object, object]]:
    rows = estate.rows("SELECT level, count, resolved_at FROM events WHERE fingerprint = 'hold:disk' ORDER BY id")
    return [(row["level"], row["resolved_at"] is not None) for row in rows]


@pytest.mark.parametrize("which", ["/results", "/state"])
async def test_one_full_disk_is_enough_and_is_named(estate: Estate, disks: Disks, floor: DiskFloor, which: str) -> None:
    disks.free[which] = FLOOR - 1

    await floor.look()

    (hold,) = await estate.store.holds(estate.kit.clock.now())
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
    claimed = await estate.store.claim(
        estate.owner,
        rules=estate.kit.rules,
        now=estate.kit.clock.now(),
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
        await supervisor.drain(20)


async def test_the_hold_of_a_daemon_that_died_is_lifted_at_the_first_look(
    estate: Estate, disks: Disks, floor: DiskFloor
) -> None:
    disks.free["/results"] = 0
    await floor.look()
    disks.free["/results"] = FLOOR + 1
    another = DiskFloor(
        store=estate.store,
        clock=estate.kit.clock,
        directories=[Path("/results")],
        floor_bytes=FLOOR,
        log=estate.kit.log,
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
    store = floor.store
    floor.store = _Away()  # type: ignore[assignment]  # all that is asked of it
    await floor.look()
    floor.store = store

    await floor.look()

    assert await held(estate)


async def test_no_floor_holds_nothing(estate: Estate, disks: Disks, floor: DiskFloor) -> None:
    floor.floor_bytes = 0
    disks.free["/results"] = 0

    await floor.look()

    assert not await held(estate)


class _Away:
    """A store whose database is away."""

    async def hold(self, *_: object, **__: object) -> None:
        raise DatabaseUnavailableError("the database is away.")
