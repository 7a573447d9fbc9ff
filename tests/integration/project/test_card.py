"""The capacity card can be printed. What it says is not looked at: no test has a stopwatch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import card, soak
from support.checkout import TESTS
from support.forks import can_fork


def test_the_card_names_the_machine_and_the_lines_that_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--repeats", "1", "--stream-mib", "0.1", "--directory", str(tmp_path)]
    card.main(["--line", "intake", *small])

    printed = capsys.readouterr().out
    assert all(f"{fact}  " in printed for fact in ("processor", "memory", "system", "files", "load"))
    assert all(f"{line} " in printed for line in ("200 B", "5 KB", "200 KB", "5 MB"))
    assert "resident (RSS) " not in printed
    assert list(tmp_path.iterdir()) == []


def test_what_the_card_measures_is_started_and_not_forked() -> None:
    asked = "from support.forks import can_fork; raise SystemExit(can_fork({}))"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TESTS)}
    assert subprocess.run([sys.executable, "-c", asked], env=environment, check=False).returncode == 0
    assert can_fork({})  # as tests do: else the line above would say nothing


def test_pictures_are_drawn_without_a_script_and_leave_no_finder_of_old_behind(tmp_path: Path) -> None:
    draw = """
import sys
from pathlib import Path
from benchmarks.pictures import draw_growth, draw_latencies
place = Path(sys.argv[1])
draw_latencies(place / "latencies.svg", {"gate": [4.0, 9.5, 5.0], "next tier": [120.0, 180.0]})
draw_growth(place / "growth.svg", title="It grows", along="rows", unit="ms", curves={"gate": [(10, 4.0), (1000, 5.0)]})
raise SystemExit(not all(hasattr(finder, "find_spec") for finder in sys.meta_path))
"""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TESTS)}
    done = subprocess.run([sys.executable, "-c", draw, str(tmp_path)], env=environment, check=False)
    assert done.returncode == 0
    latencies, growth = ((tmp_path / f"{name}.svg").read_text(encoding="utf-8") for name in ("latencies", "growth"))
    assert all(text in latencies for text in ("gate (3)", "next tier (2)", "milliseconds"))
    assert "It grows" in growth
    assert "<script" not in latencies + growth


@pytest.mark.long
@pytest.mark.timeout(1200)  # it starts nine daemons
def test_the_card_names_the_machine_and_every_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--repeats", "1", "--stream-mib", "0.1", "--burst", "20", "--probes", "20", "--probe-minutes", "0.1"]
    card.main([*small, "--alert-seconds", "1", "--directory", str(tmp_path)])

    printed = capsys.readouterr().out
    assert all(f"{fact}  " in printed for fact in ("processor", "memory", "system", "files", "load"))
    assert all(f"{line} " in printed for line in ("200 B", "5 KB", "200 KB", "5 MB", "first byte", "whole answers"))
    for line in ("this disk's fsync", "due → spawned", "result → spawned", "ready → all claimed", "known database"):
        assert f"{line} " in printed
    for line in ("no first frame", "silence", "an open tool call", "the wall clock", "alive after its result"):
        assert f"{line} " in printed
    assert "claimed, run, ended  " in printed
    assert "resident (RSS) " in printed
    assert "https, verified " in printed
    assert "claudeops status " in printed
    assert "looks begin late: p99 " in printed
    assert "2000 alerts that repeat " in printed
    assert "MB per CPU s " in printed
    assert "gate, upkeep runs " in printed
    assert "Gate of the installed daemon: " in printed
    assert "Gate on PostgreSQL, " in printed
    assert "Burst on PostgreSQL: " in printed
    assert "a snapshot, ms " in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_sessions_in_a_row_are_run_and_what_the_daemon_holds_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = soak.main(["--sessions", "4", "--part", "2", "--directory", str(tmp_path)])

    printed = capsys.readouterr().out
    assert [line.split(":")[0].strip() for line in printed.splitlines()[:2]] == ["2 sessions", "4 sessions"]
    assert "4 sessions in " in printed
    assert ", 0 of them not as they should be." in printed
    assert status in {0, 1}  # a daemon that has just started still grows
    assert list(tmp_path.iterdir()) == []
