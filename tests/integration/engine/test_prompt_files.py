"""The prompt files on a real disk: an edit counts at once, a wrong one is told once and changes nothing."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from claudeops import logs
from claudeops.app.wiring import prompt_files
from claudeops.engine.prompt_files import PromptFiles, Template
from claudeops.logs import get_logger
from support.hung_disk import disk
from support.settings_world import World

pytestmark = pytest.mark.anyio

GOOD = "Look at everything.\n"


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure(level="debug", fmt="json", stream=stream, redact=str)
    yield stream
    logs.flush()


def events(logged: io.StringIO) -> list[str]:
    return [json.loads(line)["event"] for line in logged.getvalue().splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tier1.md"
    path.write_text(GOOD)
    return path


@pytest.fixture
def prompts(file: Path, tmp_path: Path) -> PromptFiles:
    """Return the prompts as the daemon makes them of its settings."""
    settings = World(tmp_path).settings(CLAUDEOPS_PROMPT=str(file), CLAUDEOPS_MAX_TIER="1")
    return prompt_files(settings, get_logger())


async def test_the_text_comes_with_its_place_and_digest(prompts: PromptFiles, file: Path) -> None:
    assert await prompts.template(1) == Template.of(GOOD, str(file))
    assert len((await prompts.template(1)).digest) == 64


async def test_an_edit_counts_from_the_next_session_on(prompts: PromptFiles, file: Path, logged: io.StringIO) -> None:
    before = await prompts.template(1)
    file.write_text("Look at the cellar first.\n")
    after = await prompts.template(1)
    assert after.text == "Look at the cellar first.\n"
    assert after.digest != before.digest
    await prompts.template(1)
    assert events(logged) == ["prompt_file_read"]
    assert prompts.notices.take() == ()


async def test_digests_are_the_same_object_until_a_prompt_has_changed(prompts: PromptFiles, file: Path) -> None:
    first = prompts.digests()
    await prompts.template(1)
    assert prompts.digests() is first
    file.write_text("Look at the cellar first.\n")
    after = await prompts.template(1)
    assert (prompts.digests()[1], first[1] != after.digest) == (after.digest, True)


def _binary(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _text(text: str) -> Callable[[Path], object]:
    return partial(Path.write_text, data=text)


@pytest.mark.parametrize(
    ("spoil", "words"),
    {
        "gone": (Path.unlink, "which does not exist"),
        "empty": (_text(""), "which is empty"),
        "blank": (_text(" \n\t"), "which is empty"),
        "not UTF-8": (_binary, "which is not UTF-8"),
        "a pipe": (_pipe, "which is not a file"),
        "a directory": (_directory, "which is not a file"),
        "a command": (_text("/clear"), "it begins with '/'"),
        "a mention": (_text("Look.\nRead @/etc/passwd"), "line 2 holds an '@'"),
    }.values(),
)
async def test_a_wrong_edit_is_told_once_and_the_last_good_text_serves(
    prompts: PromptFiles, file: Path, logged: io.StringIO, spoil: Callable[[Path], object], words: str
) -> None:
    good = await prompts.template(1)
    spoil(file)
    assert [await prompts.template(1) for _ in range(3)] == [good] * 3
    (event,) = prompts.notices.take()
    assert event.fingerprint.startswith("prompt_file:1 on node ")
    assert event.level.value == "warning"
    machine, _, sentence = event.message.partition(": ")
    assert machine == event.fingerprint.removeprefix("prompt_file:1 on ")
    assert sentence.startswith("The prompt of tier 1 cannot be used, and its last good text serves: CLAUDEOPS_")
    assert words in event.message
    assert str(file) in event.message
    assert events(logged) == ["prompt_file_broken"]


async def test_an_edit_that_is_wrong_in_another_way_is_told_again_and_a_mended_file_counts(
    prompts: PromptFiles, file: Path, logged: io.StringIO
) -> None:
    file.write_text("")
    await prompts.template(1)
    file.write_text("/clear")
    await prompts.template(1)
    assert len(prompts.notices.take()) == 1, "the newest of one condition"
    file.write_text(GOOD)
    assert (await prompts.template(1)).text == GOOD
    file.write_text("")
    await prompts.template(1)
    assert len(prompts.notices.take()) == 1
    assert events(logged) == ["prompt_file_broken", "prompt_file_broken", "prompt_file_read", "prompt_file_broken"]


async def test_a_prompt_on_a_disk_that_hangs_costs_no_session(
    prompts: PromptFiles, file: Path, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claudeops.engine.prompt_files.READ_SECONDS", 0.2)
    with disk(file.parent, answers=False) as away:
        assert (await prompts.template(1)).text == GOOD
        assert away.on_the_loop == []
        away.comes_back()
    (event,) = prompts.notices.take()
    assert "took longer than 0.2 s" in event.message
    assert events(logged) == ["prompt_file_broken"]


async def test_prompts_in_no_file_stay_as_they_are() -> None:
    prompts = PromptFiles({1: Template.of(GOOD)}, log=get_logger())
    assert (await prompts.template(1)).text == GOOD
