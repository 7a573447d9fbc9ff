"""Checks of what sessions consist of: CLI, prompts, library, policy, schema, isolation, access, bounds and gate."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import anyio.to_thread

from claudeops.app.cell import files_in_memory, find_groups, try_gate
from claudeops.app.limits import tools_by_tier
from claudeops.app.start.checks import binaries, check_harnesses, check_prompts
from claudeops.app.start.trial import surroundings
from claudeops.app.start.trial_process import find_looks
from claudeops.app.wiring import plans
from claudeops.cli.doctor.finding import DoctorContext, Finding, doubtful, failed, failed_with, fine, skipped
from claudeops.cli.reply import ErrorKind
from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.domain.schedules import fires_at, next_due
from claudeops.domain.schedules.plan import SchedulePlan
from claudeops.domain.schedules.windows import open_at
from claudeops.engine.cell import cell
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import (
    FIRST_UID,
    USER_HOMES,
    Cell,
    IsolationLevel,
    SandboxSpec,
    filtered_engine,
    named_in,
)
from claudeops.engine.cell.git import ABSENT as NO_GIT
from claudeops.engine.cell.levels import Selected, choose
from claudeops.engine.cell.look_cell import FoundLooks
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.estate import read_estate
from claudeops.engine.gate.cli_version import check_version
from claudeops.engine.gate.self_test import Bench
from claudeops.engine.library import Libraries
from claudeops.engine.process.bounds import available_mb, fitting_slots
from claudeops.engine.session.access import gather
from claudeops.engine.ssh.keys import find_keys
from claudeops.errors import ConfigurationError
from claudeops.formats.library import BUILT_IN
from claudeops.formats.report.extraction import ReportSchema
from claudeops.logs import get_logger
from claudeops.settings import Settings, TierSettings
from claudeops.settings.files import library_dir
from claudeops.wording.access import limits_in

_MOST_HOSTS: Final = 3  # that a sentence names
_GATED: Final = "claude"
_DETAIL_CHARACTERS: Final = 300
_MOST_SCHEDULES: Final = 10  # that are named


async def cli(_case: DoctorContext, settings: Settings) -> Finding:
    """Check that every CLI that a tier runs on is installed and allowed, and ask for its version."""
    try:
        check_harnesses(settings)
    except ConfigurationError as error:
        return failed_with(error)
    found: list[str] = []
    for harness, path in binaries(settings).items():
        if harness != _GATED:
            found.append(f"{harness} at {path}")
            continue
        try:
            version = await anyio.to_thread.run_sync(check_version, path)
        except ConfigurationError as error:
            return failed_with(error, kind=ErrorKind.FILESYSTEM)
        found.append(f"{harness} {version} at {path}")
    return fine(f"{', '.join(found)}.")


async def prompts(_case: DoctorContext, settings: Settings) -> Finding:
    """Check that the CLI would take the prompts literally, as plain text."""
    try:
        check_prompts(settings)
    except ConfigurationError as error:
        return failed_with(error, kind=ErrorKind.PARSE)
    directories = dict.fromkeys(str(tier.prompt_path.parent) for tier in settings.tiers)
    return fine(f"{len(settings.tiers)}, from {', '.join(directories)}.")


async def library(_case: DoctorContext, settings: Settings) -> Finding:
    """Read the library and report what cannot be used."""
    found = await Libraries(library_dir(), settings.places.repos_dir).look(get_logger())
    own = sum(text.origin == BUILT_IN for text in found.texts)
    says = f"{own} built-in texts, {len(found.texts) - own} of repositories"
    if not found.faults:
        return fine(f"{says}.")
    faults = "; ".join(str(fault) for fault in found.faults)
    return doubtful(f"{says}. Not as they are written: {faults}.", "Correct these files.")


async def schedules(case: DoctorContext, settings: Settings) -> Finding:
    """Say when each schedule comes due next; its faults are those of the settings."""
    kept = plans(settings)
    if not any(plan.enabled for plan in kept):
        return doubtful("No schedule is enabled.", "Set 'enabled = true' for one, unless alerts and people are enough.")
    told = [_next_fire(plan, case.now) for plan in kept[:_MOST_SCHEDULES]]
    left = len(kept) - len(told)
    more = f", and {left} more" if left else ""
    place = "the environment" if settings.schedule.path is None else str(settings.schedule.path)
    return fine(f"{len(kept)}, from {place}: {', '.join(told)}{more}.")


def _next_fire(plan: SchedulePlan, now: datetime) -> str:
    if not plan.enabled:
        return f"{plan.name} is off"
    at = fires_at(plan.schedule, next_due(plan.schedule.cadence, now)).astimezone(ZoneInfo(plan.timezone))
    quiet = " (in its quiet hours)" if open_at(plan.quiet_hours, at, plan.timezone) is not None else ""
    return f"{plan.name} at {at:%Y-%m-%d %H:%M:%S %Z}{quiet}"


async def policy(_case: DoctorContext, settings: Settings) -> Finding:
    """Check that the policy leaves every tier at least one tool."""
    bare = [str(number) for number, tools in tools_by_tier(settings).items() if not tools]
    if bare:
        return doubtful(
            f"Tier {', '.join(bare)} has nothing to look with: no tool is allowed.",
            "Widen CLAUDEOPS_ALLOWED_TOOLS, CLAUDEOPS_DISALLOWED_TOOLS or those of the tier, or the policy file.",
        )
    return fine(f"{'The default policy' if settings.policy_path is None else settings.policy_path}.")


async def schema(_case: DoctorContext, settings: Settings) -> Finding:
    """Check that the report schema compiles."""
    try:
        ReportSchema.load(settings.report.schema_text)
    except ConfigurationError as error:
        return failed_with(error, kind=ErrorKind.PARSE)
    return fine(f"Valid: {Path(settings.report.schema_path)}.")


async def isolation(_case: DoctorContext, settings: Settings) -> Finding:
    """Try the level of isolation that sessions would get."""
    try:
        chosen = await _chosen(settings)
    except ConfigurationError as error:
        return failed_with(error, kind=ErrorKind.POLICY)
    level = chosen.cell.level
    apart = (
        "Tools and MCP servers cannot read the CLI's memory."
        if chosen.cell.keeps_tools_apart
        else "A tool can read the CLI's memory, and that of MCP servers: it takes a kernel with Landlock (Linux 5.19)."
    )
    if level is IsolationLevel.BUBBLEWRAP:
        isolated = f"Bubblewrap isolates sessions: they see nothing of the daemon, and end with it. {apart}"
        if not chosen.cell.has_network:
            return doubtful(
                f"{isolated} They reach all that this machine reaches: the network is shared.",
                "Unset CLAUDEOPS_CELL_NETWORK, and list under `network` of the policy what sessions need.",
            )
        isolated += " Of the network they reach what is listed for them."
        return _with_looks(isolated, await anyio.to_thread.run_sync(find_looks, chosen.cell, settings.environment.path))
    shared = (
        "share the daemon's user" if level is IsolationLevel.NONE else "have users of their own, but see the machine"
    )
    message = f"The level is {level.value}: sessions {shared}. {apart}"
    remedy = next((f"{why[:1].upper()}{why[1:]}." for why in chosen.passed_over.values()), None)
    remedy = remedy or "Set CLAUDEOPS_ISOLATION to auto or bubblewrap."
    if level is IsolationLevel.USER and (without := cell.unlisted(USER_HOMES)):
        message += f" Of {cell.UIDS} such users {without} are on no list of this machine, where ssh looks for them."
        remedy += " For ssh at this level, run `systemd-sysusers` with deploy/claudeops-sessions.conf."
    return doubtful(message, remedy)


def _with_looks(message: str, looks: FoundLooks) -> Finding:
    """Add what the daemon can run for sessions."""
    if looks.cells:
        message += f" The daemon runs {', '.join(sorted(looks.cells))} for them."
    by_reason: dict[str, list[str]] = {}
    for name, why in sorted(looks.why.items()):
        if why != NO_GIT:
            by_reason.setdefault(why, []).append(name)
    if not by_reason:
        return fine(message)
    faults = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
    return doubtful(f"{message} It cannot run {faults}.", "Mend what is named, or have sessions do without.")


async def access(_case: DoctorContext, settings: Settings) -> Finding:
    """Report what the sessions of each tier cannot reach, as they are told before they start."""
    try:
        chosen = await _chosen(settings)
    except ConfigurationError:
        return skipped("Not looked at: no isolation works.")
    try:
        estate = await anyio.to_thread.run_sync(read_estate, settings.places.repos_dir)
    except OSError:
        estate = NO_ESTATE
    tiers: dict[tuple[str, ...], list[str]] = {}
    for tier in settings.tiers:
        found = await anyio.to_thread.run_sync(_out_of_reach, chosen.cell, tier, settings, estate)
        tiers.setdefault(found, []).append(str(tier.number))
    lines = [f"Tier {', '.join(numbers)}: {'. '.join(found)}." for found, numbers in tiers.items() if found]
    lines = lines or ["Nothing is known to be out of reach of any tier."]
    return fine(" ".join((*lines, *unheld(estate))))


def unheld(estate: Estate) -> tuple[str, ...]:
    """Return what to say about the estate's other hosts, where no cell holds a session."""
    hosts = sorted({service.host for service in estate.services if service.host and service.host != "localhost"})
    if not hosts:
        return ()
    named = f"{', '.join(hosts[:_MOST_HOSTS])}{' and others' if len(hosts) > _MOST_HOSTS else ''}"
    return (
        (
            f"On {named} no cell holds a session: give it a user that may only read, or a key that runs what "
            "`claudeops remote-commands` prints (docs/how-to/hold-other-hosts.md)."
        ),
    )


