"""SIGTERM and SIGINT at any moment of a process's life: a clean stop is status 0, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Final

import anyio
import psutil
import pytest
from anyio.abc import Process

from claudeops.engine.cell.cell import workspace_places
from support.cli import binary
from support.doses import drawn
from support.estate import deliver, look, report
from support.operating import COMMAND, Daemon, Operator, conclude, operator
from support.operating import look as ask
from support.stand_in_daemon import StandInNode, stand_in_node, told
from support.waiting import PATIENCE_SECONDS, hears, until

pytestmark = pytest.mark.anyio

POLITE: Final = (signal.SIGTERM, signal.SIGINT)
FIRST: Final = "first moment"
MOMENTS: Final = (FIRST, "isolation_chosen", "daemon_ready")
NAGS: Final = 15  # of each signal, at every look


async def until_moment(daemon: Daemon, moment: str) -> None:
    if moment == FIRST:
        await until(lambda: hears(daemon.process.pid))
    else:
        await daemon.until_logged(moment)


async def ended(process: Process) -> int:
    with anyio.fail_after(PATIENCE_SECONDS):
        return await process.wait()


def assert_nothing_is_left(node: Operator) -> None:
    assert node.processes_of_sessions() == []
    assert not (node.root / "state" / "daemon.json").exists()
    assert node.workspaces_left() == []
    if not node.database.exists():
        return
    with closing(sqlite3.connect(node.database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sessions'").fetchone():
            unended = "SELECT status FROM sessions WHERE status = 'running'"
            assert connection.execute(unended).fetchall() == []
            assert connection.execute("SELECT * FROM instances").fetchall() == []
            reserved = "SELECT kind, count(*) FROM budget_entries WHERE kind != 'settled' GROUP BY kind ORDER BY kind"
            assert len({count for _, count in connection.execute(reserved)}) <= 1


def test_nothing_that_takes_time_is_imported_before_signals_are_heard() -> None:
    """The modules are those that `main` needs before it hears; the interpreter brings the rest of them by itself."""
    script = "import sys; before = set(sys.modules); import claudeops.__main__; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    ours = {name for name in done.stdout.split() if name.startswith("claudeops")}
    assert ours == {
        "claudeops",
        "claudeops.__main__",
        "claudeops.cli",
        "claudeops.cli.early_signals",
        "claudeops.cli.main",
    }
    assert not {"asyncio", "anyio", "click", "socket", "logging", "subprocess"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("number", "moment"), drawn([(number, moment) for moment in MOMENTS for number in POLITE], count=2)
)
async def test_a_signal_at_any_moment_of_the_start_is_a_clean_stop(
    tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    async with stand_in_node(tmp_path, is_new=moment == FIRST) as node:
        node.operator.forks = moment != FIRST
        node.script(look(), deliver(report()))
        async with node.daemon(CLAUDEOPS_DRAIN_TIMEOUT="60") as daemon:
            await until_moment(daemon, moment)
            daemon.signal(number)
            status = await ended(daemon.process)
        assert (status, told(daemon, "daemon_crashed", "library_message")) == (0, [])
        assert [line["signal"] for line in told(daemon, "signal_received")] == [number.name]
        assert told(daemon, "daemon_stopped")
        assert_nothing_is_left(node.operator)
        if moment == FIRST:
            assert not node.operator.database.exists()


@pytest.mark.parametrize("moment", drawn([FIRST, "daemon_ready"]))
async def test_signals_without_end_are_one_stop(tmp_path: Path, moment: str) -> None:
    async with stand_in_node(tmp_path) as node:
        node.operator.forks = moment != FIRST
        node.script({"hang": True})
        async with node.daemon() as daemon:
            await until_moment(daemon, moment)

            def has_ended_though_nagged() -> bool:
                for number in POLITE * NAGS:
                    with suppress(ProcessLookupError):
                        os.kill(daemon.process.pid, number)  # which takes no status away
                return daemon.process.returncode is not None

            await until(has_ended_though_nagged)
            status = daemon.process.returncode
        assert status == 0
        assert_nothing_is_left(node.operator)


async def test_a_signal_while_a_new_cli_is_tried_leaves_nothing_of_the_trial(tmp_path: Path) -> None:
    # Of the trial: at level user its directories lie elsewhere.
    trial = workspace_places(tmp_path / "state" / "sessions" / "self-test")
    async with operator(tmp_path, haiku=[ask(), conclude()]) as node:
        node.forget_database()
        async with node.daemon(CLAUDEOPS_CLI_SELF_TEST="true", CLAUDEOPS_CLAUDE_BIN=str(binary())) as daemon:
            await until(lambda: len(named_by(*trial)) > 0)
            daemon.signal(signal.SIGTERM)
            assert await ended(daemon.process) == 0
        assert told(daemon, "cli_self_test_passed", "cli_self_test_failed") == []
        assert named_by(*trial) == []
        assert_nothing_is_left(node)
        assert not node.database.exists()


def named_by(*places: Path) -> list[int]:
    """Return the processes that name one of some places in their arguments or in what they were started with."""
    found = []
    for pid in psutil.pids():
        with suppress(OSError):  # gone, or not ours to look at
            told = (Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
            if any(bytes(place) in each for each in told for place in places):
                found.append(pid)
    return found


@asynccontextmanager
async def waiting_for_its_turn_to_migrate(node: StandInNode) -> AsyncIterator[tuple[Daemon, sqlite3.Connection]]:
    """Give a daemon that cannot migrate its database, because somebody else writes to it, and that connection."""
    (node.root / "state").mkdir(mode=0o700)
    with closing(sqlite3.connect(node.operator.database, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("BEGIN IMMEDIATE")
        async with node.daemon(CLAUDEOPS_DRAIN_TIMEOUT="36000") as daemon:
            await daemon.until_logged("isolation_chosen")
            migrating = psutil.Process(daemon.process.pid)  # by a process of its own, below it
            await until(lambda: any(opens(each.pid, node.operator.database) for each in migrating.children()))
            yield daemon, other


def opens(pid: int, file: Path) -> bool:
    with suppress(OSError):
        return any(os.readlink(entry) == str(file) for entry in Path(f"/proc/{pid}/fd").iterdir())  # noqa: PTH115 - pathlib would resolve it
    return False


async def test_a_migration_that_was_begun_is_finished_before_the_stop(tmp_path: Path) -> None:
    async with (
        stand_in_node(tmp_path, is_new=True) as node,
        waiting_for_its_turn_to_migrate(node) as (daemon, other),
    ):
        daemon.signal(signal.SIGTERM)
        await daemon.until_logged("signal_received")
        other.execute("ROLLBACK")
        assert await ended(daemon.process) == 0
        assert told(daemon, "daemon_ready") == []
        assert_nothing_is_left(node.operator)


async def test_a_second_signal_does_not_wait_for_a_migration(tmp_path: Path) -> None:
    async with (
        stand_in_node(tmp_path, is_new=True) as node,
        waiting_for_its_turn_to_migrate(node) as (daemon, other),
    ):
        daemon.signal(signal.SIGTERM)
        await daemon.until_logged("signal_received")
        daemon.signal(signal.SIGINT)
        assert await ended(daemon.process) == 0, "a migration whose turn never comes ends the start with an error"
        other.execute("ROLLBACK")
        assert_nothing_is_left(node.operator)


@pytest.mark.parametrize("number", drawn(POLITE))
async def test_a_foreground_chain_that_is_stopped_before_it_began_says_so(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with stand_in_node(tmp_path, is_new=True) as node:
        process = await anyio.open_process(
            [*COMMAND, "bootstrap", "--output-format", "json"],
            env=node.operator.environment(**node.settings()),
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )
        await until(lambda: hears(process.pid))
        process.send_signal(number)
        assert process.stdout is not None
        with anyio.fail_after(PATIENCE_SECONDS):
            document = json.loads(b"".join([chunk async for chunk in process.stdout]))
            assert await process.wait() == 1
        assert document["sysexit"] == 1
        assert document["error"]["message"] == "stopped before anything was started."
        assert not node.operator.database.exists()


async def test_who_stops_following_leaves_the_chain_to_the_daemon(tmp_path: Path) -> None:
    go = tmp_path / "signals" / "go"
    go.parent.mkdir()
    shown = {"CLAUDEOPS_TIER1_ENV": "STAND_IN_STEPS,SIGNALS", "SIGNALS": str(go.parent)}
    async with stand_in_node(tmp_path) as node:
        node.script(look(), deliver(report()))
        async with node.daemon(**shown) as daemon:
            await daemon.until_logged("decision_made")
            node.script({"await": str(go)}, look(), deliver(report()))
            process = await anyio.open_process(
                [*COMMAND, "bootstrap"],
                env=node.operator.environment(**node.settings(**shown)),
                cwd=tmp_path,
                stdout=subprocess.DEVNULL,
            )
            await until(lambda: len(told(daemon, "session_spawned")) > 1)
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            with anyio.fail_after(PATIENCE_SECONDS):
                said = b"".join([chunk async for chunk in process.stderr])
                assert await process.wait() == 1
            assert b"stopped following; the daemon goes on with what was queued." in said
            go.touch()
            await node.until_idle()
        assert [row["outcome"] for row in node.operator.sessions()] == ["success", "success"]
