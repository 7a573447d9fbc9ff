"""What the page about the cell says of its walls is what is tried at them."""

from __future__ import annotations

from support.checkout import ROOT
from support.walls import WALLS, table

PAGE = (ROOT / "docs" / "discussions" / "the-cell.md").read_text(encoding="utf-8")


def test_the_table_of_walls_is_that_of_the_test() -> None:
    section = PAGE.partition("\n## What each wall holds\n")[2].partition("\n## ")[0]
    written = "".join(f"{line}\n" for line in section.splitlines() if line.startswith("|"))
    assert written == table(), "`python -m support.walls` in tests/ prints it"


def test_every_wall_says_what_holds_it() -> None:
    assert [wall.what for wall in WALLS if not wall.held_by] == []
