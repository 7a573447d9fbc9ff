"""What is done while a node is opened: the database brought up to date, dead daemons tidied up after, a pulse."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final

from claudeops.engine.pulse import Pulse
from claudeops.engine.recovery import highest_log_number
from claudeops.engine.system import alive
from claudeops.errors import ConfigurationError
from claudeops.logs import LogEvent
from claudeops.resources import packaged
from claudeops.store.migrate import migrate
from claudeops.store.worker import Writer
from claudeops.tasks import Threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from claudeops.app import Node
    from claudeops.domain.model import Owner
    from claudeops.engine.recovery import Recovery
    from claudeops.engine.shutdown import Shutdown
    from claudeops.engine.supervisor import Supervisor
    from claudeops.logs import Logger
    from claudeops.settings import Settings

    T = TypeVar("T")

_ANSWER_SECONDS: Final = 30.0
_FILES: Final = Threads(most=4)


async def take_over(recovery: Recovery, owner: Owner, settings: Settings, shutdown: Shutdown) -> None:
    """End what dead daemons left running, and keep clear of the logs that are there.

    What was begun is finished, for as long as a stop may take: asked for one, it leaves no row that is half ours.
    """
    kit = recovery.kit
    async with shutdown.stoppable(
        patience_seconds=settings.drain_timeout_seconds, grace_seconds=settings.stop_grace_seconds
    ):
        results = settings.results_dir
        await kit.store.skip_ids(await answered(lambda: highest_log_number(results), f"listing {results}"))
        orphans = await kit.store.reconcile(owner, now=kit.clock.now(), alive=alive)
        if orphans:
            kit.log.warning(LogEvent.SESSIONS_RECONCILED, sessions=[session.id for session in orphans])
        await recovery.take_up(orphans)


async def answered(work: Callable[[], T], what: str, *, seconds: float = _ANSWER_SECONDS) -> T:
    """Return what work with files gives; raises `ConfigurationError` when their disk does not answer."""
    try:
        return await _FILES.run(work, seconds=seconds, what=what)
    except TimeoutError as error:
        raise ConfigurationError(
            f"The disk of the daemon's own directories does not answer ({error.strerror}): "
            "mend it, or name others in CLAUDEOPS_STATE_DIR and CLAUDEOPS_RESULTS_DIR."
        ) from error


async def migrate_database(settings: Settings, log: Logger, shutdown: Shutdown) -> None:
    """Bring the tables to this version; raises `NewerDatabaseError`, `DatabaseUnavailableError` or `StoppedError`.

    A migration is finished when a stop is requested, unless it takes longer than a drain may. It is one transaction:
    what is cut off is rolled back by the end of the process. So the thread is one for which the process does not wait.
    """
    work = partial(migrate, settings.database_url, migrations_dir=packaged("migrations"), backup_dir=settings.state_dir)
    writer = Writer(wait_seconds=math.inf)
    try:
        async with shutdown.stoppable(patience_seconds=settings.drain_timeout_seconds):
            migrated = await writer.run(work)
    finally:
        writer.leave()
    if migrated.backup_path is not None:
        log.info(LogEvent.DATABASE_BACKED_UP, path=str(migrated.backup_path))
    if migrated.from_revision != migrated.to_revision:
        log.info(LogEvent.DATABASE_MIGRATED, before=migrated.from_revision, now=migrated.to_revision)


def pulse_of(node: Node, supervisor: Supervisor, shutdown: Shutdown) -> Pulse:
    """Return a daemon's sign of life; it asks for a quick stop when the database is another daemon's."""

    def stop_quickly() -> None:
        shutdown.requested.set()
        shutdown.hurried.set()

    return Pulse(
        store=node.store,
        owner=node.owner,
        clock=node.clock,
        running=supervisor.running,
        check_lock=node.check_lock,
        lost=stop_quickly,
        log=node.log,
    )
