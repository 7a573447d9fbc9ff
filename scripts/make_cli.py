"""Writes docs/reference/cli.md from the commands themselves: ``make reference``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from claudeops.cli.commands import claudeops
from claudeops.cli.reply import Exit
from claudeops.errors import ErrorKind

PROJECT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = PROJECT / "docs" / "reference" / "cli.md"
SCHEMAS: Final = PROJECT / "schemas" / "envelope"
COMMON: Final = frozenset({"timestamp", "command", "exit_code", "sysexit", "output_format", "schema_version"})
SHARED: Final = COMMON | {"error", "name", "found", "help", "usage"}

HEAD: Final = """# Commands

This page is made by `scripts/make_cli.py` from the commands themselves; a test says when it is stale.

Settings are environment variables ([settings](settings.md)). `-h` or `--help` after any command shows its options and
two examples. `claudeops completion bash|zsh|fish` prints what completes commands, ids and names in a shell. Where
`claudeops` is found: [call claudeops](../how-to/call-claudeops.md).

## Answers

With `-o json` or `--output-format json`, before the command or after it, a command prints one JSON document on stdout,
whatever happens; logs and complaints go to stderr. Every document has `timestamp`, `command`, `exit_code`, `sysexit`,
`output_format` and `schema_version`. Its JSON Schema is in `schemas/envelope/` and comes with the wheel. Fields may be
added in version 1.0; none goes, and none changes its type. Texts that agents wrote have no hidden characters.

`exit_code` is that of the process: 0 done, 1 an error or not found, 2 out of time. `sysexit` is what the same call ends
with in text mode:

| status | meaning |
| --- | --- |
{statuses}

An `error` has `kind`, `operation`, `target`, `retryable`, `message` and `hint`. Its kind is one of
{kinds}.

What does not exist is no failure: `found` is false, and the error has `kind` (`session_not_found`,
`command_not_found`, `tool_not_found` …), `message` and `retryable`. `handled` says whether the work was done, never
that something exists. A run that is out of time has `stop_reason` `timeout`; `cancel_observed` says whether it ended
when it was asked to, or was killed. A mistake in the command line also has `usage`.

Sessions are named by their number (`12`, `s12`) or by four or more characters of the id of their CLI. `session_id`
is a text in `list-sessions`, `load-session`, `delete-session`, `flush-transcript`, `exec-command` and `replay`, as the
envelope contract has it; `id` beside it is the number.
"""

MEANINGS: Final[Mapping[Exit, str]] = {
    Exit.OK: "a clean stop; healthy or resolved; told or done",
    Exit.UNRESOLVED: "a session failed, something could not be repaired, or it does not exist",
    Exit.USAGE: "the command line is wrong",
    Exit.NO_INPUT: "a file named on the command line does not exist",
    Exit.UNAVAILABLE: "the database cannot be reached",
    Exit.SOFTWARE: "a bug in claudeops",
    Exit.CANNOT_CREATE: "a file that was asked for, or what is printed, cannot be written",
    Exit.TRY_LATER: "parked, paused, out of turns, or another daemon is in the way",
    Exit.CONFIGURATION: "a setting, schema, prompt or binary is wrong",
    Exit.CANCELLED: "a session was stopped, or ran out of time",
    Exit.BUDGET: "a session ran out of money",
}


def page() -> str:
    """Return the whole page."""
    statuses = "\n".join(f"| {int(status)} | {MEANINGS.get(status, status.name.lower())} |" for status in Exit)
    kinds = ", ".join(f"`{kind}`" for kind in ErrorKind)
    parts = [HEAD.format(statuses=statuses, kinds=kinds)]
    headings: Mapping[str, Sequence[str]] = getattr(claudeops, "headings", {})
    for heading, names in headings.items():
        parts.append(f"## {heading}\n")
        for name in names:
            parts += _described(claudeops.commands[name], name)
    return "\n".join(parts)


def _described(command: click.Command, path: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _described(inner, f"{path} {name}")
        return
    with click.Context(command, info_name=f"claudeops {path}", help_option_names=["-h", "--help"]) as context:
        usage = command.get_usage(context).removeprefix("Usage: ")
        rows = [record for one in command.params if (record := one.get_help_record(context)) is not None]
    yield f"### `{path}`\n"
    yield f"{' '.join((command.help or '').split())}\n"
    yield f"```\n{' '.join(usage.split())}\n```\n"
    if rows:
        yield "| option | meaning |\n| --- | --- |"
        yield "\n".join(f"| `{_cell(option)}` | {_cell(says)} |" for option, says in rows) + "\n"
    if command.epilog:
        yield "```\n" + "\n".join(line.strip() for line in command.epilog.splitlines()[2:]) + "\n```\n"
    yield from _fields(path)


def _fields(path: str) -> Iterator[str]:
    file = SCHEMAS / f"{path.replace(' ', '-')}.json"
    if not file.exists():
        return
    properties = json.loads(file.read_text(encoding="utf-8"))["properties"]
    shown = [f"`{name}` {_type(schema)}" for name, schema in properties.items() if name not in SHARED]
    if shown:
        yield f"Document: {', '.join(shown)}.\n"


def _type(schema: Mapping[str, object]) -> str:
    kinds = schema.get("type", "any")
    return kinds if isinstance(kinds, str) else " or ".join(_texts(kinds))


def _texts(values: object) -> Iterable[str]:
    return map(str, values) if isinstance(values, list) else ()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
