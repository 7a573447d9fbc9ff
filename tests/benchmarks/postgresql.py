"""The gate and a burst on PostgreSQL: a server of its own, whose commits are on the disk that is measured."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio

from benchmarks.burst import SHARE, SLOTS, WORK_SECONDS, asleep, burst
from benchmarks.gate import TARGET_MILLISECONDS, fsyncs, measured
from benchmarks.table import Setup, Table, percentile, shown, spread, verdict
from claudeops.settings.files import packaged
from claudeops.store.migrate import migrate
from support.passable import let_pass
from support.postgres import Server, running_server

_RUNS: Final = 3  # at most: each takes several seconds


def gate(setup: Setup) -> Table:
    """Measure the gate as its line for SQLite does."""
    with server_of(setup) as server:
        taken = anyio.run(measured, setup, migrated(server, setup))
    p99, disk = percentile(taken, 0.99), percentile(fsyncs(setup.directory, len(taken)), 0.99)
    most = TARGET_MILLISECONDS + disk
    return Table(
        title="Gate on PostgreSQL, a part: as in the line `gate`",
        columns=("", "calls", "median ms", "p99 ms", "longest ms", "target p99"),
        rows=[("gate", str(len(taken)), *spread(taken), f"{most:.2f} ({verdict(met=p99 <= most)})")],
        notes=_NOTES,
        samples={"gate on PostgreSQL": taken},
    )


def rate(setup: Setup) -> Table:
    """Measure a burst as its line for SQLite does."""
    pairs = []
    with server_of(setup) as server:
        for _ in range(min(setup.repeats, _RUNS)):
            slept = anyio.run(asleep, setup.burst)
            pairs.append((slept, *anyio.run(burst, setup, migrated(server, setup))))
    share = statistics.median(ran / slept for slept, ran, _ in pairs)
    return Table(
        title=f"Burst on PostgreSQL: {setup.burst} sessions, {SLOTS} slots, {WORK_SECONDS * 1000:g} ms of work each",
        columns=("", "runs", "a second", "of the baseline", "target", "processor ms each"),
        rows=[
            ("baseline: only sleep", str(len(pairs)), shown([slept for slept, _, _ in pairs]), "", "", ""),
            (
                "claimed, run, ended",
                str(len(pairs)),
                shown([ran for _, ran, _ in pairs]),
                f"{share:.0%}",
                f"{SHARE:.0%} ({verdict(met=share >= SHARE)})",
                shown([used * 1000 for _, _, used in pairs], 1),
            ),
        ],
        notes=(*_NOTES, "Processor: of this process alone, the server's not counted."),
    )


_NOTES: Final = (
    "A server on this machine, as a user who is not root, reached by its local socket; fsync and synchronous_commit",
    "are on, its files on the disk that is measured. All else as in the line for SQLite.",
)


@contextmanager
def server_of(setup: Setup) -> Iterator[Server]:
    """Have a server whose files are in the directory that is measured."""
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        let_pass(Path(name))
        data = Path(name) / "data"
        with running_server(data_directory=data) as server:
            yield server
        shutil.rmtree(data)


def migrated(server: Server, setup: Setup) -> str:
    """Return the address of a new database with every table."""
    url = server.url(server.create())
    migrate(url, migrations_dir=packaged("migrations"), backup_dir=setup.directory)
    return url
