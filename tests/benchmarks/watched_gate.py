"""Whether a tool call waits longer for the gate while a hundred watch what a session does."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from benchmarks.gate import TARGET_MILLISECONDS, Asked, answering, fsyncs
from benchmarks.table import Setup, Table, percentile, spread, verdict
from benchmarks.watchers import WATCHERS
from claudeops.app.log_lines import SessionLogs
from claudeops.clock import Clock
from claudeops.domain.live import AssistantSaid
from claudeops.domain.sessions import NewSession, Trigger
from claudeops.engine.owners import this_owner
from claudeops.engine.session_log.writer import SessionLog
from claudeops.http_server import listen
from claudeops.store.reading.calls import verdicts
from claudeops.store.store import Store
from claudeops.web.endpoints import EndpointTable as Endpoints
from claudeops.web.pages.rendering import Pages
from claudeops.web.streams import Streams, stream_endpoints
from support.listening import Door, token_for
from support.store_values import RULES

MORE_MILLISECONDS: Final = 1.0
"""By which the p99 may differ, half of all pairs of blocks below it: a tenth of what the gate may take."""

_RATE: Final = 10.0  # facts a second
_CALLS_A_BLOCK: Final = 100
_PAIRS_A_REPEAT: Final = 4
_TOKENS: Final = tuple(range(1, 11))  # a caller has at most twenty streams
_TEXT: Final = {"type": "text", "text": "I look at the next service. " * 8}
_TESTS: Final = Path(__file__).parents[1]


@dataclass(kw_only=True, slots=True)
class Taken:
    """What calls took, in milliseconds, block by block."""

    alone: list[list[float]] = field(default_factory=list)
    watched: list[list[float]] = field(default_factory=list)
    lines: int = 0  # that the watchers were given
    lost: int = 0
    said: int = 0  # lines that there were for them by then

    def more(self, share: float) -> list[float]:
        """Return by how much a percentile of each watched block is greater than that of its twin."""
        pairs = zip(self.watched, self.alone, strict=True)
        return [percentile(watched, share) - percentile(alone, share) for watched, alone in pairs]


@dataclass(kw_only=True, slots=True)
class Watched:
    """A session that goes on and on."""

    url: str  # where it is read
    session: int
    lines: int = 0  # that it has said


def latency(setup: Setup) -> Table:
    """Measure blocks of calls in pairs, one of each beside watchers, so that the machine's other work falls out."""
    taken = anyio.run(_measured, setup)
    alone, watched = (list(chain.from_iterable(blocks)) for blocks in (taken.alone, taken.watched))
    disk = percentile(fsyncs(setup.directory, len(alone)), 0.99)
    most = TARGET_MILLISECONDS + disk
    p99, more = percentile(watched, 0.99), taken.more(0.99)
    is_unchanged = statistics.median(more) <= MORE_MILLISECONDS
    return Table(
        title=f"Gate beside {WATCHERS} who watch a session's stream, {_RATE:g} facts a second",
        columns=("", "calls", "median ms", "p99 ms", "longest ms", "target p99"),
        rows=[
            ("nobody watches", str(len(alone)), *spread(alone), ""),
            (f"{WATCHERS} watch", str(len(watched)), *spread(watched), f"{most:.2f} ({verdict(met=p99 <= most)})"),
            (
                "more, by pairs",
                f"{len(more)} pairs",
                middle(taken.more(0.5)),
                middle(more),
                "",
                f"{MORE_MILLISECONDS:g} ({verdict(met=is_unchanged)})",
            ),
        ],
        notes=(
            f"Pairs of blocks of {_CALLS_A_BLOCK} calls without a pause, in turn the one or the other first.",
            "Of pairs: the median difference, and between what it lies with 95 % certainty.",
            f"{taken.lines} lines were read of {taken.said}, and {taken.lost} losses told. All who watch are one",
            f"process, of a lower priority. Target: at most {MORE_MILLISECONDS:g} ms more; the p99 of the gate alone.",
        ),
    )


