"""How fast a session's output is read, redacted, logged and taken apart, beside ``tee`` on the same bytes.

A part of what a session does with a line; `stream_daemon` measures the whole.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import UNIXSocketStream

from benchmarks import frames
from benchmarks.table import Setup, Table, shown
from claudeops.clock import Clock
from claudeops.engine.session_log.writer import CHUNK_BYTES, OutputReader, SessionLog
from claudeops.formats.stream import TranscriptBuilder
from claudeops.text.redact import Redactor

LEAST_OF_TEE: Final = 0.35
LEAST_LINES: Final = 50_000

_LINES: Final = {"200 B": 200, "5 KB": 5_000, "200 KB": 200_000, "5 MB": 5_000_000}
_SHORT_LINES: Final = 1000  # bytes; below, lines count and not bytes
_SHORT_STREAM: Final = 4  # so many times less of short lines, which take as long
_SECRETS: Final = ("sk-ant-api03-NeverInTheStream-0123456789", "a password of the operator's")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Times:
    """How long it took, in seconds."""

    written: float  # until the last write to the page cache
    synced: float  # until it was on the disk


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """One run of both on one stream."""

    lines: int
    ours: _Times
    tee: _Times

    @property
    def of_tee(self) -> float:
        return self.tee.written / self.ours.written

    @property
    def of_tee_synced(self) -> float:
        return self.tee.synced / self.ours.synced


def throughput(setup: Setup) -> Table:
    """Measure; each run of ours stands beside one of ``tee``, because machines have better and worse moments."""
    return Table(
        title="Intake, a part of a stream: a CLI's output → lines → redacted → log and index → frames → transcript",
        columns=("line", "MB/s", "lines/s", "tee MB/s", "of tee", "fsynced MB/s", "of tee fsynced", "target"),
        rows=[_row(name, line_bytes, setup) for name, line_bytes in _LINES.items()],
        notes=(
            "Median (least-most) of paired runs. The producer is a process of its own that writes each frame with one",
            "write to a socket pair. Both end with the last write to the page cache (ours has asked the disk for",
            "what is older by then), and, fsynced, on the disk, as a session does before it acts on its result line.",
            f"Target: {LEAST_OF_TEE} of tee; of the shortest lines {LEAST_LINES} a second.",
        ),
    )


def _row(name: str, line_bytes: int, setup: Setup) -> tuple[str, ...]:
    short = line_bytes < _SHORT_LINES
    content = frames.stream(line_bytes, setup.stream_bytes // (_SHORT_STREAM if short else 1))
    path = setup.directory / "stream"
    path.write_bytes(content)
    runs = [_run(path, content) for _ in range(setup.repeats)]
    path.unlink()
    megabytes = len(content) / 1e6
    lines_per_second = [run.lines / run.ours.written for run in runs]
    of_tee = [run.of_tee for run in runs]
    met = statistics.median(lines_per_second) >= LEAST_LINES if short else statistics.median(of_tee) >= LEAST_OF_TEE
    return (
        name,
        shown([megabytes / run.ours.written for run in runs]),
        shown(lines_per_second),
        shown([megabytes / run.tee.written for run in runs]),
        shown(of_tee, 2),
        shown([megabytes / run.ours.synced for run in runs]),
        shown([run.of_tee_synced for run in runs], 2),
        "met" if met else "MISSED",
    )


def _run(path: Path, content: bytes) -> _Run:
    tee = _tee(path)
    lines, ours = anyio.run(_taken_in, path)
    if lines != content.count(b"\n"):
        raise AssertionError("lines were lost")
    return _Run(lines=lines, ours=ours, tee=tee)


@dataclass(frozen=True, kw_only=True, slots=True)
class Producer:
    """A process that is ready to print a stream."""

    process: subprocess.Popen[bytes]
    output: socket.socket  # the end that is read

    def begin(self) -> float:
        """Let it begin; return when that was."""
        if self.process.stdin is None:
            raise AssertionError("stdin was asked for as a pipe")
        started = time.perf_counter()
        self.process.stdin.write(b"\n")
        self.process.stdin.close()
        return started


@contextmanager
def playing(path: Path) -> Iterator[Producer]:
    """Start a producer and wait until it is ready."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("producer.py")), str(path)]
    pipe = subprocess.PIPE
    with ours, subprocess.Popen(command, stdin=pipe, stdout=theirs.fileno(), stderr=pipe) as process:
        theirs.close()
        if process.stderr is None or process.stderr.readline() != b"ready\n":
            raise AssertionError("the producer did not start")
        yield Producer(process=process, output=ours)


def _tee(path: Path) -> _Times:
    """Return how long ``tee`` takes, and then its file to the disk."""
    copy = path.with_name("copy")
    with playing(path) as producer:
        with subprocess.Popen(["tee", str(copy)], stdin=producer.output.fileno(), stdout=subprocess.DEVNULL) as tee:
            started = producer.begin()
            tee.wait()
            ended = time.perf_counter()
        with copy.open("rb+") as file:
            os.fsync(file.fileno())
        synced = time.perf_counter()
    copy.unlink()
    return _Times(written=ended - started, synced=synced - started)


async def _taken_in(path: Path) -> tuple[int, _Times]:
    """Return how many lines came, and how long it took."""
    log = path.with_name("session-000001.ndjson")
    reader = TranscriptBuilder()
    with playing(path) as producer:
        async with SessionLog(log) as sink, await UNIXSocketStream.from_socket(producer.output) as stdout:
            with OutputReader(redactor=Redactor(_SECRETS), sink=sink, clock=Clock()) as intake:
                started = producer.begin()
                await _read(stdout, intake, reader)
            await _written(log, path.stat().st_size)
            written = time.perf_counter()
            await sink.sync()
            synced = time.perf_counter()
            if sink.failed is not None:
                raise sink.failed
    for suffix in (".ndjson", ".index", ".stderr"):
        log.with_suffix(suffix).unlink()
    return reader.close().lines, _Times(written=written - started, synced=synced - started)


async def _written(log: Path, size: int) -> None:
    """Wait for the log's own thread."""
    while log.stat().st_size < size:  # noqa: ASYNC110 - nobody else is told when a write is done
        await anyio.sleep(0.0002)


async def _read(stdout: UNIXSocketStream, intake: OutputReader, reader: TranscriptBuilder) -> None:
    """Do what a conversation does with every line, but for answering."""
    while True:
        try:
            chunk = await stdout.receive(CHUNK_BYTES)
        except anyio.EndOfStream:
            break
        for taken in intake.push(chunk):
            reader.feed(taken.kept)
    for taken in intake.flush():
        reader.feed(taken.kept)
