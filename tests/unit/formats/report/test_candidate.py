"""What makes a report one, and what is made of a weaker schema's reports."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.report.report import Escalation, ExtractionMethod, ReportedMemory, ServiceCheck, ServiceStatus
from claudeops.formats.report.candidate import is_filler, read
from claudeops.formats.report.extraction import DEGRADED, extract, shortcomings
from support.reports import ALARM, HEALTHY, SCHEMA, WEAK, Said, changed, found, summary_of, with_summary

FILLER = [
    "string",
    "N/A",
    "a",
    "b",
    "c",
    "...",
    "…",
    "test",
    "Test.",
    "<summary>",
    "-",
    "  ",
    "\t\n",
    '"string"',
    "None",
]


@pytest.mark.parametrize("text", FILLER)
def test_filler_that_calls_all_well_is_no_report(text: str) -> None:
    said = Said(structured_outputs=[with_summary(text)])
    extraction = extract(said, SCHEMA, legacy_markers=True)
    assert extraction.method is ExtractionMethod.NONE
    assert len(shortcomings(said, SCHEMA)) == 1
    assert shortcomings(said, SCHEMA)[0].startswith("$.summary: ")


@pytest.mark.parametrize("text", ["ok", "OK.", "fine", "s", "All well", "Ünïcode", "日本", "3 of 3 up"])
def test_short_words_are_not_filler(text: str) -> None:
    assert summary_of(found(structured_outputs=[with_summary(text)])) == text
    assert shortcomings(Said(structured_outputs=[with_summary(text)]), SCHEMA) == ()


def test_an_empty_object_silences_nothing_whatever_the_schema_allows() -> None:
    for empty in ({}, {"summary": ""}, {"summary": None}, {"escalation": {"needed": False}}):
        extraction = found(WEAK, structured_outputs=[empty], main_texts=["[EVENT:critical:db] down"])
        assert extraction.method is ExtractionMethod.MARKERS
        assert found(WEAK, structured_outputs=[empty]).method is ExtractionMethod.NONE


@pytest.mark.parametrize(
    "part",
    [
        {"events": [{"level": "info", "message": "..."}]},
        {"services_checked": [{"name": "string", "status": "healthy"}]},
        {"services_checked": [{"name": " ", "status": "healthy"}]},
    ],
)
def test_filler_anywhere_in_an_all_well_is_asked_for_again(part: dict[str, object]) -> None:
    said = Said(structured_outputs=[changed(HEALTHY, **part)])
    assert extract(said, SCHEMA, legacy_markers=True).report is None
    assert shortcomings(said, SCHEMA)


def test_an_alarm_with_filler_beside_it_is_kept_and_marked() -> None:
    candidate = changed(
        ALARM,
        summary="<summary>",
        events=[{"level": "critical", "message": "string"}],
        services_checked=[{"name": "string", "status": "healthy"}, {"name": "db", "status": "down"}],
    )
    extraction = found(structured_outputs=[candidate])
    report = extraction.report
    assert report is not None
    assert report.escalation.reason == "db is down"
    assert report.summary == "db is down"
    assert report.events == ()
    assert [check.service for check in report.services_checked] == ["db"]
    assert sum(warning.startswith(DEGRADED) for warning in extraction.warnings) == 3
    assert shortcomings(Said(structured_outputs=[candidate]), SCHEMA) == ()


@pytest.mark.parametrize("reason", ["absent", None, "", "  ", "N/A", "string", "none"])
def test_an_escalation_without_a_reason_is_kept_with_a_warning(reason: str | None) -> None:
    escalation = changed({"needed": True, "context": "the log is empty"}, reason=reason)
    extraction = found(structured_outputs=[changed(ALARM, escalation=escalation)])
    assert extraction.method is ExtractionMethod.STRUCTURED
    assert extraction.report is not None
    assert extraction.report.escalation == Escalation(needed=True, context="the log is empty")
    assert extraction.warnings == (f"{DEGRADED} $.escalation.reason: is missing although an escalation is needed",)


def test_an_escalation_with_nothing_but_filler_is_no_report() -> None:
    candidate = {**HEALTHY, "summary": "string", "escalation": {"needed": True, "reason": "string"}}
    assert found(structured_outputs=[candidate]).report is None


def test_a_reason_beside_no_need_is_no_escalation() -> None:
    extraction = found(structured_outputs=[changed(HEALTHY, escalation={"needed": False, "reason": "not needed"})])
    assert extraction.report is not None
    assert extraction.report.escalation == Escalation(needed=False, reason="not needed")
    assert extraction.warnings == ()


def test_names_may_be_words_that_are_filler_elsewhere() -> None:
    assert not is_filler("test", name=True)
    assert is_filler("test")
    extraction = found(structured_outputs=[changed(HEALTHY, services_checked=[{"name": "test", "status": "down"}])])
    assert extraction.report is not None
    assert extraction.report.services_checked == (ServiceCheck(service="test", status=ServiceStatus.DOWN),)


@pytest.mark.parametrize(
    ("key", "service", "category"),
    [
        ("jellyfin:timing", "jellyfin", "timing"),
        ("network", None, "network"),
        ("a:b:c", "a", "b:c"),
        (" web : timing ", "web", "timing"),
        (":timing", None, "timing"),
    ],
)
def test_a_memory_key_is_split_at_its_first_colon(key: str, service: str | None, category: str) -> None:
    extraction = found(structured_outputs=[changed(HEALTHY, memories=[{"key": key, "value": "takes 90 s"}])])
    assert extraction.report is not None
    expected = ReportedMemory(service=service, category=category, observation="takes 90 s")
    assert extraction.report.memories == (expected,)
    assert extraction.warnings == ()


@pytest.mark.parametrize(
    "memory",
    [
        {"key": "jellyfin:", "value": "x1"},
        {"key": " : ", "value": "x1"},
        {"key": "timing", "value": "  "},
        {"key": "timing", "value": "N/A"},
    ],
)
def test_a_memory_that_does_not_map_is_dropped_and_the_rest_kept(memory: dict[str, str]) -> None:
    memories = [memory, {"key": "timing", "value": "takes 90 s"}]
    extraction = found(structured_outputs=[changed(HEALTHY, memories=memories)])
    assert extraction.report is not None
    assert [kept.observation for kept in extraction.report.memories] == ["takes 90 s"]
    assert len(extraction.warnings) == 1
    assert extraction.warnings[0].startswith("$.memories[0]")


# --- a schema of the operator's, weaker than ours -----------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "level"),
    [
        ("warn", EventLevel.WARNING),
        ("FATAL", EventLevel.CRITICAL),
        ("err", EventLevel.CRITICAL),
        (" failed ", EventLevel.CRITICAL),
    ],
)
def test_levels_are_mapped_again(word: str, level: EventLevel) -> None:
    candidate = changed(HEALTHY, events=[{"level": word, "message": "x1"}])
    assert found(structured_outputs=[candidate]).report is None  # our own schema knows three words
    extraction = found(WEAK, structured_outputs=[candidate])
    assert extraction.report is not None
    assert extraction.report.events[0].level is level
    assert extraction.warnings == ()


@pytest.mark.parametrize("word", ["notice", "", None, 5, ["critical"], {"critical": 1}])
def test_an_unknown_level_is_info_with_a_warning(word: object) -> None:
    candidate = changed(HEALTHY, events=[{"level": word, "message": "x1"}])
    extraction = found(WEAK, structured_outputs=[candidate])
    assert extraction.report is not None
    assert extraction.report.events == (NewEvent(level=EventLevel.INFO, message="x1"),)
    assert extraction.warnings[0].startswith("$.events[0].level: ")


@pytest.mark.parametrize(
    ("answer", "needed"),
    [("true", True), ("Yes", True), (1, True), ("false", False), (0, False), ("maybe", True), (None, True), ([], True)],
)
def test_an_answer_that_is_no_boolean_is_taken_to_the_safe_side(answer: object, *, needed: bool) -> None:
    candidate = changed(HEALTHY, escalation={"needed": answer, "reason": "db is down"})
    extraction = found(WEAK, structured_outputs=[candidate])
    assert extraction.report is not None
    assert extraction.report.escalation.needed is needed
    assert extraction.warnings[0].startswith(f"{DEGRADED} $.escalation.needed: ")


@pytest.mark.parametrize("escalation", ["absent", None, "no idea", 7, [], [1]])
def test_a_missing_answer_asks_for_nobody_and_is_marked(escalation: object) -> None:
    extraction = found(WEAK, structured_outputs=[changed(HEALTHY, escalation=escalation)])
    assert extraction.report is not None
    assert extraction.report.escalation == Escalation(needed=False)
    assert extraction.warnings[0].startswith(DEGRADED)


@pytest.mark.parametrize("status", ["ok", "", None, 1, ["healthy"]])
def test_a_status_that_is_none_proves_nothing(status: object) -> None:
    candidate = changed(HEALTHY, services_checked=[{"name": "web", "status": status}])
    extraction = found(WEAK, structured_outputs=[candidate])
    assert extraction.report is not None
    assert extraction.report.services_checked == ()
    assert extraction.warnings == (f"{DEGRADED} $.services_checked[0].status: is not a status, left out",)


def test_wrong_types_cost_the_entry_they_stand_in() -> None:
    candidate = {
        "summary": "Looked at two.",
        "events": {"level": "info"},
        "memories": [1, {"key": 1, "value": "x1"}, {"key": "timing", "value": ["x"]}],
        "escalation": {"needed": True, "reason": "db is down", "context": 5, "failed_checks": ["a1", 2, None, " "]},
        "services_checked": [None, {"name": "web", "status": "Healthy", "detail": {}}],
    }
    extraction = found(WEAK, structured_outputs=[candidate])
    report = extraction.report
    assert report is not None
    assert report.services_checked == (ServiceCheck(service="web", status=ServiceStatus.HEALTHY),)
    assert report.memories == ()
    assert report.escalation == Escalation(needed=True, reason="db is down", failed_checks=("a1",))
    assert len(extraction.warnings) == 7


def test_a_flood_is_bounded_and_texts_are_cut_by_characters() -> None:
    candidate = changed(
        HEALTHY,
        summary="日" * 10_000,
        events=[{"level": "info", "message": f"number {n}"} for n in range(5000)],
    )
    extraction = found(structured_outputs=[candidate])
    assert extraction.report is not None
    assert len(extraction.report.events) == 300
    assert extraction.report.summary == "日" * 7999 + "…"
    assert extraction.warnings == ("$.events: has 5000 entries, only the first 300 were kept",)


def test_what_no_database_stores_is_replaced() -> None:
    extraction = found(result_text=json.dumps(with_summary("a\x00b\ud83dc 🔑")))
    assert summary_of(extraction) == "a\ufffdb\ufffdc 🔑"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(FILLER),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["level", "message", "service", "key", "value", "needed", "reason", "name", "status", "detail"]
            ),
            children,
            max_size=4,
        )
    ),
    max_leaves=6,
)
candidates = st.dictionaries(
    st.sampled_from(["summary", "events", "memories", "escalation", "services_checked", "other"]), anything, max_size=6
)


@hypothesis_settings(max_examples=150)
@given(candidates)
def test_no_candidate_raises_and_none_that_calls_all_well_is_without_words(candidate: dict[str, object]) -> None:
    extraction = found(WEAK, structured_outputs=[candidate], structured_calls=[candidate])
    found(structured_outputs=[candidate])
    reading = read(candidate)
    assert (extraction.report is None) == bool(reading.faults)
    if extraction.report is not None:
        assert not is_filler(extraction.report.summary)
