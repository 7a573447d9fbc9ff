"""Schedules of a file, kept by the daemon as a process: over restarts, over edits, over wrong edits."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from support.operating import conclude, look, operator

pytestmark = pytest.mark.anyio

HOURLY = """
[[schedule]]
name = "hourly"
interval = "1h"
"""
FIRES = "SELECT schedule, due_at, session_id, skipped_reason FROM schedule_fires ORDER BY rowid"
FAULTS = "SELECT * FROM events WHERE session_id IS NULL"
ENDED = "SELECT * FROM sessions WHERE status = 'ended'"
OF_THE_OTHER = (
    "SELECT sessions.* FROM sessions JOIN schedule_fires ON sessions.id = schedule_fires.session_id"
    " WHERE sessions.status = 'ended' AND schedule_fires.schedule = 'other'"
)


def some(rows: Sequence[object]) -> bool:
    return len(rows) > 0


def move_back(state: Path, hours: int) -> None:
    """Make what was fired look as if it had been so many hours ago."""
    with closing(sqlite3.connect(state / "claudeops.db")) as connection:
        connection.execute(
            "UPDATE schedule_fires SET due_at = strftime('%Y-%m-%d %H:%M:%f000', due_at, ?),"
            " fired_at = strftime('%Y-%m-%d %H:%M:%f000', fired_at, ?)",
            (f"-{hours} hours", f"-{hours} hours"),
        )
        connection.commit()


@pytest.mark.long
async def test_a_restart_skips_no_fire_and_buys_none_again(tmp_path: Path) -> None:
    file = tmp_path / "schedules.toml"
    file.write_text(HOURLY)
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        async with node.daemon(CLAUDEOPS_SCHEDULES_PATH=str(file)) as daemon:
            await node.until(ENDED, some)
            assert await daemon.stop() == 0
        async with node.daemon(CLAUDEOPS_SCHEDULES_PATH=str(file)) as daemon:
            await daemon.until_logged("schedule_kept")
            await daemon.until_logged("daemon_ready")
            assert await daemon.stop() == 0
        assert len(node.rows(FIRES)) == 1
        move_back(tmp_path / "state", 3)
        async with node.daemon(CLAUDEOPS_SCHEDULES_PATH=str(file)) as daemon:
            await node.until(ENDED, lambda rows: len(rows) == 2)
            status = json.loads((tmp_path / "state" / "daemon.json").read_text())
            assert [schedule["name"] for schedule in status["schedules"]] == ["hourly"]
            assert await daemon.stop() == 0
        assert [row["skipped_reason"] for row in node.rows(FIRES)] == [None, None]


async def test_an_edit_counts_and_a_wrong_one_is_an_event_and_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "schedules.toml"
    file.write_text(HOURLY)
    async with (
        operator(tmp_path, haiku=[look(), conclude()]) as node,
        node.daemon(CLAUDEOPS_SCHEDULES_PATH=str(file)) as daemon,
    ):
        await node.until(ENDED, some)
        file.write_text(f"{HOURLY}\ncronn = 1\n")
        await node.until(FAULTS, some)
        (event,) = node.rows(FAULTS)
        assert f"{file}, line 6: the key 'cronn' is not known here" in str(event["message"])
        file.write_text(f'{HOURLY}\n[[schedule]]\nname = "other"\ninterval = "1d"\nservices = ["web"]\n')
        await node.until(OF_THE_OTHER, some)
        await node.until(f"{FAULTS} AND resolved_at IS NOT NULL", some)
        assert await daemon.stop() == 0
    # Where the hour ends meanwhile the first one fires again.
    assert {row["schedule"] for row in node.rows(FIRES)} == {"hourly", "other"}
    assert "web" in str(node.rows(OF_THE_OTHER)[0]["prompt_text"])


async def test_a_wrong_file_keeps_the_daemon_from_starting_and_the_doctor_says_where(tmp_path: Path) -> None:
    file = tmp_path / "schedules.toml"
    file.write_text(f'{HOURLY}quiet_hours = "22-6"\n')
    async with operator(tmp_path, haiku=[conclude()]) as node:
        done = await node.run("doctor", CLAUDEOPS_SCHEDULES_PATH=str(file))
        assert f"{file}, line 5: '22-6' is not a window" in done.stdout
        file.write_text(HOURLY)
        done = await node.run("doctor", CLAUDEOPS_SCHEDULES_PATH=str(file))
        assert f"1, from {file}: hourly at " in done.stdout