def _out_of_reach(cell: Cell, tier: TierSettings, settings: Settings, estate: Estate) -> tuple[str, ...]:
    environment = {**settings.environment.inherited, **tier.env}
    with tempfile.TemporaryDirectory(prefix="claudeops-doctor-") as directory:
        sandbox = SandboxSpec(
            # A workspace that is never made: only its place counts.
            workspace=Workspace(Path(directory), FIRST_UID if cell.level is IsolationLevel.USER else None),
            binary=next(iter(binaries(settings).values()), Path("/bin/sh")),
            repos_dir=settings.places.repos_dir,
            path=settings.environment.path,
            shown=(*named_in(environment), *tier.read),
        )
        filtered = filtered_engine(environment, cell)
        facts = gather(cell, sandbox, environment, home=tier.home or Path(directory), filtered=filtered)
    if isinstance(cell, BubblewrapCell) and tier.home is not None and find_keys(tier.home).found:
        facts = facts.with_agent()
    return limits_in(facts, estate)


async def bounds(_case: DoctorContext, settings: Settings) -> Finding:
    """Report what one session may use, and what enforces that."""
    try:
        chosen = await _chosen(settings)
    except ConfigurationError:
        return skipped("Not tried: no isolation works.")
    groups = await anyio.to_thread.run_sync(find_groups, settings)
    allowed = (
        f"One session may have {settings.bounds.processes} processes and threads, {settings.bounds.memory_mb} MiB of "
        f"memory, {settings.bounds.disk_mb} MiB of disk and files of {settings.bounds.file_mb} MiB"
    )
    allowed += f". {await anyio.to_thread.run_sync(_where_files_are, settings, chosen.cell)}"
    if not isinstance(groups, str):
        return fine(f"{allowed}. The kernel counts its processes, in a control group below {groups.place}.")
    if chosen.cell.counts_processes():
        return fine(f"{allowed}. The kernel counts its processes, as those of one user.")
    return doubtful(
        f"{allowed}. Its processes are only counted every second: as this command was started, {groups}.",
        "Start the daemon with deploy/claudeops.service, which has its own control groups, or not as root.",
    )


