"""The documents can be found and are true where a program can tell: the index, links, settings, promises."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from claudeops import __version__
from claudeops.settings.model import GENERAL, PER_TIER
from support.checkout import ROOT

DOCS: Final = ROOT / "docs"
INDEX: Final = DOCS / "README.md"
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
PROMISES: Final = (DOCS / "reference" / "promises.md").read_text(encoding="utf-8")
PAGES: Final = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
LINK: Final = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")

README_BYTES: Final = 10_000
SETTINGS_SHOWN: Final = 20


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def links(text: str) -> list[tuple[str, str]]:
    """Return the links of a text to files, each with its heading; none in blocks of code."""
    return LINK.findall(re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), flags=re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    counted: Counter[str] = Counter()
    found = set()
    for heading in plain:
        anchor = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        found.add(f"{anchor}-{counted[anchor]}" if counted[anchor] else anchor)
        counted[anchor] += 1
    return found


def dead(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    return [
        f"{file}#{heading}"
        for file, heading in links(text_of(page))
        if not (target := page.parent / file if file else page).exists()
        or (heading and target.suffix == ".md" and heading not in anchors(target))
    ]


# --- finding a page ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert dead(page) == []


def test_the_index_names_every_page_once() -> None:
    named = Counter((INDEX.parent / file).resolve() for file, _ in links(text_of(INDEX)) if file.endswith(".md"))
    pages = {page.resolve() for page in DOCS.rglob("*.md")} - {INDEX.resolve()}

    assert sorted(page.name for page in pages - named.keys()) == [], "docs/README.md lacks them"
    assert [page.name for page, count in named.items() if count > 1 or page not in pages] == []


def test_the_index_says_of_each_page_what_its_heading_says_and_a_line_more() -> None:
    entries = re.findall(r"^- \[([^\]]+)\]\(([^)]+\.md)\): \S", text_of(INDEX), flags=re.MULTILINE)

    assert len(entries) == len([file for file, _ in links(text_of(INDEX)) if file.endswith(".md")])
    wrong = [file for title, file in entries if not text_of(INDEX.parent / file).startswith(f"# {title}\n")]
    assert wrong == []


def test_programs_lie_in_scripts_and_make_calls_each_of_them() -> None:
    called = re.findall(r"\bscripts/(\w+\.py)", text_of(ROOT / "Makefile"))

    assert [path.name for path in DOCS.rglob("*.py")] == [], "move it to scripts/"
    assert sorted(called) == sorted(path.name for path in (ROOT / "scripts").glob("*.py"))


# --- the README -------------------------------------------------------------------------------------------


def test_the_readme_can_be_read_in_five_minutes() -> None:
    assert len(README.encode()) <= README_BYTES, "move what not everybody needs to a page of docs/"
    assert README.count("![") == 2, "two pictures"


def test_the_settings_of_the_readme_exist_and_have_its_defaults() -> None:
    rows = dict(re.findall(r"^\| `([A-Z][A-Z0-9_{n}]+)` \| (.*?) \|", README, flags=re.MULTILINE))
    defaults = {
        variable.name: variable.default_note or ", ".join(f"`{value}`" for value in variable.defaults) or "none"
        for variable in (*GENERAL, *PER_TIER)
        if variable.used
    }

    assert len(rows) == SETTINGS_SHOWN
    assert {name: defaults.get(name, "no such setting") for name in rows} == rows


def test_the_readme_names_the_command_that_ci_calls() -> None:
    assert "\nmake test " in README
    assert "make test" in text_of(ROOT / ".ci" / "run")


def test_the_readme_says_where_the_command_and_its_state_are() -> None:
    commands = README.partition("## Two commands")[2].partition("\n## ")[0]

    for said in ("`.venv/bin/claudeops`", "`make shell`", "`CLAUDEOPS_STATE_DIR`", "`.claudeops/state`"):
        assert said in commands


def test_what_the_readme_shows_was_printed_in_this_order() -> None:
    excerpt = README.partition("```\n")[2].partition("```")[0].splitlines()
    rest = iter(text_of(DOCS / "excerpts" / "make-run.txt").splitlines())

    missing = [line for line in excerpt if line not in {"", "…"} and line not in rest]

    assert not missing, "show what docs/excerpts/make-run.txt holds now"
    assert len(excerpt) > 10


# --- promises ---------------------------------------------------------------------------------------------


def test_every_promise_names_tests_that_exist() -> None:
    table = PROMISES.partition("| promise | where |")[2].splitlines()[2:]
    named = [re.findall(r"`(tests/[^`]+)`", row) for row in table]

    assert len(named) > 40
    assert all(named), "a promise without a test"
    assert not [path for paths in named for path in paths if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_with_commands_says_where_claudeops_is(page: Path) -> None:
    text = text_of(page)
    fenced = "\n".join(re.findall(r"^```[a-z]*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    called = re.search(r"^(\$ )?claudeops [a-z]", fenced, flags=re.MULTILINE)

    assert called is None or "call-claudeops.md" in text or page.name == "call-claudeops.md"


# --- the changelog ----------------------------------------------------------------------------------------

CHANGELOG: Final = text_of(ROOT / "CHANGELOG.md")
CHANGES: Final = ("Added", "Changed", "Fixed", "Security", "Removed")


def releases() -> list[str]:
    return re.findall(r"^## (.+)$", CHANGELOG, flags=re.MULTILINE)


def test_the_newest_release_comes_first_and_is_the_version_of_the_project() -> None:
    dated = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) \((\d{4}-\d\d-\d\d)\)", name) for name in releases()]
    named = [(tuple(map(int, found.groups()[:3])), found[4]) for found in dated if found is not None]

    assert [name for name, found in zip(releases(), dated, strict=True) if found is None] in ([], ["Unreleased"])
    assert named == sorted(named, reverse=True)
    assert ".".join(map(str, named[0][0])) == __version__


def test_changes_stand_below_the_usual_headings_in_their_order() -> None:
    for release in re.split(r"^## .+$", CHANGELOG, flags=re.MULTILINE)[1:]:
        headings = re.findall(r"^### (.+)$", release, flags=re.MULTILINE)
        assert headings == [name for name in CHANGES if name in headings]


def test_each_change_is_one_line_and_the_breaking_ones_come_first() -> None:
    assert re.findall(r"^ +\S.*$", CHANGELOG, flags=re.MULTILINE) == [], "a change has one line"
    for part in re.split(r"^##+ .+$", CHANGELOG, flags=re.MULTILINE):
        breaking = [line.startswith("- **Breaking:** ") for line in part.splitlines() if line.startswith("- ")]
        assert breaking == sorted(breaking, reverse=True)
