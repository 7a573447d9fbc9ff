"""JSON objects within prose, found with bounded work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NoReturn

from claudeops.text import regex

_MOST_CHARACTERS: Final = 1_000_000  # of one text; a report comes at the end, so the end is kept
_WORK: Final = 32  # characters that may be read per character of the text
_ATTEMPT: Final = 100  # characters charged for an attempt as such
_FIRST_WINDOW: Final = 64  # characters; most attempts fail within them
_GROWTH: Final = 8
_LONGEST_WORD: Final = 12  # characters; a window may end within a literal or an escape
_OPENING: Final = regex.Pattern(r'\{\s*"[^"\\\n]{1,100}"\s*:')  # no other brace begins a report


def objects_in(text: str) -> Iterator[dict[str, object]]:
    """Yield the outermost JSON objects of a text, in order.

    Stray braces and braces within strings do not count. The work is bounded: hostile text (a megabyte of braces, or of
    quotes that never close) ends the search instead of slowing it down.
    """
    text = text[-_MOST_CHARACTERS:]
    budget = _WORK * len(text)
    at = 0
    for opening in _OPENING.finditer(text):
        start = opening.start()
        if start < at:
            continue
        value, length, work = _decode_at(text, start)
        budget -= work
        at = start + length
        if value is not None:
            yield value
        if budget <= 0:
            return


def refuse_constant(name: str) -> NoReturn:
    """Refuse ``NaN`` and the infinities, which are no JSON."""
    raise ValueError(f"{name} is not a JSON number")


_DECODER: Final = json.JSONDecoder(parse_constant=refuse_constant)


def _decode_at(text: str, start: int) -> tuple[dict[str, object] | None, int, int]:
    """Decode the object that begins at ``start``; return it, how far to go on, and the number of characters read.

    It is decoded in growing windows, because the decoder's errors count the line ends in its whole input.
    """
    size = _FIRST_WINDOW
    work = _ATTEMPT
    while True:
        window = text[start : start + size]
        work += len(window)
        try:
            value, length = _DECODER.raw_decode(window)
        except json.JSONDecodeError as error:
            cut_off = error.msg.startswith("Unterminated") or error.pos > len(window) - _LONGEST_WORD
            if not cut_off or start + size >= len(text):
                return None, 1, work
        except (ValueError, RecursionError):  # not a JSON number; an integer too long for Python; nested too deeply
            return None, 1, work
        else:
            return value, length, work
        size *= _GROWTH
