"""The glossary is short, and its words are used."""

from __future__ import annotations

import re
from typing import Final

import pytest

from support.checkout import ROOT

GLOSSARY: Final = ROOT / "docs" / "glossary.md"
MOST_TERMS: Final = 60
TERMS: Final = re.findall(r"^\*\*([^*]+)\*\*:", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.fixture(scope="module")
def elsewhere() -> str:
    """Return what the other pages and the code say, in small letters, a blank for each sign that is none."""
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.html")]
    return plain("\n".join(page.read_text(encoding="utf-8") for page in pages if page != GLOSSARY))


def plain(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text.lower())


def test_the_glossary_is_short_enough_to_be_read() -> None:
    assert len(TERMS) <= MOST_TERMS, "plain English needs no entry, and a page of docs/ may explain its own words"


def test_every_entry_of_the_glossary_is_a_term_with_its_meaning() -> None:
    paragraphs = GLOSSARY.read_text(encoding="utf-8").strip().split("\n\n")

    assert len([text for text in paragraphs[2:] if not text.startswith("## ")]) == len(TERMS)


@pytest.mark.parametrize("term", TERMS)
def test_every_term_is_used(term: str, elsewhere: str) -> None:
    assert re.search(rf"\b{plain(term).strip()}", elsewhere), "no page and no code uses this word"


def test_no_word_stands_in_the_glossary_twice() -> None:
    assert sorted(term.casefold() for term in TERMS) == sorted({term.casefold() for term in TERMS})
