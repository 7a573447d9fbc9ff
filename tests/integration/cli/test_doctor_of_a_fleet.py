"""What `claudeops doctor` says of the daemons that share a database."""

from __future__ import annotations

import io
import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

import pytest

from claudeops.cli.doctor.access import daemon
from claudeops.cli.doctor.finding import DoctorContext, Finding
from claudeops.engine.owners import this_owner
from claudeops.store.recovery import Recovery
from claudeops.store.store import open_store
from claudeops.structs import replace
from support.settings_world import make_world
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)
pytestmark = [pytest.mark.anyio, pytest.mark.postgres, pytest.mark.xdist_group("postgres")]

STARTS: Final = itertools.count(1_000.0)
"""When each daemon has started: one after the other."""


async def joined(recovery: Recovery, node: str, probes: str, *, site: str = "main") -> None:
    owner = replace(this_owner(node=node, site=site, version="1.0"), process_started_at=next(STARTS))
    await recovery.reconcile(owner, now=datetime.now(UTC), alive=lambda _: True, digests={"probes": probes})


async def examined(root: Path, database: Database) -> Finding:
    world = make_world(root)
    given = {"CLAUDEOPS_DISPATCHER": "procrastinate", "CLAUDEOPS_DATABASE_URL": database.url}
    return await daemon(cast("DoctorContext", io.StringIO()), world.settings(given))


async def test_nodes_that_agree_are_in_order_one_that_differs_is_named_and_so_is_a_silent_one(
    tmp_path: Path, postgresql: Database
) -> None:
    store = open_store(postgresql.url)
    try:
        await joined(store.recovery, "attic", "old")
        await joined(store.recovery, "cellar", "old")
        await joined(store.recovery, "cabin", "of its own", site="wood")
        alike = await examined(tmp_path / "one", postgresql)
        await joined(store.recovery, "shed", "new")
        apart = await examined(tmp_path / "two", postgresql)
        postgresql.execute("UPDATE instances SET heartbeat = heartbeat - interval '40 s' WHERE node = 'cellar'")
        silent = await examined(tmp_path / "three", postgresql)
    finally:
        await store.close()

    assert alike.remedy is None
    assert "Nodes do not have the same as attic: shed (probes)." in apart.text
    assert "no sign of life: cellar (4" in silent.text
