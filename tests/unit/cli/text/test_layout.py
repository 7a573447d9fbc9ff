"""Tables that fit, times for people, and nothing that a terminal would obey."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest

from claudeops.cli.commands.filters import DEFAULT_LIMIT as DECLARED_LIMIT
from claudeops.cli.commands.filters import HIGHEST_TIER, LEVELS, MOST, OUTCOMES
from claudeops.cli.text.layout import (
    Column,
    Layout,
    Style,
    TableCell,
    cut,
    length_of,
    pairs,
    relative,
    table,
    usd,
    width_of,
)
from claudeops.cli.text.screen import encodable, looks_of, progress
from claudeops.domain import listing
from claudeops.domain.events import EventLevel
from claudeops.domain.sessions import Outcome
from claudeops.settings import variables
from claudeops.structs import replace

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
FILE = Layout(now=NOW)
COLUMNS = (Column("ID", right=True), Column("SERVICE"), Column("MESSAGE", shrinks=True))


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


# --- tables -----------------------------------------------------------------------------------------------


def test_columns_are_aligned_and_numbers_stand_to_the_right() -> None:
    rows = [("9", "web", "down"), ("10", "database", "slow")]
    assert table(COLUMNS, rows, FILE) == [
        "ID  SERVICE   MESSAGE",
        " 9  web       down",
        "10  database  slow",
    ]


def test_what_is_too_wide_gives_way_in_the_column_that_may_shrink() -> None:
    lines = table(COLUMNS, [("1", "web", "it answers 502 since the last deployment")], replace(FILE, width=30))
    assert lines == ["ID  SERVICE  MESSAGE", " 1  web      it answers 502 s…"]
    assert all(width_of(line) <= 30 for line in lines)


def test_files_and_pipes_get_every_text_in_full() -> None:
    text = "x" * 500
    assert table(COLUMNS, [("1", "web", text)], FILE)[1].endswith(text)


def test_wide_characters_take_two_columns() -> None:
    lines = table(COLUMNS, [("1", "面包", "a"), ("2", "web", "b")], FILE)
    assert [width_of(line.rpartition(" ")[0]) for line in lines[1:]] == [12, 12]
    assert cut("面包面包", 5, "…") == "面包…"


def test_a_column_in_which_nothing_stands_is_left_out() -> None:
    assert table(COLUMNS, [("1", "", "down")], FILE) == ["ID  MESSAGE", " 1  down"]
    assert table(COLUMNS, [], FILE) == []


def test_no_text_of_a_cell_is_obeyed_by_a_terminal() -> None:
    hostile = "a\x1b[2J\x07\u202eb\nc"
    for lines in (table(COLUMNS, [("1", "web", hostile)], FILE), pairs([("says", hostile)], FILE)):
        assert not {"\x1b", "\x07", "\u202e"} & set("".join(lines))
    assert len(table(COLUMNS, [("1", "web", hostile)], FILE)) == 2


def test_colours_do_not_move_columns() -> None:
    rows = [(TableCell("1", Style.BAD), TableCell("web", Style.NAME), "down")]
    coloured = table(COLUMNS, rows, replace(FILE, colours=True))
    plain = table(COLUMNS, rows, FILE)
    assert "\x1b[1;31m1\x1b[0m" in coloured[1]
    assert "\x1b" not in "".join(plain)


def test_long_values_are_broken_between_words_below_their_beginning() -> None:
    assert pairs([("why", "one two three four")], replace(FILE, width=14)) == [
        "why  one two",
        "     three",
        "     four",
    ]


# --- words for values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ago", "expected"),
    [
        (timedelta(seconds=5), "5s ago"),
        (timedelta(minutes=3, seconds=20), "3m 20s ago"),
        (timedelta(hours=2), "2h ago"),
        (timedelta(days=4, hours=3), "4d 3h ago"),
        (timedelta(days=30), "2026-06-01"),
        (-timedelta(hours=3), "in 3h"),
    ],
)
def test_times_are_relative_until_they_are_far(ago: timedelta, expected: str) -> None:
    assert relative(NOW - ago, NOW) == expected
    assert FILE.time(NOW - ago) == expected


def test_times_are_exact_where_that_is_asked_for() -> None:
    assert replace(FILE, utc=True).time(NOW) == "2026-07-01 12:00:00Z"
    assert FILE.time(None) == "-"


def test_lengths_and_amounts_are_short() -> None:
    assert [length_of(timedelta(seconds=number)) for number in (0, 59, 3600, 90_000)] == ["0s", "59s", "1h", "1d 1h"]
    assert [usd(amount) for amount in (None, 0.0, 0.0123, 1234.5)] == ["-", "$0.00", "$0.0123", "$1,234.50"]


# --- the terminal -----------------------------------------------------------------------------------------


def test_colours_are_for_terminals_and_go_with_no_color() -> None:
    assert looks_of(Terminal(), environ={}).colours
    assert not looks_of(Terminal(), environ={"NO_COLOR": "1"}).colours
    assert not looks_of(Terminal(), environ={"TERM": "dumb"}).colours
    assert looks_of(Terminal(), environ={"NO_COLOR": ""}).colours
    found = looks_of(io.StringIO(), environ={})
    assert (found.colours, found.width, found.height) == (False, None, None)


def test_progress_is_told_to_a_person_who_waits_and_leaves_nothing_behind() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        with progress("reading", stream=stream, patience=0.0):
            while stream is terminal and not stream.getvalue():
                pass
    assert terminal.getvalue() == "reading …\r\x1b[2K"
    assert file.getvalue() == ""


def test_what_a_stream_cannot_write_is_escaped() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert encodable("a…", stream) == "a\\u2026"
    stream.close()


# --- words that are written twice, so that help needs no model ---------------------------------------------


def test_the_filters_know_the_models_words() -> None:
    assert tuple(level.value for level in EventLevel) == LEVELS
    assert set(OUTCOMES) == {outcome.value for outcome in Outcome}
    assert (DECLARED_LIMIT, MOST, HIGHEST_TIER) == (listing.DEFAULT_LIMIT, listing.MOST, variables.HIGHEST_TIER)
