"""Any store: which daemons run, what they say of themselves, and a daemon of an older version that says nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from claudeops.domain.events import DEAD, DIFFERENT
from claudeops.domain.owner import Owner
from claudeops.store.acts.instances import fleet_faults
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


async def test_session_that_waits_for_a_machine_without_a_node_is_a_fault_with_the_way_out(store: Store) -> None:
    await store.recovery.renew_lease(OWNER, now=NOW)
    for site in ("north", "north", None):
        await queued(store, wanted(site=site, for_node="loft"))
    await queued(store, wanted(for_node="attic"))
    await queued(store, wanted(for_node="shed"))

    assert await faults(store, minutes=4) == {}
    assert await faults(store, minutes=5) == {
        "fleet:absent loft": "3 sessions wait for node loft, the first since 2026-03-01 12:00 UTC, and no daemon runs "
        "there: start it, or cancel the sessions with `claudeops stop 1`, `claudeops stop 2`, `claudeops stop 3`.",
        "fleet:absent shed": "session 5 waits for node shed, since 2026-03-01 12:00 UTC, and no daemon runs there: "
        "start it, or cancel the session with `claudeops stop 5`.",
    }
    await store.recovery.renew_lease(replace(OTHER_OWNER, node="loft", site="north"), now=NOW)
    assert set(await faults(store, minutes=9)) == {"fleet:absent shed"}
    await store.recovery.renew_lease(replace(OTHER_OWNER, name="node-3", is_alone=True), now=NOW)
    assert await faults(store, minutes=9) == {}


# --- a node that dies -------------------------------------------------------------------------------------


LOFT = replace(OTHER_OWNER, name="node-3", node="loft", site="north", pid=4713)


async def deaths(store: Store, database: Database, *, of: Owner, starts: Owner | None = None) -> list[object]:
    """Have a node find another one dead; return the deaths that stand on record, with their counts."""
    by = OWNER if starts is None else starts
    await store.recovery.reconcile(
        by, now=after(minutes=2), alive=lambda owner: owner.name != of.name, starts=starts is not None
    )
    return open_deaths(database)


def open_deaths(database: Database) -> list[object]:
    rows = [row for row in database.rows("events") if row["resolved_at"] is None]
    return [(row["fingerprint"], row["count"]) for row in rows if str(row["fingerprint"]).startswith(DEAD)]


@pytest.fixture
async def fleet(store: Store) -> Store:
    for owner in (OWNER, OTHER_OWNER, LOFT):
        await store.recovery.reconcile(owner, now=NOW, alive=lambda _: True)
    return store


async def test_death_of_a_node_without_sessions_is_one_event_whoever_finds_it(fleet: Store, database: Database) -> None:
    finders = [
        await fleet.recovery.reconcile(owner, now=NOW, alive=lambda owner: owner.name != LOFT.name, starts=False)
        for owner in (OWNER, OTHER_OWNER)
    ]

    assert [list(found.dead) for found in finders] == [["loft"], []]
    assert open_deaths(database) == [("fleet:dead loft", 1)]
    (event,) = database.rows("events")
    assert event["level"] == "warning"
    assert str(event["message"]).startswith("node loft of site north (pid 4713) has stopped without departing; ")
    assert len(database.rows("outbox")) == 1


async def test_node_that_departs_has_not_died(fleet: Store, database: Database) -> None:
    await fleet.recovery.depart(LOFT)

    assert await deaths(fleet, database, of=LOFT) == []
    assert (await fleet.recovery.reconcile(LOFT, now=NOW, alive=lambda _: True)).is_back is False


async def test_node_that_starts_again_after_its_death_ends_the_event(fleet: Store, database: Database) -> None:
    assert await deaths(fleet, database, of=LOFT) == [("fleet:dead loft", 1)]

    found = await fleet.recovery.reconcile(replace(LOFT, name="node-4"), now=NOW, alive=lambda _: True)

    assert (found.is_back, open_deaths(database)) == (True, [])


async def test_node_that_was_taken_for_dead_and_wakes_up_ends_the_event(fleet: Store, database: Database) -> None:
    assert await deaths(fleet, database, of=LOFT) == [("fleet:dead loft", 1)]

    assert (await fleet.recovery.renew_lease(LOFT, now=NOW)).is_back
    assert not (await fleet.recovery.renew_lease(LOFT, now=NOW)).is_back

    assert open_deaths(database) == []


async def test_daemon_that_finds_its_predecessor_dead_has_not_died_itself(fleet: Store, database: Database) -> None:
    again = replace(LOFT, name="node-4")

    assert await deaths(fleet, database, of=LOFT, starts=again) == []


async def test_daemon_whose_predecessor_is_found_dead_later_has_not_died(fleet: Store, database: Database) -> None:
    await fleet.recovery.reconcile(replace(LOFT, name="node-4"), now=NOW, alive=lambda _: True)

    assert await deaths(fleet, database, of=LOFT) == []


async def test_daemon_that_was_alone_is_no_node_of_a_fleet(store: Store, database: Database) -> None:
    await store.recovery.reconcile(replace(LOFT, is_alone=True), now=NOW, alive=lambda _: True)

    assert await deaths(store, database, of=LOFT, starts=OWNER) == []


async def test_node_that_stays_away_is_forgotten_after_a_week(fleet: Store, database: Database) -> None:
    await deaths(fleet, database, of=LOFT)

    assert set(await faults(fleet, days=7)) == {"fleet:dead loft"}
    assert set(await faults(fleet, days=7, minutes=3)) == set()
