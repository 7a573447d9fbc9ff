"""Any store: which daemons run, what they say of themselves, and a daemon of an older version that says nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from claudeops.store.acts.instances import DIFFERENT, fleet_faults
from claudeops.store.reading.nodes import NodeEntry, listed
from claudeops.store.store import Store
from claudeops.store.tables import HEAD
from claudeops.structs import replace
from support.store_values import NOW, OTHER_OWNER, OWNER, after, queued, wanted
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


async def test_list_says_which_tiers_a_node_has_and_what_it_does_for_all(store: Store) -> None:
    await store.recovery.renew_lease(replace(OWNER, max_tier=2), now=NOW)
    await store.recovery.renew_lease(OTHER_OWNER, now=NOW)
    await store.leases.take(("upkeep", "alerts"), OWNER.name)

    first, second = await nodes(store)

    assert (first.max_tier, first.roles) == (2, ("alerts", "upkeep"))
    assert (second.max_tier, second.roles) == (None, ())


# --- what is wrong with all of them -----------------------------------------------------------------------


async def faults(store: Store, **later: float) -> Mapping[str, str]:
    return await store.database.read(lambda connection: fleet_faults(connection, after(**later)))


async def test_nodes_that_differ_are_named_and_another_site_may_have_other_probes(store: Store) -> None:
    north = replace(OTHER_OWNER, name="node-3", node="loft", site="north", process_started_at=9e9)
    await store.recovery.renew_lease(OWNER, now=NOW, digests=DIGESTS)
    await store.recovery.renew_lease(OTHER_OWNER, now=NOW, digests=DIGESTS)
    await store.recovery.renew_lease(north, now=NOW, digests={**DIGESTS, "probes": "of the north"})
    assert await faults(store) == {}

    await store.recovery.renew_lease(OTHER_OWNER, now=NOW, digests={"policy": "edited", "probes": "edited"})

    assert await faults(store) == {
        DIFFERENT: "nodes do not decide by the same: cellar and attic (policy, probes). "
        "`claudeops list-nodes` compares them."
    }


async def test_session_that_waits_for_a_site_without_a_node_is_a_fault_after_minutes(store: Store) -> None:
    await store.recovery.renew_lease(OWNER, now=NOW)
    for site in ("north", "main", None):
        await queued(store, wanted(site=site))

    assert await faults(store, minutes=4) == {}
    assert await faults(store, minutes=5) == {
        "fleet:unserved north": "sessions wait for a node of site north, the first since 2026-03-01 12:00 UTC, "
        "and none runs."
    }
    await store.recovery.renew_lease(replace(OTHER_OWNER, site="north"), now=NOW)
    assert await faults(store, minutes=9) == {}
