"""Help: every command has at least two examples, and each of them can be written as it stands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from claudeops.cli.commands import claudeops


def commands(group: click.Group = claudeops, path: Sequence[str] = ()) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def examples(name: str, command: click.Command) -> list[str]:
    with click.Context(command, info_name=f"claudeops {name}", help_option_names=["-h", "--help"]) as context:
        lines = command.get_help(context).partition("Examples:")[2].splitlines()
    return [line.strip() for line in lines if line.strip().startswith("claudeops ")]


ALL = list(commands())


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_two_examples_of_every_command_can_be_written_as_they_stand(
    name: str, command: click.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "daemon.log").touch()
    found = examples(name, command)
    assert len(found) >= 2
    for example in found:
        asked, arguments = resolved(shlex.split(re.split(" [<>] ", example)[0])[1:])
        assert asked is command
        with asked.make_context(name, arguments):
            pass  # it was parsed


def resolved(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that a line calls, and the arguments left for it."""
    command: click.Command = claudeops
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    return command, words


@pytest.mark.parametrize("path", [(), *{tuple(name.split()[:-1]) for name, _ in ALL if " " in name}])
def test_the_short_flag_shows_help_of_groups_too(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert claudeops.main([*path, "-h"], prog_name="claudeops", standalone_mode=False) == 0
    assert "Usage: claudeops" in capsys.readouterr().out
