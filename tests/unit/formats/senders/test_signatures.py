"""Who has signed a body: vectors, and everything that must not count as a signature."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest

from claudeops.domain.alerts.rules import AlertSource, SenderKind
from claudeops.formats.senders import is_signed

BODY = b'{"alerts":[{"status":"firing"}]}'
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = str(int(NOW.timestamp()))
OLD, NEW = "old-secret-0123456789", "new-secret-0123456789"

GRAFANA = AlertSource(name="g", kind=SenderKind.GRAFANA)
TIMED = AlertSource(name="g", kind=SenderKind.GRAFANA, timestamp_header="X-Signed-At")
PAGERDUTY = AlertSource(name="p", kind=SenderKind.PAGERDUTY)
GENERIC = AlertSource(name="o", kind=SenderKind.GENERIC)


def mac(content: bytes, secret: str = NEW) -> str:
    return hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()


def stamped(stamp: str, secret: str = NEW) -> str:
    return f"t={stamp},v1={mac(stamp.encode() + b'.' + BODY, secret)}"


def signed(source: AlertSource, headers: dict[str, str], *secrets: str, body: bytes = BODY, late: float = 0.0) -> bool:
    return is_signed(source, body, headers, secrets or (OLD, NEW), now=NOW + timedelta(seconds=late))


GOOD = [
    (GRAFANA, {"x-grafana-alerting-signature": mac(BODY)}),
    (GRAFANA, {"x-grafana-alerting-signature": mac(BODY, OLD).upper()}),
    (TIMED, {"x-grafana-alerting-signature": mac(STAMP.encode() + b":" + BODY), "x-signed-at": STAMP}),
    (PAGERDUTY, {"x-pagerduty-signature": f"v1={mac(BODY)}"}),
    (PAGERDUTY, {"x-pagerduty-signature": f"v1={'0' * 64}, v1={mac(BODY, OLD)},v2=x"}),
    (GENERIC, {"x-claudeops-signature": stamped(STAMP)}),
    (GENERIC, {"x-claudeops-signature": f"v1={'0' * 64},{stamped(STAMP, OLD)}"}),
]


@pytest.mark.parametrize(("source", "headers"), GOOD)
def test_what_the_sender_signs_is_accepted(source: AlertSource, headers: dict[str, str]) -> None:
    assert signed(source, headers)


@pytest.mark.parametrize(("source", "headers"), GOOD)
def test_another_body_another_secret_or_none_is_refused(source: AlertSource, headers: dict[str, str]) -> None:
    assert not signed(source, headers, body=BODY + b" ")
    assert not signed(source, headers, "another-secret-0123")
    assert not is_signed(source, BODY, headers, (), now=NOW)
    assert not is_signed(source, BODY, headers, ("",), now=NOW)
    assert not signed(source, {})


def test_an_empty_secret_signs_nothing() -> None:
    assert not signed(PAGERDUTY, {"x-pagerduty-signature": f"v1={mac(BODY, '')}"}, "")


@pytest.mark.parametrize("late", [-301.0, 301.0, 86400.0])
def test_a_replay_is_refused(late: float) -> None:
    assert not signed(GENERIC, {"x-claudeops-signature": stamped(STAMP)}, late=late)
    timed = {"x-grafana-alerting-signature": mac(STAMP.encode() + b":" + BODY), "x-signed-at": STAMP}
    assert not signed(TIMED, timed, late=late)


@pytest.mark.parametrize("late", [-299.0, 0.0, 299.0])
def test_a_clock_that_is_a_little_off_is_forgiven(late: float) -> None:
    assert signed(GENERIC, {"x-claudeops-signature": stamped(STAMP)}, late=late)


def test_a_time_that_is_not_signed_counts_for_nothing() -> None:
    fresh = str(int(NOW.timestamp()) + 400)
    old = stamped(STAMP)
    assert not signed(GENERIC, {"x-claudeops-signature": old.replace(STAMP, fresh)}, late=400)
    body_alone = {"x-grafana-alerting-signature": mac(BODY), "x-signed-at": STAMP}
    assert not signed(TIMED, body_alone)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t=,v1=",
        "v1=" + "0" * 64,
        f"t={STAMP}",
        f"t={STAMP},t={STAMP},v1={mac(STAMP.encode() + b'.' + BODY)}",
        f"t=-{STAMP},v1=x",
        f"t=\u0660,v1={mac(BODY, 'x')}",
        f"t={'9' * 5000},v1=x",
        "t=1e9,v1=x",
        f"t={STAMP},v1=\udc80ü",
        ",".join([f"t={STAMP}"] + ["v1=0"] * 5000),
    ],
)
def test_a_header_that_is_no_signature_is_refused(header: str) -> None:
    assert not signed(GENERIC, {"x-claudeops-signature": header})
    assert not signed(PAGERDUTY, {"x-pagerduty-signature": header})
    assert not signed(GRAFANA, {"x-grafana-alerting-signature": header})
    assert not signed(TIMED, {"x-grafana-alerting-signature": header, "x-signed-at": header})


@pytest.mark.parametrize("kind", [SenderKind.ALERTMANAGER, SenderKind.UPTIME_KUMA, SenderKind.HEALTHCHECKS])
def test_a_kind_that_signs_nothing_is_never_signed(kind: SenderKind) -> None:
    assert not signed(AlertSource(name="x", kind=kind), {"x-claudeops-signature": stamped(STAMP)})


def test_the_header_may_have_another_name() -> None:
    source = AlertSource(name="g", kind=SenderKind.GRAFANA, signature_header="X-Ours")
    assert signed(source, {"x-ours": mac(BODY)})
    assert not signed(source, {"x-grafana-alerting-signature": mac(BODY)})
