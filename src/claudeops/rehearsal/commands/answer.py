"""What stand-in commands share: reading arguments, finding services, and writing answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from claudeops.rehearsal.environment import Environment, Running
from claudeops.rehearsal.scenario import RunsOn


class CommandOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Output lines and exit status of a command."""

    out: Sequence[str] = ()
    err: Sequence[str] = ()
    status: int = 0


class CommandArguments(msgspec.Struct, frozen=True):
    """Positional arguments, and options by name as given."""

    words: tuple[str, ...]
    options: Mapping[str, str] = msgspec.field(default_factory=dict)  # a flag has the value ""

    def get(self, *names: str) -> str | None:
        """Return the value of an option, given under any of its names."""
        return next((self.options[name] for name in names if name in self.options), None)


def read(arguments: Sequence[str], *, valued: frozenset[str]) -> CommandArguments:
    """Separate options from words; options in ``valued`` take the next argument, or what follows ``=``."""
    words: list[str] = []
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            words += rest
            break
        name, equals, value = argument.partition("=")
        if not argument.startswith("-") or argument == "-":
            words.append(argument)
        elif equals:
            options[name] = value
        elif name in valued and rest:
            options[name] = rest.pop(0)
        else:
            options[name] = ""
    return CommandArguments(tuple(words), options)


def failed(*lines: str, status: int = 1) -> CommandOutput:
    """Return the answer of a command that failed."""
    return CommandOutput(err=lines, status=status)


def find(environment: Environment, name: str, runs_on: RunsOn) -> Running | None:
    """Return the service of this name if it runs on ``runs_on``."""
    running = environment.services.get(name)
    return running if running is not None and running.service.runs_on is runs_on else None


def all_on(environment: Environment, runs_on: RunsOn) -> list[Running]:
    """Return every service that runs on ``runs_on``."""
    return [running for running in environment.services.values() if running.service.runs_on is runs_on]


def last(lines: Sequence[str], count: str | None) -> list[str]:
    """Return the last ``count`` lines; all of them when ``count`` is not a number."""
    return (
        list(lines)
        if count is None or not count.isdecimal()
        else list(lines)[len(lines) - min(int(count), len(lines)) :]
    )


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as aligned columns; the first row is the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def age(since: datetime) -> str:
    """Return how long ago something was, in the style of these commands."""
    seconds = max(0, round((datetime.now(UTC) - since).total_seconds()))
    return f"{seconds}s" if seconds < 120 else f"{seconds // 60}m"  # noqa: PLR2004 - two minutes, as kubectl does
