"""``claudeops health``: whether the daemon lives, told without its database."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from claudeops.cli import envelope
from claudeops.cli.answers import print_document
from claudeops.cli.exit_codes import Exit
from claudeops.engine.liveness import Liveness, look
from claudeops.engine.system import SystemClock, alive
from claudeops.errors import ConfigurationError
from claudeops.settings import state_dir

if TYPE_CHECKING:
    from claudeops.engine.liveness import Status

_NAME: Final = "health"
_FILE: Final = "daemon.json"


def tell_health(*, as_json: bool) -> int:
    """Print how the daemon of this state directory is, and return the exit status: 0 it lives, 1 it does not."""
    file: Path | None = None
    try:
        file = state_dir(os.environ, cwd=Path.cwd()) / _FILE
        found = look(file, alive=alive, monotonic=SystemClock().monotonic())
    except ConfigurationError as error:
        found = Liveness(lives=False, says=str(error))
    sysexit = Exit.OK if found.lives else Exit.UNRESOLVED
    if as_json:
        return print_document(_NAME, _body(found, file), sysexit)
    click.echo(found.says)
    return sysexit


def _body(found: Liveness, file: Path | None) -> dict[str, object]:
    body = {"lives": found.lives, "message": found.says, **_daemon(found.status)}
    if found.lives:
        return body
    return body | envelope.error_body(
        kind=envelope.ErrorKind.RUNTIME,
        operation="health",
        target=str(file or "CLAUDEOPS_STATE_DIR"),
        retryable=True,
        message=found.says,
    )


def _daemon(status: Status | None) -> dict[str, object]:
    if status is None:
        return {"ready": False, "pid": None, "running": [], "holds": None}
    running = [{"session_id": session.session_id, "tier": session.tier} for session in status.running]
    holds = None if status.holds is None else [msgspec.to_builtins(hold) for hold in status.holds]
    return {"ready": status.ready, "pid": status.pid, "running": running, "holds": holds}
