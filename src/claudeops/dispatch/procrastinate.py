"""The dispatcher of several nodes: sessions that are queued anywhere wake this one, as jobs of Procrastinate.

The row is the truth, the job a wake-up: it names no session, has no lock, and is never run again. It is written in the
transaction that queues its session (`announcer`), and its notification wakes every node of its site at the commit, so
that a node that is full keeps nothing from one that is free. One of them takes the job and deletes it; what it finds to
claim, if anything, is the queue's affair. Whoever was not woken looks all the same.

Imported only where CLAUDEOPS_DISPATCHER says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, LiteralString

import anyio
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector
from procrastinate.connector import Notify
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Status
from procrastinate.schema import SchemaManager

from claudeops.dispatch.local import IsUnannounced, LocalDispatcher
from claudeops.domain.sessions import Trigger
from claudeops.errors import DatabaseFullError, DatabaseUnavailableError, StoreError
from claudeops.logs import Logger
from claudeops.store.connection.engines import POSTGRESQL_FULL
from claudeops.store.connection.job_tables import JobTables
from claudeops.store.database import Announce, QueuedSession
from claudeops.tasks import DatabaseTrouble

TASK: Final = "claudeops.session_queued"
NAME: Final = "claudeops-jobs"
"""By which the server lists the two connections of a node that takes jobs."""

COMMON_QUEUE: Final = "claudeops"
"""The queue of sessions that any node reaches; that of a site has its name behind a colon."""

PRIORITIES: Final[Mapping[Trigger, int]] = {
    Trigger.ALERT: 5,
    Trigger.MANUAL: 4,
    Trigger.API: 4,
    Trigger.ESCALATION: 3,
    Trigger.RETRY: 3,
    Trigger.RECOVERY: 3,
    Trigger.FOLLOW_UP: 2,
    Trigger.SCHEDULED: 1,
}

FETCH_SECONDS: Final = 5.0
"""Between two looks for a job of which no notification came: it becomes due later, or the connection was lost."""

SWEEP_SECONDS: Final = 10.0
"""Between two looks for jobs that were lost, and for jobs whose node is gone."""

STALLED_SECONDS: Final = 30.0
"""After which a worker without a sign of life, which it gives every 10 s, is taken for gone."""

KEPT_HOURS: Final = 24
"""For how long a job that failed is kept, for whoever wants to look at it; one that succeeded is deleted at once."""

_SWEEPS_OF_AN_HOUR: Final = 360
_ANSWER_SECONDS: Final = 5.0  # how long to wait for a connection of the pool
_STOP_SECONDS: Final = 3.0  # for the worker to end in order, and then for the pool
_LONGEST_QUEUE: Final = 40  # bytes: the name of the channel has 23 more, and PostgreSQL allows 63
_LIBRARIES: Final = ("procrastinate", "psycopg.pool")
_RAISED_BY_FUNCTION: Final = "P0001"  # SQLSTATE of what the library's functions raise: the job is not there any more


def queue_of(site: str | None) -> str:
    """Return the name of the queue of a site's sessions."""
    if site is None:
        return COMMON_QUEUE
    name = f"{COMMON_QUEUE}:{site}"
    if len(name.encode()) <= _LONGEST_QUEUE:
        return name
    digest = hashlib.sha256(site.encode()).hexdigest()
    return f"{COMMON_QUEUE}:{digest}"[:_LONGEST_QUEUE]


def announcer() -> Announce:
    """Return what announces sessions on the connection of the transaction that queues them."""
    app = App(connector=SyncPsycopgConnector())

    def announce(connection: Any, queued: Sequence[QueuedSession]) -> None:
        for session in queued:
            app.configure_task(
                TASK,
                queue=queue_of(session.site),
                priority=PRIORITIES[session.trigger],
                schedule_at=session.not_before,
                connection=connection,
            ).defer()

    return announce


def newest_tables() -> str:
    """Return the version of the tables that the library wants."""
    return _scripts()[-1].stem


def job_tables() -> JobTables:
    """Return the tables as the library wants them."""
    files = _scripts()
    scripts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    return JobTables(version=files[-1].stem, whole=SchemaManager.get_schema(), scripts=scripts)


def _scripts() -> Sequence[Path]:
    return sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))


