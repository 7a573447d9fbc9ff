"""Texts that a regular expression fits, drawn."""

from __future__ import annotations

import string
from importlib import import_module
from random import Random
from typing import Any, Final

kinds: Final[Any] = import_module("re._constants")  # Python's own, for which there are no types
reader: Final[Any] = import_module("re._parser")

_MOST_REPEATED: Final = 4
_ANY: Final = "abcXYZ019._-"
_CLASSES: Final = {
    kinds.CATEGORY_DIGIT: "0123456789",
    kinds.CATEGORY_WORD: "abcxyzABC019_",
    kinds.CATEGORY_SPACE: " ",
    kinds.CATEGORY_NOT_DIGIT: "abc-",
    kinds.CATEGORY_NOT_WORD: "-.:/",
    kinds.CATEGORY_NOT_SPACE: _ANY,
}


def sample(expression: str, random: Random) -> str:
    """Return a text that fits an expression of google-re2, as far as Python reads the same."""
    parsed = reader.parse(expression.replace(r"\pL", "a-z").replace(r"\pN", "0-9"))
    return "".join(_drawn(kind, value, random) for kind, value in parsed)


def _drawn(kind: Any, value: Any, random: Random) -> str:
    found = ""  # where it begins and ends
    match kind:
        case kinds.LITERAL:
            found = chr(value)
        case kinds.NOT_LITERAL:
            found = random.choice([each for each in _ANY if ord(each) != value])
        case kinds.ANY:
            found = random.choice(_ANY)
        case kinds.IN:
            found = random.choice(_members(value))
        case kinds.BRANCH:
            found = _all(random.choice(value[1]), random)
        case kinds.SUBPATTERN:
            found = _all(value[-1], random)
        case kinds.MAX_REPEAT | kinds.MIN_REPEAT:
            least, most, what = value
            times = random.randint(least, max(least, min(int(most), least + _MOST_REPEATED)))
            found = "".join(_all(what, random) for _ in range(times))
    return found


def _all(parsed: Any, random: Random) -> str:
    return "".join(_drawn(kind, value, random) for kind, value in parsed)


def _members(members: Any) -> str:
    found, refused = "", False
    for kind, value in members:
        match kind:
            case kinds.NEGATE:
                refused = True
            case kinds.LITERAL:
                found += chr(value)
            case kinds.RANGE:
                found += "".join(map(chr, range(value[0], value[1] + 1)))
            case kinds.CATEGORY:
                found += _CLASSES[value]
    return "".join(each for each in string.printable.strip() if each not in found) if refused else found
