"""A slow session is not a hung one: recorded streams, each line of them in the last moment before a limit.

The daemon's clock is set forward between the lines, so the minutes cost nothing; everything else is real.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from claudeops.domain.sessions import Ending, Session
from claudeops.engine.control import StopControl
from claudeops.engine.session.runner import SessionRunner
from claudeops.structs import replace
from support.estate import Estate
from support.loop_time import LeapingClock
from support.streams import DATA
from support.waiting import until

pytestmark = pytest.mark.anyio

SILENCE: Final = 300.0
SHORT_OF_IT: Final = SILENCE - 30  # the test itself takes some seconds of it
RECORDINGS: Final = ("success", "max-turns", "tool-denied-dontask", "structured-retries-exhausted")


def frames_of(recording: Path) -> Iterator[dict[str, Any]]:
    """Give a recording's frames without its init line, which is about tools that nobody asked for here."""
    for line in recording.read_text(encoding="utf-8").splitlines():
        frame = json.loads(line)
        if frame.get("subtype") != "init":
            yield frame


def steps_of(frame: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give what has the stand-in say a frame; before a tool call it asks the gate, like the CLI that was recorded."""
    content = frame.get("message", {}).get("content", ())
    uses = [block for block in content if block["type"] == "tool_use"] if frame["type"] == "assistant" else []
    for use in uses:
        yield {"tool": {"id": use["id"], "name": use["name"], "input": use["input"], "left_open": True}}
    if not uses:
        yield {"frame": frame}


def paced(recording: Path, signals: Path) -> list[dict[str, Any]]:
    """Return steps between which the stand-in tells where it is, and waits until it may go on."""
    steps: list[dict[str, Any]] = []
    for number, frame in enumerate(frames_of(recording)):
        steps += [
            *steps_of(frame),
            {"touch": str(signals / f"said-{number}")},
            {"await": str(signals / f"go-{number}")},
        ]
    return steps


def silences(recording: Path) -> list[bool]:
    """Tell of each frame whether silence follows: no call is open then, and no result is there."""
    found: list[bool] = []
    calls: set[str] = set()
    for frame in frames_of(recording):
        for block in frame.get("message", {}).get("content", ()):
            if block["type"] == "tool_use":
                calls.add(block["id"])
            elif block["type"] == "tool_result":
                calls.discard(block["tool_use_id"])
        found.append(not calls and frame["type"] != "result")
    return found


async def run_slowly(estate: Estate, recording: Path, signals: Path) -> Ending:
    """Run a session of the stand-in; nearly as long as silence may last passes after each line."""
    clock = LeapingClock()
    limits = replace(estate.context.timeouts, session=1e6, startup=SILENCE, silence=SILENCE, result_grace=SILENCE)
    estate.with_context(clock=clock, timeouts=limits, repair_turn=False)
    estate.script(*paced(recording, signals))
    queued = await estate.queue()
    ended: list[Ending] = []

    async def run(session: Session) -> None:
        ended.append(await SessionRunner(context=estate.context).run(session, StopControl()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, await estate.claim(queued.id))
        for number, silence in enumerate(silences(recording)):
            await until((signals / f"said-{number}").exists)
            await clock.leap(SHORT_OF_IT, noticed=silence)
            (signals / f"go-{number}").touch()
    return ended[0]


@pytest.mark.parametrize("name", RECORDINGS)
async def test_a_recorded_session_is_not_stopped_however_slow_it_is(estate: Estate, tmp_path: Path, name: str) -> None:
    signals = tmp_path / "signals"
    signals.mkdir()

    ending = await run_slowly(estate, DATA / "recordings" / "2.1.197" / f"{name}.ndjson", signals)

    assert "stop_requested" not in estate.logged.getvalue()
    assert ending.duration_ms > SHORT_OF_IT * 1000
    assert [frame["type"] for frame in estate.frames()][-1] == "result"
