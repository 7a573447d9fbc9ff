"""A model that goes round in circles is told so, and then stopped; one that waits for a service is not."""

from __future__ import annotations

import itertools

import pytest

from claudeops.domain.calls import ToolCall
from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.policy.repetition import REFUSED_AFTER, REPORTS, STOPPED_AFTER, Repetition

NUMBERS = itertools.count()


def fail(
    repetition: Repetition, command: str = "curl web", text: str = "Exit code 7", name: str = "Bash"
) -> str | None:
    """Ask, then fail; return the refusal."""
    call = ToolCall(tool_use_id=f"toolu_{next(NUMBERS)}", tool_name=name, input={"command": command})
    refusal = repetition.refusal(call)
    repetition.started(call.tool_use_id, name, {**call.input, "description": f"try {call.tool_use_id}"})
    repetition.ended(call.tool_use_id, is_error=True, text=refusal or text)
    return refusal


def test_same_failing_call_is_refused_and_then_ends_the_session() -> None:
    repetition = Repetition()

    told = [fail(repetition) for _ in range(STOPPED_AFTER - 1)]

    assert [text is not None for text in told] == [False] * REFUSED_AFTER + [True] * (STOPPED_AFTER - 1 - REFUSED_AFTER)
    assert repetition.exhausted_reason is None
    fail(repetition)
    assert repetition.exhausted_reason == f"the same call failed {STOPPED_AFTER} times in a row in the same way"


def test_blanks_and_descriptions_are_no_way_around() -> None:
    repetition = Repetition()
    for blanks in range(1, STOPPED_AFTER + 1):
        fail(repetition, f"curl{' ' * blanks}web")
    assert repetition.exhausted_reason is not None


@pytest.mark.parametrize(
    "variation",
    [
        pytest.param(lambda number: {"command": f"curl web-{number}"}, id="other arguments"),
        pytest.param(lambda number: {"text": f"Exit code {number}"}, id="other errors"),
        pytest.param(lambda number: {"name": f"Tool{number}"}, id="other tools"),
    ],
)
def test_what_changes_is_no_repetition(variation: object) -> None:
    repetition = Repetition()
    for number in range(3 * STOPPED_AFTER):
        assert fail(repetition, **variation(number)) is None  # type: ignore[operator]  # one of the above
    assert repetition.exhausted_reason is None


def test_success_begins_the_count_anew() -> None:
    repetition = Repetition()
    for _ in range(3):
        for _ in range(REFUSED_AFTER - 1):
            assert fail(repetition) is None
        repetition.started("toolu_ok", "Bash", {"command": "curl web"})
        repetition.ended("toolu_ok", is_error=False, text="ok")
    assert repetition.exhausted_reason is None


def test_report_that_never_fits_ends_the_session_whatever_it_says() -> None:
    repetition = Repetition()
    for number in range(REPORTS):
        assert repetition.exhausted_reason is None
        repetition.started(f"toolu_{number}", STRUCTURED_OUTPUT_TOOL, {"summary": str(number)})
        repetition.ended(f"toolu_{number}", is_error=True, text=f"does not match: {number}")
    assert repetition.exhausted_reason == f"{REPORTS} reports in this session did not fit the schema"


def test_report_that_fits_counts_for_nothing() -> None:
    repetition = Repetition()
    for number in range(2 * REPORTS):
        repetition.started(f"toolu_{number}", STRUCTURED_OUTPUT_TOOL, {})
        repetition.ended(f"toolu_{number}", is_error=False, text="Structured output provided successfully")
    assert repetition.exhausted_reason is None


def test_results_of_unknown_calls_are_passed_over() -> None:
    repetition = Repetition()
    for _ in range(2 * STOPPED_AFTER):
        repetition.ended("toolu_never_seen", is_error=True, text="x")
    assert repetition.exhausted_reason is None
