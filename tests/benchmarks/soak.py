"""``make soak``: many sessions in a row on one daemon, and what it holds after each part of them.

``SESSIONS`` sessions run back to back, two at a time, each a process of its own in its cell. A run of a thousand or
more adds its figures to ``docs/reference/long-runs.md``, and draws the picture that stands there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio

from benchmarks import machine
from benchmarks.pictures import draw_growth
from support.growth import Growth
from support.held import Held
from support.long_run import SESSION, long_run, ran_well
from support.stand_in_daemon import stand_in_node

REFERENCE: Final = Path(__file__).parents[2] / "docs" / "reference" / "long-runs.md"
PICTURES: Final = REFERENCE.parents[1] / "pictures"
ENOUGH_SESSIONS: Final = 1000  # from here on figures are worth keeping


def main(arguments: Sequence[str] | None = None) -> int:
    """Run sessions; return 1 when the daemon has grown, or a session did not end as it should."""
    chosen = _parser().parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="claudeops-soak-", dir=chosen.directory) as directory:
        held, unwell = anyio.run(_run, Path(directory), chosen.sessions, chosen.part)
    growth = Growth.of(held)
    seconds = time.monotonic() - began
    _say(f"\n{chosen.sessions} sessions in {seconds:.0f} s, {unwell} of them not as they should be. {growth}")
    if chosen.sessions >= ENOUGH_SESSIONS:
        _add(held, growth, unwell=unwell, seconds=seconds)
        _draw(held)
        _say(f"Added to {REFERENCE}.")
    return 1 if unwell or growth.faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make soak", description="Run many sessions and see what grows.")
    parser.add_argument("--sessions", type=int, default=ENOUGH_SESSIONS)
    parser.add_argument("--part", type=int, default=50, help="sessions between two looks at the idle daemon")
    parser.add_argument("--directory", help="where everything lives; choose the disk that matters")
    return parser


async def _run(directory: Path, sessions: int, part: int) -> tuple[list[Held], int]:
    """Return what was held, and how many sessions did not end well."""
    found = []
    async with stand_in_node(directory) as node:
        node.script(*SESSION)
        async with node.daemon() as daemon:
            await daemon.until_logged("session_ended")  # of the chain at the start
            async for held in long_run(node, daemon, sessions=sessions, part=part):
                _say(
                    f"{held.sessions:6} sessions: {held.descriptors} descriptors, {held.threads} threads, "
                    f"{held.resident_mib:.1f} MiB resident, {held.own_mib:.1f} MiB its own"
                )
                found.append(held)
        return found, sessions + 1 - ran_well(node)


def _add(held: Sequence[Held], growth: Growth, *, unwell: int, seconds: float) -> None:
    first, last = held[growth.settled], held[-1]
    cells = (
        f"{datetime.now(UTC):%Y-%m-%d}",
        f"{last.sessions} ({unwell})",
        f"{first.descriptors} → {last.descriptors}",
        f"{first.threads} → {last.threads}",
        f"{held[0].resident_mib:.0f} → {first.resident_mib:.1f} → {last.resident_mib:.1f}",
        f"{growth.own_kib_a_session:+.2f}",
        f"{seconds:.0f}",
        f"{machine.load()}",
    )
    text = REFERENCE.read_text(encoding="utf-8").rstrip("\n")
    REFERENCE.write_text(f"{text}\n| {' | '.join(cells)} |\n", encoding="utf-8")


def _draw(held: Sequence[Held]) -> None:
    draw_growth(
        PICTURES / "growth-sessions.svg",
        title="What a daemon holds while sessions run",
        along="sessions",
        unit="MiB",
        curves={
            "resident": [(each.sessions, each.resident_mib) for each in held],
            "its own": [(each.sessions, each.own_mib) for each in held],
        },
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
