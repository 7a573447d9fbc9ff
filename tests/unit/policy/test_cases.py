"""Commands that agents sent while they looked for faults: each look runs or is refused with a way that does."""

from __future__ import annotations

import json

import pytest

from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.structs import replace
from support.policy_cases import NAMED, SCOPE, TABLES, judged

CASES = [json.loads(line) for line in (TABLES / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
LOOKS = [case for case in CASES if case["want"] == "look"]
DENIALS = [case["command"] for case in CASES if case["want"] == "deny"]
HOSTS = (*(f"10.20.0.{number}" for number in (4, 38, 100, 103, 254)), "immich.example.org")
HERE = replace(SCOPE, estate=replace(NAMED, hosts=(*NAMED.hosts, *HOSTS)))


def said(command: str, tier: int = 1) -> Verdict:
    return judged(command, tier, HERE)


@pytest.mark.parametrize("case", LOOKS, ids=lambda case: case["id"])
def test_a_look_runs_or_its_refusal_names_a_way_that_runs(case: dict[str, str]) -> None:
    verdict = said(case["command"])
    if "way" in case:
        assert (verdict.kind, case["said"] in verdict.reason) == (VerdictKind.DENY, True), verdict.reason
        verdict = said(case["way"])
    assert (verdict.kind, verdict.reason) == (VerdictKind.ALLOW, "only looks")


def test_few_of_the_looks_are_refused() -> None:
    assert (len(LOOKS), sum("way" in case for case in LOOKS)) == (59, 5)


@pytest.mark.parametrize("command", DENIALS)
def test_what_is_no_look_is_denied(command: str) -> None:
    assert said(command).kind is VerdictKind.DENY
    highest = said(command, 3)
    assert highest.kind is VerdictKind.DENY or highest.actions
