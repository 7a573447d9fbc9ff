"""``bootstrap-graph``: the stages in which the daemon starts, and the state that each last had. Needs no database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from claudeops.app.stages import FILE, STAGES, StageEntry, StageState, StartUp, read_stages
from claudeops.cli.reply import CommandResult, print_failure, print_result
from claudeops.clock import Clock
from claudeops.engine.daemon.liveness import STATUS_FILE, look
from claudeops.engine.owners import alive
from claudeops.errors import ClaudeopsError
from claudeops.settings import state_dir
from claudeops.text.escapes import visible

_NAME: Final = "bootstrap-graph"


def print_stages(*, as_json: bool) -> int:
    """Print the stages of the last start; return the exit status."""
    try:
        directory = state_dir(os.environ, cwd=Path.cwd())
    except ClaudeopsError as error:
        return print_failure(_NAME, error, as_json=as_json, target="CLAUDEOPS_STATE_DIR")
    found = read_stages(directory / FILE)
    living = look(directory / STATUS_FILE, alive=alive, monotonic=Clock().monotonic())
    note = _note(found, living.says)
    stages = _stages(found)
    body: dict[str, object] = {
        "stages": [_body(stage) for stage in stages],
        "note": note,
        "stages_count": len(stages),
        "lives": living.lives,
        "path": str(directory / FILE),
    }
    lines = [line for stage in stages for line in _lines(stage)]
    return print_result(_NAME, CommandResult(text="\n".join((*lines, note)), body=body), as_json=as_json)


def _lines(stage: StageEntry) -> Iterator[str]:
    at = "" if stage.at is None else f" ({stage.at:%Y-%m-%d %H:%M:%S} UTC)"
    yield f"{stage.state:<8} {stage.name:<12} {STAGES.get(stage.name, '')}{at}"
    if stage.error is not None:
        yield f"{'':<8} {'':<12} {visible(stage.error)}"


def _stages(found: StartUp | None) -> tuple[StageEntry, ...]:
    if found is None:
        return tuple(StageEntry(name=name, state=StageState.WAITING) for name in STAGES)
    return found.stages


def _note(found: StartUp | None, says: str) -> str:
    if found is None:
        return f"No start has been recorded here. {says}"
    failed = next((stage for stage in found.stages if stage.state is StageState.FAILED), None)
    if failed is not None:
        return f"The last start failed at the stage {failed.name}: `claudeops doctor` checks what it needs. {says}"
    return says


def _body(stage: StageEntry) -> dict[str, object]:
    return {
        "name": stage.name,
        "state": stage.state.value,
        "description": STAGES.get(stage.name, ""),
        "at": stage.at,
        "error": None if stage.error is None else visible(stage.error),
    }
