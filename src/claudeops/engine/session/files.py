"""Files between the daemon and a CLI: those that it is given before its start, and those that it may leave behind.

A session with an older prompt may leave a handoff file in its own state directory. Its author is as untrusted as any
model: the file is opened without following a link or waiting for a pipe, read up to a bound, redacted and validated
before anything in it is believed, and then removed.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.domain.calls import ToolCall
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.report.report import Extraction, ExtractionMethod
from claudeops.domain.stream.transcript import ObservedCall
from claudeops.engine.cell.workspace import LOOK_SECONDS, SESSION_FILES
from claudeops.engine.session_log.reader import open_plain
from claudeops.formats.report.markers import Handoff, HandoffError, parse_handoff, with_handoff
from claudeops.formats.stream import ToolStarted, decode
from claudeops.harness.protocol import CliCommand, Harness
from claudeops.structs import replace
from claudeops.text.redact import Redactor

HANDOFF_FILE: Final = "handoff.json"
HANDOFF_BYTES: Final = 1024 * 1024
"""A longer file is refused; a usual handoff has a thousandth of this size."""

OUTRANKED: Final = "handoff file ignored: a validated report outranks it"

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

LAST_MESSAGE_BYTES: Final = 10 * 1024 * 1024
"""How much of a last message is read; a usual report has a thousandth of this size."""


async def take_handoff(
    state_dir: Path, *, current_tier: int, max_tier: int, redactor: Redactor
) -> Handoff | HandoffError | None:
    """Read and remove the handoff file of a session whose process has ended; ``None`` if it left none.

    Never raises. A file that cannot be read is an error like one whose content is invalid.
    """
    content = await _read(state_dir, remove=True)
    return _parsed(content, current_tier=current_tier, max_tier=max_tier, redactor=redactor)


async def read_handoff(
    state_dir: Path, *, current_tier: int, max_tier: int, redactor: Redactor
) -> Handoff | HandoffError | None:
    """Read, but do not remove, the handoff file of a session whose daemon died; ``None`` if it left none.

    The file is removed with the directories of dead sessions, once their ends are written: if this daemon dies before
    that, the next one must find it again. Never raises.
    """
    content = await _read(state_dir, remove=False)
    return _parsed(content, current_tier=current_tier, max_tier=max_tier, redactor=redactor)


def apply_handoff(
    extraction: Extraction, taken: Handoff | HandoffError | None
) -> tuple[Extraction, tuple[NewEvent, ...]]:
    """Return a session's extraction with its handoff file taken into account, and the events about that file.

    The file counts if no validated report was found. A file that asks for help but cannot be understood is a critical
    event, whatever else the session said.
    """
    if taken is None:
        return extraction, ()
    if isinstance(taken, HandoffError):
        message = f"A session left word for the next tier that cannot be followed: {taken.message}"
        return extraction, (NewEvent(level=EventLevel.CRITICAL, message=message, fingerprint="handoff_invalid"),)
    if extraction.method in (ExtractionMethod.STRUCTURED, ExtractionMethod.SALVAGED):
        return replace(extraction, warnings=(*extraction.warnings, OUTRANKED)), ()
    return with_handoff(extraction, taken), ()


async def prepare(command: CliCommand) -> None:
    """Make the directories and files that ``command`` needs; raises `OSError`."""
    if command.files or command.directories:
        await SESSION_FILES.run(lambda: _prepare(command), seconds=LOOK_SECONDS, what="writing the CLI's files")


async def last_message(path: str) -> str | None:
    """Return what the CLI left at ``path``; ``None`` if there is no such file, or it cannot be read."""
    try:
        return await SESSION_FILES.run(lambda: _last_message(path), seconds=LOOK_SECONDS, what=f"reading {path}")
    except TimeoutError:
        return None


class LoggedInputs:
    """Inputs of calls that are not held, read in the session's log."""

    def __init__(self, log: Path, harness: Harness, redactor: Redactor) -> None:
        from claudeops.engine.session_log.lines import SessionLogLines  # noqa: PLC0415 - few sessions need it

        self._lines = SessionLogLines(log)
        self._harness = harness
        self._redactor = redactor

    async def find(self, call: ObservedCall) -> ToolCall | None:
        """Do the same as `read`, on a thread; ``None`` also where the log cannot be read, which is no evidence."""
        try:
            return await SESSION_FILES.run(partial(self.read, call), seconds=LOOK_SECONDS, what="reading the log")
        except OSError:
            return None

    def read(self, call: ObservedCall) -> ToolCall | None:
        """Return a call with its input; ``None`` where the log does not have it. Blocks; raises `OSError`."""
        for line in self._lines.read((call.line or 1) - 1, limit=1, complete=True).lines:
            # Redacted once more, because there may be secrets now that were not known when the line was written.
            for fact in self._harness.reader().feed(decode(self._redactor.line(line.content))):
                if isinstance(fact, ToolStarted) and fact.tool_use_id == call.tool_use_id:
                    return ToolCall(tool_use_id=call.tool_use_id, tool_name=call.name, input=fact.input or {})
        return None

    def close(self) -> None:
        """Close the log."""
        self._lines.close()


def _parsed(
    content: bytes | HandoffError | None, *, current_tier: int, max_tier: int, redactor: Redactor
) -> Handoff | HandoffError | None:
    if content is None or isinstance(content, HandoffError):
        return content
    text = redactor.line(content).decode("utf-8", "replace")
    return parse_handoff(text, current_tier=current_tier, max_tier=max_tier)


async def _read(state_dir: Path, *, remove: bool) -> bytes | HandoffError | None:
    try:
        return await SESSION_FILES.run(
            lambda: _look(state_dir, remove=remove), seconds=LOOK_SECONDS, what="reading the handoff file"
        )
    except TimeoutError as error:
        return _unreadable(error)


def _look(state_dir: Path, *, remove: bool) -> bytes | HandoffError | None:
    try:
        directory = os.open(state_dir, _DIRECTORY)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unreadable(error)
    try:
        return _content(directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unreadable(error)
    finally:
        # Even if it was not read, so that it is never taken for another session's.
        with suppress(OSError):
            if remove:
                os.unlink(HANDOFF_FILE, dir_fd=directory)
        os.close(directory)


def _content(directory: int) -> bytes | HandoffError:
    with open_plain(HANDOFF_FILE, follow_links=False, directory_fd=directory) as file:
        content = file.read(HANDOFF_BYTES + 1)
    if len(content) > HANDOFF_BYTES:
        return HandoffError(message=f"the handoff file is larger than {HANDOFF_BYTES} bytes.")
    return content


def _unreadable(error: OSError) -> HandoffError:
    why = "it is a link" if error.errno == errno.ELOOP else error.strerror
    return HandoffError(message=f"the handoff file cannot be read: {why}.")


def _prepare(command: CliCommand) -> None:
    for directory in command.directories:
        Path(directory).mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in command.files:
        # Exclusively, because a directory that was made for this session cannot hold the file yet.
        with open(os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:  # noqa: PTH123 - a descriptor
            opened.write(file.text)


def _last_message(path: str) -> str | None:
    try:
        # The session could write here: it may have left a link elsewhere, or a pipe whose opening waits for a writer.
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
