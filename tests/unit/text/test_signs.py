"""No sign that a screen shows as nothing stays in a text that people read, and what is seen stays as it is."""

from __future__ import annotations

import json
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.formats.senders.common import shown
from claudeops.text import signs
from claudeops.text.escapes import unmistakable, unmistakable_line, visible

UNSEEN = [chr(code) for first, last in (*signs.IGNORABLE, *signs.BLANK) for code in range(first, last + 1)]
SEEN = "abcABC019 ~!\\'\"\u00e4\u00df\u0416\u05d0\u4e16\u3042\uac00\u0301\u0e33\u094d\u20ac\u2192\u2713\U0001f600"


def test_the_ranges_are_in_order_and_apart() -> None:
    for ranges in (signs.IGNORABLE, signs.NONCHARACTERS):
        assert all(first <= last for first, last in ranges)
        assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))


def test_every_format_character_that_unicode_ignores_is_in_the_table() -> None:
    """What Python knows: formats are ignorable but for signs of their own, and so is every variation selector."""
    drawn = "PREPENDED|ARABIC NUMBER|ARABIC SIGN|FOOTNOTE|END OF AYAH|ABBREVIATION|POUND MARK|PIASTRE|NUMBER SIGN"
    for code in range(0x110000):
        name, category = unicodedata.name(chr(code), ""), unicodedata.category(chr(code))
        is_drawn = any(word in name for word in drawn.split("|")) or "INTERLINEAR" in name
        if (category == "Cf" and not is_drawn) or "VARIATION SELECTOR" in name or "HANGUL FILLER" in name:
            assert signs.is_unseen(chr(code)), name


def test_the_table_is_that_of_unicode() -> None:
    counted = sum(last - first + 1 for first, last in signs.IGNORABLE)

    assert counted == 4174  # DerivedCoreProperties.txt: "Total code points"


def test_nothing_that_is_seen_is_taken_for_unseen() -> None:
    assert not any(signs.is_unseen(sign) for sign in SEEN)
    for code in range(0x110000):  # letters and figures with ink, as far as Python knows them
        if unicodedata.category(chr(code)) in {"Lu", "Ll", "Lt", "Nd", "Nl", "No", "Sc", "Sk", "Pd", "Ps", "Pe"}:
            assert not signs.is_unseen(chr(code))


@pytest.mark.parametrize("show", [visible, unmistakable, unmistakable_line, shown])
def test_no_unseen_sign_stays_wherever_it_stands(show: object) -> None:
    assert callable(show)
    for sign in (*UNSEEN, *(chr(code) for first, last in signs.NONCHARACTERS for code in range(first, last + 1))):
        for text in (f"a{sign}b", f"{sign}a", f"1{sign}{sign}", f"\u4e16{sign}"):
            assert sign not in show(text), f"{ord(sign):x}"


@given(st.text(alphabet=st.sampled_from([*SEEN, *UNSEEN[::40], "\n", "\t", "\u202e", "\ufe0f", "\u26a0"])))
def test_what_is_shown_is_shown_so_again_and_loses_nothing(text: str) -> None:
    for show in (visible, unmistakable):
        once = show(text)
        assert show(once) == once
        assert [sign for sign in once if sign in SEEN and sign not in "\\abcABC019"] == [
            sign for sign in text if sign in SEEN and sign not in "\\abcABC019"
        ]


@pytest.mark.parametrize("emoji", ["\u26a0\ufe0f", "\u2764\ufe0f now", "\u25b6\ufe0e", "1\ufe0f\u20e3", "\u2194\ufe0f"])
def test_an_emoji_is_one_wherever_people_only_read(emoji: str) -> None:
    assert visible(f"disk {emoji}") == f"disk {emoji}"
    assert shown(f"disk {emoji}") == f"disk {emoji}"
    assert unmistakable(emoji).count("\\ufe0") == 1


@pytest.mark.parametrize(
    "text", ["\u26a0\ufe0f\ufe0f", "\u26a0\ufe0f\ufe0e\ufe01", "\u2800\ufe0f", "x\ufe0f", "\ufe0f"]
)
def test_a_selector_that_selects_nothing_is_escaped(text: str) -> None:
    assert visible(text).count("\ufe0f") + visible(text).count("\ufe0e") == text.count("\u26a0")


@pytest.mark.parametrize("space", ["\u00a0", "\u1680", "\u2003", "\u202f", "\u205f", "\u3000"])
def test_what_looks_like_a_space_and_is_none_is_escaped_where_every_sign_counts(space: str) -> None:
    assert unmistakable(f"rm{space}-rf") == f"rm\\u{ord(space):04x}-rf"
    assert visible(f"10{space}%") == f"10{space}%"


def test_what_no_font_may_know_is_escaped_where_every_sign_counts() -> None:
    assert unmistakable("rm\u0378\U000e1000") == r"rm\u0378\U000e1000"


def test_a_name_cannot_begin_a_line_of_its_own() -> None:
    assert unmistakable_line("a\ncommand:\n\tuptime") == r"a\u000acommand:\u000a\u0009uptime"


def test_a_label_that_python_calls_printable_hides_nothing() -> None:
    hidden = "".join(chr(0xE0100 + byte) for byte in b"rm -rf /")

    assert hidden.isprintable()
    assert json.dumps(shown(f"shop{hidden}")).count("U000e01") == 8
