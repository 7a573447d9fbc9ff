"""What runs is the judge's own form: judged again, it is allowed again, and runs as the same text."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.policy.tiers import PolicyJudgement, explain, tier_policy
from support.policy_cases import POLICY, SCOPE, bash, rows

COMMAND = {"tiers.txt": 1, "actions.txt": 1, "environments.txt": 1, "instead.txt": 2}
"""Where the command stands in a row of each table; elsewhere it is the first of the row."""

TABLES = (*COMMAND, "harmless.txt", "forms-1.txt", "forms-2.txt", "forms-3.txt")
HIGHEST = tier_policy(POLICY, 3)


def said(command: str) -> PolicyJudgement:
    return explain(bash(command), tier=HIGHEST, scope=SCOPE)


def allowed(table: str) -> dict[str, PolicyJudgement]:
    """Return the commands of a table that are allowed; what the daemon runs as a look of its own has no such text."""
    commands = [row.split("\t")[COMMAND.get(table, 0)] for row in rows(table)]
    found = {command: said(command) for command in commands}
    return {
        command: each
        for command, each in found.items()
        if each.verdict.kind is VerdictKind.ALLOW and not each.verdict.looks_run
    }


@pytest.mark.parametrize("table", TABLES)
def test_what_runs_is_judged_to_be_itself(table: str) -> None:
    judged_once = allowed(table)
    assert len(judged_once) > 20
    wrong = {}
    for command, once in judged_once.items():
        again = said(once.runs)
        if (again.verdict.kind, again.verdict.actions, again.runs) != (
            once.verdict.kind,
            once.verdict.actions,
            once.runs,
        ):
            wrong[command] = (once.runs, again.runs or again.verdict.reason)
    assert wrong == {}


@pytest.mark.parametrize("table", TABLES)
def test_what_runs_is_literal(table: str) -> None:
    """Outside of single quotes there are no wildcards, tildes, braces of words, backslashes and variables but ours."""
    for command, found in allowed(table).items():
        bare = (
            "".join(found.runs.replace("'\\''", "").split("'")[::2])
            .replace('"${text_', "")
            .replace('"$(', "")
            .replace('"$?"', "")
        )
        assert not set("*?[]~\\`$") & set(bare), (command, bare)
