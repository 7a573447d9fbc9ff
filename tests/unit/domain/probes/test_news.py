"""When changes become a chain, and which."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from claudeops.domain.probes.dependencies import NO_DEPENDENCIES, Dependencies, connected
from claudeops.domain.probes.news import SETTLING, ChainRequest, ProbeNews, collect, note_of
from claudeops.domain.probes.probe import Probe, ProbeState, Standing
from claudeops.domain.probes.state_machine import ProbeChange, ProbeChangeKind
from claudeops.structs import replace
from support.probes import NOON, after, looked, probe, seconds, standing

SHOP, DB = probe("shop"), probe("db")
NEEDS_DB = connected({"shop": ("db",), "site": ("db",)})


def news(*pairs: tuple[Probe, Standing], at: float = 0.0, dependencies: Dependencies = NO_DEPENDENCIES) -> ProbeNews:
    """Return the news so many seconds after noon."""
    probes = [each for each, _ in pairs]
    standings = {each.name: stands for each, stands in pairs}
    return collect(probes, standings, now=NOON + seconds(at), dependencies=dependencies)


def chain(found: ProbeNews) -> ChainRequest:
    assert found.chain is not None
    return found.chain


def down(since: float = 0.0, **changes: object) -> Standing:
    return standing(ProbeState.DOWN, NOON + seconds(since), **changes)


# --- settling -----------------------------------------------------------------------------------------


def test_nothing_failed_nothing_to_tell() -> None:
    assert news((SHOP, standing()), (DB, standing(ProbeState.UNKNOWN))) == ProbeNews()


def test_a_failure_is_told_when_it_has_settled() -> None:
    assert news((SHOP, down()), at=1).wait_seconds == 2
    assert news((SHOP, down()), at=1).chain is None
    told = news((SHOP, down()), at=3)
    assert told.wait_seconds is None
    assert (chain(told).services, chain(told).probes) == (("shop",), ("shop",))


def test_failures_within_the_settling_time_are_one_chain() -> None:
    pairs = ((SHOP, down(0)), (DB, down(2)))

    assert news(*pairs, at=3).wait_seconds == 2
    assert chain(news(*pairs, at=5)).services == ("shop", "db")


def test_failures_that_keep_coming_are_told_after_the_longest_wait() -> None:
    pairs = [(probe(f"s{count}"), down(count)) for count in range(20)]

    assert news(*pairs[:19], at=18.5).chain is None
    assert len(chain(news(*pairs, at=20)).services) == 20


def test_what_recovers_before_it_is_told_starts_nothing_and_leaves_a_note() -> None:
    assert news((SHOP, after("U F F F U U")), at=4) == ProbeNews()
    recovery = [each.change for each in looked("U F F F U U", apart=1.0)][-1]
    assert recovery is not None
    assert note_of(recovery) == "shop was down for 2 s and recovered by itself; no session was started"


def test_what_recovers_with_its_database_did_not_recover_by_itself() -> None:
    explained = after("U F F F", explained_by="db")
    recovery = [each.change for each in looked("U U", start=explained, at=NOON + seconds(300))][-1]
    assert recovery is not None
    assert recovery.explained_by == "db"
    assert note_of(recovery) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"incident": "probe:1"},  # a chain was started
        {"explained_by": "db"},
        {"turn": ProbeChangeKind.WORSE},
        {"before": ProbeState.UNKNOWN},
        {"before": ProbeState.SILENCED},
    ],
)
def test_other_changes_leave_no_note(changes: Mapping[str, object]) -> None:
    recovery = ProbeChange(
        probe="shop",
        service="shop",
        before=ProbeState.DOWN,
        after=ProbeState.UP,
        turn=ProbeChangeKind.BETTER,
        at=NOON,
        detail="",
        lasted_seconds=9.0,
    )
    assert note_of(recovery) is not None
    assert note_of(replace(recovery, **changes)) is None  # type: ignore[arg-type]  # the table names its fields


@pytest.mark.parametrize(
    ("about", "stands"),
    [
        (probe(starts_chain=False), down()),
        (SHOP, standing(ProbeState.SILENCED, beneath=ProbeState.DOWN)),
        (SHOP, standing(ProbeState.UNKNOWN, beneath=ProbeState.DOWN)),
        (SHOP, down(incident="probe:1")),
        (SHOP, down(explained_by="db")),
    ],
)
def test_what_starts_no_chain(about: Probe, stands: Standing) -> None:
    assert news((about, stands), at=9).chain is None


@pytest.mark.parametrize("state", [ProbeState.DEGRADED, ProbeState.FLAPPING, ProbeState.DOWN])
def test_every_change_for_the_worse_starts_one(state: ProbeState) -> None:
    assert chain(news((SHOP, standing(state)), at=9)).services == ("shop",)


# --- at most one chain an incident --------------------------------------------------------------------


def marked(told: ProbeNews, stands: Standing) -> Standing:
    return replace(stands, incident=chain(told).fingerprint)


def test_a_standing_incident_starts_no_second_chain_until_it_is_over() -> None:
    first = after("U F F F")
    told = news((SHOP, first), at=100)
    dealt_with = marked(told, first)
    assert news((SHOP, dealt_with), at=9000).chain is None

    still = after("F F ? ? ? F F F", start=dealt_with, at=NOON + seconds(200))
    assert news((SHOP, still), at=9000).chain is None

    again = after("U U F F F", start=still, at=NOON + seconds(900))
    assert chain(news((SHOP, again), at=9000)).fingerprint == chain(told).fingerprint


def test_a_restart_between_the_failure_and_the_chain_loses_nothing() -> None:
    told_late = news((SHOP, down(0)), at=86_400)

    assert chain(told_late).services == ("shop",)


def test_another_probe_of_the_same_service_joins_the_incident() -> None:
    ping = probe("shop:icmp", service="Shop")
    found = news((SHOP, down(0, incident="probe:1")), (ping, down(60)), at=90)

    assert found == ProbeNews(joined={"shop:icmp": "probe:1"})


def test_down_does_not_hide_behind_a_certificate_that_is_about_to_expire() -> None:
    tls = probe("shop:tls", service="shop")
    found = news((tls, standing(ProbeState.DEGRADED, incident="probe:1")), (SHOP, down(60)), at=90)

    assert chain(found).probes == ("shop",)


def test_another_service_is_another_incident() -> None:
    found = news((SHOP, down(0, incident="probe:1")), (DB, down(60)), at=90)

    assert chain(found).services == ("db",)


# --- dependencies -------------------------------------------------------------------------------------


def test_the_database_stands_for_the_shop() -> None:
    told = chain(news((SHOP, down(0)), (DB, down(1)), at=9, dependencies=NEEDS_DB))

    assert (told.services, told.probes) == (("db",), ("db",))


def test_the_database_is_asked_before_the_shop_is_told() -> None:
    settled = (SHOP, down(10))

    fine = news(settled, (DB, standing(since=NOON)), at=14, dependencies=NEEDS_DB)
    assert (fine.look_now, fine.wait_seconds, fine.chain) == (("db",), 1, None)
    asked = news(settled, (DB, standing(since=NOON + seconds(11))), at=14, dependencies=NEEDS_DB)
    assert chain(asked).services == ("shop",)
    doubtful = standing(since=NOON + seconds(11), failures=1, degradations=1, ups=0, successes=0)
    assert news(settled, (DB, doubtful), at=14, dependencies=NEEDS_DB).look_now == ("db",)


def test_a_database_that_does_not_answer_holds_the_news_up_for_a_while_only() -> None:
    found = news((SHOP, down(0)), (DB, standing(since=NOON - seconds(60))), at=20, dependencies=NEEDS_DB)

    assert chain(found).services == ("shop",)


def test_what_a_standing_incident_explains_starts_no_chain() -> None:
    found = news((DB, down(0, incident="probe:1")), (SHOP, down(60)), at=90, dependencies=NEEDS_DB)

    assert found == ProbeNews()


def test_what_is_still_down_when_the_database_is_back_is_told() -> None:
    explained = after("U F F F", explained_by="db")
    left = after("F F F", start=explained, at=NOON + seconds(300))

    assert news((DB, standing()), (SHOP, explained), at=200, dependencies=NEEDS_DB).chain is None
    found = news((DB, standing(since=NOON + seconds(290))), (SHOP, left), at=400, dependencies=NEEDS_DB)
    assert chain(found).services == ("shop",)


def test_the_same_services_have_the_same_fingerprint_in_any_order() -> None:
    one = chain(news((SHOP, down()), (DB, down()), at=9))
    other = chain(news((DB, down(5)), (SHOP, down(6)), at=60))

    assert one.fingerprint == other.fingerprint
    assert one.fingerprint.startswith("probe:")


# --- clocks -------------------------------------------------------------------------------------------


def test_a_clock_that_was_set_back_neither_delays_nor_repeats_the_news() -> None:
    told = news((SHOP, down(86_400)), at=0)

    assert chain(told).services == ("shop",)
    assert news((SHOP, marked(told, down(86_400))), at=-9).chain is None
    assert SETTLING.settling < SETTLING.longest
