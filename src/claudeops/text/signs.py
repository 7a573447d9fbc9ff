"""Signs that a screen shows as nothing, or as a space: what a text can hold without anybody seeing it.

Python's `unicodedata` knows the categories of characters, not which of them are ignored: some are letters, some are
marks. The tables are facts of Unicode 16.0; its ignorable range at the end holds what is not assigned yet as well.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from itertools import pairwise
from typing import Final

IGNORABLE: Final = (
    (0x00AD, 0x00AD),  # soft hyphen
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x061C, 0x061C),  # Arabic letter mark
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer inherent vowels
    (0x180B, 0x180F),  # Mongolian variation selectors
    (0x200B, 0x200F),  # zero width, marks of direction
    (0x202A, 0x202E),  # embeddings and overrides of direction
    (0x2060, 0x206F),  # word joiner, invisible operators, isolates
    (0x3164, 0x3164),  # Hangul filler
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFEFF, 0xFEFF),  # zero width no-break space
    (0xFFA0, 0xFFA0),  # halfwidth Hangul filler
    (0xFFF0, 0xFFF8),  # not assigned
    (0x1BCA0, 0x1BCA3),  # shorthand format controls
    (0x1D173, 0x1D17A),  # musical format controls
    (0xE0000, 0xE0FFF),  # tags, variation selectors 17 to 256, not assigned
)
"""``Default_Ignorable_Code_Point`` of DerivedCoreProperties.txt: first and last, both included."""

BLANK: Final = (
    (0x2800, 0x2800),  # Braille pattern without dots
    (0xFFF9, 0xFFFC),  # marks around annotations, and of an object that is not there
    (0x13430, 0x1343F),  # Egyptian joiners, which Python 3.11 does not know in full
    (0x13441, 0x13442),  # Egyptian blanks
    (0x16FE4, 0x16FE4),  # Khitan filler
    (0x1D159, 0x1D159),  # musical notehead without ink
)
"""Letters, symbols and joiners without ink that are not ignorable."""

NONCHARACTERS: Final = ((0xFDD0, 0xFDEF), *((plane | 0xFFFE, plane | 0xFFFF) for plane in range(0, 0x110000, 0x10000)))
"""What Unicode will never assign."""

WIDTHLESS: Final = (*IGNORABLE, *BLANK)
"""What can stand within a word so that it reads as before."""

_UNSEEN: Final = tuple(sorted((*IGNORABLE, *BLANK, *NONCHARACTERS)))
_FIRST: Final = tuple(first for first, _ in _UNSEEN)
_PRESENTATION: Final = "\ufe0e\ufe0f"  # the sign before it is drawn as text, or as an emoji
_KEYCAP: Final = "\u20e3"


def is_unseen(sign: str) -> bool:
    """Whether nothing is to be seen of a character, though its category may be that of a letter, mark or symbol."""
    code = ord(sign)
    at = bisect_right(_FIRST, code) - 1
    return at >= 0 and code <= _UNSEEN[at][1]


def is_doubtful(sign: str) -> bool:
    """Whether a character may be seen as something else.

    That is a space at which no shell splits words, or what is not assigned, so that fonts may show nothing.
    """
    return sign != " " and unicodedata.category(sign) in {"Zs", "Cn"}


def presentations(text: str) -> frozenset[int]:
    """Return where a text holds selectors that do what they are for: draw the symbol before them in one of two ways.

    Of several in a row only the first does.
    """
    if not any(selector in text for selector in _PRESENTATION):
        return frozenset()
    return frozenset(
        at
        for at, (before, sign) in enumerate(pairwise(text), start=1)
        if sign in _PRESENTATION and (_is_symbol(before) or text[at + 1 : at + 2] == _KEYCAP)
    )


def _is_symbol(sign: str) -> bool:
    return unicodedata.category(sign) in {"So", "Sm"} and not is_unseen(sign)
