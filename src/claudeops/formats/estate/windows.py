"""Maintenance windows as people write them: ``Sun 03:00-05:00``, ``every night from 02:00 to 02:20``.

All times are in the timezone of the daemon. What is not a time of every week (the first Sunday of a month, another
time zone) is no window: read as one, it would excuse too much.
"""

from __future__ import annotations

from datetime import time
from typing import Final

from claudeops.domain.estate.estate import MaintenanceWindow
from claudeops.domain.estate.words import word_set
from claudeops.text import regex

_CLOCK: Final = r"(\d{1,2})(?::(\d{2}))?\s*(am|pm|h)?"
_RANGE: Final = regex.Pattern(
    rf"(?i)\b{_CLOCK}\s*(?:-|\x{{2013}}|\x{{2014}}|\bto\b|\buntil\b|\btill\b|\band\b|\x{{2192}})\s*{_CLOCK}(?:\b|$)"
)
_DAY_WORDS: Final = (
    ("monday", "mondays", "mon"),
    ("tuesday", "tuesdays", "tue", "tues"),
    ("wednesday", "wednesdays", "wed", "weds"),
    ("thursday", "thursdays", "thu", "thur", "thurs"),
    ("friday", "fridays", "fri"),
    ("saturday", "saturdays", "sat"),
    ("sunday", "sundays", "sun"),
)
_DAY_OF: Final = {word: number for number, spellings in enumerate(_DAY_WORDS) for word in spellings}
_EVERY: Final = frozenset(range(7))
_GROUPS: Final = {
    **dict.fromkeys(("daily", "nightly", "day", "night", "days", "nights", "everyday", "morning", "evening"), _EVERY),
    **dict.fromkeys(("weekday", "weekdays", "workday", "workdays", "workingdays"), frozenset(range(5))),
    **dict.fromkeys(("weekend", "weekends"), frozenset({5, 6})),
}
_FILLERS: Final = word_set(
    "every each on from between at the in of and or to until maintenance window windows backup backups "
    "updates always o'clock weekly usually planned downtime reboot reboots",
)
_RANGE_WORDS: Final = frozenset({"-", "\N{EN DASH}", "\N{EM DASH}", "to", "through", "thru", "until", "till"})
_WORDS: Final = regex.Pattern(r"(?i)[a-z'\x{00c0}-\x{024f}]+|-|\x{2013}|\x{2014}|\d+\S*|\S")
_SOME: Final = word_set(
    "first second third fourth last other 1st 2nd 3rd 4th every-other alternate some most",
)
_MOST: Final = 20  # windows of one text

_EXCUSES: Final = regex.Pattern(
    r"(?i)\b(?:maintenance|backups?|down|downtime|unavailable|offline|away|restarts?|restarted|reboots?|rebooted"
    r"|updates?|updated|answers 50\d|50\d|slow|no finding|expected|normal|patch(?:ed|es|ing)?|unwell|ignore)\b"
)


def windows_in(text: str) -> tuple[MaintenanceWindow, ...] | None:
    """Return the windows that a cell or value names, or None when not all of it can be read."""
    found: list[MaintenanceWindow] = []
    for piece in _pieces(text):
        windows = _of_piece(piece)
        if not windows:
            return None
        found += windows
    return tuple(found) if 0 < len(found) <= _MOST else None


def window_in_sentence(sentence: str) -> MaintenanceWindow | None:
    """Return the window in a sentence of prose, with its days; None when there is none."""
    if not _EXCUSES.search(sentence):
        return None
    ranges = list(_RANGE.finditer(sentence))
    if len(ranges) != 1:
        return None
    found = ranges[0]
    before = [word.casefold() for word in _words(sentence[: found.start()])]
    taken: list[str] = []
    while before and (before[-1] in _FILLERS or _is_day(before[-1])):
        taken.insert(0, before.pop())
    if (before and before[-1] in _SOME) or "month" in sentence.casefold():
        return None
    after = [word.casefold() for word in _words(sentence[found.end() :])]
    if not any(_is_day(word) for word in taken):
        taken = [word for word in after[:2] if word in {"on", "every"} or _is_day(word)]
    elif after and after[0] in {"utc", "gmt", "cet", "cest"}:
        return None
    days = _days(taken) if any(_is_day(word) for word in taken) else None
    return _window(days, found, sentence) if days else None


