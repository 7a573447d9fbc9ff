"""What may start, and what an action may still do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest

from claudeops.domain.actions import Action, ActionLimit, PastAction
from claudeops.domain.chains import escalation
from claudeops.domain.chains.cooldown import over_limit
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.events import EventLevel
from claudeops.domain.sessions import DecisionReason, Outcome, Suppressed
from support.store_values import LIMITS, NOW, PROVEN, after, alarm, ending, restart, rules, running

USED_UP = (
    PastAction(kind="restart", service="web", at=after(hours=-1)),
    PastAction(kind="restart", service="web", at=after(hours=-2)),
    PastAction(kind="redeployment", service="web", at=after(hours=-3)),
)


# --- admit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "by", "unhealthy", "reason"),
    [
        pytest.param(1, rules(), (), None, id="looking"),
        pytest.param(1, rules(dry_run=True), ("web",), None, id="looking in dry run"),
        pytest.param(2, rules(), ("web", "db"), None, id="something may be done for one"),
        pytest.param(2, rules(), (), None, id="nothing is known to be unwell"),
        pytest.param(3, rules(max_tier=2), (), DecisionReason.MAX_TIER, id="above the highest"),
        pytest.param(3, rules(max_tier=2, dry_run=True), (), DecisionReason.MAX_TIER, id="above, in dry run"),
        pytest.param(2, rules(dry_run=True), (), DecisionReason.DRY_RUN, id="a direct start in dry run"),
        pytest.param(2, rules(), ("web",), DecisionReason.COOLDOWN, id="nothing may be done"),
    ],
)
def test_start_is_admitted_or_suppressed_with_a_reason(
    tier: int, by: EscalationRules, unhealthy: Sequence[str], reason: DecisionReason | None
) -> None:
    answer = escalation.admit(tier=tier, rules=by, ledger=USED_UP, unhealthy_services=unhealthy, now=NOW)

    assert (answer.reason if answer else None) == reason
    if answer is not None:
        assert answer.message.startswith(f"a session of tier {tier} was not started: ")


def test_suppressed_start_and_stopped_escalation_are_two_conditions() -> None:
    suppressed = Suppressed(reason=DecisionReason.DRY_RUN, message="no.")

    event = escalation.suppression_event(suppressed, tier=1, services=("web",))
    session = running(1)
    stopped = escalation.decide(
        session=session, ending=ending(session, alarm()), rules=rules(dry_run=True), ledger=(), now=NOW, proof=PROVEN
    ).events[0]

    assert event.level is EventLevel.WARNING
    assert event.fingerprint != stopped.fingerprint


# --- over_limit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "refused"),
    [
        pytest.param(after(), True, id="both within the window"),
        pytest.param(after(hours=1.99), True, id="the older one almost out"),
        pytest.param(after(hours=2), False, id="the older one out"),
        pytest.param(after(hours=-9), True, id="the clock was set back"),
    ],
)
def test_window_slides(now: datetime, refused: bool) -> None:
    assert bool(over_limit(USED_UP, restart(), LIMITS, now)) is refused


def test_refusal_says_how_many_and_until_when() -> None:
    assert over_limit(USED_UP, restart(), LIMITS, NOW) == (
        "restart of web refused: 2 of 2 allowed within 4 h are used, "
        "the next one is possible after 2026-03-01 14:00 UTC."
    )


def test_refusal_names_the_time_at_which_enough_have_left() -> None:
    three = tuple(PastAction(kind="restart", service="web", at=after(hours=-hours)) for hours in (1, 2, 3))

    assert "after 2026-03-01 14:00 UTC" in (over_limit(three, restart(), LIMITS, NOW) or "")


def test_limit_of_none_refuses_the_first_one() -> None:
    none = {"restart": ActionLimit(count=0, window_seconds=3600)}

    assert over_limit((), restart(), none, NOW) == ("restart of web refused: 0 of 0 allowed within 1 h are used.")


@pytest.mark.parametrize(
    "action", [Action(kind="reboot", service="web"), Action(kind="restart", service="db")], ids=["kind", "service"]
)
def test_kinds_and_services_are_counted_apart(action: Action) -> None:
    assert over_limit(USED_UP, action, LIMITS, NOW) is None


def test_session_that_was_stopped_for_a_pause_says_so_and_is_not_tried_again() -> None:
    session = running(1)
    stopped = ending(session, outcome=Outcome.CANCELLED, stopped_for=DecisionReason.PAUSED)

    decision = escalation.decide(session=session, ending=stopped, rules=rules(), ledger=(), now=NOW, proof=PROVEN)

    assert (decision.reason, decision.next) == (DecisionReason.PAUSED, None)
    assert [event.level for event in decision.events] == [EventLevel.WARNING]


def test_wish_of_a_session_that_was_stopped_for_a_pause_is_queued() -> None:
    session = running(1)
    stopped = ending(session, alarm(), outcome=Outcome.CANCELLED, stopped_for=DecisionReason.PAUSED)

    decision = escalation.decide(session=session, ending=stopped, rules=rules(), ledger=(), now=NOW, proof=PROVEN)

    assert decision.reason is DecisionReason.ESCALATED
