"""Any store: what several sites see of a probe is decided once, by what is on record, whichever of them writes last."""

from __future__ import annotations

from typing import Final

import pytest

from claudeops.domain.owner import Owner, probes_of
from claudeops.domain.probes.probe import Probe, ProbeState, TcpLook
from claudeops.domain.probes.record import ABANDONED, StoredProbe
from claudeops.errors import StaleTermError
from claudeops.store.store import Store
from claudeops.structs import replace
from support.probe_values import observed, probe, turned
from support.store_values import NOW, OTHER_OWNER, OWNER, RULES, after
from support.stores import Database, opened
from support.told import failed

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.dialect

CRANE: Final = replace(OTHER_OWNER, name="node-3", node="crane", site="dock")
"""A node of another site than `OWNER` and `OTHER_OWNER`, which are of `main`."""

BOTH: Final = probe("shop", sites=("main", "dock"), quorum=2)
EITHER: Final = replace(BOTH, quorum=1)
INCIDENT: Final = "probe:1"


@pytest.fixture
async def sites(store: Store) -> Store:
    """Have a node of each site run, whose files declare the same."""
    for owner in (OWNER, CRANE):
        await store.recovery.reconcile(owner, now=NOW, alive=lambda _: True)
        await store.probes.enrol((BOTH,), owner, now=NOW)
    return store


async def saw(store: Store, owner: Owner, state: ProbeState, *, of: Probe = BOTH, minutes: float = 1) -> StoredProbe:
    """Write what a site sees; return how the probe stands then."""
    at = after(minutes=minutes)
    written = await store.probes.observed([observed(of, state, at=at)], owner=owner, rules=RULES, now=at)
    return written[of.name]


def views(database: Database) -> dict[tuple[object, object], tuple[object, object]]:
    return {(row["probe"], row["site"]): (row["owner"], row["state"]) for row in database.rows("probe_views")}


def messages(database: Database) -> list[tuple[object, bool]]:
    return [(row["message"], row["resolved_at"] is None) for row in database.rows("events")]


async def test_one_site_alone_takes_nothing_down_and_the_second_does_with_one_chain_where_it_is_seen(
    sites: Store, database: Database
) -> None:
    await saw(sites, OWNER, ProbeState.UP)
    alone = await saw(sites, CRANE, ProbeState.DOWN, minutes=2)
    early = await failed(sites.alerts, ["shop"], INCIDENT, now=after(minutes=2))
    before = messages(database)
    together = await saw(sites, OWNER, ProbeState.DOWN, minutes=3)
    first, again = [await failed(sites.alerts, ["shop"], INCIDENT, now=after(minutes=4)) for _ in range(2)]

    assert (alone.standing.state, early.started, before) == (ProbeState.UP, [], [])
    assert together.standing.state is ProbeState.DOWN
    ((session, _),) = first.started
    assert (again.started, session.site) == ([], "main")
    assert "down at main, dock" in str(session.context)
    assert messages(database) == [("shop is down, by its probe shop: down at main, dock", True)]


async def test_the_chain_runs_at_a_site_that_sees_the_failure(sites: Store) -> None:
    await saw(sites, OWNER, ProbeState.UP, of=EITHER)
    await saw(sites, CRANE, ProbeState.DOWN, of=EITHER)
    done = await failed(sites.alerts, ["shop"], INCIDENT, now=after(minutes=2))

    ((session, _),) = done.started
    assert session.site == "dock"
    assert "down at dock, up at main" in str(session.context)


async def test_what_the_last_site_sees_ends_the_event_and_the_incident(sites: Store, database: Database) -> None:
    for owner in (OWNER, CRANE):
        await saw(sites, owner, ProbeState.DOWN)
    await failed(sites.alerts, ["shop"], INCIDENT, now=after(minutes=2))
    up = await saw(sites, OWNER, ProbeState.UP, minutes=3)

    assert (up.standing.state, up.standing.incident) == (ProbeState.UP, "")
    assert [is_open for message, is_open in messages(database) if str(message).startswith("shop is down")] == [False]
    assert (await sites.probes.kept(["shop"]))["shop"].standing == up.standing
    assert await sites.probes.kept(["other"]) == {}


async def test_a_view_of_a_daemon_that_is_gone_is_believed_in_neither_direction(
    sites: Store, database: Database
) -> None:
    await saw(sites, OWNER, ProbeState.DOWN)  # up until now, as nothing has been seen of it
    await saw(sites, CRANE, ProbeState.UP)
    await sites.recovery.reconcile(OWNER, now=after(minutes=2), alive=lambda owner: owner.name == OWNER.name)
    database.execute("DELETE FROM instances WHERE owner = 'node-3'")
    found = [(await saw(sites, OWNER, ProbeState.DOWN, minutes=minute)).standing.state for minute in (2, 3, 4, 5)]
    told = messages(database)
    await sites.recovery.reconcile(CRANE, now=after(minutes=6), alive=lambda _: True)
    back = await saw(sites, CRANE, ProbeState.UP, minutes=6)

    assert found == [ProbeState.UP, ProbeState.UP, ProbeState.UNKNOWN, ProbeState.UNKNOWN]
    assert [(str(message).partition(" of ")[0], is_open) for message, is_open in told] == [
        ("node crane", True),
        ("nothing is known", True),
    ]
    assert str(told[-1][0]).startswith("nothing is known of shop any more")
    assert back.standing.state is ProbeState.UP
    assert not any(is_open for _, is_open in messages(database))


