"""Names and texts from outside, made safe for sentences, fingerprints and columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

NAME_LENGTH: Final = 255  # characters; the longest name that Kubernetes allows is 253

REASON_LENGTH: Final = 500  # characters of a model's reason that a sentence repeats
WHERE_KINDS: Final = ("project", "namespace", "context", "container", "engine", "machine", "user")
"""The kinds of places in front of a service's name: ``namespace:media/web``."""

MOST_NAMES: Final = 10  # services that a sentence names before it counts


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in order, each once, whatever its case."""
    return tuple({casefold_key(name): name for name in names if name.strip()}.values())


def casefold_key(name: str) -> str:
    """Return the form in which two spellings of a name are equal."""
    return name.strip().casefold()


def same(one: str, other: str) -> bool:
    """Tell whether two names are spellings of one name."""
    return casefold_key(one) == casefold_key(other)


def join_names(services: Sequence[str]) -> str:
    """Return names for a sentence; from the eleventh on they are only counted."""
    listed = ", ".join(one_line(service) for service in services[:MOST_NAMES])
    left = len(services) - MOST_NAMES
    return f"{listed} and {left} more" if left > 0 else listed


def parts(name: str) -> tuple[str, ...]:
    """Return the places where a service runs and its plain name, without their kinds: ``media`` and ``web``."""
    found = []
    for part in name.split("/"):
        kind, _, rest = part.partition(":")
        found.append(rest if kind in WHERE_KINDS else part)
    return tuple(found)


def one_line(text: str | None) -> str:
    """Return a text as one line of bounded length, for a sentence."""
    line = " ".join((text or "").split())
    return line if len(line) <= REASON_LENGTH else line[:REASON_LENGTH] + " ..."


def clean(text: str) -> str:
    """Return ``text`` with NUL and unpaired surrogates replaced, which not every database takes."""
    if text.isascii() and "\x00" not in text:
        return str(text)  # of a kind of text that means something in memory, such as a member of an enumeration, too
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def clip(name: str) -> str:
    """Return ``name`` as a `Name` column stores it: clean and at most 255 characters."""
    return clean(name)[:NAME_LENGTH]


def json_text(value: object) -> str:
    """Return plain values as JSON text that every database takes."""
    return msgspec.json.encode(_cleaned(value)).decode()


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {key: _cleaned(item) for key, item in value.items()}
    return value
