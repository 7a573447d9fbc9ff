"""``claudeops run``: the daemon."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import anyio
import click

from claudeops import app
from claudeops.cli.early_signals import hear
from claudeops.cli.exit_codes import Exit, exit_for
from claudeops.cli.signals import listening
from claudeops.cli.start import start
from claudeops.cli.telling import beside_progress, telling
from claudeops.engine.hub import Hub
from claudeops.engine.reaper import become_subreaper
from claudeops.engine.shutdown import Shutdown
from claudeops.errors import ClaudeopsError, StoppedError
from claudeops.logs import LogEvent

if TYPE_CHECKING:
    from claudeops.logs import Logger
    from claudeops.settings import Settings


def run_until_stopped(*, live: bool = False) -> Exit:
    """Run the daemon until it is asked to stop, also before it runs; return the exit status.

    ``live``: stdout tells what the sessions do, and of the log only what is not as it should be.
    """
    hear()  # unless it is so already: who calls this may not come from the command line
    try:
        settings, log = start(sys.stdout, quiet=live, line_start=beside_progress(sys.stdout) if live else "")
    except ClaudeopsError as error:
        return _refused(error)
    log.info(LogEvent.DAEMON_STARTING)
    try:
        anyio.run(partial(_daemon, settings, log, live=live))
    except StoppedError:
        pass  # that is what was asked for
    except ClaudeopsError as error:
        return _refused(error)
    except ExceptionGroup:
        log.critical(LogEvent.DAEMON_CRASHED, exc_info=True)
        return Exit.SOFTWARE
    log.info(LogEvent.DAEMON_STOPPED)
    return Exit.OK


def _refused(error: ClaudeopsError) -> Exit:
    click.echo(f"claudeops: {error}", err=True)
    return exit_for(error)


async def _daemon(settings: Settings, log: Logger, *, live: bool) -> None:
    shutdown, hub = Shutdown(), Hub()
    become_subreaper()
    # Told from before the node is opened: what it takes up of a dead daemon is news too.
    with listening(shutdown, log), telling(hub, sys.stdout, times=True) if live else nullcontext():
        async with app.open_node(settings, log=log, hub=hub, shutdown=shutdown) as node:
            if live:
                click.echo(_places(settings))
            await app.run_daemon(node, shutdown)


def _places(settings: Settings) -> str:
    return (
        f"Watching what {settings.repos_dir} describes; Ctrl-C stops. Database and state are in {settings.state_dir}, "
        f"logs of sessions in {settings.results_dir}.\n"
    )
