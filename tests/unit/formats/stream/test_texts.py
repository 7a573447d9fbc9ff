"""Of a long text only a part is held, and what is concluded from it is what the whole text says."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable, Sequence

import pytest

from claudeops.domain.chains.failure import suspect
from claudeops.domain.report.report import REPORT_CHARACTERS
from claudeops.domain.stream.transcript import TEXT_CHARACTERS, Transcript, abridged
from claudeops.formats.report.extraction import extract
from claudeops.formats.report.markers import read_markers
from claudeops.formats.stream import TranscriptBuilder, decode
from claudeops.formats.stream.tallies import TextLimits, TextTally
from claudeops.structs import replace
from support.reports import HEALTHY, SCHEMA
from support.streams import INIT, as_line, result, said

SMALL = TextLimits(text=60, report=200, lines=100_000, texts=50, pieces=3, together=40)
_LINES = (
    *("", "", "   ", "some words", "a longer line of words that a model writes", "- a bullet", "what now?"),
    *("```", "```text", "~~~", "````", "  ```  ", "> quoted"),
    *("[EVENT:critical:db] db is down", "[MEMORY:timing:db] takes 90 s", "| [EVENT:warning] | slow |"),
    "so [EVENT:info] x",
    *("[COOLDOWN:restart:web] success - it is back", "still waiting for it", "it is in progress\r", "\N{BELL}"),
)


def texts_of(dice: random.Random, count: int) -> list[str]:
    def text() -> str:
        return "\n".join(dice.choices(_LINES, k=dice.randint(0, 4)))

    pool = [text() for _ in range(8)]
    return [dice.choice(pool) if dice.random() < 0.3 else text() for _ in range(count)]


def split(dice: random.Random, text: str) -> list[str]:
    """Return a text in pieces of any size."""
    places = sorted(dice.choices(range(len(text) + 1), k=dice.randint(0, 60)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def latest(texts: Iterable[str], most: int) -> list[str]:
    """Return the texts in which a report is looked for, by the rule of `extract`."""
    found: list[str] = []
    size = 0
    for text in dict.fromkeys(text for text in reversed(list(texts)) if text):
        size += len(text)
        if found and size > most:
            break
        found.append(text)
    return found


def in_messages(texts: Sequence[str], limits: TextLimits, at_once: int = 1) -> Transcript:
    tally = TextTally(limits=limits)
    for start in range(0, len(texts), at_once):
        tally.message(list(texts[start : start + at_once]), from_subagent=False)
    return tally.onto(Transcript())


def in_pieces(pieces: Iterable[str], limits: TextLimits) -> Transcript:
    tally = TextTally(limits=limits)
    for piece in pieces:
        tally.delta(piece)
    return tally.onto(Transcript())


def judged(transcript: Transcript) -> tuple[object, ...]:
    """Return what is concluded from a text alone."""
    one_turn = replace(transcript, num_turns=1, stop_reason="end_turn")
    launched = replace(transcript, num_turns=9, background_launches=1)
    return (
        bool(transcript.text.strip()),
        *(suspect(each, has_report=False, background_tasks_disabled=False) for each in (one_turn, launched)),
    )


@pytest.mark.parametrize("seed", range(150))
def test_long_text_in_messages_means_what_the_whole_text_means(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    texts = texts_of(dice, dice.randint(0, 60))
    transcript = in_messages(texts, SMALL, at_once=dice.randint(1, 4))
    whole = "\n".join(texts)
    assert latest(transcript.main_texts, SMALL.report) == latest(texts, SMALL.report)
    assert judged(transcript) == judged(Transcript(text=whole))
    if len(whole) <= SMALL.text:
        assert (transcript.text, transcript.main_texts) == (whole, tuple(texts))


@pytest.mark.parametrize("seed", range(150))
def test_markers_of_a_text_in_pieces_are_those_of_the_whole_text(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
    whole = "\n".join(dice.choices(_LINES, k=dice.randint(0, 120)))
    transcript = in_pieces(split(dice, whole), SMALL)
    (read,) = transcript.main_texts or ("",)
    assert read.endswith(whole[-SMALL.report :])
    assert replace(read_markers([read]), summary="") == replace(read_markers([whole]), summary="")
    assert judged(transcript) == judged(Transcript(text=whole))
    if len(whole) <= SMALL.text:
        assert (transcript.text, read, transcript.last_assistant_text or "") == (whole, whole, whole)


def test_row_has_both_ends_of_a_long_text_and_says_what_is_missing() -> None:
    texts = [f"text {number:04}" for number in range(1000)]
    text = in_messages(texts, SMALL).text
    assert text.startswith("text 0000\ntext 0001\ntext 0002\n[9941 characters are left out here")
    assert text.endswith("the session has them]\ntext 0997\ntext 0998\ntext 0999")
    streamed = in_pieces((f"text {number:04}\n" for number in range(1000)), SMALL).text
    assert streamed.startswith("text 0000\ntext 0001\ntext 0002\n\n[9940 characters are left out here")
    assert streamed.endswith("the session has them]\n\ntext 0997\ntext 0998\ntext 0999")
    assert len(abridged("x" * (TEXT_CHARACTERS + 1))) < TEXT_CHARACTERS + 200
    assert abridged("x" * TEXT_CHARACTERS) == "x" * TEXT_CHARACTERS


def test_question_before_a_flood_of_blank_lines_is_still_a_question() -> None:
    transcript = in_messages(["what now?", *[" \n" * 9 + " " * number for number in range(90)]], SMALL)
    assert transcript.text.strip().endswith("?")
    assert in_messages([" " * number for number in range(90)], SMALL).text == ""
    assert in_pieces([" \n"] * 900, SMALL).text == ""


def test_line_without_an_end_is_held_within_bounds() -> None:
    transcript = in_pieces(("word " for _ in range(5_000)), SMALL)
    assert len(transcript.main_texts[0]) < 2 * SMALL.most + 70_000


# --- as much as a session may say ---------------------------------------------------------------------

LINE = "2026-11-21T08:48:01Z web[4711]: INFO the certificate is valid until March ✓ \n"


def test_report_after_much_text_is_found_and_so_is_one_before_the_latest_texts() -> None:
    report = as_line(HEALTHY).decode()
    texts = [f"{number} {LINE * 40}" for number in range(3 * REPORT_CHARACTERS // (40 * len(LINE)))]
    limits = TextLimits()
    for place in (len(texts), len(texts) * 3 // 4):
        with_report = [*texts[:place], report, *texts[place:]]
        extraction = extract(in_messages(with_report, limits), SCHEMA, legacy_markers=True)
        assert extraction == extract(Transcript(main_texts=tuple(with_report)), SCHEMA, legacy_markers=True)
        assert extraction.report is not None


def test_first_marker_of_an_endless_text_in_small_pieces_is_an_event() -> None:
    pieces = ["[EVENT:critical:db] ", "db is ", "down\n", *["a piece "] * 900_000, "\nThat is all."]
    extraction = extract(in_pieces(pieces, TextLimits()), SCHEMA, legacy_markers=True)
    assert extraction.report is not None
    assert [event.message for event in extraction.report.events] == ["db is down"]
    assert extraction.report.summary.endswith("That is all.") or extraction.report.summary.startswith("a piece")


def held_after(lines: Iterable[bytes]) -> tuple[int, int]:
    """Return the bytes that a builder holds of lines, and at most when it makes the transcript of them."""
    builder = TranscriptBuilder()
    tracemalloc.start()
    try:
        for line in lines:
            builder.feed(decode(line))
        held, _ = tracemalloc.get_traced_memory()
        builder.close()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held, peak


MIB = 1024 * 1024


@pytest.mark.parametrize("characters", [800, 5_000, 200_000])
def test_texts_of_many_mebibytes_are_held_in_sixteen(characters: int) -> None:
    text = (LINE * (characters // len(LINE) + 1))[:characters]
    lines = (as_line(said(f"{number}{text}")) for number in range(12 * MIB // (characters + 100)))
    held, peak = held_after(lines)
    assert held < 16 * MIB
    assert peak < 32 * MIB


def test_forty_thousand_small_pieces_take_little_more_than_their_letters() -> None:
    pieces = (as_line({"type": "text", "delta": f"w{number} "}) for number in range(40_000))
    held, _ = held_after(pieces)
    assert held < MIB // 2 + 40_000 * 7


def test_message_makes_the_pieces_before_it_superfluous() -> None:
    pieces = [as_line({"type": "text", "delta": "word " * 100}) for _ in range(4_000)]
    held, _ = held_after([*pieces, as_line(INIT), as_line(said("whole")), *pieces, as_line(result())])
    assert held < MIB // 4
