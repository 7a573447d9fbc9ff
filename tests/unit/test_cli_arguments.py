"""The command line before anything starts: usage, help, and the one document of JSON mode."""

from __future__ import annotations

import json

import pytest

from claudeops.cli.command_line import call


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
