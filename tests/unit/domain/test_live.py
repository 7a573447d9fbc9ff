"""One line about a tool call: readable, redacted, and never more than one."""

from __future__ import annotations

import pytest

from claudeops.structs import replace
from claudeops.wording.live import Viewpoint, api_key_line, live_status, status_line, summaries, tool_summary
from support.streams import called, read

ROOT = "/srv/ops"
SECRET = "sk-ant-" + "x" * 40
VIEW = Viewpoint(root=ROOT, redact=lambda text: text.replace(SECRET, "[redacted]"))


def bash(command: object) -> str | None:
    return tool_summary("Bash", {"command": command}, VIEW)


@pytest.mark.parametrize(
    ("name", "given", "summary"),
    [
        ("Bash", {"command": "systemctl status nginx"}, "Running: systemctl status nginx..."),
        ("Bash", {"command": "x" * 51}, f"Running: {'x' * 50}..."),
        ("Bash", {}, "Running: ..."),
        ("Bash", {"command": "uv run pytest -q"}, "Running tests..."),
        ("Bash", {"command": "make all-ci"}, "Running CI checks..."),
        ("Bash", {"command": None}, None),
        ("SlashCommand", {"command": "/fast-ci"}, "Running CI checks..."),
        ("SlashCommand", {"command": "/gt:pr-submit now"}, "Creating pull request..."),
        ("SlashCommand", {"command": "/compact"}, "Running /compact..."),
        ("SlashCommand", {"command": 7}, None),
        ("Edit", {"file_path": 7}, "Using Edit..."),
        ("Edit", {"file_path": "src/a.py"}, "Editing src/a.py..."),
        ("Write", {}, "Writing ..."),
        ("Read", {"file_path": "x"}, None),
        ("Grep", None, None),
        ("mcp__db__query", {"sql": "select 1"}, "Using mcp__db__query..."),
        ("Bash", None, "Using Bash..."),
        ("", {}, None),
        (None, {}, None),
        (7, {}, None),
    ],
)
def test_summary(name: object, given: object, summary: str | None) -> None:
    assert tool_summary(name, given, VIEW) == summary


@pytest.mark.parametrize(
    ("root", "path", "shown"),
    [
        (ROOT, "/srv/ops/src/a.py", "src/a.py"),
        (ROOT + "/", "/srv/ops/a", "a"),
        (ROOT, "/srv/ops", "."),
        (ROOT, "/srv/opsy/a", "/srv/opsy/a"),
        (ROOT, "/srv/ops/../../etc/passwd", "/srv/ops/../../etc/passwd"),
        (ROOT, "/etc/passwd", "/etc/passwd"),
        (ROOT, "../x", "../x"),
        ("/", "/etc/passwd", "/etc/passwd"),
        ("//", "/etc/passwd", "/etc/passwd"),
        (None, "/etc/passwd", "/etc/passwd"),
        (None, "src/a.py", "src/a.py"),
    ],
)
def test_path_is_relative_only_where_it_is_inside(root: str | None, path: str, shown: str) -> None:
    assert tool_summary("Edit", {"file_path": path}, replace(VIEW, root=root)) == f"Editing {shown}..."


def test_path_that_is_not_on_disk_stays_absolute() -> None:
    view = replace(VIEW, exists=lambda path: path == "/srv/ops/there")
    assert tool_summary("Edit", {"file_path": "/srv/ops/there"}, view) == "Editing there..."
    assert tool_summary("Edit", {"file_path": "/srv/ops/not"}, view) == "Editing /srv/ops/not..."


def test_secret_across_the_cut_does_not_show_its_first_half() -> None:
    summary = bash(f"curl -H 'Authorization: Bearer {SECRET}'")
    assert summary == "Running: curl -H 'Authorization: Bearer [redacted]'..."


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Edit", {"file_path": f"/srv/ops/{SECRET}"}),
        ("Write", {"file_path": SECRET}),
        ("SlashCommand", {"command": f"/x {SECRET}"}),
        (f"mcp__{SECRET}", {}),
    ],
)
def test_secret_shows_nowhere_else_either(name: str, given: dict[str, object]) -> None:
    shown = tool_summary(name, given, VIEW)
    assert shown is not None
    assert SECRET not in shown
    assert "[redacted]" in shown


@pytest.mark.parametrize("break_", ["\n", "\r\n", "\x1b[2K", "\x00", "\x7f", "\x85", "\u2028", "\u2029", "\x9b"])
def test_command_cannot_forge_a_line(break_: str) -> None:
    summary = bash(f"true{break_}Writing all is well...")
    assert summary is not None
    assert len(summary.splitlines()) == 1
    assert summary.isprintable()


def test_endless_name_is_cut() -> None:
    assert tool_summary("x" * 10_000, {}, VIEW) == f"Using {'x' * 200}..."


@pytest.mark.parametrize(
    ("name", "given", "status"),
    [
        ("Read", {}, "Reading files..."),
        ("Bash", {"command": 7}, "Using Bash..."),
        ("Bash", {"command": "ls"}, "Running: ls..."),
        (None, {}, "Running tier 1..."),
        (7, {}, "Running tier 1..."),
        ("", {}, "Running tier 1..."),
        ([], {}, "Running tier 1..."),
    ],
)
def test_live_status_is_never_empty(name: object, given: object, status: str) -> None:
    assert live_status(name, given, VIEW, task="tier 1") == status


def test_every_call_of_a_frame_is_told() -> None:
    blocks = [
        {"type": "tool_use", "id": "a", "name": "Read", "input": {}},
        {"type": "tool_use", "id": "b", "name": "Bash", "input": {"command": "ls"}},
        {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "df"}},
    ]
    events = read({"type": "assistant", "message": {"content": blocks}}, called("b")).events
    assert summaries(events, VIEW) == ("Running: ls...", "Running: df...")


@pytest.mark.parametrize(
    ("is_error", "cost", "duration", "line"),
    [
        (False, 0.03, 45000, "\n\n\u2705 Success - Cost: $0.0300, Duration: 45000ms\n"),
        (True, None, None, "\n\n\u274c Error - Cost: N/A, Duration: 0ms\n"),
        (False, 0.0, 1, "\n\n\u2705 Success - Cost: $0.0000, Duration: 1ms\n"),
    ],
)
def test_status_line(is_error: bool, cost: float | None, duration: int | None, line: str) -> None:
    assert status_line(is_error=is_error, cost_usd=cost, duration_ms=duration) == line


@pytest.mark.parametrize(
    ("source", "subject", "line"),
    [
        ("none", "", "apiKeySource=none"),
        ("claude.ai", " tier 1\r\nforged ", "apiKeySource=claude.ai (tier 1  forged)"),
        ("none", "s" * 300, f"apiKeySource=none ({'s' * 200})"),
        ("none\nforged", " ", "apiKeySource=none forged"),
        (None, "tier 1", None),
    ],
)
def test_api_key_line(source: str | None, subject: str, line: str | None) -> None:
    assert api_key_line(source, subject) == line
