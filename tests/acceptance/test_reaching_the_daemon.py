"""What an operator asks of a running daemon from another shell reaches it, and without one the operator learns so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.operating import conclude, look, operator
from support.senders import starts_nothing

pytestmark = pytest.mark.anyio


async def test_a_detached_chain_runs_in_the_daemon_and_its_id_is_printed_before_it_has_begun(tmp_path: Path) -> None:
    quiet = starts_nothing(tmp_path)
    async with operator(tmp_path, haiku=[look(), conclude()]) as node, node.daemon(**quiet) as daemon:
        await daemon.until_logged("daemon_ready")
        detached = await node.bootstrap("--detach", "--service", "web", "--service", "wbe")
        await node.until("SELECT * FROM sessions WHERE outcome = 'success'", lambda rows: len(rows) == 1)
        in_json = await node.bootstrap("--detach", "--prompt", "Why so slow?", "--output-format", "json")
        requests = [row["prompt_text"] for row in node.rows("SELECT * FROM sessions WHERE trigger = 'manual'")]
    assert (detached.code, detached.stdout) == (0, "1\n"), detached
    assert "claudeops tail 1" in detached.stderr
    assert "Look at these services and at no others: web, wbe." in str(requests[0])
    assert (in_json.code, in_json.document["detached"], in_json.document["session_id"]) == (0, True, 2)
    assert in_json.document["prompt"] == requests[1] == "Why so slow?"


async def test_nothing_is_queued_where_no_daemon_takes_it_up(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        text = await node.bootstrap("--detach")
        document = (await node.bootstrap("--detach", "--output-format", "json")).document
        assert (text.code, text.stdout) == (75, "")
        assert text.stderr == "claudeops: No daemon runs on this database, so nothing was queued.\n"
        assert (document["exit_code"], document["sysexit"]) == (1, 75)
        error = document["error"]
        assert isinstance(error, dict)
        assert (error["kind"], error["operation"], error["target"], error["retryable"]) == (
            "runtime",
            "daemon.find",
            "daemon",
            True,
        )
        assert "claudeops run" in error["hint"]
        assert node.sessions() == []


async def test_what_a_killed_daemon_had_taken_is_done_or_said_to_be_lost_by_the_next(tmp_path: Path) -> None:
    """As a daemon leaves it that dies between taking a command and ending it."""
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        long_ago = "2020-01-01 00:00:00.000000"
        with node.connect() as connection:
            for name, arguments in (("stop", {"chain": 1}), ("stop_sessions", {})):
                connection.exec_driver_sql(
                    "INSERT INTO commands (name, arguments, requested_by, requested_at, taken_at)"
                    " VALUES (?, ?, 'ada', ?, ?)",
                    (name, json.dumps(arguments), long_ago, long_ago),
                )
        async with node.daemon(**starts_nothing(tmp_path)) as daemon:
            await daemon.until_logged("order_lost")
            await node.until("SELECT * FROM commands WHERE ended_at IS NULL", lambda rows: len(rows) == 0)
        stopped, lost = node.rows("SELECT * FROM commands ORDER BY id")
    assert (stopped["result"], stopped["error"]) == ("nothing of chain 1 was queued or running any more", None)
    assert (lost["result"], str(lost["error"]).partition(":")[0]) == (None, "lost")


async def test_a_session_goes_on_with_the_conversation_of_an_earlier_one(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look("uptime -p"), conclude()]) as node:
        await node.bootstrap()
        resumed = await node.bootstrap("--resume", "1", "--prompt", "And what of the disk?")
        again = await node.bootstrap("--resume", "2", "--prompt", "And now?", "--output-format", "json")
        first, second, third = node.sessions()
        last = json.dumps(node.api.traffic.main("haiku")[-1].body["messages"])
        none = await node.bootstrap("--resume", "9", "--prompt", "x", "--output-format", "json")
    assert (resumed.code, again.code) == (0, 0), resumed
    assert resumed.stdout.startswith("tier 1 (haiku) session 2: success")
    assert (second["root_session_id"], second["parent_session_id"], second["trigger"]) == (1, 1, "manual")
    assert (third["root_session_id"], third["parent_session_id"]) == (1, 2)
    assert third["cli_session_id"] not in {first["cli_session_id"], second["cli_session_id"]}
    assert last.count('"command": "uptime -p"') == 3, "two of them are those of the earlier sessions"
    error = none.document["error"]
    assert isinstance(error, dict)
    assert (none.document["sysexit"], error["operation"], error["kind"]) == (66, "resume", "session")
