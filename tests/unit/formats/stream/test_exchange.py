"""Frames of our own: nothing that is misunderstood runs, and the last frame says how it ended."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.sessions import DecisionReason, Outcome, Status
from claudeops.formats.stream import (
    ApiRetried,
    AssistantText,
    CliWarned,
    ToolEnded,
    ToolStarted,
    Transcript,
    TurnStarted,
)
from claudeops.formats.stream.exchange import (
    INPUT_BYTES,
    NO_USER_FRAME,
    ExchangeVerdict,
    InputFault,
    InputReader,
    Interrupt,
    Totals,
    UserTurn,
    frames_of,
    init_frame,
    prompt_of,
    result_frame,
)
from support.store_values import running


def read(data: bytes, step: int = 1_000_000) -> list[object]:
    reader = InputReader()
    found: list[object] = []
    for at in range(0, len(data), step):
        found += reader.push(data[at : at + step])
    return [*found, *reader.close()]


def test_user_frames_and_interrupts_are_read_in_their_order() -> None:
    text = (
        '{"type":"user","content":"a"}\r\n\n  \n'
        '{"type":"control","subtype":"interrupt"}\n'
        '{"content":[{"type":"text","text":"b"},{"type":"text","text":"c"}],"type":"user"}'
    )
    assert read(text.encode()) == [UserTurn(text="a"), Interrupt(), UserTurn(text="b\nc")]


@pytest.mark.parametrize(
    "line",
    [
        '{"type":"user","message":{"role":"user","content":"a"}}',
        '{"type":"user","content":"a","session_id":"s"}',
        '{"type":"user"}',
        '{"type":"user","content":"  "}',
        '{"type":"user","content":[]}',
        '{"type":"user","content":[{"type":"image"}]}',
        '{"type":"user","content":[{"type":"text","text":"a","cache_control":{}}]}',
        '{"type":"user","content":7}',
        '{"type":"control","subtype":"interrupt","request_id":1}',
        '{"type":"control","subtype":"pause"}',
        '{"type":"nope"}',
        '["user"]',
        '"user"',
        "{",
        "[" * 5000,
        "\\xff",
    ],
)
def test_what_is_not_understood_is_a_fault_and_nothing_after_it_counts(line: str) -> None:
    before, fault = read(f'{{"type":"user","content":"a"}}\n{line}\n{{"type":"user","content":"b"}}\n'.encode())
    assert before == UserTurn(text="a")
    assert isinstance(fault, InputFault)
    assert (fault.exit_status, fault.says.partition(" of ")[0]) == (64, "line 2")


def test_bytes_that_are_no_text_are_a_fault() -> None:
    (fault,) = read(b'{"type":"user","content":"\xff"}')
    assert isinstance(fault, InputFault)
    assert fault.exit_status == 64


@pytest.mark.parametrize("data", [b"", b"\n", b" \n\t\n", b'{"type":"control","subtype":"interrupt"}'])
def test_an_input_without_a_user_frame_is_a_fault(data: bytes) -> None:
    assert read(data)[-1] == InputFault(says=NO_USER_FRAME, exit_status=66)


@pytest.mark.parametrize(("more", "exit_statuses"), [(0, []), (1, [78])])
def test_the_whole_input_is_bounded(more: int, exit_statuses: list[int]) -> None:
    frame = b'{"type":"user","content":"a"}\n'
    found = read(frame + b" " * (INPUT_BYTES - len(frame) + more), step=64 * 1024)
    assert [each.exit_status for each in found if isinstance(each, InputFault)] == exit_statuses
    assert UserTurn(text="a") in found


@given(st.integers(1, 50))
def test_where_chunks_end_makes_no_difference(step: int) -> None:
    data = '{"type":"user","content":"aé"}\n\n{"type":"user","content":"b"}\r\n{"type":"nope"}'.encode()
    assert read(data, step) == read(data)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b" Look.\n", UserTurn(text="Look.")),
        (b" \n", InputFault(says="the input is empty", exit_status=66)),
        (b"\xff", InputFault(says="the input is not UTF-8", exit_status=64)),
    ],
)
def test_a_text_is_one_thing_to_be_done(data: bytes, found: object) -> None:
    assert prompt_of(data) == found


def test_a_text_is_bounded_too() -> None:
    assert isinstance(prompt_of(b"x" * INPUT_BYTES), UserTurn)
    fault = prompt_of(b"x" * (INPUT_BYTES + 1))
    assert isinstance(fault, InputFault)
    assert fault.exit_status == 78


# --- out ----------------------------------------------------------------------------------------------


ENDS = [
    (Outcome.SUCCESS, "success", 0),
    (Outcome.MAX_TURNS, "max_turns", 75),  # K21
    (Outcome.BUDGET_EXCEEDED, "budget_exceeded", 137),
    (Outcome.CANCELLED, "cancelled", 124),
    (Outcome.TIMEOUT, "cancelled", 124),
    (Outcome.STALLED, "cancelled", 124),
    (Outcome.MAX_TOKENS, "max_tokens", 1),
    (Outcome.ERROR, "error", 1),
    (Outcome.SPAWN_FAILED, "error", 1),
    (Outcome.LOST, "error", 1),
]
ALWAYS = {
    *("type", "subtype", "session_id", "total_cost_usd", "turns", "num_turns", "total_input_tokens"),
    *("total_output_tokens", "usage", "is_error", "duration_ms", "turns_without_edit", "no_edit_nudge_emitted"),
}


@pytest.mark.parametrize(("outcome", "subtype", "exit_status"), ENDS)
def test_every_outcome_has_its_subtype_and_its_exit_status(outcome: Outcome, subtype: str, exit_status: int) -> None:
    session = running(status=Status.ENDED, outcome=outcome, error="why" if outcome is Outcome.ERROR else None)
    verdict = ExchangeVerdict.of(session, "last words")
    frame = result_frame(verdict, Totals(last_text="last words"), duration_ms=7)

    assert (verdict.subtype, verdict.exit_status) == (subtype, exit_status)
    assert frame.keys() >= ALWAYS
    assert (frame["is_error"], frame["session_id"], frame["duration_ms"]) == (subtype != "success", "7", 7)
    assert ("result" in frame) == (subtype == "success")
    assert ("error" in frame) == (subtype == "error")
    assert ("tool_calls_seen" in frame) == (subtype != "success")
    assert frame["result" if subtype == "success" else "last_assistant_text"] == "last words"


def test_a_success_without_a_report_failed_its_schema() -> None:
    session = running(status=Status.ENDED, outcome=Outcome.SUCCESS, decision_reason=DecisionReason.NO_REPORT)
    verdict = ExchangeVerdict.of(session, "[EVENT:warning:db] slow")
    assert (verdict.subtype, verdict.exit_status, verdict.text) == ("error", 2, None)


def test_what_was_refused_before_it_began_has_every_key_as_well() -> None:
    frame = result_frame(ExchangeVerdict.refused("no key", 78), Totals(), duration_ms=0)
    assert frame.keys() >= ALWAYS
    assert (frame["subtype"], frame["error"], frame["session_id"], frame["total_cost_usd"]) == (
        "error",
        "no key",
        "",
        None,
    )
    assert "last_assistant_text" not in frame


def test_totals_are_those_of_all_sessions_and_an_unknown_cost_is_not_nothing() -> None:
    seen = Transcript(input_tokens=10, output_tokens=3, last_assistant_text="x", tool_calls_reported=2)
    totals = Totals().with_session(running(num_turns=2), seen)
    assert totals.cost_usd is None
    totals = totals.with_session(running(num_turns=1, cost_usd=0.1), None).with_session(running(cost_usd=0.2), seen)
    assert totals == Totals(turns=3, input_tokens=20, output_tokens=6, tool_calls=4, cost_usd=0.3, last_text="x")


@pytest.mark.parametrize(
    ("event", "frame"),
    [
        (AssistantText(text="a"), {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}]}),
        (
            ToolStarted(tool_use_id="t", name="Bash", input={"command": "ls"}),
            {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}},
        ),
        (
            ToolEnded(tool_use_id="t", is_error=True, text="out"),
            {
                "type": "tool_result",
                "tool_use_id": "t",
                "is_error": True,
                "content": [{"type": "text", "text": "out"}],
            },
        ),
        (
            ApiRetried(attempt=2, status=529, error="overloaded"),
            {
                "type": "system",
                "subtype": "api_retry",
                "attempt": 2,
                "error_status": 529,
                "error_category": "overloaded",
            },
        ),
        (
            CliWarned(subtype="model_mismatch", message="m"),
            {"type": "warning", "subtype": "model_mismatch", "message": "m"},
        ),
    ],
)
def test_what_a_session_says_is_printed_in_one_form_for_every_cli(event: Any, frame: dict[str, object]) -> None:
    assert list(frames_of(event, session_id=4)) == [{**frame, "session_id": "4"}]


@pytest.mark.parametrize(
    "event",
    [
        AssistantText(text="a", from_subagent=True),
        ToolStarted(tool_use_id="t", name="Bash", input=None, from_subagent=True),
        ToolEnded(tool_use_id="t", is_error=False, text=None, from_subagent=True),
        TurnStarted(),
    ],
)
def test_what_subagents_do_is_not(event: Any) -> None:
    assert list(frames_of(event, session_id=4)) == []


def test_the_init_frame_has_the_keys_of_the_contract() -> None:
    frame = init_frame(session_id=None, model="anthropic/haiku", tools=("Bash",), cwd="/w", tier=1)
    assert frame == {
        "type": "system",
        "subtype": "init",
        "session_id": "",
        "model": "anthropic/haiku",
        "tools": ["Bash"],
        "plugins": [],
        "settingSources": [],
        "mcp_servers": [],
        "bare_mode": False,
        "cwd": "/w",
        "permission_mode": "dontAsk",
        "tier": 1,
    }
