"""Where the CLIs are."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from claudeops.errors import ConfigurationError, MissingInputError
from claudeops.settings.names import HARNESSES

if TYPE_CHECKING:
    from collections.abc import Collection

    from claudeops.settings.reader import Reader

BUNDLED: Final = "claude"
"""The harness whose CLI comes with ours."""


def idle_programs(reader: Reader, used: Collection[str]) -> tuple[str, ...]:
    """Return a warning for every program that the operator named and no tier uses."""
    variables = {harness: program_variable(harness) for harness in HARNESSES if harness not in used}
    return tuple(
        f"{variable} is set, but no tier runs on {harness}: it has no effect."
        for harness, variable in variables.items()
        if reader.is_set(variable)
    )


def program_variable(harness: str) -> str:
    """Return the name of the variable that names a harness's CLI."""
    return f"CLAUDEOPS_{harness.upper()}_BIN"


def find_cli(harness: str, reader: Reader, *, path: str, cwd: Path) -> Path:
    """Return the absolute path of a harness's CLI; nothing is started.

    The operator's choice, a path (relative to ``cwd``) or a name on ``path``, the directories of ``PATH``; without
    one the harness's own name on ``path``, and for ``claude`` else the one bundled in ``claude-agent-sdk``. Raises
    `ConfigurationError` when there is none.
    """
    variable = program_variable(harness)
    named = reader.text(variable)
    if named is not None:
        return _named(named, variable, path=path, cwd=cwd)
    found = shutil.which(harness, path=path)
    if found is not None:
        return Path(found)
    bundled = bundled_claude() if harness == BUNDLED else None
    if bundled is None:
        raise ConfigurationError(_missing(harness, variable))
    return bundled


def bundled_claude() -> Path | None:
    """Return the CLI inside ``claude-agent-sdk``, if that is installed with one for this platform."""
    # The SDK is found but not imported: importing it takes longer than everything else at start-up.
    spec = importlib.util.find_spec("claude_agent_sdk")
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        candidate = Path(directory) / "_bundled" / "claude"
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    return None


def _missing(harness: str, variable: str) -> str:
    if harness == BUNDLED:
        return (
            f"There is no claude CLI on PATH and none is bundled: set {variable}, or reinstall claudeops with its "
            "dependency claude-agent-sdk."
        )
    return f"A tier runs on {harness}, and there is no {harness} CLI on PATH: install it, or set {variable}."


def _named(named: str, variable: str, *, path: str, cwd: Path) -> Path:
    if "/" not in named:
        found = shutil.which(named, path=path)
        if found is None:
            raise MissingInputError(f"{variable} is {named!r}, which is not on PATH: set the full path of the CLI.")
        return Path(found)
    candidate = cwd / named
    if not candidate.is_file():
        raise MissingInputError(f"{variable} leads to {candidate}, which is not a file: set the path of the CLI.")
    if not os.access(candidate, os.X_OK):
        raise ConfigurationError(
            f"{variable} leads to {candidate}, which user {os.geteuid()} may not run: make it executable."
        )
    return candidate
