"""How punctual the daemon is: due → spawned, and a session's result → its successor spawned. With the stand-in CLI."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

from benchmarks.table import Setup, Table, percentile, spread, verdict
from support.estate import deliver, look, report
from support.stand_in_daemon import count_of, seconds, stand_in_node, told
from support.waiting import until

PUNCTUAL_MILLISECONDS: Final = 250.0
"""Between a due time and its process, at the 99th percentile."""

NEXT_TIER_MILLISECONDS: Final = 150.0
NEXT_TIER_MEDIAN_MILLISECONDS: Final = 60.0
"""Between a result line and the process of the next tier, at the 99th percentile and at the median."""

_FIRES_A_REPEAT: Final = 3
_CHAINS_A_REPEAT: Final = 2
_PATIENCE_SECONDS: Final = 600.0


def punctuality(setup: Setup) -> Table:
    """Measure fires of a schedule that is due every second, each with a session that is over by the next."""
    fired, spawned = anyio.run(_fires, setup)
    p99 = percentile(spawned, 0.99)
    return Table(
        title="Punctuality: a due time of the schedule → its row queued → its CLI spawned",
        columns=("", "fires", "median ms", "p99 ms", "longest ms", "target p99"),
        rows=[
            ("due → queued", str(len(fired)), *spread(fired), ""),
            (
                "due → spawned",
                str(len(spawned)),
                *spread(spawned),
                f"{PUNCTUAL_MILLISECONDS:g} ({verdict(met=p99 <= PUNCTUAL_MILLISECONDS)})",
            ),
        ],
        notes=("The installed daemon as a process, its cell and its database; the stand-in is the CLI.",),
        samples={"due → spawned": spawned},
    )


def next_tier(setup: Setup) -> Table:
    """Measure chains that escalate from tier 1 to tier 3."""
    taken = anyio.run(escalations, setup)
    is_quick = percentile(taken, 0.5) <= NEXT_TIER_MEDIAN_MILLISECONDS
    is_met = is_quick and percentile(taken, 0.99) <= NEXT_TIER_MILLISECONDS
    target = f"{NEXT_TIER_MEDIAN_MILLISECONDS:g}, {NEXT_TIER_MILLISECONDS:g} ({verdict(met=is_met)})"
    return Table(
        title="Next tier: a result line read → its process gone → its end written → the next tier's CLI spawned",
        columns=("", "escalations", "median ms", "p99 ms", "longest ms", "target median, p99"),
        rows=[
            (
                "result → spawned",
                str(len(taken)),
                *spread(taken),
                target,
            )
        ],
        notes=("As above. The exit of the stand-in, a Python program in a cell, is part of it.",),
        samples={"result → next tier": taken},
    )


async def _fires(setup: Setup) -> tuple[list[float], list[float]]:
    """Return milliseconds after the due time: of the queued rows, and of the processes."""
    count = 1 + _FIRES_A_REPEAT * setup.repeats  # the one at the start is due when it is fired
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        async with stand_in_node(Path(name)) as node:
            node.script(look(), deliver(report()))
            async with node.daemon(CLAUDEOPS_INTERVAL="1") as daemon:
                await until(lambda: count_of(daemon, "session_spawned") >= count, _PATIENCE_SECONDS)
            due = told(daemon, "schedule_fired")[1:count]
            spawned = _moments(told(daemon, "session_spawned"))
    moments = [(seconds(fire["due_at"]), seconds(fire["timestamp"]), spawned[fire["session_id"]]) for fire in due]
    return [(at - due_at) * 1000 for due_at, at, _ in moments], [(at - due_at) * 1000 for due_at, _, at in moments]


async def escalations(setup: Setup) -> list[float]:
    """Return milliseconds from each result line that asked for the next tier to that tier's process."""
    count = 3 * _CHAINS_A_REPEAT * setup.repeats
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        async with stand_in_node(Path(name)) as node:
            node.script(look(), deliver(report(needed=True, status="down")))
            async with node.daemon(CLAUDEOPS_INTERVAL="2", CLAUDEOPS_CHAIN_BUDGET_USD="1000") as daemon:
                await until(lambda: count_of(daemon, "session_spawned") >= count, _PATIENCE_SECONDS)
            results = _moments(told(daemon, "result_received"))
            spawned = _moments(told(daemon, "session_spawned"))
            queued = {line["next_session_id"]: line["session_id"] for line in told(daemon, "escalation_queued")}
    return [(at - results[queued[ident]]) * 1000 for ident, at in spawned.items() if ident in queued]


def _moments(lines: Sequence[Mapping[str, object]]) -> dict[object, float]:
    """Return seconds since the epoch by session, of the first line of each."""
    return {line["session_id"]: seconds(line["timestamp"]) for line in reversed(lines)}
