"""What sessions are made of: the CLI, the gate in it, prompts, schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from claudeops.app_kit import binaries, check_harnesses, check_prompts, tools_by_tier
from claudeops.app_self_test import try_gate
from claudeops.cli.doctor.values import Finding, doubtful, failed, failed_with, fine
from claudeops.cli.envelope import ErrorKind
from claudeops.domain.report.extraction import ReportSchema
from claudeops.engine.cli_version import check_version
from claudeops.errors import ConfigurationError

if TYPE_CHECKING:
    from claudeops.cli.doctor.values import Case
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


async def gate(_case: Case, settings: Settings) -> Finding:
    """Try with the real CLI on a scripted model that what is denied does not run."""
    if settings.claude_bin is None:
        return doubtful(
            "No tier runs on a CLI that asks before it acts.", "Set CLAUDEOPS_HARNESS to claude, or accept that."
        )
    if not settings.cli_self_test:
        return doubtful("Switched off by CLAUDEOPS_CLI_SELF_TEST.", "Unset it.")
    tested = await try_gate(settings.claude_bin, path=settings.path)
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
