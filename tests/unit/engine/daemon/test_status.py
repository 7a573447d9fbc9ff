"""A daemon that lives is not called dead, and a dead or hung one is not called alive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claudeops.engine.daemon.liveness import HUNG_SECONDS, look

STATUS: dict[str, object] = {
    "ready": True,
    "reason": None,
    "pid": 4711,
    "owner": "me",
    "process_started_at": 1.0,
    "boot_id": "boot",
    "written_monotonic": 1000.0,
    "running": [{"session_id": 7, "chain": 7, "tier": 1}],
    "something_of_a_later_version": {},
}


def written(directory: Path, **changes: object) -> Path:
    file = directory / "daemon.json"
    file.write_text(json.dumps({**STATUS, **changes}), encoding="utf-8")
    return file


def test_a_ready_daemon_lives(tmp_path: Path) -> None:
    found = look(written(tmp_path), alive=lambda owner: owner.pid == 4711, monotonic=1005.0)
    assert (found.lives, found.says) == (True, "The daemon (pid 4711) is ready; 1 session runs.")


def test_a_daemon_whose_database_is_away_lives(tmp_path: Path) -> None:
    file = written(tmp_path, ready=False, reason="the database is locked")
    found = look(file, alive=lambda _: True, monotonic=1005.0)
    assert found.lives
    assert "the database is locked" in found.says


def test_a_daemon_that_starts_nothing_says_why(tmp_path: Path) -> None:
    paused = {"kind": "paused", "reason": "paused by ada: the cluster moves", "since": "2026-03-01T12:00:00Z"}
    parked = {"kind": "parked", "reason": "the rate limit is reached.", "until": "2026-03-01T13:00:00Z"}
    file = written(tmp_path, holds=[{**paused, "until": None}, parked])

    found = look(file, alive=lambda _: True, monotonic=1005.0)

    assert found.lives
    assert found.says == (
        "The daemon (pid 4711) is ready, but starts no session: paused by ada: the cluster moves; the rate limit is"
        " reached (until 2026-03-01 13:00:00 UTC); 1 session runs."
    )
    assert found.status is not None
    assert [hold.kind for hold in found.status.holds or ()] == ["paused", "parked"]


@pytest.mark.parametrize("holds", [None, []])
def test_without_a_hold_a_ready_daemon_is_just_ready(tmp_path: Path, holds: list[object] | None) -> None:
    found = look(written(tmp_path, holds=holds), alive=lambda _: True, monotonic=1005.0)
    assert found.says == "The daemon (pid 4711) is ready; 1 session runs."


def test_a_file_without_its_process_is_a_dead_daemon(tmp_path: Path) -> None:
    found = look(written(tmp_path), alive=lambda _: False, monotonic=1005.0)
    assert (found.lives, "4711" in found.says) == (False, True)


def test_a_process_that_writes_no_more_has_hung(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert look(file, alive=lambda _: True, monotonic=1000.0 + HUNG_SECONDS).lives
    hung = look(file, alive=lambda _: True, monotonic=1001.0 + HUNG_SECONDS)
    assert (hung.lives, "91 s" in hung.says) == (False, True)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', '{"ready": true, "pid": 1}'])
def test_a_damaged_file_is_no_life(content: str, tmp_path: Path) -> None:
    (tmp_path / "daemon.json").write_text(content, encoding="utf-8")
    assert not look(tmp_path / "daemon.json", alive=lambda _: True, monotonic=0.0).lives


def test_no_file_is_no_daemon(tmp_path: Path) -> None:
    found = look(tmp_path / "daemon.json", alive=lambda _: True, monotonic=0.0)
    assert (found.lives, str(tmp_path) in found.says) == (False, True)
    assert "CLAUDEOPS_STATE_DIR" in found.says


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "daemon.json").mkdir()
    assert "cannot be read" in look(tmp_path / "daemon.json", alive=lambda _: True, monotonic=0.0).says


@pytest.mark.parametrize(
    ("roles", "missing"),
    [
        (["alerts", "notices", "probes:north", "schedules", "upkeep"], []),
        (["alerts", "probes"], ["notices", "schedules", "upkeep"]),
        (None, []),  # of an earlier version, which says nothing
    ],
)
def test_a_daemon_says_which_work_it_leaves_to_another(
    tmp_path: Path, roles: list[str] | None, missing: list[str]
) -> None:
    found = look(written(tmp_path, **{} if roles is None else {"roles": roles}), alive=lambda _: True, monotonic=1005.0)
    assert found.status is not None
    assert list(found.status.missing_roles()) == missing
