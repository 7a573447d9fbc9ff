"""The command that says why nothing was done: for people, for programs, and where there is nothing to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from claudeops.domain.report.report import ServiceStatus
from claudeops.store.store import Store
from support.commanding import Shell, shell_in
from support.store_values import RULES, check, ending, report, started

pytest_plugins = ("support.store_fixtures",)


@pytest.fixture
def shell(
    tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Return a shell in a world where a session saw web once, with a detail that hides."""
    shell = shell_in(tmp_path, migrated_sqlite, monkeypatch, capsys)
    shell.prepare(_one_look)
    return shell


async def _one_look(store: Store) -> None:
    said = report(check("web", ServiceStatus.DEGRADED, "slow \u202egnp"))
    await store.queue.finish(ending(await started(store), said), rules=RULES)


def test_the_reasons_are_a_table_for_people_and_hide_nothing(shell: Shell) -> None:
    code, out, _ = shell.call("why", "WEB", "--at", "2026-03-01T12:30Z", "--utc")
    assert code == 0
    heads, *lines = out.splitlines()
    assert heads.split() == ["WHEN", "WHAT", "CHAIN", "REASON"]
    assert "2026-03-01 12:01:00Z" in out
    assert "Session 1 found web degraded: slow \\u202egnp." in out
    assert [line.split()[2] for line in lines][:3] == ["session", "check", "session"]


def test_a_time_with_nothing_says_what_that_means_and_what_came_last(shell: Shell) -> None:
    code, out, _ = shell.call("why", "web", "--at", "2026-03-03", "--within", "1h")
    assert code == 0
    assert out.startswith("Nothing is on record about web between 2026-03-02 23:10 UTC and 2026-03-03 00:10 UTC: no ")
    assert "The last before, at 2026-03-01 12:01 UTC: " in out

    document = shell.ask("why", "web", "--at", "2026-03-03", "--within", "1h")
    assert (document["exit_code"], document["silent"], document["reasons_count"]) == (0, True, 0)
    assert isinstance(document["before"], dict)


def test_a_list_that_is_cut_says_so(shell: Shell) -> None:
    _, out, _ = shell.call("why", "--at", "2026-03-01T12:30Z", "--limit", "1")
    assert "There are more: ask for a shorter time" in out
    assert shell.ask("why", "--at", "2026-03-01T12:30Z", "--limit", "1")["cut"] is True


@pytest.mark.parametrize("at", ["0001-01-01", "9999-12-31T23:59Z"])
def test_no_moment_is_too_early_or_too_late(at: str, shell: Shell) -> None:
    assert shell.ask("why", "web", "--at", at, "--within", "366d")["exit_code"] == 0


@pytest.mark.parametrize("within", ["0h", "soon", "9999w"])
def test_a_length_that_is_none_is_a_mistake_in_the_command_line(within: str, shell: Shell) -> None:
    assert shell.ask("why", "--within", within)["sysexit"] == 64
