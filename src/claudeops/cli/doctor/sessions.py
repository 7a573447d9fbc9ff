"""What sessions are made of: the CLI, the gate in it, prompts, schema."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import anyio.to_thread

from claudeops.app.cell import find_groups, surroundings, try_gate
from claudeops.app.wiring import binaries, check_harnesses, check_prompts, tools_by_tier
from claudeops.cli.doctor.values import Case, Finding, doubtful, failed, failed_with, fine, skipped
from claudeops.cli.output import ErrorKind
from claudeops.domain.report.extraction import ReportSchema
from claudeops.engine.cell import cell
from claudeops.engine.cell.cell import USER_HOMES, Level
from claudeops.engine.cell.levels import Selected, choose
from claudeops.engine.gate.admission import check_version
from claudeops.engine.gate.self_test import Bench
from claudeops.errors import ConfigurationError
from claudeops.settings import Settings

_GATED: Final = "claude"
_TOLD_CHARACTERS: Final = 300


async def cli(_case: Case, settings: Settings) -> Finding:
    """Look whether each CLI that a tier runs on is there and may be used, and ask for its version."""
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


async def _chosen(settings: Settings) -> Selected:
    return await anyio.to_thread.run_sync(choose, settings.isolation, surroundings(settings))


async def isolation(_case: Case, settings: Settings) -> Finding:
    """Try what sessions would be locked into."""
    try:
        chosen = await _chosen(settings)
    except ConfigurationError as error:
        return failed_with(error, kind=ErrorKind.POLICY)
    level = chosen.cell.level
    if level is Level.BUBBLEWRAP:
        return fine("Sessions are locked in by bubblewrap: they see nothing of the daemon, and end with it.")
    shared = "share the daemon's user" if level is Level.NONE else "have users of their own, and see the machine"
    message = f"The level is {level.value}: sessions {shared}."
    remedy = next((f"{why[:1].upper()}{why[1:]}." for why in chosen.passed_over.values()), None)
    remedy = remedy or "Set CLAUDEOPS_ISOLATION to auto or bubblewrap."
    if level is Level.USER and (without := cell.unlisted(USER_HOMES)):
        message += f" Of {cell.UIDS} such users {without} are on no list of the machine, where ssh looks for them."
        remedy += " For ssh at this level, run `systemd-sysusers` with deploy/claudeops-sessions.conf."
    return doubtful(message, remedy)


async def bounds(_case: Case, settings: Settings) -> Finding:
    """Tell what one session may use, and who holds it to that."""
    try:
        chosen = await _chosen(settings)
    except ConfigurationError:
        return skipped("Not tried: no session could be locked in.")
    groups = await anyio.to_thread.run_sync(find_groups, settings)
    allowed = (
        f"One session may have {settings.session_processes} processes and threads, {settings.session_memory_mb} MiB of "
        f"memory, {settings.session_disk_mb} MiB of disk and files of {settings.session_file_mb} MiB"
    )
    if not isinstance(groups, str):
        return fine(f"{allowed}. Its processes are counted by the kernel, in a control group below {groups.place}.")
    if chosen.cell.counts_processes():
        return fine(f"{allowed}. Its processes are counted by the kernel, as those of one user.")
    return doubtful(
        f"{allowed}. Its processes are only looked at every second: as this command was started, {groups}.",
        "Start the daemon by deploy/claudeops.service, which has control groups of its own; or not as root.",
    )


async def gate(_case: Case, settings: Settings) -> Finding:
    """Try with the real CLI on a scripted model that what is denied does not run."""
    if settings.claude_bin is None:
        return doubtful(
            "No tier runs on a CLI that asks before it acts.", "Set CLAUDEOPS_HARNESS to claude, or accept that."
        )
    if not settings.cli_self_test:
        return doubtful("Switched off by CLAUDEOPS_CLI_SELF_TEST.", "Unset it.")
    try:
        chosen = await _chosen(settings)
    except ConfigurationError:
        return skipped("Not tried: no session could be locked in.")
    with tempfile.TemporaryDirectory(prefix="claudeops-doctor-", ignore_cleanup_errors=True) as directory:
        bench = Bench(cell=chosen.cell, path=settings.path, root=Path(directory) / "self-test")
        tested = await try_gate(settings.claude_bin, bench)
    if tested.passed:
        return fine("It holds: what was denied, answered too late or not at all did not run.")
    detail = f" ({tested.detail[:_TOLD_CHARACTERS]})" if tested.detail else ""
    return failed(
        f"With {settings.claude_bin} {'; '.join(tested.faults)}{detail}.",
        "Name another CLI in CLAUDEOPS_CLAUDE_BIN, or unset it to use the bundled one.",
        kind=ErrorKind.POLICY,
    )


async def prompts(_case: Case, settings: Settings) -> Finding:
    """Look whether the CLI would take the prompts as the texts they are."""
    try:
        check_prompts(settings)
    except ConfigurationError as error:
        return failed_with(error, kind=ErrorKind.PARSE)
    directories = dict.fromkeys(str(tier.prompt_path.parent) for tier in settings.tiers)
    return fine(f"{len(settings.tiers)}, from {', '.join(directories)}.")


async def policy(_case: Case, settings: Settings) -> Finding:
    """Look whether the policy leaves every tier something to look with."""
    bare = [str(number) for number, tools in tools_by_tier(settings).items() if not tools]
    if bare:
        return doubtful(
            f"Nothing is left to look with for tier {', '.join(bare)}: no tool is allowed.",
            "Widen CLAUDEOPS_ALLOWED_TOOLS, CLAUDEOPS_DISALLOWED_TOOLS or those of the tier, or the policy file.",
        )
    return fine(f"{'The one that ships' if settings.policy_path is None else settings.policy_path}.")


async def schema(_case: Case, settings: Settings) -> Finding:
    """Compile the schema of the reports."""
    try:
        ReportSchema.load(settings.schema_text)
    except ConfigurationError as error:
        return failed_with(error, kind=ErrorKind.PARSE)
    return fine(f"Valid: {Path(settings.schema_path)}.")
