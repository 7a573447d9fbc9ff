"""Repositories hold anything: no text stops the reader, takes more than its share, or makes it work without end."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.estate.estate import Manifest
from claudeops.domain.network.forbidden_hosts import refuse_host
from claudeops.formats.estate.combine import combine
from claudeops.formats.estate.compose import parse_compose, with_compose
from claudeops.formats.estate.draft import MOST_FAULTS, MOST_RULES, MOST_SERVICES
from claudeops.formats.estate.manifest import MOST_CHARACTERS, parse_manifest
from support.checkout import TESTS
from support.understood import estate_of

PIECES = [
    *["# Services\n", "## Hosts\n", "## Rules\n", "## Never\n", "---\n", "+++\n", "```toml\n", "```\n", "<!--", "-->"],
    *[
        "| service | host | url |\n|---|---|---|\n",
        "| shop | web1 | https://x.example.org/ |\n",
        "|",
        "\n",
        "\n\n",
        "- ",
    ],
    *[
        "shop",
        "**shop**",
        " (web1",
        ")",
        ": ",
        "never restart ",
        "Sun 03:00-05:00",
        "aka db",
        "needs ",
        "https://[::1]:80/",
    ],
    *[
        "services:\n",
        "  - name: a\n",
        "[[services]]\n",
        'name = "x"\n',
        "&a ",
        "*a",
        "\x00",
        "\ud800",
        "\u202e",
        "`",
        "[",
        "](",
    ],
    *[
        "http://169.254.169.254/",
        "*.example.org",
        "host: ",
        "\t",
        "  ",
        "9" * 40,
        "=",
        "{",
        "}",
        "é",
        "$" + "{X}",
        "\\|",
    ],
]
TEXTS = st.one_of(st.text(max_size=300), st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
KEEP = [path.read_text(encoding="utf-8") for path in sorted((TESTS / "data" / "manifests").glob("*.md"))]


def bounded(manifest: Manifest) -> None:
    assert len(manifest.services) <= MOST_SERVICES
    assert len(manifest.rules) <= MOST_RULES
    assert len(manifest.faults) <= 2 * MOST_FAULTS + 2
    for service in manifest.services:
        assert 0 < len(service.name) <= 100
        assert service.name.isprintable()
        assert "*" not in service.name
        assert max(map(len, (service.check, service.healthy, service.restart, service.address))) <= 2000
    for fault in manifest.faults:
        assert len(fault.sentence) < 600


@given(TEXTS)
def test_no_text_stops_the_reader_and_what_comes_of_it_is_bounded(text: str) -> None:
    manifest = parse_manifest(text, repository="r")
    bounded(manifest)
    composed = with_compose(manifest, [parse_compose(text, path="r/compose.yml")])
    estate = combine([composed, parse_manifest(text, repository="again")])
    bounded(estate.manifests[0])
    assert [host for host in estate.hosts if refuse_host(host) or "*" in host] == []
    assert set(estate.other_names.values()) <= {*estate.expected, *(f"{s.host}/{s.name}" for s in estate.services)}


@given(st.sampled_from(KEEP), st.data())
def test_a_manifest_cut_or_mixed_with_another_is_read_in_the_same_bounds(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    other = data.draw(st.sampled_from(KEEP))
    mixed = text[:start] + other[data.draw(st.integers(0, len(other))) :]
    bounded(parse_manifest(mixed, repository="r"))


@given(TEXTS)
def test_reading_twice_says_the_same(text: str) -> None:
    assert parse_manifest(text, repository="r") == parse_manifest(text, repository="r")


UNITS = {
    "rows of one service": ("# Services\n| service | host |\n|---|---|\n", "| shop | web1, web2 |\n"),
    "bars": ("", "|a"),
    "items": ("# Services\n", "- **shop** (web1): https://x.example.org/, needs db; aka y\n"),
    "rules": ("# Rules\n", "- never restart shop, db or cache without asking\n"),
    "names in a rule": ("# Rules\n- never restart ", "a, "),
    "sentences": ("", "Every Sunday from 03:00 to 05:00 shop is down. "),
    "brackets": ("# Services\n- a ", "("),
    "links": ("# Services\n- a ", "[a]("),
    "comments": ("", "<!-- a -->"),
    "sections": ("# Services\n", "## a\n- host: b\n- url: x\n"),
    "quotes in quotes": ("", ">>>>>>>>>>>>>>>>>>>>>>>>> a\n"),
    "lists in lists": ("", "- - - - - - - - - - - - - - - - - - - - - - - - a\n"),
    "quotes that go on": ("", "> > > > > > a\nb\n"),
    "headings of dashes": ("", "a\n-\n"),
    "empty rows": ("|a" * 50 + "|\n" + "|-" * 50 + "|\n", "|\n"),
    "prohibitions": ("", "Never restart the thing, ask first. "),
    "cells that forbid": ("# Services\n| service | restart |\n|---|---|\n", "| shop | never, ask first |\n"),
    "fences": ("", "```toml\nservices=1\n```\n"),
    "lists in YAML": ("---\n", "- "),
    "brackets in YAML": ("---\na: ", "["),
    "dotted keys in TOML": ("+++\na", ".a"),
    "tables in TOML": ("+++\n", "[[services]]\nname='x'\n"),
    "windows": ("# Services\n- a\n# Maintenance\n- a: ", "Sun 03:00-05:00, "),
    "hosts": ("# Hosts\n- a ", "b.example.org, "),
    "numbers in front of a name": ("# Services\n- ", "1: "),
    "signs in front of a name": ("# Services\n- ", "\u26d4*"),
    "signs": ("# Services\n- a ", "\u26d4"),
    "exceptions": ("# Never\n- restart ", "anything other than "),
    "code below Never": ("# Never\n```\n", "restart anything that is not db\n"),
}


def calls(text: str) -> int:
    """Return how many functions of Python are called to read a text: work that no machine makes slower or faster."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        parse_manifest(text, repository="r")
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(("head", "unit"), UNITS.values(), ids=UNITS)
def test_twice_the_text_is_at_most_twice_the_work(head: str, unit: str) -> None:
    calls(head + unit * 10)  # expressions are compiled at their first use
    once, twice = calls(head + unit * 150), calls(head + unit * 300)
    assert twice <= 2.2 * once + 500


