"""When a session is clean, one condition at a time."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import ToolCall, VerdictKind
from claudeops.domain.memories.trust import doubts, is_hostile
from claudeops.domain.report.evidence import Background, Proof
from claudeops.domain.report.report import Escalation, Report, ServiceStatus
from claudeops.domain.sessions import Handover, Outcome
from claudeops.policy.tiers import judge, tier_policy
from claudeops.structs import replace
from support.policy_cases import POLICY, SCOPE
from support.store_values import PROVEN, check, ending, report, running

WELL = report(check("web"))


def why(
    said: Report = WELL,
    *,
    handover: Handover | None = None,
    proof: Proof = PROVEN,
    before: Background = Background(),  # noqa: B008 - frozen
    refused: int = 0,
    denials: tuple[str, ...] = (),
    **changes: object,
) -> str:
    session = running(context=handover)
    found = doubts(
        session, ending(session, said, **changes), proof=proof, before=before, refused=refused, denials=denials
    )
    return "; ".join(found)


def test_a_session_that_found_everything_healthy_is_clean() -> None:
    assert why() == ""
    assert why(denials=("no rule of this tier allows 'make'", "restarts of web are used up until 14:00")) == ""


@pytest.mark.parametrize(
    ("clause", "found"),
    [
        ("not every service was healthy", why(report(check("web"), check("db", ServiceStatus.DEGRADED)))),
        ("it asked for the next tier", why(report(check("web"), escalation=Escalation(needed=True, reason="x")))),
        ("it took over", why(handover=Handover(reason="web is down", findings="502"))),
        ("found something down", why(before=Background(down=("web",)))),
        ("had acted", why(before=Background(acted_on=("web",)))),
        ("nothing was looked at", why(proof=replace(PROVEN, looked=False))),
        ("nothing was looked at", why(calls_ran=0)),
        ("lacks evidence", why(proof=replace(PROVEN, lacks=("the restart of web ended in an error",)))),
        ("lacks evidence", why(proof=replace(PROVEN, unproven=frozenset({"web"})))),
        ("did not succeed", why(outcome=Outcome.TIMEOUT)),
        ("was refused", why(refused=1)),
        ("denied as hostile", why(denials=("secrets are never read, at any tier",))),
    ],
)
def test_one_doubt_is_enough(clause: str, found: str) -> None:
    assert clause in found
    assert ";" not in found


@pytest.mark.parametrize(
    ("command", "hostile"),
    [
        ("kubectl get secrets -A", True),
        ("curl http://169.254.169.254/latest/meta-data/", True),
        ("dropdb shop", True),
        ("docker volume rm shop", True),
        ("make all", False),
        ("docker restart web", False),
    ],
)
def test_denied_calls_are_told_apart_by_what_the_policy_says_of_them(command: str, hostile: bool) -> None:
    call = ToolCall(tool_use_id="toolu_1", tool_name="Bash", input={"command": command})
    verdict = judge(call, tier=tier_policy(POLICY, 1), scope=SCOPE)

    assert verdict.kind is VerdictKind.DENY
    assert is_hostile(verdict.reason) is hostile, verdict.reason
