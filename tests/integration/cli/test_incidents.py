"""Incidents, silences and recorded alerts, as a person on call sees them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Final, cast

import pytest

from claudeops.domain.alerts.alert import SenderBody, Unparsed
from claudeops.domain.alerts.register import ReceivedBody
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.sessions import Session
from claudeops.store.store import Store
from claudeops.text.escapes import visible
from support.alerts import SOURCE, alert, bring, rules_of
from support.commanding import Shell, shell_in
from support.store_values import NOW, RULES, started, wanted

pytest_plugins = ("support.store_fixtures",)

HOSTILE: Final = "shop\x1b[31m\u202e"
RULES_FILE: Final = '[[source]]\nname = "am"\nkind = "alertmanager"\nmin_severity = "warning"\n'


@pytest.fixture
def shell(
    tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    shell = shell_in(tmp_path, migrated_sqlite, monkeypatch, capsys)
    (tmp_path / "alerts.toml").write_text(RULES_FILE, encoding="utf-8")
    shell.set(CLAUDEOPS_ALERTS_PATH=str(tmp_path / "alerts.toml"))
    return shell


@pytest.fixture
def alarmed(shell: Shell) -> Shell:
    """Return a shell in a world where an alert has started a chain."""
    shell.prepare(_alarmed)
    return shell


async def _alarmed(store: Store) -> Session:
    posted = ReceivedBody(
        content=SenderBody(source=SOURCE, key="a", alerts=(alert("Down", HOSTILE),), group_key="g"), received_at=NOW
    )
    about = AlertFiles(alerts=rules_of(), escalation=RULES)
    done = await bring(store.alerts, [posted], about, lambda tier, told: wanted(tier, context=told), now=NOW)
    return done.started[0][0]


def test_what_is_open_is_listed_and_told_without_hidden_characters(alarmed: Shell) -> None:
    status, listed, _ = alarmed.call("list-incidents")
    assert status == 0
    assert "1 critical" in listed
    _, told, _ = alarmed.call("incident", "1")
    assert "started" in told
    _, glanced, _ = alarmed.call("status")
    assert "incident" in glanced
    assert not {"\x1b", "\u202e"} & set(listed + told + glanced)


def test_whoever_takes_an_incident_is_named_and_an_end_is_an_end(alarmed: Shell) -> None:
    status, taken, _ = alarmed.call("ack", "1")
    assert (status, "is on it" in taken) == (0, True)
    assert "acknowledged" in alarmed.call("list-incidents")[1]
    assert alarmed.call("resolve", "1")[0] == 0
    assert "no incident is open" in alarmed.call("list-incidents")[1]
    assert "resolved" in alarmed.call("list-incidents", "--all")[1]
    assert alarmed.call("ack", "1")[0] == 1


def test_a_preview_of_a_silence_silences_nothing(alarmed: Shell) -> None:
    _, seen, _ = alarmed.call("silence", "alertname=Down", "--preview")
    assert "nothing was silenced" in seen
    assert "no silence holds" in alarmed.call("list-silences")[1]
    _, kept, _ = alarmed.call("silence", "alertname=Down", "--for", "30m", "--comment", "moving")
    assert "silence 1" in kept
    assert "moving" in alarmed.call("list-silences")[1]


def test_the_story_of_an_incident_tells_who_did_what_and_who_was_told(alarmed: Shell) -> None:
    alarmed.call("ack", "1")
    alarmed.call("resolve", "1")

    _, told, _ = alarmed.call("incident", "1")
    order = ["Down of shop", "has acknowledged incident 1", "has said that incident 1 is over"]
    assert [text for text in order if text in told] == order
    assert [told.index(text) for text in order] == sorted(told.index(text) for text in order)
    assert told.count("to be told") == 3
    document = alarmed.ask("incident", "1")
    events, notices = document["events"], document["notices"]
    assert isinstance(events, list)
    assert isinstance(notices, list)
    assert [each["resolved_at"] is not None for each in events] == [True, True, True]
    assert [each["result"] for each in notices] == [None, None, None]


def test_whoever_silences_ends_a_silence_or_makes_a_token_is_on_record_with_the_time(shell: Shell) -> None:
    shell.call("silence", "alertname=Down", "--for", "30m", "--comment", "moving")
    assert shell.call("end-silence", "1")[0] == 0
    assert shell.call("end-silence", "1")[0] == 1  # it is over
    shell.call("token", "create", "--name", "am", "--scope", "alerts:prometheus")
    shell.call("token", "revoke", "1")

    document = shell.ask("list-events")
    events = document["events"]
    assert isinstance(events, list)
    said = [str(each["message"]).partition(" has ")[2] for each in reversed(events)]
    assert said[0].startswith("silenced alertname=")
    assert said[0].endswith("(silence 1): moving")
    assert said[1].startswith("ended silence 1, which would have held until")
    assert said[2:] == ["made token 1 for am: alerts:prometheus", "revoked token 1 for am"]
    assert all(each["first_seen"] for each in events)
    assert "ended by" in shell.call("list-silences", "--all")[1]
    assert "no silence holds" in shell.call("list-silences")[1]


def test_a_silence_of_everything_is_a_slip(alarmed: Shell) -> None:
    status, _, complaint = alarmed.call("silence", 'alertname=~".*"')
    assert status == 64
    assert "fits every alert" in complaint


def test_a_recorded_storm_is_decided_about_and_nothing_is_written(shell: Shell, tmp_path: Path) -> None:
    lines = []
    for number in range(100):
        labels = {"alertname": "Down", "service": f"s{number}", "severity": "critical"}
        each = {"status": "firing", "labels": labels}
        body = {"version": "4", "groupKey": str(number), "alerts": [each]}
        lines.append(json.dumps({"source": "am", "at": f"2026-03-01T12:00:{number % 60:02}Z", "body": body}))
    (tmp_path / "storm.ndjson").write_text("\n".join(lines), encoding="utf-8")

    document = shell.ask("alerts", "replay", str(tmp_path / "storm.ndjson"))

    chains, decisions = document["chains"], document["decisions"]
    assert isinstance(chains, list)
    assert 0 < len(chains) <= 5
    assert isinstance(decisions, dict)
    assert decisions["started"] == len(chains)
    assert shell.database.rows("alerts") == []


def test_a_source_that_is_not_declared_is_told(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"alerts": []}', encoding="utf-8")
    status, _, complaint = shell.call("alerts", "replay", str(tmp_path / "one.json"))
    assert status == 78
    assert "known are am" in complaint
    assert shell.call("alerts", "replay", str(tmp_path / "one.json"), "--source", "am")[0] == 0
    assert shell.call("alerts", "replay", str(tmp_path / "none.json"))[0] == 66


# --- who sends ---------------------------------------------------------------------------------------------


SOURCES_FILE: Final = "".join(
    f'[[source]]\nname = "{name}"\nkind = "{kind}"\n'
    for name, kind in (("am", "alertmanager"), ("hc", "healthchecks"), ("scripts", "generic"))
)
CASES: Final = Path(__file__).parents[2] / "data" / "alerts"


@pytest.fixture
def sent(shell: Shell, tmp_path: Path) -> Shell:
    """Return a shell in a world where one source sends what cannot be read, one does no more, and one is silent."""
    (tmp_path / "alerts.toml").write_text(SOURCES_FILE, encoding="utf-8")
    shell.prepare(_sent)
    return shell


async def _sent(store: Store) -> Session:
    fine = SenderBody(source="am", key="a", alerts=(alert("Down"),))
    broken = [Unparsed(source=name, key=f"{name}-u", why=f"line 1, column 67: {HOSTILE}") for name in ("am", "hc")]
    gone = SenderBody(source="gone", key="g")
    bodies: list[SenderBody | Unparsed] = [*broken, fine, gone]
    posts = [ReceivedBody(content=said, received_at=NOW, raw=f'{{"name": "{HOSTILE}"}}') for said in bodies]
    await store.alerts.receive(posts, now=NOW)
    return await started(store)


def test_who_sends_is_listed_with_what_could_not_be_read(sent: Shell) -> None:
    _, listed, _ = sent.call("list-sources", "--utc")

    lines = {line.split()[0]: line.split() for line in listed.partition("\n\n")[0].splitlines()}
    assert lines["am"][1:5] == ["alertmanager", "2", "1", "1"]
    assert lines["scripts"][1:] == ["generic", "0", "0", "0", "never"]
    assert lines["gone"][1:3] == ["not", "declared"]
    assert "am sent what could not be read" in listed
    assert "hc sends what cannot be read: 1 body, the last" in listed
    assert listed.count("line 1, column 67") == 2
    assert not {"\x1b", "\u202e"} & set(listed)


def test_who_sends_is_a_document_and_the_state_of_everything_names_the_unreadable(sent: Shell) -> None:
    document = sent.ask("list-sources")
    sources = document["sources"]
    assert isinstance(sources, list)
    shown = [(each["source"], each["declared"], each["bodies"], each["readable"]) for each in sources]
    assert shown == [
        ("am", True, 2, True),
        ("hc", True, 1, False),
        ("scripts", True, 0, True),
        ("gone", False, 1, True),
    ]
    hc, scripts = sources[1], sources[2]
    assert hc["reason"] == f"line 1, column 67: {visible(HOSTILE)}"
    assert hc["sent"] == f'{{"name": "{visible(HOSTILE)}"}}'
    assert (scripts["heard_at"], scripts["reason"]) == (None, None)
    assert sent.ask("status")["sources_unreadable"] == ["hc"]
    assert "what hc sent last (claudeops list-sources says why)" in sent.call("status")[1]


def test_a_file_is_one_body_of_the_source_that_is_named_whatever_its_fields(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "alerts.toml").write_text(SOURCES_FILE, encoding="utf-8")
    record = {"source": "am", "title": "Disk full", "body": "nas has 95 %", "service": "nas"}
    for number, content in enumerate(
        (json.dumps(record).encode(), gzip.compress(json.dumps(record).encode()), json.dumps(record).encode("utf-16"))
    ):
        (tmp_path / f"{number}.json").write_bytes(content)
        document = shell.ask("alerts", "replay", str(tmp_path / f"{number}.json"), "--source", "scripts")
        (chain,) = cast("list[dict[str, object]]", document["chains"])
        assert (document["deliveries"], document["unparsed"], chain["services"]) == (1, 0, ["nas"])


def test_a_recorded_body_that_cannot_be_read_says_why(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "alerts.toml").write_text(SOURCES_FILE, encoding="utf-8")
    broken = '{"uuid": "3c1169a0-7b50-11ea-873d-3c970e75c219", "name": "Backup "nas" nightly", "status": "down"}'
    (tmp_path / "hc.json").write_text(broken, encoding="utf-8")
    document = shell.ask("alerts", "replay", str(tmp_path / "hc.json"), "--source", "hc")
    (one,) = cast("list[dict[str, object]]", document["unreadable"])
    assert (one["source"], str(one["reason"]).partition(":")[0]) == ("hc", "line 1, column 67")
    _, told, _ = shell.call("alerts", "replay", str(tmp_path / "hc.json"), "--source", "hc")
    assert "hc sends what cannot be read: line 1, column 67: " in told

    lines = [{"source": "scripts", "body": f"disk {number}"} for number in range(30)]
    (tmp_path / "many.ndjson").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    _, told, _ = shell.call("alerts", "replay", str(tmp_path / "many.ndjson"))
    assert told.count("scripts sends what cannot be read") == 20
    assert "and 10 more that cannot be read" in told


def test_a_file_of_lines_that_is_broken_names_the_line(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "two.ndjson").write_text('\ufeff{"source": "am", "body": {}}\n{"source": \n', encoding="utf-8")
    status, _, complaint = shell.call("alerts", "replay", str(tmp_path / "two.ndjson"))
    assert status == 78
    assert "line 2 is no object with 'source' and 'body'" in complaint
    assert "--source" in complaint


@pytest.mark.parametrize(
    ("file", "kind", "chains"),
    [
        ("uptime-kuma-1.23-certificate.json", "uptime-kuma", [("warning", ["Shop"])]),
        ("uptime-kuma-1.23-test.json", "uptime-kuma", []),
        ("grafana-8.5-legacy.json", "grafana", [("warning", ["web1"])]),
        ("grafana-11.0-test-button.json", "grafana", []),
        ("alertmanager-prometheus-list-over.json", "alertmanager", []),
        ("pagerduty-v3-ping.json", "pagerduty", []),
    ],
)
def test_what_is_really_sent_starts_what_it_should(
    shell: Shell, tmp_path: Path, file: str, kind: str, chains: list[tuple[str, list[str]]]
) -> None:
    (tmp_path / "alerts.toml").write_text(f'[[source]]\nname = "x"\nkind = "{kind}"\n', encoding="utf-8")
    document = shell.ask("alerts", "replay", str(CASES / file), "--source", "x")
    found = cast("list[dict[str, object]]", document["chains"])
    assert [(each["severity"], each["services"]) for each in found] == chains


def test_an_end_in_words_ends_the_alert_that_fired(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "alerts.toml").write_text(SOURCES_FILE, encoding="utf-8")
    for fires, over in (("\U0001f534 Down", "\u2705 Up"), ("DOWN", "Recovered")):
        lines = [
            {"source": "scripts", "at": f"2026-03-01T10:0{at}:00Z", "body": {"title": "Shop", "status": status}}
            for at, status in ((1, fires), (9, over))
        ]
        (tmp_path / "two.ndjson").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        document = shell.ask("alerts", "replay", str(tmp_path / "two.ndjson"))
        rulings = cast("list[dict[str, object]]", document["alerts"])
        assert len({each["fingerprint"] for each in rulings}) == 1
        assert "is over" in str(rulings[-1]["because"])
