"""What a long history costs: the gate, write transactions and `tail` beside a million rows, and while upkeep runs."""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from benchmarks.gate import TARGET_MILLISECONDS, Asked, answering, fsyncs
from benchmarks.lists import fill
from benchmarks.table import Setup, Table, percentile, spread, verdict
from claudeops import logs
from claudeops.clock import Clock
from claudeops.domain.listing import reference
from claudeops.domain.retention import Aged, cutoffs
from claudeops.engine.daemon.housekeeping import Housekeeping
from claudeops.engine.session_log.writer import OutputReader, SessionLog
from claudeops.store.reading import session_ids
from claudeops.store.store import Store
from claudeops.text.redact import Redactor
from support.migrated import write_migrated
from support.store_values import NOW

TRANSACTION_MILLISECONDS: Final = 50.0
"""What 99 of 100 write transactions stay below."""

LONGEST_MILLISECONDS: Final = 200.0
"""What each stays below, on top of the longest fsync."""

_CALLS_A_REPEAT: Final = 50
_LOOKS_A_REPEAT: Final = 10
_SECRETS: Final = ("sk-ant-api03-NeverInTheStream-0123456789",)
_STREAMS: Final = 4
_STREAM_RATE: Final = 1024 * 1024  # bytes a second, of each
_TEXT: Final = {"type": "text", "text": "I look at the next service. " * 180}
_LINE: Final = json.dumps({"type": "assistant", "message": {"role": "assistant", "content": [_TEXT]}}).encode() + b"\n"
_CHUNK: Final = _LINE * 12
_MANY: Final = 1_000_000
_SHARES: Final = (0.01, 0.1, 1.0)
_KINDS: Final = (Aged.EVENTS, Aged.CHECKS, Aged.CHAINS)


class _Then(Clock):
    """A time at which two thirds of all sessions and everything else is too old."""

    def now(self) -> datetime:
        return NOW + timedelta(days=30)


@dataclass(kw_only=True, slots=True)
class _Measured:
    """What was measured, in milliseconds."""

    gate: dict[str, list[float]] = field(default_factory=dict)  # by what goes on beside it
    written: list[float] = field(default_factory=list)  # transactions, while upkeep runs
    looks: dict[str, list[float]] = field(default_factory=dict)
    synced: list[float] = field(default_factory=list)  # fsyncs, while upkeep runs
    removed: Counter[str] = field(default_factory=Counter)
    core: float = 0.0  # of one processor, by all that this process does, while upkeep runs
    alone: float = 0.0  # the same without upkeep


def kept(setup: Setup) -> Table:
    """Measure with one call at a time over a million rows."""
    found = anyio.run(_measured, setup)
    disk, longest = percentile(found.synced, 0.99), max(found.synced)
    p99, worst = percentile(found.written, 0.99), max(found.written)
    is_quick = p99 <= TRANSACTION_MILLISECONDS and worst <= LONGEST_MILLISECONDS + longest
    most = TARGET_MILLISECONDS + disk
    bounds = f"{TRANSACTION_MILLISECONDS:g}, each {LONGEST_MILLISECONDS + longest:.0f} ({verdict(met=is_quick)})"
    return Table(
        title="History: a million events, calls, model calls and checks, 100,000 sessions (SQLite), in ms",
        columns=("", "count", "median", "p99", "longest", "target p99"),
        rows=[
            *(
                (
                    f"gate, {beside}",
                    str(len(taken)),
                    *spread(taken),
                    f"{most:.2f} ({verdict(met=percentile(taken, 0.99) <= most)})",
                )
                for beside, taken in found.gate.items()
            ),
            ("write transactions, upkeep running", str(len(found.written)), *spread(found.written), bounds),
            *((f"tail: {what}", str(len(taken)), *spread(taken), "") for what, taken in found.looks.items()),
            ("this disk's fsync meanwhile", str(len(found.synced)), *spread(found.synced), ""),
        ],
        notes=(
            "The gate as in its own line, with one call after the other. Transactions: those of upkeep and of the",
            f"verdicts beside it. Upkeep removed {_in_words(found.removed)}.",
            f"This process used {found.core:.0%} of a core with upkeep, {found.alone:.0%} in the same calls without.",
            "`tail`: its queries alone, without the start of a command.",
            f"{_STREAMS} sessions stream {_STREAM_RATE / 1e6:.1f} MB/s each: their redaction and log alone.",
        ),
        samples={f"gate at a million rows, {beside}": taken for beside, taken in found.gate.items()},
    )


def grown(setup: Setup) -> Table:
    """Measure the gate and the queries of `tail` while a history grows."""
    taken = {share: anyio.run(_at, setup, share) for share in _SHARES}
    names = tuple(taken[_SHARES[0]])
    return Table(
        title="Growth: the same with ten thousand, a hundred thousand and a million rows of each big table, in ms",
        columns=("", *(f"{round(_MANY * share):,}" for share in _SHARES)),
        rows=[(name, *(_median_and_p99(taken[share][name]) for share in _SHARES)) for name in names],
        notes=("Median and 99th percentile; nothing else runs.",),
        growth={name: [(_MANY * share, percentile(taken[share][name], 0.5)) for share in _SHARES] for name in names},
    )


