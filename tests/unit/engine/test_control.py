"""The clocks of a session, without a session: what is due when."""

from __future__ import annotations

from pathlib import Path

import pytest

from claudeops.domain.chains.outcome import StopCause
from claudeops.engine.control import Clocks, StopControl, Timeouts
from claudeops.formats.stream import AssistantText, ToolEnded, ToolStarted, TranscriptBuilder, TurnStarted, decode
from support.streams import DATA, RECORDINGS

LIMITS = Timeouts(session=10_000, startup=10, silence=300, result_grace=5, stop_grace=10)
TOOL = LIMITS.silence + LIMITS.tool_margin


class World:
    """A clock that the test moves, and a transcript that it lets grow."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.transcript = 0  # bytes

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def clocks(world: World) -> Clocks:
    return Clocks(limits=LIMITS, monotonic=world.monotonic)


def opened(tool_use_id: str, name: str = "Bash", *, subagent: bool = False, **given: object) -> ToolStarted:
    return ToolStarted(tool_use_id=tool_use_id, name=name, input=given, from_subagent=subagent)


def closed(tool_use_id: str, *, subagent: bool = False) -> ToolEnded:
    return ToolEnded(tool_use_id=tool_use_id, is_error=False, text="", from_subagent=subagent)


def test_before_the_first_frame_the_start_up_time_runs(clocks: Clocks) -> None:
    assert clocks.next_due() == (1010, StopCause.STARTUP_TIMEOUT)


def test_each_frame_moves_the_silence(clocks: Clocks, world: World) -> None:
    clocks.frame()
    world.at = 1020
    clocks.frame()
    assert clocks.next_due() == (1320, StopCause.STALLED)


def test_after_the_result_the_grace_runs_until_the_session_goes_on(clocks: Clocks) -> None:
    clocks.frame()
    clocks.result()
    assert clocks.next_due() == (1005, StopCause.RESULT_GRACE)
    clocks.note(TurnStarted())
    assert clocks.next_due() == (1300, StopCause.STALLED)


def test_frames_do_not_move_the_wall_clock(clocks: Clocks, world: World) -> None:
    world.at = 10_999
    clocks.frame()
    assert clocks.next_due() == (11_000, StopCause.TIMEOUT)


# --- the CLI's own transcript ---------------------------------------------------------------------------


def test_a_transcript_that_grows_is_a_sign_of_life_though_no_frame_comes(clocks: Clocks, world: World) -> None:
    clocks.frame()
    clocks.look(world.transcript)
    world.at, world.transcript = 1200, 4096
    clocks.look(world.transcript)
    assert clocks.next_due() == (1500, StopCause.STALLED)


def test_a_transcript_that_only_lies_there_is_none(clocks: Clocks, world: World) -> None:
    world.transcript = 4096
    clocks.frame()
    for world.at in (1100, 1200, 1299):
        clocks.look(world.transcript)
    assert clocks.next_due() == (1300, StopCause.STALLED)


# --- open tool calls ------------------------------------------------------------------------------------


def test_an_open_call_has_a_deadline_of_its_own_and_the_silence_stands_still(clocks: Clocks, world: World) -> None:
    clocks.frame()
    clocks.note(opened("a", "WebFetch"))
    world.at = 1200
    clocks.frame()  # tool_progress: the CLI lives, which says nothing about the tool
    assert clocks.next_due() == (1000 + TOOL, StopCause.TOOL_STALLED)
    clocks.note(closed("a"))
    assert clocks.next_due() == (1500, StopCause.STALLED)


@pytest.mark.parametrize(
    ("given", "allotted"),
    [
        ({"timeout": 600_000}, 600),
        ({"timeout": 600_000.0}, 600),
        ({"timeout": 1_000}, 300),  # never less than silence is allowed to last
        ({}, 300),
        ({"timeout": "long"}, 300),
        ({"timeout": True}, 300),
        ({"timeout": -5}, 300),
        ({"timeout": 1e15}, 10_000),  # the session itself lasts no longer
    ],
)
def test_a_command_that_asked_for_time_has_it(
    clocks: Clocks, world: World, given: dict[str, object], allotted: float
) -> None:
    clocks.frame()
    clocks.note(ToolStarted(tool_use_id="a", name="Bash", input=given))
    assert clocks.next_due() == min(
        (world.at + allotted + LIMITS.tool_margin, StopCause.TOOL_STALLED), (11_000, StopCause.TIMEOUT)
    )


def test_calls_of_one_message_may_run_one_after_the_other(clocks: Clocks, world: World) -> None:
    clocks.frame()
    for name in "abc":
        clocks.note(opened(name))
    for end, name in ((1290, "a"), (1580, "b")):
        world.at = end
        clocks.note(closed(name))
    assert clocks.next_due() == (1580 + TOOL, StopCause.TOOL_STALLED)


def test_a_call_that_waits_for_a_subagent_is_as_alive_as_that(clocks: Clocks, world: World) -> None:
    clocks.frame()
    clocks.note(opened("task", "Task"))
    world.at = 1300
    clocks.note(opened("a", subagent=True, timeout=600_000))
    assert clocks.next_due() == (1900 + LIMITS.tool_margin, StopCause.TOOL_STALLED)
    world.at = 1890
    clocks.note(closed("a", subagent=True))
    assert clocks.next_due() == (1890 + TOOL, StopCause.TOOL_STALLED)


def test_a_lost_result_is_no_hang_while_the_model_goes_on(clocks: Clocks, world: World) -> None:
    clocks.frame()
    clocks.note(opened("a"))
    world.at = 1290
    clocks.note(AssistantText(text="I go on."))
    assert clocks.next_due() == (1290 + TOOL, StopCause.TOOL_STALLED)


def test_a_call_without_an_id_can_never_be_seen_to_end_so_it_is_not_waited_for(clocks: Clocks) -> None:
    clocks.frame()
    clocks.note(opened(""))
    assert clocks.next_due() == (1300, StopCause.STALLED)


# --- people ---------------------------------------------------------------------------------------------


def test_while_people_are_asked_every_clock_stands_still(clocks: Clocks, world: World) -> None:
    clocks.frame()
    clocks.note(opened("a", "WebFetch"))
    world.at = 1100
    clocks.pause()
    clocks.pause()
    world.at = 50_000
    clocks.resume()
    assert clocks.next_due() is None  # the other call still waits for its answer
    world.at = 100_100
    clocks.resume()

    assert clocks.next_due() == (99_000 + 1000 + TOOL, StopCause.TOOL_STALLED)
    clocks.note(closed("a"))
    world.at = 100_200
    clocks.frame()
    assert clocks.next_due() == (100_500, StopCause.STALLED)
    world.at = 109_999
    clocks.frame()
    assert clocks.next_due() == (110_000, StopCause.TIMEOUT)


def test_what_happens_while_people_are_asked_counts_from_the_answer_on(clocks: Clocks, world: World) -> None:
    clocks.frame()
    clocks.pause()
    world.at = 5000
    clocks.frame()
    clocks.note(opened("a", "WebFetch"))
    clocks.resume()
    assert clocks.next_due() == (5000 + TOOL, StopCause.TOOL_STALLED)


# --- slow and healthy -----------------------------------------------------------------------------------


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: str(path.relative_to(DATA / "recordings")))
def test_the_slowest_healthy_session_is_never_stopped(recording: Path, clocks: Clocks, world: World) -> None:
    """Replay a real stream so slowly that every line comes in the last moment before a clock would run out."""
    world.at = 1000
    clocks.limits = Timeouts(session=1e9, startup=10, silence=300, result_grace=300, stop_grace=10)
    reader = TranscriptBuilder()
    for line in recording.read_bytes().splitlines():
        due = clocks.next_due()
        assert due is not None
        world.at = max(world.at, due[0] - 0.001)
        if due[1] is StopCause.TOOL_STALLED:
            world.at = min(world.at, due[0] - LIMITS.tool_margin)  # that is for the CLI, not for the tool
        clocks.frame()
        for fact in reader.feed(decode(line)):
            clocks.note(fact)
        later = clocks.next_due()
        assert later is not None
        assert later[0] > world.at


def test_the_first_cause_to_stop_is_the_one_that_counts() -> None:
    control = StopControl()
    control.stop(StopCause.STALLED)
    control.stop(StopCause.CANCELLED)
    assert control.cause is StopCause.STALLED
