"""The capacity card: what this machine can do, measured now. ``make card`` prints it.

A line of the card is a function that measures and returns a `Table`. To add one, write the function and name it
in `LINES`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks import (
    alerting,
    audit,
    beside,
    burst,
    cell,
    cell_doors,
    cell_network,
    commands,
    daemon_gate,
    fleet,
    gate,
    hangs,
    history,
    lists,
    long_lines,
    looks,
    machine,
    meter,
    pages,
    postgresql,
    recovery,
    sessions,
    start,
    stopping,
    stream,
    stream_daemon,
    wakes,
    watched_gate,
    watching,
)
from benchmarks.pictures import draw_growth, draw_latencies
from benchmarks.table import Setup, Table
from support.passable import let_pass

LINES: Final[dict[str, Callable[[Setup], Table]]] = {
    "stream": stream_daemon.through_daemon,
    "long-lines": long_lines.held,
    "intake": stream.throughput,
    "meter": meter.added,
    "gate": gate.latency,
    "gate-daemon": daemon_gate.through_daemon,
    "gate-postgresql": postgresql.gate,
    "punctuality": sessions.punctuality,
    "next-tier": sessions.next_tier,
    "hangs": hangs.noticed,
    "burst": burst.rate,
    "burst-postgresql": postgresql.rate,
    "fleet": fleet.shared,
    "recovery": recovery.claims,
    "looks": looks.cost,
    "probes": watching.thousand,
    "alerts": alerting.stored,
    "cell": cell.start,
    "cell-doors": cell_doors.opened,
    "cell-network": cell_network.connections,
    "start": start.ready,
    "memory": start.memory,
    "commands": commands.answered,
    "wake": wakes.seen,
    "idle": wakes.idle,
    "pages": pages.loads,
    "pages-watched": pages.watched,
    "pages-gate": watched_gate.latency,
    "pages-stop": stopping.stopped,
    "pages-memory": pages.memory,
    "lists": lists.paged,
    "beside": beside.compared,
    "history": history.kept,
    "growth": history.grown,
    "audit": audit.verified,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    chosen = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="claudeops-card-", dir=chosen.directory) as directory:
        let_pass(Path(directory))
        setup = Setup(
            directory=Path(directory),
            repeats=chosen.repeats,
            stream_bytes=round(chosen.stream_mib * 1024 * 1024),
            burst=chosen.burst,
            probes=chosen.probes,
            probe_minutes=chosen.probe_minutes,
            alert_seconds=chosen.alert_seconds,
            fleet=chosen.fleet,
            beside=chosen.beside and chosen.beside.absolute(),
        )
        for name, value in machine.facts(setup.directory):
            _say(f"{name:>10}  {value}")
        samples: dict[str, Sequence[float]] = {}
        for name in chosen.line or LINES:
            table = LINES[name](setup)
            samples |= table.samples
            if chosen.pictures is not None and table.growth:
                draw_growth(
                    chosen.pictures / "growth-rows.svg",
                    title="What takes how long while a history grows",
                    along="rows of each big table",
                    unit="milliseconds, median",
                    curves=table.growth,
                )
            _say(f"\n{table}")
        if chosen.pictures is not None and samples:
            draw_latencies(chosen.pictures / "latencies.svg", samples)
        _say(f"\nWhen it was done: {machine.load()}.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make card", description="Measure what this machine can do.")
    parser.add_argument("--line", action="append", choices=list(LINES), help="only this line of the card (repeatable)")
    parser.add_argument("--repeats", type=int, default=7, help="runs of everything")
    parser.add_argument("--stream-mib", type=float, default=190.7, help="size of the streams that are read")
    parser.add_argument("--burst", type=int, default=1000, help="sessions that are due at once; a tenth of it recovers")
    parser.add_argument("--fleet", type=int, default=1000, help="sessions that wait for one, two and three nodes")
    parser.add_argument("--probes", type=int, default=1000, help="how many are watched")
    parser.add_argument("--probe-minutes", type=float, default=2.0, help="how long they are watched")
    parser.add_argument("--alert-seconds", type=float, default=60.0, help="how long bodies of alerts come in")
    parser.add_argument("--beside", type=Path, metavar="BINARY", help="a Claude Ops, for the line `beside`")
    parser.add_argument("--pictures", type=Path, metavar="DIRECTORY", help="where a picture of the latencies is drawn")
    parser.add_argument("--directory", help="where files are written; choose the disk that matters")
    return parser


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
