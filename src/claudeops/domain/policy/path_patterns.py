"""Could two patterns for paths mean the same path? A path is a tuple of names; `ANY_DEPTH` stands for any number.

Names are compared without regard to case: what is secret under one spelling is secret under all. Nothing here
backtracks: the time is at most the product of the two lengths, whatever somebody wrote.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from claudeops.domain.glob import overlap

ANY_DEPTH: Final = "**"  # a name in a pattern that stands for any number of directories
LONGEST_NAME: Final = 255  # characters; no file system here has a longer one

_WILD: Final = "*?["


def is_glob(text: str) -> bool:
    """Whether a text holds a wildcard."""
    return any(letter in text for letter in _WILD)


def before_glob(text: str) -> str:
    """Return what stands in front of the first wildcard."""
    return next((text[:at] for at, letter in enumerate(text) if letter in _WILD), text)


def meet_somewhere(names: tuple[str, ...], secret: tuple[str, ...]) -> bool:
    """Whether a relative path could name a secret place from a directory that is not itself below one."""
    fixed = len(secret) - (secret[-1] == ANY_DEPTH)
    return any(meet(names, secret[start:]) for start in range(fixed))


@lru_cache(maxsize=4096)
def meet(left: tuple[str, ...], right: tuple[str, ...], *, hidden: bool | None = None) -> bool:
    """Whether one path can match both patterns; ``left`` is what somebody wrote, ``right`` what we know.

    ``hidden``: a wildcard at the start matches a leading dot too, as find's do; without it, where `ANY_DEPTH` stands
    on the left, which only find writes.
    """
    dots = ANY_DEPTH in left if hidden is None else hidden
    if ANY_DEPTH in left[:1]:
        return meet(left[1:], right, hidden=dots) or (bool(right) and meet(left, right[1:], hidden=dots))
    if ANY_DEPTH in right[:1]:
        return meet(left, right[1:], hidden=dots) or (bool(left) and meet(left[1:], right, hidden=dots))
    if not left or not right:
        return not left and not right
    return may_match(left[0], right[0], hidden=dots) and meet(left[1:], right[1:], hidden=dots)


@lru_cache(maxsize=16384)
def may_match(left: str, right: str, *, hidden: bool = False) -> bool:
    """Whether some name matches both globs. A wildcard at the start of ``left`` matches no leading dot, as in bash.

    ``hidden``: it does, as in find. A set in brackets counts as any letter.
    """
    if max(len(left), len(right)) > LONGEST_NAME:
        return True
    one, other = _letters(left), _letters(right)
    if not hidden and one[:1] in {"*", "?"} and other[:1] == ".":
        return False
    return overlap(one, other)


def covers(wide: str, narrow: str) -> bool:
    """Whether every name that ``narrow`` matches is surely matched by ``wide``, which holds no wildcard but ``*``."""
    if "?" in wide or "[" in wide:
        return False
    return max(len(wide), len(narrow)) <= LONGEST_NAME and _matches(narrow.lower().replace("?", "\1"), wide.lower())


def _letters(glob: str) -> str:
    """Return a glob in lower case, with ``?`` for each set in brackets and one ``*`` for several."""
    plain: list[str] = []
    at = 0
    while at < len(glob):
        end = glob.find("]", at + 2) if glob[at] == "[" else -1
        if glob[at] != "*" or plain[-1:] != ["*"]:
            plain.append("?" if end > 0 else glob[at])
        at = end + 1 if end > 0 else at + 1
    return "".join(plain).lower()


def _matches(name: str, glob: str) -> bool:
    """Whether a name matches a glob of plain letters and ``*``; a ``*`` within the name is a letter like any other."""
    first, *rest = glob.split("*")
    if not rest:
        return name == glob
    if not name.startswith(first) or not name[len(first) :].endswith(rest[-1]):
        return False
    at, end = len(first), len(name) - len(rest[-1])
    for piece in rest[:-1]:
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return at <= end
