"""A chain that a person starts goes to a node that can run it, and nothing is queued for nodes that are not there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from claudeops.app.chain import queue_for_daemon, resumed_session
from claudeops.app.wiring import root_session
from claudeops.domain.owner import Owner
from claudeops.domain.sessions import Session, Trigger
from claudeops.errors import MissingInputError, NoDaemonError
from claudeops.settings import Settings, load_settings
from claudeops.store.locks import claim_database
from claudeops.structs import replace
from support.estate import STAND_IN
from support.operating import DUMMY_KEY
from support.store_values import NOW, OTHER_OWNER, RULES, claimed, ending, queued, wanted
from support.stores import Database, opened

pytestmark = pytest.mark.anyio
pytest_plugins = ("support.store_fixtures",)

HARBOUR: Final = replace(OTHER_OWNER, name="node-3", node="crane", site="harbour")


def settings_of(database: Database, root: Path) -> Settings:
    (root / "repos" / "estate").mkdir(parents=True)
    given = {
        "CLAUDEOPS_DATABASE_URL": database.url,
        "CLAUDEOPS_STATE_DIR": str(root / "state"),
        "CLAUDEOPS_RESULTS_DIR": str(root / "results"),
        "CLAUDEOPS_REPOS_DIR": str(root / "repos"),
        "CLAUDEOPS_CLAUDE_BIN": str(STAND_IN),
        "CLAUDEOPS_NODE": "here",
        "ANTHROPIC_API_KEY": DUMMY_KEY,
    }
    return load_settings(given, cwd=root).settings


@asynccontextmanager
async def daemons(database: Database, root: Path, owners: Sequence[Owner]) -> AsyncIterator[Settings]:
    """Have some daemons alive, as far as the database knows."""
    settings = settings_of(database, root)
    (root / "daemon").mkdir()
    async with opened(database) as store:
        for owner in owners:
            await store.recovery.renew_lease(owner, now=NOW)
    with claim_database(database.url, root / "daemon"):
        yield settings


async def ended(database: Database, log: Path, *, node: str, site: str | None = None) -> Session:
    """Have a session on record whose log a machine has written."""
    async with opened(database) as store:
        await queued(store, wanted(site=site))
        session = await claimed(store, owner=HARBOUR)
        assert session is not None
        await store.queue.finish(ending(session), rules=RULES)
    database.execute("UPDATE sessions SET log_path = :path, log_node = :node", path=str(log), node=node)
    return session


async def test_a_site_without_a_daemon_is_refused_and_nothing_is_queued(database: Database, tmp_path: Path) -> None:
    async with daemons(database, tmp_path, [OTHER_OWNER]) as settings:
        new = replace(root_session(settings, 1, Trigger.MANUAL), site="harbour")
        with pytest.raises(NoDaemonError, match="No daemon of site harbour runs on this database, so nothing was"):
            await queue_for_daemon(settings, new)
    assert database.rows("sessions") == []


async def test_a_site_with_a_daemon_gets_the_chain(database: Database, tmp_path: Path) -> None:
    async with daemons(database, tmp_path, [OTHER_OWNER, HARBOUR]) as settings:
        await queue_for_daemon(settings, replace(root_session(settings, 1, Trigger.MANUAL), site="harbour"))
    assert [row["site"] for row in database.rows("sessions")] == ["harbour"]


async def test_a_conversation_goes_on_where_its_log_is(database: Database, tmp_path: Path) -> None:
    session = await ended(database, tmp_path / "not-here.ndjson", node="crane", site="harbour")
    async with daemons(database, tmp_path, [OTHER_OWNER, HARBOUR]) as settings:
        new = await resumed_session(settings, session.id, "go on")
        await queue_for_daemon(settings, new)
    assert (new.for_node, new.site, new.parent_session_id) == ("crane", "harbour", session.id)
    assert database.rows("sessions")[-1]["for_node"] == "crane"


async def test_a_log_on_a_machine_without_a_daemon_is_refused_with_its_place(
    database: Database, tmp_path: Path
) -> None:
    session = await ended(database, tmp_path / "not-here.ndjson", node="crane")
    async with daemons(database, tmp_path, [OTHER_OWNER]) as settings:
        with pytest.raises(MissingInputError, match=f"The log of session {session.id} is on node crane"):
            await resumed_session(settings, session.id, "go on")


async def test_a_log_that_is_here_binds_to_no_machine_that_is_gone(database: Database, tmp_path: Path) -> None:
    log = tmp_path / "session.ndjson"
    log.write_text("{}\n")
    session = await ended(database, log, node="a-name-of-last-week")
    async with daemons(database, tmp_path, [OTHER_OWNER]) as settings:
        await queue_for_daemon(settings, await resumed_session(settings, session.id, "go on"))
    assert database.rows("sessions")[-1]["for_node"] is None


async def test_a_conversation_goes_on_although_the_one_daemon_has_another_site_by_now(
    database: Database, tmp_path: Path
) -> None:
    log = tmp_path / "session.ndjson"
    log.write_text("{}\n")
    session = await ended(database, log, node="here", site="harbour")
    async with daemons(database, tmp_path, [replace(OTHER_OWNER, is_alone=True)]) as settings:
        await queue_for_daemon(settings, await resumed_session(settings, session.id, "go on"))
    assert database.rows("sessions")[-1]["parent_session_id"] == session.id
