"""Any store: what is wrong with one machine names it, and neither stops another nor is ended by it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from claudeops.domain.events import EventLevel, NewEvent, has_ended, of_node, on_node
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.probes.record import ABANDONED
from claudeops.domain.sessions import Session
from claudeops.store.store import Store
from claudeops.structs import replace
from support.probe_values import probe, turned
from support.store_values import NOW, OTHER_OWNER, OWNER, RULES, after, claimed, queued
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.dialect

FAULT = NewEvent(level=EventLevel.WARNING, message="the file of alerts is wrong.", fingerprint="alerts:file")
WEB, NAS = probe("web"), probe("nas")
NORTH = replace(OTHER_OWNER, site="north")


def full(node: str) -> Hold:
    return Hold(kind=HoldKind.DISK, reason=f"The disk on node {node} is full.", since=NOW, node=node)


def open_events(database: Database) -> list[str]:
    return sorted(str(row["fingerprint"]) for row in database.rows("events") if row["resolved_at"] is None)


def names(database: Database) -> list[str]:
    return sorted(str(row["name"]) for row in database.rows("probes"))


async def both_run(store: Store) -> None:
    for owner in (OWNER, OTHER_OWNER):
        await store.recovery.reconcile(owner, now=NOW, alive=lambda _: True)


async def claims(store: Store) -> tuple[Session | None, Session | None]:
    """Return what the machine in the attic and the one in the cellar claim, each of a session of its own."""
    for _ in range(2):
        await queued(store)
    return await claimed(store, owner=OWNER), await claimed(store, owner=OTHER_OWNER)


# --- events -----------------------------------------------------------------------------------------------


async def test_fault_of_one_machine_names_it_and_is_not_over_where_another_has_none(
    store: Store, database: Database
) -> None:
    await store.probes.note(of_node(FAULT, "attic"), over=False, now=NOW)
    await store.probes.note(of_node(FAULT, "cellar"), over=True, now=NOW)

    (row,) = database.rows("events")
    assert row["message"] == "node attic: the file of alerts is wrong."
    assert open_events(database) == ["alerts:file on node attic"]

    await store.probes.note(of_node(FAULT, "attic"), over=True, now=after(minutes=1))
    assert open_events(database) == []


async def test_start_of_one_node_leaves_the_faults_of_those_that_run_and_of_itself(
    store: Store, database: Database
) -> None:
    await both_run(store)
    for node in ("attic", "cellar", "shed"):
        await store.probes.note(of_node(FAULT, node), over=False, now=NOW)
        await store.holds.hold(full(node), now=NOW)

    await store.recovery.reconcile(replace(OWNER, name="node-1-again"), now=NOW, alive=lambda _: True)

    assert open_events(database) == [
        "alerts:file on node attic",
        "alerts:file on node cellar",
        "hold:disk on node attic",
        "hold:disk on node cellar",
    ]
    assert sorted(str(row["name"]) for row in database.rows("flags")) == ["disk on node attic", "disk on node cellar"]


@pytest.mark.parametrize("name", ["alerts:file", "schedules_file:0a1b", "chat_deaf:ops", "clock", "prompt_file:2"])
async def test_faults_that_an_older_version_left_open_end_with_the_next_start(
    store: Store, database: Database, name: str
) -> None:
    await store.probes.note(replace(FAULT, fingerprint=name), over=False, now=NOW)
    await store.probes.note(replace(FAULT, fingerprint="target_refused:ops"), over=False, now=NOW)
    await store.holds.hold(replace(full(""), reason="A disk is full."), now=NOW)

    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: False)

    assert open_events(database) == ["target_refused:ops"]
    assert database.rows("flags") == []


def test_condition_of_a_service_with_an_odd_name_is_no_machines() -> None:
    assert not has_ended("memory_refused:x:disk on node nas", {"attic"}, is_alone=False)
    assert has_ended("clock on node nas", {"attic", None}, is_alone=False)


def test_name_of_the_machine_is_never_cut_off() -> None:
    name = on_node(f"chat_deaf:{'x' * 400}", "y" * 63)

    assert (len(name), name.endswith(f" on node {'y' * 63}")) == (255, True)


# --- the hold of a full disk ----------------------------------------------------------------------------------


async def test_full_disk_of_one_machine_keeps_it_alone_from_claiming(store: Store, database: Database) -> None:
    await both_run(store)
    await store.holds.hold(full("attic"), now=NOW)

    one, other = await claims(store)

    assert (one, other is not None) == (None, True)
    assert open_events(database) == ["hold:disk on node attic"]
    assert [hold.node for hold in await store.holds.standing(NOW, node="attic")] == ["attic"]
    assert await store.holds.standing(NOW, node="cellar") == ()
    assert await store.holds.standing(NOW) == ()  # a chain can start


async def test_machine_with_room_again_lifts_its_own_hold_alone(store: Store, database: Database) -> None:
    await both_run(store)
    for node in ("attic", "cellar"):
        await store.holds.hold(full(node), now=NOW)
    assert len(await store.holds.standing(NOW)) == 2  # nobody can start a chain

    assert await store.holds.release(HoldKind.DISK, node="cellar", now=NOW)

    assert open_events(database) == ["hold:disk on node attic"]
    one, other = await claims(store)
    assert (one, other is not None) == (None, True)


async def test_pause_is_for_every_machine(store: Store) -> None:
    await both_run(store)
    await store.holds.hold(Hold(kind=HoldKind.PAUSED, reason="supper", since=NOW), now=NOW)

    assert await claims(store) == (None, None)


# --- probes -----------------------------------------------------------------------------------------------


async def test_probes_of_another_site_stay_where_they_are(store: Store, database: Database) -> None:
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: True)
    await store.recovery.reconcile(NORTH, now=NOW, alive=lambda _: True)
    await store.probes.enrol((NAS,), NORTH, now=NOW)

    await store.probes.enrol((WEB,), OWNER, now=after(days=2))
    await store.probes.enrol((), OWNER, now=after(days=2))

    assert names(database) == ["nas"]
    assert [row["site"] for row in database.rows("probes")] == ["north"]


@pytest.mark.parametrize(("later", "left"), [(ABANDONED / 2, ["nas", "web"]), (ABANDONED, ["web"])])
async def test_probes_of_a_site_without_a_daemon_are_kept_for_a_day(
    store: Store, database: Database, later: timedelta, left: list[str]
) -> None:
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: False)
    await store.probes.enrol((NAS,), NORTH, now=NOW)
    looked = turned(NAS, ProbeState.UP)
    await store.probes.observed(
        [replace(looked, standing=replace(looked.standing, last_checked_at=NOW))], owner=NORTH, rules=RULES, now=NOW
    )

    await store.probes.enrol((WEB,), OWNER, now=NOW + later)

    assert names(database) == left


async def test_site_that_gets_another_name_keeps_its_probes(store: Store, database: Database) -> None:
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: False)
    await store.probes.enrol((WEB,), OWNER, now=NOW)
    renamed = replace(OWNER, site="south")
    await store.probes.enrol((WEB,), renamed, now=NOW)

    await store.probes.enrol((), renamed, now=NOW)

    assert names(database) == []
