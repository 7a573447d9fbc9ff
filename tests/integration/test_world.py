"""A machine that is not as it should be: no descriptors left, a CLI that comes and goes."""

from __future__ import annotations

import os
import resource
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from claudeops.domain.model import Outcome
from claudeops.engine.control import Control
from claudeops.engine.session import SessionRunner
from support.estate import STAND_IN, deliver, look, report
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from claudeops.domain.model import Ending, Session
    from support.estate import Estate

pytestmark = pytest.mark.anyio


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open ``count`` more descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - as above


@pytest.mark.parametrize("left", [2, 6, 9, 11])
async def test_a_session_without_descriptors_fails_alone_and_is_tried_again(estate: Estate, left: int) -> None:
    await estate.finished(look(), deliver(report()))  # whatever is opened once and kept is open now
    before = descriptors()
    with descriptors_left(left):
        ending = await estate.run(look(), deliver(report()))
    await estate.store.finish(ending, rules=estate.kit.rules)

    assert ending.outcome is Outcome.SPAWN_FAILED
    assert "Too many open files" in str(ending.error)
    assert [row["trigger"] for row in estate.rows("SELECT * FROM sessions")] == ["manual", "manual", "retry"]
    assert descriptors() == before
    assert (await estate.run(look(), deliver(report()))).outcome is Outcome.SUCCESS


async def test_a_cli_that_is_removed_while_it_runs_ends_what_it_began_and_the_next_is_tried_again(
    estate: Estate, tmp_path: Path
) -> None:
    binary, reached = tmp_path / "claude", tmp_path / "reached"
    shutil.copy(STAND_IN, binary)
    estate.with_kit(binaries={**estate.kit.binaries, "claude": binary})
    ended: list[Ending] = []

    async def run(session: Session) -> None:
        ended.append(await SessionRunner(kit=estate.kit).run(session, Control()))

    estate.script({"touch": str(reached)}, look(), deliver(report()))
    await estate.queue()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, await estate.claim())
        await until(reached.exists)
        binary.unlink()
    without = await estate.run(deliver(report()))
    await estate.store.finish(without, rules=estate.kit.rules)
    shutil.copy(STAND_IN, binary)
    again = await estate.run(look(), deliver(report()))

    assert ended[0].outcome is Outcome.SUCCESS
    assert (without.outcome, again.outcome) == (Outcome.SPAWN_FAILED, Outcome.SUCCESS)
    assert f"Claude CLI not found: {binary}" in str(without.error)
    (retry,) = estate.rows("SELECT * FROM sessions WHERE trigger = 'retry'")
    assert retry["parent_session_id"] == without.session_id
    assert Path(estate.log_path(1)).exists()
