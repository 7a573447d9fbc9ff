"""The version of a CLI, and the oldest that is accepted.

It is apart from the gate's self-test because a start looks at it before it has loaded what that takes.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from claudeops.errors import ConfigurationError, ErrorKind

OLDEST: Final = (2, 1, 236)
"""The oldest version that is accepted; older ones lose results, stop MCP servers at random or report background work
as done."""

VERSION_SECONDS: Final = 20.0


def check_version(binary: Path, seconds: float = VERSION_SECONDS) -> str:
    """Return the version that ``binary --version`` prints; raises `ConfigurationError` if it is no CLI or too old.

    One that is ``retryable`` says no more than that the CLI has not answered in time.
    """
    done = _answer(binary, seconds)
    found = re.search(r"\b(\d+)\.(\d+)\.(\d+)\b", done.stdout)
    if done.returncode != 0 or found is None:
        raise ConfigurationError(
            f"CLAUDEOPS_CLAUDE_BIN: {binary} --version names no version: it is not the claude CLI; name one that is.",
            kind=ErrorKind.FILESYSTEM,
            operation="spawn",
            target=str(binary),
        )
    version = tuple(int(part) for part in found.groups())
    if version < OLDEST:
        raise ConfigurationError(
            f"CLAUDEOPS_CLAUDE_BIN: {binary} is version {found[0]}, and at least "
            f"{'.'.join(map(str, OLDEST))} is needed: update it, or unset the variable to use the bundled one.",
            kind=ErrorKind.FILESYSTEM,
            operation="spawn",
            target=str(binary),
        )
    return found[0]


def _answer(binary: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    try:
        # An empty environment, because it needs neither our secrets nor the settings of the operator's own CLI.
        return subprocess.run(  # noqa: S603 - the operator's own binary, no shell
            [binary, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            process_group=0,  # Ctrl-C at the terminal is for us: the binary shall answer before we stop
            timeout=seconds,
            check=False,
            env={"HOME": "/nonexistent"},
            text=True,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(
            f"CLAUDEOPS_CLAUDE_BIN: {binary} has not answered to --version within {seconds:g} s: try again when"
            " the machine has less to do, or name a working claude CLI.",
            kind=ErrorKind.RUNTIME,
            retryable=True,
            operation="spawn",
            target=str(binary),
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"CLAUDEOPS_CLAUDE_BIN: {binary} does not answer to --version ({error}): name a working claude CLI.",
            kind=ErrorKind.FILESYSTEM,
            operation="spawn",
            target=str(binary),
        ) from error
