"""Probes of the daemon's own hold a report to what they see, and speak for it after an action."""

from __future__ import annotations

from datetime import datetime

import pytest

from claudeops.domain.actions import PastAction
from claudeops.domain.calls import ToolEnd
from claudeops.domain.probes.probe import ProbeSight, ProbeState
from claudeops.domain.report.evidence import NOTHING_BEFORE, Background, KnownServices, Proof, seen_by_probes, weigh
from claudeops.domain.report.report import Report, ServiceStatus
from support.store_values import NOW, after, check, report

RESTART = PastAction(at=NOW, kind="restart", service="shop", tool_use_id="act")
FINE = report(check("shop"))


def sight(
    state: ProbeState = ProbeState.UP,
    *,
    at: datetime = NOW,
    failed: bool | None = None,
    service: str = "Shop",
    name: str = "page",
) -> ProbeSight:
    is_up = state is ProbeState.UP
    return ProbeSight(
        probe=name,
        service=service,
        state=state,
        began_at=at,
        failed=(not is_up) if failed is None else failed,
        healthy_since=at if is_up else None,
    )


def weighed(said: Report, *probes: ProbeSight, acted: bool = True, before: Background = NOTHING_BEFORE) -> Proof:
    end = ToolEnd(tool_use_id="act", ended_at=after(minutes=5), is_error=False)
    return weigh(
        said,
        looks=(),
        ends=(end,) if acted else (),
        actions=(RESTART,) if acted else (),
        before=before,
        names=KnownServices({"store": "shop"}),
        probes=probes,
        began_at=NOW,
    )


def test_a_probe_that_sees_the_service_up_after_the_restart_is_proof() -> None:
    proof = weighed(FINE, sight(at=after(minutes=6)))
    assert (proof.lacks, proof.unproven) == ((), frozenset())


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(sight(at=after(minutes=4)), id="it looked before the restart had ended"),
        pytest.param(sight(ProbeState.DOWN, at=after(minutes=6), failed=False), id="one look is not yet up"),
        pytest.param(sight(ProbeState.UNKNOWN, at=after(minutes=6)), id="it does not know"),
        pytest.param(sight(at=after(minutes=6), service="photos"), id="it looks at another service"),
    ],
)
def test_other_probes_prove_nothing(seen: ProbeSight) -> None:
    assert weighed(FINE, seen).lacks == ("no look at shop came back after the last action",)


def test_a_probe_that_sees_the_service_down_contradicts_the_report() -> None:
    proof = weighed(FINE, sight(ProbeState.DOWN, at=after(minutes=1)), acted=False)
    assert proof.lacks == ("the probe page sees shop down",)
    assert proof.services == ("shop",)
    assert proof.doubts("store")


def test_a_probe_that_looked_before_the_restart_contradicts_nothing() -> None:
    proof = weighed(FINE, sight(ProbeState.DOWN, at=after(minutes=4)), sight(at=after(minutes=6), name="port"))
    assert proof.lacks == ()


def test_a_probe_whose_latest_look_worked_contradicts_nothing() -> None:
    assert weighed(FINE, sight(ProbeState.DOWN, failed=False), acted=False).lacks == ()


@pytest.mark.parametrize("status", [ServiceStatus.DOWN, ServiceStatus.DEGRADED])
def test_only_who_says_healthy_is_contradicted(status: ServiceStatus) -> None:
    assert weighed(report(check("shop", status)), sight(ProbeState.DOWN), acted=False).lacks == ()


def test_what_an_earlier_session_did_is_proven_by_a_probe_that_looked_since_this_one_began() -> None:
    acted = Background(acted_on=("shop",))
    assert weighed(FINE, sight(at=after(minutes=1)), acted=False, before=acted).lacks == ()
    assert weighed(FINE, sight(at=after(minutes=-1)), acted=False, before=acted).lacks != ()


def test_all_probes_of_a_service_must_agree_that_it_is_healthy() -> None:
    up, down = sight(at=after(minutes=1)), sight(ProbeState.DOWN, at=after(minutes=2), name="port")
    wavering = sight(ProbeState.DEGRADED, at=after(minutes=2), failed=False, name="port")
    assert seen_by_probes([up]) == (ServiceStatus.HEALTHY, after(minutes=1))
    assert seen_by_probes([up, down]) == (ServiceStatus.DOWN, after(minutes=2))
    assert seen_by_probes([up, wavering]) is None
    assert seen_by_probes([]) is None