async def _at(setup: Setup, share: float) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        directory = Path(name)
        write_migrated(directory / "claudeops.db")
        fill(directory / "claudeops.db", share)
        _sync(directory / "claudeops.db")
        async with answering(directory) as asked:
            gate, _ = await _calls(asked, _CALLS_A_REPEAT * setup.repeats)
            return {"gate": gate, **await _looks(asked.store, _LOOKS_A_REPEAT * setup.repeats)}


def _median_and_p99(taken: list[float]) -> str:
    median, p99, _ = spread(taken)
    return f"{median} ({p99})"


def _in_words(removed: Counter[str]) -> str:
    return ", ".join(f"{count:,} ({what})" for what, count in removed.items()) or "nothing"


async def _measured(setup: Setup) -> _Measured:
    found, taken = _Measured(), list[float]()

    def wrote(seconds: float | None) -> None:
        taken.append(math.inf if seconds is None else seconds * 1000)

    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        directory = Path(name)
        write_migrated(directory / "claudeops.db")
        fill(directory / "claudeops.db")
        _sync(directory / "claudeops.db")
        async with answering(directory, wrote=wrote) as asked:
            await asked.store.retention.make_room()  # as the daemon does
            count = _CALLS_A_REPEAT * setup.repeats
            found.looks = await _looks(asked.store, _LOOKS_A_REPEAT * setup.repeats)
            found.gate["nothing beside it"], found.alone = await _calls(asked, count)
            async with _streaming(directory):
                found.gate[f"{_STREAMS} sessions stream"], _ = await _calls(asked, count)
            taken.clear()
            found.gate["upkeep runs"] = []
            shares = []
            for aged in _KINDS:
                async with _upkeep(asked.store, directory, aged, found):
                    calls, share = await _calls(asked, count)
                found.gate["upkeep runs"] += calls
                shares.append(share)
            found.written, found.core = list(taken), sum(shares) / len(shares)
    return found


def _sync(file: Path) -> None:
    """Have the disk take what was filled in, which else the first checkpoint waits for."""
    with file.open("rb+") as whole:
        os.fsync(whole.fileno())


async def _calls(asked: Asked, count: int) -> tuple[list[float], float]:
    """Return what calls took, and how much of a core this process used meanwhile."""
    began, used = time.perf_counter(), time.process_time()
    taken = await asked.calls(count)
    return taken, (time.process_time() - used) / (time.perf_counter() - began)


async def _looks(store: Store, count: int) -> dict[str, list[float]]:
    """Return what the queries of `tail` take."""
    named = partial(session_ids, wanted=reference("abcd1234"))
    queries: dict[str, Callable[[], Awaitable[object]]] = {
        "the newest session": store.records.newest,
        "what runs or has come": partial(store.records.under_way, 99_990),
        "a session by its CLI's id": partial(store.database.read, named),
    }
    return {what: [await _timed(query) for _ in range(count)] for what, query in queries.items()}


async def _timed(query: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await query()
    return (time.perf_counter() - began) * 1000


@asynccontextmanager
async def _upkeep(store: Store, directory: Path, aged: Aged, found: _Measured) -> AsyncIterator[None]:
    """Remove rows of a kind beside the block, and measure the disk."""
    clock, results = _Then(), directory / "results"
    results.mkdir(exist_ok=True)
    keeper = Housekeeping(
        database=store.retention,
        records=store.records,
        clock=clock,
        results_dir=results,
        retention_days=30,
        running=tuple,
        log=logs.get_logger(),
    )
    old = cutoffs(clock.now(), retention_days=30)

    async def sync() -> None:
        while True:
            found.synced += await anyio.to_thread.run_sync(fsyncs, directory, 1)
            await anyio.sleep(0.05)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(keeper.remove, aged, old, found.removed, now=clock.now(), until=math.inf))
        tasks.start_soon(sync)
        yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _streaming(directory: Path) -> AsyncIterator[None]:
    """Have sessions say something all the time beside the block."""

    async def stream(path: Path) -> None:
        async with SessionLog(path) as sink:
            with OutputReader(redactor=Redactor(_SECRETS), sink=sink, clock=Clock()) as intake:
                while True:
                    _drained(intake.push(_CHUNK))
                    await anyio.sleep(len(_CHUNK) / _STREAM_RATE)

    async with anyio.create_task_group() as tasks:
        for number in range(_STREAMS):
            tasks.start_soon(stream, directory / f"stream-{number}.ndjson")
        yield
        tasks.cancel_scope.cancel()


def _drained(lines: Iterable[object]) -> None:
    for _ in lines:
        pass
