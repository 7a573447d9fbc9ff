"""What the pages show of the shell was printed by the commands that there are."""

from __future__ import annotations

from typing import Final

import click

from claudeops.cli.commands import claudeops
from support.checkout import ROOT

EXCERPT: Final = (ROOT / "docs/excerpts/shell.txt").read_text(encoding="utf-8")
PAGE: Final = (ROOT / "docs/how-to/ask-from-the-shell.md").read_text(encoding="utf-8")
AGAIN: Final = "record it again: make excerpt-shell"


def printed() -> dict[str, list[str]]:
    """Return what each command printed at last; ``status`` while a daemon ran, lists at the end."""
    blocks = (block.partition("\n") for block in EXCERPT.split("$ claudeops ")[1:])
    return {command: text.strip("\n").split("\n") for command, _, text in blocks}


def test_the_excerpt_asks_what_the_issue_of_an_operator_is() -> None:
    assert {command.split()[0] for command in printed()} >= {"status", "chain", "list-events", "spend", "doctor"}
    with click.Context(claudeops) as context:
        known = claudeops.list_commands(context)
    assert {command.split()[0] for command in printed()} <= set(known), AGAIN


def test_the_page_shows_what_was_printed() -> None:
    shown = PAGE.split("$ claudeops ")[1:]
    assert len(shown) >= 4
    for block in shown:
        command, _, rest = block.partition("\n")
        lines = rest.partition("\n```")[0].split("\n")
        assert lines == printed()[command], AGAIN


def test_no_path_of_a_machine_is_in_the_excerpt() -> None:
    assert not [line for line in EXCERPT.splitlines() if "/home/" in line or "/tmp/" in line or "/work/" in line]  # noqa: S108
