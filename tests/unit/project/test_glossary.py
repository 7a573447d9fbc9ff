"""The glossary's words stand there once."""

from __future__ import annotations

import re

from support.checkout import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"


def test_no_word_stands_in_the_dictionary_twice() -> None:
    words = re.findall(r"^\*\*([^*]+)\*\*:", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(words) > 80
    assert sorted(word.casefold() for word in words) == sorted({word.casefold() for word in words})
