"""Real CLI, scripted model, an operator at a shell: approvals, pause, and the audit of what was done."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import pytest

from claudeops.domain.gate.approval import Answered, ApprovalStatus
from claudeops.engine.gate.approval_key import read_key
from claudeops.store.acts.approvals import answer_question
from claudeops.store.store import open_store
from support.operating import Operator, conclude, look, operator
from support.waiting import until

pytestmark = pytest.mark.anyio

UNCLEAR: Final = "python3 -c 'print(6*7)'"
"""At tier 3 a person is asked about it: it is not known what inline code does."""

TURNED: Final = "look \u202eb"
"""A description with a mark that turns text."""

WAITING: Final = "SELECT * FROM approvals WHERE status = 'pending'"


@asynccontextmanager
async def asking(
    root: Path, *further: dict[str, object], first: str = UNCLEAR, **environment: str
) -> AsyncIterator[Operator]:
    """Run a tier 3 session beside the block, up to the moment when it waits for a person."""
    steps = [look(first, TURNED), *further, conclude()]
    async with operator(root, opus=steps) as node, anyio.create_task_group() as tasks:

        async def chain() -> None:
            await node.bootstrap("--tier", "3", "--prompt", "look at web", **environment)

        tasks.start_soon(chain)
        await node.until(WAITING, lambda rows: len(rows) == 1)
        yield node
        await node.until("SELECT * FROM sessions WHERE status = 'ended'", lambda rows: len(rows) == 1)


def calls(node: Operator) -> list[tuple[object, object]]:
    rows = node.rows("SELECT verdict, reason FROM tool_calls WHERE tool_name = 'Bash' ORDER BY id")
    return [(row["verdict"], row["reason"]) for row in rows]


async def test_an_approved_call_runs_and_says_who_approved_it_and_a_denied_one_does_not_run(tmp_path: Path) -> None:
    async with asking(tmp_path, look("python3 -c 'print(6*8)'")) as node:
        listed = await node.run("list-approvals")
        assert "print(6*7)" in listed.stdout
        assert "\\u202e" in listed.stdout
        assert "\u202e" not in listed.stdout
        assert any("approval 1 is needed" in str(message) for _, message in node.events())
        waiting = await node.run("tail", "--no-follow")
        done = await node.run("approve", "1")
        assert (done.code, done.stdout.splitlines()[0].partition(" by ")[0]) == (0, "approval 1: approved"), done.stderr
        assert "pending" not in done.stdout
        assert re.search(r"^approval 1 · approved · ", done.stdout, re.MULTILINE)
        await node.until(WAITING, lambda rows: [row["id"] for row in rows] == [2])
        denied = await node.run("deny", "2", "--output-format", "json")
        assert (denied.code, denied.document["status"], denied.document["handled"]) == (0, "denied", True)
    (asked, ran, *second) = calls(node)
    assert asked[0] == "ask"
    assert ran[0] == "allow"
    assert str(ran[1]).startswith("approved by ")
    assert [verdict for verdict, _ in second] == ["ask", "deny"]
    assert node.sessions()[0]["outcome"] == "success"
    results = [result.text for seen in node.api.traffic.main("opus") for result in seen.tool_results]
    assert ("42" in results, "48" in results) == (True, False)
    assert [row["status"] for row in node.rows("SELECT status FROM approvals ORDER BY id")] == ["used", "denied"]
    assert labels(waiting.stdout)[-2:] == ["asks", "warning"]
    told = await node.run("tail", "1")
    after_the_question = labels(told.stdout)[labels(told.stdout).index("asks") :]
    assert after_the_question[:4] == ["asks", "warning", "allowed", "answer"]
    assert [line[:8] for line in told.stdout.splitlines()] == sorted(line[:8] for line in told.stdout.splitlines())


def labels(told: str) -> list[str]:
    """Return what kinds of steps `claudeops tail` told."""
    return [line.split()[3] for line in told.splitlines()]


async def test_the_first_of_two_people_lets_nothing_run_and_the_second_one_does(tmp_path: Path) -> None:
    policy = tmp_path / "two.toml"
    policy.write_text('extends = "default"\n[tiers.3.ask]\napprovals = 2\n', encoding="utf-8")
    async with asking(tmp_path, CLAUDEOPS_POLICY_PATH=str(policy)) as node:
        first = await node.run("approve", "1", "--output-format", "json")
        again = await node.run("approve", "1")
        listed = await node.run("list-approvals")
        so_far = [verdict for verdict, _ in calls(node)]
        last = await answered_in_a_chat(node)
    who = str(first.document["decided_by"])
    said = ("handled", "status", "answers", "needed")
    assert (first.code, [first.document[key] for key in said]) == (0, [True, "pending", 1, 2])
    assert (again.code, "has a yes of yours already (1 of 2)" in again.stderr) == (1, True)
    assert "approval 1 · pending (1 of 2) · " in listed.stdout
    assert f"  yes from {who}; 1 more needed" in listed.stdout
    assert so_far == ["ask"]
    assert last is Answered.DECIDED
    (_, ran) = calls(node)
    assert ran[0] == "allow"
    assert str(ran[1]).startswith(f"approved by {who} and telegram:alice (approval 1): ")
    assert any(result.text == "42" for seen in node.api.traffic.main("opus") for result in seen.tool_results)


MASKED: Final = "python3 -c 'x=1;token=print(6*7)'"
"""Redaction takes the second statement for a secret, and it runs."""


async def test_what_redaction_hides_does_not_run_by_a_yes_of_somebody_who_could_not_see_it(tmp_path: Path) -> None:
    async with asking(tmp_path, look(MASKED), first=MASKED) as node:
        listed = await node.run("list-approvals")
        refused = await node.run("approve", "1")
        denied = await node.run("deny", "1")
        await node.until(WAITING, lambda rows: [row["id"] for row in rows] == [2])
        seen = await node.run("approve", "2", "--unseen")
    assert "print(6*7)" not in listed.stdout + refused.stderr
    assert "  not whole: parts that look like secrets are hidden" in listed.stdout
    assert (refused.code, "the call is not shown whole" in refused.stderr) == (1, True)
    assert (denied.code, seen.code) == (0, 0)
    assert [verdict for verdict, _ in calls(node)] == ["ask", "deny", "ask", "allow"]
    assert "people did not see all of it" in str(calls(node)[1][1])
    assert [row["services"] for row in node.rows("SELECT services FROM approvals")] == [None, None]


async def answered_in_a_chat(node: Operator) -> Answered:
    """Say yes as a chat of the daemon does: with the daemon's key, in the name of an approver."""
    store = open_store(f"sqlite:///{node.database}")
    try:
        key = read_key(node.root / "state")
        said = await answer_question(
            store.approvals, key, 1, status=ApprovalStatus.APPROVED, decided_by="telegram:alice", at=datetime.now(UTC)
        )
    finally:
        await store.close()
    return said.answered


