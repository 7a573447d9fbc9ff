"""Incidents, silences and recorded alerts, as a person on call sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from claudeops.domain.alerts.model import Delivery
from claudeops.domain.alerts.register import Posted
from claudeops.domain.alerts.situation import Circumstances
from claudeops.domain.model import Session
from claudeops.store.store import SqlStore
from support.alerts import SOURCE, alert, bring, rules_of
from support.commanding import Shell, shell_in
from support.store_values import NOW, RULES, wanted

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


async def _alarmed(store: SqlStore) -> Session:
    posted = Posted(
        said=Delivery(source=SOURCE, key="a", alerts=(alert("Down", HOSTILE),), group_key="g"), received_at=NOW
    )
    about = Circumstances(alerts=rules_of(), escalation=RULES)
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
