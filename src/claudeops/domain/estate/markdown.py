"""Markdown as people write manifests in it, as a flat list of blocks that know their lines.

A small reader of our own and no library: it takes one line after the other, so its work grows with the text alone,
every block has the exact line that an editor shows, and what CommonMark would make of odd indentation does not matter
here. HTML comments are left out; quotes (``>``) are read like the text in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from claudeops.domain.text import regex

LONGEST_LINE: Final = 4000
"""Characters; what stands beyond them in a line is not read."""

_HEADING: Final = regex.Pattern(r"\s{0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*")
_UNDERLINE: Final = regex.Pattern(r"\s{0,3}(=+|-+)\s*")
_ITEM: Final = regex.Pattern(r"(\s*)(?:[-*+\x{2022}]|\d{1,4}[.)])\s+(.*)")
_FENCE: Final = regex.Pattern(r"(\s*)(`{3,}|~{3,})\s*([^`]*)")
_DELIMITER: Final = regex.Pattern(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
_RULER: Final = regex.Pattern(r"\s{0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})")
_QUOTE: Final = regex.Pattern(r"\s{0,3}>\s?(?:\[!\w+\])?(.*)")
_TAB: Final = 4


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its number in the file, counted from 1."""

    number: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Heading:
    """A heading."""

    level: int  # from 1
    text: str
    line: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """A table."""

    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]  # each with its line
    line: int  # of the header


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """An item of a list, with the lines that continue it."""

    indent: int  # columns
    lines: tuple[Line, ...]

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.lines[0].number


@dataclass(frozen=True, kw_only=True, slots=True)
class Paragraph:
    """Text."""

    lines: tuple[Line, ...]

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.lines[0].number


@dataclass(frozen=True, kw_only=True, slots=True)
class Fence:
    """A block of code."""

    info: str  # the word behind the fence, lower case: ``toml``
    text: str
    line: int  # of its first line


Block = Heading | Grid | Item | Paragraph | Fence


def read_blocks(lines: Iterable[Line]) -> list[Block]:
    """Return the blocks of a text."""
    reader = _Reader()
    for line in _without_comments(lines):
        reader.push(line)
    return reader.close()


class _Reader:
    """Takes one line after the other."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._open: list[Line] = []  # of a paragraph or item
        self._indent: int | None = None  # of the open item; None: a paragraph
        self._grid: list[tuple[int, tuple[str, ...]]] | None = None
        self._fence = ""  # the mark that closes the open one
        self._info = ""
        self._blank = False  # the line before was blank

    def push(self, line: Line) -> None:
        if self._fence:
            self._in_fence(line)
            return
        quoted = _QUOTE.fullmatch(line.text) if ">" in line.text else None
        text = (quoted[1] if quoted else line.text).expandtabs(_TAB)
        if not text.strip():
            self._end_grid()
            self._blank = True
            if self._indent is None:
                self._end_text()
            return
        self._line(Line(line.number, text))
        self._blank = False

    def close(self) -> list[Block]:
        if self._fence:
            self._end_fence()
        self._end_grid()
        self._end_text()
        return self._blocks

    def _line(self, line: Line) -> None:
        if self._grid is not None and "|" in line.text:
            self._grid.append((line.number, _cells(line.text, len(self._grid[0][1]))))
            return
        self._end_grid()
        if (fence := _FENCE.fullmatch(line.text)) is not None:
            self._end_text()
            self._fence, self._info = fence[2], fence[3].strip().partition(" ")[0].lower()
        elif (heading := _HEADING.fullmatch(line.text)) is not None:
            self._end_text()
            self._blocks.append(Heading(level=len(heading[1]), text=(heading[2] or "").strip(), line=line.number))
        elif self._open and _DELIMITER.fullmatch(line.text) and "|" in self._open[-1].text:
            header = self._open.pop()
            self._end_text()
            self._grid = [(header.number, _cells(header.text))]
        elif self._underlined(line):
            pass
        elif (item := _ITEM.fullmatch(line.text)) is not None and not _RULER.fullmatch(line.text):
            self._end_text()
            self._open, self._indent = [Line(line.number, item[2].strip())], len(item[1])
        elif _RULER.fullmatch(line.text):
            self._end_text()
        else:
            self._text(line)

    def _underlined(self, line: Line) -> bool:
        """Take the line that makes a heading of the one above, if it is one."""
        found = _UNDERLINE.fullmatch(line.text)
        if found is None or self._indent is not None or len(self._open) != 1 or self._blank:
            return False
        above = self._open.pop()
        self._blocks.append(Heading(level=1 if found[1][0] == "=" else 2, text=above.text.strip(), line=above.number))
        return True

    def _text(self, line: Line) -> None:
        indent = len(line.text) - len(line.text.lstrip())
        if self._indent is not None and self._blank and indent <= self._indent:
            self._end_text()
        self._open.append(Line(line.number, line.text.strip()))

    def _end_text(self) -> None:
        if self._open:
            lines = tuple(self._open)
            self._blocks.append(
                Paragraph(lines=lines) if self._indent is None else Item(indent=self._indent, lines=lines)
            )
        self._open, self._indent = [], None

    def _end_grid(self) -> None:
        if self._grid is not None:
            (number, header), *rows = self._grid
            self._blocks.append(Grid(header=header, rows=tuple(rows), line=number))
        self._grid = None

    def _in_fence(self, line: Line) -> None:
        stripped = line.text.strip()
        if stripped.startswith(self._fence) and not stripped.strip(self._fence[0]):
            self._end_fence()
        else:
            self._open.append(line)

    def _end_fence(self) -> None:
        if self._open:
            text = "\n".join(line.text for line in self._open)
            self._blocks.append(Fence(info=self._info, text=text, line=self._open[0].number))
        self._open, self._fence = [], ""


def _without_comments(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines without HTML comments; a line that held nothing else is left out."""
    inside = False
    for line in lines:
        text, had = line.text[:LONGEST_LINE], inside
        kept = []
        while text:
            mark = "-->" if inside else "<!--"
            before, found, text = text.partition(mark)
            if not inside:
                kept.append(before)
            if found:
                inside, had = not inside, True
        whole = "".join(kept)
        if whole.strip() or not had:
            yield Line(line.number, whole)


def _cells(text: str, wanted: int = 0) -> tuple[str, ...]:
    """Return the cells of a row. A bar in code divides only if there are not too many cells then."""
    divided = _divided(text, code=False)
    if not wanted or len(divided) == wanted:
        return divided
    whole = _divided(text, code=True)
    return whole if len(whole) == wanted else divided


def _divided(text: str, *, code: bool) -> tuple[str, ...]:
    cells: list[str] = []
    start, inside, escaped = 0, False, False
    row = text.strip().removeprefix("|")
    if row.endswith("|") and not row.endswith("\\|"):
        row = row[:-1]
    for place, letter in enumerate(row):
        if letter == "`" and code:
            inside = not inside
        elif letter == "|" and not inside and not escaped:
            cells.append(row[start:place])
            start = place + 1
        escaped = letter == "\\" and not escaped
    cells.append(row[start:])
    return tuple(cell.replace("\\|", "|").strip() for cell in cells)
