"""``claudeops memories``: what sessions are told, and its correction by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claudeops.cli.command_line import call
from support.migrated import write_migrated


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the state directory of a node that has run and does not now."""
    directory = tmp_path / "state"
    directory.mkdir()
    write_migrated(directory / "claudeops.db")
    monkeypatch.setenv("CLAUDEOPS_STATE_DIR", str(directory))
    monkeypatch.chdir(tmp_path)
    return directory


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    """Run a command in JSON mode; return its document."""
    code = call(["memories", *arguments, "--output-format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    assert document["exit_code"] == code
    return document


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[object, ...]]:
    memories = told(capsys, "list", *arguments)["memories"]
    assert isinstance(memories, list)
    return [(one["memory_id"], one["service"], one["trust"], one["believed"]) for one in memories]


@pytest.mark.usefixtures("state")
def test_a_memory_is_added_forgotten_and_restored(capsys: pytest.CaptureFixture[str]) -> None:
    added = told(capsys, "add", "starts within 30 s", "--service", "web", "--category", "timing")
    memory = added["memory"]
    assert isinstance(memory, dict)
    assert (added["command"], added["handled"], added["memory_id"]) == ("memories add", True, 1)
    assert (memory["trust"], memory["confidence"], memory["tier"], memory["session_id"]) == ("operator", 1.0, 0, None)
    assert memory["changed_by"]

    assert told(capsys, "forget", "m1")["handled"] is True
    assert (listed(capsys), listed(capsys, "--all")) == ([], [(1, "web", "operator", False)])
    assert told(capsys, "restore", "1")["handled"] is True
    assert listed(capsys, "--service", "WEB") == [(1, "web", "operator", True)]
    assert listed(capsys, "--service", "db") == []


@pytest.mark.usefixtures("state")
def test_what_is_declined_says_why_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    declined = told(capsys, "forget", "9")
    error = declined["error"]
    assert isinstance(error, dict)
    assert (declined["handled"], declined["exit_code"], error["message"]) == (False, 1, "There is no memory 9.")

    assert call(["memories", "add", "the password is hunter2"]) == 1
    written = capsys.readouterr()
    assert written.out == ""
    assert "secret" in written.err
    assert "hunter2" not in written.err


@pytest.mark.usefixtures("state")
def test_text_names_the_memory_as_prompts_do(capsys: pytest.CaptureFixture[str]) -> None:
    call(["memories", "add", "starts within\x1b[31m 30 s", "--service", "web", "--category", "timing"])
    call(["memories", "add", "starts at once", "--service", "web", "--category", "timing", "--supersedes", "m1"])
    capsys.readouterr()

    assert call(["memories", "list", "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].startswith("m1 web/timing · operator 1.00 · out of use · by ")
    assert lines[2].startswith("m2 web/timing · operator 1.00 · in use · by ")
    assert lines[2].endswith("today · in place of m1")
    assert "\x1b" not in "".join(lines)


@pytest.mark.usefixtures("state")
def test_no_memories_are_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["memories", "list"]) == 0
    assert capsys.readouterr().out == "no memories\n"


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("wrong", [["forget", "mm1"], ["forget", "0x1"], ["add", "x", "--category", "vibes"]])
def test_what_is_no_id_or_category_is_a_usage_error(wrong: list[str]) -> None:
    assert call(["memories", *wrong]) == 64
