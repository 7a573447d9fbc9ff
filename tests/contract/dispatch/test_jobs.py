"""Sessions that are queued anywhere wake every node, as jobs that are worth nothing by themselves."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
import psycopg
import pytest
from procrastinate.jobs import Status
from psycopg.rows import dict_row
from sqlalchemy import Connection

from claudeops import logs
from claudeops.dispatch.local import IsUnannounced
from claudeops.dispatch.procrastinate import (
    COMMON_QUEUE,
    NAME,
    PRIORITIES,
    TASK,
    JobDispatcher,
    announcer,
    job_tables,
    queue_of,
)
from claudeops.domain.sessions import Trigger
from claudeops.logs import LogEvent
from claudeops.store.connection.engines import driver_options, parse_url
from claudeops.store.connection.job_tables import is_unannounced, migrate_jobs
from claudeops.store.migrate import migrate
from claudeops.store.queue import add_session
from claudeops.store.store import Store, open_store
from claudeops.structs import replace
from support.postgres import Server
from support.store_values import NOW, queued, wanted
from support.stores import MIGRATIONS, POSTGRES
from support.waiting import PATIENCE_SECONDS, until

pytest_plugins = ("support.store_fixtures",)

pytestmark = [pytest.mark.anyio, *POSTGRES]

NEVER_SECONDS: Final = 3600.0

Job = Mapping[str, Any]


@pytest.fixture(scope="module")
def base(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the name of a database that has our tables and those of the jobs."""
    name = postgres.create()
    migrate(postgres.url(name), migrations_dir=MIGRATIONS, backup_dir=tmp_path_factory.mktemp("backups"))
    migrate_jobs(parse_url(postgres.url(name)), job_tables())
    return name


@pytest.fixture
def watch(postgres: Server, base: str) -> Iterator[psycopg.Connection]:
    """Yield a connection that looks at the jobs from outside; there are none at first."""
    with postgres.connect(base) as connection:
        for table in (b"sessions", b"procrastinate_jobs", b"procrastinate_workers"):
            connection.execute(b"DELETE FROM " + table)
        yield connection


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    yield stream
    logs.configure(level="info", fmt="json", stream=io.StringIO(), redact=str)


@pytest.fixture
async def store(postgres: Server, base: str, watch: psycopg.Connection) -> AsyncIterator[Store]:
    assert jobs(watch) == []
    store = open_store(postgres.url(base), announce=announcer())
    try:
        yield store
    finally:
        await store.close()


def dispatcher(
    postgres: Server,
    base: str,
    *,
    site: str = "main",
    fetch_seconds: float = NEVER_SECONDS,
    sweep_seconds: float = NEVER_SECONDS,
) -> JobDispatcher:
    """Return one that nothing but a notification wakes, unless the test says what else does."""
    return JobDispatcher(
        driver_options(parse_url(postgres.url(base))),
        site=site,
        log=logs.get_logger(),
        interval_seconds=NEVER_SECONDS,
        fetch_seconds=fetch_seconds,
        sweep_seconds=sweep_seconds,
    )


def jobs(watch: psycopg.Connection) -> list[Job]:
    with watch.cursor(row_factory=dict_row) as cursor:
        return list(cursor.execute("SELECT * FROM procrastinate_jobs ORDER BY id"))


def workers(watch: psycopg.Connection) -> int:
    return watch.execute("SELECT id FROM procrastinate_workers").rowcount


def listeners(watch: psycopg.Connection) -> int:
    """Return how many connections listen; between notifications they see from time to time whether they live."""
    query = "SELECT FROM pg_stat_activity WHERE application_name = %s AND query SIMILAR TO 'LISTEN%%|SELECT 1'"
    return watch.execute(query, (NAME,)).rowcount


async def nothing_lost(_queue: str, _site: str | None) -> bool:
    return False


