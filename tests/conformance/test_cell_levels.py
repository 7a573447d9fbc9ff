"""The real CLI at every level of isolation, with a gate that allows everything: the cell is all there is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import psutil
import pytest

from claudeops.engine.cell import Level
from claudeops.engine.tree import marked, marks_below
from support.caged import caged
from support.waiting import until

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[1]


async def test_the_real_cli_and_its_tools_work(tmp_path: Path, level: Level, everybodys_cli: Path) -> None:
    commands = ("touch here && ls", "ps -e | head -3; id -u; curl --version | head -1; date > ~/note && cat ~/note")
    async with caged(tmp_path, level, *commands, binary=everybodys_cli) as cage:
        ending = await cage.run()
        assert (str(ending.outcome), ending.error, ending.calls_ran) == ("success", None, 2)
        assert cage.outputs()[0] == "here"
        assert not list((tmp_path / "state" / "sessions").glob("*"))


async def test_a_tool_cannot_talk_to_the_daemon_in_the_name_of_its_cli(
    tmp_path: Path, level: Level, everybodys_cli: Path
) -> None:
    forge = "for fd in 0 1; do echo '{}' > /proc/$PPID/fd/$fd || echo refused; done"
    async with caged(tmp_path, level, forge, binary=everybodys_cli) as cage:
        await cage.run()
        assert cage.outputs()[0].count("refused") == 2


async def test_no_environment_holds_more_than_the_allow_list(
    tmp_path: Path, level: Level, everybodys_cli: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SECRET_OF_THE_DAEMON", "planted-and-not-for-sessions")
    async with caged(
        tmp_path, level, "env; cat /proc/self/environ", binary=everybodys_cli, NAMED_BY_TIER="yes"
    ) as cage:
        await cage.run()
        (seen, _) = cage.outputs()
    assert "planted-and-not-for-sessions" not in seen
    assert "ANTHROPIC_API_KEY" not in seen
    assert "NAMED_BY_TIER=yes" in seen


# --- the daemon is gone -------------------------------------------------------------------------------


def still_running(marks: str, pids: set[int]) -> set[int]:
    """Return what lives of a session: by its mark, and those that had cleared their environment by their number."""
    alive = {pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE}
    return alive | {process.pid for process in marked(marks)}


async def test_when_the_daemon_is_killed_nothing_of_its_session_lives_on(
    tmp_path: Path, level: Level, everybodys_cli: Path
) -> None:
    root = tmp_path / "estate"
    root.mkdir()
    # Twice forked, in a session of its own and with an empty environment: neither descent nor the mark finds it.
    number = 900_000 + os.getpid()  # tells our sleepers from those of another run of this test
    command = (
        f"(setsid env -i /bin/sh -c 'sleep {number}.1 & exec sleep {number}.2' > /dev/null 2>&1 &) ; "
        f"setsid sleep {number}.3 > /dev/null 2>&1 & sleep {number}.4"
    )
    marks = marks_below(root / "state" / "sessions")
    sleepers: set[int] = set()

    def ready() -> bool:
        sleepers.update(
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if (process.info["cmdline"] or [])[:1] == ["sleep"] and process.info["cmdline"][1].startswith(f"{number}.")
        )
        return len(sleepers) == 4

    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TESTS), "CAGED_CLI": str(everybodys_cli)}
    process = await anyio.open_process(
        [sys.executable, "-m", "support.caged", level.value, str(root), command], env=environment, cwd=tmp_path
    )
    try:
        await until(ready)
        assert len(marked(marks)) >= 3
        process.kill()
        await until(lambda: not still_running(marks, sleepers), seconds=1 if level is Level.BUBBLEWRAP else 5)
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