def _where_files_are(settings: Settings, cell: Cell) -> str:
    slots = fitting_slots(
        settings.sessions.max_concurrent, session_mb=settings.bounds.memory_mb, free_mb=available_mb()
    )
    found = files_in_memory(settings, cell, slots=slots)
    if isinstance(found, str):
        return f"Its files are on the disk, and the daemon measures them every second: {found}"
    return "Its files are in memory, in a file system of that size"


async def gate(_case: DoctorContext, settings: Settings) -> Finding:
    """Try with the real CLI on a scripted model that a denied call does not run."""
    if settings.sessions.claude_bin is None:
        return doubtful(
            "No tier runs on a CLI that asks before it acts.", "Set CLAUDEOPS_HARNESS to claude, or accept that."
        )
    if not settings.cell.cli_self_test:
        return doubtful("CLAUDEOPS_CLI_SELF_TEST switches it off.", "Unset it.")
    try:
        chosen = await _chosen(settings)
    except ConfigurationError:
        return skipped("Not tried: no isolation works.")
    with tempfile.TemporaryDirectory(prefix="claudeops-doctor-", ignore_cleanup_errors=True) as directory:
        bench = Bench(cell=chosen.cell, path=settings.environment.path, root=Path(directory) / "self-test")
        tested = await try_gate(settings.sessions.claude_bin, bench)
    if tested.passed:
        return fine("It holds: calls that were denied, or answered too late or not at all, did not run.")
    detail = f" ({tested.detail[:_DETAIL_CHARACTERS]})" if tested.detail else ""
    return failed(
        f"With {settings.sessions.claude_bin} {'; '.join(tested.faults)}{detail}.",
        "Name another CLI in CLAUDEOPS_CLAUDE_BIN, or unset it to use the bundled one.",
        kind=ErrorKind.POLICY,
    )


async def _chosen(settings: Settings) -> Selected:
    return await anyio.to_thread.run_sync(choose, settings.cell.isolation, surroundings(settings))
