"""What a session's end is called when it reached a bound between two looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from claudeops.domain.chains.outcome import StopCause
from claudeops.engine.cell.cgroups import Bounds
from claudeops.engine.control import StopControl
from claudeops.engine.process.bounds import BoundsWatch
from claudeops.engine.process.disk_use import DiskUse, Premises
from claudeops.logs import get_logger

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("left", "cause"),
    [(127, StopCause.OUT_OF_PROCESSES), (112, StopCause.OUT_OF_PROCESSES), (111, None), (0, None)],
)
async def test_a_cli_that_left_as_many_processes_as_it_may_have_had_reached_its_bound(
    tmp_path: Path, left: int, cause: StopCause | None
) -> None:
    """A CLI that gets no more threads aborts at once, and the kernel does not count what it refused a user.

    Its own threads are gone before the others can be counted.
    """
    control = StopControl()
    watch = BoundsWatch(
        control=control,
        premises=Premises(root=tmp_path, uid=None),
        given=DiskUse(),
        bounds=Bounds(processes=128),
        memory_mb=None,
        group=None,
        log=get_logger(),
    )
    await watch.last_look(left)
    assert control.cause is cause
    assert [event.fingerprint for event in watch.events] == ([] if cause is None else [cause.value])
