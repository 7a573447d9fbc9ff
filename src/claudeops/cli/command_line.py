"""Runs the command line: parses it, calls the command, and turns every mistake into a sentence and an exit status.

``--output-format`` may stand before the command or after it. Under ``json`` whatever happens ends in one document, also
mistakes in the command line and what nobody foresaw.

Refuses to run inside one of our own sessions: a session must not be its own operator.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from claudeops.cli import reply
from claudeops.cli.commands import claudeops
from claudeops.cli.early_signals import interrupting
from claudeops.cli.reply import Exit, print_document
from claudeops.engine.process import SESSION_MARK
from claudeops.files import refused

_FORMAT_OPTIONS: Final = ("--output-format", "-o")
_HELP: Final = frozenset({"-h", "--help"})
_REPORT_IT: Final = "This is a bug in claudeops: report it with the lines on stderr."

_DEEPEST: Final = 100  # ancestors; bounds the walk up the process tree


class CommandLine(NamedTuple):  # no Struct: ``--help`` does without the 6 ms of msgspec
    """What a command line asks for, as far as that is known before it is parsed."""

    arguments: tuple[str, ...]  # with the output format behind the command's name
    path: tuple[str, ...]  # the names of the command: a group's, then its own
    command: click.Command  # the innermost that was found
    unknown: str | None  # the name that no command has
    as_json: bool
    help: bool

    @property
    def name(self) -> str:
        """The command as documents name it."""
        return " ".join((*self.path, *([self.unknown] if self.unknown else []))) or "claudeops"


def call(arguments: list[str], *, write_failure: Callable[[], OSError | None] = lambda: None) -> int:
    """Run the command line and return its exit status; ``write_failure``: why standard output could not be written."""
    line = understand(arguments)
    try:
        status = _called(line)
    except Exception as error:  # noqa: BLE001 - the last border: under JSON even a bug ends in one document
        if write_failure() is None:
            return _bug(error, line)
        status = Exit.CANNOT_CREATE
    failure = write_failure()
    if failure is None or line.path[:1] == ("run",):  # the daemon's work is not what it prints
        return status
    return _unwritten(failure, line, status)


def _called(line: CommandLine) -> int:
    if inside_a_session(os.environ):
        # A session may run as the daemon's own user, so file permissions do not keep it from being its own operator.
        return _refuse("claudeops is not for use inside one of its own sessions.", line)
    try:
        with interrupting():
            return _run(line)
    except click.UsageError as error:
        return _usage_error(error, line)
    except (click.Abort, KeyboardInterrupt):
        return _interrupted(line)
    except PermissionError as error:
        if error.filename is None:
            raise
        return reply.print_failure(line.name, refused(os.fsdecode(error.filename), error), as_json=line.as_json)


def understand(arguments: Sequence[str]) -> CommandLine:
    """Return what a command line asks for: which command, and in which form."""
    taken, rest = _without_format(arguments)
    command: click.Command = claudeops
    path: list[str] = []
    unknown: str | None = None
    before: list[str] = []
    while isinstance(command, click.Group) and rest:
        word = rest.pop(0)
        if word.startswith("-"):
            before.append(word)
        elif (found := command.commands.get(word)) is None:
            unknown = word
            break
        else:
            before.append(word)
            path.append(word)
            command = found
    form = taken[-1] if taken else None
    at_the_command = [] if form is None or isinstance(command, click.Group) else [_FORMAT_OPTIONS[0], form]
    return CommandLine(
        arguments=(*before, *([] if unknown is None else [unknown]), *at_the_command, *rest),
        path=tuple(path),
        command=command,
        unknown=unknown,
        as_json=form == "json",
        help=bool(_HELP & {*before, *_up_to_operands(rest)}),
    )


def _without_format(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into the values of the format option, in their order, and everything else.

    What follows ``--`` are operands. An option without its value stays, for the parser to complain about.
    """
    taken: list[str] = []
    rest: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, has_value, value = word.partition("=")
        if word == "--":
            return taken, [*rest, word, *words]
        if word in _FORMAT_OPTIONS and words and words[0] != "--":
            taken.append(words.pop(0))
        elif name == _FORMAT_OPTIONS[0] and has_value:
            taken.append(value)
        elif word.startswith(_FORMAT_OPTIONS[1]) and len(word) > len(_FORMAT_OPTIONS[1]):
            taken.append(word.removeprefix(_FORMAT_OPTIONS[1]).removeprefix("="))
        else:
            rest.append(word)
    return taken, rest


def _up_to_operands(words: Sequence[str]) -> Sequence[str]:
    return words[: words.index("--")] if "--" in words else words


def _run(line: CommandLine) -> int:
    if line.as_json and line.unknown is not None:
        return _unknown_command(line)
    if line.as_json and line.help:
        return _help_as_json(line)
    if line.as_json and not line.path and "--version" in line.arguments:
        from claudeops.cli.version import print_version  # noqa: PLC0415 - few ask

        return print_version(as_json=True)
    status = claudeops.main(list(line.arguments), prog_name="claudeops", standalone_mode=False)
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


