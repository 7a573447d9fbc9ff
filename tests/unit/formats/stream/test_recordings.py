"""Streams of the real CLI, two versions, against facts that were read from the files by eye."""

from __future__ import annotations

import pytest

from claudeops.domain.chains.outcome import ProcessExit
from claudeops.domain.sessions import FailureKind, Outcome
from claudeops.formats.stream import Other, ResultRead, ToolDenied, ToolEnded, ToolStarted
from support.recorded import GOLDEN, Golden
from support.streams import DATA, RECORDINGS, Reading, judged, read_bytes


def recording(name: str) -> Reading:
    return read_bytes((DATA / "recordings" / f"{name}.ndjson").read_bytes())


@pytest.mark.parametrize("golden", GOLDEN, ids=[golden.name for golden in GOLDEN])
def test_recording(golden: Golden) -> None:
    transcript = recording(golden.name).transcript
    assert {name: getattr(transcript, name) for name in golden.facts} == golden.facts
    seen = {key: (call.name, call.ended, call.is_error) for key, call in transcript.tool_calls.items()}
    assert seen == golden.calls


@pytest.mark.parametrize("golden", GOLDEN, ids=[golden.name for golden in GOLDEN])
def test_recording_is_judged(golden: Golden) -> None:
    judgement = judged(recording(golden.name).transcript, golden.exited, has_report=golden.has_report)
    assert (judgement.outcome, judgement.category, judgement.failure_kind) == (
        golden.outcome,
        golden.category,
        golden.kind,
    )
    assert (judgement.error, judgement.warnings, judgement.clean) == (golden.error, golden.warnings, golden.clean)


def test_every_recording_has_its_facts() -> None:
    files = [f"{path.parent.name}/{path.stem}" for path in RECORDINGS]
    assert sorted(files) == sorted(golden.name for golden in GOLDEN)


@pytest.mark.parametrize("version", ["2.1.197", "2.1.329"])
def test_denied_call_is_told_once(version: str) -> None:
    reading = recording(f"{version}/tool-denied-dontask")
    (denial,) = reading.transcript.permission_denials
    assert (denial.tool_use_id, denial.tool_name, denial.input) == (
        "toolu_0001_1",
        "Bash",
        {"command": "docker restart foo"},
    )
    announced = [event for event in reading.events if isinstance(event, ToolDenied)]
    assert [event.tool_use_id for event in announced] == (["toolu_0001_1"] if version == "2.1.329" else [])


def test_events_come_in_the_streams_order() -> None:
    events = recording("2.1.197/lines-after-result").events
    assert [type(event).__name__ for event in events] == [
        "SessionStarted",
        "AssistantText",
        "ToolStarted",
        "Other",  # task_started
        "ToolEnded",
        "ToolStarted",
        "ToolEnded",
        "ResultRead",
        "Other",  # task_updated
        "Other",  # task_notification
    ]
    assert events[7] == ResultRead(index=0, is_error=False, subtype="success")
    assert events[-1] == Other(type="system", subtype="task_notification")


def test_tool_call_shows_what_it_asked_and_got() -> None:
    events = recording("2.1.329/success").events
    assert events[2] == ToolStarted(tool_use_id="toolu_0001_1", name="Bash", input={"command": "echo hi"})
    assert events[3] == ToolEnded(tool_use_id="toolu_0001_1", is_error=False, text="hi")


def test_killed_while_the_api_refuses_the_key_is_an_auth_failure_also_when_nobody_said_why() -> None:
    transcript = recording("2.1.329/api-401-retrying-killed").transcript
    judgement = judged(transcript, ProcessExit(code=-9))
    assert (judgement.outcome, judgement.failure_kind) == (Outcome.NO_RESULT, FailureKind.AUTH)
    assert judgement.category is None  # a retry is no error


def test_report_alone_is_worth_as_much_as_text() -> None:
    transcript = recording("2.1.197/success").transcript
    assert judged(transcript, has_report=True).succeeded
    assert not judged(transcript, has_report=False).succeeded
