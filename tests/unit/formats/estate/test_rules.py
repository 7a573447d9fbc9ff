"""What forbids by its form: the words, the cells and fields they stand in, and the services that a rule names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.estate.estate import Service, StatementSource
from claudeops.formats.estate.rules import (
    ManifestNames,
    cell_forbids,
    forbids,
    heads_prohibitions,
    read_rule,
    reads_as_prohibition,
)

SOURCE = StatementSource(path="r/CLAUDE-OPS.md", line=1)
SERVICES = [
    Service(name="shop", host="web1", source=SOURCE),
    Service(name="orders-db", kind="postgres", host="db1", aliases=("pg-main",), source=SOURCE),
    Service(name="cache", kind="redis", source=SOURCE),
    Service(name="payroll", host="web2", source=SOURCE),
    Service(name="Payment API", source=SOURCE),
]
NAMES = ManifestNames(SERVICES)

# --- words in what belongs to one service -------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "never",
        "Never!",
        "**NEVER**",
        "`never`",
        "no",
        "DO NOT RESTART, ask first",
        "do NOT restart without asking",
        "never restart (sealed afterwards!)",
        "don't restart, devices lose pairing",
        "don\u2019t touch",
        "must not be restarted",
        "mustn't be stopped",
        "can't be restarted while scanning",
        "cannot be redeployed",
        "ask first",
        "ask Anna first",
        "Ask before you restart it",
        "not without a backup",
        "hands off",
        "leave it alone",
        "off limits",
        "restarts are forbidden",
        "avoid restarts",
        "nobody restarts this",
        "tags: no-restart, prod",
        "do-not-touch",
        "Backed up at night.\nNever restart by hand",
        "word " * 900 + "never",
        "_never_",
        "__no__",
        "__Never restart__",
        "_Never_ restart it",
        "_don't_ touch",
        "__Ask__ first",
        "**N**o",
        "hands-off",
        "hands_off",
        "Off-limits!",
        "keep-away",
        "ask-first",
        "do_not_restart",
        "\N{NO ENTRY}",
        "\N{NO ENTRY SIGN} restart",
        "\N{CROSS MARK} restart",
        "\N{HEAVY MULTIPLICATION X}\ufe0f",
        "sealed \N{OCTAGONAL SIGN}",
    ],
)
def test_each_of_the_words_forbids(text: str) -> None:
    assert forbids(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "docker restart redis",
        "`docker compose up -d --no-deps shop`",
        "docker compose up -d --no-deps shop",
        "https://shop.example.org/never/no",
        "no-reply@example.org",
        "a note about notes, and another knot",
        "systemctl restart shop",
        "not everything needs it",
        "`curl --fail no.example.org`",
        "restart it when it hangs",
        "_note_ the knot_no1",
        "\N{CROSS MARK} mail, broken since May",
        "\N{BALLOT BOX} upgrade to version 3",
        "hand off to Anna",
        "check first",
    ],
)
def test_nothing_else_forbids(text: str) -> None:
    assert not forbids(text)


FORBIDDING_CELLS = [
    ("Restart", "never"),
    ("Restart", "no"),
    ("restart", "No."),
    ("How to restart", "ask first"),
    ("Restart", "false"),
    ("Restart?", "❌"),
    ("Auto-restart", "no"),
    ("May be restarted", "no"),
    ("Restartable", "no"),
    ("Reboot", "not without Anna"),
    ("Deploy", "never on its own"),
    ("Actions allowed", "no"),
    ("Never", "restart"),
    ("Do not", "touch"),
    ("Do not restart", "yes"),
    ("Never restart", "x"),
    ("Ask first", "true"),
    ("Rules", "never restart"),
    ("Notes", "DO NOT RESTART, ask first"),
    ("Note", "don't restart, devices lose pairing"),
    ("Remarks", "hands off"),
    ("Comment", "not critical"),
    ("Owner", "Anna, never act without her"),
    ("Backup", "no, so never restart it"),
    ("Public", "no: do not restart"),
    ("Normal", "200; do not restart it if it is slow"),
    ("Host", "db1 (never reboot)"),
    ("depends on", "db, ask first"),
    ("Actions", "no"),
    ("Actions", "not without a backup"),
    ("Actions", "none"),
    ("Allowed actions", "None."),
    ("Permitted", "nothing"),
    ("Allowed", "nil"),
    ("May be restarted", "nobody"),
    ("Allowed", "none, ask Anna"),
    ("Allowed", "[]"),
    ("Restart", "_never_"),
    ("Restart", "__no__"),
    ("Notes", "__Never restart__"),
    ("Restart", "hands-off"),
    ("Restart", "ask-first"),
    ("hands-off", "true"),
    ("off_limits", "yes"),
    *(
        ("Restart allowed", sign)
        for sign in ["\u2716", "\u2716\ufe0f", "\u2612", "\u2610", "\U0001f6d1", "\u2298", "\u274e", "\u2715"]
    ),
    ("Restart", "\u2716\ufe0f (Anna)"),
    ("Restart allowed", "[ ]"),
    ("Notes", "\u26d4"),
]
DATA = [
    ("Public", "no"),
    ("Backup", "no"),
    ("Backup", "not needed"),
    ("Monitored", "not yet"),
    ("TLS", "no, internal only"),
    ("Exposed", "never"),
    ("Owner", "Anna"),
    ("No.", "7"),
    ("No", "never mind"),
    ("Notes", "no"),
    ("Notes", "-"),
    ("Notes", "none"),
    ("Restart", "none"),
    ("Restart", "-"),
    ("Restart", ""),
    ("Restart", "docker restart redis"),
    ("Restart", "yes"),
    ("Ask first", "no"),
    ("Do not restart", ""),
    ("Never", "-"),
    ("Normal", "no errors"),
    ("Normal", "lag never above 5 s, not more than 3 queued"),
    ("Check", "`curl --no-progress-meter https://no.example.org/`"),
    ("Depends on", "no"),
    ("Maintenance", "never"),
    ("Rules", "tell a person"),
    ("Not monitored", "yes"),
    ("Public", "\u274c"),
    ("Backup", "\U0001f6ab"),
    ("Notes", "\u274c"),
    ("Restart allowed", "[x]"),
    ("Restart allowed", "\u2705"),
    ("Restart policy", "none"),
    ("Backup agent", "none"),
    ("Actions", "-"),
]


@pytest.mark.parametrize(("key", "text"), FORBIDDING_CELLS)
def test_a_cell_or_field_of_a_service_forbids(key: str, text: str) -> None:
    assert cell_forbids(key, text)


@pytest.mark.parametrize(("key", "text"), DATA)
def test_a_cell_or_field_that_is_plain_data_forbids_nothing(key: str, text: str) -> None:
    assert not cell_forbids(key, text)


# --- rules of lists -----------------------------------------------------------------------------------

FORBIDDEN = {
    "never restart the database": "orders-db",
    "Never restart pg-main, it takes an hour to recover.": "orders-db",
    "do not redeploy shop": "shop",
    "no restarts of db or cache": "orders-db cache",
    "don't touch payroll": "payroll",
    "never restart anything here": "*",
    "Please do not restart or redeploy `shop`.": "shop",
    "never stop, restart or upgrade the databases": "orders-db",
    "db must not be restarted": "orders-db",
    "payroll must never be touched": "payroll",
    "shop is never restarted by agents": "shop",
    "payroll is off limits": "payroll",
    "payroll: hands off": "payroll",
    "leave payroll alone": "payroll",
    "Restarts of cache are forbidden.": "cache",
    "never touch anything on web2": "payroll",
    "Never reboot web1": "shop",
    "never restart the payment API or shop; redeploys are fine": "Payment API shop",
    "Do not restart the shop but do redeploy it": "shop",
    "Nothing here may be restarted": "*",
    "you must never restart the unknown-thing": "unknown-thing",
    "no restarts": "*",
    "do NOT restart `orders-db` (takes an hour, never mind why)": "orders-db",
    "Never restart shop. Never redeploy cache.": "shop cache",
    "If in doubt, never restart shop": "shop",
    "never change cache": "cache",
    "never stop shop/cache": "shop cache",
    "ask Anna first about payroll": "payroll",
}
ALLOWED = [
    "shop may be restarted at any time",
    "never delete volumes",
    "Never change the DNS",
    "restart shop when it hangs",
    "",
    "never",
]
CONDITIONAL = {
    "never restart shop during business hours": "shop",
    "do not restart shop without asking Anna first": "shop",
    "No deployments on Fridays.": "*",
    "never redeploy shop unless somebody asked": "shop",
    "never restart anything except shop": "*",
}
NOT_ENFORCED = ["only restart shop when asked", "restart shop only at night", "Never restart it."]


@pytest.mark.parametrize(("text", "expected"), FORBIDDEN.items(), ids=FORBIDDEN)
def test_a_rule_forbids_every_action_on_the_services_that_it_names(text: str, expected: str) -> None:
    reading = read_rule(text, NAMES)
    assert (" ".join(reading.services), reading.fault) == (expected, None)


@pytest.mark.parametrize("text", ALLOWED)
def test_what_forbids_no_action_forbids_none_and_is_no_fault(text: str) -> None:
    reading = read_rule(text, NAMES)
    assert (reading.services, reading.fault) == ((), None)


@pytest.mark.parametrize(("text", "expected"), CONDITIONAL.items(), ids=CONDITIONAL)
def test_a_condition_that_no_gate_can_judge_narrows_more_and_is_named(text: str, expected: str) -> None:
    reading = read_rule(text, NAMES)
    assert " ".join(reading.services) == expected
    assert "denied always" in (reading.fault or "")


@pytest.mark.parametrize("text", NOT_ENFORCED)
def test_a_rule_about_an_action_that_is_not_enforced_is_named(text: str) -> None:
    reading = read_rule(text, NAMES)
    assert reading.services == ()
    assert "forbids nothing" in (reading.fault or "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("restart the cache", "cache"),
        ("cache", "cache"),
        ("shop, payroll or db", "shop payroll orders-db"),
        ("restart databse", "databse"),
        ("restart", "*"),
        ("touch anything", "*"),
        ("redeploy shop or ledger", "shop ledger"),
        ("restart shop (devices lose pairing)", "shop"),
        ("change the DNS", "dns"),
        ("reindex payroll because month end is near", "payroll"),
        ("__restart__ _cache_", "cache"),
        ("\U0001f6ab shop", "shop"),
        ("shop \u26d4 cache \u26d4", "shop cache"),
        ("restart shop, never mind payroll", "shop payroll"),
        ("restart stop-it or no_stop", "stop-it no_stop"),
    ],
)
def test_below_never_a_rule_needs_no_never(text: str, expected: str) -> None:
    names = ManifestNames([*SERVICES, *(Service(name=name, source=SOURCE) for name in ("stop-it", "no_stop"))])
    assert " ".join(read_rule(text, names, forbidden=True).services) == expected


INVERTED = [
    "restart anything other than cache",
    "restart anything else than cache",
    "everything besides cache",
    "anything that is not cache",
    "anything which isn't cache",
    "restart services that are not cache",
    "services which aren't called cache",
    "anything apart from cache",
    "all services aside from cache and shop",
    "touch everything save cache",
    "everything save for cache",
    "any other service than cache",
    "every service but cache",
    "all but cache",
    "everything excluding cache",
    "all containers with the exception of cache",
    "restart anything except cache",
    "nothing but cache may be restarted",
]


@pytest.mark.parametrize("text", INVERTED)
def test_whatever_is_not_one_service_is_every_service_and_the_exception_is_named(text: str) -> None:
    reading = read_rule(text, NAMES, forbidden=True)
    assert reading.services == ("*",)
    assert "denied always" in (reading.fault or "")


@pytest.mark.parametrize(
    "text", ["Never restart anything other than cache", "Do not touch services that are not cache"]
)
def test_a_rule_with_its_never_is_read_the_same_way(text: str) -> None:
    assert read_rule(text, NAMES).services == ("*",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the shop service, not cache", "shop cache"),
        ("restart services of shop other than cache", "shop cache"),
        ("restart shop at any time other than Sunday", "shop"),
    ],
)
def test_an_exception_from_less_than_everything_takes_no_name_away(text: str, expected: str) -> None:
    assert set(expected.split()) <= set(read_rule(text, NAMES, forbidden=True).services)


def test_a_rule_of_a_service_is_about_it_and_about_those_that_it_names_too() -> None:
    assert read_rule("Never restart it.", NAMES, about="cache").services == ("cache",)
    assert read_rule("restart", NAMES, about="cache", forbidden=True).services == ("cache",)
    assert read_rule("never restart shop first", NAMES, about="cache").services == ("cache", "shop")


def test_a_service_that_is_called_like_an_action_hides_no_other() -> None:
    names = ManifestNames([Service(name="Restart", source=SOURCE), Service(name="db", source=SOURCE)])
    assert read_rule("never restart db", names).services == ("db",)
    assert read_rule("never restart ledger", names).services == ("ledger",)
    assert read_rule("never touch restart", names).services == ("Restart",)


# --- prose --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_prohibition"),
    [
        ("Never restart shop", True),
        ("\u26a0\ufe0f Never restart the NAS", True),
        ("Never, under any circumstances, power cycle the NAS", True),
        ("shop must not be redeployed", True),
        ("Please ask Anna before restarting mqtt", True),
        ("Hands off the core switch", True),
        ("Restarting the UPS is forbidden", True),
        ("Never change shop", True),
        ("Nobody may reboot the hypervisor", True),
        ("Actions: not without a backup", True),
        ("**Restart:** no", True),
        ("__Never restart__", True),
        ("Allowed actions: none", True),
        ("\U0001f6ab restart shop", True),
        ("Backup: not without a tape", False),
        ("Never change the DNS", False),
        ("It never rains", False),
        ("It never restarts by itself", False),
        ("shop is up, and not slow", False),
        ("Do read the runbook before lunch", False),
        ("The service was not found in the old wiki", False),
    ],
)
def test_prose_reads_like_a_prohibition_when_it_says_never_of_an_action(text: str, is_prohibition: bool) -> None:
    assert reads_as_prohibition(text, NAMES) is is_prohibition


@pytest.mark.parametrize(
    ("text", "heads"),
    [
        ("Never", True),
        ("NEVER!", True),
        ("\u26d4 Never", True),
        ("\U0001f6ab Do not touch", True),
        ("Do not", True),
        ("Don'ts", True),
        ("Forbidden", True),
        ("Not allowed", True),
        ("Off limits", True),
        ("Sessions must not:", True),
        ("Do not restart", True),
        ("Never touch these", True),
        ("Ask first", True),
        ("Hands off", True),
        ("Hands-off", True),
        ("__Never__", True),
        ("Keep away from", True),
        ("Agents must never do this:", True),
        ("What you must not do", True),
        ("Don't restart without asking", True),
        ("Known issues that are not fixed", False),
        ("Not monitored", False),
        ("Notes", False),
        ("", False),
        ("shop", False),
        ("Vault (never restart)", False),
    ],
)
def test_a_heading_announces_what_must_not_be_done(text: str, heads: bool) -> None:
    assert heads_prohibitions(text) is heads


@given(
    st.lists(
        st.sampled_from([*" ".join([*FORBIDDEN, *CONDITIONAL, *NOT_ENFORCED]).split(), "(", ")", ",", "."]), max_size=30
    ),
    st.booleans(),
)
def test_no_order_of_words_stops_the_reader_or_forbids_without_a_name(chosen: list[str], forbidden: bool) -> None:
    reading = read_rule(" ".join(chosen), NAMES, forbidden=forbidden)
    assert all(reading.services)
    assert reading.services == tuple(dict.fromkeys(reading.services))
