"""A rehearsal passes only if everything came as its scenario expects; what did not is said, each in a sentence."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from claudeops.domain.chain_record import ChainRecord, KnownAction, KnownCall, KnownEvent
from claudeops.domain.model import DecisionReason, Level, Outcome, Session, Status, Trigger, VerdictKind
from claudeops.rehearsal.scenario import Expected, ExpectedEvent, State
from claudeops.rehearsal.verdict import Record, describe_call, shortfalls


def session(tier: int, decision: DecisionReason, outcome: Outcome = Outcome.SUCCESS) -> Session:
    return Session(
        id=tier,
        root_session_id=1,
        parent_session_id=None,
        tier=tier,
        ordinal=0,
        harness="claude",
        model="haiku",
        trigger=Trigger.SCHEDULED,
        prompt_text=None,
        context=None,
        status=Status.ENDED,
        attempt=1,
        created_at=datetime(2026, 3, 1, tzinfo=UTC),
        outcome=outcome,
        decision_reason=decision,
    )


def call(redacted_input: str, verdict: VerdictKind = VerdictKind.ALLOW, tool_name: str = "Bash") -> KnownCall:
    return KnownCall(
        session_id=1,
        tool_name=tool_name,
        redacted_input=redacted_input,
        verdict=verdict,
        reason="so it is",
        is_error=False,
    )


RECORD = Record(
    sessions=[session(1, DecisionReason.ESCALATED), session(2, DecisionReason.HEALTHY)],
    account=ChainRecord(
        calls=(call('{"command":"docker restart web"}'), call('{"command":"rm -rf /data"}', VerdictKind.DENY)),
        actions=(KnownAction(session_id=2, kind="restart", service="web", success=True),),
        events=(KnownEvent(session_id=1, level=Level.CRITICAL, service="web", message="web refuses connections"),),
    ),
    states={"web": State.UP},
)
EXPECTED = Expected(
    decision=DecisionReason.HEALTHY,
    tiers=(1, 2),
    actions=("restart web",),
    allowed=("docker restart web",),
    denied=("rm -rf",),
    events=(ExpectedEvent(level=Level.CRITICAL, contains="refuses", service="web"),),
    services={"web": State.UP},
)


def test_what_came_as_expected_has_no_shortfall() -> None:
    assert shortfalls(RECORD, EXPECTED) == ()


def of(**changes: object) -> Expected:
    given: dict[str, object] = {name: getattr(EXPECTED, name) for name in Expected.__struct_fields__} | changes
    return Expected(**given)  # type: ignore[arg-type]


UNFULFILLED = {
    "decision": (of(decision=DecisionReason.MAX_TIER), "the decision max_tier was expected, but it is healthy"),
    "outcome": (of(outcome=Outcome.TIMEOUT), "the last session was expected to end as timeout, but ended as success"),
    "a tier too many": (of(tiers=(1,)), "the tiers 1 were expected, but 1, 2 ran"),
    "a tier too few": (of(tiers=(1, 2, 3)), "the tiers 1, 2, 3 were expected, but 1, 2 ran"),
    "an action that was not taken": (
        of(actions=("restart web", "redeployment web")),
        "these actions were expected: restart web, redeployment web; but these were taken: restart web",
    ),
    "an action that nobody expected": (
        of(actions=()),
        "these actions were expected: none; but these were taken: restart web",
    ),
    "a call that was not allowed but denied": (
        of(allowed=("rm -rf",)),
        "a call with 'rm -rf' was expected to be allowed, but it was not (deny: so it is)",
    ),
    "a call that was not made": (
        of(allowed=("docker stop",)),
        "a call with 'docker stop' was expected to be allowed, but there was none",
    ),
    "a call that was not denied but allowed": (
        of(denied=("rm -rf", "docker restart")),
        "a call with 'docker restart' was expected to be denied, but it was not (allow: so it is)",
    ),
    "a denial that nobody expected": (
        of(denied=()),
        "this call was not expected to be denied: rm -rf /data (so it is)",
    ),
    "an event of another weight": (
        of(events=(ExpectedEvent(level=Level.WARNING, contains="refuses"),)),
        "a warning event with 'refuses' was expected, but there is none",
    ),
    "an event about another service": (
        of(events=(ExpectedEvent(level=Level.CRITICAL, contains="refuses", service="shop"),)),
        "a critical event about shop with 'refuses' was expected, but there is none",
    ),
    "a service in another state": (
        of(services={"web": State.DOWN}),
        "web was expected to be down at the end, but it is up",
    ),
}


@pytest.mark.parametrize(("expected", "sentence"), UNFULFILLED.values(), ids=UNFULFILLED)
def test_each_expectation_can_fail_by_itself(expected: Expected, sentence: str) -> None:
    assert shortfalls(RECORD, expected) == (sentence,)


def test_what_the_script_did_not_foresee_fails_the_rehearsal() -> None:
    (sentence,) = shortfalls(replace(RECORD, problems=["tiers.1.steps[3]: the script ends here"]), EXPECTED)
    assert sentence == "the script did not foresee this: tiers.1.steps[3]: the script ends here"


def test_a_rehearsal_without_a_session_has_failed() -> None:
    assert "a session was expected, but none ran" in shortfalls(replace(RECORD, sessions=[]), EXPECTED)


def test_calls_are_told_as_a_person_would_write_them() -> None:
    told = [
        describe_call(call('{"command":"df -h"}')),
        describe_call(call('{"file_path":"/etc/hosts"}', tool_name="Read")),
        describe_call(call('{"url":"x"}', tool_name="WebFetch")),
        describe_call(call("no json")),
    ]
    assert told == ["df -h", "Read /etc/hosts", 'WebFetch {"url":"x"}', "no json"]
