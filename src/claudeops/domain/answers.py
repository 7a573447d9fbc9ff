"""Answers as plain values: what a reading returns, made ready for JSON, for whichever way it leaves the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum

import msgspec

from claudeops.text.escapes import visible


def plain(value: object) -> object:
    """Return a value for a document: Structs and dataclasses as objects, their fields in order.

    Every text, keys included, is without hidden characters; moments stay `datetime`, which orjson writes with a Z.
    """
    match value:
        case Enum():
            return value.value
        case str():
            return visible(value)
        case Mapping():
            return {visible(str(key)): plain(item) for key, item in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
    names = _fields_of(value)
    return value if names is None else {name: plain(getattr(value, name)) for name in names}


def document(answer: msgspec.Struct) -> dict[str, object]:
    """Return an answer as the body of a document, as `plain` makes it."""
    return {name: plain(getattr(answer, name)) for name in answer.__struct_fields__}


def _fields_of(value: object) -> Sequence[str] | None:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    return [one.name for one in fields(value)] if is_dataclass(value) and not isinstance(value, type) else None
