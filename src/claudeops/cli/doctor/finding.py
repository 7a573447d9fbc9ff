"""What a check is, what it gets, and what it finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from claudeops.cli.reply import ErrorKind, Exit
from claudeops.errors import ClaudeopsError
from claudeops.settings import Settings


class FindingStatus(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"  # the daemon starts, but something is not as it should be
    FAILED = "failed"  # the daemon does not start, or its sessions cannot work
    SKIPPED = "skipped"  # something else must be fixed first


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one check."""

    status: FindingStatus
    text: str  # what was found, one sentence
    remedy: str | None = None  # what to do about it, one sentence; None: nothing known
    sysexit: Exit = Exit.OK  # the exit status that a failed check gives the command
    kind: ErrorKind = ErrorKind.UNKNOWN  # of a failed check, in the envelope's words
    lines: tuple[str, ...] = ()  # what was found in detail, below the sentence
    document: Mapping[str, object] | None = None  # the same for the JSON document, under the check's name

    @property
    def sentence(self) -> str:
        """What was found and what to do about it, where there is one line for both."""
        return self.text if self.remedy is None else f"{self.text} {self.remedy}"


def fine(text: str) -> Finding:
    """Return the finding that nothing needs to be done."""
    return Finding(status=FindingStatus.OK, text=text)


def doubtful(text: str, remedy: str) -> Finding:
    """Return a warning."""
    return Finding(status=FindingStatus.WARNING, text=text, remedy=remedy)


def skipped(text: str) -> Finding:
    """Return the finding that this could not be checked."""
    return Finding(status=FindingStatus.SKIPPED, text=text)


def failed(
    text: str,
    remedy: str | None,
    *,
    sysexit: Exit = Exit.CONFIGURATION,
    kind: ErrorKind = ErrorKind.USAGE,
) -> Finding:
    """Return a failure."""
    return Finding(status=FindingStatus.FAILED, text=text, remedy=remedy, sysexit=sysexit, kind=kind)


def failed_with(
    error: ClaudeopsError | str,
    *,
    sysexit: Exit = Exit.CONFIGURATION,
    kind: ErrorKind = ErrorKind.USAGE,
) -> Finding:
    """Return a failure from one of our own sentences: what is wrong, a colon, the remedy."""
    text, remedy = halves(str(error))
    return failed(text, remedy, sysexit=sysexit, kind=kind)


def together(findings: Sequence[Finding], *more: str) -> Finding:
    """Return one finding for several parts of one check, with the first remedy; ``more`` is said after them."""
    text = " ".join((*(finding.text for finding in findings), *more))
    remedy = next((finding.remedy for finding in findings if finding.remedy), None)
    return fine(text) if remedy is None else doubtful(text, remedy)


def halves(sentence: str) -> tuple[str, str | None]:
    """Split a sentence at its last colon outside brackets, into what is wrong and the remedy."""
    open_brackets = 0
    for place in range(len(sentence) - 1, 0, -1):
        open_brackets += {")": 1, "(": -1}.get(sentence[place], 0)
        if not open_brackets and sentence.startswith(": ", place):
            remedy = sentence[place + 2 :]
            return f"{sentence[:place]}.", f"{remedy[:1].upper()}{remedy[1:]}"
    return sentence, None


async def no_answer() -> None:
    """Return ``None``: the model API was not asked."""


class DoctorContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks get."""

    settings: Settings | None  # None: they cannot be read, whichever variables are left out
    fault: str | None  # why they cannot be read, one sentence
    refused: Mapping[str, str]  # invalid variables, left out to read the rest, each with its fault
    warnings: tuple[str, ...]  # of the settings
    now: datetime  # UTC
    answer: Callable[[], Awaitable[ModelAnswer | None]] = no_answer  # of the model API; None: not asked


class Check(msgspec.Struct, frozen=True):
    """One precondition of the daemon."""

    name: str
    look: Callable[[DoctorContext, Settings], Awaitable[Finding]]
    variables: tuple[str, ...] = ()  # patterns of the variables whose faults this check reports


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back from the model API."""

    asked: str  # method and path
    status: int | None  # None: nothing came back
    error: str = ""  # why nothing came back
    date: datetime | None = None  # the server's clock, UTC
    heard_at: datetime | None = None  # our clock at that moment, UTC
