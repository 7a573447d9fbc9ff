"""What a stand-in command answers, and how its arguments are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from claudeops.rehearsal.environment import Environment, Running
from claudeops.rehearsal.scenario import RunsOn


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Output, line by line, and exit status of a command."""

    out: Sequence[str] = ()
    err: Sequence[str] = ()
    status: int = 0


@dataclass(frozen=True, slots=True)
class Arguments:
    """Positional arguments, and options by the name under which they were given."""

    words: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)  # a flag has the value ""

    def get(self, *names: str) -> str | None:
        """Return the value of an option that has several names."""
        return next((self.options[name] for name in names if name in self.options), None)


def read(arguments: Sequence[str], *, valued: frozenset[str]) -> Arguments:
    """Tell options from words; those in ``valued`` take the next argument, or what follows ``=``."""
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
    return Arguments(tuple(words), options)


def failed(*lines: str, status: int = 1) -> Answer:
    """Return the answer of a command that could not do what it was asked."""
    return Answer(err=lines, status=status)


def find(estate: Environment, name: str, runs_on: RunsOn) -> Running | None:
    """Return a service that this kind of command looks after."""
    running = estate.services.get(name)
    return running if running is not None and running.service.runs_on is runs_on else None


def all_on(estate: Environment, runs_on: RunsOn) -> list[Running]:
    """Return every service that this kind of command looks after."""
    return [running for running in estate.services.values() if running.service.runs_on is runs_on]


def last(lines: Sequence[str], count: str | None) -> list[str]:
    """Return the last lines; ``count`` is what was given for them, all where it is no number."""
    return (
        list(lines)
        if count is None or not count.isdecimal()
        else list(lines)[len(lines) - min(int(count), len(lines)) :]
    )


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as aligned columns, the first row being the heading."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def age(since: datetime) -> str:
    """Return how long ago something was, as these commands say it."""
    seconds = max(0, round((datetime.now(UTC) - since).total_seconds()))
    return f"{seconds}s" if seconds < 120 else f"{seconds // 60}m"  # noqa: PLR2004 - two minutes, as kubectl does
