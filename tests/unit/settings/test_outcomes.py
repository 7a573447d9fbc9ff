"""What an operator's variables lead to does not change by accident: values, sentences of faults, warnings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

import pytest

from support.settings_outcomes import RECORDING, furnish, outcome
from support.settings_world import World, make_world

CASES = json.loads(RECORDING.read_text(encoding="utf-8"))


def about(case: Mapping[str, Mapping[str, object]]) -> str:
    return next(iter(case["given"]), "nothing")


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> World:
    return furnish(make_world(Path(tmp_path_factory.mktemp("world")).resolve()))


@pytest.mark.parametrize("cases", [pytest.param(list(cases), id=name) for name, cases in groupby(CASES, key=about)])
def test_variables_lead_to_what_was_recorded(cases: list[dict[str, dict[str, str]]], furnished: World) -> None:
    for case in cases:
        given = case["given"]
        assert {"given": given, **outcome(furnished, given)} == case
