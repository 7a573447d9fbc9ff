"""JSON within prose."""

from __future__ import annotations

import json

import pytest

from claudeops.domain.report.report import ExtractionMethod
from claudeops.formats.report.extraction import objects_in
from support.reports import HEALTHY, found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("no braces", []),
        ("{}", []),
        ('{"a": 1}', [{"a": 1}]),
        ('x {"a": {"b": 2}} y {"c": "}{"} z', [{"a": {"b": 2}}, {"c": "}{"}]),
        ('{"a": NaN} {"a": 1}', [{"a": 1}]),
        ('{ "a" : "\\"{" }', [{"a": '"{'}]),
        ('{"a": {"b": 1}', [{"b": 1}]),
    ],
)
def test_objects_are_found_in_prose(text: str, expected: list[object]) -> None:
    assert list(objects_in(text)) == expected


@pytest.mark.parametrize(
    "hostile",
    [
        "{" * 1_000_000,
        '{"' * 500_000,
        '{"a":' * 200_000,
        '{"a":"' + '{"a' * 300_000,
        '{"' + " " * 1_000_000,
        "{ " * 500_000,
        '{"a":1},' * 100_000 + '{"',
    ],
    ids=["braces", "openings", "nesting", "unclosed string", "spaces", "braces and spaces", "many"],
)
def test_hostile_text_is_searched_in_bounded_work(hostile: str) -> None:
    assert found(main_texts=[hostile, hostile + "x"], result_text=hostile + "y").report is None


def test_a_report_at_the_end_of_a_very_long_text_is_found() -> None:
    text = 'log line {"a": broken}\n' * 100_000 + json.dumps(HEALTHY)
    assert found(main_texts=[text]).method is ExtractionMethod.SALVAGED
