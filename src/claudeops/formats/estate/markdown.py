"""Markdown as people write manifests in it, as a flat list of blocks that know their lines.

CommonMark with tables, read by markdown-it-py, of which only the block parser is used: what stands within a line is
read as it was written. HTML is text and indented text is no code, because people indent without meaning it; HTML
comments are left out, and quotes (``>``) are read like the text in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from claudeops.text import regex

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LONGEST_LINE: Final = 4000
"""Characters; what stands beyond them in a line is not read."""

_WIDEST: Final = 60
"""Columns of marks and blanks before a text, which bounds how deep lists and quotes are: a level takes one or more."""

_MOST_ITEMS: Final = 4  # that one line begins within each other
_MARKS: Final = regex.Pattern(r"^(?:\s*(?:>|(?:[-*+]|\d{1,9}[.)])\s))*\s*")  # of quotes and items
_PREFIX: Final = regex.Pattern(r"^[\s>]*")
_DELIMITER: Final = regex.Pattern(r"[\s>]*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
_BULLET: Final = regex.Pattern(r"^([\s>]*)\x{2022}(\s)")
_SENTENCE: Final = regex.Pattern(r"[.!?]\s+")
_BOX: Final = regex.Pattern(r"^\[[ xX]\]\s+")  # of a list of tasks
_ALERT: Final = regex.Pattern(r"\[!\w+\]")
_UNFENCED: Final = frozenset({"", "md", "markdown", "text", "txt"})


class NumberedLine(msgspec.Struct, frozen=True):
    """A line with its number in the file, counted from 1."""

    number: int
    text: str


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """A heading."""

    level: int  # from 1
    text: str
    line: int


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A table."""

    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]  # each with its line
    line: int  # of the header


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a list, with the lines that continue it; or a further paragraph of one."""

    depth: int  # lists that it stands in, from 0; a further paragraph is one deeper than its item
    lines: tuple[NumberedLine, ...]
    further: bool = False


class Paragraph(msgspec.Struct, frozen=True, kw_only=True):
    """Text."""

    lines: tuple[NumberedLine, ...]


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """A block of code."""

    info: str  # the word behind the fence, lower case: ``toml``
    text: str
    line: int  # of its first line

    @property
    def is_text(self) -> bool:
        """Whether it holds text for people, and no program."""
        return self.info in _UNFENCED


Block = Heading | Grid | Item | Paragraph | Fence


class MarkdownPage(msgspec.Struct, kw_only=True):
    """What a text holds."""

    blocks: list[Block] = msgspec.field(default_factory=list)
    faults: list[tuple[int, str]] = msgspec.field(default_factory=list)  # lines, and what of them is not read


def read_page(lines: Sequence[str], first_line: int) -> MarkdownPage:
    """Return the blocks of a text; ``first_line`` is its place in the file."""
    page = MarkdownPage()
    plain = list(_with_delimiters(_flat(page, _without_comments(page, lines, first_line))))
    _Walk(page, plain).take(_parser().parse("\n".join(line.text for line in plain)))
    return page


def sentences(lines: Sequence[NumberedLine]) -> Iterator[list[NumberedLine]]:
    """Yield the sentences of a text, each as the pieces of lines that it stands on."""
    pieces: list[NumberedLine] = []
    for line in lines:
        place = 0
        for end in (*(found.end() for found in _SENTENCE.finditer(line.text)), len(line.text)):
            pieces.append(NumberedLine(line.number, line.text[place:end]))
            place = end
            if end < len(line.text) or line is lines[-1] or line.text.endswith((".", "!", "?")):
                yield pieces
                pieces = []


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - 30 ms that a start without manifests does not wait for

    # At the bound the parser gives up all that follows, so `_WIDEST` lets nothing come near to it.
    parser = MarkdownIt("commonmark", {"maxNesting": 2 * _WIDEST})
    parser.enable("table").disable(["code", "html_block", "reference"])
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


class _Walk:
    """Takes one token after the other, and knows in which item it stands."""

    def __init__(self, page: MarkdownPage, lines: list[NumberedLine]) -> None:
        self._page = page
        self._lines = lines
        self._items: list[bool] = []  # the open items; whether one has begun its text

    def take(self, tokens: Sequence[Token]) -> None:
        for place, token in enumerate(tokens):
            if token.type == "list_item_open":
                self._items.append(False)
            elif token.type == "list_item_close":
                self._items.pop()
            elif token.type == "table_open":
                self._table(token)
            elif token.type == "fence":
                self._fence(token)
            elif token.type == "inline" and not tokens[place - 1].type.startswith(("th", "td")):
                self._text(tokens[place - 1], token)

    def _text(self, opening: Token, token: Token) -> None:
        start = token.map[0] if token.map else 0
        lines = tuple(
            NumberedLine(self._lines[start + number].number, text.strip())
            for number, text in enumerate(token.content.split("\n"))
            if not _ALERT.fullmatch(text.strip())
        )
        if not any(line.text for line in lines):
            return
        if self._items:
            lines = (NumberedLine(lines[0].number, _BOX.sub("", lines[0].text)), *lines[1:])
            further, self._items[-1] = self._items[-1], True
            depth = len(self._items) - (0 if further else 1)
            self._page.blocks.append(Item(depth=depth, lines=lines, further=further))
        elif opening.type == "heading_open" and len(lines) == 1:
            self._page.blocks.append(Heading(level=int(opening.tag[1]), text=lines[0].text, line=lines[0].number))
        else:
            self._page.blocks.append(Paragraph(lines=lines))

    def _fence(self, token: Token) -> None:
        info = token.info.strip().partition(" ")[0].lower()
        start, end = token.map or (0, 0)
        first = self._lines[start].number
        self._page.blocks.append(Fence(info=info, text=token.content, line=first + 1))
        if end - start < 2 or not self._lines[end - 1].text.strip("> \t").startswith(token.markup):  # noqa: PLR2004 - both marks
            self._page.faults.append((first, f"this block of code has no end: close it with {token.markup}"))

    def _table(self, token: Token) -> None:
        """Take the rows as they were written: the parser drops the cells beyond those of the header."""
        start, end = token.map or (0, 0)
        header = _cells(_PREFIX.sub("", self._lines[start].text))
        rows: list[tuple[int, tuple[str, ...]]] = []
        behind: list[NumberedLine] = []
        for line in self._lines[start + 2 : end]:
            text = _PREFIX.sub("", line.text)
            if "|" in text:
                rows.append((line.number, _cells(text, len(header))))
            else:
                behind.append(NumberedLine(line.number, text.strip()))
        self._page.blocks.append(Grid(header=header, rows=tuple(rows), line=self._lines[start].number))
        self._page.blocks += [Paragraph(lines=tuple(behind))] if behind else []


def _without_comments(page: MarkdownPage, lines: Sequence[str], first_line: int) -> Iterator[NumberedLine]:
    """Yield the lines without HTML comments, bullets as Markdown has them; one that held nothing else is left out."""
    since: int | None = None
    for number, line in enumerate(lines, first_line):
        text, had = line[:LONGEST_LINE], since is not None
        kept = []
        while text:
            before, found, text = text.partition("<!--" if since is None else "-->")
            if since is None:
                kept.append(before)
            if found:
                since, had = (number if since is None else None), True
        whole = _BULLET.sub(lambda match: f"{match[1]}-{match[2]}", "".join(kept))
        if whole.strip() or not had:
            yield NumberedLine(number, whole)
    if since is not None:
        page.faults.append((since, "this comment has no end, so nothing below it is read: close it with '-->'"))


def _flat(page: MarkdownPage, lines: Iterator[NumberedLine]) -> Iterator[NumberedLine]:
    """Yield the lines, those that are nested too deeply without their marks."""
    for line in lines:
        marks = _MARKS.match(line.text)
        written = marks[0] if marks is not None else ""
        items = len(written.replace(">", " ").split())
        if len(written.expandtabs(4)) <= _WIDEST and items <= _MOST_ITEMS:
            yield line
            continue
        text = line.text[len(written) :].strip("-*+> ")  # a rule of dashes has none
        if text:
            sentence = "the lists or quotes are nested too deeply here, and what they belong to is lost: unfold them"
            page.faults.append((line.number, sentence))
        yield NumberedLine(line.number, text)


def _with_delimiters(lines: Iterator[NumberedLine]) -> Iterator[NumberedLine]:
    """Yield the lines; tables get what the parser wants of them: as many dashes as columns, and a blank line above."""
    above = NumberedLine(0, "")
    for line in lines:
        header = _PREFIX.sub("", above.text)
        is_table = "|" in header and ("|" in line.text or header.startswith("|")) and _DELIMITER.fullmatch(line.text)
        if is_table:
            yield NumberedLine(above.number, _prefix(above.text).rstrip())
        if above.number:
            yield above
        dashes = f"{_prefix(line.text)}|{'---|' * len(_cells(header))}"
        above = NumberedLine(line.number, dashes) if is_table else line
    if above.number:
        yield above


def _prefix(text: str) -> str:
    found = _PREFIX.match(text)
    return found[0] if found is not None else ""


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


def _joined(lines: Sequence[NumberedLine]) -> str:
    return " ".join(line.text for line in lines)
