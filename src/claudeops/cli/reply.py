"""How a command answers: its exit status, and one JSON document on stdout or one sentence on stderr.

Exit statuses are those of sysexits.h where a number has a name there. Under ``--output-format json`` a command prints
exactly one document, always, in the shape of the claw-code envelope, schema version 1.0: ``exit_code`` is 0, 1 or 2 and
equals the process's exit status; ``sysexit`` is what the same run would have exited with in text mode.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

import click

from claudeops.errors import (
    AlreadyRunningError,
    ClaudeopsError,
    ConfigurationError,
    DatabaseUnavailableError,
    ErrorKind,
    NoDaemonError,
    OutputError,
    StoppedError,
    StoreError,
)

__all__ = [
    "LOOK_AGAIN",
    "SCHEMA_VERSION",
    "CommandResult",
    "ErrorKind",
    "Exit",
    "StopReason",
    "body_of",
    "document",
    "error_body",
    "exit_for",
    "json_line",
    "not_found",
    "not_found_body",
    "print_document",
    "print_failure",
    "print_result",
    "refused",
    "watch_stdout",
]

SCHEMA_VERSION: Final = "1.0"

LOOK_AGAIN: Final = "Look at how it stands now; the message says what is in the way."
"""The hint of a refusal that has none of its own."""


class Exit(IntEnum):
    """The exit statuses of all commands, and what a caller may conclude from them."""

    OK = 0  # a clean stop; healthy or resolved
    UNRESOLVED = 1  # a session failed, or what was found could not be repaired
    USAGE = 64  # the command line is wrong
    NO_INPUT = 66  # a file named on the command line does not exist
    UNAVAILABLE = 69  # the database cannot be reached
    SOFTWARE = 70  # a bug in claudeops
    CANNOT_CREATE = 73  # a file that was asked for, or what is printed, cannot be written
    TRY_LATER = 75  # parked, paused, another daemon is in the way, or the machine has too much to do
    CONFIGURATION = 78  # a setting, schema, prompt or binary is wrong
    CANCELLED = 124  # a session was stopped, or ran out of time
    BUDGET = 137  # a session ran out of money


class StopReason(StrEnum):
    """How a turn ended, in the words of the envelope."""

    COMPLETED = "completed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    MAX_BUDGET_REACHED = "max_budget_reached"
    MAX_TURNS_REACHED = "max_turns_reached"


class CommandResult(NamedTuple):  # no Struct: ``--help`` does without the 6 ms of msgspec
    """What a command prints, for people and for programs, and its exit status."""

    text: str  # on stdout; on stderr where the exit status is not 0; empty: nothing is printed
    on_stdout: bool = False  # an answer, also where the exit status is not 0
    body: Mapping[str, object] = MappingProxyType({})
    exit_code: Exit = Exit.OK
    envelope_code: int | None = None  # the document's; None: 0 or 1, as `exit_code` says


def print_result(command: str, done: CommandResult, *, as_json: bool) -> int:
    """Print what a command has done, as lines or as a document, and return the exit status."""
    if as_json:
        return print_document(command, done.body, done.exit_code, exit_code=done.envelope_code)
    if done.text:
        click.echo(done.text, err=done.exit_code is not Exit.OK and not done.on_stdout)
    return done.exit_code


def not_found(kind: str, name: str, message: str) -> CommandResult:
    """Return the result for something that does not exist."""
    body = not_found_body(kind, name, message)
    return CommandResult(text=f"claudeops: {message}", body=body, exit_code=Exit.UNRESOLVED)


def refused(operation: str, target: str, message: str, *, hint: str = LOOK_AGAIN) -> CommandResult:
    """Return the result for something that is not allowed, or no longer possible."""
    body = error_body(
        kind=ErrorKind.POLICY, operation=operation, target=target, retryable=False, message=message, hint=hint
    )
    text = f"claudeops: {message}" if hint == LOOK_AGAIN else f"claudeops: {message}\n  hint: {hint}"
    return CommandResult(text=text, body={"handled": False, **body}, exit_code=Exit.UNRESOLVED)


def exit_for(error: ClaudeopsError) -> Exit:
    """Return the exit status with which an error ends a command."""
    match error:
        case AlreadyRunningError() | NoDaemonError() | ConfigurationError(retryable=True):
            return Exit.TRY_LATER
        case ConfigurationError() | StoreError(kind=ErrorKind.FILESYSTEM):  # it is no database, or not this user's
            return Exit.CONFIGURATION
        case DatabaseUnavailableError():
            return Exit.UNAVAILABLE
        case OutputError():
            return Exit.CANNOT_CREATE
        case StoppedError():
            return Exit.UNRESOLVED
        case _:
            return Exit.SOFTWARE


def print_failure(
    command: str,
    error: ClaudeopsError,
    *,
    as_json: bool,
    operation: str | None = None,
    target: str | None = None,
    sysexit: Exit | None = None,
) -> int:
    """Print an error, as a sentence or as a document, and return the exit status.

    ``operation`` and ``target`` are said where the error itself does not name them; they default to the command,
    ``sysexit`` to the status of the error.
    """
    sysexit = exit_for(error) if sysexit is None else sysexit
    if not as_json:
        click.echo(f"claudeops: {error}", err=True)
        if error.has_own_hint:
            click.echo(f"  hint: {error.hint}", err=True)
        return sysexit
    return print_document(command, body_of(error, operation=operation or command, target=target or command), sysexit)


def watch_stdout() -> Callable[[], OSError | None]:
    """Note from now on why standard output could not be written; return what says so, which also writes what is left.

    Whoever prints may go on without it: a stream that nobody reads ends no session. Process-wide; called once.
    """
    plain = sys.stdout
    if plain is not sys.__stdout__:  # somebody reads it in this process
        return lambda: None
    raw = _StandardOutput(1 if plain is not None else os.open(os.devnull, os.O_WRONLY), "wb", closefd=False)
    if plain is None:  # the interpreter found it closed
        raw.failure = OSError(errno.EBADF, os.strerror(errno.EBADF))
        sys.stdout = open(raw.fileno(), "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - until the process exits
        return lambda: raw.failure
    sys.stdout = io.TextIOWrapper(
        cast("io.BufferedWriter", raw) if plain.write_through else io.BufferedWriter(raw),
        encoding=plain.encoding,
        errors="backslashreplace" if plain.errors == "strict" else plain.errors,  # an argument may be no UTF-8
        line_buffering=plain.line_buffering,
        write_through=plain.write_through,
    )

    def failure() -> OSError | None:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        if raw.failure is not None:  # what is still in a buffer would be tried again at exit
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, raw.fileno())
            os.close(nowhere)
        return raw.failure

    return failure


class _StandardOutput(io.FileIO):
    """Knows why it could not be written, the first time."""

    failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failure = self.failure or error
            raise


def print_document(
    command: str, body: Mapping[str, object], sysexit: Exit, *, exit_code: int | None = None, at: datetime | None = None
) -> int:
    """Print a command's document and return its ``exit_code``: 0 or 1, unless the caller passes another."""
    exit_code = min(int(sysexit), 1) if exit_code is None else exit_code
    at = datetime.now(UTC) if at is None else at
    sys.stdout.write(document(command, body, sysexit=sysexit, exit_code=exit_code, at=at).decode())
    return exit_code


