"""Directories that the users of sessions may pass: who makes a temporary directory closes it to everybody else."""

from __future__ import annotations

from pathlib import Path

_EVERYBODY_MAY_PASS = 0o011  # and still list nothing


def let_pass(directory: Path) -> None:
    """Let others get to what is theirs below a directory, as an operator's directories do."""
    directory.chmod(directory.stat().st_mode & 0o7777 | _EVERYBODY_MAY_PASS)