def _pieces(text: str) -> list[str]:
    """Return what stands between semicolons and lines, and between commas where each part has a time of its own."""
    pieces: list[str] = []
    for part in text.replace("\n", ";").split(";"):
        joined = ""
        for chunk in part.split(","):
            if _RANGE.search(joined) and _RANGE.search(chunk):
                pieces.append(joined)
                joined = chunk
            else:
                joined = f"{joined},{chunk}" if joined else chunk
        pieces.append(joined)
    return [piece.strip() for piece in pieces if piece.strip(" .")]


def _of_piece(piece: str) -> list[MaintenanceWindow]:
    ranges = list(_RANGE.finditer(piece))
    if not ranges:
        return []
    found: list[MaintenanceWindow] = []
    start = 0
    for place, match in enumerate(ranges):
        days = _days(_words(piece[start : match.start()]))
        start = match.end()
        if place == len(ranges) - 1:
            days = _both(days, _days(_words(piece[start:])))
        if found and not days and days is not None:
            days = found[-1].days  # "Sun 03:00-05:00 and 14:00-15:00"
        window = _window(days, match, piece) if days is not None else None
        if window is None:
            return []
        found.append(window)
    is_clear = len(ranges) == 1 or bool(_days(_words(piece[: ranges[0].start()])))
    return found if is_clear or all(window.days == _EVERY for window in found) else []


def _both(before: frozenset[int] | None, after: frozenset[int] | None) -> frozenset[int] | None:
    """Return the days that stand on either side of a time; none on both sides means every day."""
    return None if before is None or after is None else before | after


def _window(days: frozenset[int] | None, found: regex.Match[str], text: str) -> MaintenanceWindow | None:
    half = found[6] if not found[3] and (found[6] or "").casefold() == "pm" else found[3]
    start, end = _time(found[1], found[2], half), _time(found[4], found[5], found[6])
    bare = not (found[2] or found[3] or found[5] or found[6])
    if days is None or start is None or end is None or bare:
        return None
    if start == end and (start != time(0) or found[4] != "24"):
        return None
    return MaintenanceWindow(days=days or _EVERY, start=start, end=end, text=text.strip())


def _time(hour: str, minute: str | None, half: str | None) -> time | None:
    hours, minutes = int(hour), int(minute or 0)
    half = (half or "").casefold()
    if half in {"am", "pm"}:
        if not 1 <= hours <= 12:  # noqa: PLR2004 - hours of a clock
            return None
        hours = hours % 12 + (12 if half == "pm" else 0)
    if (hours, minutes) == (24, 0):
        return time(0)
    return time(hours, minutes) if hours < 24 and minutes < 60 else None  # noqa: PLR2004 - hours, minutes


def _days(tokens: list[str]) -> frozenset[int] | None:
    """Return the days in some words, empty for none; None when a word means something else."""
    days: set[int] = set()
    last: int | None = None
    running = False  # a word such as "to" came after a day
    for token in tokens:
        word = token.casefold()
        day = _DAY_OF.get(word)
        if day is not None:
            days |= _span(last, day) if running and last is not None else {day}
            last, running = day, False
        elif word in _RANGE_WORDS and last is not None:
            running = True
        elif word in _GROUPS:
            days |= _GROUPS[word]
        elif word not in _FILLERS and word not in set(",()&/+.:|*`"):
            return None
    return frozenset(days)


def _span(first: int, last: int) -> set[int]:
    return {(first + step) % 7 for step in range((last - first) % 7 + 1)}


def _words(text: str) -> list[str]:
    return [found[0] for found in _WORDS.finditer(text)]


def _is_day(word: str) -> bool:
    return word in _DAY_OF or word in _GROUPS