def document(command: str, body: Mapping[str, object], *, sysexit: Exit, exit_code: int, at: datetime) -> bytes:
    """Return a document: ``body`` after the five keys that every document has."""
    return json_line(
        {
            "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "command": command,
            "exit_code": exit_code,
            "sysexit": int(sysexit),
            "output_format": "json",
            "schema_version": SCHEMA_VERSION,
            **body,
        }
    )


def json_line(value: Mapping[str, object]) -> bytes:
    """Return an object as a line of JSON; an argument or path that is no UTF-8 is in it with its bytes escaped."""
    import orjson  # noqa: PLC0415 - texts do without it

    options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z
    try:
        return orjson.dumps(value, option=options)
    except TypeError:  # also for what JSON has no form for, which then fails again
        return orjson.dumps(_with_escapes(value), option=options)


def _with_escapes(value: object) -> object:
    from claudeops.text.escapes import visible  # noqa: PLC0415 - rare, and `health` must be quick

    match value:
        case str():
            return value if value.isascii() else visible(value)
        case Mapping():
            return {_with_escapes(key): _with_escapes(item) for key, item in value.items()}
        case list() | tuple():
            return [_with_escapes(item) for item in value]
        case _:
            return value


def error_body(
    *, kind: ErrorKind, operation: str, target: str, retryable: bool, message: str, hint: str
) -> dict[str, object]:
    """Return the error part of a document; ``hint`` is what helps."""
    error = {
        "kind": kind.value,
        "operation": operation,
        "target": target,
        "retryable": retryable,
        "message": message,
        "hint": hint,
    }
    return {"error": error}


def body_of(error: ClaudeopsError, *, operation: str, target: str) -> dict[str, object]:
    """Return the error part of a document for one of our own errors, which knows its kind and its hint."""
    return error_body(
        kind=error.kind,
        operation=error.operation or operation,
        target=error.target or target,
        retryable=error.retryable,
        message=str(error),
        hint=error.hint,
    )


def not_found_body(kind: str, name: str, message: str) -> dict[str, object]:
    """Return the body for something that does not exist, which is an answer and no failure.

    Its error has three keys; the message says where to look.
    """
    return {"name": name, "found": False, "error": {"kind": kind, "message": message, "retryable": False}}
