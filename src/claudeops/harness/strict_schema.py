"""The report's schema in the form that OpenAI's structured outputs take, and the way back.

There every object lists all its properties as required and allows no others, every part says its type, and most
other keywords are refused with HTTP 400 (https://platform.openai.com/docs/guides/structured-outputs). What is lost
on the way is no loss: the report is held against the real schema when it comes back.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEPT: Final = ("title", "description", "type", "enum", "const")
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_INEXPRESSIBLE: Final = frozenset(
    {"allOf", "not", "if", "patternProperties", "propertyNames", "dependencies", "$ref", "additionalItems"}
)


class _InexpressibleError(ValueError):
    """A part of the schema has no strict form."""


def strict_schema(text: str) -> str | None:
    """Return the strict form of a schema as JSON text, or ``None`` for a schema that has none."""
    try:
        return json.dumps(_strict(json.loads(text)), separators=(",", ":"))
    except _InexpressibleError:
        return None


def without_nulls(value: object) -> object:
    """Return a JSON value without the keys whose value is null: that is how the strict form leaves one out."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _strict(part: object) -> dict[str, object]:
    if not isinstance(part, dict) or _INEXPRESSIBLE & part.keys():
        raise _InexpressibleError
    strict: dict[str, object] = {key: part[key] for key in _KEPT if key in part}
    for keyword in _ALTERNATIVES:
        if isinstance(alternatives := part.get(keyword), list):
            strict["anyOf"] = [_strict(alternative) for alternative in alternatives]
    if not strict.keys() & {"type", "anyOf"}:
        raise _InexpressibleError
    kinds = _types(part)
    if "object" in kinds:
        strict |= _strict_object(part)
    if "array" in kinds:
        strict["items"] = _strict(part.get("items"))
    return strict


def _strict_object(part: Mapping[str, object]) -> dict[str, object]:
    properties = part.get("properties")
    if not isinstance(properties, dict) or not properties or isinstance(part.get("additionalProperties"), dict):
        raise _InexpressibleError
    required = part.get("required")
    needed = required if isinstance(required, list) else []
    return {
        "properties": {
            name: _strict(inner) if name in needed else _nullable(_strict(inner)) for name, inner in properties.items()
        },
        "required": list(properties),
        "additionalProperties": False,
    }


def _nullable(strict: dict[str, object]) -> dict[str, object]:
    """Return a part that may be left out; a list is left out by being empty."""
    kinds = _types(strict)
    if "null" in kinds or "array" in kinds:
        return strict
    return {"anyOf": [strict, {"type": "null"}]}


def _types(part: Mapping[str, object]) -> tuple[object, ...]:
    kinds = part.get("type")
    return tuple(kinds) if isinstance(kinds, list) else (kinds,)
