"""The legacy text markers and the handoff file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from claudeops.formats.report.markers import Handoff, HandoffError, Markers, parse_handoff, read_markers, with_handoff


def event(level: EventLevel, message: str, service: str | None = None) -> NewEvent:
    return NewEvent(level=level, message=message, service=service)


def memory(category: str, observation: str, service: str | None = None) -> ReportedMemory:
    return ReportedMemory(category=category, observation=observation, service=service)


def found(*texts: str) -> list[NewEvent | ReportedMemory]:
    markers = read_markers(texts)
    return [*markers.events, *markers.memories]


INFO, WARNING, CRITICAL = EventLevel.INFO, EventLevel.WARNING, EventLevel.CRITICAL


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("[EVENT:info] all well", [event(INFO, "all well")], id="no service"),
        pytest.param("[EVENT:warning:db] slow", [event(WARNING, "slow", "db")], id="service"),
        pytest.param("  \t[EVENT:info]   all well  ", [event(INFO, "all well")], id="space around"),
        pytest.param("- [EVENT:info:db] slow", [event(INFO, "slow", "db")], id="list bullet"),
        pytest.param("[EVENT:info:a.b/c_d-e] x1", [event(INFO, "x1", "a.b/c_d-e")], id="service with signs"),
        pytest.param("[EVENT:info:db] a: [b] (c)", [event(INFO, "a: [b] (c)", "db")], id="brackets in the message"),
        pytest.param(
            "[EVENT:critical:my app:80] gone", [event(CRITICAL, "my app:80: gone")], id="a service that is no name"
        ),
        pytest.param(
            "[EVENT:warning:db] slow; [EVENT:critical:web] down [MEMORY:timing:db] 90 s",
            [event(WARNING, "slow", "db"), event(CRITICAL, "down", "web"), memory("timing", "90 s", "db")],
            id="several on a line",
        ),
        pytest.param("[MEMORY:timing:jellyfin] 60 s", [memory("timing", "60 s", "jellyfin")], id="memory order"),
        pytest.param("[MEMORY:network] two sites", [memory("network", "two sites")], id="memory, no service"),
        pytest.param(
            "[COOLDOWN:restart:jellyfin] success — back up",
            [event(INFO, "the session claims a restart: success - back up", "jellyfin")],
            id="cooldown success",
        ),
        pytest.param(
            "[COOLDOWN:redeployment:a/b.c] failure - no image",
            [event(CRITICAL, "the session claims a redeployment: failure - no image", "a/b.c")],
            id="cooldown failure",
        ),
        pytest.param(
            "[COOLDOWN:restart:db] Success",
            [event(INFO, "the session claims a restart: success", "db")],
            id="cooldown without words",
        ),
    ],
)
def test_a_marker_is_read(line: str, expected: list[object]) -> None:
    assert found(f"Looking.\n{line}\nDone.") == expected
    assert found(f"Looking.\r\n{line}\r\nDone.") == expected


@pytest.mark.parametrize(
    ("word", "level"),
    [
        *((word, WARNING) for word in ("warning", "warn", "degraded", "WARN", "Degraded")),
        *((word, CRITICAL) for word in ("critical", "error", "err", "fatal", "failure", "failed", "FATAL")),
        *((word, INFO) for word in ("info", "INFO", "ok", "notice")),
    ],
)
def test_levels_are_mapped(word: str, level: EventLevel) -> None:
    assert found(f"[EVENT:{word}:db] x1") == [event(level, "x1", "db")]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("the log says [EVENT:critical:db] down", id="quoted in a sentence"),
        pytest.param('"[EVENT:critical:db] down"', id="in quotes"),
        pytest.param("> [EVENT:critical:db] down", id="block quote"),
        pytest.param("12: [EVENT:critical:db] down", id="numbered line of a file"),
        pytest.param("```\n[EVENT:critical:db] down\n```", id="fenced code"),
        pytest.param("~~~ log\n[EVENT:critical:db] down\n~~~", id="fenced with a language"),
        pytest.param("log\u2028[EVENT:critical:db] down", id="unicode line separator"),
        pytest.param("log\x0b[EVENT:critical:db] down", id="vertical tab"),
        pytest.param("`[EVENT:critical:db] down`", id="inline code"),
    ],
)
def test_a_quoted_log_line_forges_no_event(text: str) -> None:
    assert found(f"I read the log.\n{text}\nThat is old.") == []


def test_a_quotation_within_a_marker_is_part_of_its_message() -> None:
    line = '[EVENT:info:db] its log holds "[EVENT:critical:db] down"'
    assert found(line) == [event(INFO, 'its log holds "[EVENT:critical:db] down"', "db")]


def test_an_unclosed_fence_hides_nothing() -> None:
    text = "```\nquoted\n```\n```inline```\n```\n[EVENT:critical:db] down"
    assert found(text) == [event(CRITICAL, "down", "db")]


def test_markers_in_fenced_code_are_counted_in_a_warning() -> None:
    assert read_markers(["```\n[EVENT:info] a1\n[EVENT:info] b1\n```"]).warnings == (
        "2 lines with markers are in fenced code and were taken as quotations",
    )


def test_a_closing_summary_that_repeats_a_marker_counts_it_once() -> None:
    work = "[EVENT:warn:db] Disk is  90 % full.\n[MEMORY:timing:db] takes 90 s\n[COOLDOWN:restart:db] success - up"
    closing = "Summary:\n- [EVENT:warning:db] disk is 90 % full\n- [MEMORY:timing:db] takes 90 s.\n" + work
    markers = read_markers([work, closing])
    assert markers.events == (
        event(WARNING, "Disk is  90 % full.", "db"),
        event(INFO, "the session claims a restart: success - up", "db"),
    )
    assert markers.memories == (memory("timing", "takes 90 s", "db"),)


def test_the_same_words_about_another_service_are_another_event() -> None:
    assert len(found("[EVENT:info:a] up\n[EVENT:info:b] up\n[EVENT:warning:a] up")) == 3


@pytest.mark.parametrize(
    "line",
    [
        "[EVENT:info]",
        "[EVENT:info:db]   ",
        "[EVENT:] x1",
        "[EVENT:in fo] x1",
        "[EVENT:info x1",
        "[MEMORY:timing:db]",
        "[COOLDOWN:reboot:db] success - x1",
        "[COOLDOWN:restart:db] maybe - x1",
    ],
)
def test_a_broken_marker_leaves_a_warning_and_costs_nothing_else(line: str) -> None:
    markers = read_markers([f"{line}\n[EVENT:info:web] fine"])
    assert markers.events == (event(INFO, "fine", "web"),)
    assert len(markers.warnings) == 1
    assert markers.warnings[0].startswith("marker not understood: ")


def test_a_broken_marker_at_the_beginning_does_not_swallow_the_next_on_the_line() -> None:
    markers = read_markers(["[EVENT:] x1 [EVENT:critical:db] down"])
    assert markers.events == (event(CRITICAL, "down", "db"),)
    assert len(markers.warnings) == 1


@pytest.mark.parametrize(
    ("texts", "summary"),
    [
        (["First.\n\nAll services\nare well.\n"], "All services are well."),
        (["First.", "Second.\n\n[EVENT:info] x1\n"], "Second."),
        (["All well.\n[EVENT:info] x1"], "All well."),
        (["One.", ""], "One."),
        (["[EVENT:info] x1"], ""),
        (["word " * 400], "word " * 99 + "word…"),
    ],
)
def test_the_summary_is_the_last_paragraph_that_is_more_than_markers(texts: list[str], summary: str) -> None:
    assert read_markers(["[EVENT:info] x1", *texts]).summary == summary


def test_text_without_a_marker_is_no_report() -> None:
    assert read_markers(["All services are healthy."]).report() is None
    assert read_markers([]) == Markers()


def test_markers_make_a_report_that_asks_for_nobody_and_has_checked_nothing() -> None:
    report = read_markers(["[EVENT:critical:db] down"]).report()
    assert report == Report(
        summary="down", escalation=Escalation(needed=False), events=(event(CRITICAL, "down", "db"),)
    )
    only_memory = read_markers(["[MEMORY:timing:db] takes 90 s"]).report()
    assert only_memory is not None
    assert only_memory.summary == "takes 90 s"


def test_what_no_database_stores_is_replaced() -> None:
    assert found("[EVENT:info:db] a\x00b\ud83dc") == [event(INFO, "a\ufffdb\ufffdc", "db")]


def test_a_flood_of_markers_is_bounded() -> None:
    assert len(found("\n".join(f"[EVENT:info:db] number {n}" for n in range(5000)))) == 300


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text(st.sampled_from(list("[]:-—* \n\t`~>EVNTMORYCLD/abz\x00\ud800")), max_size=60), max_size=3))
def test_reading_markers_never_raises(texts: list[str]) -> None:
    for text in texts:
        read_markers([text, f"[EVENT:{text}", f"[MEMORY:a:{text}] {text}", f"[COOLDOWN:restart:{text}] success"])


# --- the handoff file -------------------------------------------------------------------------------------

HANDOFF = {
    "schema_version": 1,
    "recommended_tier": 2,
    "services_affected": ["db", "web"],
    "check_results": [
        {"service": "db", "check_type": "tcp", "status": "down", "error": "refused", "response_time_ms": None},
        {"service": "web", "check_type": "http", "status": "degraded", "response_time_ms": 812.5},
        {"service": "mail", "check_type": "smtp", "status": "healthy", "response_time_ms": 12},
    ],
    "investigation_findings": "The disk is full.",
    "remediation_attempted": None,
    "cooldown_state": {"db": {"restart": 1}},
    "something_new": [1],
}


def handoff(**changes: object) -> str:
    return json.dumps({key: value for key, value in {**HANDOFF, **changes}.items() if value != "absent"})


def test_a_handoff_file_is_read() -> None:
    result = parse_handoff("\ufeff" + handoff(), current_tier=1, max_tier=3)
    assert isinstance(result, Handoff)
    assert result.recommended_tier == 2
    assert result.services_affected == ("db", "web")
    assert [check.passed for check in result.check_results] == [False, False, True]
    assert result.investigation_findings == "The disk is full."


def test_a_handoff_may_skip_a_tier_and_leave_out_what_is_optional() -> None:
    text = handoff(recommended_tier=3, check_results=[], investigation_findings="absent", cooldown_state="absent")
    assert isinstance(parse_handoff(text, current_tier=1, max_tier=3), Handoff)


@pytest.mark.parametrize(
    ("text", "tier", "says"),
    [
        pytest.param("", 1, "invalid", id="empty"),
        pytest.param("[]", 1, "Expected `object`", id="no object"),
        pytest.param(handoff()[:-1], 1, "invalid", id="cut off"),
        pytest.param("[" * 100_000, 1, "invalid", id="too deep"),
        pytest.param('{"a":"\ud800"}', 1, "schema_version", id="half a pair"),
        pytest.param(handoff(schema_version="absent"), 1, "schema_version", id="no version"),
        pytest.param(handoff(schema_version=2), 1, "schema_version 2", id="other version"),
        pytest.param(handoff(schema_version="1"), 1, "schema_version", id="version as text"),
        pytest.param(handoff(schema_version=True), 1, "schema_version", id="version as boolean"),
        pytest.param(handoff(recommended_tier=1), 1, "not above tier 1", id="same tier"),
        pytest.param(handoff(), 2, "not above tier 2", id="same tier, higher"),
        pytest.param(handoff(recommended_tier=4), 1, "maximum is 3", id="above the maximum"),
        pytest.param(handoff(recommended_tier="2"), 1, "recommended_tier", id="tier as text"),
        pytest.param(handoff(recommended_tier=2.5), 1, "recommended_tier", id="half a tier"),
        pytest.param(handoff(services_affected=[]), 1, "services_affected", id="no services"),
        pytest.param(handoff(services_affected=["db", " "]), 1, "services_affected", id="blank service"),
        pytest.param(handoff(services_affected="db"), 1, "services_affected", id="services as text"),
        pytest.param(handoff(check_results="absent"), 1, "check_results", id="no checks"),
        pytest.param(handoff(check_results=[{"service": "db"}]), 1, "check_type", id="half a check"),
        pytest.param(
            handoff(check_results=[{"service": "a", "check_type": "b", "status": "c", "response_time_ms": -1}]),
            1,
            "response_time_ms",
            id="negative time",
        ),
    ],
)
def test_an_invalid_handoff_is_a_sentence(text: str, tier: int, says: str) -> None:
    result = parse_handoff(text, current_tier=tier, max_tier=3)
    assert isinstance(result, HandoffError)
    assert says in result.message
    assert result.message.startswith("the handoff file ")
    assert len(result.message) < 400


def read(text: str) -> Handoff:
    result = parse_handoff(text, current_tier=1, max_tier=3)
    assert isinstance(result, Handoff)
    return result


def test_a_handoff_adds_the_wish_to_the_markers() -> None:
    markers = read_markers(["Looked.\n[EVENT:critical:db] down"])
    before = Extraction(method=ExtractionMethod.MARKERS, report=markers.report(), warnings=("w",))
    after = with_handoff(before, read(handoff()))
    assert after.method is ExtractionMethod.MARKERS
    assert after.warnings == ("w",)
    assert after.report == Report(
        summary="Looked.",
        escalation=Escalation(
            needed=True,
            reason="handoff file: db, web",
            context="The disk is full.",
            failed_checks=("db tcp: down (refused)", "web http: degraded"),
        ),
        events=(event(CRITICAL, "down", "db"),),
        services_checked=(
            ServiceCheck(service="db", status=ServiceStatus.DOWN, detail="tcp: refused"),
            ServiceCheck(service="web", status=ServiceStatus.DEGRADED, detail="http"),
            ServiceCheck(service="mail", status=ServiceStatus.HEALTHY, detail="smtp"),
        ),
    )


def test_a_handoff_without_markers_is_a_report() -> None:
    after = with_handoff(Extraction(method=ExtractionMethod.NONE, report=None), read(handoff()))
    assert after.method is ExtractionMethod.MARKERS
    assert after.report is not None
    assert after.report.summary == "The disk is full."
    assert after.report.escalation.needed


def test_a_validated_report_outranks_a_handoff() -> None:
    report = Report(summary="All well.", escalation=Escalation(needed=False))
    for method in (ExtractionMethod.STRUCTURED, ExtractionMethod.SALVAGED):
        extraction = Extraction(method=method, report=report)
        assert with_handoff(extraction, read(handoff())) is extraction


@pytest.mark.parametrize("status", ["unknown", "timeout", "error", "DOWN "])
def test_a_status_that_is_none_of_ours_is_never_healthy(status: str) -> None:
    checks = [{"service": "db", "check_type": "tcp", "status": status}]
    after = with_handoff(Extraction(method=ExtractionMethod.NONE, report=None), read(handoff(check_results=checks)))
    assert after.report is not None
    assert after.report.services_checked[0].status is not ServiceStatus.HEALTHY
    assert len(after.report.escalation.failed_checks) == 1


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("[EVENT:info:a] ok;[EVENT:critical:b] down", ["ok;[EVENT:critical:b] down"]),
        ("[EVENT:info:a] ok ([EVENT:critical:b] down)", ["ok ([EVENT:critical:b] down)"]),
        ("[MEMORY:timing:a] 90 s,[EVENT:critical:b] down", ["90 s,[EVENT:critical:b] down"]),
        ("[EVENT:info:a] ok `[EVENT:critical:b] down`", ["ok `[EVENT:critical:b] down`"]),
        ("| [EVENT:info:a] ok | see [EVENT:critical:b] down |", ["see [EVENT:critical:b] down"]),
        ("[EVENT:info:a] ok [EVENT:critical:b] down", []),
    ],
)
def test_a_further_marker_that_is_not_read_is_a_warning(text: str, unread: list[str]) -> None:
    wanted = tuple(f"marker in a quotation or sentence, not read: {each!r}" for each in unread)
    assert read_markers([text]).warnings == wanted
