"""The response schema: the operator's file, checked and compiled once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from jsonschema import Draft7Validator, FormatChecker, SchemaError, ValidationError, validators

from claudeops.text import regex

_DRAFT_7: Final = "http://json-schema.org/draft-07/schema"
_ARGUMENT_LIMIT: Final = 120_000  # bytes; Linux refuses a single argument of 128 KiB
_MOST_ERRORS: Final = 8  # sentences about one candidate; a model corrects no more at a time
_SENTENCE_LENGTH: Final = 240  # characters

# Where draft-07 nests schemas in schemas. A property may well be called "format": names are not keywords.
_SCHEMAS_BY_NAME: Final = ("properties", "patternProperties", "definitions", "dependencies")
_LISTS_OF_SCHEMAS: Final = ("allOf", "anyOf", "oneOf", "items")
_SCHEMAS: Final = (
    *("items", "additionalItems", "additionalProperties", "contains", "propertyNames"),
    *("not", "if", "then", "else"),
)
_REFUSED: Final = {
    "format": "the CLI refuses it; use pattern or enum",
    "$ref": "a reference may lead to the network or to itself; write the definition where it is used",
}


class ReportSchema:
    """The JSON Schema (draft-07) that reports are validated against."""

    __slots__ = ("_minified", "_validator", "shape")

    def __init__(self, schema: Mapping[str, object], minified: str) -> None:
        self.shape = schema
        self._validator = _Validator(schema)
        self._minified = minified

    @classmethod
    def load(cls, text: str) -> ReportSchema:
        """Check and compile a schema file's text.

        Raises `ValueError` with one sentence that says what is wrong: not JSON, no draft-07 schema of an
        object, a keyword that would fail later, or too long for the command line.
        """
        schema = _parsed(text)
        dialect = schema.get("$schema", _DRAFT_7)
        if not isinstance(dialect, str) or dialect.rstrip("#") != _DRAFT_7:
            raise ValueError(f'the response schema must be draft-07: set $schema to "{_DRAFT_7}#"')
        try:
            # The format check finds broken regular expressions, which would otherwise fail at the first report.
            Draft7Validator.check_schema(schema, format_checker=_EXPRESSIONS)
            _refuse_keywords(schema)
        except SchemaError as error:
            why = f" of google-re2: {error.cause}" if isinstance(error.cause, regex.ExpressionError) else ""
            raise ValueError(f"the response schema is not a draft-07 schema: {_sentence(error)}{why}") from None
        except RecursionError:
            raise ValueError("the response schema is nested too deeply; keep it flat") from None
        if schema.get("type") != "object":
            raise ValueError('the response schema must describe an object: set "type": "object" at its top')
        minified = json.dumps(schema, separators=(",", ":"))
        if len(minified) > _ARGUMENT_LIMIT:
            raise ValueError(
                f"the response schema has {len(minified)} bytes; the command line takes {_ARGUMENT_LIMIT}: shorten it"
            )
        return cls(schema, minified)

    @property
    def minified(self) -> str:
        """The schema as one line of ASCII: what ``--json-schema`` takes."""
        return self._minified

    def errors(self, candidate: object) -> tuple[str, ...]:
        """Return what is wrong with a candidate, as sentences that begin with a JSON path; ``()`` when it is valid.

        At most eight sentences of bounded length. Never raises, whatever the candidate holds.
        """
        try:
            return tuple(_sentence(error) for error in islice(self._validator.iter_errors(candidate), _MOST_ERRORS))
        except RecursionError:
            return ("$: nested too deeply",)
        except (OverflowError, ValueError):  # multipleOf beyond any float; repr() of an integer of 4300 digits
            return ("$: holds a number that is too large",)


# The library's own versions match a model's text with Python's `re`, which a hostile text can keep busy for minutes.
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


def _parsed(text: str) -> dict[str, object]:
    try:
        schema = json.loads(text.removeprefix("\ufeff"), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("the response schema is nested too deeply; keep it flat") from None
    except ValueError as error:
        raise ValueError(f"the response schema is not valid JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ValueError("the response schema must be a JSON object")  # noqa: TRY004 - callers catch one type
    return schema


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _refuse_keywords(schema: Mapping[str, object]) -> None:
    for path, part in _walk(schema, "$"):
        for keyword, why in _REFUSED.items():
            if keyword in part:
                raise ValueError(f"the response schema uses {keyword} at {path}: {why}")


def _walk(schema: object, path: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield every schema within a schema with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for keyword in _SCHEMAS_BY_NAME:
        named = schema.get(keyword)
        for name, part in named.items() if isinstance(named, dict) else ():
            yield from _walk(part, f"{path}.{keyword}.{name}")
    for keyword in _LISTS_OF_SCHEMAS:
        parts = schema.get(keyword)
        for index, part in enumerate(parts if isinstance(parts, list) else ()):
            yield from _walk(part, f"{path}.{keyword}[{index}]")
    for keyword in _SCHEMAS:
        yield from _walk(schema.get(keyword), f"{path}.{keyword}")


def _sentence(error: ValidationError | SchemaError) -> str:
    """Return path and message in one line, cut, because the message repeats a value of any length."""
    sentence = " ".join(f"{error.json_path}: {error.message}".split())
    return sentence if len(sentence) <= _SENTENCE_LENGTH else sentence[: _SENTENCE_LENGTH - 1] + "…"
