"""What a report that needs nobody must have behind it, once something was acted upon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.actions import PastAction
from claudeops.domain.calls import ToolEnd
from claudeops.domain.looks import EvidenceLook, address_of, addresses_in
from claudeops.domain.report.evidence import (
    NOTHING_BEFORE,
    Background,
    KnownServices,
    Proof,
    Statement,
    background,
    weigh,
)
from claudeops.domain.report.report import PastCheck, Report, ServiceStatus
from claudeops.domain.sessions import Handover
from support.store_values import NOW, check, report

RESTART = PastAction(at=NOW, kind="restart", service="shop", tool_use_id="act")
SHOP = "http://127.0.0.1:3000/"
SHOP_TOLD = Statement(text=f"GET {SHOP} refused", service="shop")
FINE = report(check("shop"))


def end(name: str, *, failed: bool = False) -> ToolEnd:
    return ToolEnd(tool_use_id=name, ended_at=NOW, is_error=failed)


def at(*names: str, after: int = 1) -> EvidenceLook:
    return EvidenceLook(names=frozenset(names), results_before=after)


def asking(url: str, after: int = 1) -> EvidenceLook:
    address = address_of(url)
    assert address is not None
    return EvidenceLook(addresses=frozenset({address}), results_before=after)


def weighed(
    said: Report,
    *looks: EvidenceLook,
    ends: Sequence[ToolEnd] = (end("act"),),
    actions: Sequence[PastAction] = (RESTART,),
    before: Background = NOTHING_BEFORE,
    other_names: Mapping[str, str] | None = None,
    expected: Sequence[str] = (),
) -> Proof:
    names = KnownServices(other_names or {})
    return weigh(said, looks=looks, ends=ends, actions=actions, before=before, names=names, expected=expected)


def test_a_look_at_the_service_after_its_restart_is_proof() -> None:
    proof = weighed(FINE, at("shop"))

    assert (proof.looked, proof.lacks, proof.unproven) == (True, (), frozenset())


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param((), id="nothing was looked at"),
        pytest.param((at("shop", after=0),), id="it was asked for before the restart had ended, or with it"),
        pytest.param((at(),), id="a look around, at the disk for instance"),
        pytest.param((at("photos"),), id="a look at another service"),
        pytest.param((at("shop-2"), at("webshop"), at("sho")), id="looks at what is only called alike"),
        pytest.param((asking("http://photos.example.com/shop"),), id="another host, whatever the path says"),
        pytest.param((asking(SHOP),), id="an address that nobody has told of"),
        pytest.param((at("shop", after=0), at("photos"), at()), id="all of these"),
    ],
)
def test_what_is_no_look_at_the_service_after_its_restart_proves_nothing(looks: tuple[EvidenceLook, ...]) -> None:
    proof = weighed(FINE, *looks)

    assert proof.lacks == ("no look at shop came back after the last action",)
    assert proof.services == ("shop",)
    assert proof.doubts("Shop ")


@pytest.mark.parametrize(
    ("ends", "what"),
    [
        pytest.param((end("act", failed=True),), "the restart of shop ended in an error", id="an error"),
        pytest.param((end("look"),), "the restart of shop shows no result", id="no result"),
    ],
)
def test_a_failed_action_contradicts_the_report_whatever_was_looked_at_since(
    ends: tuple[ToolEnd, ...], what: str
) -> None:
    proof = weighed(FINE, at("shop", after=5), ends=ends)

    assert proof.lacks[0] == what
    assert proof.doubts("shop")


def test_a_failed_action_that_another_one_made_good_contradicts_nothing() -> None:
    again = PastAction(at=NOW, kind="redeployment", service="shop", tool_use_id="again")
    ends = (end("act", failed=True), end("again"))

    assert weighed(FINE, at("shop", after=2), ends=ends, actions=(RESTART, again)).lacks == ()
    # In whatever order they were asked for: what counts is which of them ended last.
    assert weighed(FINE, at("shop", after=2), ends=ends[::-1], actions=(RESTART, again)).lacks == (
        "the restart of shop ended in an error",
    )


def test_a_look_between_two_actions_is_not_one_after_the_last() -> None:
    again = PastAction(at=NOW, kind="restart", service="SHOP", tool_use_id="again")
    ends = (end("act"), end("look"), end("again"))

    assert weighed(FINE, at("shop", after=1), ends=ends, actions=(RESTART, again)).doubts("shop")
    assert not weighed(FINE, at("shop", after=3), ends=ends, actions=(RESTART, again)).doubts("shop")


def test_of_two_services_that_were_acted_upon_each_needs_its_own_look() -> None:
    photos = PastAction(at=NOW, kind="restart", service="photos", tool_use_id="act-2")
    said = report(check("shop"), check("photos"))
    proof = weighed(said, at("shop", after=2), ends=(end("act"), end("act-2")), actions=(RESTART, photos))

    assert proof.lacks == ("no look at photos came back after the last action",)
    assert (proof.doubts("shop"), proof.doubts("photos")) == (False, True)


def test_one_call_that_acts_on_two_services_is_two_actions() -> None:
    both = (RESTART, PastAction(at=NOW, kind="restart", service="photos", tool_use_id="act"))

    assert weighed(report(check("shop"), check("photos")), at("shop"), actions=both).services == ("photos",)
    assert weighed(report(check("shop"), check("photos")), at("shop", "photos"), actions=both).lacks == ()


def test_a_report_that_leaves_out_what_was_acted_upon_is_no_proof() -> None:
    proof = weighed(report(check("photos")), at("shop"), at("photos"))

    assert proof.lacks == ("shop was acted upon or found down, and is left out",)
    assert proof.services == ("shop",)


def test_a_service_that_is_still_called_broken_needs_no_look() -> None:
    """That nobody is asked for is another matter, and said elsewhere."""
    assert weighed(report(check("shop", ServiceStatus.DOWN)), ends=(end("act", failed=True),)).lacks == ()


def test_any_of_a_services_names_will_do() -> None:
    aliases = {"Webshop": "shop", "store": "shop"}

    assert weighed(report(check("STORE")), at("webshop"), other_names=aliases).lacks == ()
    assert weighed(report(check("store")), at("photos"), other_names=aliases).lacks != ()


# --- addresses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["http://shop:8080/health", "https://shop.example.com", "http://SHOP./"])
def test_a_host_that_is_called_like_the_service_is_the_service(url: str) -> None:
    assert weighed(FINE, asking(url)).lacks == ()


@pytest.mark.parametrize("url", [SHOP, "http://localhost:3000/health?full=1", "http://[::1]:3000"])
def test_an_address_that_an_earlier_session_told_of_is_the_services(url: str) -> None:
    assert weighed(FINE, asking(url), before=Background(statements=(SHOP_TOLD,))).lacks == ()


@pytest.mark.parametrize("url", ["http://127.0.0.1:3001/", "http://127.0.0.2:3000/", "https://127.0.0.1/"])
def test_any_other_address_is_not(url: str) -> None:
    assert weighed(FINE, asking(url), before=Background(statements=(SHOP_TOLD,))).doubts("shop")


def test_the_reports_own_words_tie_no_address_to_a_service() -> None:
    assert weighed(report(check("shop", detail=f"GET {SHOP} answered 200")), asking(SHOP)).doubts("shop")


def test_one_server_of_many_services_is_told_apart_by_the_path() -> None:
    told = (
        Statement(text="GET http://10.0.0.5/shop/ answered 502", service="shop"),
        Statement(text="GET http://10.0.0.5/photos answered 200", service="photos"),
    )
    before = Background(statements=told)

    assert weighed(FINE, asking("http://10.0.0.5/shop"), before=before).lacks == ()
    for url in ("http://10.0.0.5/photos", "http://10.0.0.5/", "http://10.0.0.5/shop/deeper"):
        assert weighed(FINE, asking(url), before=before).doubts("shop"), url


@pytest.mark.parametrize(
    ("text", "tied"),
    [
        (f"shop: GET {SHOP} refused", True),
        (f"restart the shop, then look at {SHOP}", True),
        ("shop: curl: (7) Failed to connect to 127.0.0.1 port 3000 after 0 ms", True),
        ("SHOP (127.0.0.1:3000) is down", True),
        (f"GET {SHOP} refused", False),
        (f"shop and photos: GET {SHOP} refused", False),
        (f"shop: GET {SHOP} refused, http://127.0.0.1:4000/ works", False),
        (f"webshop: GET {SHOP} refused", False),
    ],
)
def test_a_sentence_ties_an_address_to_the_one_service_that_it_names(text: str, tied: bool) -> None:
    before = Background(services=("photos", "webshop"), statements=(Statement(text=text),))

    assert weighed(FINE, asking(SHOP), before=before).doubts("shop") is not tied


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("GET http://shop.example.com:8080/a/b?c=d, answered", {("shop.example.com", 8080, "/a/b")}),
        ("https://shop.example.com.", {("shop.example.com", 443, "")}),
        ("(http://[::1]:90/)", {("localhost", 90, "")}),
        ("at 12:30:15 on 2026-03-01T12:30, see a:1 and 2:3", set()),
        ("db.internal:5432 and 10.0.0.1:99999", {("db.internal", 5432, "")}),
        ("http://:80/ http://x:0/ http://x:abc/ http:///p", set()),
        ("http://user:secret@shop/ \ud800", {("shop", 80, "")}),
    ],
)
def test_addresses_are_found_in_sentences(text: str, found: set[tuple[str, int, str]]) -> None:
    assert {(address.host, address.port, address.path) for address in addresses_in(text)} == found


@given(st.text(max_size=300))
def test_no_text_is_too_odd_to_be_searched_for_addresses(text: str) -> None:
    for address in addresses_in(f"http://{text} {text}:80"):
        assert 0 < address.port <= 65535


# --- what the chain has left ------------------------------------------------------------------------------


def past(session: int, service: str, status: ServiceStatus, detail: str | None = None) -> PastCheck:
    return PastCheck(session_id=session, service=service, status=status, detail=detail, at=NOW)


def left(checks: Sequence[PastCheck] = (), actions: Sequence[tuple[int, str]] = ()) -> Background:
    return background(
        checks=checks, actions=actions, handovers=(), request=None, names=KnownServices({"store": "shop"})
    )


def test_what_an_earlier_session_acted_on_is_open_until_a_session_showed_it_well() -> None:
    well = past(2, "Store", ServiceStatus.HEALTHY)

    assert left(actions=[(2, "shop")]).acted_on == ("shop",)
    assert left([well], [(2, "shop")]).acted_on == ()
    assert left([well], [(2, "shop"), (3, "shop")]).acted_on == ("shop",)
    assert left([past(2, "shop", ServiceStatus.DEGRADED)], [(2, "shop")]).acted_on == ("shop",)


def test_what_was_last_found_broken_is_open() -> None:
    down, well = (past(1, "shop", ServiceStatus.DOWN), past(2, "store", ServiceStatus.HEALTHY))

    assert left([down]).down == ("shop",)
    assert left([down, well]).down == ()
    assert left([well, down]).down == ("shop",)


def test_the_next_session_answers_for_what_the_one_before_it_did() -> None:
    acted = Background(acted_on=("shop",))

    assert weighed(FINE, at("photos"), ends=(), actions=(), before=acted).doubts("shop")
    assert weighed(report(check("photos")), at("photos"), ends=(), actions=(), before=acted).services == ("shop",)
    assert weighed(FINE, at("shop", after=0), ends=(), actions=(), before=acted).lacks == ()


def test_what_was_found_down_may_not_be_passed_over_in_silence() -> None:
    down = Background(down=("Shop",))

    assert weighed(report(check("photos")), at(), ends=(), actions=(), before=down).lacks == (
        "Shop was acted upon or found down, and is left out",
    )
    # It came back by itself, says whoever looked: nobody knows yet which look is one at a service like that.
    assert weighed(FINE, at(), ends=(), actions=(), before=down).lacks == ()


def test_everything_that_was_told_in_the_chain_is_kept() -> None:
    known = background(
        checks=[past(1, "shop", ServiceStatus.DOWN, "502"), past(1, "photos", ServiceStatus.HEALTHY)],
        actions=(),
        handovers=[Handover(reason="", findings="", failed_checks=("shop: 502",))],
        request="look at the shop",
        names=KnownServices({}),
    )

    assert known.statements == (
        Statement(text="502", service="shop"),
        Statement(text="shop: 502"),
        Statement(text="look at the shop"),
    )
    assert known.services == ("shop", "photos")


# --- what a whole round looks at --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    ["db", "DB ", "postgres-main", "nas/db", "project:media/db", "container:app/Postgres-Main", "db.service"],
)
def test_an_expected_service_is_reported_by_any_of_its_names(written: str) -> None:
    said = report(check("web"), check(written, ServiceStatus.DEGRADED))
    proof = weighed(said, at("web"), actions=(), expected=("web", "db"), other_names={"postgres-main": "db"})
    assert (proof.lacks, proof.services) == ((), ())


@pytest.mark.parametrize("written", ["dbx", "db2", "db/web", "web"])
def test_another_service_does_not_stand_for_it(written: str) -> None:
    proof = weighed(report(check(written)), at("web"), actions=(), expected=("db",))
    assert (proof.lacks, proof.services) == (("db is expected and left out",), ("db",))


def test_the_sentence_about_what_is_left_out_is_bounded() -> None:
    proof = weighed(report(check("web")), at("web"), actions=(), expected=[f"service-{n}" for n in range(500)])
    (lack,) = proof.lacks
    assert lack.endswith("service-9 and 490 more is expected and left out")
    assert len(lack) < 300


def test_what_is_left_out_casts_no_doubt_on_the_others() -> None:
    proof = weighed(report(check("web")), at("web"), actions=(), expected=("web", "db"))
    assert not proof.doubts("web")