async def test_another_node_of_the_site_goes_on_with_its_view(sites: Store, database: Database) -> None:
    await saw(sites, OWNER, ProbeState.DOWN)
    kept = await sites.probes.enrol((BOTH,), OTHER_OWNER, now=after(minutes=2))

    view = kept["shop"].view
    assert view is not None
    assert (view.site, view.standing.state, view.standing.failures) == ("main", ProbeState.DOWN, 3)
    assert views(database)["shop", "main"] == (OTHER_OWNER.name, "down")


async def test_a_site_that_is_not_named_has_no_view_and_leaves_those_of_the_others(
    sites: Store, database: Database
) -> None:
    wood = replace(CRANE, name="node-4", site="wood")
    kept = await sites.probes.enrol((BOTH,), wood, now=NOW)
    await sites.probes.enrol((), replace(wood, name="node-5"), now=NOW)  # nor does it declare the probe any longer

    assert kept["shop"].view is None
    assert sorted(views(database)) == [("shop", "dock"), ("shop", "main")]
    assert [row["name"] for row in database.rows("probes")] == ["shop"]


async def test_a_probe_goes_with_the_last_site_that_declares_it(sites: Store, database: Database) -> None:
    await sites.probes.enrol((), OWNER, now=NOW)
    left = (views(database), [row["name"] for row in database.rows("probes")])
    await sites.probes.enrol((), CRANE, now=NOW)

    assert left == ({("shop", "dock"): (CRANE.name, "unknown")}, ["shop"])
    assert (views(database), database.rows("probes")) == ({}, [])


async def test_what_a_site_that_no_longer_exists_saw_goes_after_a_day(sites: Store, database: Database) -> None:
    await saw(sites, CRANE, ProbeState.UP)
    database.execute("DELETE FROM instances WHERE owner = 'node-3'")
    await sites.probes.enrol((BOTH,), OWNER, now=after(minutes=1) + ABANDONED / 2)
    soon = sorted(views(database))
    await sites.probes.enrol((BOTH,), OWNER, now=after(minutes=1) + ABANDONED)

    assert (soon, sorted(views(database))) == ([("shop", "dock"), ("shop", "main")], [("shop", "main")])


async def test_another_question_under_the_same_name_begins_anew_at_every_site(sites: Store) -> None:
    for owner in (OWNER, CRANE):
        await saw(sites, owner, ProbeState.DOWN)
    other = replace(BOTH, look=TcpLook(host="shop.test", port=80))
    kept = await sites.probes.enrol((other,), OWNER, now=after(minutes=2))
    seen = await saw(sites, OWNER, ProbeState.DOWN, of=other, minutes=3)

    assert kept["shop"].standing.state is seen.standing.state is ProbeState.UNKNOWN  # the other site has seen nothing


async def test_a_probe_that_has_one_site_again_is_that_sites_alone(sites: Store, database: Database) -> None:
    plain = replace(BOTH, sites=(), quorum=0)
    await sites.probes.enrol((plain,), OWNER, now=NOW)
    batch = [turned(plain, ProbeState.DOWN, at=after(minutes=1))]
    await sites.probes.observed(batch, owner=OWNER, rules=RULES, now=after(minutes=1))

    assert (await sites.probes.kept())["shop"].standing.state is ProbeState.DOWN
    assert ("shop", "main") not in views(database)


async def test_a_view_of_a_probe_that_is_not_on_record_is_passed_over(store: Store, database: Database) -> None:
    at = after(minutes=1)
    assert not await store.probes.observed([observed(BOTH, ProbeState.DOWN)], owner=OWNER, rules=RULES, now=at)

    assert views(database) == {}


async def test_a_node_that_has_lost_its_sites_probes_can_neither_say_nor_decide_anything(
    sites: Store, database: Database
) -> None:
    await saw(sites, CRANE, ProbeState.DOWN)
    await sites.leases.take([probes_of("main")], OWNER.name, alone=True)
    async with opened(database) as other:
        await other.leases.take([probes_of("main")], OTHER_OWNER.name, alone=True)
        with pytest.raises(StaleTermError):
            await saw(sites, OWNER, ProbeState.DOWN)

    assert views(database)["shop", "main"] == (OWNER.name, "unknown")
    assert [row["state"] for row in database.rows("probes")] == ["unknown"]
