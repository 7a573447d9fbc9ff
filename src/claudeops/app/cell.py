"""What sessions are locked into, and how many of them at once. Part of the composition root.

The self-test of the gate, wired to the scripted Messages API. Part of the composition root.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio.to_thread

from claudeops.app.wiring import SESSIONS, binaries, forbidden_paths
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.cell import Cell, workspace_places
from claudeops.engine.cell.cgroups import Groups, find, prepare
from claudeops.engine.cell.levels import HostContext, choose
from claudeops.engine.gate.admission import FILE, CliAdmission
from claudeops.engine.gate.self_test import Bench, SelfTestResult, self_test
from claudeops.engine.ports import Clock
from claudeops.engine.process.bounds import available_mb, fitting_slots
from claudeops.engine.process.tree import kill_all, marked, marks_below
from claudeops.errors import ConfigurationError
from claudeops.harness import HARNESSES
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings
from claudeops.tasks import Threads

_LOOK_SECONDS: Final = 30.0
_CLEAR_SECONDS: Final = 300.0
_PROCESSES: Final = Threads(most=1)


def surroundings(settings: Settings) -> HostContext:
    """Return what the levels of isolation are tried with."""
    homes = (tier.home for tier in settings.tiers if tier.home is not None)
    return HostContext(
        path=settings.path,
        binaries=tuple(binaries(settings).values()),
        repos_dir=settings.repos_dir,
        hidden=(*map(Path, forbidden_paths(settings)), *homes, *settings.private_files),
    )


async def choose_cell(settings: Settings, log: Logger) -> Cell:
    """Try the levels of isolation; raises `ConfigurationError` for one that is demanded and does not work."""
    chosen = await anyio.to_thread.run_sync(choose, settings.isolation, surroundings(settings))
    passed_over = {level.value: why for level, why in chosen.passed_over.items()}
    tell = log.warning if passed_over else log.info
    tell(LogEvent.ISOLATION_CHOSEN, isolation=chosen.cell.level.value, passed_over=passed_over)
    return chosen.cell


async def groups_of_sessions(settings: Settings, log: Logger) -> Groups | None:
    """Return where the kernel counts what each session uses; ``None`` where it cannot be had, which the log says."""

    def prepared() -> Groups | str:
        groups = find_groups(settings)
        if isinstance(groups, str):
            return groups
        groups.clear()
        return prepare(groups) or groups

    found = await anyio.to_thread.run_sync(prepared)
    if isinstance(found, str):
        log.info(LogEvent.SESSIONS_COUNTED, groups=None, why=found)
        return None
    log.info(LogEvent.SESSIONS_COUNTED, groups=str(found.place))
    return found


def find_groups(settings: Settings) -> Groups | str:
    """Return where sessions can get control groups, or why they cannot; looks only."""
    return find(hashlib.sha256(str(settings.state_dir).encode()).hexdigest()[:12])


def slots(settings: Settings, log: Logger) -> int:
    """Return how many sessions may run at once: what the settings allow, and the memory."""
    wanted, session_mb, free_mb = settings.max_concurrent_sessions, settings.session_memory_mb, available_mb()
    found = fitting_slots(wanted, session_mb=session_mb, free_mb=free_mb)
    if found < wanted or free_mb < session_mb:
        log.warning(LogEvent.SLOTS_REDUCED, wanted=wanted, slots=found, session_mb=session_mb, free_mb=free_mb)
    return found


async def end_leftovers(sessions_dir: Path, log: Logger) -> None:
    """End what a killed daemon left running: nothing of it is in use, for we hold the lock."""
    marks = marks_below(sessions_dir)
    try:
        strays = await _PROCESSES.run(lambda: kill_all(marked(marks)), seconds=_LOOK_SECONDS, what="a look for strays")
    except TimeoutError as error:  # a process that hangs when it is looked at
        log.error(LogEvent.STRAY_PROCESSES, count=None, error=str(error))
        return
    if strays:
        log.warning(LogEvent.STRAY_PROCESSES, count=strays)


async def clear_leftovers(sessions_dir: Path, log: Logger) -> None:
    """Remove the directories that a killed daemon left behind; the ends of its sessions are written by now.

    Raises `ConfigurationError` when that takes minutes.
    """
    for directory in workspace_places(sessions_dir):
        error = await workspaces.remove(directory, seconds=_CLEAR_SECONDS)
        if isinstance(error, TimeoutError):  # it is still at it, and would take what new sessions put there
            raise ConfigurationError(
                f"{directory} could not be cleared ({error.strerror}): mend its disk, or remove it."
            )
        if error is not None:
            log.error(LogEvent.WORKSPACE_NOT_REMOVED, path=str(directory), error=str(error))


def admission(settings: Settings, *, cell: Cell, clock: Clock, log: Logger) -> CliAdmission:
    """Return what says which CLI binaries this node may use, in the cell that its sessions get."""
    # Below the sessions' own directory: what a killed daemon left there is removed at the next start.
    bench = Bench(cell=cell, path=settings.path, root=settings.state_dir / SESSIONS / "self-test")

    async def test(binary: Path) -> SelfTestResult:
        return await try_gate(binary, bench)

    return CliAdmission(
        record=settings.state_dir / FILE,
        tester=importlib.metadata.version("claudeops"),
        test=test if settings.cli_self_test else None,
        clock=clock,
        log=log,
    )


async def admit_clis(settings: Settings, clis: CliAdmission) -> None:
    """Raise `ConfigurationError` for a CLI whose gate does not hold, before anything of ours depends on it."""
    for harness, binary in binaries(settings).items():
        if HARNESSES[harness].capabilities.gate and (refusal := await clis.refusal(binary)) is not None:
            raise ConfigurationError(refusal)


async def try_gate(binary: Path, bench: Bench) -> SelfTestResult:
    """Run the self-test with a binary."""
    return await self_test(binary, bench=bench, serve=serve_script)


@asynccontextmanager
async def serve_script(document: Mapping[str, object]) -> AsyncIterator[str]:
    """Serve a script on loopback until the block is left."""
    # A web server, for two seconds after an update: most starts do without it.
    from claudeops.scripted_api.script import Script  # noqa: PLC0415 - with it
    from claudeops.scripted_api.server import serve  # noqa: PLC0415 - see above

    async with serve(Script.from_mapping(document)) as api:
        yield api.url
