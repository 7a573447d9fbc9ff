"""The commands of every day as installed: status beside a daemon, with and without its database; stop."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from support.estate import deliver, look, report
from support.operating import Completed, Daemon
from support.stand_in_daemon import StandInNode, stand_in_node
from support.waiting import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def at_work(root: Path) -> AsyncIterator[tuple[StandInNode, Daemon]]:
    """Run a daemon whose one slot is taken by a session that waits for a sign which never comes."""
    signals = root / "signals"
    signals.mkdir()
    shown = {"CLAUDEOPS_TIER1_ENV": "STAND_IN_STEPS,SIGNALS", "SIGNALS": str(signals)}
    async with stand_in_node(root) as node:
        node.script(look("toolu_1"), {"await": str(signals / "go")}, deliver(report()))
        async with node.daemon(CLAUDEOPS_MAX_CONCURRENT_SESSIONS="1", **shown) as daemon:
            await daemon.until_logged("tool_call_judged")
            yield node, daemon


def only(found: object) -> dict[str, object]:
    """Return the one entry of a list of a document."""
    assert isinstance(found, list)
    [entry] = found
    assert isinstance(entry, dict)
    return entry


async def asked(node: StandInNode, *arguments: str) -> Completed:
    return await node.operator.run(*arguments, "--output-format", "json")


async def test_status_tells_what_the_daemon_does_and_needs_no_database(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (node, daemon):
        await node.queue(2)
        told = (await asked(node, "status")).document
        assert (told["lives"], told["ready"], told["pid"], told["exit_code"]) == (True, True, daemon.process.pid, 0)
        running = only(told["running"])
        assert (running["session_id"], running["tier"], running["trigger"]) == (1, 1, "scheduled")
        assert (told["queued"], told["database"]) == (2, {"available": True, "message": None})
        money = told["money"]
        assert isinstance(money, dict)
        assert money["day_budget_usd"] == 100000.0
        text = await node.operator.run("status")
        assert "alive and ready" in text.stdout
        assert "2 sessions waiting" in text.stdout
        assert "\x1b" not in text.stdout

        with node.operator.database.open("r+b") as file:  # as on a disk that has gone bad
            first = file.read(100)
            file.seek(0)
            file.write(b"x" * 100)
        try:
            away = await asked(node, "status")
        finally:
            with node.operator.database.open("r+b") as file:
                file.write(first)
        told = away.document
        assert (told["lives"], told["exit_code"], told["queued"]) == (True, 0, None)
        database = told["database"]
        assert isinstance(database, dict)
        assert database["available"] is False
        running = only(told["running"])
        assert (running["session_id"], running["chain"]) == (1, 1)


async def test_stop_ends_what_waits_at_once_and_what_runs_through_the_daemon(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (node, _):
        waiting, other = await node.queue(2)
        done = (await asked(node, "stop", str(waiting))).document
        assert (done["handled"], done["stopped"], done["stopping"]) == (True, [waiting], [])
        assert len(node.operator.rows("SELECT * FROM sessions WHERE status != 'ended'")) == 2

        done = (await asked(node, "stop", "1", "--chain")).document
        assert (done["handled"], done["stopped"], done["exit_code"]) == (True, [1], 0)
        await until(lambda: node.operator.sessions()[other - 1]["status"] == "running")

        again = await asked(node, "stop", "1")
        assert (again.document["exit_code"], again.document["handled"]) == (1, False)
        assert (await node.operator.run("stop", "99")).code == 1
    first, second, _ = node.operator.sessions()
    assert (first["outcome"], first["decision_reason"]) == ("cancelled", "paused")
    assert (second["outcome"], second["started_at"]) == ("cancelled", None)
    assert "before it began" in str(second["error"])
    [order] = node.operator.rows("SELECT * FROM commands")
    assert (order["name"], order["arguments"], order["result"]) == ("stop", '{"chain":1}', "stopped session 1")


async def test_stop_without_a_daemon_says_so_at_once(tmp_path: Path) -> None:
    async with stand_in_node(tmp_path) as node:
        async with node.daemon() as daemon:
            await daemon.until_logged("daemon_ready")
            await node.operator.until("SELECT * FROM sessions WHERE status = 'ended'", lambda rows: len(rows) > 0)
        with closing(sqlite3.connect(node.operator.database)) as connection:
            connection.execute("UPDATE sessions SET status = 'running', outcome = NULL WHERE id = 1")
            connection.commit()
        told = await node.operator.run("stop", "1")
        assert told.code == 1
        assert "no daemon runs" in told.stderr
        assert node.operator.rows("SELECT * FROM commands") == []
        status = (await asked(node, "status")).document
        assert (status["lives"], status["exit_code"], status["next_fires"]) == (False, 1, [])