def middle(values: Sequence[float]) -> str:
    """Return the median of some values, and the two between which that of all such values lies (sign test, 95 %)."""
    ordered, off = sorted(values), 0.98 * math.sqrt(len(values))
    low, high = max(0, math.floor(len(values) / 2 - off)), min(len(values) - 1, math.ceil(len(values) / 2 + off) - 1)
    return f"{statistics.median(values):+.2f} ({ordered[low]:+.2f} to {ordered[high]:+.2f})"


async def _measured(setup: Setup) -> Taken:
    taken = Taken()
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        directory = Path(name)
        async with answering(directory) as asked, _watched_session(asked.store, directory) as watched:
            with _watchers(watched) as watchers:
                await _pairs(asked, watched, watchers, _PAIRS_A_REPEAT * setup.repeats, taken)
    return taken


async def _pairs(asked: Asked, watched: Watched, watchers: subprocess.Popen[str], count: int, taken: Taken) -> None:
    for number in range(count):
        for is_watched in (False, True) if number % 2 else (True, False):
            await _block(asked, watched, watchers if is_watched else None, taken)


async def _block(asked: Asked, watched: Watched, watchers: subprocess.Popen[str] | None, taken: Taken) -> None:
    if watchers is None:
        taken.alone.append(await asked.calls(_CALLS_A_BLOCK))
        return
    before = watched.lines
    await _commanded(watchers, f"watch {before}")
    taken.watched.append(await asked.calls(_CALLS_A_BLOCK))
    taken.said += (watched.lines - before) * WATCHERS
    lines, lost = (await _commanded(watchers, "rest")).split()
    taken.lines += int(lines)
    taken.lost += int(lost)


async def _commanded(watchers: subprocess.Popen[str], command: str) -> str:
    assert watchers.stdin is not None
    assert watchers.stdout is not None
    watchers.stdin.write(f"{command}\n")
    watchers.stdin.flush()
    return await anyio.to_thread.run_sync(watchers.stdout.readline)


def _watchers(watched: Watched) -> subprocess.Popen[str]:
    program = str(_TESTS / "benchmarks" / "watchers.py")
    return subprocess.Popen(
        [sys.executable, program, watched.url, str(watched.session), ",".join(map(str, _TOKENS))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(_TESTS)},
        text=True,
    )


@asynccontextmanager
async def _watched_session(store: Store, directory: Path) -> AsyncIterator[Watched]:
    """Let a session say something ten times a second, and be read."""
    clock, door = Clock(), Door()
    path = directory / "watched.ndjson"
    new = NewSession(tier=1, trigger=Trigger.MANUAL, model="haiku")
    await store.queue.enqueue(new, rules=RULES, now=clock.now())
    (session,) = await store.claims.claim(
        this_owner(), rules=RULES, now=clock.now(), cli_session_id=lambda: "watched", log_path=lambda _: str(path)
    )
    door.tokens.kept = {number: token_for(number, "read") for number in _TOKENS}
    logs = SessionLogs(
        records=store.records, verdicts=lambda number: store.database.read(partial(verdicts, session_id=number))
    )
    streams = Streams(live=door.hub, logs=logs, render=Pages(version="0.0").lines)
    door.listener.table = Endpoints(stream_endpoints(streams))

    async def publish(watched: Watched) -> None:
        async with SessionLog(path) as log:
            while True:
                log.append(json.dumps({"type": "assistant", "message": {"content": [_TEXT]}}).encode(), clock.now())
                door.hub.publish(
                    AssistantSaid(at=clock.now(), session_id=session.id, chain=session.id, tier=1, text=_TEXT["text"])
                )
                watched.lines += 1
                await anyio.sleep(1 / _RATE)

    async with (
        listen(door.listener, host="127.0.0.1", port=0, closing=streams.closing) as url,
        anyio.create_task_group() as tasks,
    ):
        watched = Watched(url=url, session=session.id)
        tasks.start_soon(publish, watched)
        yield watched
        tasks.cancel_scope.cancel()
    streams.close()
