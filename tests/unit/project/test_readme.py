"""The README tells the truth about files: what it shows was printed, what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.checkout import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
EXCERPT = README.partition("```\n")[2].partition("```")[0].splitlines()
PRINTED = (ROOT / "docs/excerpts/make-run.txt").read_text(encoding="utf-8").splitlines()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_what_the_readme_shows_was_printed_in_this_order() -> None:
    rest = iter(PRINTED)

    missing = [line for line in EXCERPT if line not in {"", "…"} and line not in rest]

    assert not missing, "show what docs/excerpts/make-run.txt holds now"
    assert len(EXCERPT) > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?![a-z]+:|#)([^)#]+)", page.read_text(encoding="utf-8"))

    assert not [link for link in links if not (page.parent / link).exists()]


def test_every_promise_names_tests_that_exist() -> None:
    table = README.partition("| promise | where |")[2].partition("\n\n")[0].splitlines()[2:]
    named = [re.findall(r"`(tests/[^`]+)`", row) for row in table]

    assert all(named), "a promise without a test"
    assert not [path for paths in named for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_whoever_is_told_to_call_claudeops_is_told_where_it_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    fenced = "\n".join(re.findall(r"^```[a-z]*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    called = re.search(r"^(\$ )?claudeops [a-z]", fenced, flags=re.MULTILINE)

    assert called is None or "call-claudeops.md" in text or page.name == "call-claudeops.md"


def test_the_readme_says_where_the_command_and_its_state_are() -> None:
    commands = README.partition("## Two commands")[2].partition("\n## ")[0]

    for said in ("`.venv/bin/claudeops`", "`make shell`", "`CLAUDEOPS_STATE_DIR`", "`.claudeops/state`"):
        assert said in commands
