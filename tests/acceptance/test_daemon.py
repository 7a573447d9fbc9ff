"""The daemon as a process: its schedule, its signals, its lock, its refusals."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.cli import binary
from support.doses import drawn
from support.levels import strongest
from support.operating import conclude, look, operator
from support.waiting import until

pytestmark = pytest.mark.anyio

ENDED = "SELECT * FROM sessions WHERE status = 'ended'"
RUNNING = "SELECT * FROM tool_calls"
ENDLESS_END = """
CREATE TRIGGER endless_end AFTER UPDATE OF status ON sessions WHEN NEW.status = 'ended' BEGIN
  UPDATE sessions SET summary = (
    WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1e12)
    SELECT max(n) FROM number
  ) WHERE id = NEW.id;
END
"""


def some(rows: Sequence[object]) -> bool:
    return len(rows) > 0


async def test_a_chain_runs_at_the_start_and_then_by_the_interval(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as node, node.daemon(CLAUDEOPS_INTERVAL="2") as daemon:
        await node.until(ENDED, lambda rows: len(rows) >= 2)
        status = json.loads((tmp_path / "state" / "daemon.json").read_text())
        assert (status["ready"], status["pid"]) == (True, daemon.process.pid)
        assert status["isolation"] == node.sessions()[0]["isolation"] == strongest()
        assert await daemon.stop() == 0
    fires = node.rows("SELECT * FROM schedule_fires ORDER BY due_at")
    assert fires[0]["session_id"] == 1
    assert {row["trigger"] for row in node.sessions()} == {"scheduled"}
    assert not (tmp_path / "state" / "daemon.json").exists()


async def test_a_fire_while_the_chain_is_unfinished_is_skipped_and_recorded(tmp_path: Path) -> None:
    settings = {"CLAUDEOPS_INTERVAL": "1", "CLAUDEOPS_DRAIN_TIMEOUT": "0"}
    async with operator(tmp_path, haiku=[{"hang": True}]) as node, node.daemon(**settings):
        await node.until("SELECT * FROM schedule_fires WHERE skipped_reason IS NOT NULL", some)
        assert len(node.sessions()) == 1


async def test_sigterm_in_mid_session_keeps_the_cost_and_leaves_no_process(tmp_path: Path) -> None:
    async with (
        operator(tmp_path, haiku=[look("sleep 30"), conclude()]) as node,
        node.daemon(CLAUDEOPS_DRAIN_TIMEOUT="0", CLAUDEOPS_STOP_GRACE="6") as daemon,
    ):
        await node.until(RUNNING, some)
        assert await daemon.stop() == 0
        assert node.processes_of_sessions() == []
    (session,) = node.sessions()
    assert (session["status"], session["outcome"]) == ("ended", "cancelled")
    assert isinstance(session["cost_usd"], float)


@pytest.mark.long
async def test_a_second_signal_cuts_the_drain_short(tmp_path: Path) -> None:
    async with (
        operator(tmp_path, haiku=[{"hang": True}]) as node,
        node.daemon(CLAUDEOPS_DRAIN_TIMEOUT="600", CLAUDEOPS_STOP_GRACE="4") as daemon,
    ):
        await daemon.until_logged("session_spawned")
        daemon.signal(signal.SIGTERM)
        await daemon.until_logged("supervisor_draining")
        daemon.signal(signal.SIGTERM)
        assert await daemon.process.wait() == 0
    assert node.sessions()[0]["outcome"] == "cancelled"


async def test_beside_a_daemon_a_second_one_is_refused_and_bootstrap_queues_there_and_follows(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as node, node.daemon() as daemon:
        await daemon.until_logged("daemon_ready")
        await node.until(ENDED, some)
        other = await node.run(
            "run",
            CLAUDEOPS_STATE_DIR=str(tmp_path / "other"),
            CLAUDEOPS_DATABASE_URL=f"sqlite:///{node.database}",
        )
        done = await node.bootstrap("--prompt", "look again")
    assert other.code == 75
    assert str(daemon.process.pid) in other.stderr
    assert done.code == 0, done.stderr
    assert [row["trigger"] for row in node.sessions()] == ["scheduled", "manual"]
    owners = {row["owner"] for row in node.sessions()}
    assert len(owners) == 1


async def test_a_killed_daemons_session_is_lost_its_processes_end_and_the_schedule_goes_on(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[{"hang": True}]) as node:
        async with node.daemon() as daemon:
            await daemon.until_logged("session_spawned")
            processes = node.processes_of_sessions()
            daemon.process.kill()
            await daemon.process.wait()
            await until(lambda: not node.processes_of_sessions())  # though nobody has started it again
        async with node.daemon(CLAUDEOPS_DRAIN_TIMEOUT="0") as again:
            await again.until_logged("session_spawned")
            assert processes
    first, second = node.sessions()[:2]
    assert (first["outcome"], second["trigger"]) == ("lost", "recovery")


async def test_a_daemon_that_is_killed_between_result_and_database_loses_nothing(tmp_path: Path) -> None:
    down = [look(), conclude(needed=True, status="down")]
    async with operator(tmp_path, haiku=down, sonnet=[look(), conclude()]) as node:
        async with node.daemon() as daemon:
            await daemon.until_logged("session_spawned")
            with node.connect() as connection:
                connection.exec_driver_sql(ENDLESS_END)
            await daemon.until_logged("result_received")
            await until(lambda: node.processes_of_sessions() == [])
            daemon.process.kill()
            await daemon.process.wait()
        with node.connect() as connection:
            connection.exec_driver_sql("DROP TRIGGER endless_end")
        assert [row["status"] for row in node.sessions()] == ["running"]
        async with node.daemon() as again:
            await again.until_logged("session_recovered")
            await node.until(ENDED, lambda rows: len(rows) >= 2)
    first, second = node.sessions()[:2]
    assert (first["outcome"], first["decision_reason"]) == ("success", "escalated")
    assert (second["trigger"], second["tier"], second["outcome"]) == ("escalation", 2, "success")
    assert len(node.rows("SELECT * FROM budget_entries WHERE session_id = 1 AND kind = 'settled'")) == 1


REFUSALS = {
    "unknown name": ({"CLAUDEOPS_INTERVALL": "5"}, "CLAUDEOPS_INTERVAL"),
    "bad value": ({"CLAUDEOPS_INTERVAL": "soon"}, "CLAUDEOPS_INTERVAL"),
    "missing schema": ({"CLAUDEOPS_SCHEMA_PATH": "/no/such/schema.json"}, "CLAUDEOPS_SCHEMA_PATH"),
    "missing prompt": ({"CLAUDEOPS_PROMPT": "/no/such/prompt.md"}, "CLAUDEOPS_PROMPT"),
    "missing CLI": ({"CLAUDEOPS_CLAUDE_BIN": "/no/such/claude"}, "CLAUDEOPS_CLAUDE_BIN"),
    "a CLI that is none": ({"CLAUDEOPS_CLAUDE_BIN": "/bin/true"}, "CLAUDEOPS_CLAUDE_BIN"),
    "a level of isolation that does not work": (
        {"CLAUDEOPS_ISOLATION": "bubblewrap", "PATH": "/nonexistent"},
        "apt-get install bubblewrap",
    ),
    "nothing to watch": ({"CLAUDEOPS_REPOS_DIR": "/no/such/repos"}, "CLAUDEOPS_REPOS_DIR"),
}


@pytest.mark.parametrize(
    ("changes", "name"), drawn((pytest.param(*case, id=name) for name, case in REFUSALS.items()), count=2)
)
async def test_a_bad_setting_is_one_sentence_before_anything_is_started(
    tmp_path: Path, changes: dict[str, str], name: str
) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        node.forget_database()
        done = await node.run("run", **changes)
    assert done.code == 78
    assert name in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not node.database.exists()


async def test_usage_errors_are_64_in_text_and_one_document_in_json(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look()]) as node:
        text = await node.bootstrap("--tier", "none")
        document = await node.bootstrap("--bogus", "--output-format", "json")
    assert (text.code, document.code) == (64, 1)
    assert document.document["error"] == {
        "kind": "usage",
        "operation": "parse_args",
        "target": "--bogus",
        "retryable": False,
        "message": document.document["error"]["message"],  # type: ignore[index]
        "hint": "`claudeops bootstrap --help` shows what may be written.",
    }
    assert document.document["sysexit"] == 64


async def test_a_newer_database_is_refused_with_the_name_of_the_backup(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        backup = node.database.with_name("claudeops.db.backup-0000-20200101T000000Z")
        backup.write_bytes(node.database.read_bytes())
        with node.connect() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        done = await node.run("run")
    assert done.code == 78
    assert backup.name in done.stderr


async def test_a_copy_that_is_not_finished_is_no_database_to_start_on(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        with node.connect() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'copy-0030-0123456789abcdef0123'")
        done = await node.run("run")
    assert done.code == 78
    assert "is a copy that is not finished: call `claudeops copy-database` again" in done.stderr


async def test_a_cli_that_was_not_seen_before_is_tried_once_and_untried_where_the_operator_says_so(
    tmp_path: Path,
) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        first = await node.bootstrap(CLAUDEOPS_CLI_SELF_TEST="true")
        second = await node.bootstrap(CLAUDEOPS_CLI_SELF_TEST="true")
        untried = await node.bootstrap("--tier", "2", CLAUDEOPS_CLI_SELF_TEST="false", CLAUDEOPS_MAX_TIER="1")
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    assert "CLAUDEOPS_CLI_SELF_TEST is false" in untried.stderr
    assert ['"cli_self_test_passed"' in done.stderr for done in (first, second)] == [True, False]


async def test_a_cli_whose_gate_is_open_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    # The real CLI with the two settings under which it asks nobody: exactly what must never be trusted.
    open_gate = tmp_path / "claude"
    open_gate.write_text(f'#!/bin/sh\nCLAUDE_CODE_SIMPLE=1 exec {binary()} "$@" --allowedTools Bash\n')
    open_gate.chmod(0o755)
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        node.forget_database()
        # In a cell the script would not even find the CLI behind it.
        changes = {"CLAUDEOPS_CLAUDE_BIN": str(open_gate), "CLAUDEOPS_ISOLATION": "none"}
        done = await node.run("run", CLAUDEOPS_CLI_SELF_TEST="true", **changes)
    assert done.code == 78
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("claudeops: ")]
    assert "a call that was denied ran" in sentence
    assert str(open_gate) in sentence
    assert not node.database.exists()
