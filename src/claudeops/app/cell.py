"""The cell of sessions, wired from the settings: isolation, control groups, slots, leftovers, and the gate's self-test.

Part of the composition root. Which level of isolation works, and which programs can be run for sessions, is tried
by another process beside the rest of a start: that changes nothing. The self-test runs on the scripted
Messages API, in the cell that sessions get.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from claudeops.app.start.checks import binaries
from claudeops.app.start.trial import Trial
from claudeops.app.wiring import SESSIONS
from claudeops.clock import Clock
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import LOOK_CLIENT, BubblewrapCell
from claudeops.engine.cell.cell import LISTED, SHARED, Cell, filtered_engine, workspace_places
from claudeops.engine.cell.cgroups import MIB, Groups, find, prepare
from claudeops.engine.cell.look_cell import FoundLooks
from claudeops.engine.cell.own_files import bound_in_memory, room_for_files
from claudeops.engine.gate.admission import FILE, CliAdmission
from claudeops.engine.gate.self_test import Bench, SelfTestResult, self_test
from claudeops.engine.kubernetes.kubeconfig import filtered_clusters
from claudeops.engine.ports import Counting
from claudeops.engine.process.bounds import available_mb, fitting_slots, machine_mb
from claudeops.engine.process.tree import kill_all, marked, marks_below
from claudeops.engine.session.context import TierSetup
from claudeops.errors import ConfigurationError, ErrorKind
from claudeops.formats.network.headers import places_by_name
from claudeops.harness import HARNESSES
from claudeops.logs import LogEvent, Logger
from claudeops.policy.tiers import NodeScope
from claudeops.settings import Settings
from claudeops.structs import replace
from claudeops.tasks import Threads

T = TypeVar("T")

_LOOK_SECONDS: Final = 30.0  # for the search for stray processes
_CLEAR_SECONDS: Final = 300.0  # for each directory of leftovers
_PROCESSES: Final = Threads(most=1)


_NOT_APART: Final = "the daemon runs it, in a cell that takes bubblewrap: say in the report what should be done"


async def choose_cell(trial: Trial, log: Logger) -> Cell:
    """Return the strongest cell that works; raises `ConfigurationError` when the demanded level does not."""
    chosen = await asyncio.wrap_future(trial.isolation)
    passed_over = {level.value: why for level, why in chosen.passed_over.items()}
    tell = log.warning if passed_over else log.info
    tell(
        LogEvent.ISOLATION_CHOSEN,
        isolation=chosen.cell.level.value,
        passed_over=passed_over,
        network=LISTED if chosen.cell.has_network else SHARED,
        tools_apart=chosen.cell.keeps_tools_apart,
    )
    return chosen.cell


class LateLooks:
    """What the daemon runs for sessions, which a trial finds out for the first who runs any: a start does not wait."""

    def __init__(self, trial: Trial, log: Logger) -> None:
        loop, known = asyncio.get_running_loop(), anyio.Event()
        trial.looks.add_done_callback(lambda _: loop.call_soon_threadsafe(known.set))
        self._found, self._known, self._order = trial.looks, known, trial.order_looks
        self._log = log
        self._is_ordered = False
        self._is_said = False

    def begin(self) -> None:
        """Have it found out, unless that has begun; does not block."""
        if not self._is_ordered:
            self._is_ordered = True
            self._order()

    async def found(self) -> FoundLooks:
        """Return it, with a line in the log the first time; nothing where the process that tries was ended."""
        self.begin()
        await self._known.wait()
        tell = self._log.info
        try:
            found = self._found.result()
        except ConfigurationError as error:
            found, tell = FoundLooks(cells={}, why={"git": str(error)}), self._log.warning
        if not self._is_said:
            self._is_said = True
            programs = {name: str(each.program) for name, each in found.cells.items()}
            tell(LogEvent.LOOKS_CHOSEN, programs=programs, why=dict(found.why))
        return found


def with_looks(tiers: Mapping[int, TierSetup], looks: FoundLooks) -> dict[int, TierSetup]:
    """Return tiers whose sessions may have the daemon run looks."""
    return {number: replace(tier, scope=scope_with(looks, tier.scope)) for number, tier in tiers.items()}


def with_filters(tiers: Mapping[int, TierSetup], cell: Cell) -> dict[int, TierSetup]:
    """Return tiers whose sessions reach docker's engine and clusters through filters, where those can serve them.

    At level `none` a session could go around them. Accesses the disk.
    """
    return {number: _filtered(tier, cell) for number, tier in tiers.items()}


def _filtered(tier: TierSetup, cell: Cell) -> TierSetup:
    apart = "" if isinstance(cell, BubblewrapCell) else _NOT_APART
    kubeconfigs = filtered_clusters(tier.passed_env, tier.template_home, cell)
    if kubeconfigs:
        tier = replace(tier, kubeconfigs=kubeconfigs, scope=_behind(tier.scope, "kubernetes", "kubectl", apart))
    engine = filtered_engine(tier.passed_env, cell)
    if engine is None:
        return tier
    return replace(tier, docker=engine, scope=_behind(tier.scope, "docker", "docker", apart))


def _behind(scope: NodeScope, name: str, client: str, apart: str) -> NodeScope:
    """Return a scope with a filter, whose client the daemon runs, or says why not, for what the filter cannot judge."""
    looks = {**scope.looks, client: apart}
    return replace(scope, look_client=LOOK_CLIENT, looks=looks, filters=scope.filters | {name})


def with_headers(tiers: Mapping[int, TierSetup], cell: Cell) -> dict[int, TierSetup]:
    """Return tiers whose calls are judged by what is added to their requests, where the cell can add it."""
    if not cell.has_network:
        return dict(tiers)
    return {
        number: replace(tier, scope=replace(tier.scope, headers=places_by_name(tier.headers)))
        for number, tier in tiers.items()
    }


def scope_with(looks: FoundLooks, scope: NodeScope) -> NodeScope:
    """Return a scope whose commands may have the daemon run looks, beside those of its filters."""
    return replace(scope, look_client=LOOK_CLIENT, looks={**looks.known(), **scope.looks})


async def groups_of_sessions(settings: Settings, log: Logger) -> Groups | None:
    """Return the control groups in which the kernel counts sessions; ``None``, with a line in the log, without any."""

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
    """Return where sessions can get control groups, or why they cannot; changes nothing."""
    return find(hashlib.sha256(str(settings.places.state_dir).encode()).hexdigest()[:12])


def slots(settings: Settings, log: Logger) -> int:
    """Return how many sessions may run at once: as many as the settings allow and the memory holds."""
    wanted, session_mb, free_mb = settings.sessions.max_concurrent, settings.bounds.memory_mb, available_mb()
    found = fitting_slots(wanted, session_mb=session_mb, free_mb=free_mb)
    if found < wanted or free_mb < session_mb:
        log.warning(LogEvent.SLOTS_REDUCED, wanted=wanted, slots=found, session_mb=session_mb, free_mb=free_mb)
    return found


def files_in_memory(settings: Settings, cell: Cell, *, slots: int) -> int | str:
    """Return the memory (MiB) that the files of a session may take; or why they are on the disk, without a full stop.

    Reads what memory the machine has left.
    """
    if not isinstance(cell, BubblewrapCell):
        return f"at level {cell.level.value} no memory is set apart for them"
    if cell.no_files:
        return f"a file system in memory does not work here ({cell.no_files})"
    room = room_for_files(
        session_mb=settings.bounds.memory_mb, slots=slots, machine_mb=machine_mb(), free_mb=available_mb()
    )
    if bound_in_memory(settings.bounds.disk_mb * MIB, given_bytes=0, room_mb=room) is not None:
        return room
    return (
        f"with what the kernel takes for each, {settings.bounds.disk_mb} MiB (CLAUDEOPS_SESSION_DISK_MB) are more "
        f"than the {room} MiB that the memory has for the files of each of {slots} sessions"
    )


def room_in_memory(settings: Settings, cell: Cell, *, slots: int, log: Logger) -> int:
    """Return the same, with a line in the log; 0: they are on the disk."""
    found = files_in_memory(settings, cell, slots=slots)
    if isinstance(found, str):
        log.info(LogEvent.FILES_PLACED, files="disk", why=found)
        return 0
    log.info(LogEvent.FILES_PLACED, files="memory", room_mb=found)
    return found


async def end_leftovers(sessions_dir: Path, counts: Counting, log: Logger) -> None:
    """Kill the processes that a killed daemon left running: we hold the lock, so nobody uses them."""
    marks = marks_below(sessions_dir)
    try:
        strays = await _PROCESSES.run(lambda: kill_all(marked(marks)), seconds=_LOOK_SECONDS, what="a look for strays")
    except TimeoutError as error:  # reading about a process can hang
        log.error(LogEvent.STRAY_PROCESSES, count=None, error=str(error))
        return
    if strays:
        log.warning(LogEvent.STRAY_PROCESSES, count=strays)
        counts.strays_killed(strays)


async def clear_leftovers(sessions_dir: Path, log: Logger) -> None:
    """Remove the directories that a killed daemon left behind, once the ends of its sessions are written.

    Raises `ConfigurationError` when that takes minutes.
    """
    for directory in workspace_places(sessions_dir):
        error = await workspaces.remove(directory, seconds=_CLEAR_SECONDS)
        if isinstance(error, TimeoutError):  # the removal goes on, and would take new sessions' files too
            raise ConfigurationError(
                f"{directory} could not be cleared ({error.strerror}): mend its disk, or remove it.",
                kind=ErrorKind.FILESYSTEM,
            )
        if error is not None:
            log.error(LogEvent.WORKSPACE_NOT_REMOVED, path=str(directory), error=str(error))


def admission(settings: Settings, *, cell: Cell, version: str, clock: Clock, log: Logger) -> CliAdmission:
    """Return the admission of CLI binaries by this ``version``, which tests them in the cell that sessions get."""
    # Below the sessions' directory: what a killed daemon leaves there is removed at the next start.
    bench = Bench(cell=cell, path=settings.environment.path, root=settings.places.state_dir / SESSIONS / "self-test")

    async def test(binary: Path) -> SelfTestResult:
        return await try_gate(binary, bench)

    return CliAdmission(
        record=settings.places.state_dir / FILE,
        tester=version,
        test=test if settings.cell.cli_self_test else None,
        clock=clock,
        log=log,
    )


async def admit_clis(settings: Settings, clis: CliAdmission) -> None:
    """Raise `ConfigurationError` for a CLI whose gate does not hold, before anything depends on it."""
    for harness, binary in binaries(settings).items():
        if HARNESSES[harness].capabilities.gate and (refusal := await clis.refusal(binary)) is not None:
            raise ConfigurationError(refusal)


async def try_gate(binary: Path, bench: Bench) -> SelfTestResult:
    """Run the self-test of the gate with a CLI binary."""
    return await self_test(binary, bench=bench, serve=serve_script)


@asynccontextmanager
async def serve_script(document: Mapping[str, object]) -> AsyncIterator[str]:
    """Serve a script on loopback while the block runs; yield its URL."""
    # A web server, needed for two seconds after an update of the CLI: most starts do without it.
    from claudeops.scripted_api.script import Script  # noqa: PLC0415 - see above
    from claudeops.scripted_api.server import serve  # noqa: PLC0415 - see above

    async with serve(Script.from_mapping(document)) as api:
        yield api.url
