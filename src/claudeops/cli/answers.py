"""How a command answers: one JSON document on stdout, or a sentence on stderr. Both return the exit status."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from claudeops.cli import envelope
from claudeops.cli.exit_codes import exit_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claudeops.cli.exit_codes import Exit
    from claudeops.errors import ClaudeopsError


def print_document(
    command: str, body: Mapping[str, object], sysexit: Exit, *, exit_code: int | None = None, at: datetime | None = None
) -> int:
    """Print a command's document and return the ``exit_code`` that it names: 0 or 1 unless the contract has more."""
    exit_code = min(int(sysexit), 1) if exit_code is None else exit_code
    at = datetime.now(UTC) if at is None else at
    sys.stdout.write(envelope.document(command, body, sysexit=sysexit, exit_code=exit_code, at=at).decode())
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
    return print_document(
        command, envelope.body_of(error, operation=operation or command, target=target or command), sysexit
    )
