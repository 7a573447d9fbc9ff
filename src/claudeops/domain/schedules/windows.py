"""Windows of the week: quiet hours of schedules, maintenance windows of services.

A window begins on certain days at one time of a clock on the wall and ends at another, on the next day where that is
not later. It is a span of time, not a pattern of the clock: what would begin in the hour that daylight saving leaves
out begins behind it, and in the hour that comes twice a window lasts until its second end.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Protocol, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from claudeops.text import regex

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY: Final = frozenset(range(len(DAYS)))

_DAY: Final = timedelta(days=1)
_TIMES: Final = regex.Pattern(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_WRITTEN: Final = "write it as 22:00-06:00, sun 02:00-04:00 or mon-fri 09:00-17:00"


class Weekly(Protocol):
    """A window of the week, whatever it is for."""

    @property
    def days(self) -> frozenset[int]:
        """The days on which it begins; 0 is Monday."""

    @property
    def start(self) -> time:
        """When it begins."""

    @property
    def end(self) -> time:
        """When it ends; the next day, where that is not after the start."""

    @property
    def text(self) -> str:
        """What its author wrote."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A window as an operator's file has it."""

    days: frozenset[int]  # 0 is Monday; the days on which it begins
    start: time
    end: time
    text: str  # as it was written


Some = TypeVar("Some", bound=Weekly)


def open_at(windows: Iterable[Some], at: datetime, timezone: str) -> Some | None:
    """Return the first of the windows in which a moment (timezone-aware) lies, or ``None``."""
    return next((window for window in windows if is_open(window, at, timezone)), None)


def is_open(window: Weekly, at: datetime, timezone: str) -> bool:
    """Tell whether a moment (timezone-aware) lies in a window; the end does not."""
    zone = ZoneInfo(timezone)
    today = at.astimezone(zone).date()
    # The day before: the window may run past midnight.
    return any(begins <= at < ends for day in (today, today - _DAY) for begins, ends in _span(window, day, zone))


def closed_from(windows: Iterable[Weekly], at: datetime, timezone: str, *, most: timedelta) -> datetime | None:
    """Return when none of the windows is open any more; ``None``: none is open at ``at`` (timezone-aware).

    Windows that follow or overlap each other count as one. What is still open after ``most`` is left there.
    """
    zone, end, last = ZoneInfo(timezone), at.astimezone(UTC), at.astimezone(UTC) + most
    first = at.astimezone(zone).date() - _DAY  # a window may run past midnight
    days = [first + _DAY * number for number in range(most // _DAY + 3)]
    for begins, ends in sorted(span for window in windows for day in days for span in _span(window, day, zone)):
        if begins <= end < ends:
            end = ends
    return min(end, last) if end > at else None


def read_windows(given: str | Iterable[str]) -> tuple[Window, ...]:
    """Read one window or several. Raises `ValueError` with the sentence for the first one that is none."""
    return tuple(map(read_window, (given,) if isinstance(given, str) else given))


def read_window(text: str) -> Window:
    """Return the window that a text names; raises `ValueError` with a clause that says how it is written."""
    *named, times = text.strip().lower().split() or [""]
    found = _TIMES.fullmatch(times)
    if found is None or len(named) > 1:
        raise ValueError(f"{text!r} is not a window: {_WRITTEN}")
    start, end = (_time(found[1], found[2]), _time(found[3], found[4]))
    days = _days(named[0]) if named else EVERY_DAY
    if start is None or end is None or days is None or found[1] == "24":
        raise ValueError(f"{text!r} is not a window: {_WRITTEN}")
    return Window(days=days, start=start, end=end, text=text.strip())


def _span(window: Weekly, day: date, zone: ZoneInfo) -> Iterable[tuple[datetime, datetime]]:
    """Yield the window that begins on a day, if one does, as two moments in UTC."""
    if day.weekday() in window.days:
        last = day if window.end > window.start else day + _DAY
        begins = datetime.combine(day, window.start, tzinfo=zone)
        ends = datetime.combine(last, window.end, tzinfo=zone)
        # Of a time that comes twice, fold=1 is the second; of one that is left out it is the one before the gap.
        yield begins.astimezone(UTC), max(ends.replace(fold=fold).astimezone(UTC) for fold in (0, 1))


def _time(hour: str, minute: str) -> time | None:
    if (hour, minute) == ("24", "00"):
        return time(0)
    return time(int(hour), int(minute)) if int(hour) < 24 and int(minute) < 60 else None  # noqa: PLR2004 - a clock


def _days(text: str) -> frozenset[int] | None:
    """Return the days that a list of names and ranges means, ``None`` for one that is no day."""
    days: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            return None
        begin = DAYS.index(first)
        length = (DAYS.index(last) - begin) % len(DAYS) if dash else 0
        days |= {(begin + offset) % len(DAYS) for offset in range(length + 1)}
    return frozenset(days)
