"""The filters that all lists share, and how an answer for people looks.

Nothing of ours is imported before a command is called; a test compares the words here with the model's.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT

if TYPE_CHECKING:  # help and mistakes are answered without the model
    from claudeops.cli.answer import AnswerShape
    from claudeops.domain.listing import Listing

Command = TypeVar("Command", bound=Callable[..., Any])

LEVELS: Final = ("info", "warning", "critical")
OUTCOMES: Final = (
    *("success", "error", "max_turns", "budget_exceeded", "max_tokens", "timeout", "startup_timeout", "stalled"),
    *("cancelled", "blocked", "no_output", "no_result", "out_of_memory", "out_of_processes", "out_of_disk"),
    *("file_too_large", "spawn_failed", "ungated_call", "lost"),
)
DEFAULT_LIMIT: Final = 50
MOST: Final = 1000
HIGHEST_TIER: Final = 9


class _Moment(click.ParamType["datetime"]):
    """An age (``2h``, ``30m``, ``7d``) or a time."""

    name = "when"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the moment, UTC."""
        from claudeops.domain.listing import moment

        if isinstance(value, datetime):
            return value
        try:
            return moment(str(value), datetime.now(UTC))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Length(click.ParamType["timedelta"]):
    """A length of time: ``30m``, ``2h``, ``7d``."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the length."""
        from claudeops.domain.listing import duration

        if isinstance(value, timedelta):
            return value
        try:
            found = duration(str(value))
        except (ValueError, OverflowError) as error:
            self.fail(str(error), param, ctx)
        if not timedelta() < found <= timedelta(days=366):
            self.fail(f"{value!r} is no length of time up to a year.", param, ctx)
        return found


MOMENT: Final = _Moment()
LENGTH: Final = _Length()

SINCE: Final = click.option("--since", type=MOMENT, metavar="WHEN", help="Only since then: 30m, 2h, 7d or a time.")
LIMIT: Final = click.option(
    "--limit", type=click.IntRange(1, MOST), default=DEFAULT_LIMIT, show_default=True, help="Entries at most."
)

_FILTERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "since": SINCE,
    "until": click.option("--until", type=MOMENT, metavar="WHEN", help="Only before then."),
    "service": click.option("--service", metavar="NAME", help="Only this service; case does not matter."),
    "level": click.option("--level", type=click.Choice(LEVELS), help="Only this level and worse."),
    "tier": click.option("--tier", type=click.IntRange(1, HIGHEST_TIER), help="Only of sessions of this tier."),
    "outcome": click.option(
        "--outcome", type=click.Choice(OUTCOMES), metavar="OUTCOME", help="Only of sessions that ended so."
    ),
    "limit": LIMIT,
    "before": click.option("--before", type=click.IntRange(min=1), metavar="ID", help="Go on below this entry."),
}


def filters(*without: str) -> Callable[[Command], Command]:
    """Return a decorator that adds all filters except those that a list has nothing for.

    The command gets them as one value, ``wanted``.
    """
    names = [name for name in _FILTERS if name not in without]

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def called(**given: Any) -> int:
            return int(command(wanted=_listing({name: given.pop(name) for name in names}), **given))

        for name in reversed(names):
            called = _FILTERS[name](called)
        return cast("Command", called)

    return add


def shaped(*, watched: bool = True) -> Callable[[Command], Command]:
    """Return a decorator that adds how the answer looks: text or JSON, relative times or exact ones, watched or not.

    The command gets it as one value, ``shape``.
    """

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def called(**given: Any) -> int:
            return int(command(shape=_shape(given), **given))

        if watched:
            option = click.option("-w", "--watch", is_flag=True, help="Look again every two seconds, until Ctrl-C.")
            called = option(called)
        called = click.option("--utc", is_flag=True, help="Exact times in UTC instead of relative ones.")(called)
        return cast("Command", OUTPUT_FORMAT(called))

    return add


def _listing(given: dict[str, Any]) -> Listing:
    from claudeops.domain.events import EventLevel
    from claudeops.domain.listing import Listing
    from claudeops.domain.sessions import Outcome

    kinds = {"level": EventLevel, "outcome": Outcome}
    members: dict[str, Any] = {
        name: kind(value) for name, kind in kinds.items() if (value := given.get(name)) is not None
    }
    return Listing(**{**given, **members})


def _shape(given: dict[str, Any]) -> AnswerShape:
    """Take the options out of ``given`` and return them as one value."""
    from claudeops.cli.answer import AnswerShape

    return AnswerShape(
        as_json=given.pop("output_format") == "json", utc=given.pop("utc"), watch=given.pop("watch", False)
    )