# --- what goes wrong ----------------------------------------------------------------------------------


def _usage_error(error: click.UsageError, line: CommandLine) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        if not line.as_json:
            click.echo(error.format_message(), err=True)
            return Exit.USAGE
        error = click.UsageError("Name a command.", ctx=error.ctx)
    target = _target(error)
    if isinstance(error, click.BadParameter) and isinstance(error.param, click.Argument):
        error.param_hint = f"'{target}'"  # the name that the documents have, also where help writes another
    if not line.as_json:
        error.show()
        if (allowed := _allowed(error)) is not None:
            click.echo(f"Allowed: {allowed}", err=True)
        return Exit.USAGE
    body = reply.error_body(
        kind=reply.ErrorKind.USAGE,
        operation="parse_args",
        target=target,
        retryable=False,
        message=error.format_message(),
        hint=_usage_hint(error, line),
    )
    usage = {} if error.ctx is None else {"usage": error.ctx.get_usage().removeprefix("Usage: ")}
    return print_document(line.name, {**body, **usage}, Exit.USAGE)


def _target(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        return error.option_name
    if isinstance(error, click.BadParameter) and error.param is not None and error.param.name is not None:
        return error.param.name
    return "arguments"


def _allowed(error: click.UsageError) -> str | None:
    """Return the values that may be given instead, where there is a list of them."""
    if isinstance(error, click.BadParameter) and error.param is not None and isinstance(error.param.type, click.Choice):
        return "|".join(map(str, error.param.type.choices))
    return None


def _usage_hint(error: click.UsageError, line: CommandLine) -> str:
    if (allowed := _allowed(error)) is not None:
        return f"Allowed: {allowed}."
    asked = " ".join(("claudeops", *line.path, "--help"))
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        return f"Did you mean {' or '.join(sorted(error.possibilities))}? `{asked}` shows all options."
    return f"`{asked}` shows what may be written."


def _unknown_command(line: CommandLine) -> int:
    group = " ".join(("claudeops", *line.path))
    message = f"There is no command {line.name!r}; `{group} --help` lists those that there are."
    return print_document(line.name, reply.not_found_body("command_not_found", line.name, message), Exit.USAGE)


def _refuse(sentence: str, line: CommandLine) -> int:
    if not line.as_json:
        click.echo(f"claudeops: {sentence}", err=True)
        return Exit.CONFIGURATION
    body = reply.error_body(
        kind=reply.ErrorKind.POLICY,
        operation="start",
        target="claudeops",
        retryable=False,
        message=sentence,
        hint="Call it from an operator's shell.",
    )
    return print_document(line.name, body, Exit.CONFIGURATION)


def _interrupted(line: CommandLine) -> int:
    if not line.as_json:
        return Exit.UNRESOLVED
    body = reply.error_body(
        kind=reply.ErrorKind.RUNTIME,
        operation=line.name,
        target=line.name,
        retryable=True,
        message=f"claudeops {line.name} was interrupted.",
        hint="Call it again.",
    )
    return print_document(line.name, body, Exit.UNRESOLVED)


def _unwritten(failure: OSError, line: CommandLine, status: int) -> int:
    """Tell that what was printed has not arrived. A reader that has gone had enough: he is told nothing."""
    if failure.errno != errno.EPIPE:
        why = failure.strerror or type(failure).__name__
        with contextlib.suppress(OSError):
            click.echo(
                f"claudeops: standard output cannot be written ({why}): make room, or print it elsewhere.", err=True
            )
        status = Exit.CANNOT_CREATE
    return min(int(status), 1) if line.as_json else status


def _bug(error: Exception, line: CommandLine) -> int:
    """Tell of an exception that nobody foresaw: where on stderr, and its type; its text may hold a secret."""
    import traceback  # noqa: PLC0415 - only a bug needs it

    place = "".join(traceback.format_tb(error.__traceback__))
    with contextlib.suppress(OSError):
        sys.stderr.write(f"claudeops: {type(error).__name__}. {_REPORT_IT}\n{place}")
    if not line.as_json:
        return Exit.SOFTWARE
    body = reply.error_body(
        kind=reply.ErrorKind.UNKNOWN,
        operation=line.name,
        target=line.name,
        retryable=False,
        message=f"claudeops {line.name} failed unexpectedly: {type(error).__name__}.",
        hint=_REPORT_IT,
    )
    return print_document(line.name, body, Exit.SOFTWARE)


def _help_as_json(line: CommandLine) -> int:
    with click.Context(line.command, info_name=f"claudeops {line.name}", help_option_names=sorted(_HELP)) as context:
        return print_document(line.name, {"help": line.command.get_help(context)}, Exit.OK)
