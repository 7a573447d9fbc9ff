"""Draft-07 schemas, by jsonschema: its import takes as long as a quick command may, so that few modules know this one.

Patterns are google-re2's: the library's own versions match a model's text with Python's `re`, which a hostile text can
keep busy for minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from jsonschema import Draft7Validator, FormatChecker, SchemaError, ValidationError, validators

from claudeops.formats.report.plain_schema import sentence, sentences
from claudeops.text import regex


class Draft7:
    """A compiled schema."""

    __slots__ = ("_validator",)

    def __init__(self, schema: Mapping[str, object]) -> None:
        self._validator = _Validator(schema)

    def errors(self, candidate: object) -> tuple[str, ...]:
        """Return the sentences of `ReportSchema.errors`; raises what a hostile candidate makes the library raise."""
        return sentences((error.json_path, error.message) for error in self._validator.iter_errors(candidate))


def fault_of(schema: Mapping[str, object]) -> str:
    """Return why this is no draft-07 schema, or "". Raises `RecursionError`.

    The format check finds broken regular expressions, which would otherwise fail at the first report.
    """
    try:
        Draft7Validator.check_schema(schema, format_checker=_EXPRESSIONS)
    except SchemaError as error:
        why = f" of google-re2: {error.cause}" if isinstance(error.cause, regex.ExpressionError) else ""
        return f"{sentence(error.json_path, error.message)}{why}"
    return ""


def _pattern(_validator: Any, pattern: str, instance: object, _schema: object) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not regex.search(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, object], instance: object, _schema: object
) -> Iterator[ValidationError]:
    for pattern, schema in patterns.items():
        for name, value in instance.items() if isinstance(instance, dict) else ():
            if regex.search(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: object, instance: object, schema: Mapping[str, object]
) -> Iterator[ValidationError]:
    patterns = schema.get("patternProperties")
    if isinstance(patterns, dict) and isinstance(instance, dict):
        schema = {keyword: value for keyword, value in schema.items() if keyword != "patternProperties"}
        named = (name for name in instance if not any(regex.search(pattern, name) for pattern in patterns))
        instance = {name: instance[name] for name in named}
    yield from Draft7Validator.VALIDATORS["additionalProperties"](validator, allowed, instance, schema)


def _is_expression(value: object) -> bool:
    if isinstance(value, str):
        regex.check(value)
    return True


_Validator: Final = validators.extend(  # type: ignore[no-untyped-call]
    Draft7Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    },
)
_EXPRESSIONS: Final = FormatChecker(formats=())
_EXPRESSIONS.checks("regex", raises=regex.ExpressionError)(_is_expression)
