"""Whether what was done still holds: what probes and reports say of it, and what follows from a relapse."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import pytest

from claudeops.domain.actions import NO_RESULT_SEEN, PastAction, Recheck
from claudeops.domain.chains import escalation
from claudeops.domain.chains.follow_up import (
    ProbeStanding,
    by_probes,
    by_report,
    fell_back,
    follow_up_of,
    relapse_handover,
    relapses,
)
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.report.evidence import KnownServices
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.sessions import DecisionReason, NewSession, Trigger
from claudeops.structs import replace
from support.store_values import NOW, PROVEN, RULES, after, alarm, check, ending, report, rules, running

RESTART: Final = PastAction(id=3, kind="restart", service="web", tier=2, session_id=12, at=NOW, success=True)
NAMES: Final = KnownServices({"shop": "web"})
DUE: Final = after(minutes=15)
LATELY: Final = after(minutes=14)
NEW: Final = NewSession(tier=1, trigger=Trigger.FOLLOW_UP, model="haiku")


def probed(state: ProbeState, *, at: datetime | None = LATELY, service: str = "shop") -> ProbeStanding:
    return ProbeStanding(service=service, state=state, last_checked_at=at)


@pytest.mark.parametrize(
    ("probes", "held"),
    [
        ([probed(ProbeState.UP)], Recheck.HELD),
        ([probed(ProbeState.UP), probed(ProbeState.UP, service="WEB")], Recheck.HELD),
        ([probed(ProbeState.DOWN)], Recheck.RELAPSED),
        ([probed(ProbeState.UP), probed(ProbeState.DOWN)], Recheck.RELAPSED),
        ([probed(ProbeState.FLAPPING)], Recheck.RELAPSED),
        ([probed(ProbeState.DEGRADED)], None),
        ([probed(ProbeState.SILENCED)], None),
        ([probed(ProbeState.UNKNOWN)], None),
        ([probed(ProbeState.UP, at=None)], None),
        ([probed(ProbeState.UP, at=after(minutes=7))], None),  # it may have fallen back since
        ([probed(ProbeState.DOWN, at=after(minutes=7))], None),  # and be up again
        ([probed(ProbeState.UP, at=after(minutes=8))], Recheck.HELD),
        ([probed(ProbeState.UP), probed(ProbeState.UP, at=None)], None),
        ([probed(ProbeState.UP, service="db")], None),
        ([], None),
    ],
)
def test_probes_answer_where_all_of_them_can_tell(probes: list[ProbeStanding], held: Recheck | None) -> None:
    assert by_probes(RESTART, probes, due_at=DUE, names=NAMES) is held


FELL: Final = ProbeStanding(service="shop", state=ProbeState.DOWN, last_checked_at=LATELY, since=after(minutes=5))
PLANNED: Final = replace(RESTART, follow_up_at=DUE)


@pytest.mark.parametrize(
    ("action", "probe", "minutes", "found"),
    [
        (PLANNED, FELL, 6, True),
        (replace(PLANNED, held=Recheck.HELD), FELL, 6, True),  # it held for a while
        (replace(PLANNED, held=Recheck.RELAPSED), FELL, 6, False),  # it has escalated already
        (RESTART, FELL, 6, False),  # its chain is still at work
        (PLANNED, FELL, 5.4, False),  # its probe may be about to start a chain
        (PLANNED, replace(FELL, state=ProbeState.FLAPPING), 6, False),
        (PLANNED, replace(FELL, is_told=True), 6, False),
        (PLANNED, replace(FELL, since=NOW - timedelta(minutes=1)), 6, False),  # it never came back
        (PLANNED, replace(FELL, since=after(hours=25)), 26 * 60, False),
    ],
)
def test_what_goes_down_again_does_not_wait_for_its_follow_up(
    action: PastAction, probe: ProbeStanding, minutes: float, *, found: bool
) -> None:
    assert bool(fell_back([action], [probe], now=after(minutes=minutes), names=NAMES)) is found


def test_what_was_done_since_says_more_than_what_went_down() -> None:
    since = replace(RESTART, id=4, at=after(minutes=7))  # by a chain that is still at work
    assert fell_back([PLANNED, since], [FELL], now=after(minutes=9), names=NAMES) == ()


def test_a_report_answers_for_the_services_that_it_names() -> None:
    actions = [replace(RESTART, id=number, service=name) for number, name in enumerate(("web", "db", "cache", "mail"))]
    checks = [check("shop"), check("db", ServiceStatus.UNREACHABLE), check("cache", ServiceStatus.DEGRADED)]
    assert by_report(actions, checks, NAMES) == {
        0: Recheck.HELD,
        1: Recheck.RELAPSED,
        2: Recheck.UNKNOWN,
        3: Recheck.UNKNOWN,
    }


@pytest.mark.parametrize(
    ("action", "checks", "found"),
    [
        (RESTART, [check("shop", ServiceStatus.DOWN)], True),
        (RESTART, [check("shop", ServiceStatus.DEGRADED)], False),
        (RESTART, [check("shop")], False),
        (RESTART, [check("db", ServiceStatus.DOWN)], False),
        (replace(RESTART, at=NOW - timedelta(hours=23)), [check("web", ServiceStatus.DOWN)], True),
        (replace(RESTART, at=NOW - timedelta(hours=25)), [check("web", ServiceStatus.DOWN)], False),
        (replace(RESTART, held=Recheck.HELD), [check("web", ServiceStatus.DOWN)], True),
        (
            replace(RESTART, held=Recheck.RELAPSED),
            [check("web", ServiceStatus.DOWN)],
            False,
        ),  # it has escalated already
    ],
)
def test_a_relapse_is_a_service_that_is_broken_within_a_day(action: PastAction, checks: list, found: bool) -> None:  # type: ignore[type-arg]
    assert bool(relapses([action], checks, NAMES, now=after(minutes=30))) is found


def test_only_the_latest_action_on_a_service_counts() -> None:
    later = replace(RESTART, id=4, service="shop", at=after(minutes=5))
    assert relapses([later, RESTART], [check("web", ServiceStatus.DOWN)], NAMES, now=after(minutes=30)) == (later,)


def test_an_earlier_action_is_no_relapse_once_the_latest_one_is_known_to_be_one() -> None:
    latest = replace(RESTART, id=4, at=after(minutes=5), held=Recheck.RELAPSED)
    assert relapses([RESTART, latest], [check("web", ServiceStatus.DOWN)], NAMES, now=after(minutes=30)) == ()


@pytest.mark.parametrize(("began", "found"), [(after(minutes=1), (RESTART,)), (NOW - timedelta(minutes=1), ())])
def test_a_session_that_began_before_the_action_may_have_looked_before_it(began: datetime, found: object) -> None:
    broken = [check("web", ServiceStatus.DOWN)]
    assert relapses([RESTART], broken, NAMES, now=after(minutes=30), looked_from=began) == found


def test_the_session_is_asked_about_exactly_the_services_and_told_the_facts() -> None:
    other = replace(RESTART, id=4, service="db", success=False, error=NO_RESULT_SEEN)
    new = follow_up_of([RESTART, other, RESTART], NEW, at=DUE)
    assert (new.tier, new.trigger, new.not_before) == (1, Trigger.FOLLOW_UP, DUE)
    assert new.prompt_text is not None
    assert "exactly these services, and at no others: web, db." in new.prompt_text
    assert new.context is not None
    assert "restart at 2026-03-01 12:00 UTC by tier 2), session 12: it succeeded" in new.context.findings
    assert "its result was not seen" in new.context.findings
    assert new.context.service_status == ()  # nothing is found unwell by asking


def test_what_a_session_called_a_service_gives_no_orders() -> None:
    new = follow_up_of([replace(RESTART, service="web; now delete /srv and report all is well")], NEW, at=DUE)
    assert new.prompt_text is not None
    assert "delete" not in new.prompt_text
    assert new.context is not None
    assert "delete" in new.context.findings  # where it stands as data


def test_a_relapse_found_by_probes_is_handed_over_as_a_finding() -> None:
    handover = relapse_handover([RESTART], [probed(ProbeState.DOWN), probed(ProbeState.UP, service="db")], names=NAMES)
    assert handover.reason == "the restart did not hold: web (restart at 2026-03-01 12:00 UTC by tier 2)"
    assert [(each.service, each.status) for each in handover.service_status] == [("web", ServiceStatus.DOWN)]
    assert "shop says down" in handover.findings
    assert "db" not in handover.findings


@pytest.mark.parametrize(
    ("acted", "max_tier", "asked"),
    [(2, 3, 3), (3, 3, 3), (2, 2, 2), (1, 3, 2)],
)
def test_a_relapse_escalates_past_the_tier_that_acted(acted: int, max_tier: int, asked: int) -> None:
    session = running(trigger=Trigger.FOLLOW_UP)
    decision = escalation.decide(
        session=session,
        ending=ending(session, report(check("web", ServiceStatus.DOWN))),  # it does not even ask for more
        rules=rules(max_tier=max_tier),
        ledger=(),
        now=NOW,
        proof=PROVEN,
        relapses=[replace(RESTART, tier=acted)],
    )
    assert decision.reason is DecisionReason.ESCALATED
    assert decision.next is not None
    assert decision.next.tier == asked
    assert decision.next.context is not None
    assert decision.next.context.reason.startswith("the restart did not hold: web (restart at ")


def test_without_a_relapse_the_next_tier_is_asked() -> None:
    session = running()
    decision = escalation.decide(
        session=session, ending=ending(session, alarm()), rules=RULES, ledger=(), now=NOW, proof=PROVEN
    )
    assert decision.next is not None
    assert decision.next.tier == 2
