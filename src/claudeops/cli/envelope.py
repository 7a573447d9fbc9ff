"""The JSON document that every command prints under ``--output-format json``: exactly one, always.

Shape: the claw-code envelope, schema version 1.0. ``exit_code`` is 0, 1 or 2 and equals the process's exit
status; ``sysexit`` is what the same run would have exited with in text mode.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import orjson

from claudeops.errors import (
    AlreadyRunningError,
    ClaudeopsError,
    ConfigurationError,
    DatabaseUnavailableError,
    MissingInputError,
    StoppedError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from claudeops.cli.exit_codes import Exit

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
