"""What a daemon decides by, as digests: a difference between two daemons on one database has a name, and no more.

A digest shows no content. What holds secrets is left out all the same: a short secret could be found by trying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any, Final

import msgspec

_CHARACTERS: Final = 16  # hexadecimal digits: to tell one content from another, not to withstand an attack


def _itself(value: Any) -> object:
    return value


class DigestSource(msgspec.Struct, frozen=True):
    """Something by which a daemon decides."""

    now: Callable[[], object]  # returns it as it is now: an equal object, until it has changed; None: not known yet
    content: Callable[[Any], object] = _itself  # what of that counts


class Digests:
    """The digests of one daemon."""

    def __init__(self, sources: Mapping[str, DigestSource]) -> None:
        self._sources = sources
        self._known: dict[str, tuple[object, str]] = {}

    def now(self) -> Mapping[str, str]:
        """Return them, by name. What is the same as the last time is not digested again."""
        found = {name: self._digest(name, source) for name, source in self._sources.items()}
        return {name: digest for name, digest in found.items() if digest is not None}

    def _digest(self, name: str, source: DigestSource) -> str | None:
        before, value = self._known.get(name), source.now()
        if value is None:
            return None
        if before is None or (before[0] is not value and before[0] != value):
            before = self._known[name] = (value, digest_of(source.content(value)))
        return before[1]


def digest_of(value: object) -> str:
    """Return the digest of a value, which is the same in every process."""
    return sha256(msgspec.json.encode(_plain(value))).hexdigest()[:_CHARACTERS]


def decisive(group: Any) -> Mapping[str, object]:
    """Return what a group of settings says, without secrets and without paths, which are each machine's own."""
    values = {each.name: getattr(group, each.name) for each in fields(group) if each.repr}
    return {name: value for name, value in values.items() if not _is_path(value)}


def _is_path(value: object) -> bool:
    return isinstance(value, Path) or (isinstance(value, tuple) and any(isinstance(one, Path) for one in value))


def _plain(value: object) -> object:
    """Return a value in lists and plain values, in an order of its own where it has none."""
    match value:
        case Enum():
            plain: object = value.value
        case None | bool() | int() | float() | str():
            plain = value
        case Mapping():
            plain = sorted(([_plain(key), _plain(one)] for key, one in value.items()), key=repr)
        case frozenset() | set():
            plain = sorted(map(_plain, value), key=repr)
        case tuple() | list():
            plain = [_plain(one) for one in value]
        case bytes() | datetime() | timedelta() | PurePath():
            plain = str(value)
        case _ if hasattr(value, "pattern"):  # an expression
            plain = value.pattern
        case _:
            plain = [type(value).__name__, *([name, _plain(getattr(value, name))] for name in _fields(value))]
    return plain


def _fields(value: object) -> Iterable[str]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if is_dataclass(value):
        return [each.name for each in fields(value)]
    return sorted(getattr(value, "__dict__", ()))
