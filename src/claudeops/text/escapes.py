"""Texts of strangers, made harmless for a screen: what it would obey or hide is escaped.

`visible` is for whatever is shown; `unmistakable` for people who answer for every character.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from claudeops.text import signs

_KEPT: Final = frozenset("\n\t")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories that a terminal obeys or does not show: controls, formats (bidirectional marks, zero-width
characters), private use, lone surrogates, line and paragraph separators. `signs` knows those of other categories."""


def visible(text: str) -> str:
    r"""Return a whole text with everything escaped (``\u202e``) that a terminal would obey or hide.

    Line feeds, tabs and backslashes stay, so that a command reads as it was written, and so do emojis.
    """
    if text.isascii() and text.isprintable():
        return text
    drawn = signs.presentations(text)
    return "".join(_escape(sign) if _is_hidden(sign) and at not in drawn else sign for at, sign in enumerate(text))


def unmistakable(text: str) -> str:
    """Return a text as `visible` does, for people who answer for every character of it.

    Selectors of emojis are escaped too, spaces that are none, and what no font may know.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(sign) if _is_hidden(sign) or signs.is_doubtful(sign) else sign for sign in text)


def unmistakable_line(text: str) -> str:
    """Return a text as `unmistakable` does, in one line: names and paths, which could imitate what follows them."""
    return "".join(_escape(sign) if sign in _KEPT else sign for sign in unmistakable(text))


def _is_hidden(sign: str) -> bool:
    return sign not in _KEPT and (unicodedata.category(sign) in _HIDDEN or signs.is_unseen(sign))


def _escape(sign: str) -> str:
    code = ord(sign)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - the last of four hex digits
