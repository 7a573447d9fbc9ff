"""What is written about the stream is true."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
import re2

from claudeops.domain.chains import failure, outcome
from claudeops.domain.chains.outcome import ExitReason, ProcessExit, StopCause
from claudeops.domain.events import EventLevel
from claudeops.domain.report.report import REPORT_CHARACTERS, ExtractionMethod
from claudeops.domain.sessions import ErrorCategory, FailureKind, Outcome
from claudeops.domain.stream.transcript import TEXT_CHARACTERS
from claudeops.engine.session import conversation, files
from claudeops.engine.session_log import writer
from claudeops.formats.report.candidate import _LEVELS
from claudeops.formats.report.markers import read_markers
from claudeops.formats.stream import RETAINED_BYTES, StreamEvent, Transcript, TranscriptBuilder
from claudeops.formats.stream.framing import StreamFrame
from claudeops.formats.stream.tallies import HELD_INPUT_BYTES, MOST_CALLS
from claudeops.harness.codex_frames import CodexReader
from claudeops.text import redact
from claudeops.text.redact import MASK, Redactor
from claudeops.text.redact.patterns import SHAPES
from support.checkout import ROOT
from support.streams import judged, read, result

REFERENCE = (ROOT / "docs" / "reference" / "stream.md").read_text(encoding="utf-8")
NO_SHAPES = Redactor([])


def table(header: str) -> list[list[str]]:
    """Return the rows of the table whose first column has this header."""
    _, _, rest = REFERENCE.partition(f"\n| {header} |")
    assert rest, f"no table {header!r}"
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def named(header: str) -> list[str]:
    """Return what stands in code in the first cells of a table."""
    return [code for row in table(header) for code in codes(row[0])]


# --- frames -------------------------------------------------------------------------------------------

COMMON = {"type", "subtype", "session_id"}
BLOCKS = [
    {"type": "text", "text": "t"},
    {"type": "tool_use", "id": "a", "name": "Bash", "input": {}},
    {"type": "tool_result", "tool_use_id": "b", "content": "c"},
]
FULL: dict[str, Any] = {"message": {"content": BLOCKS}, "is_error": True, "usage": {}, "tool_use_id": "c", "role": "x"}
BODIES: list[dict[str, Any]] = [
    {},
    FULL,
    {"role": "user", "content": BLOCKS},
    {"is_error": True, "total_input_tokens": 1, "errors": ["e"]},
]


class Watched(dict[str, object]):
    """A frame's body that remembers which of its fields were asked for."""

    def __init__(self, body: dict[str, object]) -> None:
        super().__init__(body)
        self.asked: set[str] = set()

    def get(self, key: str, default: object = None) -> object:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> object:
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)


def behaviour(kind: str, subtype: str) -> tuple[set[str], set[str]]:
    """Return which fields of a frame are read, and which facts it gives."""
    asked: set[str] = set()
    facts: set[str] = set()
    for contents in BODIES:
        builder = TranscriptBuilder()
        for _ in range(2):  # a second one is not always like the first
            body = Watched({"type": kind, "subtype": subtype} | contents)
            facts |= {type(fact).__name__ for fact in builder.feed(frame(kind, subtype, body))}
            asked |= body.asked
    return asked - COMMON, facts


def frame(kind: str, subtype: str, body: Watched) -> StreamFrame:
    return StreamFrame(type=kind, subtype=subtype, body=body, size=1)


def test_frame_types_are_those_that_the_reader_knows() -> None:
    types = [codes(row[0])[0] for row in table("frame")]

    assert list(dict.fromkeys(types)) == list(TranscriptBuilder._HANDLERS)


@pytest.mark.parametrize("row", table("frame"), ids=lambda row: row[0].replace("`", "").replace("/", "-"))
def test_fields_and_facts_of_a_frame_are_those_that_the_reader_takes_and_gives(row: list[str]) -> None:
    kind, subtype = [*codes(row[0]), ""][:2]
    asked, facts = behaviour(kind, subtype or "anything else")

    assert set(codes(row[2])) == asked
    assert set(codes(row[3])) == facts


def test_a_type_that_is_not_told_is_not_known() -> None:
    assert read({"type": "no_such_type"}).transcript.unknown_frames == 1


def test_codex_types_are_those_that_its_reader_knows() -> None:
    told = REFERENCE.partition("Codex has frames of its own")[2].partition("\n\n")[0]

    assert codes(told) == list(CodexReader._HANDLERS)


def test_facts_are_those_of_the_code() -> None:
    assert named("fact") == [fact.__name__ for fact in get_args(StreamEvent)]


# --- the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "enum"),
    [
        ("outcome", Outcome),
        ("stop cause", StopCause),
        ("category", ErrorCategory),
    ],
)
def test_closed_sets_are_told_in_the_order_of_the_code(header: str, enum: Any) -> None:
    assert named(header) == [member.value for member in enum]


def test_every_failure_kind_is_told_in_the_order_of_the_words() -> None:
    kinds = named("kind")

    assert set(kinds) == set(FailureKind)
    assert kinds[:-1] == [kind for kind, _ in failure._KIND_WORDS]


