"""Whether a name, or some name that a pattern matches, looks like a secret's.

A copy is as secret as what it was copied from: ``shadow.bak``, ``.env~``, ``.#id_rsa``, ``.tls.key.swp``. So to each
pattern of `claudeops.domain.policy.secret_places` belong what editors put in front of a name, and whatever follows it
behind a dot, a dash, an underscore, a tilde or a hash.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from claudeops.domain import regex
from claudeops.domain.policy.path_patterns import ANY_DEPTH, LONGEST_NAME, covers, is_glob, may_match
from claudeops.domain.policy.secret_places import (
    CERTIFICATE_NAMES,
    LEFT_OUT,
    PUBLIC_NAMES,
    SEARCHED_KINDS,
    SECRET_NAMES,
    SECRET_WORDS,
    SECRETLESS_KINDS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_IN_FRONT: Final = r"(?:\.?#|\._|\.)?"
_BEHIND: Final = r"(?:[~#._-].*)?"
_COMPOSE: Final = ("compose*.yml", "compose*.yaml", "docker-compose*.yml", "docker-compose*.yaml")


def _expression(globs: Iterable[str]) -> str:
    return "|".join(".*".join(map(regex.escape, glob.split("*"))) for glob in globs)


_NAMES: Final = regex.Pattern(f"(?s){_IN_FRONT}(?:{_expression(SECRET_NAMES)}){_BEHIND}")
_BUT_KEYS: Final = regex.Pattern(
    f"(?s){_IN_FRONT}(?:{_expression(name for name in SECRET_NAMES if name != '*.pem')}){_BEHIND}"
)
_WORDS: Final = regex.Pattern("(?s)" + _expression(SECRET_WORDS))
_PUBLIC: Final = regex.Pattern("(?s)" + _expression(PUBLIC_NAMES))
_CERTIFICATES: Final = regex.Pattern("(?s)" + _expression(CERTIFICATE_NAMES))


@lru_cache(maxsize=16384)
def is_secret_name(name: str, *, hidden: bool = False) -> bool:
    """Whether a name, or some name that a glob matches, is one that secrets have.

    ``hidden``: the glob is one of find's, whose wildcards match a leading dot too.
    """
    if name == ANY_DEPTH:
        return False
    if len(name) > LONGEST_NAME:
        return True
    if not is_glob(name):
        return _is_secret(name.lower())
    # Every ending is tried with ``*`` behind it: that holds all of what may follow a name, and more.
    shown = name.lower()
    return any(may_match(shown, f"{secret.rstrip('*')}*", hidden=hidden) for secret in SECRET_NAMES) or any(
        may_match(shown, f"{front}{secret.rstrip('*')}*", hidden=hidden)
        for front in (".", "#", ".#", "._")
        if not shown.startswith(("*", "?"))
        for secret in SECRET_NAMES
    )


def is_certificate_name(name: str) -> bool:
    """Whether a name, or every name that a glob matches, may be read where public certificates are kept."""
    shown = name.lower()
    return bool(_CERTIFICATES.fullmatch(shown)) and not _BUT_KEYS.fullmatch(shown)


def refuse_search(includes: Iterable[str], left_out: Iterable[str], left_out_below: Iterable[str]) -> str | None:
    """Return why a directory may not be searched for files of some names, or None.

    ``left_out`` are patterns of files that the search does not look into, ``left_out_below`` of directories.
    """
    kept, below = tuple(left_out), tuple(left_out_below)
    for include in includes:
        shown = include.lower()
        kind = shown.rpartition(".")[2]
        if is_glob(kind) or shown.startswith(".") or _is_secret(shown):
            return f"{include} could find secrets: name a kind of file, such as '*.service', or the files"
        if kind in SECRETLESS_KINDS or any(covers(name, shown) for name in _COMPOSE):
            continue
        if kind not in SEARCHED_KINDS:
            return f"{include} is no kind of file that may be searched: name the files"
        missing = [name for name in LEFT_OUT if not any(covers(out, name) for out in kept)]
        missing += [name for name in LEFT_OUT if not any(covers(out, name) for out in below)]
        if missing:
            return f"{include} could find secrets, which have to be left out"
    return None


def _is_secret(name: str) -> bool:
    if not _NAMES.fullmatch(name):
        return False
    return not (_PUBLIC.fullmatch(name) and not _WORDS.fullmatch(name))
