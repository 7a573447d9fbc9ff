"""How fast the installed daemon takes in what a CLI prints, and what it holds meanwhile, beside ``tee``.

Everything that a session does with a line is part of it: its supervision, the frames of its harness, its clocks and
budgets, the gate's bookkeeping, the facts for those who watch, and the log.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import anyio

from benchmarks import frames
from benchmarks.stream import playing
from benchmarks.table import Setup, Table, shown, verdict
from claudeops.clock import Clock
from support.estate import deliver, look, report
from support.held import held_mib
from support.operating import Daemon
from support.stand_in_daemon import StandInNode, stand_in_node, told
from support.waiting import until

LEAST_OF_TEE: Final = 0.3
LEAST_LINES: Final = 60_000
MOST_MIB: Final = 160.0
"""Resident, at any time while a CLI writes."""
BACK_WITHIN_MIB: Final = 16.0
"""Resident, once a stream is over, of what it was before."""

_LINES: Final = {"200 B": 200, "5 KB": 5_000, "200 KB": 200_000}
_SHORT_LINES: Final = 1000  # bytes; below, lines count and not bytes
_CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
_FORGET_PEAK: Final = "5"  # proc(5), clear_refs
PLAYED: Final = "STAND_IN_STREAM"
_PATIENCE_SECONDS: Final = 600.0
QUIET_SECONDS: Final = 3.0  # after a session: what it has freed is given back within this time


@dataclass(frozen=True, kw_only=True, slots=True)
class _Taken:
    """What one stream took."""

    lines: int
    megabytes: float
    seconds: float  # between the first line and the last
    cpu: float  # seconds of the processor


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """One stream through the daemon, and the same through ``tee``."""

    ours: _Taken
    tee: _Taken
    mib: tuple[float, float, float]  # before, at most and after

    @property
    def of_tee(self) -> float:
        return self.tee.seconds / self.ours.seconds

    @property
    def of_tee_cpu(self) -> float:
        return self.tee.cpu / self.ours.cpu


def through_daemon(setup: Setup) -> Table:
    """Measure; each stream through the daemon stands beside one through ``tee``."""
    return Table(
        title="Stream: a CLI of the installed daemon prints → all that its session does with a line",
        columns=(
            *("line", "MB/s", "lines/s", "of tee", "MB per CPU s", "of tee's", "target"),
            *("MiB before", "at most", "after", "target"),
        ),
        rows=[_row(name, line_bytes, setup) for name, line_bytes in _LINES.items()],
        notes=(
            f"Median (least-most) of paired runs of {setup.stream_bytes / 1e6:.0f} MB; each daemon is a new one that",
            "has run a session before. The stand-in for the CLI writes each line with one write, the same for tee.",
            "From the first line to the last, as the log's index has them; of the processor all that the daemon used",
            "until the session's end was in the database. What all of it holds is the daemon's resident memory, in the",
            f"end after {QUIET_SECONDS:g} s without a session.",
            f"Target: {LEAST_OF_TEE} of tee, of the shortest lines {LEAST_LINES} a second; {MOST_MIB:g} MiB at most,",
            f"and within {BACK_WITHIN_MIB:g} MiB of before when it is over.",
        ),
    )


def _row(name: str, line_bytes: int, setup: Setup) -> tuple[str, ...]:
    short = line_bytes < _SHORT_LINES
    runs = [anyio.run(run, setup, line_bytes) for _ in range(setup.repeats)]
    lines_per_second = [run.ours.lines / run.ours.seconds for run in runs]
    of_tee = [run.of_tee for run in runs]
    fast = statistics.median(lines_per_second) >= LEAST_LINES if short else statistics.median(of_tee) >= LEAST_OF_TEE
    before, most, after = ([run.mib[at] for run in runs] for at in range(3))
    bounded = max(most) <= MOST_MIB and max(b - a for a, b in zip(before, after, strict=True)) <= BACK_WITHIN_MIB
    return (
        name,
        shown([run.ours.megabytes / run.ours.seconds for run in runs]),
        shown(lines_per_second),
        shown(of_tee, 2),
        shown([run.ours.megabytes / run.ours.cpu for run in runs]),
        shown([run.of_tee_cpu for run in runs], 2),
        verdict(met=fast),
        *(shown(values) for values in (before, most, after)),
        verdict(met=bounded),
    )


async def run(setup: Setup, line_bytes: int) -> _Run:
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        path = Path(name) / "played"
        async with stand_in_node(Path(name)) as node:
            path.write_bytes(frames.stream(line_bytes, setup.stream_bytes, calls=False))
            path.chmod(0o644)
            tee = _tee(path)
            ours, mib = await _through(node, path)
    return _Run(ours=ours, tee=tee, mib=mib)


def _tee(path: Path) -> _Taken:
    copy = path.with_name("copy")
    with playing(path) as producer:
        tee = subprocess.Popen(["tee", str(copy)], stdin=producer.output.fileno(), stdout=subprocess.DEVNULL)
        started = producer.begin()
        _, _, used = os.wait4(tee.pid, 0)
        seconds = Clock().monotonic() - started
        tee.returncode = 0
    copy.unlink()
    content = path.read_bytes()
    cpu = max(used.ru_utime + used.ru_stime, 1e-3)
    return _Taken(lines=content.count(b"\n"), megabytes=len(content) / 1e6, seconds=seconds, cpu=cpu)


async def _through(node: StandInNode, path: Path) -> tuple[_Taken, tuple[float, float, float]]:
    """Let a daemon that has run a session run one that plays a stream."""
    node.script(look(), deliver(report()))
    shown_files = f"STAND_IN_STEPS,{PLAYED}"  # a file that a variable names is shown to a session
    async with node.daemon(CLAUDEOPS_TIER1_ENV=shown_files, **{PLAYED: str(path)}) as daemon:
        await sessions_ended(daemon, 1)
        pid = daemon.process.pid
        node.script(look(frames.FIRST_CALL), {"play": PLAYED}, deliver(report()))
        before, used = held_mib(pid)[0], _cpu(pid)
        Path(f"/proc/{pid}/clear_refs").write_text(_FORGET_PEAK, encoding="ascii")
        (session,) = await node.queue(1)
        await sessions_ended(daemon, 2)
        cpu, most = _cpu(pid) - used, peak_mib(pid)
        await anyio.sleep(QUIET_SECONDS)
        after = held_mib(pid)[0]
        ended = told(daemon, "session_ended")[-1]
        if ended["outcome"] != "success":
            raise AssertionError(f"the session did not succeed: {ended}")
    log = node.root / "results" / f"session-{session:06d}.ndjson"
    return _taken(log, path, cpu), (before, most, after)


def _taken(log: Path, path: Path, cpu: float) -> _Taken:
    """Compare the log with what was played, and return how long it took."""
    content, logged = path.read_bytes(), log.read_bytes()
    begins = logged.index(content[: content.index(b"\n") + 1])
    if logged[begins : begins + len(content)] != content:
        raise AssertionError("the log is not what was printed")
    first, lines = logged.count(b"\n", 0, begins), content.count(b"\n")
    entries = log.with_suffix(".index").read_bytes().splitlines()
    began, ended = (entries[at].decode().split("\t")[2] for at in (first, first + lines - 1))
    seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
    return _Taken(lines=lines, megabytes=len(content) / 1e6, seconds=max(seconds, 1e-6), cpu=cpu)


async def sessions_ended(daemon: Daemon, count: int) -> None:
    await until(lambda: len(told(daemon, "session_ended")) >= count, _PATIENCE_SECONDS)


def _cpu(pid: int) -> float:
    """Return the processor seconds of a process itself, by user and system; those of its children do not count."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


def peak_mib(pid: int) -> float:
    """Return the most that was resident since the peak was forgotten."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
