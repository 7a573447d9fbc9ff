"""Recorded bodies of Prometheus, played by ``alerts replay``: whom each alert is about, and what starts a chain."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from support.checkout import ROOT
from support.commanding import Shell, shell_in

PLAYS: Final = ROOT / "tests" / "data" / "alert-plays"
RULES_FILE: Final = '[[source]]\nname = "prometheus"\nkind = "alertmanager"\n'
MANIFEST: Final = """# CLAUDE-OPS

| Service | Host | Address |
| --- | --- | --- |
| warehouse | db1.lan | db1.lan:5432 |
| checkout | k3s | https://shop.example.org |
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    shell = shell_in(tmp_path, None, monkeypatch, capsys)
    shell.set(CLAUDEOPS_ALERTS_PATH=str(tmp_path / "alerts.toml"), CLAUDEOPS_REPOS_DIR=str(tmp_path / "estate"))
    (tmp_path / "alerts.toml").write_text(RULES_FILE, encoding="utf-8")
    (tmp_path / "estate" / "home").mkdir(parents=True)
    return shell


def described(tmp_path: Path) -> None:
    (tmp_path / "estate" / "home" / "CLAUDE-OPS.md").write_text(MANIFEST, encoding="utf-8")


def played(shell: Shell, name: str) -> dict[str, object]:
    """Play a record, whose lines name their source, or one body, whose source is named here."""
    source = () if name.endswith(".ndjson") else ("--source", "prometheus")
    return shell.ask("alerts", "replay", str(PLAYS / name), *source)


def chains(shell: Shell, name: str) -> list[tuple[object, object]]:
    document = played(shell, name)
    found = document["chains"]
    assert isinstance(found, list)
    return [(chain["incident"], chain["services"]) for chain in found]


def reasons(shell: Shell, name: str) -> list[str]:
    document = played(shell, name)
    found = document["alerts"]
    assert isinstance(found, list)
    return [str(each["because"]) for each in found if each["decision"] == "started"]


def test_two_workloads_that_one_exporter_has_measured_are_two_incidents(shell: Shell) -> None:
    name = "kube-state-metrics-two-namespaces.ndjson"
    assert chains(shell, name) == [(1, ["shop/checkout"]), (2, ["media/jellyfin"])]
    first, second = reasons(shell, name)
    assert "shop/checkout by its labels pod and namespace" in first
    assert "media/jellyfin by its labels deployment and namespace" in second


def test_two_hosts_in_one_body_are_two_incidents(shell: Shell) -> None:
    assert chains(shell, "node-exporter-two-hosts.json") == [(1, ["db1.lan"]), (2, ["web1.lan"])]


def test_a_service_of_the_estate_is_known_by_its_host_and_its_name(shell: Shell, tmp_path: Path) -> None:
    described(tmp_path)
    assert chains(shell, "node-exporter-two-hosts.json") == [(1, ["warehouse"]), (2, ["web1.lan"])]
    assert chains(shell, "kube-state-metrics-two-namespaces.ndjson") == [(1, ["checkout"]), (2, ["media/jellyfin"])]
    assert "by which the estate knows it" in reasons(shell, "node-exporter-two-hosts.json")[0]


@pytest.mark.parametrize(("wait", "count"), [("120s", 0), ("91s", 0), ("80s", 1), ("0s", 1)])
def test_a_flap_within_the_wait_starts_no_chain(shell: Shell, tmp_path: Path, wait: str, count: int) -> None:
    (tmp_path / "alerts.toml").write_text(f'{RULES_FILE}group_wait = "{wait}"\n', encoding="utf-8")
    assert len(chains(shell, "flap-of-ninety-seconds.ndjson")) == count


def test_the_words_for_people_say_whom_each_chain_is_about(shell: Shell) -> None:
    status, told, _ = shell.call(
        "alerts", "replay", str(PLAYS / "node-exporter-two-hosts.json"), "--source", "prometheus"
    )
    assert status == 0
    assert "incident 1, tier 1, 1 alert: db1.lan by its label instance" in told
