"""Lays text out for people: aligned tables that fit the terminal, names with their values, times, lengths, money.

Pure: what the terminal is like comes as `Layout`. Every text of a cell is made harmless here, so that nothing an agent
wrote reaches a terminal as a command to it.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Final

import msgspec

from claudeops.text.escapes import visible
from claudeops.wording.readable import count_of, length_of, relative, usd

__all__ = [
    "LEVEL_STYLES",
    "Column",
    "Layout",
    "Row",
    "Style",
    "TableCell",
    "count_of",
    "cut",
    "length_of",
    "pairs",
    "relative",
    "status_cell",
    "table",
    "usd",
    "width_of",
]

_GAP: Final = 2  # columns between two of a table's
_NARROWEST: Final = 8  # columns to which a column that may shrink is cut, at most
_READABLE: Final = 24  # columns that one that shrinks should have before others are left out for it


class Style(Enum):
    """How a text looks; the value is the SGR code of ECMA-48."""

    PLAIN = ""
    HEAD = "1"
    QUIET = "2"
    GOOD = "32"
    WARN = "33"
    BAD = "1;31"
    NAME = "36"


LEVEL_STYLES: Final[Mapping[str, Style]] = {"info": Style.PLAIN, "warning": Style.WARN, "critical": Style.BAD}
"""How the level of an event or incident looks."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Where text is printed, and how."""

    now: datetime  # UTC
    width: int | None = None  # columns; None: a file or a pipe, for which nothing is cut
    height: int | None = None  # lines
    colours: bool = False
    utc: bool = False  # times in full instead of relative ones
    ellipsis: str = "…"

    def time(self, at: datetime | None, *, none: str = "-") -> str:
        """Return a moment: relative to now, or in full where that was asked for."""
        if at is None:
            return none
        return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if self.utc else relative(at, self.now)

    def styled(self, text: str, style: Style) -> str:
        """Return a text in its colour, where there are colours."""
        return f"\x1b[{style.value}m{text}\x1b[0m" if self.colours and style.value and text else text


class TableCell(msgspec.Struct, frozen=True):
    """A text of a table."""

    text: str
    style: Style = Style.PLAIN


class Column(msgspec.Struct, frozen=True):
    """A column of a table."""

    head: str
    right: bool = False  # numbers
    shrinks: bool = False  # gives way where the terminal is too narrow
    extra: bool = False  # is left out where even that is not enough


Row = Sequence[TableCell | str]

_STATUS_STYLES: Final[Mapping[str, Style]] = {
    "healthy": Style.GOOD,
    "degraded": Style.WARN,
    "down": Style.BAD,
    "unreachable": Style.BAD,
    "up": Style.GOOD,
    "flapping": Style.WARN,
}
"""By `ServiceStatus` of a report and `ProbeState`; the others are quiet."""


# --- tables -----------------------------------------------------------------------------------------------


def table(columns: Sequence[Column], rows: Iterable[Row], looks: Layout, *, indent: int = 0) -> list[str]:
    """Return a table's lines, its heads in the first; columns in which nothing stands are left out."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    kept = [place for place in range(len(columns)) if any(row[place].text for row in cells)]
    kept = list(_without_extras(kept, columns, cells, looks, indent))
    shown = [columns[place] for place in kept]
    body = [[row[place] for place in kept] for row in cells]
    heads = [TableCell(column.head, Style.QUIET) for column in shown]
    widths = [max(width_of(row[place].text) for row in [heads, *body]) for place in range(len(shown))]
    widths = _fitting(widths, shown, looks, indent)
    return [_line(row, shown, widths, looks, indent) for row in ([heads, *body] if body else [])]


def pairs(facts: Iterable[tuple[str, TableCell | str]], looks: Layout, *, indent: int = 0) -> list[str]:
    """Return names with their values, a line each, the values aligned; further lines of a value are indented alike."""
    given = [(name, _cell(value, lines=True)) for name, value in facts]
    wide = max((width_of(name) for name, _ in given), default=0)
    lines = []
    for name, value in given:
        head = " " * indent + looks.styled(name, Style.QUIET) + " " * (wide - width_of(name) + _GAP)
        room = None if looks.width is None else max(_NARROWEST, looks.width - indent - wide - _GAP)
        for number, line in enumerate(wrapped(value.text, room)):
            lead = head if number == 0 else " " * (indent + wide + _GAP)
            lines.append((lead + looks.styled(line, value.style)).rstrip())
    return lines


def wrapped(text: str, width: int | None) -> list[str]:
    """Return a text's lines, those that are wider than ``width`` broken between words."""
    lines = text.split("\n")
    if width is None:
        return lines
    return [part for line in lines for part in textwrap.wrap(line, width) or [""]]


def width_of(text: str) -> int:
    """Return how many columns a terminal needs for a text."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def cut(text: str, width: int | None, ellipsis: str) -> str:
    """Return a text that fits into ``width`` columns."""
    if width is None or width_of(text) <= width:
        return text
    room, kept = width - len(ellipsis), []
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept).rstrip() + ellipsis


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cell(value: TableCell | str, *, lines: bool = False) -> TableCell:
    cell = TableCell(value) if isinstance(value, str) else value
    return TableCell(visible(cell.text if lines else " ".join(cell.text.split())), cell.style)


def _without_extras(
    kept: Sequence[int], columns: Sequence[Column], cells: Sequence[Sequence[TableCell]], looks: Layout, indent: int
) -> Sequence[int]:
    """Leave extra columns out, the last one first, until the others can fit."""

    def least(place: int) -> int:
        widest = max(width_of(text) for text in [columns[place].head, *(row[place].text for row in cells)])
        return min(widest, _READABLE) if columns[place].shrinks else widest

    left = list(kept)
    for place in reversed(kept):
        needed = indent + sum(map(least, left)) + _GAP * (len(left) - 1)
        if looks.width is None or needed <= looks.width:
            break
        if columns[place].extra:
            left.remove(place)
    return left


def _fitting(widths: Sequence[int], columns: Sequence[Column], looks: Layout, indent: int) -> list[int]:
    """Take from the widest column that shrinks, until all of them fit or nothing is left to take."""
    fitting = list(widths)
    if looks.width is None:
        return fitting
    over = indent + sum(fitting) + _GAP * (len(fitting) - 1) - looks.width
    while over > 0:
        able = [place for place, column in enumerate(columns) if column.shrinks and fitting[place] > _NARROWEST]
        if not able:
            break
        widest = max(able, key=fitting.__getitem__)
        fitting[widest] -= 1
        over -= 1
    return fitting


def _line(
    row: Sequence[TableCell], columns: Sequence[Column], widths: Sequence[int], looks: Layout, indent: int
) -> str:
    texts = []
    for cell, column, width in zip(row, columns, widths, strict=True):
        text = cut(cell.text, width if looks.width is not None else None, looks.ellipsis)
        blanks = " " * (width - width_of(text))
        shown = looks.styled(text, cell.style)
        texts.append(blanks + shown if column.right else shown + blanks)
    return " " * indent + (" " * _GAP).join(texts).rstrip()


def status_cell(status: str) -> TableCell:
    """Return how a service or a probe is, in its colour."""
    return TableCell(status, _STATUS_STYLES.get(status, Style.QUIET))
