"""Any store with several owners: who lives keeps what it has, and who is dead is succeeded once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

import anyio
import pytest

from claudeops.domain.gate.approval import ApprovalStatus, NewApproval
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.owner import OWNER_LEASE, Outlook, Owner
from claudeops.domain.sessions import Session
from claudeops.engine.owners import lives
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import NOW, OTHER_OWNER, OWNER, after, call, claimed, queued, wanted
from support.stores import Database, opened, silent_for

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

NEXT_OWNER: Final = replace(OTHER_OWNER, boot_id="boot-2")
FAR_OWNER: Final = replace(OTHER_OWNER, name="node-3", boot_id="boot-3")
DEAD_SECONDS: Final = OWNER_LEASE.total_seconds() + 1


def by_lease(
    owner: Owner = OWNER, *, sole: bool = False, watched: timedelta = 2 * OWNER_LEASE
) -> Callable[[Owner], bool]:
    return partial(lives, outlook=Outlook(owner=owner, sole=sole, watched=watched))


async def registered(store: Store, *owners: Owner) -> None:
    for owner in owners:
        await store.recovery.reconcile(owner, now=NOW, alive=lambda _: True)


async def running(store: Store, owner: Owner) -> Session:
    """Return a session that an owner runs, with a question of it that is open."""
    await queued(store, wanted(3))
    session = await claimed(store, owner=owner)
    assert session is not None
    new = NewApproval(
        session=session,
        call=call("toolu_1"),
        call_hash="aa11",
        workdir="/work",
        redacted_input="{}",
        scripts=(),
        reason="restarts the database",
        requested_at=NOW,
        expires_at=after(minutes=15),
    )
    await store.approvals.request_approval(new)
    return session


def owners(database: Database) -> dict[object, object]:
    return {row["id"]: row["owner"] for row in database.rows("sessions")}


def questions(database: Database) -> dict[object, object]:
    return {row["session_id"]: row["status"] for row in database.rows("approvals")}


def names(database: Database) -> list[str]:
    return sorted(str(row["owner"]) for row in database.rows("instances"))


@pytest.mark.parametrize("starts", [False, True])
async def test_owner_that_lives_elsewhere_keeps_its_sessions_its_questions_and_its_row(
    store: Store, database: Database, starts: bool
) -> None:
    await registered(store, FAR_OWNER, OWNER)
    session = await running(store, FAR_OWNER)
    silent_for(database, FAR_OWNER.name, DEAD_SECONDS - 10)

    taken = (await store.recovery.reconcile(OWNER, now=NOW, alive=by_lease(), starts=starts)).sessions

    assert (taken, owners(database)) == ((), {session.id: FAR_OWNER.name})
    assert questions(database) == {session.id: ApprovalStatus.PENDING.value}
    assert names(database) == [OWNER.name, FAR_OWNER.name]


@pytest.mark.parametrize("starts", [False, True])
async def test_owner_whose_lease_is_over_is_succeeded_and_no_other_one(
    store: Store, database: Database, starts: bool
) -> None:
    await registered(store, NEXT_OWNER, FAR_OWNER, OWNER)
    own, living, dead = [await running(store, owner) for owner in (OWNER, NEXT_OWNER, FAR_OWNER)]
    silent_for(database, FAR_OWNER.name, DEAD_SECONDS)

    (taken,) = (await store.recovery.reconcile(OWNER, now=NOW, alive=by_lease(), starts=starts)).sessions

    # A daemon that starts has run nothing yet under its name: what has that name stays its own.
    assert (taken.id, taken.attempt) == (dead.id, 2)
    assert owners(database) == {own.id: OWNER.name, living.id: NEXT_OWNER.name, dead.id: OWNER.name}
    assert questions(database) == {
        own.id: ApprovalStatus.PENDING.value,
        living.id: ApprovalStatus.PENDING.value,
        dead.id: ApprovalStatus.DENIED.value,
    }
    assert names(database) == [OWNER.name, NEXT_OWNER.name]


async def test_leases_of_a_dead_owner_are_free_at_once_and_no_other_ones(store: Store, database: Database) -> None:
    await registered(store, NEXT_OWNER, FAR_OWNER, OWNER)
    silent_for(database, FAR_OWNER.name, DEAD_SECONDS)
    await store.leases.take(["alerts"], FAR_OWNER.name)
    await store.leases.take(["notices"], NEXT_OWNER.name)

    await store.recovery.reconcile(OWNER, now=NOW, alive=by_lease(), starts=False)

    held = await store.leases.holders()
    assert {name: lease.owner for name, lease in held.items()} == {"notices": NEXT_OWNER.name}


async def test_two_that_see_an_owner_dead_succeed_it_once(database: Database) -> None:
    async with opened(database) as store, opened(database) as second:
        await registered(store, FAR_OWNER, NEXT_OWNER, OWNER)
        session = await running(store, FAR_OWNER)
        silent_for(database, FAR_OWNER.name, DEAD_SECONDS)
        taken: list[tuple[str, int, int]] = []

        async def sweep(by: Store, owner: Owner) -> None:
            found = (await by.recovery.reconcile(owner, now=NOW, alive=by_lease(owner), starts=False)).sessions
            taken.extend((owner.name, one.id, one.attempt) for one in found)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sweep, store, OWNER)
            tasks.start_soon(sweep, second, NEXT_OWNER)

    ((by, session_id, attempt),) = taken
    assert (session_id, attempt) == (session.id, 2)
    assert owners(database) == {session.id: by}
    assert names(database) == [OWNER.name, NEXT_OWNER.name]


async def test_whoever_was_away_takes_no_other_for_dead_before_a_lease_has_passed(
    store: Store, database: Database
) -> None:
    await registered(store, FAR_OWNER, OWNER)
    session = await running(store, FAR_OWNER)
    silent_for(database, FAR_OWNER.name, 3600)

    early = by_lease(watched=OWNER_LEASE - timedelta(seconds=1))
    assert (await store.recovery.reconcile(OWNER, now=NOW, alive=early, starts=False)).sessions == ()
    (taken,) = (
        await store.recovery.reconcile(OWNER, now=NOW, alive=by_lease(watched=OWNER_LEASE), starts=False)
    ).sessions

    assert taken.id == session.id


async def test_sole_daemon_waits_for_no_lease(store: Store, database: Database) -> None:
    await registered(store, FAR_OWNER)
    session = await running(store, FAR_OWNER)
    silent_for(database, FAR_OWNER.name, 0)

    alive = by_lease(sole=True, watched=timedelta(0))
    (taken,) = (await store.recovery.reconcile(OWNER, now=NOW, alive=alive)).sessions

    assert (taken.id, names(database)) == (session.id, [OWNER.name])


async def test_session_that_waits_for_its_log_keeps_its_dead_owner_and_is_found_again(
    store: Store, database: Database
) -> None:
    await registered(store, FAR_OWNER, OWNER)
    session = await running(store, FAR_OWNER)
    silent_for(database, FAR_OWNER.name, DEAD_SECONDS)

    dead, (orphan,) = await store.recovery.left_behind(OWNER, now=after(minutes=5), alive=by_lease())
    assert ([owner.name for owner in dead], orphan.owner) == ([FAR_OWNER.name], FAR_OWNER)
    assert (orphan.session, orphan.silent) == (session, timedelta(minutes=5))
    spared = {session.id}
    assert (
        await store.recovery.reconcile(OWNER, now=NOW, alive=by_lease(), starts=False, spared=spared)
    ).sessions == ()

    assert (owners(database), names(database)) == ({session.id: FAR_OWNER.name}, [OWNER.name])
    assert questions(database) == {session.id: ApprovalStatus.PENDING.value}
    assert (await store.recovery.renew_lease(OWNER, now=NOW)).orphans == {session.id}
    nobody, (orphan,) = await store.recovery.left_behind(OWNER, now=NOW, alive=by_lease())
    assert (nobody, orphan.owner) == ([], None)
    await store.recovery.renew_lease(FAR_OWNER, now=NOW)  # it was away, and goes on
    assert await store.recovery.left_behind(OWNER, now=NOW, alive=by_lease()) == ([], [])


async def test_sign_of_life_shows_who_else_there_is_and_what_the_departed_left(
    store: Store, database: Database
) -> None:
    await registered(store, OWNER, FAR_OWNER, NEXT_OWNER)
    left = await running(store, NEXT_OWNER)
    own = await running(store, OWNER)
    await store.recovery.depart(NEXT_OWNER)
    silent_for(database, FAR_OWNER.name, 40)

    life = await store.recovery.renew_lease(OWNER, now=NOW)

    assert (list(life.others), set(life.orphans), set(life.running)) == ([FAR_OWNER], {left.id}, {(own.id, 1)})
    assert timedelta(seconds=40) <= life.others[0].silent < OWNER_LEASE
    await store.recovery.depart(FAR_OWNER)
    assert (await store.recovery.renew_lease(OWNER, now=NOW)).others == ()


@pytest.mark.parametrize(("others", "tried"), [((), True), ((FAR_OWNER,), False)])
async def test_refused_credentials_are_tried_by_the_start_of_the_first_daemon_alone(
    store: Store, others: tuple[Owner, ...], tried: bool
) -> None:
    await registered(store, *others)
    breaker = Hold(kind=HoldKind.BREAKER, reason="refused", since=NOW, until=after(minutes=15), failures=3)
    await store.holds.hold(breaker, now=NOW)

    await store.recovery.reconcile(OWNER, now=after(minutes=0.1), alive=by_lease())
    await store.recovery.reconcile(OWNER, now=after(minutes=0.2), alive=by_lease(), starts=False)

    (hold,) = await store.holds.standing(after(minutes=1))
    assert hold.until == (after(minutes=0.1) if tried else after(minutes=15))
