"""An argument is any bytes: one that is no UTF-8 ends in one document or one sentence, as every other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from claudeops.cli.command_line import call
from claudeops.cli.reply import Exit, json_line, print_document

STRANGE = os.fsdecode(b"\xff\xfeb")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (STRANGE, "\\udcff\\udcfeb"),
        ([STRANGE, ("x", STRANGE)], ["\\udcff\\udcfeb", ["x", "\\udcff\\udcfeb"]]),
        (
            {STRANGE: {"a": STRANGE, "b": None, "c": 1.5}},
            {"\\udcff\\udcfeb": {"a": "\\udcff\\udcfeb", "b": None, "c": 1.5}},
        ),
        ({"plain": "日本語 🔑\n", "strange": "\ud83d"}, {"plain": "日本語 🔑\n", "strange": "\\ud83d"}),
        ("日本語 🔑\n", "日本語 🔑\n"),
    ],
)
def test_every_text_has_its_place_in_a_document(value: object, written: object) -> None:
    assert json.loads(json_line({"value": value})) == {"value": written}


def test_what_json_has_no_form_for_is_still_our_mistake() -> None:
    with pytest.raises(TypeError):
        json_line({"value": object()})


def test_a_command_is_named_as_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    print_document(STRANGE, {"name": STRANGE}, Exit.OK)
    assert json.loads(capsys.readouterr().out)["command"] == "\\udcff\\udcfeb"


@pytest.mark.parametrize(
    "words",
    [
        [STRANGE],
        ["status", STRANGE],
        ["status", f"--{STRANGE}"],
        ["chain", STRANGE],
        ["token", STRANGE],
        ["list-events", "--level", STRANGE],
        ["bootstrap", "--tier", STRANGE],
        ["alerts", "replay", STRANGE],
    ],
)
def test_a_mistake_in_any_bytes_is_one_document(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = call([*words, "-o", "json"])
    document = json.loads(capsys.readouterr().out)
    assert (code, document["sysexit"] in {64, 66, 78}) == (1, True), document


@pytest.mark.parametrize("wanted", [["exec-tool", STRANGE], ["show-command", STRANGE], ["route", STRANGE]])
def test_printed_for_people_it_is_escaped(wanted: list[str], tmp_path: Path) -> None:
    (tmp_path / "repos" / "web").mkdir(parents=True)
    environment = {
        "CLAUDEOPS_REPOS_DIR": str(tmp_path / "repos"),
        "ANTHROPIC_API_KEY": "sk-ant-none",
        "LC_ALL": "C.UTF-8",
        "PYTHONIOENCODING": "utf-8:strict",
    }
    done = subprocess.run(
        [sys.executable, "-m", "claudeops", *wanted],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode in {0, 1, 78}
    assert b"This is a bug" not in done.stderr
