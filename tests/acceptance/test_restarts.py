"""A daemon that is started again goes on with its schedule: it buys no chain that is not due, and misses none."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from support.estate import deliver, look, report
from support.stand_in_daemon import StandInNode, stand_in_node, told

pytestmark = pytest.mark.anyio

FIRES: Final = "SELECT * FROM schedule_fires ORDER BY due_at"
MONTHLY: Final = {"CLAUDEOPS_INTERVAL": "2678400"}
YEARLY: Final = {"CLAUDEOPS_INTERVAL": "", "CLAUDEOPS_CRON": "30 4 1 1 *", "CLAUDEOPS_TIMEZONE": "Asia/Kathmandu"}
JITTERED: Final = {**MONTHLY, "CLAUDEOPS_JITTER": "86400"}
CADENCES: Final = [
    pytest.param(MONTHLY, id="interval"),
    pytest.param(YEARLY, id="crontab", marks=pytest.mark.long),
    pytest.param(JITTERED, id="jitter", marks=pytest.mark.long),
]


async def run_until_idle(node: StandInNode, environment: Mapping[str, str]) -> list[dict[str, object]]:
    """Run a daemon until its schedule is kept, and the chain that it says it starts has ended; return what it said."""
    node.script(look(), deliver(report()))
    async with node.daemon(**environment) as daemon:
        await daemon.until_logged("daemon_ready")
        await daemon.until_logged("schedule_kept")
        (kept,) = told(daemon, "schedule_kept")
        if datetime.fromisoformat(str(kept["next_fire"])) <= datetime.fromisoformat(str(kept["timestamp"])):
            await daemon.until_logged("decision_made")
        assert await daemon.stop() == 0
    return list(told(daemon, "schedule_kept", "schedule_fired", "session_claimed"))


@pytest.mark.parametrize("environment", CADENCES)
async def test_the_first_start_ever_looks_at_once_and_a_restart_before_the_next_due_time_does_not(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    async with stand_in_node(tmp_path) as node:
        first = await run_until_idle(node, environment)
        again = [await run_until_idle(node, environment) for _ in range(2)]
        fires = node.operator.rows(FIRES)
        sessions = node.operator.sessions()
    assert [line["event"] for line in first] == ["schedule_kept", "schedule_fired", "session_claimed"]
    assert [[line["event"] for line in lines] for lines in again] == [["schedule_kept"]] * 2
    assert len(fires) == len(sessions) == 1
    assert again[0][0]["last_due"] == first[1]["due_at"]
    assert datetime.fromisoformat(str(again[0][0]["next_fire"])) > datetime.now(UTC)


@pytest.mark.parametrize("environment", CADENCES)
async def test_what_was_missed_while_no_daemon_ran_is_caught_up_by_one_chain(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    async with stand_in_node(tmp_path) as node:
        await run_until_idle(node, environment)
        with node.operator.connect() as connection:
            long_ago = datetime.now(UTC) - timedelta(days=5 * 366)
            connection.exec_driver_sql(f"UPDATE schedule_fires SET due_at = '{long_ago:%Y-%m-%d %H:%M:%S.%f}'")  # noqa: S608 - a time
        missed = await run_until_idle(node, environment)
        again = await run_until_idle(node, environment)
        fires = node.operator.rows(FIRES)
    assert [line["event"] for line in missed] == ["schedule_kept", "schedule_fired", "session_claimed"]
    assert [line["event"] for line in again] == ["schedule_kept"]
    assert len(fires) == 2


async def test_a_daemon_that_was_killed_within_the_interval_takes_its_session_up_and_buys_no_chain(
    tmp_path: Path,
) -> None:
    async with stand_in_node(tmp_path) as node:
        node.script({"hang": True})
        async with node.daemon(**MONTHLY) as daemon:
            await daemon.until_logged("session_spawned")
            daemon.process.kill()
            await daemon.process.wait()
        node.script(look(), deliver(report()))
        async with node.daemon(**MONTHLY) as again:
            await again.until_logged("decision_made")
            await node.until_idle()
            assert await again.stop() == 0
        assert [row["trigger"] for row in node.operator.sessions()] == ["scheduled", "recovery"]
        assert len(node.operator.rows(FIRES)) == 1
