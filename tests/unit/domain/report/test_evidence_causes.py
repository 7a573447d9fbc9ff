"""What a chain was started for is reported healthy with a look at that very service, or nothing is known about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from claudeops.domain.actions import PastAction
from claudeops.domain.calls import ToolEnd
from claudeops.domain.looks import EvidenceLook, address_of
from claudeops.domain.probes.probe import ProbeSight, ProbeState
from claudeops.domain.report.evidence import Background, ChainCause, KnownServices, Proof, Statement, background, weigh
from claudeops.domain.report.meanings import Meanings
from claudeops.domain.report.report import PastCheck, ServiceCheck, ServiceStatus
from claudeops.domain.sessions import Handover
from support.store_values import NOW, after, check, report

AROUND = EvidenceLook()
HEALTHY, DEGRADED, DOWN = ServiceStatus.HEALTHY, ServiceStatus.DEGRADED, ServiceStatus.DOWN
OTHER_NAMES = {"onlineshop": "shop", "web1/front": "front"}


def at(*names: str, after: int = 0) -> EvidenceLook:
    return EvidenceLook(names=frozenset(names), results_before=after)


def asking(url: str) -> EvidenceLook:
    address = address_of(url)
    assert address is not None
    return EvidenceLook(addresses=frozenset({address}))


def weighed(
    causes: Sequence[str],
    checks: Sequence[ServiceCheck],
    *looks: EvidenceLook,
    statements: Sequence[Statement] = (),
    probes: Sequence[ProbeSight] = (),
    actions: Sequence[PastAction] = (),
    other_names: Mapping[str, str] = OTHER_NAMES,
) -> Proof:
    return weigh(
        report(*checks),
        looks=looks,
        ends=[ToolEnd(tool_use_id=action.tool_use_id, ended_at=NOW, is_error=False) for action in actions],
        actions=actions,
        before=Background(causes=tuple(causes), statements=tuple(statements)),
        names=KnownServices(other_names),
        probes=probes,
        began_at=NOW,
    )


@pytest.mark.parametrize(
    ("cause", "said", "look"),
    [
        pytest.param("shop", "shop", at("shop"), id="by its name"),
        pytest.param("Shop", "SHOP", at("shop"), id="whatever the case"),
        pytest.param("shop", "onlineshop", at("ONLINESHOP"), id="by another name of the estate"),
        pytest.param("onlineshop", "shop", at("shop"), id="an alert that uses the other name"),
        pytest.param("shop", "shop", at("namespace:prod/shop"), id="a look that says the namespace"),
        pytest.param("prod/shop", "prod/shop", at("namespace:prod/shop"), id="an alert that says it"),
        pytest.param("prod/shop", "shop", at("namespace:prod/shop"), id="a report that leaves it out"),
        pytest.param("shop", "prod/shop", at("shop"), id="a report that adds it"),
        pytest.param("prod/shop", "shop", at("shop"), id="neither report nor look say it"),
        pytest.param("prod/onlineshop", "shop", at("namespace:prod/shop"), id="namespace and other name"),
        pytest.param("shop.service", "shop", at("shop"), id="a unit"),
        pytest.param("shop", "shop.service", at("shop.service"), id="a report about the unit"),
        pytest.param("shop", "shop", asking("https://shop.example.org/health"), id="by its host"),
        pytest.param("prod/shop", "shop", asking("http://shop.prod.example.org/"), id="by its host, without the place"),
        pytest.param("10.0.0.5:8080", "10.0.0.5:8080", asking("http://10.0.0.5:8080/"), id="an alert about an address"),
    ],
)
def test_a_look_at_the_service_by_any_of_its_names_is_proof(cause: str, said: str, look: EvidenceLook) -> None:
    proof = weighed([cause], [check(said)], AROUND, look)
    assert (proof.lacks, proof.services, proof.unproven) == ((), (), frozenset())


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(AROUND, id="a look around, such as uptime"),
        pytest.param(at("web", "photos"), id="looks at other services"),
        pytest.param(at("shop-db", "webshop"), id="what is only called alike"),
        pytest.param(asking("http://10.0.0.5:3000/"), id="an address of which nothing is known"),
        pytest.param(at("namespace:stage/shop"), id="the service of that name in another namespace"),
    ],
)
def test_healthy_without_a_look_at_the_service_is_no_proof(look: EvidenceLook) -> None:
    proof = weighed(["prod/shop"], [check("prod/shop"), check("web")], look, at("web"))

    assert proof.lacks == ("no look at prod/shop came back without an error",)
    assert proof.services == ("prod/shop",)
    assert proof.doubts("prod/shop")
    assert not proof.doubts("web")


@pytest.mark.parametrize(
    "checks",
    [
        pytest.param([check("web")], id="another service alone"),
        pytest.param([], id="no service at all"),
        pytest.param([check("shop-db"), check("stage/shop")], id="what is only called alike, and another place"),
    ],
)
def test_a_report_that_says_nothing_about_the_service_is_no_proof_whatever_was_looked_at(
    checks: Sequence[ServiceCheck],
) -> None:
    proof = weighed(["prod/shop"], checks, at("prod/shop"))
    assert proof.lacks == ("the chain is about prod/shop, which the report leaves out",)
    assert proof.services == ("prod/shop",)


def test_each_of_several_services_needs_its_own_report_and_its_own_look() -> None:
    causes = ["shop", "db", "mail", "web"]
    proof = weighed(causes, [check("shop"), check("db"), check("web")], at("shop"), at("mail"))

    assert proof.lacks == (
        "no look at db, web came back without an error",
        "the chain is about mail, which the report leaves out",
    )
    assert proof.services == ("db", "web", "mail")
    assert (proof.doubts("shop"), proof.doubts("db")) == (False, True)


def test_two_services_of_one_name_are_not_proven_by_one_that_does_not_say_where() -> None:
    causes = ["prod/web", "stage/web"]
    assert weighed(causes, [check("web")], at("web")).services == causes_of(causes)
    assert weighed(causes, [check("prod/web"), check("stage/web")], at("web")).services == causes_of(causes)
    looks = (at("namespace:prod/web"), at("namespace:stage/web"))
    assert weighed(causes, [check("prod/web"), check("stage/web")], *looks).lacks == ()
    assert weighed(causes, [check("prod/web"), check("stage/web")], looks[0]).services == ("stage/web",)


def causes_of(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names)


def test_what_the_estate_tells_apart_stays_apart() -> None:
    assert Meanings(["web1/front"], KnownServices(OTHER_NAMES)).of("front") == ("web1/front",)
    assert Meanings(["shop"], KnownServices({"web1/shop": "front"})).of("web1/shop") == ()


def test_degraded_and_no_wish_for_the_next_tier_is_no_proof_of_health() -> None:
    proof = weighed(["shop"], [check("shop", DEGRADED)], at("shop"))
    assert proof.lacks == ("shop is reported degraded, yet the report does not escalate",)
    assert weighed([], [check("shop", DEGRADED)], at("shop")).lacks == ()


def test_what_is_down_is_said_elsewhere_once() -> None:
    assert weighed(["shop"], [check("shop", DOWN)], AROUND).lacks == ()


def test_after_an_action_the_look_must_come_after_it() -> None:
    restart = PastAction(at=NOW, kind="restart", service="shop", tool_use_id="act")
    late, early = at("shop", after=1), at("shop", after=0)
    assert weighed(["shop"], [check("shop")], late, actions=[restart]).lacks == ()
    proof = weighed(["shop"], [check("shop")], early, actions=[restart])
    assert proof.lacks == ("no look at shop came back after the last action",)  # once


def test_after_an_action_by_a_fuller_name_an_earlier_look_by_the_shorter_one_is_none() -> None:
    restart = PastAction(at=NOW, kind="restart", service="namespace:prod/shop", tool_use_id="act")
    checks = [check("shop"), check("namespace:prod/shop")]
    again = at("namespace:prod/shop", after=1)
    assert weighed(["shop"], checks, at("shop", after=0), again, actions=[restart]).lacks == ()
    assert "shop" in weighed(["shop"], checks, at("shop", after=0), actions=[restart]).services


@pytest.mark.parametrize(
    ("probe", "is_proof"),
    [
        pytest.param("shop", True, id="of the service"),
        pytest.param("onlineshop", True, id="by another name"),
        pytest.param("web", False, id="of another service"),
    ],
)
def test_a_probe_that_answered_since_the_session_began_is_a_look(probe: str, *, is_proof: bool) -> None:
    def sight(minutes: float) -> ProbeSight:
        seen = after(minutes=minutes)
        return ProbeSight(
            probe="page", service=probe, state=ProbeState.UP, began_at=seen, failed=False, healthy_since=seen
        )

    assert (weighed(["shop"], [check("shop")], AROUND, probes=[sight(1)]).lacks == ()) is is_proof
    assert weighed(["shop"], [check("shop")], AROUND, probes=[sight(-1)]).lacks != ()


def test_an_address_that_an_alert_names_belongs_to_its_service() -> None:
    told = [Statement(text="http://10.0.0.5:3000/login", service="shop")]
    look = asking("http://10.0.0.5:3000/health")
    assert weighed(["shop"], [check("shop")], look, statements=told).lacks == ()
    assert weighed(["shop"], [check("shop")], look).lacks != ()


def test_services_that_were_looked_at_are_known() -> None:
    checks = [check("shop"), check("web"), check("db", DOWN)]
    assert weighed([], checks, AROUND, at("namespace:prod/shop"), at("db")).looked_at == {"shop", "db"}


# --- what an earlier session has shown --------------------------------------------------------------------


def left(*causes: ChainCause, checks: Sequence[PastCheck] = (), actions: Sequence[tuple[int, str]] = ()) -> Background:
    handover = Handover(reason="r", findings="f")
    return background(
        checks=checks,
        actions=actions,
        handovers=[handover],
        request=None,
        names=KnownServices(OTHER_NAMES),
        causes=causes,
    )


def past(service: str, status: ServiceStatus = HEALTHY, *, session: int = 1, minutes: float = 5) -> PastCheck:
    return PastCheck(session_id=session, service=service, status=status, detail=None, at=after(minutes=minutes))


SHOP = ChainCause(service="shop", since=NOW)


@pytest.mark.parametrize(
    ("checks", "actions", "still"),
    [
        pytest.param([], [], ("shop",), id="nothing yet"),
        pytest.param([past("shop")], [], (), id="it was shown healthy"),
        pytest.param([past("onlineshop")], [], (), id="by another name"),
        pytest.param([past("prod/shop")], [], (), id="by a name that says where"),
        pytest.param([past("shop", DOWN)], [], ("shop",), id="it was found down"),
        pytest.param([past("shop", DOWN), past("shop", session=2)], [], (), id="the latest look counts"),
        pytest.param([past("shop"), past("shop", DEGRADED, session=2)], [], ("shop",), id="likewise"),
        pytest.param([past("shop", minutes=-1)], [], ("shop",), id="before its latest alert"),
        pytest.param([past("web")], [], ("shop",), id="another service"),
        pytest.param([past("shop")], [(2, "shop")], ("shop",), id="it was acted upon since"),
        pytest.param([past("shop", session=3)], [(2, "shop")], (), id="it was shown healthy after the action"),
    ],
)
def test_what_an_earlier_session_of_the_chain_has_shown_need_not_be_shown_again(
    checks: Sequence[PastCheck], actions: Sequence[tuple[int, str]], still: tuple[str, ...]
) -> None:
    assert left(SHOP, checks=checks, actions=actions).causes == still


def test_a_service_that_is_named_by_alert_and_request_counts_once_since_its_latest_alert() -> None:
    again = ChainCause(service="ONLINESHOP", since=after(minutes=10))
    assert len(left(ChainCause(service="shop"), SHOP, again).causes) == 1
    assert left(ChainCause(service="shop"), SHOP, again, checks=[past("shop")]).causes != ()
    assert left(ChainCause(service="shop"), checks=[past("shop")]).causes == ()


# --- a host ------------------------------------------------------------------------------------------------------


def on(*hosts: str, names: Sequence[str] = ()) -> EvidenceLook:
    return EvidenceLook(hosts=frozenset(hosts), names=frozenset(names))


@pytest.mark.parametrize(
    ("cause", "said", "look"),
    [
        pytest.param("nas", "nas", on("nas"), id="a look around there"),
        pytest.param("nas", "NAS", on("nas.example.org"), id="by its whole name"),
        pytest.param("nas.example.org", "nas.example.org", on("nas.example.org"), id="an alert that says it"),
        pytest.param("nas", "nas", on("nas", names=["nas/web"]), id="a look at something that runs there"),
    ],
)
def test_a_look_that_ran_on_a_host_is_one_at_the_host_that_the_chain_is_about(
    cause: str, said: str, look: EvidenceLook
) -> None:
    proof = weighed([cause], [check(said)], look)
    assert (proof.lacks, proof.unproven) == ((), frozenset())
    assert proof.looked_at == {said.casefold()}


def test_a_look_on_a_host_is_none_at_another_one_or_at_what_was_acted_upon() -> None:
    assert weighed(["nas"], [check("nas")], on("web1")).services == ("nas",)
    assert weighed(["nas/web"], [check("nas/web")], on("nas")).services == ("nas/web",)
    restart = PastAction(at=NOW, kind="restart", service="nas", tool_use_id="act")
    late = EvidenceLook(hosts=frozenset({"nas"}), results_before=1)
    assert weighed(["nas"], [check("nas")], late, actions=[restart]).services == ("nas",)
    assert weighed([], [check("nas")], on("nas")).looked_at == frozenset()


# --- several services of one cause -------------------------------------------------------------------------------


def test_where_a_report_tells_several_services_of_one_cause_apart_each_needs_its_own_look() -> None:
    checks = [check("stage/web"), check("prod/web")]
    stage, prod = at("namespace:stage/web"), at("namespace:prod/web")

    proof = weighed(["web"], checks, stage)
    assert proof.lacks == ("no look at prod/web came back without an error",)
    assert (proof.services, proof.causes) == (("prod/web",), ("web",))
    assert proof.looked_at == {"stage/web"}
    assert (proof.doubts("stage/web"), proof.doubts("prod/web")) == (False, True)
    assert weighed(["web"], checks, at("web")).services == ("stage/web", "prod/web")
    assert weighed(["web"], checks, stage, prod).lacks == ()
    assert weighed(["web"], checks, AROUND).services == ("web",)


def test_a_service_that_is_reported_by_its_whole_name_and_the_shorter_one_needs_one_look() -> None:
    assert weighed(["web"], [check("web"), check("stage/web")], at("namespace:stage/web")).lacks == ()
    assert weighed(["prod/web"], [check("web"), check("prod/web")], at("namespace:prod/web")).lacks == ()


def test_one_address_of_several_services_is_told_apart_by_its_path_only() -> None:
    told = [Statement(text=f"http://10.0.0.5:80/{name}", service=name) for name in ("shop", "web", "shop")]
    look = asking("http://10.0.0.5:80/web")
    assert weighed(["web"], [check("web")], look, statements=told).lacks == ()
    assert weighed(["shop"], [check("shop")], look, statements=told).services == ("shop",)
    assert weighed(["shop"], [check("shop")], look, statements=told[::2]).lacks == ()
