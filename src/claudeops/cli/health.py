"""``claudeops health``: whether the daemon is alive, without its database.

A module of its own that imports little: a container's HEALTHCHECK calls it every 30 seconds, on the machine that is
watched over.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import msgspec

from claudeops.cli import reply
from claudeops.cli.reply import CommandResult, Exit, print_result
from claudeops.engine.daemon.liveness import STATUS_FILE, Liveness, StatusFields, look
from claudeops.engine.owners import alive
from claudeops.errors import ConfigurationError
from claudeops.settings.where import state_dir

_HEALTH: Final = "health"


def print_health(*, as_json: bool) -> int:
    """Print whether the daemon of this state directory is alive; return the exit status: 0 alive, 1 not."""
    file: Path | None = None
    try:
        file = state_dir(os.environ, cwd=Path.cwd()) / STATUS_FILE
        found = look(file, alive=alive, monotonic=time.monotonic())
    except ConfigurationError as error:
        found = Liveness(lives=False, says=str(error))
    sysexit = Exit.OK if found.lives else Exit.UNRESOLVED
    done = CommandResult(text=found.says, body=_body(found, file), exit_code=sysexit, on_stdout=True)
    return print_result(_HEALTH, done, as_json=as_json)


def _body(found: Liveness, file: Path | None) -> dict[str, object]:
    body = {"lives": found.lives, "message": found.says, **_daemon_state(found.status)}
    if found.lives:
        return body
    return body | reply.error_body(
        kind=reply.ErrorKind.RUNTIME,
        operation="health",
        target=str(file or "CLAUDEOPS_STATE_DIR"),
        retryable=True,
        message=found.says,
        hint="Start it with `claudeops run`; `claudeops doctor` says what keeps it from starting.",
    )


def _daemon_state(status: StatusFields | None) -> dict[str, object]:
    if status is None:
        return {"ready": False, "pid": None, "running": [], "holds": None, "untold_since": None}
    running = [{"session_id": session.session_id, "tier": session.tier} for session in status.running]
    holds = None if status.holds is None else [msgspec.to_builtins(hold) for hold in status.holds]
    return {
        "ready": status.ready,
        "pid": status.pid,
        "running": running,
        "holds": holds,
        "untold_since": status.untold_since,
    }
