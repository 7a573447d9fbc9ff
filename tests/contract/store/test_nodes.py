"""Any store: which daemons run, what they say of themselves, and a daemon of an older version that says nothing."""

from __future__ import annotations

import msgspec
import pytest

from claudeops.store.reading.nodes import NodeEntry, listed
from claudeops.store.store import Store
from claudeops.store.tables import HEAD
from claudeops.structs import replace
from support.store_values import NOW, OTHER_OWNER, OWNER, after
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.dialect

DIGESTS = {"policy": "0123456789abcdef", "probes": "0011223344556677"}


async def nodes(store: Store) -> list[NodeEntry]:
    return list(await store.database.read(lambda connection: listed(connection, now=after(minutes=5))))


async def test_node_says_from_its_start_where_it_is_and_what_it_is(store: Store) -> None:
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: False)

    (one,) = await nodes(store)

    assert (one.node, one.site, one.version, one.revision) == ("attic", "main", "1.0", HEAD)
    assert (one.pid, one.since.timestamp()) == (OWNER.pid, OWNER.process_started_at)
    assert (one.digests, one.differs) == ({}, ())


async def test_what_a_node_decides_by_is_what_its_last_sign_of_life_says(store: Store) -> None:
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: False)
    await store.recovery.renew_lease(OWNER, now=NOW, digests=DIGESTS)
    await store.recovery.renew_lease(OWNER, now=NOW, digests={**DIGESTS, "policy": "edited"})
    await store.recovery.renew_lease(OWNER, now=NOW)

    (one,) = await nodes(store)

    assert one.digests == {**DIGESTS, "policy": "edited"}


async def test_row_that_was_lost_is_inserted_whole_again(store: Store, database: Database) -> None:
    await store.recovery.renew_lease(OWNER, now=NOW, digests=DIGESTS)
    (before,) = await nodes(store)
    database.execute("DELETE FROM instances")

    await store.recovery.renew_lease(OWNER, now=NOW, digests=DIGESTS)

    (again,) = await nodes(store)
    unmeasured = {"seen_at": NOW, "silent_s": 0.0}
    assert msgspec.structs.replace(again, **unmeasured) == msgspec.structs.replace(before, **unmeasured)
    assert again.digests == DIGESTS


async def test_silence_is_measured_by_the_databases_clock(store: Store, database: Database) -> None:
    await store.recovery.renew_lease(OWNER, now=NOW)

    (one,) = await nodes(store)

    if database.url.startswith("sqlite"):  # its clock is this machine's
        assert (one.seen_at, one.silent_s) == (NOW, 300.0)
    else:  # however far NOW is from its clock
        assert one.silent_s < 60


async def test_difference_between_two_nodes_has_a_name(store: Store) -> None:
    await store.recovery.renew_lease(OWNER, now=NOW, digests=DIGESTS)
    newer = replace(OTHER_OWNER, version="1.1")
    await store.recovery.renew_lease(newer, now=NOW, digests={"policy": "another", "probes": DIGESTS["probes"]})

    first, second = await nodes(store)

    assert (first.node, first.differs) == ("attic", ())
    assert (second.node, second.differs) == ("cellar", ("policy", "version"))


async def test_row_of_an_older_version_neither_stops_a_start_nor_a_list(store: Store, database: Database) -> None:
    database.execute(
        "INSERT INTO instances (owner, pid, process_started_at, boot_id, heartbeat)"
        " VALUES ('older', 1, 1.5, 'boot-1', '2026-03-01 12:00:00')"
    )
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: True)
    await store.recovery.renew_lease(OWNER, now=NOW, digests=DIGESTS)

    older, own = await nodes(store)

    assert (older.node, older.site, older.version, older.revision) == (None, None, None, None)
    assert (older.digests, older.differs, own.differs) == ({}, (), ())


async def test_digests_that_cannot_be_read_are_none(store: Store, database: Database) -> None:
    await store.recovery.renew_lease(OWNER, now=NOW, digests=DIGESTS)
    database.execute("UPDATE instances SET digests = '[1'")

    (one,) = await nodes(store)

    assert one.digests == {}
