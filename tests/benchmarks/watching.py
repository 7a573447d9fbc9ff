"""What a thousand probes take of a machine, looked at by a daemon that does everything else as well.

The installed daemon runs as a process, with its database and its cell. It has one session at its start and none later:
what sessions leave in memory is the soak's subject. The thousand URLs are one server's, in a process of its own. Only
the daemon is counted.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import psutil

from benchmarks.looks import servers
from benchmarks.table import Setup, Table, verdict
from claudeops.structs import replace
from support.certificates import make_authority
from support.estate import deliver, look, report
from support.held import held_mib
from support.operating import Operator
from support.stand_in_daemon import stand_in_node

TARGET_P99_SECONDS: Final = 1.0
"""By how much looks may begin after their due times."""

TARGET_GROWTH_MIB: Final = 4.0
"""Resident, in an hour, at the pace from the third quarter of the time to the fourth."""

_LONGEST_INTERVAL: Final = 30.0  # seconds; a shorter watch looks more often
_WARM_UP_ROUNDS: Final = 3  # and the first session
_SAMPLE_SECONDS: Final = 10.0
_HOUR: Final = 3600.0


@dataclass(kw_only=True, slots=True)
class Observed:
    """What was seen of a daemon while it watched."""

    seconds: float = 0.0  # after the warm-up
    share: float = 0.0  # of one core
    resident: list[float] = field(default_factory=list)  # MiB, at every sample
    p99: float = 0.0  # seconds; the greatest of the samples, each over the ten thousand looks before it
    worst: float = 0.0
    up: int = 0  # probes, at the end


def thousand(setup: Setup) -> Table:
    """Measure a daemon with a thousand HTTP probes for as long as was asked for."""
    authority = make_authority()
    certificate = authority.issue(setup.directory / "watching.pem", names=("localhost",))
    try:
        with servers(certificate) as (port, _):
            seen = anyio.run(_watched, setup, port)
    finally:
        certificate.unlink()
    if seen.up < setup.probes:
        raise AssertionError(f"only {seen.up} of {setup.probes} probes were up at the end")
    quarter = max(1, len(seen.resident) // 4)
    parts = [seen.resident[place : place + quarter] for place in range(0, 4 * quarter, quarter)]
    held = [sum(part) / len(part) for part in parts if part]
    growth = (held[-1] - held[-2]) / (seen.seconds / 4) * _HOUR if len(held) > 1 else 0.0
    late, grows = verdict(met=seen.p99 <= TARGET_P99_SECONDS), verdict(met=growth <= TARGET_GROWTH_MIB)
    watched = f"{setup.probes} HTTP probes every {interval(setup):g} s"
    return Table(
        title=f"A daemon with {watched}, for {seen.seconds / 60:.1f} minutes",
        columns=("", "", "target"),
        rows=[
            ("processor time, of one core", f"{seen.share * 100:.1f} %", ""),
            ("looks begin late: p99", f"{seen.p99 * 1000:.0f} ms", f"{TARGET_P99_SECONDS * 1000:g} ms ({late})"),
            ("looks begin late: worst", f"{seen.worst * 1000:.0f} ms", ""),
            ("resident, by quarters of the time", f"{', '.join(f'{mib:.1f}' for mib in held)} MiB", ""),
            ("resident: growth, in an hour", f"{growth:.0f} MiB", f"{TARGET_GROWTH_MIB:g} MiB ({grows})"),
        ],
        notes=(f"After {_WARM_UP_ROUNDS} rounds to warm up.",),
    )


def interval(setup: Setup) -> float:
    """Return the seconds between two looks of a probe: 30, or a quarter of a shorter watch."""
    return min(_LONGEST_INTERVAL, max(1.0, setup.probe_minutes * 60 / 4))


def declaration(setup: Setup, port: int) -> str:
    """Return a probes file."""
    probe = '[[probe]]\nname = "p{number}"\nkind = "http"\nurl = "http://127.0.0.1:{port}/{number}"\n'
    head = f'[defaults]\ninterval = "{interval(setup):g}s"\n\n'
    return head + "\n".join(probe.format(number=number, port=port) for number in range(setup.probes))


async def _watched(setup: Setup, port: int) -> Observed:
    lateness = setup.directory / "lateness.json"
    file = setup.directory / "probes.toml"
    await anyio.Path(file).write_text(declaration(setup, port), encoding="utf-8")
    root = setup.directory / "node"
    await anyio.Path(root).mkdir()
    async with stand_in_node(root) as node:
        node.script(look(), deliver(report()))
        watching = replace(node.operator, runs=(sys.executable, "-m", "benchmarks.probing_daemon", str(lateness)))
        settings = node.settings(CLAUDEOPS_PROBES_PATH=str(file))
        return await _observed(setup, watching, settings, lateness)


async def _observed(setup: Setup, operator: Operator, settings: dict[str, str], lateness: Path) -> Observed:
    seconds = setup.probe_minutes * 60
    tests = str(Path(__file__).parents[1])
    seen = Observed()
    async with operator.daemon(**{**settings, "PYTHONPATH": tests}) as daemon:
        await daemon.until_logged("daemon_ready")
        await anyio.sleep(_WARM_UP_ROUNDS * interval(setup))
        process = psutil.Process(daemon.process.pid)
        began, used = time.monotonic(), _processor_seconds(process)
        while time.monotonic() - began < seconds:
            await anyio.sleep(min(_SAMPLE_SECONDS, seconds))
            late = json.loads(await anyio.Path(lateness).read_text(encoding="utf-8"))
            seen.resident.append(held_mib(process.pid)[0])
            seen.p99, seen.worst = max(seen.p99, late["p99"]), max(seen.worst, late["worst"])
            seen.up = late["up"]
        seen.seconds = time.monotonic() - began
        seen.share = (_processor_seconds(process) - used) / seen.seconds
    return seen


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
