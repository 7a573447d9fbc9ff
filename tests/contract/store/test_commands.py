"""Any store: what operators ask of the daemon is taken once, in its order, and its end is on record."""

from __future__ import annotations

from functools import partial

import pytest

from claudeops.domain.commands import CommandName, StopTarget
from claudeops.domain.owner import Owner
from claudeops.domain.sessions import DecisionReason, Outcome, Session, Status
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import NOW, OTHER_OWNER, OWNER, RULES, after, claimed, wanted
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect


async def test_order_is_taken_once_and_its_end_is_written(store: Store, database: Database) -> None:
    await store.commands.request(CommandName.STOP_SESSIONS, by="ada", now=NOW)
    await store.commands.request(CommandName.STOP_SESSIONS, by="eve", now=after(minutes=1))

    taken = await store.commands.take(OWNER.name, now=after(minutes=2))
    again = await store.commands.take(OWNER.name, now=after(minutes=3))
    await store.commands.finish(
        taken[0].id, taken_at=after(minutes=2), result="1 session was stopped", error=None, now=after(minutes=4)
    )

    assert [(order.name, order.requested_by, order.requested_at) for order in taken] == [
        ("stop_sessions", "ada", NOW),
        ("stop_sessions", "eve", after(minutes=1)),
    ]
    assert again == ()
    rows = database.rows("commands")
    assert [(row["taken_at"], row["ended_at"], row["result"]) for row in rows] == [
        (after(minutes=2), after(minutes=4), "1 session was stopped"),
        (after(minutes=2), None, None),
    ]


async def test_without_an_order_nothing_is_written(store: Store, database: Database) -> None:
    assert await store.commands.take(OWNER.name, now=NOW) == ()
    assert database.rows("commands") == []


async def test_arguments_and_results_are_read_as_they_were_written(store: Store) -> None:
    (asked,) = await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments={"chain": 7})
    (taken,) = await store.commands.take(OWNER.name, now=after(minutes=1))
    await store.commands.finish(
        asked, taken_at=after(minutes=1), result=None, error="there is no chain 7", now=after(minutes=2)
    )
    found = await store.commands.find(asked)

    assert (taken.id, dict(taken.arguments), taken.taken_at) == (asked, {"chain": 7}, None)
    assert found is not None
    assert (found.taken_at, found.ended_at) == (after(minutes=1), after(minutes=2))
    assert (found.result, found.error) == (None, "there is no chain 7")
    assert await store.commands.find(asked + 1) is None


@pytest.mark.parametrize("garbled", ["", "[7]", "{", "null"])
async def test_arguments_that_nobody_can_read_do_not_keep_the_others_waiting(
    store: Store, database: Database, garbled: str
) -> None:
    await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments={"chain": 7})
    await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments={"chain": 8})
    database.execute("UPDATE commands SET arguments = :garbled WHERE id = 1", garbled=garbled)

    taken = await store.commands.take(OWNER.name, now=after(minutes=1))

    assert [dict(order.arguments) for order in taken] == [{}, {"chain": 8}]


async def living(store: Store, *owners: Owner) -> None:
    for owner in owners:
        await store.recovery.reconcile(owner, now=NOW, alive=lambda _: True)


async def died(store: Store, owner: Owner, *, by: Owner) -> None:
    await store.recovery.reconcile(by, now=NOW, alive=lambda other: other.name != owner.name, starts=False)


async def test_what_a_daemon_took_is_taken_again_when_it_is_dead_and_never_while_it_works_on_it(store: Store) -> None:
    await living(store, OWNER, OTHER_OWNER)
    for chain in (7, 8):
        await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments={"chain": chain})
    first, second = await store.commands.take(OWNER.name, now=after(minutes=1))
    await store.commands.finish(first.id, taken_at=after(minutes=1), result="stopped", error=None, now=after(minutes=2))

    for owner in (OWNER, OTHER_OWNER):
        assert await store.commands.take(owner.name, now=after(minutes=3), again=True) == ()
    await died(store, OWNER, by=OTHER_OWNER)
    (left,) = await store.commands.take(OTHER_OWNER.name, now=after(minutes=3))

    assert (left.id, left.taken_at) == (second.id, after(minutes=1))
    assert await store.commands.take(OWNER.name, now=after(minutes=4)) == (), "it was taken for dead, and looks again"


async def test_daemon_without_a_row_does_not_take_again_what_it_works_on(store: Store) -> None:
    await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments={"chain": 7})
    assert len(await store.commands.take(OWNER.name, now=after(minutes=1))) == 1
    assert await store.commands.take(OWNER.name, now=after(minutes=2), again=True) == ()


async def test_what_runs_is_stopped_by_every_daemon_that_lives_once(store: Store, database: Database) -> None:
    await living(store, OWNER, OTHER_OWNER)

    ids = await store.commands.request(CommandName.STOP_SESSIONS, by="ada", now=NOW)

    assert len(ids) == 2
    for owner, own in zip((OWNER, OTHER_OWNER), ids, strict=True):
        (taken,) = await store.commands.take(owner.name, now=after(minutes=1))
        assert (taken.id, taken.for_owner) == (own, owner.name)
        assert await store.commands.take(owner.name, now=after(minutes=2)) == ()
    assert [row["taken_by"] for row in database.rows("commands")] == [OWNER.name, OTHER_OWNER.name]


