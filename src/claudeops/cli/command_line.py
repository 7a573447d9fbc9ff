"""Runs the command line: parses it, calls the command, and turns every mistake into a sentence and an exit status.

Refuses to run inside one of our own sessions: a session must not be its own operator.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from claudeops.cli import output
from claudeops.cli.commands import claudeops
from claudeops.cli.output import Exit, print_document
from claudeops.engine.process.tree import SESSION_MARK

_FORMAT_OPTION: Final = "--output-format"

_DEEPEST: Final = 100  # ancestors; bounds the walk up the process tree


def call(arguments: list[str]) -> int:
    """Run the command line and return its exit status."""
    as_json = _wants_json(arguments)
    if inside_a_session(os.environ):
        # A session may run as the daemon's own user, so file permissions do not keep it from being its own operator.
        return _refuse("claudeops is not for use inside one of its own sessions.", arguments, as_json=as_json)
    try:
        if as_json and {"-h", "--help"} & set(arguments):
            return _help_as_json(arguments)
        status = claudeops.main(arguments, prog_name="claudeops", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return Exit.USAGE
    except click.UsageError as error:
        return _usage_error(error, arguments, as_json=as_json)
    except click.Abort:
        return Exit.UNRESOLVED
    return int(status or 0)


def inside_a_session(environ: Mapping[str, str], *, proc: Path = Path("/proc")) -> bool:
    """Return whether this process or one of its ancestors carries the mark of a session.

    A session can remove the mark from the environment that it starts us with, but not from those of its ancestors.
    """
    if SESSION_MARK in environ:
        return True
    mark = f"{SESSION_MARK}=".encode()
    return any(entry.startswith(mark) for entries in _ancestors(os.getppid(), proc) for entry in entries)


def _ancestors(pid: int, proc: Path) -> Iterator[list[bytes]]:
    """Yield the environments of our ancestors, nearest first, as far as they can be read."""
    for _ in range(_DEEPEST):
        if pid <= 0:
            return
        directory = proc / str(pid)
        with contextlib.suppress(
            OSError
        ):  # of another user; the processes of a session are ours, or see only each other
            yield (directory / "environ").read_bytes().split(b"\0")
        try:
            # The name in parentheses may hold anything; state and parent follow the last parenthesis.
            pid = int((directory / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return


def _wants_json(arguments: list[str]) -> bool:
    joined = [*arguments, ""]
    return f"{_FORMAT_OPTION}=json" in arguments or any(
        option == _FORMAT_OPTION and value == "json" for option, value in itertools.pairwise(joined)
    )


def _command_name(arguments: list[str]) -> str:
    return next((argument for argument in arguments if not argument.startswith("-")), "claudeops")


def _usage_error(error: click.UsageError, arguments: list[str], *, as_json: bool) -> int:
    if not as_json:
        error.show()
        return Exit.USAGE
    body = output.error_body(
        kind=output.ErrorKind.USAGE,
        operation="parse_args",
        target=_target(error),
        retryable=False,
        message=error.format_message(),
    )
    return print_document(_command_name(arguments), body, Exit.USAGE)


def _target(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        return error.option_name
    if isinstance(error, click.BadParameter) and error.param is not None and error.param.name is not None:
        return error.param.name
    return "arguments"


def _refuse(sentence: str, arguments: list[str], *, as_json: bool) -> int:
    if not as_json:
        click.echo(f"claudeops: {sentence}", err=True)
        return Exit.CONFIGURATION
    body = output.error_body(
        kind=output.ErrorKind.POLICY, operation="start", target="claudeops", retryable=False, message=sentence
    )
    return print_document(_command_name(arguments), body, Exit.CONFIGURATION)


def _help_as_json(arguments: list[str]) -> int:
    name = _command_name(arguments)
    command = claudeops.commands.get(name, claudeops)
    with click.Context(command, info_name=name) as context:
        return print_document(_command_name(arguments), {"help": command.get_help(context)}, Exit.OK)
