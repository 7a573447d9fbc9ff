"""What runs of a call: its one canonical form, or the reason why it has none."""

from __future__ import annotations

import shlex

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.policy.tiers import explain, parse_policy, tier_policy
from claudeops.settings.policy import fragment_texts
from support.policy_cases import DEFAULT_TEXT, SCOPE, bash, sections

FRAGMENTS = fragment_texts()
EVERYTHING = tier_policy(
    parse_policy(
        "extends = [" + ", ".join(f'"{name}"' for name in ("default", *FRAGMENTS)) + "]",
        default=DEFAULT_TEXT,
        fragments=FRAGMENTS,
    ),
    3,
)
TABLES = ("forms-1.txt", "forms-2.txt", "forms-3.txt")
CASES = [(table, heading) for table in TABLES for heading in sections(table)]


def words(text: str) -> list[str]:
    """Return the words of a text, programs without their directory."""
    return [word.removeprefix("/usr/bin/") for word in shlex.split(text)]


@pytest.mark.parametrize(("table", "heading"), CASES)
def test_a_call_runs_in_its_one_form_or_not_at_all(table: str, heading: str) -> None:
    wrong = []
    for row in sections(table)[heading]:
        given, _, form = row.partition("\t")
        found = explain(bash(given), tier=EVERYTHING, scope=SCOPE)
        if form.startswith("! "):
            fits = found.verdict.kind is not VerdictKind.ALLOW and form[2:] in found.verdict.reason
        else:
            fits = found.verdict.kind is VerdictKind.ALLOW and words(found.runs) == words(form)
        if not fits:
            wrong.append((given, form, found.runs or found.verdict.reason))
    assert wrong == []
