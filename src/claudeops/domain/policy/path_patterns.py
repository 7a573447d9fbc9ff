"""Could two patterns for paths mean the same path? A path is a tuple of names; `ANY_DEPTH` stands for any number."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from claudeops.domain import regex
from claudeops.domain.glob import matches, overlap

ANY_DEPTH: Final = "**"  # a name in a pattern that stands for any number of directories
GLOB: Final = regex.Pattern(r"[*?\[]")
_PLAIN_SET: Final = regex.Pattern(r"\[[\w.-]+\]")


def meet_somewhere(names: tuple[str, ...], secret: tuple[str, ...]) -> bool:
    """Whether a relative path could name a secret place from a directory that is not itself below one."""
    fixed = len(secret) - (secret[-1] == ANY_DEPTH)
    return any(meet(names, secret[start:]) for start in range(fixed))


@lru_cache(maxsize=4096)
def meet(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    """Whether one path can match both patterns."""
    if ANY_DEPTH in left[:1]:
        return meet(left[1:], right) or (bool(right) and meet(left, right[1:]))
    if ANY_DEPTH in right[:1]:
        return meet(left, right[1:]) or (bool(left) and meet(left[1:], right))
    if not left or not right:
        return not left and not right
    return may_match(left[0], right[0]) and meet(left[1:], right[1:])


@lru_cache(maxsize=4096)
def may_match(left: str, right: str) -> bool:
    """Whether some name matches both globs. A wildcard at the start matches no leading dot, as in bash."""
    left, right = _PLAIN_SET.sub("?", left), _PLAIN_SET.sub("?", right)
    if not GLOB.search(left):
        return _glob_matches(left, right)
    if not GLOB.search(right):
        return _glob_matches(right, left)
    if (left[0] in "*?[") != (right[0] in "*?[") and "." in (left[0], right[0]):
        return False
    return overlap(regex.sub(r"\[.\]", "?", left), regex.sub(r"\[.\]", "?", right))


def _glob_matches(name: str, glob: str) -> bool:
    return matches(name, glob) and not (name.startswith(".") and glob[:1] in {"*", "?", "["})
