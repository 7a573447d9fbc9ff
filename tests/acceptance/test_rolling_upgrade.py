"""A newer release migrates the database while daemons of this one run: they finish what they have, and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from claudeops.store.tables import HEAD, JOBS_MARK
from support.estate import deliver, look, report
from support.fleet import FleetOperator, fleet
from support.newer_release import NEXT, migrate_to_next, newer_release
from support.operating import say
from support.postgres import Server
from support.stand_in_daemon import StandInNode, told
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)
pytestmark = [pytest.mark.anyio, pytest.mark.postgres, pytest.mark.xdist_group("postgres")]

SESSIONS: Final = "SELECT id, status, outcome, attempt, trigger, log_node FROM sessions ORDER BY id"
REPORTED: Final = "SELECT service, status FROM service_checks WHERE session_id = 1"


@pytest.fixture
async def operator(postgres: Server, migrated_postgres: str, tmp_path: Path) -> AsyncIterator[FleetOperator]:
    """Give an operator a database of this release that no other test has."""
    database = Database(postgres.url(postgres.create(template=migrated_postgres)))
    tmp_path.chmod(0o711)
    async with fleet(tmp_path, database, haiku=[say("never called")]) as operator:
        yield operator


async def test_daemons_older_than_the_database_say_so_and_stop_in_good_order(
    operator: FleetOperator, tmp_path: Path
) -> None:
    node = StandInNode(operator, operator.root)
    node.script(look(), deliver(report()))
    settings = node.settings(CLAUDEOPS_DRAIN_TIMEOUT="600")
    async with operator.node("attic", **settings) as attic, operator.node("cellar", **settings) as cellar:
        await attic.until_logged("daemon_ready")
        await cellar.until_logged("daemon_ready")

        migrate_to_next(operator.url, tmp_path / "newer")

        assert [await attic.process.wait(), await cellar.process.wait()] == [0, 0]
    for daemon in (attic, cellar):
        assert [line["revision"] for line in told(daemon, "schema_newer")] == [NEXT]
        assert told(daemon, "daemon_stopped")
    again = await operator.run("run", **operator.places("attic"), **settings)
    assert again.code == 78
    assert f"is at revision {NEXT}, and this claudeops knows only up to {HEAD}" in again.stderr


async def test_daemon_stops_in_good_order_when_a_newer_release_has_moved_the_tables_of_jobs_alone(
    operator: FleetOperator,
) -> None:
    node = StandInNode(operator, operator.root)
    node.script(look(), deliver(report()))
    settings = node.settings()
    async with operator.node("attic", **settings) as attic:
        await attic.until_logged("daemon_ready")

        with operator.connect() as connection:
            gone = "SELECT oid::regprocedure FROM pg_proc WHERE proname LIKE 'procrastinate_fetch_job%'"
            for (function,) in connection.execute(sa.text(gone)).all():
                connection.execute(sa.text(f"DROP FUNCTION {function}"))
            connection.execute(sa.text(f"COMMENT ON TABLE procrastinate_jobs IS '{JOBS_MARK}99.00.00_50_post'"))

        assert await attic.process.wait() == 0
    assert [line["revision"] for line in told(attic, "schema_newer")] == ["99.00.00_50_post"]
    again = await operator.run("run", **operator.places("attic"), **settings)
    assert again.code == 78
    assert "has the tables of Procrastinate in version 99.00.00_50_post" in again.stderr


@pytest.mark.long
async def test_rolling_upgrade_loses_no_session_and_an_older_daemon_begins_none(
    operator: FleetOperator, tmp_path: Path
) -> None:
    node, signals = StandInNode(operator, operator.root), tmp_path / "signals"
    signals.mkdir()
    go = signals / "go"
    node.script(look(), {"await": str(go)}, deliver(report()))
    settings = node.settings(
        CLAUDEOPS_DRAIN_TIMEOUT="600", CLAUDEOPS_TIER1_ENV="STAND_IN_STEPS,SIGNALS", SIGNALS=str(signals)
    )
    newer = newer_release(tmp_path / "newer").environment
    async with operator.node("attic", **settings) as attic:
        await operator.until(SESSIONS, lambda rows: [row["status"] for row in rows] == ["running"])
        async with operator.node("cellar", **settings) as cellar:
            await cellar.until_logged("daemon_ready")

            migrated = await operator.run("migrate", "-o", "json", **settings, **newer)
            await attic.until_logged("schema_newer")
            assert await cellar.process.wait() == 0
        asked = await operator.bootstrap("--detach", "--prompt", "disk", **settings, **newer)
        go.touch()
        assert await attic.process.wait() == 0
    assert (migrated.document["from_revision"], migrated.document["to_revision"]) == (HEAD, NEXT)
    assert asked.code == 0, asked.stderr
    assert [len(told(daemon, "schema_newer")) for daemon in (attic, cellar)] == [1, 1]
    first, second = operator.rows(SESSIONS)
    assert (first["status"], first["outcome"], first["attempt"], first["log_node"]) == ("ended", "success", 1, "attic")
    assert operator.rows(REPORTED) == [{"service": "web", "status": "healthy"}]
    assert (second["status"], second["attempt"], second["trigger"]) == ("queued", 0, "manual")

    async with operator.node("cellar", **settings, **newer) as upgraded:
        await upgraded.until_logged("daemon_ready")
        await operator.until(SESSIONS, lambda rows: [row["status"] for row in rows] == ["ended", "ended"])
        assert await upgraded.stop() == 0
    assert (operator.rows(SESSIONS)[1]["outcome"], operator.rows(SESSIONS)[1]["log_node"]) == ("success", "cellar")
