"""The lines on which the keys of a TOML text stand.

tomllib gives no lines for values that are valid TOML and wrong all the same, so the text is scanned once more for its
keys. It is known to be valid TOML by then, which is why so little of the grammar (TOML 1.0) is needed.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from claudeops.text import regex

Path = tuple[str | int, ...]
"""Keys and positions in arrays, from the top: ``("commands", 3, "tier")``."""

_TABLE: Final = regex.Pattern(r"[ \t\r]*(\[{1,2})")
_KEY: Final = regex.Pattern(r"[ \t]*(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([A-Za-z0-9_-]+))[ \t]*(\.?)")
_TOKEN: Final = regex.Pattern(
    r"(?s)#[^\n]*|\"\"\"(?:[^\\]|\\.)*?\"{3,5}|'''.*?'{3,5}|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'"
    r"|[\[{]|[\]}]|\n|[^#\"'\[\]{}\n]+"
)


def key_lines(text: str) -> dict[Path, int]:
    """Return the line, from 1, of every table and key outside of inline tables."""
    lines: dict[Path, int] = {}
    counts: Counter[Path] = Counter()
    table: Path = ()
    line, counted, at = 1, 0, 0
    while at < len(text):
        line, counted = line + text.count("\n", counted, at), at
        start = _TABLE.match(text[at : _line_end(text, at)])
        if start is not None:
            brackets = start[1]
            names, end = _names(text, at + start.end())
            table = _table_path(names, counts, array=brackets == "[[")
            lines.setdefault(table, line)
            at = _line_end(text, end)
        elif text[at : _line_end(text, at)].lstrip(" \t\r")[:1] in {"", "\n", "#"}:
            at = _line_end(text, at)
        else:
            names, end = _names(text, at)
            for depth in range(1, len(names) + 1):
                lines.setdefault((*table, *names[:depth]), line)
            at = _value_end(text, end)
    return lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """Return the line of a path, or of the nearest thing around it; 1 where nothing is known."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _table_path(names: Path, counts: Counter[Path], *, array: bool) -> Path:
    """Return a table's path, with a position after the name of every array of tables."""
    path: Path = ()
    for depth, name in enumerate(names, 1):
        path = (*path, name)
        if array and depth == len(names):
            counts[path] += 1
            return (*path, counts[path] - 1)
        if counts[path]:
            path = (*path, counts[path] - 1)
    return path


def _names(text: str, at: int) -> tuple[Path, int]:
    names: list[str] = []
    while (found := _KEY.match(text[at : _line_end(text, at)])) is not None:
        names.append(found[1] or found[2] or found[3] or "")
        at += found.end()
        if not found[4]:
            break
    return tuple(names), at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _value_end(text: str, at: int) -> int:
    """Return where the line after a value begins; arrays and some strings span several lines."""
    end = _line_end(text, at)
    line = text[at:end]
    if '"""' not in line and "'''" not in line and _end_within(line) is not None:
        return end
    within = _end_within(text[at:])  # the rest of a long text is costly to look through, and seldom needed
    return len(text) if within is None else at + within


def _end_within(text: str) -> int | None:
    """Return where the line after a value begins, None where the text ends before the value or with it."""
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
        elif token[0] == "\n" and depth == 0:
            return token.end()
    return None