@asynccontextmanager
async def running(
    watch: psycopg.Connection, *dispatchers: JobDispatcher, unannounced: IsUnannounced = nothing_lost
) -> AsyncIterator[None]:
    """Run dispatchers while the block runs; each listens when it begins."""
    async with anyio.create_task_group() as tasks:
        for one in dispatchers:
            tasks.start_soon(one.run, unannounced)
        await until(lambda: workers(watch) == listeners(watch) == len(dispatchers))
        yield
        tasks.cancel_scope.cancel()


async def woken(dispatcher: JobDispatcher) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        await dispatcher.wait()


def due() -> datetime:
    """Return a time that has passed on the database's clock, which is not the tests'."""
    return datetime(2001, 1, 1, tzinfo=UTC)


# --- announced in the transaction that queues -------------------------------------------------------------


async def test_a_queued_session_has_a_job_of_which_nothing_matters_but_when_and_where(
    store: Store, watch: psycopg.Connection
) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    await queued(store, replace(wanted(), not_before=later, trigger=Trigger.FOLLOW_UP))

    (job,) = jobs(watch)

    assert (job["queue_name"], job["task_name"], job["args"]) == (COMMON_QUEUE, TASK, {})
    assert (job["lock"], job["queueing_lock"], job["status"]) == (None, None, "todo")
    assert (job["scheduled_at"], job["priority"]) == (later, PRIORITIES[Trigger.FOLLOW_UP])


async def test_a_transaction_that_is_rolled_back_leaves_no_job(store: Store, watch: psycopg.Connection) -> None:
    def queue_in_vain(connection: Connection) -> None:
        add_session(connection, wanted(), now=NOW)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.database.write(queue_in_vain)

    assert jobs(watch) == []


async def test_a_transaction_that_fails_after_its_jobs_were_written_leaves_none(
    postgres: Server, base: str, watch: psycopg.Connection
) -> None:
    announce, announced = announcer(), 0

    def announce_and_be_cut_off(connection: Any, sessions: Any) -> None:
        nonlocal announced
        announce(connection, sessions)
        announced += 1
        watch.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))

    store = open_store(postgres.url(base), announce=announce_and_be_cut_off)
    try:
        with pytest.raises(Exception, match="the same call may work later"):
            await queued(store)
        assert announced == 1
        assert (jobs(watch), watch.execute("SELECT id FROM sessions").rowcount) == ([], 0)
    finally:
        await store.close()


async def test_a_session_is_queued_although_it_cannot_be_announced(
    store: Store, watch: psycopg.Connection, logged: io.StringIO
) -> None:
    watch.execute("ALTER TABLE procrastinate_jobs RENAME TO elsewhere")
    try:
        session = await queued(store)
    finally:
        watch.execute("ALTER TABLE elsewhere RENAME TO procrastinate_jobs")

    assert await store.records.session(session.id) is not None
    assert jobs(watch) == []
    (line,) = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert (line["event"], line["count"]) == (LogEvent.ANNOUNCEMENT_FAILED.value, 1)
    assert 'relation "procrastinate_jobs" does not exist' in line["error"]


def test_alerts_come_before_people_and_people_before_the_schedule() -> None:
    order = (Trigger.ALERT, Trigger.MANUAL, Trigger.ESCALATION, Trigger.FOLLOW_UP, Trigger.SCHEDULED)

    assert [PRIORITIES[trigger] for trigger in order] == sorted((PRIORITIES[each] for each in order), reverse=True)
    assert set(PRIORITIES) == set(Trigger)


@pytest.mark.parametrize("site", ["attic", "x" * 300, "Zürich " * 9])
def test_no_site_is_too_long_for_the_name_of_a_channel(watch: psycopg.Connection, site: str) -> None:
    watch.execute("SELECT pg_notify(%s, '')", (f"procrastinate_queue_v1#{queue_of(site)}",))

    assert queue_of(site) != queue_of(f"{site}.") != queue_of(None)


# --- and wakes ------------------------------------------------------------------------------------------------