@pytest.mark.parametrize(("head", "unit"), UNITS.values(), ids=UNITS)
def test_a_manifest_of_any_length_is_read_within_its_share(head: str, unit: str) -> None:
    text = (head + unit * (MOST_CHARACTERS // len(unit) + 1))[: MOST_CHARACTERS + 10]
    manifest = parse_manifest(text, repository="r")
    bounded(manifest)
    assert any("longer than" in fault.sentence for fault in manifest.faults)


def test_what_is_nested_too_deeply_is_named_and_nothing_else_is_lost() -> None:
    stairs = "".join(f"{'  ' * depth}- a\n" for depth in range(60))
    manifest = parse_manifest(f"# Services\n\n{stairs}\n## Never\n\n- restart db\n", repository="r")
    assert [rule.services for rule in manifest.prohibitions] == [("db",)]
    assert any("nested too deeply" in fault.sentence for fault in manifest.faults)


@pytest.mark.parametrize(
    "line",
    [
        "- " + "1: " * 1300 + "a",
        "- " + "\u26d4*" * 1300 + "a",
        "- * " * 70,
        "> " * 200 + "a",
        "- - - - - - a",
        "\t" * 90 + "- a",
        "* * * * * *",
    ],
)
def test_no_line_hides_what_stands_below_it(line: str) -> None:
    manifest = parse_manifest(f"# Services\n\n- db\n\n{line}\n\n## Never\n\n- restart db\n", repository="r")
    assert [rule.services for rule in manifest.prohibitions] == [("db",)]


@pytest.mark.parametrize("marks", ["<!-- ", "```\n", "~~~\n", "---\n"])
def test_what_has_no_end_is_named_where_it_hides_the_rest(marks: str) -> None:
    manifest = parse_manifest(f"# Services\n\n- db\n\n{marks}\n## Never\n\n- restart db\n", repository="r")
    assert bool(manifest.prohibitions) is (marks == "---\n")
    assert any("has no end" in fault.sentence for fault in manifest.faults) is not bool(manifest.prohibitions)


def test_a_service_cannot_be_named_so_that_a_rule_about_it_means_every_one() -> None:
    estate = estate_of("# Services\n\n| service |\n| --- |\n| * |\n| sh*op |\n| ** |\n")
    assert estate.expected == ()
    assert len(estate.faults) == 3