async def test_nobody_answers_and_the_call_does_not_run_and_no_late_answer_is_taken(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, CLAUDEOPS_APPROVAL_TIMEOUT="1") as node:
        await node.until("SELECT * FROM approvals WHERE status = 'expired'", lambda rows: len(rows) == 1)
        late = await node.run("approve", "1")
        assert late.code == 1
        assert "it is expired already" in late.stderr
        unknown = await node.run("approve", "7", "--output-format", "json")
        listed = await node.run("list-approvals", "--output-format", "json")
    assert (unknown.code, unknown.document["found"]) == (1, False)
    assert unknown.document["error"] == {
        "kind": "approval_not_found",
        "message": "There is no approval 7.",
        "retryable": False,
    }
    assert (listed.document["approvals_count"], listed.document["approvals"]) == (0, [])
    assert calls(node)[1] == ("deny", "needs approval, and nobody answered in time")


async def test_a_forged_yes_in_the_database_is_a_no(tmp_path: Path) -> None:
    async with asking(tmp_path) as node:
        with closing(sqlite3.connect(node.database)) as connection, connection:
            connection.execute(
                "UPDATE approvals SET status = 'approved', decided_by = 'root', mac = '00',"
                " decided_at = '2026-01-01 00:00:00.000000'"
            )
    assert calls(node)[1] == ("deny", "needs approval, and the answer carries no operator's proof")


async def test_a_daemon_that_starts_denies_what_waited_when_the_last_one_died(tmp_path: Path) -> None:
    steps = [look(UNCLEAR), conclude()]
    down = [look(), conclude(needed=True, status="down")]
    async with operator(tmp_path, haiku=down, sonnet=down, opus=steps) as node:
        async with node.daemon() as daemon:
            await node.until(WAITING, lambda rows: len(rows) == 1)
            daemon.process.kill()
            await daemon.process.wait()
        async with node.daemon(CLAUDEOPS_DRAIN_TIMEOUT="0") as again:
            await again.until_logged("daemon_ready")
            rows = node.rows("SELECT status, decided_by FROM approvals WHERE id = 1")
            late = await node.run("approve", "1")
    assert [(row["status"], row["decided_by"]) for row in rows] == [("denied", "restart of the daemon")]
    assert late.code == 1
    asked = "SELECT verdict FROM tool_calls WHERE session_id = (SELECT session_id FROM approvals WHERE id = 1)"
    assert [row["verdict"] for row in node.rows(asked)] == ["ask"]


