"""The answers of commands, endpoints and pages: one declaration a fact, as Structs, and how they become documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

import msgspec

from claudeops.domain.gate.approval import visible


def plain(value: object) -> object:
    """Return a value for a document: Structs and dataclasses as objects, and every text without hidden characters.

    Fields keep their order, and moments stay moments, which whoever renders the document writes in UTC.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return visible(value)
    names = _names(value)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {visible(str(key)): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def document(value: msgspec.Struct) -> dict[str, object]:
    """Return a Struct as an object of a document."""
    return {name: plain(getattr(value, name)) for name in value.__struct_fields__}


def _names(value: object) -> tuple[str, ...] | None:
    """Return the names of a value's fields; None for what has none."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    return tuple(one.name for one in fields(value)) if is_dataclass(value) and not isinstance(value, type) else None
