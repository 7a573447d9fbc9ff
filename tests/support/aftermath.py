"""What must hold of a node after any session, however it went: in the database, in its files, in the process table."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

from claudeops.engine.process.tree import marked, marks_below
from support.estate import Estate


def runs(pid: int) -> bool:
    """Whether a process lives; one that only waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def processes_of(module: str, parent: int | None = None) -> list[psutil.Process]:
    """Return the processes below another one (this, if none is given) that run a module; others may end meanwhile."""
    found = []
    for each in psutil.Process(parent).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found += [each] if module in each.cmdline() else []
    return found


def assert_settled(estate: Estate) -> None:
    """Every session that was claimed has ended with an outcome and a decision, its log is whole, nothing runs."""
    assert marked(marks_below(estate.context.sessions_dir)) == frozenset()
    assert list(estate.context.sessions_dir.glob("*")) == [], "a workspace was left"
    for row in estate.rows("SELECT * FROM sessions WHERE status <> 'queued'"):
        assert row["status"] == "ended", f"session {row['id']} is {row['status']}"
        assert row["outcome"] is not None
        assert row["decision_reason"] is not None
        _assert_whole(Path(str(row["log_path"])))


def _assert_whole(log: Path) -> None:
    """Every line of a log has its entry in the index, in order; the last one is complete."""
    lines = log.read_bytes().splitlines(keepends=True)
    entries = [entry.split("\t") for entry in log.with_suffix(".index").read_text(encoding="ascii").splitlines()]
    assert [int(number) for number, *_ in entries] == list(range(1, len(lines) + 1))
    assert all(line.endswith(b"\n") for line in lines)
