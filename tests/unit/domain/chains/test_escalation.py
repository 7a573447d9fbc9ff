"""What may start, what an action may still do, and what follows from a session's end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.actions import PastAction
from claudeops.domain.chains import escalation
from claudeops.domain.chains.escalation import EscalationRules, TierChoice
from claudeops.domain.events import EventLevel
from claudeops.domain.report.report import Escalation, Report, ServiceStatus
from claudeops.domain.sessions import Decision, DecisionReason, FailureKind, Handover, NewSession, Outcome, Trigger
from claudeops.structs import replace
from support.store_values import (
    NOW,
    PROVEN,
    TIERS,
    after,
    alarm,
    check,
    ending,
    report,
    rules,
    running,
)

USED_UP = (
    PastAction(kind="restart", service="web", at=after(hours=-1)),
    PastAction(kind="restart", service="web", at=after(hours=-2)),
    PastAction(kind="redeployment", service="web", at=after(hours=-3)),
)


def decided(
    said: Report | None,
    *,
    tier: int = 1,
    by: EscalationRules | None = None,
    ledger: Sequence[PastAction] = (),
    outcome: Outcome = Outcome.SUCCESS,
    calls_ran: int = 3,
) -> Decision:
    session = running(tier)
    end = ending(session, said, outcome=outcome, calls_ran=calls_ran)
    return escalation.decide(session=session, ending=end, rules=by or rules(), ledger=ledger, now=NOW, proof=PROVEN)


def asking(*, needed: bool = True, **changes: object) -> Report:
    said = alarm()
    return replace(said, escalation=replace(said.escalation, needed=needed, **changes))  # type: ignore[arg-type]


AGAIN = NewSession(
    tier=1, trigger=Trigger.RETRY, model="haiku", parent_session_id=7, not_before=NOW + timedelta(seconds=5)
)


def test_a_failed_look_is_tried_once_more_with_what_it_was_asked_and_a_failed_retry_is_not() -> None:
    end = ending(running(), None, outcome=Outcome.NO_RESULT)
    asked = running(prompt_text="look at web", harness="codex", model="mini", started_by="ada")

    first = escalation.decide(session=asked, ending=end, rules=rules(), ledger=(), now=NOW, proof=PROVEN)
    second = escalation.decide(
        session=running(trigger=Trigger.RETRY), ending=end, rules=rules(), ledger=(), now=NOW, proof=PROVEN
    )

    assert first.next == replace(AGAIN, prompt_text="look at web", harness="codex", model="mini", started_by="ada")
    assert second.next is None
    levels = [decision.events[0].level for decision in (first, second)]
    assert levels == [EventLevel.WARNING, EventLevel.CRITICAL]
    # Another condition: else the second would count the first one's warning up.
    assert first.events[0].fingerprint != second.events[0].fingerprint


@pytest.mark.parametrize("tier", [2, 3])
@pytest.mark.parametrize("outcome", Outcome)
def test_a_tier_that_can_change_things_is_never_repeated(outcome: Outcome, tier: int) -> None:
    assert decided(None, outcome=outcome, tier=tier).next is None


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.MAX_TURNS,
        Outcome.MAX_TOKENS,
        Outcome.BUDGET_EXCEEDED,
        Outcome.CANCELLED,
        Outcome.BLOCKED,
        Outcome.UNGATED_CALL,
        Outcome.LOST,
    ],
)
def test_what_would_fail_the_same_way_again_is_not_tried_again(outcome: Outcome) -> None:
    assert decided(None, outcome=outcome).next is None


@pytest.mark.parametrize("kind", [FailureKind.AUTH, FailureKind.BILLING])
def test_the_breakers_event_is_the_only_critical_one(kind: FailureKind) -> None:
    for tier, trigger in ((1, Trigger.RETRY), (3, Trigger.ESCALATION)):
        session = running(tier, trigger=trigger)
        end = ending(session, None, outcome=Outcome.ERROR, failure_kind=kind)
        decision = escalation.decide(session=session, ending=end, rules=rules(), ledger=(), now=NOW, proof=PROVEN)
        assert [event.level for event in decision.events] == [EventLevel.WARNING]


REASONS = {Outcome.SUCCESS: DecisionReason.NO_REPORT, Outcome.BUDGET_EXCEEDED: DecisionReason.BUDGET}

# --- decide: no report ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", [1, 2, 3])
@pytest.mark.parametrize("outcome", Outcome)
def test_session_without_a_report_is_never_healthy(outcome: Outcome, tier: int) -> None:
    decision = decided(None, outcome=outcome, tier=tier)

    assert decision.reason is REASONS.get(outcome, DecisionReason.SESSION_FAILED)
    retried = decision.next is not None
    assert not retried or decision.next == replace(AGAIN, model="haiku")
    assert [event.level for event in decision.events] == [EventLevel.WARNING if retried else EventLevel.CRITICAL]


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.SUCCESS])
def test_failed_session_is_not_healthy_whatever_it_reported(outcome: Outcome) -> None:
    decision = decided(report(check("web")), outcome=outcome)

    assert decision.reason is REASONS.get(outcome, DecisionReason.SESSION_FAILED)
    assert outcome.value in decision.events[0].message


# --- decide: escalation is needed -------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", Outcome)
def test_wish_to_escalate_counts_however_the_process_ended(outcome: Outcome) -> None:
    assert decided(alarm(), outcome=outcome, calls_ran=0).reason is DecisionReason.ESCALATED


def test_next_tier_gets_its_own_model_and_everything_that_was_found() -> None:
    said = asking(failed_checks=("web http",))

    decision = decided(said, tier=2)

    assert decision.events == ()
    assert decision.next == NewSession(
        tier=3,
        trigger=Trigger.ESCALATION,
        model="opus",
        harness="codex",
        parent_session_id=7,
        context=Handover(
            reason="web answers 502",
            findings="its upstream is gone",
            failed_checks=("web http",),
            service_status=(check("web", ServiceStatus.DOWN, "502"),),
        ),
    )


@pytest.mark.parametrize("reason", [None, "", "  \n "])
def test_missing_reason_is_replaced_by_a_sentence_that_says_so(reason: str | None) -> None:
    decision = decided(asking(reason=reason))

    assert decision.next is not None
    assert decision.next.context is not None
    assert decision.next.context.reason == escalation.NO_REASON_GIVEN


def test_missing_findings_are_the_summary() -> None:
    decision = decided(asking(context=None))

    assert decision.next is not None
    assert decision.next.context is not None
    assert decision.next.context.findings == "Looked at everything."


@pytest.mark.parametrize(
    ("tiers", "max_tier", "tier", "expected"),
    [
        pytest.param(TIERS, 3, 1, 2, id="one up"),
        pytest.param((TIERS[0], TIERS[2]), 3, 1, 3, id="a rung is missing"),
        pytest.param(tuple(reversed(TIERS)), 3, 1, 2, id="whatever their order"),
        pytest.param(TIERS, 3, 3, None, id="the last one"),
        pytest.param(TIERS, 2, 2, None, id="the last one allowed"),
        pytest.param((TIERS[0], TIERS[2]), 2, 1, None, id="the next one is not allowed"),
        pytest.param(TIERS, 1, 2, None, id="above what is allowed by now"),
    ],
)
def test_next_tier_is_the_next_higher_one_configured_and_allowed(
    tiers: tuple[TierChoice, ...], max_tier: int, tier: int, expected: int | None
) -> None:
    decision = decided(alarm(), tier=tier, by=rules(tiers=tiers, max_tier=max_tier))

    assert (decision.next.tier if decision.next else None) == expected
    assert decision.reason is (DecisionReason.ESCALATED if expected else DecisionReason.MAX_TIER)


def test_last_tier_that_asks_for_more_is_a_critical_event() -> None:
    (event,) = decided(alarm(), tier=3).events

    assert (event.level, event.service) == (EventLevel.CRITICAL, "web")
    assert event.message == "tier 3 is the last one allowed and asks for more: web answers 502"


def test_dry_run_says_what_it_would_do_and_does_it_not() -> None:
    decision = decided(alarm(), by=rules(dry_run=True))

    assert (decision.reason, decision.next) == (DecisionReason.DRY_RUN, None)
    assert [event.message for event in decision.events] == ["dry run: would escalate to tier 2: web answers 502"]


def test_limits_are_asked_in_their_order() -> None:
    everything = rules(dry_run=True, max_tier=1)

    assert decided(alarm(), by=everything, ledger=USED_UP).reason is DecisionReason.MAX_TIER
    assert decided(alarm(), by=rules(dry_run=True), ledger=USED_UP).reason is DecisionReason.DRY_RUN
    assert decided(alarm(), ledger=USED_UP).reason is DecisionReason.COOLDOWN


@pytest.mark.parametrize(
    ("said", "ledger", "by", "reason"),
    [
        pytest.param(alarm(), USED_UP, rules(), DecisionReason.COOLDOWN, id="nothing left"),
        pytest.param(alarm(), USED_UP[:2], rules(), DecisionReason.ESCALATED, id="a redeployment is left"),
        pytest.param(alarm(), USED_UP[:2], rules(max_tier=2), DecisionReason.COOLDOWN, id="left, but to no tier"),
        pytest.param(alarm("WEB "), USED_UP, rules(), DecisionReason.COOLDOWN, id="the same service in capitals"),
        pytest.param(alarm("db"), USED_UP, rules(), DecisionReason.ESCALATED, id="another service"),
        pytest.param(
            asking(failed_checks=("db: no answer",)),
            USED_UP,
            rules(),
            DecisionReason.ESCALATED,
            id="one of two is left",
        ),
        pytest.param(
            asking(failed_checks=("web: HTTP 502",)),
            USED_UP,
            rules(),
            DecisionReason.COOLDOWN,
            id="a check of the same",
        ),
        pytest.param(
            report(escalation=Escalation(needed=True)),
            USED_UP,
            rules(),
            DecisionReason.ESCALATED,
            id="no service named",
        ),
        pytest.param(alarm(), USED_UP, rules(limited=False), DecisionReason.ESCALATED, id="kinds without a limit"),
        pytest.param(
            alarm(),
            USED_UP,
            rules(tiers=(TierChoice(number=1, model="a"), TierChoice(number=2, model="b"))),
            DecisionReason.ESCALATED,
            id="tiers that may change nothing",
        ),
    ],
)
def test_escalation_stops_when_nothing_may_be_done_for_any_service(
    said: Report, ledger: Sequence[PastAction], by: EscalationRules, reason: DecisionReason
) -> None:
    decision = decided(said, ledger=ledger, by=by)

    assert decision.reason is reason
    if reason is DecisionReason.COOLDOWN:
        assert [event.level for event in decision.events] == [EventLevel.CRITICAL]


# --- decide: nobody is needed -----------------------------------------------------------------------------


def test_evidence_is_what_makes_a_session_healthy() -> None:
    assert decided(report(check("web"))) == Decision(reason=DecisionReason.HEALTHY)
    assert decided(report(check("web", ServiceStatus.DEGRADED))).reason is DecisionReason.HEALTHY


@pytest.mark.parametrize(
    ("said", "calls_ran", "missing"),
    [
        pytest.param(report(check("web")), 0, "no tool call ran", id="nothing ran"),
        pytest.param(report(), 3, "no service was checked", id="nothing was checked"),
        pytest.param(report(), 0, "no tool call ran; no service was checked", id="neither"),
        pytest.param(
            report(check("db"), check("web", ServiceStatus.DOWN)),
            3,
            "web is reported down or unreachable, yet the report does not escalate",
            id="down, and nobody is asked for",
        ),
        pytest.param(report(check("web", ServiceStatus.UNREACHABLE)), 3, "web is reported down", id="unreachable"),
    ],
)
def test_health_without_evidence_is_an_event_that_says_what_is_missing(
    said: Report, calls_ran: int, missing: str
) -> None:
    decision = decided(said, calls_ran=calls_ran)

    assert decision.reason is DecisionReason.NO_EVIDENCE
    (event,) = decision.events
    assert event.level is EventLevel.WARNING
    assert missing in event.message


# --- events -----------------------------------------------------------------------------------------------


def test_same_condition_in_other_words_has_the_same_fingerprint() -> None:
    first, second = (decided(asking(reason=words), tier=3).events[0] for words in ("web is down", "no answer from web"))
    other_service, other_tier = decided(alarm("db"), tier=3).events[0], decided(alarm(), tier=2, by=rules(max_tier=2))

    assert first.fingerprint == second.fingerprint
    assert len({first.fingerprint, other_service.fingerprint, other_tier.events[0].fingerprint}) == 3


@given(st.lists(st.text(max_size=300), max_size=20), st.text(max_size=5000), st.sampled_from(Outcome), st.booleans())
def test_any_report_gives_a_decision_with_bounded_events(
    names: list[str], reason: str, outcome: Outcome, needed: bool
) -> None:
    said = report(
        *(check(name, ServiceStatus.DOWN) for name in names),
        escalation=Escalation(needed=needed, reason=reason, failed_checks=tuple(names)),
    )

    for tier in (1, 3):
        decision = decided(said, tier=tier, outcome=outcome)

        quiet = decision.reason in {DecisionReason.HEALTHY, DecisionReason.ESCALATED}
        assert len(decision.events) == (0 if quiet else 1)
        follower = None if decision.next is None else decision.next.trigger
        if decision.reason is DecisionReason.ESCALATED:
            assert follower is Trigger.ESCALATION
        else:
            assert follower is None or (follower is Trigger.RETRY and tier == 1)
        for event in decision.events:
            assert len(event.fingerprint) < 100
            assert len(event.message) < 10_000
            assert "\n" not in event.message
