"""A chain that is followed from beside the daemon: whoever waits for the database, the event loop does not."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import sqlalchemy as sa

from claudeops import logs
from claudeops.app.chain import run_chain_beside
from claudeops.app.wiring import root_session
from claudeops.domain.sessions import Session, Trigger
from claudeops.settings import Settings, load_settings
from claudeops.store.locks import claim_database
from support.estate import STAND_IN
from support.operating import DUMMY_KEY
from support.stores import Database
from support.waiting import PATIENCE_SECONDS, until, wait_until

pytestmark = pytest.mark.anyio
pytest_plugins = ("support.store_fixtures",)

# Whoever is only being let in has a lock to wait for, and is no activity yet. Who waits anew has another transaction.
WAITING = sa.text("SELECT pid, virtualtransaction FROM pg_locks WHERE NOT granted")


def settings_of(database: Database, root: Path) -> Settings:
    (root / "repos" / "estate").mkdir(parents=True)
    given = {
        "CLAUDEOPS_DATABASE_URL": database.url,
        "CLAUDEOPS_STATE_DIR": str(root / "state"),
        "CLAUDEOPS_RESULTS_DIR": str(root / "results"),
        "CLAUDEOPS_REPOS_DIR": str(root / "repos"),
        "CLAUDEOPS_CLAUDE_BIN": str(STAND_IN),
        "ANTHROPIC_API_KEY": DUMMY_KEY,
    }
    return load_settings(given, cwd=root).settings


class Stuck:
    """In the way of everybody who asks the server whose connections there are."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = threading.Event()
        self._somebody_waits = threading.Event()

    def block(self) -> bool:
        """Stand there until somebody waits; return whether the event loop came by while that was so."""
        with self._database.connect() as connection:
            connection.execute(sa.text("LOCK TABLE pg_catalog.pg_authid IN ACCESS EXCLUSIVE MODE"))
            wait_until(lambda: bool(connection.execute(WAITING).all()))  # a thread outlives the test's limit
            waiting = set(connection.execute(WAITING).all())
            self._somebody_waits.set()
            came_by = self._turn.wait(PATIENCE_SECONDS)
            return came_by and bool(waiting & set(connection.execute(WAITING).all()))

    async def come_by(self) -> None:
        """Be on the event loop while somebody waits."""
        await until(self._somebody_waits.is_set)
        self._turn.set()


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
async def test_the_loop_goes_on_while_the_server_keeps_the_question_waiting_whether_a_daemon_runs(
    postgresql: Database, tmp_path: Path
) -> None:
    settings = settings_of(postgresql, tmp_path)
    (tmp_path / "daemon").mkdir()
    stuck, queued = Stuck(postgresql), anyio.Event()

    def hear(_: Session) -> None:
        queued.set()

    async def follow() -> None:
        new = root_session(settings, 1, Trigger.MANUAL)
        await run_chain_beside(settings, new, lambda _: None, queued=hear, log=logs.get_logger())

    with anyio.fail_after(PATIENCE_SECONDS), claim_database(postgresql.url, tmp_path / "daemon"):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await queued.wait()
            tasks.start_soon(stuck.come_by)
            came_by = await anyio.to_thread.run_sync(stuck.block)
            tasks.cancel_scope.cancel()

    assert came_by
