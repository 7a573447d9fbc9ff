"""Which words are an end: one that is missed wakes people for nothing, one that is none lets them sleep."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from claudeops.domain.alerts.alert import Alert, ReportedState, SenderBody, Unparsed
from claudeops.domain.alerts.rules import AlertSource, SenderKind
from claudeops.domain.events import EventLevel
from claudeops.formats.senders import read
from claudeops.formats.senders.words import MOST_LOOKED_AT, state_in, status_of, without_state, words_of

RECEIVED = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
F, R = ReportedState.FIRING, ReportedState.RESOLVED
USUAL = words_of(AlertSource(name="x"))
OWN = words_of(
    AlertSource(
        name="x",
        firing_words=("Störung", "异常", "closed"),
        over_words=("Behoben", "Spaß ist zurück", "läuft wieder", "恢复", "🎉", "no data"),
    )
)


def delivered(content: object, kind: SenderKind = SenderKind.GENERIC, **source: object) -> SenderBody:
    body = msgspec.json.encode(content)
    found = read(AlertSource(name="test", kind=kind, **source), body, received_at=RECEIVED)  # type: ignore[arg-type]
    assert isinstance(found, SenderBody), found
    return found


def only(content: object, kind: SenderKind = SenderKind.GENERIC, **source: object) -> Alert:
    (alert,) = delivered(content, kind, **source).alerts
    return alert


# --- a status field ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("✅ Up", R),
        ("🔴 Down", F),
        ("UP", R),
        (" Resolved ", R),
        ("recovered ✔️", R),
        ("[✅ Up]", R),
        ("🟢 OK", R),
        ("✅", R),
        ("❌", F),
        ("is up", R),
        ("Up 3 hours (healthy)", R),
        ("DOWN for 5m", F),
        ("not ok", F),
        ("OK -> CRITICAL", F),
        ("Firing", F),
        ("puce", None),
        ("", None),
        (True, None),
        (1, None),
        (None, None),
        (["up"], None),
    ],
)
def test_a_status_is_understood_through_its_decoration(status: object, said: ReportedState | None) -> None:
    assert status_of(status, USUAL) is said


def test_a_status_that_fires_goes_before_one_that_is_over() -> None:
    assert only({"title": "Shop", "status": "ok", "state": "alerting"}).state is F
    assert only({"title": "Shop", "status": "ok", "result": "unknown thing"}).state is R
    assert only({"title": "Shop", "status": "resolved", "message": "Shop is down: it was"}).state is R


# --- texts -------------------------------------------------------------------------------------------------

OVER = [
    ("Shop is up", "Shop"),
    ("Shop is UP again", "Shop"),
    ("[RESOLVED] DiskFull (nas)", "DiskFull (nas)"),
    ("[RESOLVED:2] DiskFull", "DiskFull"),
    ("[RESOLVED] [critical] disk full", "disk full"),
    ("Resolved: disk full on nas", "disk full on nas"),
    ("Recovered - disk", "disk"),
    ("RECOVERY: disk", "disk"),
    ("**RESOLVED** disk", "disk"),
    ("✅ Shop", "Shop"),
    ("🟢 OK | Shop", "Shop"),
    ("[Shop] [✅ Up] 200 - OK", "[Shop] 200 OK"),
    ("OK: disk", "disk"),
    ("shop — recovered", "shop"),
    ("Issue has been resolved", "Issue"),
    ("shop has recovered", "shop"),
    ("Service shop is reachable again", "Service shop"),
    ("nas came back online", "nas"),
    ("Resolved in 5m 0s: disk full on nas", "disk full on nas"),
    ("db1 is up again after being down", "db1 after being down"),
    ("shop is up now.", "shop now"),
    ("OK: 3 replicas", "3 replicas"),
    ("Everything is back to normal", "Everything"),
    ("no longer firing: x", "x"),
    ("Monitor is UP: shop. It was down for 5 minutes", "Monitor shop. It was down for 5 minutes"),
    ("RESOLVED", ""),
]
FIRES = [
    "Shop is down",
    "🔴 Shop",
    "[FIRING:1] DiskFull (nas)",
    "[Shop] [🔴 Down] 200 - OK",
    "[RESOLVED] a [FIRING] b",
    "db is down, web is up",
    "Resolved: a; b is down",
    "Up: 3, down: 2",
    "not yet resolved",
    "none of the replicas is healthy",
    "shop isn\u2019t recovered",
    "✅ web 🔴 Down",
]
NEITHER = [
    "Disk full on nas",
    "Load is up to 95 %",
    "Traffic is up 300 %",
    "Errors are up by half",
    "host could not be resolved by its name",
    "must be resolved by hand",
    "shop.example.org resolved to 10.0.0.1",
    "You will hear from us when it is up again",
    "unresolved issue",
    "Backup is upgraded",
    "HTTP 200 - OK in 9 s",
    "disk full. OK?",
    "CRITICAL: disk",
    "Token expired",
    "",
    "This alert is resolved once usage drops below 90%",
    "systemd-resolved.service failed on web1",
    "systemd-resolved",
    "the tunnel is up but no traffic passes",
    "shop is up, but the database is read-only",
    "node1 is online; node2 not responding",
    "Only one of three nodes is up",
    "2/3 nodes are up",
    "2 of 3 nodes are up",
    "CPU usage is up",
    "errors are up on shop",
    "temperature is back above 90C",
    "OK: 0 of 5 replicas",
    "OK: but disk failing",
    "Similar incident was resolved by restarting",
    "see how this is resolved",
]


@pytest.mark.parametrize(("text", "name"), OVER)
def test_what_says_that_it_is_over_is_over_and_the_rest_names_the_alert(text: str, name: str) -> None:
    assert state_in([text], USUAL) is R
    assert without_state(text, USUAL) == name


@pytest.mark.parametrize("text", FIRES)
def test_what_says_both_or_that_it_fires_does(text: str) -> None:
    assert state_in([text], USUAL) is F


@pytest.mark.parametrize("text", NEITHER)
def test_what_only_sounds_like_an_end_is_none(text: str) -> None:
    assert state_in([text], USUAL) is None
    assert only({"title": text or "x", "service": "nas"}).state is F


def test_texts_are_looked_at_together() -> None:
    assert state_in(["Shop is up", "web is down"], USUAL) is F
    assert only({"title": "Shop is up", "message": "the database is down"}).state is F
    assert only({"title": "Shop", "annotations": {"note": "[RESOLVED] it answers"}}).state is R


def test_an_end_without_a_status_is_that_of_the_alert_that_fired() -> None:
    for fires, over in (
        ({"title": "Shop is down", "host": "a"}, {"title": "Shop is up", "host": "a"}),
        ({"title": "🔴 Shop", "host": "a"}, {"title": "✅ Shop", "host": "a"}),
        ({"title": "[FIRING:1] DiskFull"}, {"title": "[RESOLVED] DiskFull"}),
        ({"title": "CRITICAL: disk"}, {"title": "OK: disk"}),
        ({"text": "[FIRING:1] DiskFull (nas) 97 %"}, {"text": "[RESOLVED] DiskFull (nas) 81 %"}),
        ({"content": "🔴 shop.example.org"}, {"content": "✅ shop.example.org"}),
        (
            {"attachments": [{"color": "danger", "title": "[FIRING:1] DiskFull", "fallback": "[FIRING:1] DiskFull"}]},
            {"attachments": [{"color": "good", "title": "[RESOLVED] DiskFull", "fallback": "[RESOLVED] DiskFull"}]},
        ),
        (
            {"username": "Uptime Kuma", "embeds": [{"title": "❌ Your service Shop went down. ❌", "color": 16711680}]},
            {"username": "Uptime Kuma", "embeds": [{"title": "✅ Your service Shop is up! ✅", "color": 65280}]},
        ),
        (
            {"msg": "[Shop] [🔴 Down] connect ECONNREFUSED 10.0.0.1:443", "monitor": None, "heartbeat": None},
            {"msg": "[Shop] [✅ Up] 200 - OK", "monitor": None, "heartbeat": None},
        ),
        ({"event": "down", "host": "a"}, {"event": "up", "host": "a"}),
        ({"title": "Shop", "result": "FAIL"}, {"title": "Shop", "result": "OK"}),
        ({"title": "Shop", "status": "🔴 Down"}, {"title": "Shop", "status": "✅ Up"}),
    ):
        one, two = only(fires), only(over)
        assert (one.state, two.state) == (F, R)
        assert one.fingerprint == two.fingerprint
        assert one.service == two.service or one.name == "down"


def test_sentences_without_a_name_are_no_longer_one_alert() -> None:
    texts = (
        "[FIRING] a is full",
        "[FIRING] b is full",
        "db1 is down",
        "db2 is down",
        "10.0.0.1 is down",
        "10.0.0.2 is down",
        *("VM 101 is down", "VM 102 is down", "disk full on node 1", "disk full on node 2", "port 80 closed"),
        *("port 443 closed", "Backup of CT 105 failed", "Backup of CT 106 failed", "error 502 on shop"),
        "error 404 on shop",
    )
    assert len({only({"text": text}).fingerprint for text in texts}) == len(texts)
    measured = {
        only({"text": f"nas has {used} used at {at}"}).fingerprint
        for used, at in (("95 %", "10:05"), ("96.5 %", "11:00:07"))
    }
    assert len(measured) == 1
    assert len({only({"text": f"queue length is {length}"}).fingerprint for length in (1532, 1540)}) == 1


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"text": "disk full on nas", "attachments": []}, "disk full on nas"),
        ({"content": "shop is down", "embeds": []}, "shop"),
        ({"text": "shop is down", "items": []}, "shop"),
        ({"text": "disk full on nas", "attachments": [{"color": "danger", "fields": []}]}, "disk full on nas"),
        ({"title": "disk full", "alerts": ["a", "b"]}, "disk full"),
        ({"text": "see below", "attachments": [{"color": "danger"}, {"title": "web is full"}]}, "web is full"),
    ],
)
def test_a_list_that_says_nothing_hides_no_alert_beside_it(body: object, name: str) -> None:
    assert only(body).name == name


def test_a_list_of_texts_is_no_list_of_alerts_and_its_reason_is_said() -> None:
    body = msgspec.json.encode({"alerts": ["disk full", "cpu"]})
    found = read(AlertSource(name="test", kind=SenderKind.GENERIC), body, received_at=RECEIVED)
    assert isinstance(found, Unparsed)
    assert "holds no objects" in found.why
    assert delivered({"alerts": [{"title": "a"}, "b", "c"]}).left_out == 2
    assert delivered({"alerts": []}).alerts == ()


@pytest.mark.parametrize(
    ("fires", "over"),
    [
        ({"text": "shop is DOWN"}, {"text": "shop has recovered"}),
        ({"text": "Service shop is unreachable"}, {"text": "Service shop is reachable again"}),
        ({"title": "Problem: disk full on nas"}, {"title": "Resolved in 5m 0s: disk full on nas"}),
        ({"text": "nas is down"}, {"text": "nas came back online"}),
        ({"text": "VM 102 is down"}, {"text": "VM 102 is up"}),
        (
            {"title": "[Triggered] CPU", "alert_transition": "Triggered"},
            {"title": "[Recovered] CPU", "alert_transition": "Recovered", "duration": "5m"},
        ),
    ],
)
def test_an_end_in_other_words_is_that_of_the_alert_that_fired(fires: object, over: object) -> None:
    one, two = only(fires), only(over)
    assert (one.state, two.state, one.fingerprint) == (F, R, two.fingerprint)


def test_an_alert_that_says_no_state_is_identified_as_before() -> None:
    plain = only({"title": "Disk full", "host": "nas"})
    stated = only({"title": "Disk full", "host": "nas", "status": "firing"})
    assert plain.fingerprint == stated.fingerprint
    assert only({"title": "Shop is down", "status": "firing"}).name == "Shop is down"


def test_an_end_in_the_past_is_an_end_unless_the_texts_say_otherwise() -> None:
    past = {"title": "Disk full", "resolved_at": "2026-12-01T11:00:00Z"}
    assert only(past).state is R
    assert only({**past, "message": "nas is down"}).state is F
    assert only({**past, "resolved_at": "2026-12-01T13:00:00Z"}).state is F


# --- an operator's own words -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Shop: behoben", R),
        ("Shop läuft wieder", R),
        ("Der Spaß ist zurück!", R),
        ("Shop hat eine Störung", F),
        ("Störung behoben", F),  # both
        ("服务恢复正常", R),
        ("服务异常", F),
        ("🎉 Shop", R),
        ("the door is closed", F),
        ("Unbehobenes", None),
        ("Shop is up", R),
    ],
)
def test_the_words_of_the_operator_count_wherever_they_stand(text: str, said: ReportedState | None) -> None:
    assert state_in([text], OWN) is said


def test_the_words_of_the_operator_go_before_the_usual_ones() -> None:
    assert status_of("closed", OWN) is F
    assert status_of("no data", OWN) is R
    assert status_of("closed", USUAL) is R


def test_a_field_that_holds_a_word_of_the_operator_is_a_status_and_identifies_nothing() -> None:
    fires, over = (
        only({"title": "Shop", "zustand": word}, firing_words=("störung",), over_words=("behoben",))
        for word in ("Störung", "BEHOBEN")
    )
    assert (fires.state, over.state, fires.fingerprint) == (F, R, over.fingerprint)


# --- other senders -----------------------------------------------------------------------------------------


def test_a_kuma_template_without_a_heartbeat_is_read_by_its_text() -> None:
    bodies = [
        {"Title": "Uptime Kuma Alert - Shop", "Body": f"[Shop] [{state}] 200 - OK"} for state in ("🔴 Down", "✅ Up")
    ]
    down, up = (only(body, SenderKind.UPTIME_KUMA, default_severity=EventLevel.CRITICAL) for body in bodies)
    assert (down.state, up.state, down.fingerprint) == (F, R, up.fingerprint)
    assert (down.name, down.severity) == ("Shop", EventLevel.CRITICAL)


@pytest.mark.parametrize(
    "text",
    [
        "[Shop][https://shop.example.org] Server certificate shop.example.org will expire in 3 days",
        "[Shop] Server certificate shop.example.org will expire in 14 days",
        "[Shop][https://shop.example.org:8443/a] root certificate R3 has expired",
        "[Shop] Domain name example.org will expire in 7 days",
    ],
)
def test_a_warning_about_a_certificate_is_one_about_its_monitor(text: str) -> None:
    body = {"heartbeat": None, "monitor": None, "msg": text}
    alert = only(body, SenderKind.UPTIME_KUMA, default_severity=EventLevel.CRITICAL)
    assert (alert.state, alert.name, alert.service, alert.severity) == (F, "Shop", "Shop", EventLevel.WARNING)
    assert alert.annotations["summary"] == text


def test_the_days_that_a_certificate_has_left_make_no_other_alert() -> None:
    text = "[Shop][https://shop.example.org] Server certificate shop.example.org will expire in {} days"
    bodies = [{"heartbeat": None, "msg": text.format(days)} for days in (21, 3)]
    other = {"heartbeat": None, "msg": text.replace("Shop", "Blog").format(3)}
    assert len({only(body, SenderKind.UPTIME_KUMA).fingerprint for body in bodies}) == 1
    assert len({only(body, SenderKind.UPTIME_KUMA).fingerprint for body in (*bodies, other)}) == 2


@pytest.mark.parametrize(
    ("state", "said"),
    [("alerting", F), ("ok", R), ("no_data", F), ("OK", R), ("paused", None), ("pending", None), ("unknown", None)],
)
def test_each_state_of_legacy_alerting_is_known(state: str, said: ReportedState | None) -> None:
    body = {"ruleName": "CPU", "ruleId": 3, "dashboardId": 1, "state": state, "tags": {"severity": "critical"}}
    found = delivered(body, SenderKind.GRAFANA)
    assert [alert.state for alert in found.alerts] == ([] if said is None else [said])
    assert all(alert.severity is EventLevel.CRITICAL for alert in found.alerts)
    assert found.alerts or state in found.remark


def test_rules_of_legacy_alerting_are_told_apart() -> None:
    plain = {"ruleName": "CPU", "ruleId": 0, "dashboardId": 1, "panelId": 2, "state": "alerting"}
    others = [{**plain, "panelId": 3}, {**plain, "ruleName": "Disk"}, {**plain, "ruleId": 4}, {**plain, "state": "ok"}]
    assert len({only(each, SenderKind.GRAFANA).fingerprint for each in (plain, *others)}) == 4


@pytest.mark.parametrize(
    ("kind", "event", "said"),
    [
        (SenderKind.PAGERDUTY, "trigger", F),
        (SenderKind.PAGERDUTY, "acknowledge", F),
        (SenderKind.PAGERDUTY, "resolve", R),
        (SenderKind.GENERIC, "trigger", F),
        (SenderKind.GENERIC, "resolve", R),
    ],
)
def test_an_event_for_pagerduty_is_read_and_its_end_needs_only_the_key(
    kind: SenderKind, event: str, said: ReportedState
) -> None:
    payload = {"summary": "disk full", "source": "nas", "severity": "error"} if event == "trigger" else None
    alert = only({"routing_key": "0" * 32, "event_action": event, "dedup_key": "k1", "payload": payload}, kind)
    assert (alert.fingerprint, alert.state) == ("k1", said)
    assert not any("0" * 32 in text for text in (*alert.labels.values(), *alert.annotations.values()))


def test_the_first_version_of_pagerdutys_webhooks_is_read_too() -> None:
    incident = {"id": "PX", "status": "resolved", "trigger_summary_data": {"subject": "db"}, "service": {"name": "DB"}}
    alert = only({"messages": [{"type": "incident.resolve", "data": {"incident": incident}}]}, SenderKind.PAGERDUTY)
    assert (alert.fingerprint, alert.state, alert.name, alert.service) == ("PX", R, "db", "DB")


def test_a_check_whose_template_has_no_status_is_read_by_its_words() -> None:
    hc = SenderKind.HEALTHCHECKS
    fires, over = only({"uuid": "x", "text": "nas is DOWN"}, hc), only({"uuid": "x", "text": "nas is UP"}, hc)
    assert (fires.state, over.state, fires.fingerprint) == (F, R, over.fingerprint)
    assert (
        only({"name": "nas", "status": "🔴 down"}, hc).fingerprint
        == only({"name": "nas", "status": "UP"}, hc).fingerprint
    )


TEST_BUTTONS: list[tuple[SenderKind, object]] = [
    (
        SenderKind.GRAFANA,
        {"alerts": [{"status": "firing", "labels": {"alertname": "TestAlert", "instance": "Grafana"}}]},
    ),
    (
        SenderKind.GRAFANA,
        {"ruleName": "Test notification", "ruleId": 0, "state": "alerting", "title": "[Alerting] Test notification"},
    ),
    (SenderKind.UPTIME_KUMA, {"heartbeat": None, "monitor": None, "msg": "claudeops Testing"}),
    (SenderKind.UPTIME_KUMA, {"msg": "My [Webhook] Alert (1) Testing"}),
    (SenderKind.UPTIME_KUMA, {"Title": "Uptime Kuma Alert", "Body": "[Ops] Testing"}),
    (
        SenderKind.HEALTHCHECKS,
        {"uuid": "3c1169a0-7b50-11ea-873d-3c970e75c219", "name": "TEST", "status": "down", "tags": ""},
    ),
    (SenderKind.PAGERDUTY, {"event": {"event_type": "pagey.ping", "data": {"message": "Hello", "type": "ping"}}}),
    (SenderKind.PAGERDUTY, {"messages": [{"id": "x", "event": "pagey.ping"}]}),
    (SenderKind.GENERIC, {"title": "Test notification", "message": "This is a test of the notification target 'x'"}),
    (SenderKind.GENERIC, {"eventType": "Test", "instanceName": "Sonarr", "series": {"title": "Test Title"}}),
    (SenderKind.GENERIC, {"event": "ping", "zen": "Keep it logically awesome."}),
    (SenderKind.GENERIC, {"subject": "Test subject", "message": "This is the test message from Zabbix"}),
]


@pytest.mark.parametrize(("kind", "body"), TEST_BUTTONS)
def test_a_test_button_is_answered_and_is_no_alert(kind: SenderKind, body: object) -> None:
    found = delivered(body, kind)
    assert found.alerts == ()
    assert found.remark


def test_a_rule_that_is_called_like_a_test_is_an_alert() -> None:
    labels = {"alertname": "TestAlert", "grafana_folder": "Ops"}
    assert only({"alerts": [{"status": "firing", "labels": labels}]}, SenderKind.GRAFANA).state is F
    assert only({"uuid": "x", "name": "TEST", "status": "down", "tags": "prod"}, SenderKind.HEALTHCHECKS).state is F
    assert only({"title": "Latest test results are red"}).state is F
    assert only({"title": "Test message queue is full"}).state is F
    assert only({"type": "ping", "name": "router"}).state is F
    assert only({"event": "ping", "name": "router", "status": "down"}).state is F
    assert only({"type": "test", "title": "the check of the API fails"}).state is F


# --- others' texts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["[x]," * 9000, "is up " * 9000, "✅" * 9000, "İ is up" * 9, "(((((" * 9000, "\ud800 is up"]
)
def test_a_text_without_end_is_looked_at_only_so_far(text: str) -> None:
    state_in([text], USUAL)
    assert len(without_state(text, USUAL)) <= max(len(text), MOST_LOOKED_AT)
