"""Any store: what operators ask of the daemon is taken once, in its order, and its end is on record."""

from __future__ import annotations

from claudeops.domain.commands import CommandName
from claudeops.engine.ports import Store
from support.store_values import NOW, after
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)


async def test_order_is_taken_once_and_its_end_is_written(store: Store, database: Database) -> None:
    await store.queue.request_command(CommandName.STOP_SESSIONS, by="ada", now=NOW)
    await store.queue.request_command(CommandName.STOP_SESSIONS, by="eve", now=after(minutes=1))

    taken = await store.queue.take_commands(now=after(minutes=2))
    again = await store.queue.take_commands(now=after(minutes=3))
    await store.queue.finish_command(taken[0].id, result="1 session was stopped", error=None, now=after(minutes=4))

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
    assert await store.queue.take_commands(now=NOW) == ()
    assert database.rows("commands") == []
