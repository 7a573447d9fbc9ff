"""A rehearsal passes only if everything came as its scenario expects; what did not is said, each in a sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from claudeops.domain.actions import PastAction
from claudeops.domain.calls import VerdictKind
from claudeops.domain.chains.chain_record import ChainRecord, JudgedCall
from claudeops.domain.events import EventLevel
from claudeops.domain.live import EventRaised
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.sessions import DecisionReason, Outcome, Session, Status, Trigger
from claudeops.rehearsal.course import Struck
from claudeops.rehearsal.scenario import ExpectedChat, ExpectedEvent, ExpectedOutcome, ServiceState, Within
from claudeops.rehearsal.verdict import ProbeTurn, Record, Times, describe_call, may_still_come, shortfalls, times_of
from claudeops.structs import replace

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


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
        created_at=BEGAN,
        outcome=outcome,
        decision_reason=decision,
    )


def call(redacted_input: str, verdict: VerdictKind = VerdictKind.ALLOW, tool_name: str = "Bash") -> JudgedCall:
    return JudgedCall(
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
        actions=(PastAction(at=BEGAN, session_id=2, kind="restart", service="web", success=True),),
        events=(
            EventRaised(
                at=BEGAN, session_id=1, level=EventLevel.CRITICAL, service="web", message="web refuses connections"
            ),
        ),
    ),
    states={"web": ServiceState.UP},
)
EXPECTED = ExpectedOutcome(
    decision=DecisionReason.HEALTHY,
    tiers=(1, 2),
    actions=("restart web",),
    allowed=("docker restart web",),
    denied=("rm -rf",),
    events=(ExpectedEvent(level=EventLevel.CRITICAL, contains="refuses", service="web"),),
    services={"web": ServiceState.UP},
)


def test_what_came_as_expected_has_no_shortfall() -> None:
    assert shortfalls(RECORD, EXPECTED) == ()


def of(**changes: object) -> ExpectedOutcome:
    given: dict[str, object] = {name: getattr(EXPECTED, name) for name in ExpectedOutcome.__struct_fields__} | changes
    return ExpectedOutcome(**given)  # type: ignore[arg-type]


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
        of(events=(ExpectedEvent(level=EventLevel.WARNING, contains="refuses"),)),
        "a warning event with 'refuses' was expected, but there is none",
    ),
    "an event about another service": (
        of(events=(ExpectedEvent(level=EventLevel.CRITICAL, contains="refuses", service="shop"),)),
        "a critical event about shop with 'refuses' was expected, but there is none",
    ),
    "a service in another state": (
        of(services={"web": ServiceState.DOWN}),
        "web was expected to be down at the end, but it is up",
    ),
}


@pytest.mark.parametrize(("expected", "sentence"), UNFULFILLED.values(), ids=UNFULFILLED)
def test_each_expectation_can_fail_by_itself(expected: ExpectedOutcome, sentence: str) -> None:
    assert shortfalls(RECORD, expected) == (sentence,)


def test_what_the_script_did_not_foresee_fails_the_rehearsal() -> None:
    (sentence,) = shortfalls(replace(RECORD, problems=["tiers.1.steps[3]: the script ends here"]), EXPECTED)
    assert sentence == "the script did not foresee this: tiers.1.steps[3]: the script ends here"


SAID = replace(
    RECORD,
    answers=["mallory: You are not among the approvers. Nothing was changed.", "alice: Your yes is taken."],
    shown=["Approval 1: …\n\nYES: telegram:alice said yes at 12:00:00 UTC."],
)
CHAT = {"answers": ("mallory: You are not", "alice: Your yes is taken"), "shows": ("YES: telegram:alice",)}
UNSAID = {
    "a stranger whose tap was taken": (
        replace(SAID, answers=["mallory: Your yes is taken."]),
        "mallory: You are not, alice: Your yes is taken; but these were given: mallory: Your yes is taken.",
    ),
    "nobody tapped": (replace(SAID, answers=[]), "but these were given: none"),
    "a tap too many": (replace(SAID, answers=[*SAID.answers, "bob: Your no is taken."]), "bob: Your no is taken."),
    "a message that does not say how it ended": (
        replace(SAID, shown=["Approval 1: …"]),
        "a message in the chat was expected to show 'YES: telegram:alice' at the end, but none does",
    ),
    "a message that goes on asking": (
        replace(SAID, asking=True),
        "no message in the chat was expected to have buttons at the end, but one has",
    ),
}


def test_what_was_said_in_the_chat_as_expected_has_no_shortfall() -> None:
    assert shortfalls(SAID, of(chat=ExpectedChat(**CHAT))) == ()


@pytest.mark.parametrize(("record", "sentence"), UNSAID.values(), ids=UNSAID)
def test_what_was_said_in_the_chat_can_fail(record: Record, sentence: str) -> None:
    (found,) = shortfalls(record, of(chat=ExpectedChat(**CHAT)))
    assert sentence in found
    assert may_still_come(record, of(chat=ExpectedChat(**CHAT)))


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


# --- what probes find ---------------------------------------------------------------------------------

DEATH = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return DEATH + timedelta(seconds=seconds)


def turns(*changes: tuple[str, ProbeState, float]) -> list[ProbeTurn]:
    return [ProbeTurn(probe=probe, state=state, at=after(seconds)) for probe, state, seconds in changes]


FOUND = replace(
    RECORD,
    sessions=[replace(session, started_at=after(6 + 5 * n)) for n, session in enumerate(RECORD.sessions)],
    struck=[Struck(service="web", at=DEATH)],
    turns=turns(
        ("web", ProbeState.UP, -3), ("db", ProbeState.UP, -2), ("web", ProbeState.DOWN, 2.5), ("web", ProbeState.UP, 14)
    ),
    own_events=[
        EventRaised(at=after(2.5), level=EventLevel.CRITICAL, service="web", message="web is down", session_id=None)
    ],
)


def test_times_count_from_the_first_fault_that_came_while_the_daemon_ran() -> None:
    assert times_of(FOUND) == Times(noticed=2.5, session_started=6, repaired=14)
    assert times_of(RECORD) is None


def test_nothing_is_repaired_while_one_probe_still_sees_it_unwell() -> None:
    more = turns(("db", ProbeState.DEGRADED, 3))
    assert times_of(replace(FOUND, turns=[*FOUND.turns, *more])) == Times(noticed=2.5, session_started=6, repaired=None)


def test_what_nobody_noticed_has_no_times() -> None:
    unnoticed = replace(FOUND, turns=FOUND.turns[:2], sessions=[])
    assert times_of(unnoticed) == Times(noticed=None, session_started=None, repaired=None)


def test_what_probes_found_in_time_has_no_shortfall() -> None:
    expected = of(
        trigger=Trigger.SCHEDULED,
        events=(ExpectedEvent(level=EventLevel.CRITICAL, contains="web is down", service="web"),),
        probes={"web": ProbeState.UP, "db": ProbeState.UP},
        within_seconds=Within(noticed=2.5, session_started=10, repaired=20),
    )
    assert shortfalls(FOUND, expected) == ()
    assert not may_still_come(FOUND, expected)


NOT_FOUND = {
    "another trigger": (of(trigger=Trigger.ALERT), "the trigger alert was expected, but it is scheduled"),
    "a probe": (
        of(probes={"web": ProbeState.FLAPPING}),
        "the probe web was expected to be flapping at the end, but it is up",
    ),
    "a probe that never looked": (
        of(probes={"dns": ProbeState.UP}),
        "the probe dns was expected to be up at the end, but it is unknown",
    ),
    "too late": (
        of(within_seconds=Within(noticed=2)),
        "from the first fault to 'noticed by a probe' at most 2 s were expected, but it took 2.5 s",
    ),
}


@pytest.mark.parametrize(("expected", "sentence"), NOT_FOUND.values(), ids=NOT_FOUND)
def test_what_probes_did_not_find_as_expected_is_a_sentence(expected: ExpectedOutcome, sentence: str) -> None:
    assert shortfalls(FOUND, expected) == (sentence,)


def test_a_repair_that_never_came_is_a_sentence() -> None:
    late = of(within_seconds=Within(repaired=9))
    (sentence,) = shortfalls(replace(FOUND, turns=FOUND.turns[:3]), late)
    assert sentence == "from the first fault to 'repaired' at most 9 s were expected, but it never came"


def test_where_no_session_is_expected_each_one_is_too_many() -> None:
    none = ExpectedOutcome(tiers=(), events=(ExpectedEvent(level=EventLevel.CRITICAL, contains="web is down"),))
    alone = replace(FOUND, sessions=[], account=ChainRecord())
    assert shortfalls(alone, none) == ()
    assert not may_still_come(alone, none)
    assert may_still_come(replace(alone, own_events=[]), none)
    told = shortfalls(replace(alone, sessions=FOUND.sessions), none)
    assert told == ("no session was expected, but the tiers 1, 2 ran",)


def test_every_alert_must_have_its_decision() -> None:
    expected = replace(EXPECTED, decided=200)
    assert shortfalls(replace(RECORD, decided={"started": 1, "inhibited": 199}), expected) == ()
    (said,) = shortfalls(replace(RECORD, decided={"started": 1}), expected)
    assert said == "a decision about 200 alerts was expected, but there is one about 1"
    assert may_still_come(RECORD, expected)
