"""Which CLI a binary is."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Final

from claudeops.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

OLDEST: Final = (2, 1, 236)
"""Older ones lose results, stop MCP servers at random or report background work as done."""

VERSION_SECONDS: Final = 20.0


def check_version(binary: Path) -> str:
    """Return what ``binary --version`` says; raises `ConfigurationError` when it is no CLI or too old a one."""
    try:
        # An empty environment: no secret of ours, and no setting of the operator's own CLI, is of use here.
        done = subprocess.run(  # noqa: S603 - the operator's own binary, no shell
            [binary, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            process_group=0,  # Ctrl-C at the terminal is for us: what is asked here answers before we stop
            timeout=VERSION_SECONDS,
            check=False,
            env={"HOME": "/nonexistent"},
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"CLAUDEOPS_CLAUDE_BIN: {binary} does not answer to --version ({error}): name a working claude CLI."
        ) from error
    found = re.search(r"\b(\d+)\.(\d+)\.(\d+)\b", done.stdout)
    if done.returncode != 0 or found is None:
        raise ConfigurationError(
            f"CLAUDEOPS_CLAUDE_BIN: {binary} --version names no version: it is not the claude CLI; name one that is."
        )
    version = tuple(int(part) for part in found.groups())
    if version < OLDEST:
        raise ConfigurationError(
            f"CLAUDEOPS_CLAUDE_BIN: {binary} is version {found[0]}, and at least "
            f"{'.'.join(map(str, OLDEST))} is needed: update it, or unset the variable to use the bundled one."
        )
    return found[0]
