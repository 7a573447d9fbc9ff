"""`make test`: what fails is seen when it fails, and nothing outlives the run, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from support.checkout import TESTS
from support.doses import drawn
from support.forks import processes_below
from support.seen_at_once import SeenAtOnce
from support.waiting import PATIENCE_SECONDS, until

CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support.seen_at_once import SeenAtOnce

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SeenAtOnce(config, status_seconds=0.2))
"""

BUSY = """
import pathlib, subprocess, sys, time

def test_busy():
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    pathlib.Path("busy").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
"""

STUBBORN = """
import pathlib, signal, time

def test_stubborn():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pathlib.Path("busy").touch()
    time.sleep(600)
"""

RED = """
def test_red():
    number = 41
    assert number + 1 == 43, "this is the red one"
"""


@dataclass
class Run:
    """A run of tests in a directory of its own."""

    root: Path
    process: subprocess.Popen[bytes]

    @property
    def output(self) -> str:
        return (self.root / "output").read_text(encoding="utf-8")

    def processes(self) -> list[psutil.Process]:
        """Return every process of it."""
        return [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]

    async def over(self) -> int:
        await until(lambda: self.process.poll() is not None)
        return self.process.wait()


def started(root: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(TESTS / "support" / "whole_run.py"), *arguments]
    with (root / "output").open("wb") as sink:
        return subprocess.Popen(command, cwd=root, stdout=sink, stderr=subprocess.STDOUT)


@asynccontextmanager
async def running(root: Path, *arguments: str, **files: str) -> AsyncIterator[Run]:
    """Run tests by two processes; whatever is left at the end of the block is ended."""
    (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (root / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    for name, text in files.items():
        (root / f"test_{name}.py").write_text(text, encoding="utf-8")
    process = started(root, "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile", *arguments)
    try:
        yield Run(root, process)
    finally:
        below = processes_below()  # not the server of forked processes, which serves the tests after this one
        for one in below:
            one.kill()
        psutil.wait_procs(below, timeout=PATIENCE_SECONDS)
        process.wait(PATIENCE_SECONDS)


def interrupt(run: Run, number: signal.Signals = signal.SIGINT) -> None:
    run.process.send_signal(number)


def kill_pytest(run: Run) -> None:
    (controller,) = psutil.Process(run.process.pid).children()
    controller.kill()


@pytest.mark.parametrize(
    ("end", "code"),
    drawn(
        [
            pytest.param(interrupt, 130, id="Ctrl-C"),
            pytest.param(lambda run: interrupt(run, signal.SIGTERM), 143, id="make is ended"),
            pytest.param(kill_pytest, 137, id="pytest is killed"),
        ]
    ),
)
async def test_no_worker_and_nothing_that_a_test_started_outlives_the_run(
    tmp_path: Path, end: Callable[[Run], None], code: int
) -> None:
    async with running(tmp_path, busy=BUSY) as run:
        await until((tmp_path / "busy").exists)
        processes = run.processes()
        assert len(processes) >= 5  # the run, pytest, two workers, and what the test has started

        end(run)

        assert await run.over() == code, run.output
        assert [one for one in processes if one.is_running()] == []


@pytest.mark.long
async def test_a_second_ctrl_c_ends_also_what_heeds_none(tmp_path: Path) -> None:
    async with running(tmp_path, stubborn=STUBBORN) as run:
        await until((tmp_path / "busy").exists)
        processes = run.processes()

        interrupt(run)
        interrupt(run)

        assert await run.over() == 130
        assert [one for one in processes if one.is_running()] == []


async def test_what_fails_is_seen_while_others_still_run_and_so_is_how_far_it_is(tmp_path: Path) -> None:
    async with running(tmp_path, busy=BUSY, red=RED) as run:
        await until(lambda: "this is the red one" in run.output)
        await until(lambda: "1 of 2 tests, 1 failed; now: test_busy.py::test_busy" in run.output)
        assert run.process.poll() is None
        (tmp_path / "go").touch()

        assert await run.over() == 1
        assert "ended what the tests had left running" in run.output  # the sleep of the busy one


@pytest.mark.long
async def test_at_the_first_red_one_it_can_be_made_to_end(tmp_path: Path) -> None:
    async with running(tmp_path, "-x", busy=BUSY, red=RED) as run:
        await until((tmp_path / "busy").exists)
        processes = run.processes()

        assert await run.over() == 1
        assert "this is the red one" in run.output
        assert "stopped after 1 red" in run.output
        assert "1 failed" in run.output
        assert [one for one in processes if one.is_running()] == []


@pytest.mark.long
async def test_all_green_is_green(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    async with running(tmp_path, green="def test_green(): pass") as run:
        assert await run.over() == 0
        assert "1 passed" in run.output


def test_the_status_says_what_takes_so_long(request: pytest.FixtureRequest) -> None:
    seen = SeenAtOnce(request.config)
    seen.pytest_xdist_node_collection_finished(ids=["tests/a.py::b", "tests/a.py::c"])
    seen.pytest_runtest_logstart("tests/a.py::b")
    seen.pytest_runtest_logfinish("tests/a.py::b")
    seen.pytest_runtest_logstart("tests/a.py::c")

    assert seen.status().endswith("1 of 2 tests; now: a.py::c (0 s)")
