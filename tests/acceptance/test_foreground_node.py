"""A chain in the foreground, where no daemon runs, is a node: it shows life, and stops what it no longer has."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest

from support.estate import deliver, look, report
from support.operating import COMMAND, Completed, Daemon, Operator
from support.stand_in_daemon import stand_in_node, told
from support.waiting import until

pytestmark = pytest.mark.anyio

OWNERS = "SELECT instances.heartbeat FROM instances JOIN sessions ON sessions.owner = instances.owner"
TAKEN = "UPDATE sessions SET attempt = attempt + 1, owner = 'another'"


async def test_foreground_chain_shows_that_it_lives_and_stops_a_session_that_another_has_taken_over(
    tmp_path: Path,
) -> None:
    ended: list[Completed] = []
    async with stand_in_node(tmp_path) as node:
        node.script(look("toolu_1"), {"hang": True})

        async def run() -> None:
            ended.append(await node.operator.bootstrap(**node.settings()))

        def shown() -> set[object]:
            return {row["heartbeat"] for row in node.operator.rows(OWNERS)}

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: len(node.operator.rows("SELECT id FROM tool_calls")) == 1)
            first = shown()
            assert len(first) == 1
            await until(lambda: not shown() & first)
            with node.operator.connect() as connection:
                connection.exec_driver_sql(TAKEN)
            await until(lambda: node.operator.processes_of_sessions() == [])
            with node.operator.connect() as connection:  # the other one has ended it
                connection.exec_driver_sql("UPDATE sessions SET status = 'ended', outcome = 'lost'")

        (session,) = node.operator.sessions()
        assert (session["owner"], session["outcome"], session["exit_code"]) == ("another", "lost", None)
    assert ended[0].code == 1
    assert '"stale_attempt"' in ended[0].stderr


async def test_second_chain_in_the_foreground_waits_for_the_end_of_the_first_and_runs(tmp_path: Path) -> None:
    async with stand_in_node(tmp_path) as node:
        signals = tmp_path / "signals"
        signals.mkdir()
        node.script(look("toolu_1"), {"await": str(signals / "go")}, deliver(report()))
        settings = node.settings(CLAUDEOPS_TIER1_ENV="STAND_IN_STEPS,SIGNALS", SIGNALS=str(signals))

        def chain(operator: Operator, name: str) -> AbstractAsyncContextManager[Daemon]:
            operator.runs = (*COMMAND, "bootstrap", "--prompt", name)
            return operator.daemon(**settings)

        async with chain(node.operator, "first") as first:
            await until(lambda: len(node.operator.rows("SELECT id FROM tool_calls")) == 1)
            detached = await node.operator.bootstrap("--detach", "--prompt", "third", **settings)
            async with chain(node.operator, "second") as second:
                await second.until_logged("chain_waits")
                (signals / "go").touch()
                assert [await first.process.wait(), await second.process.wait()] == [0, 0]
        sessions = node.operator.sessions()
    assert [(row["prompt_text"], row["status"], row["outcome"]) for row in sessions] == [
        ("first", "ended", "success"),
        ("second", "ended", "success"),
    ]
    assert detached.code == 75
    assert "No daemon runs on this database, so nothing was queued." in detached.stderr
    assert [len(told(each, "chain_waits")) for each in (first, second)] == [0, 1]
