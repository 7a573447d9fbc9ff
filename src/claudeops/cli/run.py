"""``claudeops run``, the daemon, and ``claudeops health``, which says whether it is alive without its database."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import click
import msgspec

from claudeops.app.daemon import run_daemon
from claudeops.app.node import open_node
from claudeops.cli import output
from claudeops.cli.early_signals import catch
from claudeops.cli.output import Exit, exit_for, print_document
from claudeops.cli.start import listening, start
from claudeops.cli.terminal import beside_progress, live_printer
from claudeops.engine.daemon.liveness import STATUS_FILE, Liveness, Status, look
from claudeops.engine.live.hub import Hub
from claudeops.engine.owners import alive
from claudeops.engine.process.tree import become_subreaper
from claudeops.engine.system import Shutdown, SystemClock
from claudeops.errors import ClaudeopsError, ConfigurationError, StoppedError
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings, state_dir

_HEALTH: Final = "health"


def run_until_stopped(*, live: bool = False) -> Exit:
    """Run the daemon until it is asked to stop, which may happen before it is ready; return the exit status.

    ``live`` prints on stdout what the sessions do, and of the log only warnings and worse.
    """
    catch()  # no-op if done already; a caller may have bypassed `main`
    try:
        settings, log = start(sys.stdout, quiet=live, line_start=beside_progress(sys.stdout) if live else "")
    except ClaudeopsError as error:
        return _refused(error)
    log.info(LogEvent.DAEMON_STARTING)
    try:
        anyio.run(partial(_daemon, settings, log, live=live))
    except StoppedError:
        pass  # as asked
    except ClaudeopsError as error:
        return _refused(error)
    except ExceptionGroup:
        log.critical(LogEvent.DAEMON_CRASHED, exc_info=True)
        return Exit.SOFTWARE
    log.info(LogEvent.DAEMON_STOPPED)
    return Exit.OK


def print_health(*, as_json: bool) -> int:
    """Print whether the daemon of this state directory is alive; return the exit status: 0 alive, 1 not."""
    file: Path | None = None
    try:
        file = state_dir(os.environ, cwd=Path.cwd()) / STATUS_FILE
        found = look(file, alive=alive, monotonic=SystemClock().monotonic())
    except ConfigurationError as error:
        found = Liveness(lives=False, says=str(error))
    sysexit = Exit.OK if found.lives else Exit.UNRESOLVED
    if as_json:
        return print_document(_HEALTH, _body(found, file), sysexit)
    click.echo(found.says)
    return sysexit


def _refused(error: ClaudeopsError) -> Exit:
    click.echo(f"claudeops: {error}", err=True)
    return exit_for(error)


async def _daemon(settings: Settings, log: Logger, *, live: bool) -> None:
    shutdown, hub = Shutdown(), Hub()
    become_subreaper()
    # Entered before the node is opened: what it recovers of a dead daemon is printed too.
    with listening(shutdown, log), live_printer(hub, sys.stdout, times=True) if live else nullcontext():
        async with open_node(settings, log=log, hub=hub, shutdown=shutdown) as node:
            if live:
                click.echo(_places(settings))
            await run_daemon(node, shutdown)


def _places(settings: Settings) -> str:
    return (
        f"Watching what {settings.repos_dir} describes; Ctrl-C stops. Database and state are in {settings.state_dir}, "
        f"logs of sessions in {settings.results_dir}.\n"
    )


def _body(found: Liveness, file: Path | None) -> dict[str, object]:
    body = {"lives": found.lives, "message": found.says, **_daemon_state(found.status)}
    if found.lives:
        return body
    return body | output.error_body(
        kind=output.ErrorKind.RUNTIME,
        operation="health",
        target=str(file or "CLAUDEOPS_STATE_DIR"),
        retryable=True,
        message=found.says,
        hint="Start it with `claudeops run`; `claudeops doctor` says what keeps it from starting.",
    )


def _daemon_state(status: Status | None) -> dict[str, object]:
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
