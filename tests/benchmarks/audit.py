"""What `claudeops audit verify` takes of a million calls, and for how long it holds a snapshot."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Final, TypeVar

import anyio
from sqlalchemy.engine import Connection

from benchmarks.lists import fill
from benchmarks.table import Setup, Table, spread, verdict
from claudeops.policy.audit import row_hash, seal
from claudeops.store.database import Database, open_database
from claudeops.store.verify import AuditTrail
from support.migrated import write_migrated

T = TypeVar("T")

SNAPSHOT_MILLISECONDS: Final = 200.0
"""What a snapshot stays below: as long as it lasts, SQLite's log is not started over."""

# What the kernel says of an ended child (`ru_maxrss`) is at least what its parent held when it was started.
_COMMAND: Final = """
import sys
from claudeops.cli.main import main
try:
    main()
finally:
    held = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(held.split()[1], file=sys.stderr)
"""

_READ: Final = (
    *("id", "session_id", "tool_use_id", "agent_id", "tool_name", "input", "verdict", "reason", "ran"),
    *("requested_at", "decided_at", "ended_at", "is_error"),
)


def verified(setup: Setup) -> Table:
    """Measure the command as a process, and its pages in this one."""
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        file = Path(name) / "claudeops.db"
        write_migrated(file)
        fill(file)
        calls = _chained(file)
        seconds, mib, used = _command(file)
        snapshots = anyio.run(_snapshots, file)
    met = verdict(met=max(snapshots) <= SNAPSHOT_MILLISECONDS)
    return Table(
        title=f"Audit: `claudeops audit verify` of {calls:,} calls (SQLite)",
        columns=("", "count", "median", "p99", "longest", "target, each"),
        rows=[
            ("the command, seconds", "1", "", "", f"{seconds:.1f}", ""),
            ("its processor time, seconds", "1", "", "", f"{used:.1f}", ""),
            ("resident (RSS) at most, MiB", "1", "", "", f"{mib:.0f}", ""),
            ("a snapshot, ms", str(len(snapshots)), *spread(snapshots), f"{SNAPSHOT_MILLISECONDS:g} ({met})"),
        ],
        notes=("Beside the other rows of the line `history`. It writes nothing. Snapshots: in this process.",),
        samples={"a snapshot of audit verify": snapshots},
    )


def _command(file: Path) -> tuple[float, float, float]:
    """Return how many seconds the command takes, how much it held at most, and its processor seconds."""
    environment = {
        "PATH": os.environ["PATH"],
        "CLAUDEOPS_DATABASE_URL": f"sqlite:///{file}",
        "CLAUDEOPS_STATE_DIR": str(file.parent),
    }
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "audit", "verify"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        printed, held = process.stdout.read(), process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise AssertionError(f"the trail is not as it was written: {printed[:500]}")
    return time.perf_counter() - began, int(held) / 1024, used.ru_utime + used.ru_stime


async def _snapshots(file: Path) -> list[float]:
    """Return milliseconds of each snapshot of a verification."""
    database = open_database(f"sqlite:///{file}")
    taken: list[float] = []
    try:
        found = await AuditTrail(_Timed(database, taken)).verify()  # type: ignore[arg-type]
    finally:
        await database.close()
    if not found.verified:
        raise AssertionError(found.faults[:3])
    return taken


class _Timed:
    """Reads as a database does, and notes for how long."""

    def __init__(self, database: Database, taken: list[float]) -> None:
        self._database = database
        self._taken = taken

    async def read(self, query: Callable[[Connection], T]) -> T:
        def timed(connection: Connection) -> T:
            began = time.perf_counter()
            try:
                return query(connection)
            finally:
                self._taken.append((time.perf_counter() - began) * 1000)

        return await self._database.read(timed)


def _chained(file: Path) -> int:
    """Link the calls that were filled in, as the gate does, and seal their sessions; return how many calls."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        with closing(sqlite3.connect(file)) as source, connection:
            query = f"SELECT {', '.join(_READ)} FROM tool_calls ORDER BY session_id, id"  # noqa: S608
            rows = (SimpleNamespace(**dict(zip(_READ, row, strict=True))) for row in source.execute(query))
            heads = []
            count = 0
            for session_id, calls in groupby(rows, lambda row: row.session_id):
                linked = list(_linked(calls))
                count += len(linked)
                links = [(call.previous_hash, call.hash, call.id) for call in linked]
                connection.executemany("UPDATE tool_calls SET previous_hash = ?, hash = ? WHERE id = ?", links)
                heads.append((linked[-1].hash, seal(linked), session_id))
            connection.executemany("UPDATE sessions SET audit_head = ?, audit_results = ? WHERE id = ?", heads)
    return count


def _linked(calls: Iterator[SimpleNamespace]) -> Iterator[SimpleNamespace]:
    previous = ""
    for call in calls:
        call.previous_hash = previous
        call.requested_at, call.decided_at = _moment(call.requested_at), _moment(call.decided_at)
        call.hash = previous = row_hash(call)
        yield call


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
