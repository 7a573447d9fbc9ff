"""Schemas of the few keywords that the one that ships needs, and the sentences about what does not fit a schema.

jsonschema and what it imports would hold 2 MiB of a daemon for as long as it lives. What this says of a candidate is
what that library says of it, in its words and its order; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import NoneType
from typing import Any, Final

_MOST_ERRORS: Final = 8  # sentences about one candidate; a model corrects no more at a time
_SENTENCE_LENGTH: Final = 240  # characters

_TYPES: Final = {"array": list, "boolean": bool, "null": NoneType, "object": dict, "string": str}
_ANNOTATIONS: Final = frozenset({"$schema", "title", "description"})

_Faults = Iterator[tuple[str, str]]  # the JSON path of each, and what is wrong there


class PlainSchema:
    """A schema of the keywords in `_CHECKS`; raises `KeyError` for any other one."""

    __slots__ = ("_schema",)

    def __init__(self, schema: Mapping[str, object]) -> None:
        self._schema = _checked(schema)

    def errors(self, candidate: object) -> tuple[str, ...]:
        """Return the sentences of `ReportSchema.errors`; raises what a hostile candidate makes `repr` raise."""
        return sentences(_faults(self._schema, candidate, "$"))


def sentences(faults: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return a sentence for each of the first faults."""
    return tuple(sentence(path, message) for path, message in islice(faults, _MOST_ERRORS))


def sentence(path: str, message: str) -> str:
    """Return path and message in one line, cut, because the message repeats a value of any length."""
    line = " ".join(f"{path}: {message}".split())
    return line if len(line) <= _SENTENCE_LENGTH else line[: _SENTENCE_LENGTH - 1] + "…"


def _checked(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the checks of a schema, and of those within it; what only explains it is left out."""
    checks = {keyword: value for keyword, value in schema.items() if keyword not in _ANNOTATIONS}
    for keyword in checks:
        _ = _CHECKS[keyword]
    if "properties" in checks:
        checks["properties"] = {name: _checked(part) for name, part in checks["properties"].items()}
    if "items" in checks:
        checks["items"] = _checked(checks["items"])
    return checks


def _faults(checks: Mapping[str, Any], value: object, path: str) -> _Faults:
    for keyword, wanted in checks.items():
        yield from _CHECKS[keyword](wanted, value, path)


def _type(wanted: str | Sequence[str], value: object, path: str) -> _Faults:
    names = [wanted] if isinstance(wanted, str) else wanted
    if not any(_is_of(name, value) for name in names):
        yield path, f"{value!r} is not of type {', '.join(map(repr, names))}"


def _is_of(name: str, value: object) -> bool:
    if name != "integer":
        return isinstance(value, _TYPES[name])
    return value.is_integer() if isinstance(value, float) else isinstance(value, int) and not isinstance(value, bool)


def _required(names: Sequence[str], value: object, path: str) -> _Faults:
    for name in names:
        if isinstance(value, dict) and name not in value:
            yield path, f"{name!r} is a required property"


def _properties(named: Mapping[str, Mapping[str, Any]], value: object, path: str) -> _Faults:
    for name, checks in named.items():
        if isinstance(value, dict) and name in value:
            yield from _faults(checks, value[name], f"{path}.{name}")


def _items(checks: Mapping[str, Any], value: object, path: str) -> _Faults:
    for index, item in enumerate(value if isinstance(value, list) else ()):
        yield from _faults(checks, item, f"{path}[{index}]")


def _enum(words: Sequence[str], value: object, path: str) -> _Faults:
    if value not in words:
        yield path, f"{value!r} is not one of {words!r}"


def _min_length(least: int, value: object, path: str) -> _Faults:
    if isinstance(value, str) and len(value) < least:
        yield path, f"{value!r} {'should be non-empty' if least == 1 else 'is too short'}"


_CHECKS: Final[Mapping[str, Callable[[Any, object, str], _Faults]]] = {
    "type": _type,
    "required": _required,
    "properties": _properties,
    "items": _items,
    "enum": _enum,
    "minLength": _min_length,
}
