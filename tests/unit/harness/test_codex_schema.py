"""The strict form of a schema says the same, as far as strictness can."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claudeops.formats.report.extraction import ReportSchema
from claudeops.harness.codex_schema import strict_schema, without_nulls
from claudeops.settings.files import packaged
from support.estate import report

SHIPPED = (packaged("schemas") / "agent-response.json").read_text(encoding="utf-8")


def parts(schema: Any) -> list[dict[str, Any]]:
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    inner += [schema["items"]] if "items" in schema else []
    return [schema, *(found for part in inner for found in parts(part))]


def test_shipped_schema_has_a_strict_form() -> None:
    strict = json.loads(strict_schema(SHIPPED) or "")
    objects = [part for part in parts(strict) if part.get("type") == "object"]
    assert len(objects) == 5
    assert all(part["additionalProperties"] is False for part in objects)
    assert all(part["required"] == list(part["properties"]) for part in objects)
    assert all(part.keys() & {"type", "anyOf"} for part in parts(strict))
    assert not any("minLength" in part or "$schema" in part for part in parts(strict))
    assert set(strict["properties"]) == set(json.loads(SHIPPED)["properties"])


def test_report_in_the_strict_form_is_a_report() -> None:
    strict = ReportSchema.load(strict_schema(SHIPPED) or "")
    document: dict[str, Any] = report()
    document["events"] = [{"level": "info", "message": "m", "service": None}]
    document["memories"] = []
    document["escalation"] |= {"reason": None, "context": None, "failed_checks": []}
    assert strict.errors(document) == ()
    assert strict.errors(report()) != ()
    assert ReportSchema.load(SHIPPED).errors(without_nulls(document)) == ()


INEXPRESSIBLE = {
    "object of anything": {"type": "object"},
    "map": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
    "part without a type": {"type": "object", "properties": {"a": {}}},
    "choice without a type": {"type": "object", "properties": {"a": {"enum": ["a", "b"]}}},
    "part that is true": {"type": "object", "properties": {"a": True}},
    "list of anything": {"type": "array"},
    "all of": {"type": "object", "properties": {"a": {"allOf": [{"type": "string"}]}}},
    "condition": {"type": "object", "properties": {"a": {"type": "string", "if": {}}}},
}


@pytest.mark.parametrize("schema", INEXPRESSIBLE.values(), ids=INEXPRESSIBLE)
def test_schema_that_strictness_cannot_say_has_no_strict_form(schema: dict[str, Any]) -> None:
    assert strict_schema(json.dumps(schema)) is None


def test_what_may_be_left_out_may_be_null() -> None:
    kinds = {
        "text": {"type": "string"},
        "either": {"type": ["string", "null"]},
        "level": {"type": "string", "enum": ["a", "b"]},
        "list": {"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "integer"}]}},
        "needed": {"type": "string"},
    }
    text = json.dumps({"type": "object", "required": ["needed"], "properties": kinds})
    strict = json.loads(strict_schema(text) or "")["properties"]
    null = {"type": "null"}
    assert strict == {
        "text": {"anyOf": [{"type": "string"}, null]},
        "either": {"type": ["string", "null"]},
        "level": {"anyOf": [{"type": "string", "enum": ["a", "b"]}, null]},
        "list": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
        "needed": {"type": "string"},
    }


def test_nulls_go_at_every_depth_and_nothing_else_does() -> None:
    value = {"a": None, "b": [{"c": None, "d": 0}, None, ""], "e": False}
    assert without_nulls(value) == {"b": [{"d": 0}, None, ""], "e": False}