async def test_a_session_that_is_queued_elsewhere_wakes_every_node_at_once_and_its_job_is_taken_once(
    postgres: Server, base: str, store: Store, watch: psycopg.Connection, logged: io.StringIO
) -> None:
    one, other = dispatcher(postgres, base), dispatcher(postgres, base, site="attic")
    async with running(watch, one, other):
        await queued(store)

        await woken(one)
        await woken(other)
        await until(lambda: jobs(watch) == [])

    assert workers(watch) == 0
    await until(
        lambda: watch.execute("SELECT FROM pg_stat_activity WHERE application_name = %s", (NAME,)).rowcount == 0
    )
    assert logged.getvalue() == ""


async def test_surplus_jobs_are_taken_and_deleted(
    postgres: Server, base: str, store: Store, watch: psycopg.Connection, logged: io.StringIO
) -> None:
    for _ in range(3):
        await queued(store)
    watch.execute("UPDATE sessions SET status = 'ended', ended_at = created_at, outcome = 'cancelled'")

    async with running(watch, dispatcher(postgres, base)):
        await until(lambda: jobs(watch) == [])

    assert logged.getvalue() == ""


async def test_a_job_for_later_waits_until_then(
    postgres: Server, base: str, store: Store, watch: psycopg.Connection
) -> None:
    await queued(store, replace(wanted(), not_before=datetime.now(UTC) + timedelta(days=1)))
    node = dispatcher(postgres, base, fetch_seconds=0.01)
    async with running(watch, node):
        await queued(store)
        await until(lambda: len(jobs(watch)) == 1)
        await woken(node)

        watch.execute("UPDATE procrastinate_jobs SET scheduled_at = now()")

        await woken(node)
        await until(lambda: jobs(watch) == [])


@pytest.mark.parametrize("site", [None, "attic"])
async def test_a_job_that_was_lost_is_announced_again_once_its_session_is_due(
    postgres: Server, base: str, store: Store, watch: psycopg.Connection, site: str | None
) -> None:
    await queued(store, replace(wanted(), not_before=due(), site=site))
    watch.execute("DELETE FROM procrastinate_jobs")
    node = dispatcher(postgres, base, site="attic", sweep_seconds=0.01)

    async def unannounced(queue: str, site: str | None) -> bool:
        return await store.database.read(partial(is_unannounced, queue=queue, site=site))

    async with running(watch, node, unannounced=unannounced):
        await woken(node)


@pytest.mark.parametrize("not_before", [due(), datetime(2999, 1, 1, tzinfo=UTC)])
async def test_what_is_announced_or_not_due_or_of_another_site_is_not_announced_again(
    store: Store, not_before: datetime
) -> None:
    async def unannounced(site: str | None) -> bool:
        return await store.database.read(partial(is_unannounced, queue=queue_of(site), site=site))

    await queued(store, replace(wanted(), not_before=not_before, site="attic"))

    assert [site for site in (None, "attic", "cellar") if await unannounced(site)] == []


async def test_a_session_of_a_site_wakes_its_nodes_alone(
    postgres: Server, base: str, store: Store, watch: psycopg.Connection
) -> None:
    attic, cellar = dispatcher(postgres, base, site="attic"), dispatcher(postgres, base, site="cellar")
    wakes = list[str]()
    cellar._connector._wake = partial(wakes.append, "cellar")  # at notifications, which come in the order of commits
    async with running(watch, attic, cellar):
        for site, node in (("attic", attic), ("cellar", cellar)):
            await queued(store, replace(wanted(), site=site))
            await woken(node)
            await until(lambda: jobs(watch) == [])

    assert wakes == ["cellar"]


