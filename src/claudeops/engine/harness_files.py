"""The files that a CLI is given before its start, and the one that it may leave behind."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from claudeops.engine.workspace import LOOK_SECONDS, SESSION_FILES

if TYPE_CHECKING:
    from claudeops.harness.protocol import Command

LAST_MESSAGE_BYTES: Final = 10 * 1024 * 1024
"""So much of a last message is read; a report is a thousandth of it."""


async def prepare(command: Command) -> None:
    """Make the directories and files that ``command`` needs; raises `OSError`."""
    await SESSION_FILES.run(lambda: _prepare(command), seconds=LOOK_SECONDS, what="writing the CLI's files")


async def last_message(path: str) -> str | None:
    """Return what the CLI left at ``path``; ``None`` when there is no such file, or nothing that can be read."""
    try:
        return await SESSION_FILES.run(lambda: _last_message(path), seconds=LOOK_SECONDS, what=f"reading {path}")
    except TimeoutError:
        return None


def _prepare(command: Command) -> None:
    for directory in command.directories:
        Path(directory).mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in command.files:
        # Exclusively: in a directory that was made for this session nothing can be there yet.
        with open(os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:  # noqa: PTH123 - a descriptor
            opened.write(file.text)


def _last_message(path: str) -> str | None:
    try:
        # The session could write here: a link would lead elsewhere, and opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        try:
            return file.read(LAST_MESSAGE_BYTES).decode("utf-8", "replace")
        except OSError:
            return None
