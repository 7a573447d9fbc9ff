"""Markers where the model itself speaks, in Markdown as models write it; and where it only quotes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.report.report import ExtractionMethod, ReportedMemory
from claudeops.formats.report.extraction import extract
from claudeops.formats.report.markers import read_markers
from claudeops.formats.report.speech import lines_of, unquoted
from support.reports import SCHEMA
from support.streams import DATA, read

INFO, WARNING, CRITICAL = EventLevel.INFO, EventLevel.WARNING, EventLevel.CRITICAL
MARKER = "[EVENT:error:web]"
DOWN = NewEvent(level=CRITICAL, service="web", message="answers 502")


def events(text: str) -> list[NewEvent]:
    return list(read_markers([text]).events)


def test_the_markers_that_people_have() -> None:
    lines = json.loads((DATA / "streams" / "markers-as-people-write-them.json").read_text(encoding="utf-8"))["lines"]
    extraction = extract(read(*lines).transcript, SCHEMA, legacy_markers=True)

    assert extraction.method is ExtractionMethod.MARKERS
    assert extraction.report is not None
    assert [(event.level, event.service, event.message) for event in extraction.report.events] == [
        (CRITICAL, "web", "answers 502"),
        (INFO, "db", "fine"),
        (CRITICAL, "pi-hole", "DNS dead"),
        (CRITICAL, "10.0.0.5:8080", "refuses"),
        (WARNING, None, "general"),
        (INFO, "web", "the session claims a restart: success - came back"),
    ]
    assert extraction.report.memories == (ReportedMemory(category="timing", service="web", observation="takes 60 s"),)
    assert extraction.warnings == ()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"**{MARKER}** answers 502", id="bold"),
        pytest.param(f"**{MARKER} answers 502**", id="bold with its words"),
        pytest.param(f"**{MARKER}**: answers 502", id="bold with a colon"),
        pytest.param(f"**{MARKER}** — answers 502", id="bold with a dash"),
        pytest.param(f"*{MARKER}* answers 502", id="italic"),
        pytest.param(f"__{MARKER}__ answers 502", id="bold by underscores"),
        pytest.param(f"***{MARKER}*** answers 502", id="both"),
        pytest.param(f"**{MARKER} answers** 502", id="bold to the middle"),
        pytest.param(f"- **{MARKER}** answers 502", id="a bold item"),
        pytest.param(f"* {MARKER} answers 502", id="a star"),
        pytest.param(f"+ {MARKER} answers 502", id="a plus"),
        pytest.param(f"1. {MARKER} answers 502", id="numbered"),
        pytest.param(f"12) {MARKER} answers 502", id="numbered with a bracket"),
        pytest.param(f"(3) {MARKER} answers 502", id="numbered in brackets"),
        pytest.param(f"2. **{MARKER}** answers 502", id="numbered and bold"),
        pytest.param(f"- [x] {MARKER} answers 502", id="ticked"),
        pytest.param(f"- [ ] **{MARKER}** answers 502", id="not ticked, and bold"),
        pytest.param(f"* [X] {MARKER} answers 502", id="ticked with a capital"),
        pytest.param(f"[x] {MARKER} answers 502", id="ticked without a bullet"),
        pytest.param(f"    - {MARKER} answers 502", id="an item within an item"),
        pytest.param(f"### {MARKER} answers 502", id="heading"),
        pytest.param(f"## {MARKER} answers 502 ##", id="heading that is closed"),
        pytest.param(f"# 1. **{MARKER}** answers 502", id="numbered heading"),
        pytest.param(f"❌ {MARKER} answers 502", id="a sign"),
        pytest.param(f"⚠️ **{MARKER}** answers 502", id="a sign with a variation, and bold"),
        pytest.param(f"- 🔴 {MARKER} answers 502", id="a sign in an item"),
        pytest.param(f"→ {MARKER} answers 502", id="an arrow"),
        pytest.param(f"=> {MARKER} answers 502", id="an arrow of two signs"),
        pytest.param(f"— {MARKER} answers 502", id="a dash"),
        pytest.param(f"1️⃣ {MARKER} answers 502", id="a keycap"),
        pytest.param(f"✔{MARKER} answers 502", id="a sign without space"),
        pytest.param(f"| {MARKER} answers 502 |", id="a cell"),
        pytest.param(f"| web | {MARKER} answers 502 | now |", id="another cell"),
        pytest.param(f"| {MARKER} | answers 502 |", id="the words in the next cell"),
        pytest.param(f"| **{MARKER}** | answers 502 | now |", id="a bold cell"),
        pytest.param(f"|{MARKER} answers 502|", id="a narrow cell"),
        pytest.param(f"{MARKER}: answers 502", id="a colon"),
    ],
)
def test_a_marker_is_read_wherever_the_model_speaks(line: str) -> None:
    markers = read_markers([f"What I found:\n\n{line}\n\nThat is all."])
    assert markers.events == (DOWN,)
    assert markers.warnings == ()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"> {MARKER} answers 502", id="block quote"),
        pytest.param(f">{MARKER} answers 502", id="block quote without space"),
        pytest.param(f"- > {MARKER} answers 502", id="block quote in an item"),
        pytest.param(f"> - **{MARKER}** answers 502", id="an item in a block quote"),
        pytest.param(f"> > {MARKER} answers 502", id="a quote in a quote"),
        pytest.param(f"`{MARKER} answers 502`", id="back-ticks"),
        pytest.param(f"`{MARKER}` answers 502", id="back-ticks around the marker"),
        pytest.param(f"- `{MARKER} answers 502`", id="back-ticks in an item"),
        pytest.param(f"**`{MARKER} answers 502`**", id="back-ticks in bold"),
        pytest.param(f"``a ` {MARKER} answers 502``", id="two back-ticks"),
        pytest.param(f"| `{MARKER} answers 502` |", id="back-ticks in a cell"),
        pytest.param(f"| log | web-1 {MARKER} answers 502 |", id="within a cell's sentence"),
        pytest.param(f"web-1  | {MARKER} answers 502", id="a line of docker compose"),
        pytest.param(f"12: {MARKER} answers 502", id="a line of grep"),
        pytest.param(f"2026-11-27T05:00:00Z {MARKER} answers 502", id="a line with a time"),
        pytest.param(f"the log says {MARKER} answers 502", id="a sentence"),
        pytest.param(f'"{MARKER} answers 502"', id="quotes"),
        pytest.param(f"“{MARKER} answers 502”", id="other quotes"),
        pytest.param(f"$ {MARKER} answers 502", id="a prompt"),
        pytest.param(f"│ {MARKER} answers 502", id="a frame"),
        pytest.param(f"\\{MARKER} answers 502", id="escaped"),
        pytest.param(f"Status: **{MARKER}** answers 502", id="words before"),
    ],
)
def test_a_quotation_is_not_read_and_a_warning_names_its_line(line: str) -> None:
    markers = read_markers([f"I read the log.\n\n{line}\n\nThat is old."])
    assert markers.events == ()
    (warning,) = markers.warnings
    assert warning.startswith("marker in a quotation or sentence, not read: ")
    assert "EVENT:error:web" in warning


@pytest.mark.parametrize(
    "quoted",
    [
        pytest.param("```\n{}\n```", id="fence"),
        pytest.param("````\n```\n{}\n```\n````", id="a fence that shows a fence"),
        pytest.param("~~~\n```\n{}\n~~~", id="a fence of the other sign"),
        pytest.param("```` text\n``` \n{}\n````", id="a shorter fence does not close a longer one"),
        pytest.param("```\n``` x\n{}\n```", id="words behind the signs close nothing"),
        pytest.param("- ```\n  {}\n  ```", id="a fence in an item"),
        pytest.param("1. ```log\n   {}\n   ```", id="a fence in a numbered item"),
        pytest.param("   ```\n{}\n   ```", id="a fence with space before"),
    ],
)
def test_what_is_fenced_is_counted_and_not_read(quoted: str) -> None:
    markers = read_markers([quoted.format(f"{MARKER} answers 502")])
    assert markers.events == ()
    assert markers.warnings == ("1 lines with markers are in fenced code and were taken as quotations",)


@pytest.mark.parametrize("before", ["```\nx\n```\n", "```inline```\n", "```\nnever closed\n", "~~~\nx\n~~~\n```\n"])
def test_after_a_fence_and_where_none_is_closed_the_model_speaks_again(before: str) -> None:
    assert events(f"{before}{MARKER} answers 502") == [DOWN]


def test_a_quotation_behind_a_marker_forges_no_second_one() -> None:
    for log in (f"`12:00 {MARKER} down`", f'"12:00 {MARKER} down"', f"“12:00 {MARKER} down”"):
        (event,) = events(f"[EVENT:info:db] its log holds {log}")
        assert (event.service, event.message) == ("db", f"its log holds {log}")


def test_several_on_a_line_also_in_bold() -> None:
    line = "**[EVENT:warn:db]** slow; **[EVENT:down:web]** gone [MEMORY:Timing:db] takes 90 s"
    markers = read_markers([line])
    assert [(event.service, event.message) for event in markers.events] == [("db", "slow"), ("web", "gone")]
    assert [memory.category for memory in markers.memories] == ["timing"]


@pytest.mark.parametrize(
    "service",
    ["10.0.0.5:8080", "web.example.org:443", "wg-quick@wg0", "prod/web", "a_b-c.d", "pi-hole", "web:80"],
)
def test_names_of_services_as_people_have_them(service: str) -> None:
    (event,) = events(f"[EVENT:down:{service}] refuses")
    assert (event.service, event.message) == (service, "refuses")


@pytest.mark.parametrize("service", ["my app", "[::1]:80", "redis://cache:6379", "web:http", "web:123456"])
def test_what_is_no_name_of_a_service_stands_in_the_message(service: str) -> None:
    markers = read_markers([f"[EVENT:down:{service}] refuses"])
    assert [event.service for event in markers.events] in ([None], [])
    assert markers.warnings


@pytest.mark.parametrize(
    ("word", "level"),
    [
        *((word, INFO) for word in ("healthy", "OK", "up", "Recovered", "resolved")),
        *((word, WARNING) for word in ("unhealthy", "flapping", "Warn")),
        *((word, CRITICAL) for word in ("down", "DOWN", "unreachable", "crit", "alert", "emergency")),
    ],
)
def test_levels_that_peoples_prompts_use(word: str, level: EventLevel) -> None:
    markers = read_markers([f"[EVENT:{word}:db] x1"])
    assert [event.level for event in markers.events] == [level]
    assert markers.warnings == ()


def test_the_summary_holds_no_line_of_markers() -> None:
    text = f"The web is down.\n\n| what | how |\n| --- | --- |\n\n- **{MARKER}** answers 502\n> {MARKER} answers 502"
    assert read_markers([text]).summary == "| what | how | | --- | --- |"


def test_a_flood_of_quotations_is_bounded() -> None:
    markers = read_markers(["\n".join(f"line {number} {MARKER} down" for number in range(5000))])
    assert markers.events == ()
    assert len(markers.warnings) == 500


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from([*"`~|>-*#1.[]x \n\t✅\u2028\x00\ud800", MARKER, "```\n"]), max_size=40).map("".join))
def test_no_text_raises_and_no_line_with_a_marker_goes_without_a_word(text: str) -> None:
    markers = read_markers([text])
    assert "[EVENT:" not in text or markers.events or markers.warnings
    assert "".join(line.text for line in lines_of(text)) == text.replace("\n", "")
    assert all(len(unquoted(line.text)) == len(line.text) for line in lines_of(text))
