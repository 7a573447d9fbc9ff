"""A policy as the text of a file that says the same: what is in force, with everything that was extended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import msgspec

from claudeops.domain import regex

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from claudeops.domain.policy.schema import Document

_BARE: Final = regex.Pattern(r"[A-Za-z0-9_-]+")
_ARRAYS: Final = ("groups", "commands", "tools")
_MOMENTARY: Final = frozenset({"extends", "without"})  # how the file came about, not what it says


def render(document: Document) -> str:
    """Return a file that stands alone and means the same."""
    body = msgspec.to_builtins(document)
    lines: list[str] = []
    for key, value in body.items():
        if key not in {*_MOMENTARY, *_ARRAYS}:
            lines += _table((key,), value)
    for key in _ARRAYS:
        for entry in body[key]:
            lines += ["", f"[[{key}]]", *_pairs(entry)]
    return "\n".join(lines).strip() + "\n"


def _table(path: tuple[str, ...], table: Mapping[str, object]) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    plain = {key: value for key, value in table.items() if key not in inner}
    if plain or not inner:
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
        yield from _pairs(plain)
    for key, value in inner.items():
        yield from _table((*path, key), value)


def _pairs(table: Mapping[str, object]) -> Iterator[str]:
    for key, value in table.items():
        # An empty text says nothing, but for ``line`` (no arguments at all); a switch is off, but for ``changes``.
        told = value not in ("", False) or key in {"line", "changes"}
        if value is not None and told:
            yield f"{_key(key)} = {_value(value)}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str) and "\\" in value and "'" not in value and value.isprintable():
        return f"'{value}'"
    # A JSON string is a basic string of TOML: their escapes are the same.
    return json.dumps(value, ensure_ascii=False)
