"""The database goes away under a running daemon, for longer than anybody waits, and comes back: nothing is lost.

The daemon is a process of its own; what is in its way is real: another process's lock, or no room for its files.
"""

from __future__ import annotations

import json
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from claudeops.cli.reply import Exit
from support.estate import deliver, look, report
from support.operating import Daemon, Operator
from support.stand_in_daemon import stand_in_node, told
from support.waiting import until

pytestmark = pytest.mark.anyio

MEBIBYTE: Final = 1024 * 1024
SLOW: Final = {"level": "warning", "service": "web", "message": "web was slow while nobody could write that down"}


@contextmanager
def locked(node: Operator, _daemon: Daemon) -> Iterator[None]:
    """Keep the lock for writing, as a backup that hangs would."""
    with node.locked():
        yield


@contextmanager
def without_room(node: Operator, daemon: Daemon) -> Iterator[None]:
    """Let the daemon write nothing where SQLite's log has arrived by now, as on a disk that is full."""
    with closing(sqlite3.connect(node.database)) as connection:
        connection.execute("CREATE TABLE filling (bytes BLOB)")
        connection.execute("INSERT INTO filling VALUES (zeroblob(?))", (2 * MEBIBYTE,))
        connection.commit()
    before = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (MEBIBYTE, before[1]))
    try:
        yield
    finally:
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, before)


def status(root: Path) -> dict[str, object]:
    found = json.loads((root / "state" / "daemon.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def frames(root: Path) -> list[dict[str, object]]:
    """Return the frames of the first session that are in its log as whole lines."""
    lines = (root / "results" / "session-000001.ndjson").read_bytes().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


@pytest.mark.parametrize(
    ("away", "says"),
    [
        pytest.param(locked, "locked", id="locked", marks=pytest.mark.long),
        pytest.param(without_room, "disk I/O error", id="without room"),
    ],
)
async def test_sessions_stream_on_the_gate_denies_and_results_wait_for_a_database_that_is_away(
    tmp_path: Path, away: Callable[[Operator, Daemon], AbstractContextManager[None]], says: str
) -> None:
    go = tmp_path / "signals" / "go"
    go.parent.mkdir()
    shown = {"CLAUDEOPS_TIER1_ENV": "STAND_IN_STEPS,SIGNALS", "SIGNALS": str(go.parent)}
    async with stand_in_node(tmp_path) as node:
        node.script(look("toolu_1"), {"await": str(go)}, look("toolu_2"), deliver(report(events=[SLOW])))
        async with node.daemon(**shown) as daemon:
            await daemon.until_logged("tool_call_judged")
            with away(node.operator, daemon):
                await until(lambda: not status(tmp_path)["ready"])
                go.touch()
                # No line of the log need be whole yet: a verdict does not wait for the writer of it.
                await until(lambda: [frame["type"] for frame in frames(tmp_path)[-1:]] == ["result"])
                await until(lambda: '"while_doing":"finish"' in daemon.output.read_text())
                assert says in str(status(tmp_path)["reason"])
                assert [row["status"] for row in node.operator.sessions()] == ["running"]
            await daemon.until_logged("session_ended")
            await until(lambda: status(tmp_path)["ready"] is True)
        (session,) = node.operator.sessions()

    assert (session["outcome"], session["summary"]) == ("success", "Looked at every service of the estate.")
    assert [row["message"] for row in node.operator.rows("SELECT message FROM events")] == [SLOW["message"]]
    assert len(node.operator.rows("SELECT * FROM service_checks")) == 1
    first, second = [json.dumps(frame) for frame in frames(tmp_path) if frame["type"] == "user"]
    assert ("denied" in first, "denied" in second) == (False, True)
    assert "database unavailable: a call that cannot be recorded" in daemon.output.read_text()
    allowed = node.operator.rows("SELECT tool_use_id FROM tool_calls WHERE verdict = 'allow'")
    assert [row["tool_use_id"] for row in allowed] == ["toolu_1"]
    assert told(daemon, "database_recovered")


@pytest.mark.long  # a stop takes what it may: the grace of the CLI, and that of the database
async def test_a_stop_while_the_database_is_away_says_by_its_status_that_a_session_is_left(tmp_path: Path) -> None:
    async with stand_in_node(tmp_path) as node:
        node.script(look("toolu_1"), {"hang": True})
        async with node.daemon(CLAUDEOPS_STOP_GRACE="1") as daemon:
            await daemon.until_logged("tool_call_judged")
            with node.operator.locked():
                assert await daemon.stop() == Exit.UNAVAILABLE
        assert told(daemon, "sessions_left")
        assert [row["status"] for row in node.operator.sessions()] == ["running"]
