"""Shell globs over whole texts, matched as `fnmatch.fnmatchcase` does, but in time bounded by the two lengths' product.

The part of a glob between two stars is searched for once, from left to right: its first match leaves the most for what
follows. `fnmatch` builds a regular expression instead, which tries every combination of places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from claudeops.text import regex

_KEPT: Final = 1024  # parsed globs in the cache
_STARS: Final = regex.Pattern(r"\*+")


class _Set:
    """The characters that one place of a glob may stand for."""

    __slots__ = ("_negated", "_ranges", "_single")

    def __init__(self, inside: str) -> None:
        self._negated = inside[0] == "!"
        inside = inside[self._negated :]
        self._single: set[str] = set()
        self._ranges: list[tuple[str, str]] = []
        at = 0
        while at < len(inside):
            if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
                self._ranges.append((inside[at], inside[at + 2]))
                at += 3
            else:
                self._single.add(inside[at])
                at += 1

    def holds(self, character: str) -> bool:
        """Whether the set contains a character."""
        found = character in self._single or any(low <= character <= high for low, high in self._ranges)
        return found is not self._negated


_Place = str | _Set | None  # a character, one of a set, any
_Part = str | tuple[_Place, ...]  # what is between two stars; plain text where it has only characters


def matches(text: str, glob: str) -> bool:
    """Whether a glob matches a text: ``*`` any characters, ``?`` one, ``[a-z]`` and ``[!a-z]`` one of a set."""
    parts = _parts(glob)
    if len(parts) == 1:
        return len(text) == len(parts[0]) and _fits(parts[0], text, 0)
    first, *inner, last = parts
    end = len(text) - len(last)
    if end < len(first) or not _fits(first, text, 0) or not _fits(last, text, end):
        return False
    at = len(first)
    for part in inner:
        at = _find(part, text, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def overlap(left: str, right: str) -> bool:
    """Whether some text matches both of two globs without sets, in as many steps as ``left`` has characters."""
    right = _STARS.sub("*", right)
    stars = _places(right, "*")
    anything = _places(right, "?")
    everywhere = (2 << len(right)) - 1
    reached = 1 | (stars & 1) << 1  # one bit for each place in ``right`` that a text matching ``left`` can reach
    for character in left:
        if character == "*":
            reached = everywhere & -(reached & -reached)
        else:
            taken = ~stars if character == "?" else anything | _places(right, character)
            reached = (reached & taken) << 1 | (reached & stars)
            reached |= (reached & stars) << 1
        reached &= everywhere
        if not reached:
            return False
    return bool(reached >> len(right))


class Overlaps:
    """Globs without sets as one automaton, which says whether some text matches a given glob and one of them.

    The places of all globs stand one after the other in a number, a bit each, so that a step of `overlap` is taken in
    all of them at once: the time grows with the length of the given glob alone.
    """

    def __init__(self, globs: Iterable[str]) -> None:
        wanted = [_STARS.sub("*", glob) for glob in globs]
        self._globs = tuple(wanted)
        self._plain = 0  # all places, but for a bit behind each glob, which takes up what a step carries over
        self._first = self._last = self._stars = 0
        self._taking: dict[str, int] = {}  # places that a character leads over
        start = 0
        for glob in wanted:
            self._plain |= ((2 << len(glob)) - 1) << start
            self._first |= 1 << start
            self._last |= 1 << start + len(glob)
            for at, character in enumerate(glob, start):
                if character == "*":
                    self._stars |= 1 << at
                else:
                    self._taking[character] = self._taking.get(character, 0) | 1 << at
            start += len(glob) + 2
        self._any = self._taking.get("?", 0)
        self._single = self._plain & ~self._stars & ~self._last

    def starting(self, fits: Callable[[str], bool]) -> int:
        """Return those of the globs that a function picks, for `any_with`."""
        start = found = 0
        for glob in self._globs:
            found |= (1 << start) if fits(glob) else 0
            start += len(glob) + 2
        return found

    def any_with(self, glob: str, among: int | None = None) -> bool:
        """Whether some text matches a glob and one of these; ``among`` names the ones that count."""
        reached = self._past_stars(self._first if among is None else among)
        for character in glob:
            if character == "*":
                reached = self._from_there_on(reached)
            else:
                leads = self._single if character == "?" else self._any | self._taking.get(character, 0)
                # A star stays where it is, whatever the character, and may end there too.
                reached = self._past_stars((reached & leads) << 1 | reached & self._stars)
            if not reached:
                return False
        return bool(reached & self._last)

    def _past_stars(self, reached: int) -> int:
        return reached | (reached & self._stars) << 1

    def _from_there_on(self, reached: int) -> int:
        """Return all places from the lowest one that is reached, in each glob: a number and its negative share them."""
        return (reached | ((~reached & self._plain) + self._first)) & self._plain


@lru_cache(maxsize=_KEPT)
def _places(glob: str, character: str) -> int:
    """Return the places of a character in a glob, as bits."""
    return sum(1 << at for at, each in enumerate(glob) if each == character)


def _find(part: _Part, text: str, start: int, end: int) -> int:
    """Return the first place of a part between two positions of a text, or -1."""
    if isinstance(part, str):
        return text.find(part, start, end)
    return next((at for at in range(start, end - len(part) + 1) if _fits(part, text, at)), -1)


def _fits(part: _Part, text: str, at: int) -> bool:
    """Whether a part matches at a position of a text that is long enough for it."""
    if isinstance(part, str):
        return text.startswith(part, at)
    for place, character in zip(part, text[at : at + len(part)], strict=True):
        if isinstance(place, _Set):
            if not place.holds(character):
                return False
        elif place is not None and place != character:
            return False
    return True


@lru_cache(maxsize=_KEPT)
def _parts(glob: str) -> tuple[_Part, ...]:
    """Return what is between the stars; an unclosed bracket is a plain character."""
    parts: list[list[_Place]] = [[]]
    at = 0
    unclosed = len(glob)
    while at < len(glob):
        character = glob[at]
        close = -1
        if character == "[" and at < unclosed:
            close = glob.find("]", at + 2 + (glob[at + 1 : at + 2] == "!"))
            unclosed = at if close < 0 else unclosed
        at += 1
        if character == "*":
            parts.append([])
        elif character == "?":
            parts[-1].append(None)
        elif close > 0:
            parts[-1].append(_Set(glob[at:close]))
            at = close + 1
        else:
            parts[-1].append(character)
    return tuple(_plain(part) for part in parts)


def _plain(part: list[_Place]) -> _Part:
    text = [place for place in part if isinstance(place, str)]
    return "".join(text) if len(text) == len(part) else tuple(part)
