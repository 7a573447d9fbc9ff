"""Exit statuses of the operator's commands (sysexits.h where a number has a name there).

The JSON document that every command prints under ``--output-format json``: exactly one, always.

Shape: the claw-code envelope, schema version 1.0. ``exit_code`` is 0, 1 or 2 and equals the process's exit
status; ``sysexit`` is what the same run would have exited with in text mode.

How a command answers: one JSON document on stdout, or a sentence on stderr. Both return the exit status.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Final

import click
import orjson

from claudeops.errors import (
    AlreadyRunningError,
    ClaudeopsError,
    ConfigurationError,
    DatabaseUnavailableError,
    MissingInputError,
    StoppedError,
)


class Exit(IntEnum):
    """What a caller may conclude."""

    OK = 0  # clean stop; healthy or resolved
    UNRESOLVED = 1  # a session failed, or nobody could mend what was found
    USAGE = 64  # the command line is wrong
    NO_INPUT = 66  # a file named on the command line is not there
    UNAVAILABLE = 69  # the database cannot be reached
    SOFTWARE = 70  # a fault of ours
    TRY_LATER = 75  # parked, paused, or another daemon is in the way
    CONFIGURATION = 78  # a setting, schema, prompt or binary is wrong


def exit_for(error: ClaudeopsError) -> Exit:
    """Return the exit status that an error ends a command with."""
    match error:
        case ConfigurationError():
            return Exit.CONFIGURATION
        case AlreadyRunningError():
            return Exit.TRY_LATER
        case DatabaseUnavailableError():
            return Exit.UNAVAILABLE
        case StoppedError():
            return Exit.UNRESOLVED
        case _:
            return Exit.SOFTWARE


SCHEMA_VERSION: Final = "1.0"


class StopReason(StrEnum):
    """How a turn ended, in the envelope's own closed set."""

    COMPLETED = "completed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    MAX_BUDGET_REACHED = "max_budget_reached"
    MAX_TURNS_REACHED = "max_turns_reached"


class ErrorKind(StrEnum):
    """Where an error comes from, in the envelope's own closed set."""

    FILESYSTEM = "filesystem"
    AUTH = "auth"
    SESSION = "session"
    PARSE = "parse"
    RUNTIME = "runtime"
    MCP = "mcp"
    DELIVERY = "delivery"
    USAGE = "usage"
    POLICY = "policy"
    UNKNOWN = "unknown"


def document(command: str, body: Mapping[str, object], *, sysexit: Exit, exit_code: int, at: datetime) -> bytes:
    """Return the document, with the five keys that every document has."""
    return orjson.dumps(
        {
            "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "command": command,
            "exit_code": exit_code,
            "sysexit": int(sysexit),
            "output_format": "json",
            "schema_version": SCHEMA_VERSION,
            **body,
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )


def error_body(
    *, kind: ErrorKind, operation: str, target: str, retryable: bool, message: str, hint: str | None = None
) -> dict[str, object]:
    """Return the error part of a document; a hint only where a fix is known."""
    error: dict[str, object] = {
        "kind": kind.value,
        "operation": operation,
        "target": target,
        "retryable": retryable,
        "message": message,
    }
    if hint is not None:
        error["hint"] = hint
    return {"error": error}


def body_of(error: ClaudeopsError, *, operation: str, target: str) -> dict[str, object]:
    """Return the error part for one of our own errors."""
    kind, retryable = _classify(error)
    if isinstance(error, DatabaseUnavailableError):
        operation = "db.connect"
    return error_body(kind=kind, operation=operation, target=target, retryable=retryable, message=str(error))


def _classify(error: ClaudeopsError) -> tuple[ErrorKind, bool]:
    match error:
        case MissingInputError():
            return ErrorKind.FILESYSTEM, False
        case ConfigurationError():
            return ErrorKind.USAGE, False
        case AlreadyRunningError() | DatabaseUnavailableError() | StoppedError():
            return ErrorKind.RUNTIME, True
        case _:
            return ErrorKind.UNKNOWN, False


def print_document(
    command: str, body: Mapping[str, object], sysexit: Exit, *, exit_code: int | None = None, at: datetime | None = None
) -> int:
    """Print a command's document and return the ``exit_code`` that it names: 0 or 1 unless the contract has more."""
    exit_code = min(int(sysexit), 1) if exit_code is None else exit_code
    at = datetime.now(UTC) if at is None else at
    sys.stdout.write(document(command, body, sysexit=sysexit, exit_code=exit_code, at=at).decode())
    return exit_code


def print_failure(
    command: str,
    error: ClaudeopsError,
    *,
    as_json: bool,
    operation: str | None = None,
    target: str | None = None,
    sysexit: Exit | None = None,
) -> int:
    """Tell the sentence of an error.

    ``operation`` and ``target`` are the command itself and ``sysexit`` what the error stands for, unless given.
    """
    sysexit = exit_for(error) if sysexit is None else sysexit
    if not as_json:
        click.echo(f"claudeops: {error}", err=True)
        return sysexit
    return print_document(command, body_of(error, operation=operation or command, target=target or command), sysexit)
