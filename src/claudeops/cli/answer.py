"""The commands that look at what is on record: lists, one chain, money, figures, the state of the daemon.

`present` asks the database once (with ``--watch`` again and again) and prints the answer: a document for programs, or
lines for people.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import click
import msgspec

from claudeops.cli.reply import Exit, not_found_body, print_document, print_failure
from claudeops.cli.text.layout import Layout, Style
from claudeops.cli.text.screen import looks_of, progress, show, watch
from claudeops.errors import ClaudeopsError
from claudeops.text.escapes import visible

Body = dict[str, object]


class AnswerShape(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer is printed."""

    as_json: bool = False
    utc: bool = False
    watch: bool = False


class CommandAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a command found, for programs and for people."""

    body: Body
    draw: Callable[[Layout], Sequence[str]]
    exit_code: Exit = Exit.OK
    to_stderr: bool = msgspec.field(default=False)  # a sentence that says what is missing


def present(
    command: str, ask: Callable[[datetime], CommandAnswer], shape: AnswerShape, *, target: str | None = None
) -> int:
    """Ask and print; return the exit status. ``ask`` gets the current time."""
    if shape.watch:
        if shape.as_json:
            raise click.UsageError("--watch is for people: leave it away, or --output-format json.")
        return _watched(ask, shape)
    looks = looks_of(utc=shape.utc)
    try:
        with progress("reading the database"):
            answer = ask(looks.now)
    except ClaudeopsError as error:
        return print_failure(command, error, as_json=shape.as_json, target=target)
    if shape.as_json:
        return print_document(command, answer.body, answer.exit_code)
    if answer.to_stderr:
        click.echo("\n".join(answer.draw(looks)), err=True)
    else:
        show(answer.draw(looks), looks)
    return answer.exit_code


def missing(kind: str, name: str, message: str) -> CommandAnswer:
    """Return the answer for something that does not exist."""
    return CommandAnswer(
        body=not_found_body(kind, name, message),
        draw=lambda _: [f"claudeops: {visible(message)}"],
        exit_code=Exit.UNRESOLVED,
        to_stderr=True,
    )


def database_url() -> str:
    """Return the address of the operator's database; raises `ConfigurationError`."""
    from claudeops.settings.where import database_url as found  # noqa: PLC0415 - as commands import what they do

    return found(os.environ, cwd=Path.cwd())


def state_dir() -> Path:
    """Return the operator's state directory; raises `ConfigurationError`."""
    from claudeops.settings.where import state_dir as found  # noqa: PLC0415 - as commands import what they do

    return found(os.environ, cwd=Path.cwd())


def more(command: str, before: int | None, looks: Layout) -> list[str]:
    """Return the line that says how a list goes on."""
    if before is None:
        return []
    return ["", looks.styled(f"There are more: claudeops {command} --before {before}", Style.QUIET)]


def _watched(ask: Callable[[datetime], CommandAnswer], shape: AnswerShape) -> int:
    try:
        watch(partial(_drawn, ask), utc=shape.utc)
    except KeyboardInterrupt:
        return Exit.OK
    return Exit.OK


def _drawn(ask: Callable[[datetime], CommandAnswer], looks: Layout) -> Sequence[str]:
    """Return the lines of one look; a database that is away is told, and looked for again."""
    try:
        return ask(looks.now).draw(looks)
    except ClaudeopsError as error:
        return [looks.styled(f"claudeops: {error}", Style.BAD)]
