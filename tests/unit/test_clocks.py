"""The clocks of a session, without a session: what is due when."""

from __future__ import annotations

import pytest

from claudeops.domain.outcome import StopCause
from claudeops.engine.control import Clocks, Control, Timeouts

LIMITS = Timeouts(session=100, startup=10, silence=30, result_grace=5, stop_grace=10)


class Hands:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def clocks(hands: Hands) -> Clocks:
    return Clocks(limits=LIMITS, monotonic=hands)


def test_before_the_first_frame_the_start_up_time_runs(clocks: Clocks) -> None:
    assert clocks.next_due() == (1010.0, StopCause.STARTUP_TIMEOUT)


def test_each_frame_moves_the_silence(clocks: Clocks, hands: Hands) -> None:
    clocks.frame()
    hands.at = 1020
    clocks.frame()
    assert clocks.next_due() == (1050.0, StopCause.STALLED)


def test_an_open_tool_suspends_the_silence_until_the_last_one_closes(clocks: Clocks) -> None:
    clocks.frame()
    clocks.tool_opened("a")
    clocks.tool_opened("b")
    clocks.tool_closed("a")
    assert clocks.next_due() == (1100.0, StopCause.TIMEOUT)
    clocks.tool_closed("b")
    assert clocks.next_due() == (1030.0, StopCause.STALLED)


def test_after_the_result_the_grace_runs_until_the_session_goes_on(clocks: Clocks) -> None:
    clocks.frame()
    clocks.result()
    assert clocks.next_due() == (1005.0, StopCause.RESULT_GRACE)
    clocks.resume()
    assert clocks.next_due() == (1030.0, StopCause.STALLED)


def test_frames_do_not_move_the_wall_clock(clocks: Clocks, hands: Hands) -> None:
    hands.at = 1099
    clocks.frame()
    assert clocks.next_due() == (1100.0, StopCause.TIMEOUT)


def test_the_first_cause_to_stop_is_the_one_that_counts() -> None:
    control = Control()
    control.stop(StopCause.STALLED)
    control.stop(StopCause.CANCELLED)
    assert control.cause is StopCause.STALLED
