"""The response schema: our own, and what an operator may put in its place."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator

import pytest

from claudeops.formats.report.draft7 import Draft7, fault_of
from claudeops.formats.report.extraction import ReportSchema
from claudeops.formats.report.plain_schema import PlainSchema
from claudeops.formats.report.response_schema import is_shipped
from claudeops.settings.files import SCHEMA_FILE, packaged
from support.reports import ALARM, HEALTHY, SCHEMA, SCHEMA_TEXT, changed, found


def test_our_schema_is_small_flat_and_passed_as_one_line() -> None:
    assert len(SCHEMA.minified) < 5000
    assert SCHEMA.minified.isascii()
    assert "\n" not in SCHEMA.minified
    assert json.loads(SCHEMA.minified) == json.loads(SCHEMA_TEXT)
    assert '"format"' not in SCHEMA.minified


def test_every_field_tells_the_model_what_belongs_there() -> None:
    def fields(schema: dict[str, dict[str, dict[str, object]]]) -> list[dict[str, object]]:
        own = list(schema.get("properties", {}).values())
        inner = [part for field in own for part in (field, field.get("items")) if isinstance(part, dict)]
        return own + [deeper for part in inner for deeper in fields(part)]

    parts = fields(json.loads(SCHEMA_TEXT))
    assert len(parts) == 18
    assert all(part.get("description") for part in parts)


@pytest.mark.parametrize("report", [HEALTHY, ALARM, changed(HEALTHY, memories=[])])
def test_reports_of_the_contract_are_valid(report: dict[str, object]) -> None:
    assert SCHEMA.errors(report) == ()


def test_an_extra_key_or_a_null_in_an_optional_field_costs_no_report() -> None:
    report = {
        **HEALTHY,
        "confidence": 0.9,
        "events": [{"level": "info", "message": "x1", "service": None, "host": "a"}],
        "escalation": {"needed": False, "reason": None, "context": None},
        "services_checked": [{"name": "web", "status": "healthy", "detail": None, "port": 80}],
    }
    assert SCHEMA.errors(report) == ()
    assert found(structured_outputs=[report]).warnings == ()


@pytest.mark.parametrize(
    ("report", "error"),
    [
        ({}, "$: 'summary' is a required property"),
        ([], "$: [] is not of type 'object'"),
        (None, "$: None is not of type 'object'"),
        (changed(HEALTHY, summary=""), "$.summary: '' should be non-empty"),
        (changed(HEALTHY, events="absent"), "$: 'events' is a required property"),
        (changed(HEALTHY, services_checked="absent"), "$: 'services_checked' is a required property"),
        (changed(HEALTHY, escalation={}), "$.escalation: 'needed' is a required property"),
        (changed(HEALTHY, escalation={"needed": "true"}), "$.escalation.needed: 'true' is not of type 'boolean'"),
        (changed(HEALTHY, memories=[{"key": "a"}]), "$.memories[0]: 'value' is a required property"),
        (
            changed(HEALTHY, services_checked=[{"name": "a", "status": "ok"}]),
            "$.services_checked[0].status: 'ok' is not one of ['healthy', 'degraded', 'down', 'unreachable']",
        ),
    ],
)
def test_what_breaks_the_contract_is_named_with_its_path(report: object, error: str) -> None:
    assert error in SCHEMA.errors(report)


def test_errors_are_bounded_in_number_and_length() -> None:
    flood = changed(HEALTHY, events=[{"level": "x" * 10_000}] * 10_000)
    errors = SCHEMA.errors(flood)
    assert len(errors) == 8
    assert all(len(error) <= 240 for error in errors)


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_hostile_candidate_breaks_no_validation() -> None:
    assert SCHEMA.errors(changed(HEALTHY, summary=nested(50_000))) == ("$: nested too deeply",)
    assert SCHEMA.errors(changed(HEALTHY, summary=10**5000)) == ("$: holds a number that is too large",)
    cents = ReportSchema.load('{"type": "object", "properties": {"a": {"multipleOf": 0.01}}}')
    assert cents.errors({"a": 10**400}) == ("$: holds a number that is too large",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON"),
        ("/app/schemas/agent-response.json", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ("true", "must be a JSON object"),
        ('{"type": "array"}', 'set "type": "object" at its top'),
        ("{}", 'set "type": "object" at its top'),
        ('{"type": "object", "minLength": NaN}', "NaN is not a JSON number"),
        ('{"type": "objekt"}', "a draft-07 schema: $.type: "),
        ('{"type": "object", "required": "summary"}', "a draft-07 schema: $.required: "),
        (
            '{"type": "object", "properties": {"a": {"pattern": "("}}}',
            "a draft-07 schema: $.properties.a.pattern: ",
        ),
        ('{"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema"}', "must be draft-07"),
        ('{"type": "object", "$schema": 7}', "must be draft-07"),
        ('{"type": "object", "properties": {"a": {"format": "date"}}}', "format at $.properties.a: the CLI refuses"),
        ('{"type": "object", "allOf": [{"items": {"format": "uri"}}]}', "format at $.allOf[0].items: "),
        ('{"type": "object", "items": [{"not": {"format": "uri"}}]}', "format at $.items[0].not: "),
        ('{"type": "object", "properties": {"a": {"$ref": "http://example.org/x"}}}', "$ref at $.properties.a: "),
        ('{"type": "object", "$ref": "#"}', "$ref at $: "),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deeply"),
        (json.dumps({"type": "object", "description": "x" * 130_000}), "shorten it"),
    ],
)
def test_a_schema_that_would_fail_later_is_refused_at_once(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"^the response schema ") as caught:
        ReportSchema.load(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_property_may_be_called_like_a_refused_keyword() -> None:
    schema = ReportSchema.load('\ufeff{"type": "object", "properties": {"format": {"type": "string"}, "$ref": {}}}')
    assert schema.errors({"format": 1}) == ("$.format: 1 is not of type 'string'",)


def test_a_pattern_of_the_operators_takes_no_time_over_any_report() -> None:
    text = '{"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}, "patternProperties": {"(b|b)*c": false}}'
    schema = ReportSchema.load(text)
    assert schema.errors({"a": "a" * 50_000}) == ()
    assert schema.errors({"a": "a" * 50_000 + "!"})
    assert "'aa!' does not match" in schema.errors({"a": "aa!"})[0]
    assert schema.errors({"b" * 50_000: 1}) == ()
    assert schema.errors({"bc": 1})


def test_keys_beside_the_patterns_are_additional_ones() -> None:
    text = (
        '{"type": "object", "patternProperties": {"^x-": {"type": "string"}}, "properties": {"a": {}},'
        ' "additionalProperties": false}'
    )
    schema = ReportSchema.load(text)
    assert schema.errors({"a": 1, "x-b": "c"}) == ()
    assert "is not of type" in schema.errors({"x-b": 1})[0]
    assert "Additional properties are not allowed ('b' was unexpected)" in schema.errors({"a": 1, "b": 1})[0]
    typed = ReportSchema.load(text.replace('"additionalProperties": false', '"additionalProperties": {"type": "null"}'))
    assert typed.errors({"b": None, "x-c": "d"}) == ()
    assert typed.errors({"b": 1})


@pytest.mark.parametrize("keyword", ['"pattern": "(?!x)"', '"patternProperties": {"(?=x)": {}}'])
def test_a_pattern_that_google_re2_does_not_take_is_refused_with_the_reason(keyword: str) -> None:
    with pytest.raises(ValueError, match=r"is not a 'regex' of google-re2: invalid perl operator"):
        ReportSchema.load(f'{{"type": "object", {keyword}}}')


def test_the_schema_that_ships_is_checked_here_and_not_at_every_start() -> None:
    """Its digest stands in the code: whoever changes it puts the new one there."""
    shipped = (packaged("schemas") / SCHEMA_FILE).read_text(encoding="utf-8")
    assert is_shipped(shipped)
    assert fault_of(json.loads(shipped)) == ""
    assert ReportSchema.load(shipped).shape == ReportSchema.load(f"{shipped} ").shape


def test_a_copy_of_it_that_was_edited_is_checked() -> None:
    shipped = (packaged("schemas") / SCHEMA_FILE).read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="is not a draft-07 schema"):
        ReportSchema.load(shipped.replace('"type": "object"', '"type": "objekt"'))


def test_reports_are_validated_without_the_library_as_long_as_the_schema_is_the_one_that_ships() -> None:
    code = (
        "import pathlib, sys\n"
        "from claudeops.formats.report.extraction import ReportSchema\n"
        "from claudeops.settings.files import load_schema\n"
        "schema = ReportSchema.load(load_schema(None, root=pathlib.Path('/nowhere'))[1])\n"
        "assert schema.errors({}) != ()\n"
        "assert 'jsonschema' not in sys.modules\n"
        "assert ReportSchema.load(schema.minified).errors({}) == schema.errors({})\n"
        "assert 'jsonschema' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


FULL = {
    "summary": "a",
    "events": [{"level": "info", "service": "a", "message": "b"}],
    "memories": [{"key": "a", "value": "b", "supersedes": "m1"}],
    "escalation": {"needed": True, "reason": "a", "context": "b", "failed_checks": ["c"]},
    "services_checked": [{"name": "a", "status": "down", "detail": "b"}],
}
ABSENT = object()
ODD: tuple[object, ...] = (
    ABSENT,
    None,
    True,
    0,
    -1,
    2.0,
    2.5,
    math.inf,
    "",
    "\n",
    "info",
    "x" * 300,
    [],
    [1, ""],
    [[]],
    {},
    {"a": 1},
)


def varied(value: object) -> Iterator[object]:
    """Yield a value with each of its parts, and itself, replaced by everything odd."""
    yield from ODD
    if isinstance(value, dict):
        for key, part in value.items():
            rest = {name: other for name, other in value.items() if name != key}
            yield from (rest if odd is ABSENT else {**value, key: odd} for odd in varied(part))
    if isinstance(value, list):
        yield from ([part, odd] for part in value for odd in varied(part) if odd is not ABSENT)


def test_the_schema_that_ships_finds_what_the_library_finds_in_its_words() -> None:
    library = Draft7(SCHEMA.shape)
    candidates = [FULL, *varied(FULL), dict.fromkeys(FULL, [{}, 1] * 5)]
    assert len(candidates) > 300
    for candidate in candidates:
        assert SCHEMA.errors(candidate) == library.errors(candidate)


def test_a_keyword_that_only_the_library_knows_is_not_passed_over() -> None:
    with pytest.raises(KeyError, match="pattern"):
        PlainSchema({"properties": {"a": {"items": {"pattern": "x"}}}})
