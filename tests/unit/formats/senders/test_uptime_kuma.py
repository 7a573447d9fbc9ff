"""Uptime Kuma's messages without a heartbeat: none about a monitor is lost, and no pause is an alert."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from claudeops.domain.alerts.alert import Alert, ReportedState, SenderBody
from claudeops.domain.alerts.rules import AlertSource, SenderKind
from claudeops.domain.events import EventLevel
from claudeops.formats.senders import read

RECEIVED = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
KUMA = AlertSource(name="kuma", kind=SenderKind.UPTIME_KUMA, default_severity=EventLevel.CRITICAL)
F, R = ReportedState.FIRING, ReportedState.RESOLVED
C = EventLevel.CRITICAL


def delivered(text: str, source: AlertSource = KUMA) -> SenderBody:
    body = msgspec.json.encode({"heartbeat": None, "monitor": None, "msg": text})
    found = read(source, body, received_at=RECEIVED)
    assert isinstance(found, SenderBody), found
    return found


def only(text: str, source: AlertSource = KUMA) -> Alert:
    (alert,) = delivered(text, source).alerts
    return alert


# --- what names no monitor in brackets ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fires", "over"),
    [
        ("shop is down", "shop is up"),
        ("shop: 🔴 Down", "shop: ✅ Up"),
        ("shop 🔴 Down", "shop ✅ Up"),
        ("shop - 🔴 Down", "shop - ✅ Up"),
        ("shop (🔴 Down)", "shop (✅ Up)"),
        ("shop is 🔴 Down", "shop is ✅ Up"),
        ("🔴 Down: shop", "✅ Up: shop"),
        ("🔴 Down shop", "✅ Up shop"),
        ("[🔴 Down] shop", "[✅ Up] shop"),
        ("[DOWN] shop", "[UP] shop"),
        ("🔴 shop", "✅ shop"),
        ("shop went down", "shop is back online"),
    ],
)
def test_a_text_about_a_monitor_fires_and_ends_one_alert(fires: str, over: str) -> None:
    one, two = only(fires), only(over)
    assert (one.state, two.state, one.fingerprint) == (F, R, two.fingerprint)
    assert (one.name, one.service, one.severity, dict(one.labels)) == ("shop", "shop", C, {"monitor": "shop"})
    assert one.annotations["summary"] == fires


@pytest.mark.parametrize(
    "text",
    [
        "Domain name shop.example will expire in 20 days",
        "Server certificate shop.example will expire in 3 days",
        "the backup is 30 hours old",
        "hello",
        "3 pending updates",
        "the maintenance of shop has taken 3 hours",
        "pending: none, and 3 errors",
        "[",
        "]]] [[[",
        "[]",
        "[shop]",
    ],
)
def test_a_text_that_says_no_state_is_a_warning(text: str) -> None:
    alert = only(text)
    assert (alert.state, alert.name, alert.severity, alert.annotations["summary"]) == (
        F,
        text,
        EventLevel.WARNING,
        text,
    )


@pytest.mark.parametrize(
    "text",
    [
        "Domain name shop.example will expire in {} days",
        "Domain name shop.example will expire in {}d.",
        "Die Domain shop.example endet in {} Tagen",
        "The disk of nas has {} % left",
        "Backup of nas: {} hours old",
        "[Shop] Domain name shop.example will expire in {} days",
        "[[prod] shop][https://shop.example] Server certificate shop.example will expire in {} days",
    ],
)
def test_a_number_that_passes_makes_no_other_alert_and_no_other_service(text: str) -> None:
    one, two = only(text.format(20)), only(text.format(7))
    assert (one.fingerprint, one.service) == (two.fingerprint, two.service)


@pytest.mark.parametrize(
    "texts",
    [
        ("Domain name shop1.example will expire in 7 days", "Domain name shop2.example will expire in 7 days"),
        ("Domain name a.example will expire in 7 days", "Domain name b.example will expire in 7 days"),
        ("Server 1 has a certificate that ends in 7 days", "Server 2 has a certificate that ends in 7 days"),
        ("Shop 1: 🔴 Down", "Shop 2: ✅ Up"),
        ("shop 3h: 🔴 Down", "shop 6h: ✅ Up"),
        ("10.0.0.1 is down", "10.0.0.2 is up"),
        ("[prod] shop is down", "[prod] blog is up"),
        ("[Uptime Kuma] shop 🔴 Down", "[Uptime Kuma] blog ✅ Up"),
        ("[prod] [shop] [🔴 Down] timeout", "[test] [shop] [✅ Up] 200 - OK"),
        (
            "[Shop] certificate web1.example will expire in 7 days",
            "[Shop] certificate web2.example will expire in 7 days",
        ),
    ],
)
def test_what_differs_in_more_than_that_is_another_alert(texts: tuple[str, str]) -> None:
    one, two = map(only, texts)
    assert one.fingerprint != two.fingerprint


def test_the_words_of_the_operator_say_a_state_here_too() -> None:
    own = AlertSource(name="k", kind=SenderKind.UPTIME_KUMA, firing_words=("Störung",), over_words=("behoben",))
    for fires, over in (("shop: Störung", "shop: behoben"), ("[shop] [Störung] timeout", "[shop] [behoben] 200")):
        one, two = only(fires, own), only(over, own)
        assert (one.state, two.state, one.fingerprint, one.name) == (F, R, two.fingerprint, "shop")


# --- names in brackets -------------------------------------------------------------------------------------

NAMES = [
    "shop",
    "[prod] shop",
    "shop [prod]",
    "[prod] [eu] shop",
    "a]b",
    "a[b",
    "a] b",
    "]",
    "[",
    "Up",
    "Pending",
    "shop 2",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_may_have_brackets_before_a_state(name: str) -> None:
    down, up = only(f"[{name}] [🔴 Down] timeout of 48000ms exceeded"), only(f"[{name}] [✅ Up] 200 - OK")
    assert (down.state, up.state, down.fingerprint) == (F, R, up.fingerprint)
    assert (down.name, down.service, down.severity) == (name, name, C)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("url", ["https://shop.example", "http://[2001:db8::1]:8443/a", "https://shop.example/?a[]=1"])
def test_a_name_may_have_brackets_before_an_address(name: str, url: str) -> None:
    alert = only(f"[{name}][{url}] Server certificate shop.example will expire in 7 days")
    assert (alert.state, alert.name, alert.url, alert.severity) == (F, name, url, EventLevel.WARNING)


def test_what_a_template_puts_before_a_message_is_no_part_of_the_name() -> None:
    down, up = (
        only("[Uptime Kuma] [[prod] shop] [🔴 Down] timeout"),
        only("[Uptime Kuma] [[prod] shop] [✅ Up] 200 - OK"),
    )
    assert (down.name, down.fingerprint, up.state) == ("[prod] shop", up.fingerprint, R)


# --- what is no alert --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state", ["🔧 Maintenance", "⚠️ Pending", "🟡 Pending", "Pending", "MAINTENANCE", "In maintenance"]
)
@pytest.mark.parametrize(
    "text",
    [
        *("[shop] [{}]", "[shop] [{}] Monitor under maintenance", "[[prod] shop] [{}] the host is down", "[shop] {}"),
        *("shop: {}", "shop - {}", "shop ({})", "[{}]", "{}"),
    ],
)
def test_a_monitor_that_is_pending_or_in_maintenance_is_a_remark(text: str, state: str) -> None:
    found = delivered(text.format(state))
    assert found.alerts == ()
    assert state in found.remark


@pytest.mark.parametrize(
    "text",
    [
        "[shop] [🔴 Down] pending",
        "[shop] [🔴 Down] 🔧 Maintenance: Monitor is late",
        "Maintenance: shop is down",
        "[Maintenance][https://shop.example] Server certificate shop.example will expire in 7 days",
        "[Pending] Server certificate shop.example will expire in 7 days",
        "[shop] 3 updates are pending",
    ],
)
def test_an_alert_that_only_mentions_a_pause_fires(text: str) -> None:
    assert only(text).state is F


@pytest.mark.parametrize("text", ["claudeops Testing", "[Ops] Testing", "shop is down Testing", "[a] [b] Testing"])
def test_the_text_of_a_test_button_is_a_remark(text: str) -> None:
    found = delivered(text)
    assert (found.alerts, found.remark) == ((), f"Uptime Kuma says: {text}")


@pytest.mark.parametrize(
    "text", ["[" * 9000, "[x] " * 900, "[x]" * 900, "[" * 700 + "]" * 700, "1 " * 900, "🔴 Down " * 200]
)
def test_a_text_that_is_made_to_be_long_to_read_is_an_alert(text: str) -> None:
    assert only(text).state is F
