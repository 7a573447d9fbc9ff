"""What sentences forbid: their verb and the names in them, nothing else; and what a gate cannot do is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.estate.model import Service, Source
from claudeops.domain.estate.rules import Names, forbids, read_rule

SOURCE = Source(path="r/CLAUDE-OPS.md", line=1)
NAMES = Names(
    [
        Service(name="shop", host="web1", source=SOURCE),
        Service(name="orders-db", kind="postgres", host="db1", aliases=("pg-main",), source=SOURCE),
        Service(name="cache", kind="redis", source=SOURCE),
        Service(name="payroll", host="web2", source=SOURCE),
        Service(name="Payment API", source=SOURCE),
    ]
)

FORBIDDEN = {
    "never restart the database": "restart: orders-db",
    "Never restart pg-main, it takes an hour to recover.": "restart: orders-db",
    "do not redeploy shop": "redeployment: shop",
    "no restarts of db or cache": "restart: orders-db cache",
    "don't touch payroll": "every: payroll",
    "don\u2019t touch payroll": "every: payroll",
    "never restart anything here": "restart: *",
    "Please do not restart or redeploy `shop`.": "restart redeployment: shop",
    "never stop, restart or upgrade the databases": "restart redeployment: orders-db",
    "db must not be restarted": "restart: orders-db",
    "payroll must never be touched": "every: payroll",
    "shop is never restarted by agents": "restart: shop",
    "payroll is off limits": "every: payroll",
    "payroll: hands off": "every: payroll",
    "payroll: do not restart": "restart: payroll",
    "leave payroll alone": "every: payroll",
    "restarting the database is not allowed": "restart: orders-db",
    "Restarts of cache are forbidden.": "restart: cache",
    "never restart anything except shop": "restart: orders-db cache payroll Payment API",
    "never touch anything on web2": "every: payroll",
    "Never reboot web1": "restart: shop",
    "never restart the payment API or shop; redeploys are fine": "restart: Payment API shop",
    "Do not restart the shop but do redeploy it": "restart: shop",
    "never roll back shop": "redeployment: shop",
    "Nothing here may be restarted": "restart: *",
    "Never, ever restart payroll": "restart: payroll",
    "you must never restart the unknown-thing": "restart: unknown-thing",
    "no restarts": "restart: *",
    "do NOT restart `orders-db` (takes an hour, never mind why)": "restart: orders-db",
    "Never restart shop. Never redeploy cache.": "restart: shop | redeployment: cache",
}
ALLOWED = [
    "shop may be restarted at any time",
    "The shop never restarts cleanly",
    "never delete volumes",
    "Never change the DNS",
    "restart shop when it hangs",
    "not everything needs a restart",
    "",
    "never",
]
CONDITIONAL = {
    "never restart shop during business hours": "restart: shop",
    "do not restart shop without asking Anna first": "restart: shop",
    "No deployments on Fridays.": "redeployment: *",
    "never redeploy shop unless somebody asked": "redeployment: shop",
}
NOT_ENFORCED = [
    "never restart shop more than twice a day",
    "only restart shop when asked",
    "restart shop only at night",
    "Never restart what all of us forgot the name of",
]


def told(text: str) -> str:
    reading = read_rule(text, NAMES)
    return " | ".join(f"{' '.join(ban.kinds) or 'every'}: {' '.join(ban.services)}" for ban in reading.bans)


@pytest.mark.parametrize(("text", "expected"), FORBIDDEN.items(), ids=FORBIDDEN)
def test_a_clear_sentence_forbids(text: str, expected: str) -> None:
    assert told(text) == expected
    assert read_rule(text, NAMES).unclear is None


@pytest.mark.parametrize("text", ALLOWED)
def test_what_forbids_no_action_forbids_none_and_is_no_fault(text: str) -> None:
    reading = read_rule(text, NAMES)
    assert (reading.bans, reading.unclear) == ((), None)


@pytest.mark.parametrize(("text", "expected"), CONDITIONAL.items(), ids=CONDITIONAL)
def test_a_condition_that_no_gate_can_judge_narrows_more_and_is_told(text: str, expected: str) -> None:
    assert told(text) == expected
    assert "denied always" in (read_rule(text, NAMES).unclear or "")


@pytest.mark.parametrize("text", NOT_ENFORCED)
def test_a_rule_about_an_action_that_is_not_enforced_is_told(text: str) -> None:
    reading = read_rule(text, NAMES)
    assert reading.bans == ()
    assert "does not enforce" in (reading.unclear or "")


def test_it_means_the_service_in_whose_section_it_stands() -> None:
    reading = read_rule("Never restart it.", NAMES, about="cache")
    assert [ban.services for ban in reading.bans] == [("cache",)]
    assert read_rule("Never restart it.", NAMES).unclear is not None


def test_below_never_a_rule_needs_no_never() -> None:
    (ban,) = read_rule("restart the cache", NAMES, forbidden=True).bans
    assert (ban.services, ban.kinds) == (("cache",), ("restart",))


@pytest.mark.parametrize(
    ("text", "is_rule"),
    [
        ("Never restart shop", True),
        ("shop must not be redeployed", True),
        ("It never rains", False),
        ("shop is up", False),
    ],
)
def test_prose_is_a_rule_only_when_it_says_so_plainly(text: str, is_rule: bool) -> None:
    assert forbids(text) is is_rule


@given(
    st.lists(
        st.sampled_from([*" ".join([*FORBIDDEN, *CONDITIONAL, *NOT_ENFORCED]).split(), "(", ")", ",", "."]), max_size=30
    )
)
def test_no_order_of_words_allows_anything_or_stops_the_reader(chosen: list[str]) -> None:
    reading = read_rule(" ".join(chosen), NAMES)
    for ban in reading.bans:
        assert ban.services
        assert set(ban.kinds) <= {"restart", "redeployment"}