@pytest.mark.parametrize("row", table("stop cause"), ids=lambda row: row[0].strip("`"))
def test_stop_causes_have_the_outcome_that_is_told(row: list[str]) -> None:
    judgement = judged(Transcript(), ProcessExit(code=0, stop=StopCause(codes(row[0])[0])))

    if codes(row[0]) == ["result_grace"]:
        assert judgement == judged(Transcript())
    else:
        assert [judgement.outcome] == codes(row[1])
        assert judgement.category == next(iter(codes(row[2])), None)


def test_subtypes_have_the_outcome_that_is_told() -> None:
    told = {codes(row[0])[0]: codes(row[1])[0] for row in table("result subtype")}

    assert list(told.items()) == list(outcome._SUBTYPES.items())
    assert judged(read(result(subtype="no_such_subtype", result="x")).transcript).outcome is Outcome.SUCCESS


def test_exit_statuses_have_the_reason_that_is_told() -> None:
    rows = table("exit status without a result line")

    assert {int(row[0]): ExitReason(codes(row[1])[0]) for row in rows} == outcome._EXIT_REASONS
    assert [row[2] == "yes" for row in rows] == [ExitReason(codes(row[1])[0]).retryable for row in rows]


def test_labels_have_the_category_and_kind_that_are_told() -> None:
    rows = [[codes(cell)[0] if "`" in cell else None for cell in row] for row in table("label")]

    assert {label: category for label, category, _ in rows} == failure._LABEL_CATEGORIES
    assert {label: kind for label, _, kind in rows if kind} == failure._LABEL_KINDS


def test_statuses_have_the_category_and_kind_that_are_told() -> None:
    categories = {codes(row[0])[0]: row[1] for row in table("category")}
    kinds = {int(status): codes(row[0])[0] for row in table("kind") for status in re.findall(r"\d+", row[1])}

    assert kinds == failure._STATUS_KINDS
    assert {
        int(status): category
        for category in ("rate_limit", "auth")
        for status in re.findall(r"\d+", categories[category].partition(";")[0])
    } == failure._STATUS_CATEGORIES


def test_words_of_a_category_are_those_of_the_code() -> None:
    words = {codes(row[0])[0]: codes(row[1]) for row in table("category")}

    assert words["rate_limit"] == list(failure._RATE_LIMIT_WORDS)
    assert words["auth"] == list(failure._AUTH_WORDS)


@pytest.mark.parametrize("row", table("kind")[:-1], ids=lambda row: row[0].strip("`"))
def test_words_of_a_kind_give_that_kind(row: list[str]) -> None:
    for word in codes(row[2]):
        assert failure.kind_of(Transcript(), word.replace("…", "ion")) == codes(row[0])[0]


# --- the report ---------------------------------------------------------------------------------------


def test_sources_of_a_report_lead_to_the_methods_of_the_code_in_order() -> None:
    methods = [codes(row[1])[0] for row in table("source, in this order")]

    assert list(dict.fromkeys(methods)) == [method.value for method in ExtractionMethod]


def test_words_of_a_level_are_those_of_the_code() -> None:
    told = {word: EventLevel(codes(row[0])[0]) for row in table("level") for word in codes(row[1])}

    assert told == _LEVELS
    assert [codes(row[0])[0] for row in table("level")] == [level.value for level in EventLevel]


def test_the_marker_grammar_that_is_told_is_read() -> None:
    grammar = REFERENCE.partition("## Markers\n\n```\n")[2].partition("\n```")[0]
    lines = [marker.replace("level", "warning") for marker in re.findall(r"\[[A-Z]+:\S+ (?:\S+ )*?\S+", grammar)]
    markers = read_markers(lines)

    assert len(lines) == 5
    assert (len(markers.events), len(markers.memories), markers.warnings) == (3, 2, ())


# --- redaction ----------------------------------------------------------------------------------------

EXAMPLES = [code for row in table("shape") for code in codes(row[1])]


@pytest.mark.parametrize("example", EXAMPLES)
def test_what_is_told_to_be_taken_out_is_taken_out(example: str) -> None:
    bare = re.sub(r"[\[\]]", "", example)

    assert NO_SHAPES.text(bare) == re.sub(r"\[.*\]", MASK, example)


@pytest.mark.parametrize("shape", SHAPES, ids=[str(number) for number in range(len(SHAPES))])
def test_every_shape_is_told(shape: Any) -> None:
    pattern = re2.compile(shape.secret)

    assert any(pattern.search(re.sub(r"[\[\]]", "", example).encode()) for example in EXAMPLES)


# --- limits -------------------------------------------------------------------------------------------


def test_limits_are_those_of_the_code() -> None:
    told = [int(row[1]) for row in table("what") if row[1].isdigit()]

    assert told == [
        RETAINED_BYTES,
        REPORT_CHARACTERS,
        MOST_CALLS,
        HELD_INPUT_BYTES,
        TEXT_CHARACTERS,
        failure.ERROR_CHARS,
        writer._STDERR_LIMIT_BYTES,
        conversation.STDERR_TAIL_CHARACTERS,
        redact._MOST_CHARACTERS,
        redact.SHORTEST,
        files.HANDOFF_BYTES,
    ]