# --- and fails ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worker", ["silent", "gone"])
async def test_a_job_whose_node_is_gone_is_finished_as_failed_and_never_run_again(
    postgres: Server, base: str, store: Store, watch: psycopg.Connection, worker: str
) -> None:
    session = await queued(store, replace(wanted(), not_before=datetime(2999, 1, 1, tzinfo=UTC)))
    query = "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 minute') RETURNING id"
    row = watch.execute(query).fetchone()
    watch.execute("UPDATE procrastinate_jobs SET scheduled_at = NULL, status = 'doing', worker_id = %s", row)
    if worker == "gone":
        watch.execute("DELETE FROM procrastinate_workers")

    node = dispatcher(postgres, base, fetch_seconds=0.01, sweep_seconds=0.01)
    async with running(watch, node):
        await until(lambda: [job["status"] for job in jobs(watch)] == ["failed"])

    (job,) = jobs(watch)
    assert job["attempts"] == 1
    assert await store.records.session(session.id) == session


async def test_a_job_that_another_node_has_finished_ends_no_worker(
    postgres: Server, base: str, store: Store, watch: psycopg.Connection, logged: io.StringIO
) -> None:
    node = dispatcher(postgres, base)
    async with running(watch, node):
        await node._app.job_manager.finish_job_by_id_async(12345, Status.SUCCEEDED, delete_job=True)
        await queued(store)
        await woken(node)
        await until(lambda: jobs(watch) == [])

    assert logged.getvalue() == ""


async def test_a_worker_whose_connections_are_cut_comes_back_and_is_woken(
    postgres: Server, base: str, store: Store, watch: psycopg.Connection
) -> None:
    node = dispatcher(postgres, base)
    async with running(watch, node):
        cut = watch.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (NAME,)
        )
        assert cut.rowcount == 2  # that which listens, and that which takes jobs
        await until(lambda: (workers(watch), listeners(watch)) == (1, 1))

        await queued(store)

        await woken(node)
        await until(lambda: jobs(watch) == [])


async def test_a_worker_that_fails_is_begun_anew_and_says_so_without_an_address(
    postgres: Server, base: str, store: Store, watch: psycopg.Connection, logged: io.StringIO
) -> None:
    node = dispatcher(postgres, base, fetch_seconds=0.01, sweep_seconds=0.01)
    async with running(watch, node):
        watch.execute("ALTER TABLE procrastinate_jobs RENAME TO elsewhere")
        try:
            await until(lambda: bool(logged.getvalue()))
        finally:
            watch.execute("ALTER TABLE elsewhere RENAME TO procrastinate_jobs")
        await until(lambda: (workers(watch), listeners(watch)) == (1, 1))
        await until(lambda: LogEvent.DATABASE_RECOVERED.value in logged.getvalue())
        await queued(store)
        await woken(node)
        await until(lambda: jobs(watch) == [])

    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["database_unavailable", "database_recovered"]
    assert {line["while_doing"] for line in lines} == {"jobs"}
    assert '"procrastinate_jobs" does not exist' in lines[0]["error"]
    assert str(postgres.directory) not in logged.getvalue()


async def test_a_server_that_is_away_ends_no_daemon(
    postgres: Server, base: str, store: Store, watch: psycopg.Connection, logged: io.StringIO
) -> None:
    node = dispatcher(postgres, base, fetch_seconds=0.01)
    async with running(watch, node):
        await anyio.to_thread.run_sync(postgres.stop)
        try:
            await until(lambda: LogEvent.DATABASE_UNAVAILABLE.value in logged.getvalue())
        finally:
            await anyio.to_thread.run_sync(postgres.start)
        with postgres.connect(base) as again:
            await until(lambda: listeners(again) == 1)
            await queued(store)
            await woken(node)
            await until(lambda: jobs(again) == [])

    assert LogEvent.LIBRARY_MESSAGE.value not in logged.getvalue()


async def test_a_worker_of_a_server_that_is_away_can_be_ended(
    postgres: Server, base: str, watch: psycopg.Connection
) -> None:
    node = dispatcher(postgres, base, fetch_seconds=0.01)
    try:
        async with running(watch, node):
            await anyio.to_thread.run_sync(postgres.stop)
    finally:
        await anyio.to_thread.run_sync(postgres.start)
