"""Expressions and globs over what others wrote: in linear work, with the meaning that `re` and `fnmatch` give them."""

from __future__ import annotations

import fnmatch
import importlib
import pkgutil
import re
import sys
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import claudeops.domain
import claudeops.formats
import claudeops.harness
import claudeops.policy
import claudeops.text
import claudeops.wording
from claudeops.policy.tiers import parse_policy
from claudeops.settings.policy import default_text
from claudeops.text import glob, regex

# Its three expressions are taken by `re` in one way only, and it runs over every line; the import contract says so too.
NOT_READ = "claudeops.text.redact"
TEXTS = st.text(st.sampled_from("ab.-_ \n\u00e9\u3000\x1c\U0001f600\ud800"), max_size=12)


def modules() -> list[str]:
    """Return the modules that read what agents, repositories and models wrote."""
    found = []
    for package in (
        *(claudeops.text, claudeops.domain, claudeops.policy, claudeops.formats, claudeops.wording),
        claudeops.harness,
    ):
        found += [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [name for name in found if not name.startswith(NOT_READ)]


def held(value: object, depth: int = 0) -> Iterator[object]:
    """Yield a value and what its containers hold."""
    yield value
    if isinstance(value, dict) and depth < 4:
        for item in (*value.keys(), *value.values()):
            yield from held(item, depth + 1)
    elif isinstance(value, tuple | list | set | frozenset) and depth < 4:
        for item in value:
            yield from held(item, depth + 1)


@pytest.mark.parametrize("name", modules())
def test_no_expression_that_can_backtrack_is_held_against_what_others_wrote(name: str) -> None:
    module = importlib.import_module(name)
    values = [value for attribute in vars(module).values() for value in held(attribute)]
    assert not [value for value in values if isinstance(value, re.Pattern)]
    assert not {"re", "fnmatch"} & {
        value.__name__ for value in vars(module).values() if isinstance(value, type(sys))
    }, "the module itself"
    for value in values:
        if isinstance(value, regex.Pattern):
            regex.check(value.expression) if isinstance(value.expression, str) else value.engine.match(b"")


def test_a_look_at_every_module_would_find_an_expression_of_re() -> None:
    assert [value for value in held({"a": (1, [re.compile("x")])}) if isinstance(value, re.Pattern)]


def test_every_expression_of_the_shipped_policy_is_one_that_google_re2_takes() -> None:
    parse_policy(default_text())  # raises for any other


@pytest.mark.parametrize("expression", ["(", "(?!a)b", "(a)\\1", "a{1,2000}", "\ud800"])
def test_an_expression_that_google_re2_does_not_take_is_an_error_of_ours(expression: str) -> None:
    with pytest.raises(regex.ExpressionError, match=r"\w"):
        regex.check(expression)


def test_word_and_space_mean_what_they_mean_to_re() -> None:
    # The library may know a newer Unicode than Python does.
    known = (chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in {"Cn", "Cs"})
    text = "".join(known)
    for ours, theirs in ((f"[{regex.WORD}]", r"\w"), (f"[{regex.SPACE}]", r"\s")):
        assert {match[0] for match in regex.Pattern(ours).finditer(text)} == set(re.findall(theirs, text))


@given(TEXTS)
def test_positions_and_groups_are_those_of_the_text_that_was_given(text: str) -> None:
    for expression in (r"(a)|(b)", r"[.\-]+", r"(?s)a(.)?", r"(?m)^b*", "\u00e9", r"b*"):
        ours, theirs = regex.Pattern(expression), re.compile(expression)
        assert [(match.span(), match.start(), match.end(), match[0]) for match in ours.finditer(text) if match[0]] == [
            (match.span(), match.start(), match.end(), match[0]) for match in theirs.finditer(text) if match[0]
        ]
        found, wanted = ours.search(text), theirs.search(text)
        assert (found is None) == (wanted is None)
        assert found is None or wanted is None or found.span() == wanted.span()
        assert (ours.match(text) is None) == (theirs.match(text) is None)
        assert (ours.fullmatch(text) is None) == (theirs.fullmatch(text) is None)


@given(TEXTS)
def test_texts_are_split_and_put_together_as_re_does(text: str) -> None:
    assert regex.split(r"[.\-]", text) == re.split(r"[.\-]", text)
    assert regex.split(r"[.\-]+", text, 1) == re.split(r"[.\-]+", text, maxsplit=1)
    assert regex.sub(r"a+", "\\1", text) == re.sub(r"a+", lambda _match: "\\1", text)
    assert regex.sub(r"(a)(b)?", lambda found: found[2] or "-", text) == re.sub(
        r"(a)(b)?", lambda found: found[2] or "-", text
    )


def test_a_group_that_took_no_part_is_none_and_a_named_one_has_its_name() -> None:
    found = regex.match("(?P<first>a)(b)?", "ac")
    assert found is not None
    assert (found["first"], found[2], found.span(2)) == ("a", None, (-1, -1))


def test_bytes_count_one_each_whatever_they_are() -> None:
    found = regex.Pattern(rb"[^a]+").search(b"a\xff\xc3\xa9")
    assert found is not None
    assert found.span() == (1, 4)


def test_what_is_escaped_is_found_as_it_is() -> None:
    text = "/srv/[a]-*.(x)+\u00e9\\$"
    assert regex.fullmatch(regex.escape(text), text)
    assert not regex.fullmatch(regex.escape("a.c"), "abc")


@given(st.text("ab-*?[]!.", max_size=8), st.text("ab-*?[]!.", max_size=8))
def test_a_glob_means_what_it_means_to_fnmatch(text: str, pattern: str) -> None:
    if "-" not in pattern[1:-1]:  # of a range that ends before it begins fnmatch makes what it will
        assert glob.matches(text, pattern) == fnmatch.fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [("b", "[a-c]", True), ("d", "[a-c]", False), ("-", "[a-]", True), ("d", "[!a-c]", True), ("a-c", "[a-c]", False)],
)
def test_a_range_of_a_glob_holds_what_lies_between(text: str, pattern: str, expected: bool) -> None:
    assert glob.matches(text, pattern) is expected


@given(st.text("ab*?", max_size=6), st.text("ab*?", max_size=6))
def test_two_globs_overlap_where_some_text_fits_both(left: str, right: str) -> None:
    def met(one: str, other: str) -> bool:
        if one[:1] == "*":
            return met(one[1:], other) or (bool(other) and met(one, other[1:]))
        if other[:1] == "*":
            return met(other, one)
        if not one or not other:
            return one == other
        return (one[0] == other[0] or "?" in (one[0], other[0])) and met(one[1:], other[1:])

    assert glob.overlap(left, right) is met(left, right) is glob.overlap(right, left)


def test_long_globs_and_texts_are_compared_all_the_same() -> None:
    assert not glob.matches("a" * 16_000, "*a" * 8000 + "b")
    assert glob.matches("a" * 16_000, "*a" * 8000)
    assert glob.matches("[" * 16_000, "[" * 16_000)
    assert glob.overlap("*a" * 8000, "a*b*a")


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "a" * 100_000 + "!", "\n" * 100_000 + "X"], ids=["fits", "does not", "newlines"]
)
def test_an_expression_that_takes_re_for_ever_takes_no_time(text: str) -> None:
    for expression in (r"(a+)+$", r"(a|a)*b", r"(?:\s*[;\n]\s*)*p", r"(?s)print.*>.*>.*>"):
        assert not regex.fullmatch(expression, text + "\n")
