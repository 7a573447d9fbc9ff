"""Any store: what operators ask of the daemon is taken once, in its order, and its end is on record."""

from __future__ import annotations

import pytest

from claudeops.domain.commands import CommandName, StopTarget
from claudeops.domain.sessions import DecisionReason, Outcome, Session, Status
from claudeops.store.store import Store
from support.store_values import NOW, OWNER, RULES, after, wanted
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect


async def test_order_is_taken_once_and_its_end_is_written(store: Store, database: Database) -> None:
    await store.commands.request(CommandName.STOP_SESSIONS, by="ada", now=NOW)
    await store.commands.request(CommandName.STOP_SESSIONS, by="eve", now=after(minutes=1))

    taken = await store.commands.take(now=after(minutes=2))
    again = await store.commands.take(now=after(minutes=3))
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
    assert await store.commands.take(now=NOW) == ()
    assert database.rows("commands") == []


async def test_arguments_and_results_are_read_as_they_were_written(store: Store) -> None:
    asked = await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments={"chain": 7})
    (taken,) = await store.commands.take(now=after(minutes=1))
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

    taken = await store.commands.take(now=after(minutes=1))

    assert [dict(order.arguments) for order in taken] == [{}, {"chain": 8}]


async def test_what_a_dead_daemon_took_and_never_ended_is_taken_again_on_request(store: Store) -> None:
    for chain in (7, 8):
        await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments={"chain": chain})
    first, second = await store.commands.take(now=after(minutes=1))
    await store.commands.finish(first.id, taken_at=after(minutes=1), result="stopped", error=None, now=after(minutes=2))

    assert await store.commands.take(now=after(minutes=3)) == ()
    (left,) = await store.commands.take(now=after(minutes=3), again=True)

    assert (left.id, left.taken_at) == (second.id, after(minutes=1))


async def test_daemon_that_took_a_command_before_another_one_did_does_not_say_what_came_of_it(
    store: Store, database: Database
) -> None:
    asked = await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments={"chain": 7})
    await store.commands.take(now=after(minutes=1))
    await store.commands.take(now=after(minutes=2), again=True)

    said = {"result": "stopped", "error": None}
    assert await store.commands.finish(asked, taken_at=after(minutes=2), now=after(minutes=3), **said)
    late = {"result": None, "error": "lost"}
    assert not await store.commands.finish(asked, taken_at=after(minutes=1), now=after(minutes=4), **late)

    (row,) = database.rows("commands")
    assert (row["ended_at"], row["result"], row["error"]) == (after(minutes=3), "stopped", None)


async def test_a_command_is_withdrawn_only_before_it_is_taken(store: Store) -> None:
    early, late = [
        await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments={"chain": chain})
        for chain in (7, 8)
    ]
    assert await store.commands.withdraw(early, why="nobody took it", now=after(minutes=1))
    (taken,) = await store.commands.take(now=after(minutes=2))

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
    (running,) = await store.queue.claim(
        OWNER, rules=RULES, now=after(minutes=5), cli_session_id=lambda: "c", log_path=lambda _: "/logs/1"
    )
    end = {"why": "cancelled: stopped by ada", "rules": RULES, "now": after(minutes=6)}

    assert await store.queue.end_queued(StopTarget(chain=running.id), **end) == ([], [running.id])  # type: ignore[arg-type]
    assert await store.queue.end_queued(StopTarget(session_id=2), **end) == ([2], [])  # type: ignore[arg-type]
    assert await store.queue.end_queued(StopTarget(chain=3), **end) == ([3], [])  # type: ignore[arg-type]
    assert await store.queue.end_queued(StopTarget(chain=3), **end) == ([], [])  # type: ignore[arg-type]
    assert await store.queue.end_queued(StopTarget(chain=99), **end) == ([], [])  # type: ignore[arg-type]

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
