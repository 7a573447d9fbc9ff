"""The real CLI at every level of isolation, with a gate that allows everything: the cell is all there is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import psutil
import pytest

from claudeops.domain.chains.outcome import StopCause
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.control import StopControl
from claudeops.engine.process.tree import marked, marks_below
from claudeops.engine.session.runner import SessionRunner
from claudeops.structs import replace
from support.aftermath import runs
from support.caged import caged, forget_workspaces, working_cell
from support.checkout import TESTS
from support.estate import ONE_SHOT, open_estate
from support.forks import processes_below
from support.levels import PATH
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio


async def test_the_real_cli_and_its_tools_work(tmp_path: Path, level: IsolationLevel, everybodys_cli: Path) -> None:
    commands = ("touch here && ls", "ps -e | head -3; id -u; curl --version | head -1; date > ~/note && cat ~/note")
    async with caged(tmp_path, level, *commands, binary=everybodys_cli) as cage:
        ending = await cage.run()
        assert (str(ending.outcome), ending.error, ending.calls_ran) == ("success", None, 2)
        assert cage.outputs()[0] == "here"
        assert not list((tmp_path / "state" / "sessions").glob("*"))


async def test_a_tool_cannot_talk_to_the_daemon_in_the_name_of_its_cli(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path
) -> None:
    forge = "for fd in 0 1; do echo '{}' > /proc/$PPID/fd/$fd || echo refused; done"
    async with caged(tmp_path, level, forge, binary=everybodys_cli) as cage:
        await cage.run()
        assert cage.outputs()[0].count("refused") == 2


async def test_no_environment_holds_more_than_the_allow_list(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path, monkeypatch: pytest.MonkeyPatch
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


# --- it is stopped, or left ---------------------------------------------------------------------------


def sleeping(number: int) -> set[int]:
    """Return the processes that sleep for ``number`` seconds and a fraction, by which a test knows its own."""
    return {
        process.pid
        for process in psutil.process_iter(["cmdline", "status"])
        if (arguments := process.info["cmdline"])
        and Path(arguments[0]).name == "sleep"
        and arguments[1].startswith(f"{number}.")
    }


async def test_a_stopped_session_says_what_it_cost_and_leaves_nothing_running(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path
) -> None:
    number, endings = 700_000 + os.getpid(), []
    command = f"(setsid env -i sleep {number}.1 > /dev/null 2>&1 &); setsid sleep {number}.2 & sleep {number}.3"
    control = StopControl()
    async with caged(tmp_path, level, command, binary=everybodys_cli) as cage:

        async def run() -> None:
            endings.append(await cage.run(control=control))

        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await until(lambda: len(sleeping(number)) == 3)
                control.stop(StopCause.CANCELLED)
    assert sleeping(number) == set()
    assert (str(endings[0].outcome), type(endings[0].cost_usd)) == ("cancelled", float)
    assert processes_below() == []


async def test_what_an_ended_session_left_is_ended_with_it(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path
) -> None:
    number = 600_000 + os.getpid()
    count = f"ps -eo args | grep -c '^sleep {number}'"
    command = f"(setsid env -i sleep {number}.1 > /dev/null 2>&1 &); until {count}; do sleep 0.02; done"
    async with caged(tmp_path, level, command, binary=everybodys_cli) as cage:
        ending = await cage.run()
        logged = cage.estate.logged.getvalue()
        assert cage.outputs()[0].endswith("1")
    assert str(ending.outcome) == "success"
    assert sleeping(number) == set()
    # A namespace ends with its first process, and nobody is left to be counted.
    assert ("stray_processes" in logged) == (level is not IsolationLevel.BUBBLEWRAP)


# --- the daemon is gone -------------------------------------------------------------------------------


def still_running(marks: str, pids: set[int]) -> set[int]:
    """Return what lives of a session: by its mark, and those that had cleared their environment by their number."""
    return {pid for pid in pids if runs(pid)} | {process.pid for process in marked(marks)}


async def test_when_the_daemon_is_killed_nothing_of_its_session_lives_on(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path
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
        sleepers.update(sleeping(number))
        return len(sleepers) == 4

    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TESTS), "CAGED_CLI": str(everybodys_cli)}
    process = await anyio.open_process(
        [sys.executable, "-m", "support.caged", level.value, str(root), command], env=environment, cwd=tmp_path
    )
    try:
        await until(ready)
        assert len(marked(marks)) >= 3
        process.kill()
        await until(lambda: not still_running(marks, sleepers))
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
        forget_workspaces(root)


# --- a CLI that is stopped by signals -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("heeds", "exit_codes"),
    # SIGKILL goes to the CLI and to bubblewrap, one after the other: that may have reported the CLI's end by then.
    [("SIGINT", {124}), ("SIGTERM", {143}), ("SIGKILL", {-9, 128 + 9})],
    ids=["SIGINT", "SIGTERM", "SIGKILL"],
)
async def test_signals_reach_the_cli_in_its_namespace_and_not_what_stands_in_front_of_it(
    tmp_path: Path, heeds: str, exit_codes: set[int]
) -> None:
    """Were bubblewrap told to end, everything would be gone at once: a CLI could say nothing more."""
    async with open_estate(tmp_path) as estate:
        cell = working_cell(IsolationLevel.BUBBLEWRAP, ONE_SHOT, repos=tmp_path / "repos", hidden=())
        timeouts = replace(estate.context.timeouts, stop_grace=2)
        estate.with_context(cell=cell, path=PATH, allow_ungated=("caliban",), timeouts=timeouts)
        reached = tmp_path / "state" / "sessions" / "000001" / "home" / "reached"
        estate.script_one_shot(lines=[], hang=heeds, touch=str(reached))
        await estate.queue(harness="caliban")
        session, control, endings = await estate.claim(), StopControl(), []

        async def run() -> None:
            endings.append(await SessionRunner(context=estate.context).run(session, control))

        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await until(reached.exists)
                control.stop(StopCause.CANCELLED)
    assert str(endings[0].outcome) == "cancelled"
    assert endings[0].exit_code in exit_codes
