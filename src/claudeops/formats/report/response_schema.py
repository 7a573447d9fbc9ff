"""The response schema: the operator's file, or the one that ships; checked once, compiled for the first report.

Reports are validated without jsonschema as long as the one that ships is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from claudeops.formats.report.draft7 import Draft7
    from claudeops.formats.report.plain_schema import PlainSchema

_DRAFT_7: Final = "http://json-schema.org/draft-07/schema"
_ARGUMENT_LIMIT: Final = 120_000  # bytes; Linux refuses a single argument of 128 KiB
_SHIPPED: Final = "036e43746c6f945b8215ea4dfbdf518863d1cbdd09d84a247499f1861810735a"
"""SHA-256 of the schema that ships, of which a test says that it is valid: a start does without the library then."""

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

    def __init__(self, schema: Mapping[str, object], minified: str, *, ships: bool = False) -> None:
        self.shape = schema
        self._minified = minified
        self._ships = ships

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
        ships = is_shipped(text)
        try:
            fault = "" if ships else _fault_of(schema)
            if fault:
                raise ValueError(f"the response schema is not a draft-07 schema: {fault}")
            _refuse_keywords(schema)
        except RecursionError:
            raise ValueError("the response schema is nested too deeply; keep it flat") from None
        if schema.get("type") != "object":
            raise ValueError('the response schema must describe an object: set "type": "object" at its top')
        minified = json.dumps(schema, separators=(",", ":"))
        if len(minified) > _ARGUMENT_LIMIT:
            raise ValueError(
                f"the response schema has {len(minified)} bytes; the command line takes {_ARGUMENT_LIMIT}: shorten it"
            )
        return cls(schema, minified, ships=ships)

    @property
    def minified(self) -> str:
        """The schema as one line of ASCII: what ``--json-schema`` takes."""
        return self._minified

    @cached_property
    def compiled(self) -> Draft7 | PlainSchema:
        """The schema as reports are validated against it; the first look at an operator's imports jsonschema."""
        if self._ships:
            from claudeops.formats.report.plain_schema import PlainSchema  # noqa: PLC0415 - the trial waits for none

            return PlainSchema(self.shape)
        from claudeops.formats.report.draft7 import Draft7  # noqa: PLC0415 - see there

        return Draft7(self.shape)

    def errors(self, candidate: object) -> tuple[str, ...]:
        """Return what is wrong with a candidate, as sentences that begin with a JSON path; ``()`` when it is valid.

        At most eight sentences of bounded length. Never raises, whatever the candidate holds.
        """
        try:
            return self.compiled.errors(candidate)
        except RecursionError:
            return ("$: nested too deeply",)
        except (OverflowError, ValueError):  # multipleOf beyond any float; repr() of an integer of 4300 digits
            return ("$: holds a number that is too large",)


def is_shipped(text: str) -> bool:
    """Return whether this is the schema that ships, to the letter; any other is checked as a whole."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() == _SHIPPED


def _fault_of(schema: Mapping[str, object]) -> str:
    from claudeops.formats.report.draft7 import fault_of  # noqa: PLC0415 - see there

    return fault_of(schema)


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
