"""``claudeops run``, the daemon."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import anyio
import click

from claudeops.app.start.checks import make_directories
from claudeops.app.start.trial import trying
from claudeops.app.start.trial_process import TrialProcess
from claudeops.cli.early_signals import catch
from claudeops.cli.reply import Exit, exit_for
from claudeops.cli.start import begin_versions, listening, log_clis, read_settings
from claudeops.engine.live.hub import Hub
from claudeops.engine.system import Shutdown, keep_one_heap
from claudeops.errors import ClaudeopsError, StoppedError
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings


def run_until_stopped(trials: TrialProcess | None = None, *, live: bool = False) -> Exit:
    """Run the daemon until it is asked to stop, which may happen before it is ready; return the exit status.

    ``trials`` tries what sessions can be run in; ``None`` has such a process started. ``live`` prints on stdout
    what the sessions do, and of the log only warnings and worse.
    """
    catch()  # no-op if done already; a caller may have bypassed `main`
    try:
        settings, log = read_settings(sys.stdout, quiet=live, line_start=_line_start() if live else "")
    except ClaudeopsError as error:
        return _refused(error)
    log.info(LogEvent.DAEMON_STARTING)
    try:
        status = anyio.run(partial(_daemon, settings, log, trials, live=live))
    except StoppedError:
        status = Exit.OK  # as asked
    except ClaudeopsError as error:
        return _refused(error)
    except ExceptionGroup:
        log.critical(LogEvent.DAEMON_CRASHED, exc_info=True)
        return Exit.SOFTWARE
    log.info(LogEvent.DAEMON_STOPPED)
    return status


def _refused(error: ClaudeopsError) -> Exit:
    click.echo(f"claudeops: {error}", err=True)
    return exit_for(error)


async def _daemon(settings: Settings, log: Logger, trials: TrialProcess | None, *, live: bool) -> Exit:
    shutdown, hub = Shutdown(), Hub()
    keep_one_heap()
    # Entered before the node is opened: what it recovers of a dead daemon is printed too.
    with listening(shutdown, log), _printer(hub) if live else nullcontext():
        shutdown.check()
        await make_directories(settings)
        async with trying(settings, trials) as trial:
            versions = begin_versions(settings)
            # Most of what a daemon consists of: it is loaded while other processes are waited for.
            from claudeops.app.daemon import run_daemon  # noqa: PLC0415 - see above
            from claudeops.app.node import open_node  # noqa: PLC0415 - see above
            from claudeops.engine.cell import git, network  # noqa: F401, PLC0415 - the answers have values of theirs
            from claudeops.engine.process.tree import become_subreaper  # noqa: PLC0415 - see above

            become_subreaper()
            async with shutdown.stoppable():
                log_clis(settings, log, await asyncio.wrap_future(versions))
            async with open_node(settings, log=log, hub=hub, shutdown=shutdown, trial=trial) as node:
                if live:
                    click.echo(_places(settings))
                is_done = await run_daemon(node, shutdown)
    return Exit.OK if is_done else Exit.UNAVAILABLE


def _line_start() -> str:
    from claudeops.cli.text.terminal import beside_progress  # noqa: PLC0415 - of those who watch alone

    return beside_progress(sys.stdout)


def _printer(hub: Hub) -> AbstractContextManager[None]:
    from claudeops.cli.text.terminal import live_printer  # noqa: PLC0415 - same

    return live_printer(hub, sys.stdout, times=True)


def _places(settings: Settings) -> str:
    places = settings.places
    return (
        f"Watching what {places.repos_dir} describes; Ctrl-C stops. Database and state are in {places.state_dir}, "
        f"logs of sessions in {places.results_dir}.\n"
    )
