"""Texts as databases take them."""

from __future__ import annotations

from claudeops.text import clean


def test_clean_text_is_plain_text_whatever_it_was() -> None:
    """What is encoded knows no other kinds."""

    class Meaning(str):
        __slots__ = ()

    assert [type(clean(Meaning(text))) for text in ("a", "\u00e4", "\x00")] == [str, str, str]
