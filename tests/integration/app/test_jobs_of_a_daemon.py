"""A daemon that shares its database takes the jobs by which others announce sessions; one that is alone has none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest

from claudeops.dispatch.procrastinate import NAME, announcer
from claudeops.store.store import open_store
from support.estate import deliver, look, report
from support.operating import Daemon
from support.postgres import Server
from support.stand_in_daemon import StandInNode, stand_in_node, told
from support.store_values import queued
from support.stores import POSTGRES
from support.waiting import until

pytestmark = [pytest.mark.anyio, *POSTGRES]
pytest_plugins = ("support.store_fixtures",)

JOBS: Final = "SELECT id FROM procrastinate_jobs"
WORKERS: Final = "SELECT id FROM procrastinate_workers"
TABLE: Final = "SELECT to_regclass('procrastinate_jobs')"
CONNECTIONS: Final = "SELECT pid FROM pg_stat_activity WHERE application_name = %s"


@asynccontextmanager
async def daemon_of(
    node: StandInNode, url: str, *, dispatcher: str = "procrastinate", ready: bool = True
) -> AsyncIterator[Daemon]:
    node.script(look(), deliver(report()))
    async with node.daemon(CLAUDEOPS_DATABASE_URL=url, CLAUDEOPS_DISPATCHER=dispatcher) as daemon:
        if ready:
            await daemon.until_logged("daemon_ready")
        yield daemon


async def test_a_daemon_takes_the_jobs_of_others_and_leaves_nothing_of_its_own(
    postgres: Server, tmp_path: Path
) -> None:
    name = postgres.create()
    async with stand_in_node(tmp_path, is_new=True) as node, daemon_of(node, postgres.url(name)) as daemon:
        with postgres.connect(name) as watch:
            await until(lambda: watch.execute(CONNECTIONS, (NAME,)).rowcount == 2)
            store = open_store(postgres.url(name), announce=announcer())
            try:
                session = await queued(store)
            finally:
                await store.close()
            query = "SELECT id FROM sessions WHERE id = %s AND status = 'ended'"
            await until(lambda: watch.execute(query, (session.id,)).rowcount == 1)
            await until(lambda: watch.execute(JOBS).rowcount == 0)
            assert watch.execute(WORKERS).rowcount == 1

            assert await daemon.stop() == 0

            await until(lambda: watch.execute(CONNECTIONS, (NAME,)).rowcount == 0)
            assert watch.execute(WORKERS).rowcount == 0
        assert not told(daemon, "database_unavailable", "library_message", "announcement_failed")
        (migrated,) = (line for line in told(daemon, "database_migrated") if line.get("tables"))
        assert (migrated["before"], migrated["tables"]) == (None, "procrastinate")


async def test_a_daemon_that_is_alone_makes_no_tables_of_jobs(postgres: Server, tmp_path: Path) -> None:
    name = postgres.create()
    async with stand_in_node(tmp_path, is_new=True) as node, daemon_of(node, postgres.url(name), dispatcher="local"):
        with postgres.connect(name) as watch:
            assert watch.execute(TABLE).fetchone() == (None,)


async def test_a_daemon_whose_library_is_older_than_the_tables_says_so_and_starts_nothing(
    postgres: Server, tmp_path: Path
) -> None:
    name = postgres.create()
    with postgres.connect(name) as connection:
        mark_as_newer(connection)
    async with (
        stand_in_node(tmp_path, is_new=True) as node,
        daemon_of(node, postgres.url(name), ready=False) as daemon,
    ):
        assert await daemon.process.wait() != 0

        refusal = daemon.output.read_text()
        assert "has the tables of Procrastinate in version 99.00, and the library that is installed here" in refusal
        assert "run the newer claudeops again" in refusal
        assert "Traceback" not in refusal


def mark_as_newer(connection: psycopg.Connection) -> None:
    connection.execute(b"CREATE TABLE procrastinate_jobs (id int)")
    connection.execute(b"COMMENT ON TABLE procrastinate_jobs IS 'claudeops, version 99.00'")