@pytest.mark.parametrize("of_chain", [False, True])
async def test_stop_is_for_the_daemon_that_runs_the_session_until_that_is_dead(store: Store, of_chain: bool) -> None:
    await living(store, OWNER, OTHER_OWNER)
    (session,) = await queued(store, 1)
    assert await claimed(store, owner=OTHER_OWNER) is not None
    target = StopTarget(chain=session.id) if of_chain else StopTarget(session_id=session.id)

    (command,) = await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments=target.arguments)

    assert await store.commands.take(OWNER.name, now=after(minutes=1)) == ()
    await died(store, OTHER_OWNER, by=OWNER)
    (taken,) = await store.commands.take(OWNER.name, now=after(minutes=2))
    assert (taken.id, taken.for_owner, taken.taken_at) == (command, OTHER_OWNER.name, None)


async def test_command_of_an_older_version_is_for_any_daemon_and_one_that_it_took_is_taken_by_the_next(
    store: Store, database: Database
) -> None:
    await living(store, OWNER, OTHER_OWNER)
    written = "INSERT INTO commands (name, arguments, requested_at) VALUES ('stop', '{}', '2026-03-01 12:00:00.000000')"
    database.execute(written)
    (taken,) = await store.commands.take(OTHER_OWNER.name, now=NOW)
    assert (taken.for_owner, taken.taken_at) == (None, None)

    database.execute("UPDATE commands SET taken_by = NULL")
    assert await store.commands.take(OWNER.name, now=after(minutes=1)) == ()
    (again,) = await store.commands.take(OWNER.name, now=after(minutes=1), again=True)
    assert (again.id, again.taken_at) == (taken.id, NOW)


async def test_command_is_passed_on_once_to_those_that_live(store: Store, database: Database) -> None:
    third = replace(OTHER_OWNER, name="node-3")
    await living(store, OWNER, OTHER_OWNER, third)
    await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments={"chain": 7})
    (command,) = await store.commands.take(OWNER.name, now=NOW)
    await died(store, third, by=OWNER)

    for _ in range(2):
        owners = {OWNER.name, OTHER_OWNER.name, third.name}
        assert await store.commands.pass_on(command, owners=owners, now=NOW) == {OWNER.name, OTHER_OWNER.name}

    rows = [(row["for_owner"], row["taken_by"], row["requested_by"]) for row in database.rows("commands")]
    assert rows == [(None, OWNER.name, "ada"), (OTHER_OWNER.name, None, "ada")]
    (passed,) = await store.commands.take(OTHER_OWNER.name, now=NOW)
    assert dict(passed.arguments) == {"chain": 7}


async def test_daemon_that_took_a_command_before_another_one_did_does_not_say_what_came_of_it(
    store: Store, database: Database
) -> None:
    (asked,) = await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments={"chain": 7})
    await store.commands.take(OWNER.name, now=after(minutes=1))
    await store.commands.take(OTHER_OWNER.name, now=after(minutes=2))

    said = {"result": "stopped", "error": None}
    assert await store.commands.finish(asked, taken_at=after(minutes=2), now=after(minutes=3), **said)
    late = {"result": None, "error": "lost"}
    assert not await store.commands.finish(asked, taken_at=after(minutes=1), now=after(minutes=4), **late)

    (row,) = database.rows("commands")
    assert (row["ended_at"], row["result"], row["error"]) == (after(minutes=3), "stopped", None)


async def test_a_command_is_withdrawn_only_before_it_is_taken(store: Store) -> None:
    (early,), (late,) = [
        await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments={"chain": chain})
        for chain in (7, 8)
    ]
    assert await store.commands.withdraw(early, why="nobody took it", now=after(minutes=1))
    (taken,) = await store.commands.take(OWNER.name, now=after(minutes=2))

    assert taken.id == late
    assert not await store.commands.withdraw(late, why="nobody took it", now=after(minutes=3))
    assert not await store.commands.withdraw(early, why="nobody took it", now=after(minutes=3))


async def queued(store: Store, count: int) -> list[Session]:
    sessions = []
    for minute in range(count):
        session = await store.queue.enqueue(wanted(), rules=RULES, now=after(minutes=minute))
        assert isinstance(session, Session)
        sessions.append(session)
    return sessions


async def test_what_is_queued_of_a_chain_ends_and_what_runs_is_named(store: Store) -> None:
    await queued(store, 3)
    (running,) = await store.claims.claim(
        OWNER, rules=RULES, now=after(minutes=5), cli_session_id=lambda: "c", log_path=lambda _: "/logs/1"
    )
    end = partial(store.queue.end_queued, why="cancelled: stopped by ada", rules=RULES, now=after(minutes=6))

    async def left(target: StopTarget) -> tuple[list[int], dict[int, str]]:
        ended, running = await end(target)
        return list(ended), dict(running)

    assert await left(StopTarget(chain=running.id)) == ([], {running.id: OWNER.name})
    assert await left(StopTarget(session_id=2)) == ([2], {})
    assert await left(StopTarget(chain=3)) == ([3], {})
    assert await left(StopTarget(chain=3)) == ([], {})
    assert await left(StopTarget(chain=99)) == ([], {})

    (ended,) = await store.records.chain(2)
    assert (ended.status, ended.outcome, ended.decision_reason) == (
        Status.ENDED,
        Outcome.CANCELLED,
        DecisionReason.PAUSED,
    )
    assert (ended.error, ended.ended_at) == ("cancelled: stopped by ada", after(minutes=6))


async def test_the_version_of_a_database_changes_when_another_process_writes_and_while_nothing_does_it_stays(
    store: Store, database: Database
) -> None:
    before = await store.database.version()
    assert await store.commands.find(1) is None
    assert await store.database.version() == before

    other = database.open()
    await other.commands.request(CommandName.STOP_SESSIONS, by="ada", now=NOW)
    await other.close()

    assert await store.database.version() != before
