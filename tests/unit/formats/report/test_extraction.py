"""The report of a session: where it is found, and what is asked for again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.report.report import (
    Escalation,
    Extraction,
    ExtractionMethod,
    Report,
    ReportedMemory,
    ServiceCheck,
    ServiceStatus,
)
from claudeops.formats.report.extraction import UNREADABLE, extract, shortcomings
from support.reports import ALARM, HEALTHY, SCHEMA, Said, changed, found, summary_of, with_summary
from support.streams import RECORDINGS, called, read_bytes, result, transcript_of
from support.streams import said as spoken


def test_a_whole_report_is_read() -> None:
    assert found(structured_outputs=[ALARM]) == Extraction(
        method=ExtractionMethod.STRUCTURED,
        report=Report(
            summary="The database is down.",
            escalation=Escalation(needed=True, reason="db is down", context="disk full", failed_checks=("db tcp",)),
            events=(NewEvent(level=EventLevel.CRITICAL, message="db refuses connections", service="db"),),
            memories=(ReportedMemory(service="db", category="timing", observation="takes 90 s to start"),),
            services_checked=(ServiceCheck(service="db", status=ServiceStatus.DOWN, detail="connection refused"),),
        ),
    )


def test_the_first_valid_structured_output_wins() -> None:
    extraction = found(structured_outputs=[{}, with_summary("first"), with_summary("second")])
    assert summary_of(extraction) == "first"
    assert extraction.method is ExtractionMethod.STRUCTURED
    assert any("'summary' is a required property" in warning for warning in extraction.warnings)


def test_the_latest_valid_call_is_the_models_final_word() -> None:
    calls = [with_summary("first"), with_summary("second"), {"summary": 1}]
    extraction = found(structured_calls=calls, structured_outputs=[{}])
    assert extraction.method is ExtractionMethod.SALVAGED
    assert summary_of(extraction) == "second"


def test_a_structured_output_outranks_later_calls_and_texts() -> None:
    said = {
        "structured_outputs": [with_summary("output")],
        "structured_calls": [with_summary("call")],
        "result_text": json.dumps(with_summary("text")),
        "main_texts": ["[EVENT:critical:db] down"],
    }
    extraction = found(**said)
    assert summary_of(extraction) == "output"
    assert extraction.report is not None
    assert extraction.report.events == ()  # markers are ignored beside a structured report


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{}", id="whole"),
        pytest.param("  \n{}\n ", id="space around"),
        pytest.param("Here it is:\n```json\n{}\n```\nDone.", id="fenced"),
        pytest.param("Here it is: {} and that is all.", id="between sentences"),
        pytest.param("a stray } and { another {{ then {}", id="stray braces"),
        pytest.param('use {name} or {"a": 1} or {"a": then {}', id="other objects before"),
        pytest.param('he said "go { away": {}', id="odd quotes before"),
        pytest.param('{"status": "ok"}\n{}', id="second object"),
        pytest.param('[{"summary": "not me"}, {}]', id="within a list"),
    ],
)
@pytest.mark.parametrize("where", ["result_text", "last_assistant_text", "main_texts"])
def test_a_report_in_the_text_is_salvaged(text: str, where: str) -> None:
    report = json.dumps(with_summary('with "quotes", } and { in it'), indent=1)
    written = text[: text.rindex("{}")] + report + text[text.rindex("{}") + 2 :]
    extraction = found(**{where: [written] if where == "main_texts" else written})
    assert extraction.method is ExtractionMethod.SALVAGED
    assert summary_of(extraction) == 'with "quotes", } and { in it'


def test_the_latest_text_with_a_report_wins() -> None:
    texts = [json.dumps(with_summary("draft")), f"Final: {json.dumps(with_summary('final'))}", "That is all."]
    assert summary_of(found(main_texts=texts, result_text="That is all.")) == "final"


def test_markers_are_the_last_resort() -> None:
    extraction = found(main_texts=["[EVENT:warning:db] slow"], structured_outputs=[{}], result_text="API Error: 529")
    assert extraction.method is ExtractionMethod.MARKERS
    assert extraction.report is not None
    assert extraction.report.events == (NewEvent(level=EventLevel.WARNING, message="slow", service="db"),)
    assert extraction.report.summary == "slow"
    assert not extraction.report.escalation.needed
    assert extraction.report.services_checked == ()
    assert extraction.warnings[0].startswith("rejected structured_output: ")


def test_markers_are_found_in_the_last_text_that_a_result_line_repeats() -> None:
    assert found(last_assistant_text="[EVENT:warning:db] slow").method is ExtractionMethod.MARKERS
    assert found(result_text="[EVENT:warning:db] slow").method is ExtractionMethod.MARKERS


def test_markers_can_be_switched_off() -> None:
    extraction = extract(Said(main_texts=["[EVENT:warning:db] slow"]), SCHEMA, legacy_markers=False)
    assert extraction == Extraction(method=ExtractionMethod.NONE, report=None)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"main_texts": ["All services are healthy."], "result_text": "Done."}, id="prose"),
        pytest.param({"structured_outputs": [{}]}, id="empty object"),
        pytest.param({"structured_outputs": [None, [], "x", 1, True]}, id="no objects"),
        pytest.param({"structured_calls": [{"summary": 1}] * 5}, id="five rejected calls"),
    ],
)
def test_a_session_without_a_report_has_none(said: dict[str, object]) -> None:
    extraction = found(**said)
    assert extraction.method is ExtractionMethod.NONE
    assert extraction.report is None


def test_a_text_without_markers_that_was_read_in_the_place_of_a_refused_report_is_no_report() -> None:
    extraction = found(structured_outputs=[{"summary": 1}], result_text="All is well.")
    assert (extraction.method, extraction.report) == (ExtractionMethod.MARKERS, None)
    assert extraction.warnings[0].startswith("rejected structured_output: ")


def test_a_rejected_wish_for_help_is_not_lost_from_sight() -> None:
    call = changed(ALARM, services_checked="absent")
    extraction = found(structured_calls=[call])
    assert extraction.method is ExtractionMethod.NONE
    (warning,) = extraction.warnings
    assert warning.startswith("rejected StructuredOutput call: $: 'services_checked' is a required property")
    assert warning.endswith(" (it asked for the next tier: db is down)")


def test_the_same_rejection_is_told_once_and_the_number_is_bounded() -> None:
    same = found(structured_calls=[{"summary": 1}] * 30).warnings
    assert len(same) == 1
    many = found(structured_calls=[{"summary": n} for n in range(40)]).warnings
    assert len(many) == 21
    assert many[-1] == "20 more warnings about the report"
    assert all(len(warning) <= 400 for warning in found(structured_outputs=[{"summary": ["x" * 10**6]}]).warnings)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recorded_sessions_have_the_report_that_they_delivered(path: Path) -> None:
    transcript = read_bytes(path.read_bytes()).transcript
    extraction = extract(transcript, SCHEMA, legacy_markers=True)
    delivered = path.stem in {
        "success",
        "api-429-then-success",
        "lines-after-result",
        "partial-messages",
        "tool-denied-dontask",
    }
    assert extraction.method is (ExtractionMethod.STRUCTURED if delivered else ExtractionMethod.NONE)
    assert bool(shortcomings(transcript, SCHEMA)) is not delivered
    if path.stem == "structured-retries-exhausted":
        assert "$.summary: 1 is not of type 'string'" in extraction.warnings[0]


def test_shortcomings_of_a_session_that_delivered_nothing() -> None:
    assert shortcomings(Said(main_texts=["Done."]), SCHEMA) == (
        "no report was delivered: call StructuredOutput once with the report",
    )


def test_shortcomings_are_about_the_latest_attempt() -> None:
    calls = [{"summary": 1}, changed(HEALTHY, events=[{"level": "fatal", "message": "x1"}])]
    assert shortcomings(Said(structured_calls=calls, structured_outputs=[{}]), SCHEMA) == (
        "$.events[0].level: 'fatal' is not one of ['info', 'warning', 'critical']",
    )
    text = json.dumps(changed(HEALTHY, summary=3))
    assert shortcomings(Said(main_texts=["older", text]), SCHEMA) == ("$.summary: 3 is not of type 'string'",)


def test_no_shortcomings_once_a_valid_report_exists_anywhere() -> None:
    assert shortcomings(Said(structured_outputs=[{}, HEALTHY]), SCHEMA) == ()
    assert shortcomings(Said(structured_calls=[HEALTHY, {}]), SCHEMA) == ()
    assert shortcomings(Said(result_text=json.dumps(HEALTHY)), SCHEMA) == ()


def test_markers_do_not_save_the_repair_turn() -> None:
    assert shortcomings(Said(main_texts=["[EVENT:info] x1"]), SCHEMA)


# --- attempts that contradict an older report --------------------------------------------------------------------

UNREAD = changed(ALARM, services_checked="db is down; web is up")
QUOTED = f"The session before me reported: {json.dumps(HEALTHY)} Now db refuses connections."


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"main_texts": [QUOTED], "structured_calls": [UNREAD] * 5}, id="quoted in prose"),
        pytest.param({"main_texts": [QUOTED], "structured_calls": [UNREAD]}, id="and one attempt"),
        pytest.param({"structured_calls": [HEALTHY, UNREAD, UNREAD]}, id="an early call"),
        pytest.param({"structured_calls": [HEALTHY, UNREAD, {"summary": 1}]}, id="not the last attempt"),
        pytest.param(
            {"structured_calls": [HEALTHY, UNREAD], "structured_outputs": [HEALTHY]}, id="the output of an early call"
        ),
        pytest.param({"structured_outputs": [HEALTHY, json.dumps(UNREAD)]}, id="an early output"),
        pytest.param({"structured_outputs": [HEALTHY, json.dumps(ALARM)[:-3]]}, id="a later one that is cut off"),
        pytest.param(
            {"main_texts": [QUOTED], "structured_calls": [changed(UNREAD, escalation='{"needed": true}')]},
            id="a wish that is JSON text",
        ),
        pytest.param(
            {"main_texts": [QUOTED], "structured_calls": [{"name": "StructuredOutput", "input": UNREAD}]},
            id="a wish in a call within the call",
        ),
    ],
)
def test_a_later_wish_for_the_next_tier_outweighs_an_older_healthy_report(said: dict[str, Any]) -> None:
    extraction = found(**said)
    assert extraction.method is ExtractionMethod.SALVAGED
    assert extraction.report is not None
    assert extraction.report.escalation.needed
    assert extraction.report.summary == ALARM["summary"]
    assert [event.message for event in extraction.report.events] == [ALARM["summary"]]
    assert extraction.report.services_checked == ()
    assert shortcomings(Said(**said), SCHEMA)


@pytest.mark.parametrize(
    ("said", "summary"),
    [
        pytest.param({"structured_calls": [UNREAD, HEALTHY]}, HEALTHY["summary"], id="the last attempt is readable"),
        pytest.param(
            {"structured_calls": [UNREAD, HEALTHY], "structured_outputs": [HEALTHY]},
            HEALTHY["summary"],
            id="and came out",
        ),
        pytest.param(
            {"main_texts": [json.dumps(ALARM)], "structured_calls": [changed(UNREAD, summary="other")]},
            ALARM["summary"],
            id="the text asks for it as well",
        ),
        pytest.param(
            {"main_texts": [QUOTED], "structured_calls": [changed(HEALTHY, events="none")]},
            HEALTHY["summary"],
            id="an attempt that asks for nothing",
        ),
        pytest.param({"main_texts": [QUOTED]}, HEALTHY["summary"], id="no attempt"),
    ],
)
def test_where_nothing_contradicts_it_a_report_counts(said: dict[str, Any], summary: str) -> None:
    assert summary_of(found(**said)) == summary
    assert UNREADABLE not in " ".join(found(**said).warnings)


@pytest.mark.parametrize("words", [QUOTED, "[EVENT:info:web] looked at the disk"])
def test_what_was_only_said_is_no_report_of_a_model_that_declined_to_deliver_one(words: str) -> None:
    frame = spoken("I can't help with that.")
    frame["message"]["stop_reason"] = "refusal"
    attempt = called("so", "StructuredOutput", {"summary": 1})
    transcript = transcript_of(spoken(words), attempt, frame, result(result="x1", stop_reason="refusal"))
    assert extract(transcript, SCHEMA, legacy_markers=True).report is None
