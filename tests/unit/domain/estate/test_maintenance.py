"""Maintenance windows: what is held back within them, and what is said about it."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Final

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.domain.chains import escalation
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.estate.estate import Estate, MaintenanceWindow, Manifest, Service, StatementSource
from claudeops.domain.events import EventLevel
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.sessions import Decision, DecisionReason
from claudeops.policy import grants
from claudeops.policy.grants import Findings
from claudeops.structs import replace
from support.store_values import PROVEN, RULES, alarm, allow, check, ending, report, restart, running

SUNDAY: Final = MaintenanceWindow(days=frozenset({6}), start=time(2), end=time(4), text="Sun 02:00-04:00")
HERE: Final = StatementSource(path="media/CLAUDE-OPS.md", line=7)
ESTATE: Final = Estate(
    manifests=(
        Manifest(
            repository="media",
            services=(
                Service(name="web", aliases=("shop",), maintenance=(SUNDAY,), source=HERE),
                Service(name="db", host="db1", maintenance=(SUNDAY,), source=HERE),
                Service(name="mail", source=HERE),
            ),
        ),
    ),
    other_names={"shop": "web"},
)
WITHIN: Final = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)  # 03:30 in Berlin
OUTSIDE: Final = datetime(2026, 3, 1, 3, 30, tzinfo=UTC)
BERLIN: Final = replace(RULES, timezone="Europe/Berlin").within(ESTATE)


@pytest.mark.parametrize(
    ("service", "is_held"),
    [
        ("web", True),
        ("WEB", True),
        ("shop", True),
        ("web1/web", True),  # the manifest names no host
        ("db", True),
        ("db1/db", True),
        ("db2/db", False),  # another machine's
        ("mail", False),
        ("webhook", False),
    ],
)
def test_a_window_is_that_of_its_service_by_all_its_names(service: str, is_held: bool) -> None:
    assert (BERLIN.maintenance_of(service, WITHIN) is not None) is is_held
    assert BERLIN.maintenance_of(service, OUTSIDE) is None


def granted(rules: EscalationRules, at: datetime, *, service: str = "web") -> grants.GrantedVerdict:
    return grants.grant(
        allow(restart(service)),
        session=running(2),
        findings=Findings(unwell=frozenset({service})),
        ledger=(),
        rules=rules,
        now=at,
    )


def test_an_action_waits_for_the_end_of_the_window_and_the_refusal_names_it() -> None:
    held = granted(BERLIN, WITHIN)
    assert held.verdict.kind is VerdictKind.DENY
    assert "restart of web refused: it is in its maintenance window (Sun 02:00-04:00)" in held.verdict.reason
    assert held.event is not None
    assert (held.event.level, held.event.service) == (EventLevel.INFO, "web")
    assert held.held_service is None  # its cooldown has nothing to do with it
    assert granted(BERLIN, OUTSIDE).verdict.kind is VerdictKind.ALLOW
    assert granted(BERLIN, WITHIN, service="mail").verdict.kind is VerdictKind.ALLOW


def test_a_policy_may_let_sessions_act_all_the_same() -> None:
    acting = replace(BERLIN, holds_in_maintenance=False)
    assert granted(acting, WITHIN).verdict.kind is VerdictKind.ALLOW


def decided(*services: str, at: datetime, rules: EscalationRules = BERLIN) -> Decision:
    session = running()
    down = [check(service, ServiceStatus.DOWN) for service in services]
    said = replace(alarm(), services_checked=(*down, check("mail")) if "mail" not in services else tuple(down))
    return escalation.decide(
        session=session, ending=ending(session, said), rules=rules, ledger=(), now=at, proof=PROVEN
    )


def test_a_finding_about_services_in_their_windows_escalates_to_nobody_and_says_so() -> None:
    decision = decided("web", "db", at=WITHIN)
    assert decision.reason is DecisionReason.MAINTENANCE
    assert decision.next is None
    (event,) = decision.events
    assert event.level is EventLevel.INFO
    assert "web, db: unwell within the maintenance window (Sun 02:00-04:00)" in event.message


def test_one_service_outside_of_a_window_is_enough_to_escalate() -> None:
    assert decided("web", "mail", at=WITHIN).reason is DecisionReason.ESCALATED
    assert decided("web", at=OUTSIDE).reason is DecisionReason.ESCALATED
    assert decided("web", at=WITHIN, rules=RULES).reason is DecisionReason.ESCALATED
    assert (
        decided("web", at=WITHIN, rules=replace(BERLIN, holds_in_maintenance=False)).reason is DecisionReason.ESCALATED
    )


def test_a_wish_to_escalate_without_a_service_is_not_held_back() -> None:
    session = running()
    said = replace(report(check("mail")), escalation=alarm().escalation)
    decision = escalation.decide(
        session=session, ending=ending(session, said), rules=BERLIN, ledger=(), now=WITHIN, proof=PROVEN
    )
    assert decision.reason is DecisionReason.ESCALATED
