"""``daemon.json`` says what is, also when the database cannot be asked."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from claudeops import logs
from claudeops.clock import Clock
from claudeops.domain.holds import Hold, HoldKind
from claudeops.engine.daemon.status import StatusFile, StatusWriter
from claudeops.errors import DatabaseUnavailableError
from support.store_values import NOW, OWNER, after, running
from support.waiting import until

pytestmark = pytest.mark.anyio


class StandingClock(Clock):
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return after(minutes=self.seconds / 60)

    def monotonic(self) -> float:
        return self.seconds


class AbsentHolds:
    """Holds whose database comes and goes."""

    away = False
    held: Sequence[Hold] = ()

    async def standing(self, _now: datetime, *, node: str | None = None) -> Sequence[Hold]:  # noqa: ARG002 - holds of all
        if self.away:
            raise DatabaseUnavailableError("the database is locked.")
        return self.held


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def holds() -> AbsentHolds:
    return AbsentHolds()


@pytest.fixture
def keeper(tmp_path: Path, clock: StandingClock, holds: AbsentHolds) -> StatusWriter:
    logs.configure(level="info", fmt="json", stream=io.StringIO(), redact=str)
    file = StatusFile(tmp_path / "daemon.json", OWNER, NOW)
    return StatusWriter(
        file=file,
        holds=holds,  # type: ignore[arg-type]  # the keeper asks what stands alone
        clock=clock,
        running=lambda: [running()],
        log=logs.get_logger(),
    )


def written(keeper: StatusWriter) -> dict[str, Any]:
    return dict(json.loads(keeper.file.path.read_text()))


async def test_holds_and_running_sessions_are_shown(keeper: StatusWriter, holds: AbsentHolds) -> None:
    holds.held = [Hold(kind=HoldKind.PAUSED, reason="The disks are changed.", since=NOW, by="ann")]
    await keeper.refresh()

    status = written(keeper)
    assert (status["ready"], status["pid"], status["owner"]) == (True, OWNER.pid, OWNER.name)
    [running] = status["running"]
    assert {name: running[name] for name in ("session_id", "chain", "tier")} == {"session_id": 7, "chain": 7, "tier": 1}
    assert running["trigger"] == "manual"
    assert running["started_at"] is not None
    (hold,) = status["holds"]
    assert hold == {
        "kind": "paused",
        "reason": "The disks are changed.",
        "since": "2026-03-01T12:00:00+00:00",
        "until": None,
        "by": "ann",
        "probe": None,
    }


async def test_an_absent_database_makes_the_daemon_not_ready_until_it_is_back(
    keeper: StatusWriter, holds: AbsentHolds
) -> None:
    holds.away = True
    await keeper.refresh()
    away = written(keeper)
    holds.away = False
    await keeper.refresh()

    assert (away["ready"], away["reason"], away["holds"]) == (False, "the database is locked.", None)
    assert away["running"]
    assert (written(keeper)["ready"], written(keeper)["holds"]) == (True, [])


class CountedHolds(AbsentHolds):
    """Holds that know how often they were read."""

    reads = 0

    async def standing(self, now: datetime, *, node: str | None = None) -> Sequence[Hold]:
        self.reads += 1
        return await super().standing(now, node=node)


async def test_a_file_that_is_only_written_again_asks_the_database_nothing(
    keeper: StatusWriter, clock: StandingClock
) -> None:
    keeper.holds = holds = CountedHolds()  # type: ignore[assignment]  # as above
    ended = Hold(kind=HoldKind.PAUSED, reason="Until five past.", since=NOW, until=after(minutes=5), by="ann")
    holds.held = [ended]
    await keeper.refresh()
    clock.seconds = 30.0
    await keeper.refresh(anew=False)
    before = written(keeper)
    clock.seconds = 300.0
    await keeper.refresh(anew=False)

    assert holds.reads == 1
    assert before["written_at"] == "2026-03-01T12:00:30+00:00"
    assert [len(status["holds"]) for status in (before, written(keeper))] == [1, 0]


async def test_holds_that_could_not_be_read_are_read_at_the_next_look(keeper: StatusWriter, holds: AbsentHolds) -> None:
    await keeper.refresh()
    holds.away = True
    await keeper.refresh()
    holds.away = False
    await keeper.refresh(anew=False)

    assert (written(keeper)["ready"], written(keeper)["holds"]) == (True, [])


async def test_what_has_not_changed_is_not_written_again_before_it_is_old(
    keeper: StatusWriter, clock: StandingClock
) -> None:
    await keeper.refresh()
    clock.seconds = 4.9
    await keeper.refresh()
    early = written(keeper)["written_at"]
    clock.seconds = 5.0
    await keeper.refresh()

    assert early == "2026-03-01T12:00:00+00:00"
    assert written(keeper)["written_at"] == "2026-03-01T12:00:05+00:00"


async def test_a_session_lets_what_comes_with_it_be_written_too_and_a_hold_waits_for_nothing(
    keeper: StatusWriter, clock: StandingClock
) -> None:
    keeper.holds = holds = CountedHolds()  # type: ignore[assignment]  # as above
    keeper.rest_seconds = 1e6
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        await until(lambda: holds.reads == 1)
        clock.seconds = 2e6  # long after the last write
        keeper.started(running())
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert holds.reads == 1
        keeper.wake()
        await until(lambda: holds.reads == 2)
        tasks.cancel_scope.cancel()


async def test_a_daemon_that_stops_stays_not_ready(keeper: StatusWriter, clock: StandingClock) -> None:
    await keeper.stop()
    clock.seconds = 60.0
    await keeper.refresh()

    assert (written(keeper)["ready"], written(keeper)["reason"]) == (False, "the daemon is shutting down")


async def test_a_directory_that_cannot_be_written_breaks_nothing(keeper: StatusWriter) -> None:
    keeper.file = StatusFile(Path("/proc/daemon.json"), OWNER, NOW)

    await keeper.refresh()
