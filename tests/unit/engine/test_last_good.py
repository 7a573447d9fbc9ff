"""An operator's file that is read again: what was wrong with it counts as long as it is wrong, and no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from claudeops.engine.last_good import LastGood, look_again
from claudeops.errors import ConfigurationError

GOOD = "interval = 60\n"


def read(path: Path) -> str:
    text = path.read_text()
    if text != GOOD:
        raise ConfigurationError(f"{path.name} is wrong.")
    return text


def unread(path: Path) -> str:
    raise AssertionError(f"{path} was read")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "probes.toml"
    path.write_text(GOOD)
    return path


def test_a_file_that_did_not_change_is_not_read_again(file: Path) -> None:
    last = look_again(LastGood(""), file, read)
    assert last == LastGood(GOOD, seen=last.seen)
    assert look_again(last, file, unread) is last


def test_the_very_file_that_was_right_before_is_right_again_when_it_is_put_back(file: Path, tmp_path: Path) -> None:
    right = look_again(LastGood(""), file, read)
    aside = tmp_path / "aside.toml"
    file.rename(aside)
    file.write_text("interval = ?\n")
    wrong = look_again(right, file, read)
    assert wrong == LastGood(GOOD, "probes.toml is wrong.", right.seen)
    aside.rename(file)  # with its number, its size and its time
    assert look_again(wrong, file, read) == right


def test_a_file_that_is_gone_and_comes_back_as_it_was_is_right_again(file: Path, tmp_path: Path) -> None:
    right = look_again(LastGood(""), file, read)
    aside = tmp_path / "aside.toml"
    file.rename(aside)
    gone = look_again(right, file, read)
    assert gone == LastGood(GOOD, f"{file} is not there any more.", right.seen)
    aside.rename(file)
    assert look_again(gone, file, read) == right
