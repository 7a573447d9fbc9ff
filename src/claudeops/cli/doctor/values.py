"""What a check is, what it is given, and what it finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from claudeops.cli.output import ErrorKind, Exit
from claudeops.errors import ClaudeopsError
from claudeops.settings import Settings


class Status(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"  # the daemon starts, and something is not as it should be
    FAILED = "failed"  # the daemon does not start, or its sessions cannot work
    SKIPPED = "skipped"  # something else has to be mended before it can be looked at


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The outcome of one check."""

    status: Status
    says: str  # what was found, one sentence
    remedy: str | None = None  # what to do about it, one sentence
    sysexit: Exit = Exit.OK  # what a failed check makes the command exit with
    kind: ErrorKind = ErrorKind.UNKNOWN  # of a failed check, in the envelope's set


def fine(says: str) -> Finding:
    """Return that there is nothing to do."""
    return Finding(status=Status.OK, says=says)


def doubtful(says: str, remedy: str) -> Finding:
    """Return a warning."""
    return Finding(status=Status.WARNING, says=says, remedy=remedy)


def skipped(says: str) -> Finding:
    """Return that this could not be looked at."""
    return Finding(status=Status.SKIPPED, says=says)


def failed(
    says: str,
    remedy: str | None,
    *,
    sysexit: Exit = Exit.CONFIGURATION,
    kind: ErrorKind = ErrorKind.USAGE,
) -> Finding:
    """Return a failure."""
    return Finding(status=Status.FAILED, says=says, remedy=remedy, sysexit=sysexit, kind=kind)


def failed_with(
    error: ClaudeopsError | str,
    *,
    sysexit: Exit = Exit.CONFIGURATION,
    kind: ErrorKind = ErrorKind.USAGE,
) -> Finding:
    """Return a failure of which one of our sentences tells: what is wrong, a colon, the remedy."""
    says, remedy = halves(str(error))
    return failed(says, remedy, sysexit=sysexit, kind=kind)


def halves(sentence: str) -> tuple[str, str | None]:
    """Split a sentence at its last colon that stands in no brackets: what is wrong, and the remedy."""
    open_brackets = 0
    for place in range(len(sentence) - 1, 0, -1):
        open_brackets += {")": 1, "(": -1}.get(sentence[place], 0)
        if not open_brackets and sentence.startswith(": ", place):
            remedy = sentence[place + 2 :]
            return f"{sentence[:place]}.", f"{remedy[:1].upper()}{remedy[1:]}"
    return sentence, None


async def no_answer() -> None:
    """Return that the model API was not asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What the checks look at."""

    settings: Settings | None  # None: they cannot be read, whatever is left out of them
    fault: str | None  # why not, one sentence
    refused: Mapping[str, str]  # variables that were left out to read the rest, each with what is wrong with it
    warnings: tuple[str, ...]  # of the settings
    now: datetime  # UTC
    answer: Callable[[], Awaitable[Answer | None]] = no_answer  # of the model API; None: there is nothing to ask


@dataclass(frozen=True, slots=True)
class Check:
    """One precondition."""

    name: str
    look: Callable[[Case, Settings], Awaitable[Finding]]
    variables: tuple[str, ...] = ()  # patterns of the variables whose faults are this check's


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came back."""

    asked: str  # method and path
    status: int | None  # None: nothing
    error: str = ""  # why nothing came back
    date: datetime | None = None  # the clock of whoever answered, UTC
    heard_at: datetime | None = None  # ours at that moment
