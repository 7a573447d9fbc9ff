"""A model that refuses: a kind of failure of its own, never asked again, and the next tier's model is asked instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claudeops.domain.chains import escalation
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.chains.outcome import ProcessExit, StopCause
from claudeops.domain.events import EventLevel
from claudeops.domain.holds import served, when_ended
from claudeops.domain.report.report import Report, ServiceStatus
from claudeops.domain.sessions import Decision, DecisionReason, ErrorCategory, FailureKind, Handover, Outcome, Trigger
from claudeops.formats.stream import Transcript
from claudeops.structs import replace
from support.store_values import NOW, PROVEN, alarm, check, ending, report, rules, running
from support.streams import DATA, called, failed, judged, read, result, said, transcript_of

REFUSED = {"type": "system", "subtype": "model_refusal_no_fallback", "original_model": "haiku"}
WORDS = "API Error: Haiku's safeguards flagged this message."


def fallback(**fields: object) -> dict[str, Any]:
    models = {"original_model": "haiku", "fallback_model": "sonnet"}
    return {"type": "system", "subtype": "model_refusal_fallback", "trigger": "refusal", **models, **fields}


def stopping(reason: str, text: str = "x1") -> dict[str, Any]:
    frame = said(text)
    frame["message"]["stop_reason"] = reason
    return frame


def kind(transcript: Transcript, *, has_report: bool = False) -> tuple[Outcome, FailureKind | None]:
    judgement = judged(transcript, has_report=has_report)
    return judgement.outcome, judgement.failure_kind


REFUSAL = (Outcome.ERROR, FailureKind.REFUSAL)


def test_a_refusal_as_the_cli_prints_it() -> None:
    case = json.loads((DATA / "streams" / "model-refusal.json").read_text(encoding="utf-8"))
    judgement = judged(read(*case["lines"]).transcript, ProcessExit(code=case["rc"]))

    assert (judgement.outcome, judgement.failure_kind) == REFUSAL
    assert judgement.category is ErrorCategory.API
    assert judgement.error is not None
    assert "safeguards flagged this message" in judgement.error


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([REFUSED, failed(result="x1")], id="by the system line alone"),
        pytest.param([said(WORDS, error="refusal"), failed(result="x1")], id="by the label alone"),
        pytest.param([failed(result="x1", stop_reason="refusal")], id="by the result's stop reason"),
        pytest.param([failed(result="x1", terminal_reason="refusal")], id="by its terminal reason"),
        pytest.param([stopping("refusal"), failed(result="x1")], id="by the message's stop reason"),
        pytest.param([failed(result=WORDS)], id="by words alone"),
        pytest.param([failed(result="This appears to violate our Usage Policy.")], id="by words of older versions"),
        pytest.param([called("a"), REFUSED, failed(result="x1")], id="after it had looked"),
        pytest.param([result(result="I cannot help.", stop_reason="refusal")], id="as an answer that is no error"),
        pytest.param([stopping("refusal"), result(result="")], id="likewise, without words"),
        pytest.param([REFUSED, said("API Error: x1", error="unknown"), failed(result="x1")], id="and another label"),
    ],
)
def test_a_refusal_is_known_by_any_of_its_signs(lines: list[dict[str, Any]]) -> None:
    assert kind(transcript_of(*lines)) == REFUSAL


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            [REFUSED, said("sorry", error="refusal"), stopping("end_turn", "Well."), result(result="Well.")],
            (Outcome.SUCCESS, None),
            id="it went on",
        ),
        pytest.param([REFUSED, fallback(), result(result="Well.")], (Outcome.SUCCESS, None), id="another answered"),
        pytest.param(
            [REFUSED | {"parent_tool_use_id": "t"}, result(result="Well.")], (Outcome.SUCCESS, None), id="a subagent's"
        ),
        pytest.param(
            [failed(result="connection refused")], (Outcome.ERROR, FailureKind.OTHER), id="a connection that is refused"
        ),
        pytest.param(
            [REFUSED, failed(result="x1", api_error_status=429)],
            (Outcome.ERROR, FailureKind.RATE_LIMIT),
            id="a limit of the API says what to do first",
        ),
    ],
)
def test_what_is_no_refusal(lines: list[dict[str, Any]], expected: tuple[Outcome, FailureKind | None]) -> None:
    assert kind(transcript_of(*lines)) == expected


def test_a_report_that_came_all_the_same_is_a_success() -> None:
    transcript = transcript_of(stopping("refusal"), result(result="x1", structured_output={"a": 1}))
    assert kind(transcript, has_report=True) == (Outcome.SUCCESS, None)


@pytest.mark.parametrize(
    ("frame", "warning"),
    [
        (fallback(), "model_refusal_fallback: haiku refused, sonnet answered"),
        (fallback(api_refusal_category="cyber"), "model_refusal_fallback: haiku refused (cyber), sonnet answered"),
        (fallback(fallback_model=None), "model_refusal_fallback: haiku refused, another model answered"),
        (fallback(original_model=7), "model_refusal_fallback: the model refused, sonnet answered"),
    ],
)
def test_a_fallback_is_a_warning_with_the_model_that_answered(frame: dict[str, Any], warning: str) -> None:
    assert transcript_of(frame, result(result="Well.")).warnings == (warning,)


def test_a_fallback_of_a_subagent_is_not_the_sessions() -> None:
    assert transcript_of(REFUSED, fallback(scope="local"), failed(result="x1")).refused


# --- what follows -------------------------------------------------------------------------------------------


def decided(
    tier: int = 1,
    *,
    by: EscalationRules | None = None,
    said: Report | None = None,
    outcome: Outcome = Outcome.ERROR,
    chain_usd: float = 0.0,
    **of_session: object,
) -> Decision:
    session = running(tier, **of_session)
    end = ending(session, said, outcome=outcome, failure_kind=FailureKind.REFUSAL, error=WORDS, calls_ran=0)
    return escalation.decide(
        session=session, ending=end, rules=by or rules(), ledger=(), now=NOW, proof=PROVEN, chain_usd=chain_usd
    )


@pytest.mark.parametrize(("tier", "model"), [(1, "sonnet"), (2, "opus")])
def test_the_next_tiers_model_is_asked(tier: int, model: str) -> None:
    decision = decided(tier)

    assert (decision.reason, decision.events) == (DecisionReason.ESCALATED, ())
    assert decision.next is not None
    assert (decision.next.tier, decision.next.model, decision.next.trigger) == (tier + 1, model, Trigger.ESCALATION)
    assert decision.next.context is not None
    assert decision.next.context.reason.startswith("the model haiku of tier ")
    assert "safeguards flagged" in decision.next.context.reason


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.NO_RESULT, Outcome.TIMEOUT])
def test_the_same_words_are_not_sent_to_the_same_model_again(outcome: Outcome) -> None:
    one_tier = rules(max_tier=1)
    decision = decided(by=one_tier, outcome=outcome)
    assert (decision.reason, decision.next) == (DecisionReason.MAX_TIER, None)
    (event,) = decision.events
    assert event.level is EventLevel.CRITICAL
    assert "refused" in event.message


def test_the_next_tier_gets_what_the_refusing_one_was_given() -> None:
    given = Handover(
        reason="an alert about shop",
        findings="Incident 1",
        failed_checks=("Down",),
        service_status=(check("shop", ServiceStatus.DOWN),),
    )
    decision = decided(context=given, trigger=Trigger.ALERT)
    assert decision.next is not None
    assert decision.next.context is not None
    told = decision.next.context
    assert (told.findings, told.failed_checks, told.service_status) == ("Incident 1", ("Down",), given.service_status)


def test_the_limits_of_every_escalation_hold() -> None:
    assert decided(by=rules(dry_run=True)).reason is DecisionReason.DRY_RUN
    assert decided(3).reason is DecisionReason.MAX_TIER
    assert decided(by=rules(dry_run=True)).next is None


def test_a_report_that_asks_for_the_next_tier_speaks_for_itself() -> None:
    decision = decided(said=alarm())
    assert decision.next is not None
    assert decision.next.context is not None
    assert decision.next.context.reason == "web answers 502"


def test_a_report_that_calls_all_healthy_before_the_refusal_is_not_believed() -> None:
    assert decided(said=report(check("web"))).reason is DecisionReason.ESCALATED


def test_what_an_operator_stopped_goes_to_no_other_model() -> None:
    transcript = transcript_of(REFUSED)
    judgement = judged(transcript, ProcessExit(code=0, stop=StopCause.CANCELLED))
    assert decided(outcome=judgement.outcome).next is None
    session = running()
    end = replace(
        ending(session, None, outcome=Outcome.CANCELLED, failure_kind=FailureKind.REFUSAL),
        stopped_for=DecisionReason.PAUSED,
    )
    decision = escalation.decide(session=session, ending=end, rules=rules(), ledger=(), now=NOW, proof=PROVEN)
    assert (decision.reason, decision.next) == (DecisionReason.PAUSED, None)


def test_a_refusal_parks_nothing_and_opens_no_breaker() -> None:
    end = ending(running(), None, outcome=Outcome.ERROR, failure_kind=FailureKind.REFUSAL)
    assert not when_ended((), end, NOW)
    assert served(end)  # by an answer, as far as the model API goes
