"""How soon a hang is noticed: each clock of a session, with a limit that is short enough to wait for."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import anyio

from benchmarks.table import Setup, Table, spread, verdict
from claudeops.engine.control import Timeouts
from claudeops.structs import replace
from support.estate import Estate, deliver, open_estate, report

LATE_MILLISECONDS: Final = 1000.0
"""After a limit, at most."""

_LIMIT: Final = 0.5  # seconds
_MARGIN: Final = 0.2  # seconds, of a tool
_LONG: Final = Timeouts(session=60, startup=60, silence=60, result_grace=60, stop_grace=2)
_SAID: Final = {"frame": {"type": "assistant", "message": {"role": "assistant", "content": []}}}
_OPEN: Final = {"tool": {"id": "toolu_1", "name": "WebFetch", "input": {}, "left_open": True}}
_TALK: Final = {"repeat": _SAID, "every": 0.05}
_TOUCHED: Final = "touched"  # the file that the stand-in leaves when its last sign of life was given


@dataclass(frozen=True)
class _Hang:
    """A way to hang, and the clock that notices."""

    name: str
    limits: Timeouts
    steps: Sequence[Mapping[str, object]]
    since: str  # the event from which the limit counts, or `_TOUCHED`
    seconds: float = _LIMIT


_HANGS: Final = (
    _Hang("no first frame", replace(_LONG, startup=_LIMIT), [], "session_spawned"),
    _Hang("silence", replace(_LONG, silence=_LIMIT), [_SAID, {"touch": _TOUCHED}], _TOUCHED),
    _Hang(
        "an open tool call",
        replace(_LONG, silence=_LIMIT, tool_margin=_MARGIN),
        [_OPEN, {"touch": _TOUCHED}],
        _TOUCHED,
        _LIMIT + _MARGIN,
    ),
    _Hang("the wall clock", replace(_LONG, session=_LIMIT), [_TALK], "session_spawned"),
    _Hang("alive after its result", replace(_LONG, result_grace=_LIMIT), [deliver(report())], "result_received"),
)


def noticed(setup: Setup) -> Table:
    """Measure how long after its limit each hang is noticed."""
    late = {hang.name: [anyio.run(_late, setup, hang) for _ in range(setup.repeats)] for hang in _HANGS}
    return Table(
        title="Hangs: a limit of a session runs out → the session is asked to stop",
        columns=("", "hangs", "median ms", "p99 ms", "longest ms", "target"),
        rows=[
            (
                name,
                str(len(values)),
                *spread(values),
                f"{LATE_MILLISECONDS:g} ({verdict(met=max(values) <= LATE_MILLISECONDS)})",
            )
            for name, values in late.items()
        ],
        notes=("Milliseconds after the limit. That a slow session is not stopped is a test, not a measurement.",),
    )


async def _late(setup: Setup, hang: _Hang) -> float:
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        async with open_estate(Path(name)) as estate:
            touched = estate.root / _TOUCHED
            estate.with_context(timeouts=hang.limits)
            steps = [{**step, "touch": str(touched)} if "touch" in step else step for step in hang.steps]
            await estate.run(*steps, {"hang": True})
            since = touched.stat().st_mtime if hang.since == _TOUCHED else _moment(estate, hang.since)
            return (_moment(estate, "stop_requested") - since - hang.seconds) * 1000


def _moment(estate: Estate, event: str) -> float:
    """Return when something was logged first, in seconds since the epoch."""
    lines = map(json.loads, estate.logged.getvalue().splitlines())
    return next(datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines if line["event"] == event)
