"""What result lines say, one or several."""

from __future__ import annotations

from typing import Any

import pytest

from claudeops.formats.stream import ResultRead
from support.streams import read, result, said

SUBAGENT = {"parent_tool_use_id": "toolu_parent"}


def test_repair_turn_adds_a_result_and_keeps_the_first_report() -> None:
    reading = read(
        result(total_cost_usd=0.1, result="no report", usage={"input_tokens": 10, "output_tokens": 1}),
        result(total_cost_usd=0.15, num_turns=4, structured_output={"a": 1}, usage={"input_tokens": 4}),
        result(structured_output=["no object"]),
    )
    transcript = reading.transcript
    assert (transcript.results, transcript.cost_usd, transcript.num_turns) == (3, 0.15, 3)
    assert transcript.structured_outputs == ({"a": 1},)
    assert (transcript.input_tokens, transcript.output_tokens) == (0, 0)
    assert reading.events[1] == ResultRead(index=1, is_error=False, subtype="success")


def test_error_sticks_with_its_own_subtype_label_and_status() -> None:
    transcript = read(
        said("x", error="rate_limit"),
        result(subtype="error_during_execution", is_error=True, api_error_status=429, errors=["a", 7, "b"]),
        said("fine"),
        result(result="fine"),
    ).transcript
    assert (transcript.is_error, transcript.subtype, transcript.error_subtype) == (
        True,
        "success",
        "error_during_execution",
    )
    assert (transcript.error_text, transcript.error_label, transcript.api_error_status) == ("a\nb", "rate_limit", 429)
    assert transcript.result_text == "fine"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"result": "r", "error": "e", "errors": ["s"]}, "r"),
        ({"result": None, "error": "e", "errors": ["s"]}, "e"),
        ({"error": 7, "errors": ["s", "t"]}, "s\nt"),
        ({"errors": "s"}, "API error (no detail)"),
        ({"result": ["r"]}, "API error (no detail)"),
        ({"result": "  ", "errors": ["s"]}, "s"),
        ({"result": ""}, ""),
    ],
)
def test_error_text_is_where_the_cli_put_it(fields: dict[str, Any], text: str) -> None:
    assert read(result(is_error=True, **fields)).transcript.error_text == text


@pytest.mark.parametrize("cost", [None, "0.1", True, -0.5, 10**400, [0.1]])
def test_cost_that_is_no_amount_is_unknown_not_nothing(cost: object) -> None:
    assert read(result(total_cost_usd=cost)).transcript.cost_usd is None
    assert read(result(total_cost_usd=0.2), result(total_cost_usd=cost)).transcript.cost_usd == 0.2


@pytest.mark.parametrize(
    ("value", "count"),
    [
        *[(12, 12), ("12", 12), (1.9, 1), (True, 1), (None, 0), ("many", 0), ([], 0), ({"a": 1}, 0), (10**30, 0)],
        *[(2**63, 0), (2**63 - 1, 2**63 - 1), ("9" * 5000, 0)],
    ],
)
def test_tokens_are_safe_integers(value: object, count: int) -> None:
    assert read(result(usage={"input_tokens": value})).transcript.input_tokens == count


@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN", "1e999"])
def test_tokens_without_an_integer_are_none(value: str) -> None:
    transcript = read(f'{{"type":"result","usage":{{"output_tokens":{value}}},"num_turns":{value}}}').transcript
    assert (transcript.output_tokens, transcript.num_turns, transcript.result_seen) == (0, None, True)


@pytest.mark.parametrize("usage", [["x"], "x", 7, True])
def test_usage_that_is_no_object_changes_nothing(usage: object) -> None:
    transcript = read(result(usage={"input_tokens": 5}), result(usage=usage)).transcript
    assert transcript.input_tokens == 5


def test_calibans_older_frames_are_read() -> None:
    line = {"type": "result", "subtype": "success", "turns": 2, "total_input_tokens": 50, "total_output_tokens": 7}
    transcript = read(line).transcript
    assert (transcript.num_turns, transcript.input_tokens, transcript.output_tokens) == (2, 50, 7)


def test_stop_reason_is_the_last_that_was_said() -> None:
    first = said("a") | {"message": {"content": [], "stop_reason": "end_turn"}}
    below = first | {"message": {"content": [], "stop_reason": "max_tokens"}} | SUBAGENT
    assert read(first, below, said("b")).transcript.stop_reason == "end_turn"
    assert read(first, result(stop_reason="tool_use"), result(stop_reason=None)).transcript.stop_reason == "tool_use"


def test_denial_is_one_wherever_it_is_told() -> None:
    told = {"tool_name": "Bash", "tool_use_id": "t1"}
    transcript = read(
        {"type": "system", "subtype": "permission_denied", "message": "no", **told},
        result(permission_denials=[told | {"tool_input": {"command": "reboot"}}, 7, None]),
    ).transcript
    assert [denial.input for denial in transcript.permission_denials] == [{"command": "reboot"}]


def test_latest_number_counts_and_a_missing_one_erases_nothing() -> None:
    transcript = read(result(num_turns=2, duration_ms=10), result(num_turns=None, duration_ms="long")).transcript
    assert (transcript.num_turns, transcript.duration_ms) == (2, 10)
    transcript = read(result(num_turns=2, duration_ms=10), result(num_turns=0, duration_ms=0)).transcript
    assert (transcript.num_turns, transcript.duration_ms) == (0, 0)


def test_number_that_no_column_holds_is_unknown() -> None:
    assert read(result(num_turns=10**30)).transcript.num_turns is None
    assert read(result(num_turns=1.9)).transcript.num_turns == 1


def test_usage_outranks_the_older_keys() -> None:
    line = result(usage={"input_tokens": 5, "output_tokens": 6}, total_input_tokens=50, total_output_tokens=60)
    transcript = read(line).transcript
    assert (transcript.input_tokens, transcript.output_tokens) == (5, 6)


def test_tokens_are_zero_until_a_result_line_says_more() -> None:
    transcript = read(said("a")).transcript
    assert (transcript.input_tokens, transcript.output_tokens, transcript.result_seen) == (0, 0, False)


@pytest.mark.parametrize("value", [{"a": 1}, ["x"], 7, None, True])
def test_result_that_is_no_text_is_no_text(value: object) -> None:
    assert read(result(result=value)).transcript.result_text is None


def test_last_words_survive_a_result_line_that_has_none() -> None:
    lines = [result(last_assistant_text="half", result="whole"), result()]
    assert read(*lines).transcript.final_text == "half"
    assert read(lines[0]).transcript.final_text == "whole"


def test_label_is_of_the_last_message_until_a_result_line_fixes_it() -> None:
    labelled, plain = said("x", error="overloaded"), said("y")
    assert read(labelled).transcript.error_label == "overloaded"
    assert read(labelled, plain).transcript.error_label is None
    assert read(labelled, said("z", error="rate_limit", **SUBAGENT)).transcript.error_label == "overloaded"
    assert read(labelled, result(is_error=True), plain).transcript.error_label == "overloaded"
    assert read(labelled, result(), plain).transcript.error_label is None
