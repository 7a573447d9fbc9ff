"""``claudeops policy`` and ``show-tool``: what would happen, told without running anything."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from claudeops.cli.command_line import call
from claudeops.policy.policy_file import render
from claudeops.policy.tiers import parse_policy, read_document
from support.policy_cases import DEFAULT_TEXT


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "repos" / "estate").mkdir(parents=True)
    for name, value in (("STATE", "state"), ("RESULTS", "results"), ("REPOS", "repos")):
        monkeypatch.setenv(f"CLAUDEOPS_{name}_DIR", str(tmp_path / value))


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert call([*arguments, "--output-format", "json"]) in {0, 1}
    loaded = json.loads(capsys.readouterr().out)
    assert isinstance(loaded, dict)
    return loaded


def test_a_command_is_taken_apart_and_told_for_every_tier(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["policy", "test", "ssh 10.0.0.5 sudo docker restart web"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("tier 1: deny: docker restart needs tier 2")
    assert "tier 2: allow: restart 10.0.0.5/web\n  part    ssh 10.0.0.5 sudo docker restart web\n" in told
    assert "  part    docker restart web\n  action  restart of 10.0.0.5/web\n" in told


def test_a_host_that_no_manifest_names_is_told_with_the_place_to_add_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["policy", "test", "curl -s https://shop.example.com/health"]) == 0
    told = capsys.readouterr().out.splitlines()
    remedy = (
        "shop.example.com is not in the estate: name it in a CLAUDE-OPS.md below the repositories directory, or add"
    )
    assert [line for line in told if remedy in line] == [
        f"tier 1: deny: {remedy} it to tiers.1.urls of the policy",
        f"tier 2: deny: {remedy} it to tiers.2.urls of the policy",
        f"tier 3: ask: {remedy} it to tiers.3.urls of the policy",
    ]


def test_the_document_holds_verdict_reason_parts_and_actions(capsys: pytest.CaptureFixture[str]) -> None:
    told = document(capsys, "policy", "test", "--tier", "3", "docker ps; docker restart web")
    docker = shutil.which("docker") or "/usr/bin/env -- 'docker'"
    assert (told["command"], told["exit_code"]) == ("policy test", 0)
    assert told["verdicts"] == [
        {
            "tier": 3,
            "verdict": "allow",
            "reason": "restart web",
            "parts": ["docker ps", "docker restart web"],
            "actions": [{"kind": "restart", "service": "web"}],
            "writes": [],
            "runs": f"{docker} 'ps'\n{docker} 'restart' '--' 'web'",
            "needed": 0,
            "names": [],
            "hosts": [],
        }
    ]


def test_another_tools_call_is_judged_by_its_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["policy", "test", "--tier", "3", "--tool", "Read", "--input", '{"file_path": "/etc/shadow"}']) == 0
    assert "tier 3: deny: /etc/shadow" in capsys.readouterr().out


def test_nothing_of_what_is_tested_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert call(["policy", "test", f"touch {tmp_path}/made; $(touch {tmp_path}/made)"]) == 0
    assert "deny" in capsys.readouterr().out
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(("expected", "status"), [("allow", 0), ("deny", 1), ("ask", 1)])
def test_a_script_can_hold_the_policy_to_an_answer(expected: str, status: int) -> None:
    assert call(["policy", "test", "uptime", "--expect", expected]) == status


def test_a_dry_run_can_be_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["policy", "test", "--dry-run", "--tier", "2", "docker restart web"]) == 0
    assert "deny: dry run: would restart web" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [[], ["--tool", "Read"], ["--input", "[1]"], ["--input", "{"], ["uptime", "--tier", "9"]]
)
def test_a_question_without_sense_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["policy", "test", *arguments]) == 64
    assert capsys.readouterr().out == ""


def test_a_file_can_be_tried_before_it_is_in_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.toml").write_text('extends = "default"\nwithout = ["uptime"]\n', encoding="utf-8")
    assert call(["policy", "test", "--file", "mine.toml", "--expect", "deny", "uptime"]) == 0
    (tmp_path / "mine.toml").write_text('extends = "default"\n[tiers.2]\ntool = []\n', encoding="utf-8")
    for command in (["policy", "test", "uptime"], ["policy", "show"], ["show-tool", "Bash"]):
        assert call([*command, "--file", "mine.toml"]) == 78
        told = capsys.readouterr().err
        assert "mine.toml, line 3: the key 'tool' is not known here: did you mean 'tools'?" in told


def test_a_wrong_policy_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.toml").write_text("[tiers.1]\ntools = 5\n", encoding="utf-8")
    monkeypatch.setenv("CLAUDEOPS_POLICY_PATH", str(tmp_path / "mine.toml"))
    assert call(["bootstrap"]) == 78
    assert "mine.toml, line 2: tiers.1.tools: Expected `array`, got `int`" in capsys.readouterr().err


def test_what_is_shown_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["policy", "show"]) == 0
    shown = capsys.readouterr().out
    assert read_document(shown) == read_document(DEFAULT_TEXT)
    extended = read_document(
        'extends = "default"\nwithout = ["ssh"]\n[tiers.4]\ntools = ["Bash"]\n[[tools]]\nname = "mcp__a__b"\n'
        'changes = false\n[[commands]]\nname = "x"\nreading = "words"\n[services]\nweb = ["a\\"b", "ü"]\n',
        default=DEFAULT_TEXT,
    )
    again = parse_policy(render(extended))
    assert render(read_document(render(extended))) == render(extended)
    assert (sorted(again.tiers), again.other_names) == ([1, 2, 3, 4], {'a"b': "web", "ü": "web"})
    assert not again.tools[0].changes


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Bash", "tier: 1  tool: Bash"),
        ("docker restart", "tier: 2  command: docker restart"),
        ("docker  compose", "command: docker compose up"),
        ("ssh", "runs: another command, which is judged too"),
    ],
)
def test_the_rules_for_a_tool_or_command_are_shown(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["show-tool"], ["policy", "show-tool"]):
        assert call([*command, name]) == 0
        assert said in capsys.readouterr().out


def test_a_tool_that_no_rule_names_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    told = document(capsys, "show-tool", "Task")
    assert (told["name"], told["found"], told["exit_code"]) == ("Task", False, 1)
    assert told["error"] == {
        "kind": "tool_not_found",
        "message": "Task: no rule names it, so it is denied at every tier",
        "retryable": False,
    }


def test_a_session_cannot_ask_what_it_would_get_away_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAUDEOPS_SESSION_MARK", "x")
    assert call(["policy", "test", "uptime"]) == 78
    assert capsys.readouterr().out == ""


def test_the_fragments_are_listed_with_what_they_open(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["policy", "fragments"]) == 0
    told = capsys.readouterr().out
    assert [line.partition(":")[0] for line in told.splitlines()] == [
        "cloud-read", "databases-read", "terraform-plan", "web-redirects",
    ]  # fmt: skip
    listed = document(capsys, "policy", "fragments")["fragments"]
    assert isinstance(listed, list)
    assert [f"{entry['name']}: {entry['opens']}" for entry in listed] == told.splitlines()


def test_a_file_may_extend_a_fragment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = ["default", "cloud-read"]\n', encoding="utf-8")
    command = "aws ec2 describe-instances"
    assert call(["policy", "test", "--file", str(file), "--expect", "allow", command]) == 0
    assert call(["policy", "test", "--expect", "deny", command]) == 0
    capsys.readouterr()
    assert call(["policy", "show", "--file", str(file)]) == 0
    assert "aws ec2 describe-instances" in capsys.readouterr().out


def test_a_file_of_the_old_form_is_written_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.toml"
    old = 'extends = "default"\n[[commands]]\nname = "backupctl"\nline = "status"\n'
    mine.write_text(old, encoding="utf-8")
    assert call(["policy", "test", "--file", "mine.toml", "backupctl status"]) == 78
    assert 'line 4: \'line\' is of the old form: write reading = "words", arguments = "re:status"' in (
        capsys.readouterr().err
    )
    assert call(["policy", "migrate", "mine.toml"]) == 0
    assert mine.read_text(encoding="utf-8") == old
    mine.write_text(capsys.readouterr().out, encoding="utf-8")
    assert call(["policy", "test", "--file", "mine.toml", "--expect", "allow", "backupctl status"]) == 0
    assert call(["policy", "test", "--file", "mine.toml", "--expect", "deny", "backupctl status now"]) == 0
