"""Many sessions in a row, run by one daemon, and what it holds after each part of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from support.estate import deliver, look, report
from support.held import Held, held
from support.operating import Daemon
from support.stand_in_daemon import StandInNode

LINE_BYTES: Final = 300_000
SESSION: Final = (
    {"stderr": "a warning of the CLI\n", "times": 20},
    look("toolu_1"),
    {"line_of": LINE_BYTES},  # what is kept of a session shows after a few of them
    look("toolu_2", "df -h /"),
    deliver(report(memories=[{"key": "web:timing", "value": "web answers within 40 ms"}])),
)


async def long_run(node: StandInNode, daemon: Daemon, *, sessions: int, part: int) -> AsyncIterator[Held]:
    """Run sessions as they are scripted, ``part`` after ``part``; give what the idle daemon holds after each."""
    for done in range(part, sessions + 1, part):
        await node.queue(part)
        await node.until_idle()
        yield held(daemon.process.pid, sessions=done)


def ran_well(node: StandInNode) -> int:
    """Return how many sessions ended as they should."""
    (row,) = node.operator.rows("SELECT count(*) AS count FROM sessions WHERE decision_reason = 'healthy'")
    return int(str(row["count"]))