@pytest.mark.long
async def test_pause_lets_running_sessions_end_and_starts_no_new_one_until_resume(tmp_path: Path) -> None:
    slow = [{**look(), "delay_seconds": 1}, conclude()]
    async with operator(tmp_path, haiku=slow) as node:
        async with node.daemon(CLAUDEOPS_INTERVAL="1") as daemon:
            await daemon.until_logged("session_spawned")
            done = await node.run("pause", "--reason", "the\ncluster moves")
            assert done.stdout.rstrip().endswith(": the cluster moves; running sessions finish")
            await node.until("SELECT * FROM sessions WHERE outcome = 'success'", lambda rows: len(rows) == 1)
        async with node.daemon(CLAUDEOPS_INTERVAL="1") as again:
            await again.until_logged("daemon_ready")
            status = json.loads((tmp_path / "state" / "daemon.json").read_text())
            assert [hold["kind"] for hold in status["holds"]] == ["paused"]
            health = await node.run("health")
            assert (health.code, "starts no session: paused by " in health.stdout) == (0, True), health
            assert node.rows("SELECT * FROM sessions WHERE status = 'running'") == []
            resumed = await node.run("resume", "--output-format", "json")
            assert (resumed.code, resumed.document["handled"]) == (0, True)
            await node.until("SELECT * FROM sessions WHERE status = 'ended'", lambda rows: len(rows) >= 2)


async def test_pause_with_stop_ends_running_sessions_as_paused(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look("sleep 60"), conclude()]) as node, node.daemon() as daemon:
        await node.until("SELECT * FROM tool_calls", lambda rows: len(rows) > 0)
        done = await node.run("pause", "--stop", "--output-format", "json")
        assert (done.document["stopping"], done.document["daemon_running"]) == (True, True)
        assert (done.document["acknowledged"], done.document["result"]) == (True, "1 sessions were asked to stop")
        await node.until("SELECT * FROM sessions WHERE status = 'ended'", lambda rows: len(rows) == 1)
        await daemon.until_logged("order_taken")
        (session,) = node.sessions()
        assert (session["outcome"], session["decision_reason"]) == ("cancelled", "paused")
        (order,) = node.rows("SELECT * FROM commands")
        assert (order["name"], order["result"]) == ("stop_sessions", "1 sessions were asked to stop")
        await until(lambda: node.processes_of_sessions() == [])


async def test_pause_works_without_a_daemon_and_holds_the_next_one(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        done = await node.run("pause", "--stop")
        assert done.stdout.rstrip().endswith("; no daemon runs")
        assert node.rows("SELECT * FROM commands") == []
        async with node.daemon() as daemon:
            await daemon.until_logged("daemon_ready")
            status = json.loads((tmp_path / "state" / "daemon.json").read_text())
            assert [hold["kind"] for hold in status["holds"]] == ["paused"]
            health = await node.run("health")
            assert (health.code, "starts no session: paused by " in health.stdout) == (0, True), health
            await node.until("SELECT * FROM schedule_fires", lambda rows: len(rows) == 1)
        assert node.rows("SELECT * FROM sessions WHERE status != 'queued'") == []
        held = await node.bootstrap("--output-format", "json")
        assert (held.code, held.document["sysexit"], held.document["decision"]) == (1, 75, "paused")
        again = await node.run("resume")
        assert again.stdout == "sessions are started again\n"
        assert (await node.run("resume")).stdout == "it was not paused\n"


async def test_audit_verify_names_what_was_changed_taken_out_and_put_in(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), look("df -h /"), look("cat /etc/shadow"), conclude()]) as node:
        log = tmp_path / "operator.log"
        log.write_text((await node.bootstrap()).stderr, encoding="utf-8")
        clean = await node.run("audit", "verify", "--log", str(log))
        assert (clean.code, clean.stdout) == (
            0,
            "as it was written: 1 sessions, 4 tool calls, 0 tombstones, 1 heads of the log\n",
        )
        with closing(sqlite3.connect(node.database)) as connection, connection:
            connection.execute("UPDATE tool_calls SET verdict = 'allow' WHERE id = 3")
            connection.execute("DELETE FROM tool_calls WHERE id = 4")
        found = await node.run("audit", "verify", "--output-format", "json")
        assert (found.code, found.document["verified"]) == (1, False)
        faults = found.document["faults"]
        assert isinstance(faults, list)
        assert [(fault["kind"], fault["call_id"]) for fault in faults] == [("changed", 3), ("missing", None)]
        with closing(sqlite3.connect(node.database)) as connection, connection:
            connection.execute("DELETE FROM tool_calls")
            connection.execute("UPDATE sessions SET audit_head = '', audit_results = NULL")
        assert (await node.run("audit", "verify", "--session", "1")).code == 0
        against = await node.run("audit", "verify", "--session", "1", "--log", str(log))
        assert against.code == 1
        assert "its calls do not end in the head that the log has" in against.stderr
