"""Of a long text only a part is held, and what is concluded from it is what the whole text says."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterable, Sequence

import pytest

from claudeops.domain.chains.failure import suspect
from claudeops.domain.report.report import REPORT_CHARACTERS, STRUCTURED_OUTPUT_TOOL
from claudeops.domain.spending.prices import price_of
from claudeops.domain.stream.transcript import TEXT_CHARACTERS, ObservedCall, Transcript, abridged
from claudeops.formats.report.extraction import extract
from claudeops.formats.report.markers import read_markers
from claudeops.formats.stream import ToolEnded, TranscriptBuilder, decode
from claudeops.formats.stream.tallies import MOST_CALLS, TextLimits, TextTally
from claudeops.structs import replace
from support.reports import HEALTHY, SCHEMA, with_summary
from support.streams import INIT, answered, as_line, called, result, said, transcript_of

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


def test_many_texts_of_some_letters_are_short_together() -> None:
    text = in_messages(["a", "b", "a", "c"] * 20, replace(SMALL, text=1000)).text
    assert text.startswith("a\nb\na\nc\n")
    assert len(text) < 240


def test_text_that_alone_is_too_long_is_held_until_another_one_comes() -> None:
    giant = "giant " * 200
    assert in_messages([giant], SMALL).main_texts == (giant,)
    transcript = in_messages([giant, "small"], SMALL)  # kept on, it would be looked at with each further text
    assert transcript.main_texts == ("small",)
    assert transcript.text.startswith("giant giant giant")
    assert transcript.text.endswith("giant giant \nsmall")


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


# --- what a CLI invents -------------------------------------------------------------------------------


def using(number: int) -> bytes:
    usage = {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 3}
    message = {"id": f"msg_{number}", "model": "claude-haiku-5-5", "usage": usage, "content": []}
    return as_line({"type": "assistant", "message": message})


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(lambda number: as_line(called(f"toolu_{number}")), id="calls"),
        pytest.param(lambda number: as_line(called("", f"tool{number}")), id="calls without an id"),
        pytest.param(lambda number: as_line(answered(f"toolu_{number}")), id="results"),
        pytest.param(using, id="messages with usage"),
        pytest.param(lambda number: as_line(called(f"toolu_{number}", STRUCTURED_OUTPUT_TOOL, HEALTHY)), id="reports"),
    ],
)
def test_ids_that_a_cli_invents_take_no_more_memory_than_those_that_are_distinguished(
    line: Callable[[int], bytes],
) -> None:
    held, _ = held_after(line(number) for number in range(MOST_CALLS))
    held_of_more, _ = held_after(line(number) for number in range(3 * MOST_CALLS))
    assert held_of_more < held + MIB // 2
    assert held < 12 * MIB


def test_inputs_of_calls_are_held_up_to_a_bound_and_then_found_by_their_lines() -> None:
    given = {"content": "x" * 5_000}
    lines = [as_line(called(f"toolu_{number}", "Write", given)) for number in range(2_000)]
    held, _ = held_after(lines)
    assert held < 6 * MIB
    builder = TranscriptBuilder()
    for line in lines:
        builder.feed(decode(line))
    calls = list(builder.close().tool_calls.values())
    assert all((call.input == given) == (call.line is None) for call in calls)
    assert [call.line for call in calls if call.line is not None] == list(range(1, 2_001))[-sum(map(has_line, calls)) :]


def has_line(call: ObservedCall) -> bool:
    return call.line is not None


def test_calls_beyond_the_bound_are_counted_and_a_report_after_them_counts() -> None:
    builder = TranscriptBuilder()
    for number in range(MOST_CALLS + 5):
        builder.feed(decode(as_line(called(f"toolu_{number}"))))
    builder.feed(decode(as_line(called("report", STRUCTURED_OUTPUT_TOOL, HEALTHY))))
    transcript = builder.close()
    assert transcript.tool_calls_seen == MOST_CALLS + 6
    assert transcript.structured_calls == (HEALTHY,)
    assert transcript.warnings == (f"calls-truncated: 6 calls after the first {MOST_CALLS} are only counted",)


def test_result_of_a_call_beyond_the_bound_is_shown_all_the_same() -> None:
    builder = TranscriptBuilder()
    for number in range(MOST_CALLS):
        builder.feed(decode(as_line(called(f"toolu_{number}"))))
    (fact,) = builder.feed(decode(as_line(answered("another"))))
    assert isinstance(fact, ToolEnded)
    assert fact.tool_use_id == "another"


def test_tokens_of_all_messages_are_known_and_the_cost_of_too_many_is_not() -> None:
    builder = TranscriptBuilder()
    for number in range(MOST_CALLS + 7):
        builder.feed(decode(using(number)))
    used = builder.close().messages_used
    assert sum(each.usage.input_tokens for each in used) == 10 * (MOST_CALLS + 7)
    assert price_of(used[0].model) is not None
    assert price_of(used[-1].model) is None


def test_report_of_many_result_lines_is_the_first_that_is_valid_and_the_latest_is_kept() -> None:
    reports = [with_summary(f"report {number}") for number in range(300)]
    transcript = transcript_of(*(result(structured_output=report) for report in reports))
    assert transcript.structured_outputs[0] == reports[0]
    assert transcript.structured_outputs[-50:] == tuple(reports[-50:])
    assert len(transcript.structured_outputs) == 100
    whole = extract(Transcript(structured_outputs=tuple(reports)), SCHEMA, legacy_markers=True)
    assert extract(transcript, SCHEMA, legacy_markers=True) == whole