class JobDispatcher(LocalDispatcher):
    """A `claudeops.engine.ports.Dispatcher` that announcements of other processes wake as well, while it runs."""

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        site: str,
        log: Logger,
        interval_seconds: float = 1.0,
        fetch_seconds: float = FETCH_SECONDS,
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        """Take the ``options`` with which the driver connects; ``site`` is this node's."""
        super().__init__(interval_seconds=interval_seconds)
        self._fetch_seconds, self._sweep_seconds = fetch_seconds, sweep_seconds
        self._sites = {queue_of(each): each for each in (None, site)}  # that this node reaches, by their queues
        self._trouble = DatabaseTrouble(log, "jobs")
        self._connector = _WakingConnector(self.wake, options)
        self._app = App(connector=self._connector)
        self._app.task(name=TASK, queue=COMMON_QUEUE)(self.announce)

    async def run(self, is_unannounced: IsUnannounced) -> None:
        """Take jobs and look after those that were lost, until cancelled, whatever the database does."""
        for name in _LIBRARIES:  # their failures are logged below: once, and without addresses
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        while True:
            error = await self._take_jobs(is_unannounced)
            await anyio.sleep(self._trouble.failed(error))

    async def _take_jobs(self, is_unannounced: IsUnannounced) -> StoreError:
        """Take jobs until something fails, then end all that was begun; return what has failed."""
        connector = self._connector
        connector.failed, connector.failure = anyio.Event(), None
        begun: list[asyncio.Task[None]] = []
        try:
            await self._app.open_async()
            # Not in a task group: a worker ends in order after the first cancellation, and in disorder after the
            # second, which a task group sends at once. So does a statement, whose connection is then dropped.
            works = (self._work(), self._sweep(is_unannounced))
            begun.extend(asyncio.create_task(work) for work in works)  # noqa: TID251 - ended below, always
            await connector.failed.wait()
        except Exception as error:  # noqa: BLE001 - the pool raises its own; no fault of a library ends the daemon
            connector.fail(error)
        finally:
            with anyio.CancelScope(shield=True):
                for task in reversed(begun):
                    await _end(task)
                with anyio.move_on_after(_STOP_SECONDS), suppress(Exception):
                    await self._app.close_async()
        return _as_store_error(connector.failure)

    async def _work(self) -> None:
        try:
            await self._app.run_worker_async(
                queues=list(self._sites),  # the driver makes an array of a list alone
                install_signal_handlers=False,
                listen_notify=True,
                fetch_job_polling_interval=self._fetch_seconds,
                stalled_worker_timeout=STALLED_SECONDS,
                shutdown_graceful_timeout=_STOP_SECONDS,
                delete_jobs="always",
            )
        except Exception as error:  # noqa: BLE001 - as above
            self._connector.fail(error)
        finally:
            self._connector.failed.set()  # one that returns has ended, too

    async def _sweep(self, is_unannounced: IsUnannounced) -> None:
        manager = self._app.job_manager
        try:
            for sweeps in itertools.count():
                if sweeps % _SWEEPS_OF_AN_HOUR == 0:
                    await manager.delete_old_jobs(
                        KEPT_HOURS, include_failed=True, include_cancelled=True, include_aborted=True
                    )
                for job in await manager.get_stalled_jobs(task_name=TASK, seconds_since_heartbeat=STALLED_SECONDS):
                    await manager.finish_job(job, Status.FAILED, delete_job=False)
                for queue, site in self._sites.items():
                    if await is_unannounced(queue, site):
                        await self._app.configure_task(TASK, queue=queue).defer_async()
                await anyio.sleep(self._sweep_seconds)
                self._trouble.over()  # the worker has lived for so long
        except Exception as error:  # noqa: BLE001 - as above
            self._connector.fail(error)


class _WakingConnector(PsycopgConnector):
    """Connects the worker, wakes at each notification, and notes what fails.

    The library's worker goes on without its signs of life and its notifications when one of them has failed.
    """

    def __init__(self, wake: Callable[[], None], options: Mapping[str, Any]) -> None:
        super().__init__(
            kwargs={"application_name": NAME, **options},
            min_size=1,
            max_size=1,
            timeout=_ANSWER_SECONDS,
            configure=_commit_each_statement,
        )
        self._wake = wake
        self.failed = anyio.Event()
        self.failure: Exception | None = None

    def fail(self, error: Exception) -> None:
        """Have the worker ended; the first reason counts."""
        self.failure = self.failure or error
        self.failed.set()

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        """Run a statement without a result: signs of life, and the ends of jobs."""
        try:
            await super().execute_query_async(query, **arguments)
        except ConnectorException as error:
            if getattr(error.__cause__, "sqlstate", None) != _RAISED_BY_FUNCTION:
                self.fail(error)

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        """Wake at each notification, before the worker takes its job."""

        async def notified(*, channel: str, payload: str) -> None:
            self._wake()
            await on_notification(channel=channel, payload=payload)

        try:
            await super().listen_notify(on_notification=notified, channels=channels)
        except ConnectorException as error:
            self.fail(error)


async def _commit_each_statement(connection: Any) -> None:
    await connection.set_autocommit(True)


async def _end(task: asyncio.Task[None]) -> None:
    """End a task: in order, so that a worker's jobs are finished and its row is gone, or else at once."""
    for _ in range(2):
        if task.done():
            return
        task.cancel()
        await asyncio.wait({task}, timeout=_STOP_SECONDS)


def _as_store_error(failure: Exception | None) -> StoreError:
    if isinstance(failure, StoreError):
        return failure
    cause = failure and (failure.__cause__ or failure)
    why = (str(cause or "the worker has ended").strip().splitlines() or [type(cause).__name__])[0]
    kind = DatabaseFullError if getattr(cause, "sqlstate", None) == POSTGRESQL_FULL else DatabaseUnavailableError
    return kind(f"no jobs are taken, and sessions of other nodes are found by looking ({why}).")
