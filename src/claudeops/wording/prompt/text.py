"""Foreign text in a prompt: cleaned, capped, and kept between delimiters that it cannot close.

What was written by a model, or read by one, or stands in a repository, is data. The delimiters are removed from it, its
second and later lines are indented, so that it can begin no line of its own, and invisible characters, which could
split a delimiter or carry words that no person sees, are gone. Every cap leaves a visible mark, and no cut splits a
character.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

from claudeops.text import regex

BYTES_PER_TOKEN: Final = 4
"""The usual estimate; caps are in tokens because tokens are paid for, and are held in bytes of UTF-8."""

_DATA: Final = "untrusted-data"
_REQUEST: Final = "operator-request"
_DELIMITER: Final = regex.Pattern(rf"(?i)<([{regex.SPACE}/]*(?:untrusted\W?data|operator\W?request))")
_LINE_BREAKS: Final = str.maketrans(dict.fromkeys("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", "\n"))
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs"})  # control, format, surrogate
_INDENT: Final = "\n    "
_ITEM_TOKENS: Final = 500


def fenced(name: str, body: str, *, label: str = "") -> str:
    """Return text between the delimiters of data; ``label`` says whose it is. ``body`` has been cleaned already."""
    attributes = f'name="{name}"' + (f' from="{_attribute(label)}"' if label else "")
    return f"<{_DATA} {attributes}>\n{body}\n</{_DATA}>"


def requested(body: str) -> str:
    """Return an operator's text between its own delimiters."""
    return f"<{_REQUEST}>\n    {body}\n</{_REQUEST}>"


def block(text: str, tokens: int) -> str:
    """Return a text of several lines, cleaned and capped, with all lines but the first indented."""
    limit = tokens * BYTES_PER_TOKEN
    lines = (line.rstrip() for line in _clean(text, limit).split("\n"))
    return _cut(_INDENT.join(lines).strip(), limit, len(text))


def flat(text: str, tokens: int) -> str:
    """Return a text as one line, cleaned and capped, with every run of white space as one blank."""
    limit = tokens * BYTES_PER_TOKEN
    return _cut(" ".join(_clean(text, limit).split()), limit, len(text))


def listed(items: Iterable[str], tokens: int, *, separator: str) -> str:
    """Return as many of the items as fit, each on one line, and the number of those left out."""
    lines: list[str] = []
    room = tokens * BYTES_PER_TOKEN
    left_out = 0
    for item in items:
        line = "" if left_out else flat(item, _ITEM_TOKENS)
        room -= len(line.encode()) + len(separator)
        if left_out or room < 0:
            left_out += 1
        else:
            lines.append(line)
    if left_out:
        lines.append(f"[{left_out} more left out: no room]")
    return separator.join(lines)


def _attribute(text: str) -> str:
    return "".join(char if char.isalnum() or char in "-_./" else "_" for char in text[:100])


def _clean(text: str, limit: int) -> str:
    """Return the first ``limit`` characters without invisible ones and without our delimiters."""
    broken = text[:limit].replace("\r\n", "\n").translate(_LINE_BREAKS)
    kinds = {char for char in set(broken) if char not in "\n\t" and unicodedata.category(char) in _INVISIBLE}
    visible = broken.translate(dict.fromkeys(map(ord, kinds))) if kinds else broken
    return _DELIMITER.sub(lambda opening: f"({opening[1]}", visible)


def _cut(text: str, limit_bytes: int, whole: int) -> str:
    """Return ``text``, cut between two characters; ``whole`` is the original's length in characters."""
    encoded = text.encode()
    if len(encoded) <= limit_bytes and whole <= limit_bytes:
        return text
    return f"{encoded[:limit_bytes].decode(errors='ignore')} [cut here; the whole text has {whole} characters]"
