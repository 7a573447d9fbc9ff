"""The audit trail shows what was done to it afterwards, and not what was removed in good order."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import pytest
import sqlalchemy as sa

from claudeops.domain.calls import CliRefusal, ToolEnd, Verdict, VerdictKind
from claudeops.domain.sessions import Finished
from claudeops.store.calls import RETENTION, bury
from claudeops.store.store import Store
from claudeops.store.verify import Deviation, FaultKind, Logged, verify
from support.store_values import (
    NOW,
    RULES,
    after,
    allow,
    call,
    check,
    ending,
    gone,
    recorded,
    report,
    started,
    wanted,
)
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)

DENY = Verdict(kind=VerdictKind.DENY, reason="not for this tier")


async def session_with_calls(store: Store, calls: int = 3) -> Finished:
    """Run a session whose calls all have results."""
    session = await started(store)
    for number in range(calls):
        await recorded(store, session, f"toolu_{number}", DENY if number else allow(), at=after(minutes=number))
    ends = tuple(
        ToolEnd(tool_use_id=f"toolu_{number}", ended_at=after(minutes=9), is_error=bool(number))
        for number in range(calls)
    )
    return await store.queue.finish(ending(session, report(check("web")), tool_ends=ends), rules=RULES)


async def faults(
    database: Database, logged: dict[int, Logged] | None = None
) -> list[tuple[FaultKind, int | None, int | None]]:
    async with opened(database) as store:
        found: Iterable[Deviation] = (await store.audit.verify(logged=logged)).faults
    return [(fault.kind, fault.session_id, fault.call_id) for fault in found]


@pytest.fixture
async def trail(database: Database) -> Finished:
    """Return the end of the second of two sessions with three calls each."""
    async with opened(database) as store:
        await session_with_calls(store)
        return await session_with_calls(store)


@pytest.mark.dialect
async def test_untouched_trail_has_no_fault(database: Database, trail: Finished) -> None:
    assert await faults(database, {2: Logged(audit_head=trail.audit_head, audit_results=trail.audit_results)}) == []


@pytest.mark.usefixtures("trail")
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        pytest.param(
            "UPDATE tool_calls SET reason = 'only looks' WHERE id = 2", [(FaultKind.CHANGED, 1, 2)], id="another reason"
        ),
        pytest.param(
            "UPDATE tool_calls SET verdict = 'allow' WHERE id = 5", [(FaultKind.CHANGED, 2, 5)], id="another verdict"
        ),
        pytest.param(
            "UPDATE tool_calls SET decided_at = requested_at, requested_at = '2026-03-01 11:00:00.000000' WHERE id = 1",
            [(FaultKind.CHANGED, 1, 1)],
            id="another time",
        ),
        pytest.param(
            "UPDATE tool_calls SET ran = '{}' WHERE id = 1", [(FaultKind.CHANGED, 1, 1)], id="as if something else ran"
        ),
        pytest.param(
            "UPDATE tool_calls SET is_error = NOT is_error WHERE id = 4", [(FaultKind.CHANGED, 2, None)], id="a result"
        ),
        pytest.param("DELETE FROM tool_calls WHERE id = 1", [(FaultKind.MISSING, 1, None)], id="the first row gone"),
        pytest.param(
            "DELETE FROM tool_calls WHERE id = 2", [(FaultKind.MISSING, 1, None)], id="a row in the middle gone"
        ),
        pytest.param("DELETE FROM tool_calls WHERE id = 6", [(FaultKind.MISSING, 2, None)], id="the tail cut off"),
        pytest.param("DELETE FROM tool_calls WHERE session_id = 1", [(FaultKind.MISSING, 1, None)], id="all rows gone"),
        pytest.param(
            "INSERT INTO tool_calls (session_id, tool_use_id, tool_name, input, verdict, reason, requested_at,"
            " decided_at, previous_hash, hash) SELECT session_id, 'toolu_x', tool_name, input, verdict, reason,"
            " requested_at, decided_at, previous_hash, 'made up' FROM tool_calls WHERE id = 3",
            [(FaultKind.CHANGED, 1, 7), (FaultKind.ADDED, 1, 7)],
            id="a row put in",
        ),
    ],
)
async def test_what_was_done_to_a_row_is_found_and_named(
    database: Database, statement: str, expected: list[tuple[FaultKind, int, int | None]]
) -> None:
    database.execute(statement)

    assert await faults(database) == expected


@pytest.mark.dialect
async def test_trail_made_anew_with_its_head_is_found_out_by_the_log(database: Database, trail: Finished) -> None:
    database.execute("DELETE FROM tool_calls WHERE session_id = 2")
    database.execute("UPDATE sessions SET audit_head = '', audit_results = NULL WHERE id = 2")

    assert await faults(database) == []
    logged = {2: Logged(audit_head=trail.audit_head, audit_results=trail.audit_results)}
    assert await faults(database, logged) == [(FaultKind.CHANGED, 2, None)]


async def test_session_that_went_without_a_trace_is_missing(sqlite: Database) -> None:
    async with opened(sqlite) as store:
        await session_with_calls(store)
        last = await session_with_calls(store)
    for table in ("events", "service_checks", "tool_calls"):
        sqlite.execute(f"DELETE FROM {table} WHERE session_id = 2")  # noqa: S608 - a name from above
    sqlite.execute("UPDATE events SET last_session_id = NULL")
    sqlite.execute("DELETE FROM sessions WHERE id = 2")

    assert await faults(sqlite) == [(FaultKind.MISSING, 2, None)]
    logged = {2: Logged(audit_head=last.audit_head, audit_results=None)}
    assert (FaultKind.MISSING, 2, None) in await faults(sqlite, logged)


def buried(database: Database, *session_ids: int, reason: str = RETENTION) -> int:
    with database.connect() as connection:
        count = bury(connection, session_ids, reason=reason, at=NOW)
        connection.commit()
        return count


async def test_calls_that_retention_removed_are_no_fault(database: Database, trail: Finished) -> None:
    assert buried(database, 2, 1) == 2
    assert buried(database, 1, 2, 3) == 0

    assert database.rows("tool_calls") == []
    assert [(row["session_id"], row["calls"], row["reason"]) for row in database.rows("audit_tombstones")] == [
        (1, 3, "retention"),
        (2, 3, "retention"),
    ]
    assert await faults(database, {2: Logged(audit_head=trail.audit_head, audit_results=trail.audit_results)}) == []


@pytest.mark.usefixtures("trail")
async def test_session_that_was_deleted_in_good_order_is_no_fault(database: Database) -> None:
    buried(database, 2, reason="deleted")
    for statement in (
        "DELETE FROM service_checks WHERE session_id = 2",
        "UPDATE events SET session_id = NULL, last_session_id = NULL",
        "DELETE FROM sessions WHERE parent_session_id = 2 OR id = 2",
    ):
        database.execute(statement)

    assert await faults(database) == []


@pytest.mark.usefixtures("trail")
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        pytest.param(
            "UPDATE audit_tombstones SET calls = 1 WHERE id = 1",
            [(FaultKind.CHANGED, 1, None)],
            id="a changed tombstone",
        ),
        pytest.param(
            "DELETE FROM audit_tombstones WHERE id = 1",
            [(FaultKind.MISSING, 2, None), (FaultKind.MISSING, 1, None)],
            id="a tombstone gone",
        ),
        pytest.param(
            "DELETE FROM audit_tombstones WHERE id = 2", [(FaultKind.MISSING, 2, None)], id="the last tombstone gone"
        ),
    ],
)
async def test_tombstones_are_no_way_to_hide_something(
    database: Database, statement: str, expected: list[tuple[FaultKind, int, int | None]]
) -> None:
    buried(database, 1, 2)

    database.execute(statement)

    assert await faults(database) == expected


@pytest.mark.dialect
async def test_tombstones_are_a_chain_of_their_own(store: Store, database: Database) -> None:
    await session_with_calls(store)
    await session_with_calls(store)
    assert buried(database, 1, 2, 9) == 2

    first, second = database.rows("audit_tombstones")
    assert (first["previous_hash"], second["previous_hash"]) == ("", first["hash"])
    assert [row["audit_head"] for row in database.rows("sessions")] == [first["audit_head"], second["audit_head"]]
    assert database.rows("tool_calls") == []


async def test_call_that_the_cli_refused_itself_joins_the_trail(store: Store, database: Database) -> None:
    session = await started(store)
    await recorded(store, session, "toolu_1", allow())
    refused = CliRefusal(
        call=call("toolu_2", "sleep 1 &"),
        redacted_input='{"command":"sleep 1 &"}',
        reason="refused by the CLI itself: Permission to use Bash has been denied",
        at=after(minutes=2),
    )

    finished = await store.queue.finish(ending(session, report(), refusals=(refused,)), rules=RULES)

    first, second = database.rows("tool_calls")
    assert (second["verdict"], second["previous_hash"], second["is_error"]) == ("deny", first["hash"], True)
    assert isinstance(second["ended_at"], datetime)
    (row, *_) = database.rows("sessions")
    assert row["audit_head"] == second["hash"] == finished.audit_head
    assert row["audit_results"] == finished.audit_results is not None


async def test_lost_session_is_sealed_as_it_was_left(sqlite: Database) -> None:
    async with opened(sqlite) as store:
        session = await started(store, wanted(1))
        await recorded(store, session, "toolu_1", allow())
        await gone(store, at=after(hours=1))
    assert sqlite.rows("sessions")[0]["audit_results"] is not None
    assert await faults(sqlite) == []

    with sqlite.connect() as connection:
        connection.execute(sa.text("UPDATE tool_calls SET is_error = 0"))
        connection.commit()
    assert await faults(sqlite) == [(FaultKind.CHANGED, 1, None)]


# --- a long record ------------------------------------------------------------------------------------------


async def long_trail(database: Database) -> None:
    """Make a record of four sessions, with three hundred numbers in their middle of which nothing is left."""
    async with opened(database) as store:
        for _ in range(2):
            await session_with_calls(store)
        database.execute("UPDATE sqlite_sequence SET seq = 302 WHERE name = 'sessions'")
        for _ in range(2):
            await session_with_calls(store)


async def test_a_long_record_is_read_in_many_short_snapshots(sqlite: Database) -> None:
    await long_trail(sqlite)
    snapshots: list[object] = []
    seen: list[tuple[int, int]] = []
    async with opened(sqlite) as store:
        sa.event.listen(store.database._reading, "begin", snapshots.append)
        found = await store.audit.verify(progress=lambda sessions, calls: seen.append((sessions, calls)))

    assert len(snapshots) > 3
    assert seen[0] == (2, 6)
    assert (found.sessions, found.calls, found.tombstones) == (4, 12, 0)
    assert [(fault.kind, fault.session_id) for fault in found.faults] == [
        (FaultKind.MISSING, number) for number in range(3, 303)
    ]


async def test_what_is_written_and_removed_while_it_is_verified_is_no_fault(sqlite: Database) -> None:
    await long_trail(sqlite)
    async with opened(sqlite) as store:
        changed: list[int] = []

        def change(*_: int) -> None:
            if not changed:
                changed.append(buried(sqlite, 1, 304))
                for table in ("events", "service_checks", "session_texts", "budget_entries"):
                    sqlite.execute(f"DELETE FROM {table} WHERE session_id = 1")  # noqa: S608 - a name from above
                sqlite.execute("DELETE FROM sessions WHERE id = 1")

        found = await store.audit.verify(progress=change)

    assert changed == [2]
    assert found.tombstones == 2
    assert {fault.session_id for fault in found.faults} == set(range(3, 303))


async def test_a_record_in_pages_is_found_to_be_what_it_is_in_one_snapshot(sqlite: Database) -> None:
    await long_trail(sqlite)
    buried(sqlite, 2)
    sqlite.execute("UPDATE tool_calls SET reason = 'only looks' WHERE session_id = 303")
    sqlite.execute("UPDATE audit_tombstones SET calls = 7")
    logged = {2: Logged(audit_head="another", audit_results=None), 900: Logged(audit_head="x", audit_results=None)}
    async with opened(sqlite) as store:
        in_pages = await store.audit.verify(logged=logged)
        in_one = await store.database.read(lambda connection: verify(connection, logged=logged))

    assert in_pages == in_one
    assert {fault.session_id for fault in in_pages.faults} >= {2, 303, 900}
