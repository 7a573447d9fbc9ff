"""The command line before anything starts: usage, help, and the one document of JSON mode."""

from __future__ import annotations

import json

import pytest

from claudeops.cli.command_line import call
from claudeops.cli.commands import claudeops
from claudeops.cli.commands.options import OTHERS, WholeHelp, sentence


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    written = capsys.readouterr()
    assert written.err == ""
    loaded = json.loads(written.out)
    assert isinstance(loaded, dict)
    return loaded


def test_an_unknown_format_is_a_usage_error_with_the_allowed_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["bootstrap", "--output-format", "yaml"]) == 64
    written = capsys.readouterr()
    assert written.out == ""
    assert "'text', 'json'" in written.err


def test_every_allowed_value_of_an_option_is_said_in_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["list-approvals", "-o", "yaml"]) == 64
    assert "text|json" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        "-o json memories add",
        "memories -o json add",
        "memories add -o json",
        "memories add -ojson",
        "-ojson memories add",
    ],
)
def test_the_format_may_stand_before_the_command_or_behind_it(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(arguments.split()) == 1
    told = document(capsys)
    assert told["command"] == "memories add"
    error = told["error"]
    assert isinstance(error, dict)
    assert (error["kind"], error["target"], error["message"]) == (
        "usage",
        "observation",
        "Missing argument 'observation'.",
    )
    assert "claudeops memories add --help" in error["hint"]
    assert str(told["usage"]).startswith("claudeops memories add")


def test_behind_two_dashes_stands_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["approve", "--", "-o", "json"]) == 64
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "name"),
    [("bootstap --output-format json", "bootstap"), ("-o json memories ad", "memories ad"), ("x --help -o json", "x")],
)
def test_a_command_that_does_not_exist_is_not_found(
    arguments: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(arguments.split()) == 1
    told = document(capsys)
    assert (told["command"], told["name"], told["found"], told["sysexit"]) == (name, name, False, 64)
    assert told["error"] == {
        "kind": "command_not_found",
        "message": told["error"]["message"],  # type: ignore[index]  # it is an object, as the comparison shows
        "retryable": False,
    }


def test_no_command_in_json_mode_is_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--output-format", "json"]) == 1
    assert document(capsys)["command"] == "claudeops"


def test_what_nobody_foresaw_is_one_document_without_the_text_of_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "a secret"

    def fails() -> int:
        raise RuntimeError(text)

    monkeypatch.setattr(claudeops.commands["health"], "callback", lambda **_: fails())
    assert call(["health", "-o", "json"]) == 1
    written = capsys.readouterr()
    told = json.loads(written.out)
    assert (told["error"]["kind"], told["sysexit"]) == ("unknown", 70)
    assert "RuntimeError" in told["error"]["message"]
    assert "fails" in written.err
    assert "a secret" not in written.out + written.err

    assert call(["health"]) == 70
    assert capsys.readouterr().out == ""


def test_an_interrupt_is_one_document_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(**_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(claudeops.commands["health"], "callback", interrupted)
    assert call(["health", "-o", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["error"]["retryable"] is True


@pytest.mark.parametrize("flag", [["--output-format", "json"], ["--output-format=json"]], ids=["two words", "one word"])
def test_a_bad_option_is_one_document_that_names_it(flag: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["bootstrap", "--bogus", *flag]) == 1
    told = document(capsys)
    assert (told["command"], told["exit_code"], told["sysexit"]) == ("bootstrap", 1, 64)
    error = told["error"]
    assert isinstance(error, dict)
    assert (error["kind"], error["operation"], error["target"], error["retryable"]) == (
        "usage",
        "parse_args",
        "--bogus",
        False,
    )


def test_a_bad_value_names_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["bootstrap", "--tier", "zero", "--output-format", "json"]) == 1
    error = document(capsys)["error"]
    assert isinstance(error, dict)
    assert error["target"] == "tier"


def test_help_in_json_mode_is_json_and_needs_neither_key_nor_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["bootstrap", "--help", "--output-format", "json"]) == 0
    told = document(capsys)
    assert told["command"] == "bootstrap"
    assert "--tier" in str(told["help"])


def groups() -> list[WholeHelp]:
    found = [claudeops, *claudeops.commands.values()]
    return [group for group in found if isinstance(group, WholeHelp)]


def test_help_says_a_whole_sentence_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for group in groups():
        path = [] if group is claudeops else [str(group.name)]
        assert call([*path, "--help"]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert "..." not in told.replace("[ARGS]...", "")
        for name, command in group.commands.items():
            assert sentence(command).endswith("."), name
            assert f"{name} {sentence(command)}" in told


def test_every_command_stands_under_a_heading_that_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--help"]) == 0
    told = capsys.readouterr().out
    assert [line for line in ("Watch:", "Act:", "Look:", "Set up:") if line not in told] == []
    assert f"{OTHERS}:" not in told
    assert isinstance(claudeops, WholeHelp)
    named = [name for names in claudeops.headings.values() for name in names]
    assert sorted(named) == sorted(claudeops.commands)


def test_help_says_where_the_state_is_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--help"]) == 0
    assert "CLAUDEOPS_STATE_DIR, else in /state, else in .claudeops/state" in " ".join(capsys.readouterr().out.split())


def test_no_command_at_all_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert call([]) == 64
    assert "bootstrap" in capsys.readouterr().err


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["bootstap"]) == 64
    assert "bootstap" in capsys.readouterr().err


def test_a_session_is_not_its_own_operator(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CLAUDEOPS_SESSION_MARK", "owner:1:1")
    assert call(["bootstrap"]) == 78
    assert "inside one of its own sessions" in capsys.readouterr().err


def test_settings_that_are_refused_are_one_document_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAUDEOPS_INTERVAL", "soon")
    assert call(["bootstrap", "--output-format", "json"]) == 1
    told = document(capsys)
    assert (told["exit_code"], told["sysexit"]) == (1, 78)
    assert "CLAUDEOPS_INTERVAL" in str(told["error"])
