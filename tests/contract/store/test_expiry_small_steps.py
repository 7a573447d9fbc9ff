"""What is too old goes in small steps: found by indexes, bounded, overtaken by verdicts, and never half of a record."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import anyio
import pytest
import sqlalchemy as sa

from claudeops.domain.retention import Aged, RemovalStep, cutoffs
from claudeops.store.retention import PIECE_ROWS, RetentionStep, among, look, old, references, remove
from claudeops.store.store import Store
from claudeops.store.tables.all_tables import metadata
from support.store_values import NOW, RULES, after, alarm, allow, check, claimed, ending, recorded, report, started
from support.stores import Database
from support.waiting import PATIENCE_SECONDS

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

LATER = after(days=100)
OLD = cutoffs(LATER, retention_days=30)


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Store]:
    store = database.open()
    yield store
    await store.close()


@dataclass
class Transactions:
    """What a store's writer did, a counter of rows by table for each transaction that wrote something."""

    all: list[Counter[str]] = field(default_factory=list)
    stop_in: str | None = None  # a table; the writer stops when it has deleted rows of it
    stopped: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def of(self, store: Store) -> Transactions:
        sa.event.listen(store.database._writing, "begin", self._begin)
        sa.event.listen(store.database._writing, "after_cursor_execute", self._executed)
        return self

    @property
    def writing(self) -> list[Counter[str]]:
        return [rows for rows in self.all if rows]

    def _begin(self, _connection: sa.Connection) -> None:
        self.all.append(Counter())

    def _executed(
        self, _connection: object, cursor: object, statement: str, _parameters: object, _context: object, _many: object
    ) -> None:
        found = re.match(r"(?:DELETE FROM|UPDATE|INSERT INTO) (\w+)", statement)
        if found is None:
            return
        if count := cursor.rowcount:  # type: ignore[attr-defined]  # a driver's cursor
            self.all[-1][found[1]] += count
        if found[1] == self.stop_in and statement.startswith("DELETE"):
            self.stop_in = None
            self.stopped.set()
            assert self.go_on.wait(PATIENCE_SECONDS)


def add_events(database: Database, count: int, session_id: int | None = None) -> None:
    """Write events that are over for long."""
    row = {"level": "warning", "message": "x", "count": 1, "session_id": session_id, "last_session_id": session_id}
    moments = dict.fromkeys(("created_at", "first_seen", "last_seen", "resolved_at"), NOW)
    with database.connect() as connection:
        rows = [{**row, **moments, "fingerprint": str(number)} for number in range(count)]
        connection.execute(sa.insert(metadata.tables["events"]), rows)
        connection.commit()


async def chain(store: Store, *, calls: int = 0) -> tuple[int, int]:
    """Run a chain of two sessions, the first with so many calls, and return their ids."""
    first = await started(store)
    for number in range(calls):
        await recorded(store, first, f"toolu_{number}", allow())
    await store.queue.finish(ending(first, alarm()), rules=RULES)
    second = await claimed(store, at=after(minutes=2))
    assert second is not None
    await store.queue.finish(ending(second, report(check("web"))), rules=RULES)
    return first.id, second.id


async def steps(store: Store, aged: Aged, *, rows: int = 500) -> list[RemovalStep]:
    """Remove all that is too old of a kind; return what each step did."""
    done = [await store.retention.expire(aged, OLD, now=LATER, rows=rows)]
    while done[-1].more:
        done.append(await store.retention.expire(aged, OLD, now=LATER, rows=rows))
    return done


# --- indexes ----------------------------------------------------------------------------------------------


def plan(database: Database, query: sa.sql.ClauseElement) -> list[str]:
    """Return the lines with which SQLite says how it would answer."""
    with database.connect() as connection:
        text = query.compile(connection, compile_kwargs={"literal_binds": True})
        return [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]


@pytest.mark.parametrize(
    ("aged", "index"),
    [
        (Aged.EVENTS, "ix_events_resolved_at"),
        (Aged.CHECKS, "ix_service_checks_checked_at"),
        (Aged.CHAINS, "ix_sessions_ended_at"),
        (Aged.TEXTS, "ix_sessions_ended_at"),
        (Aged.KEYS, "ix_idempotency_keys_created_at"),
    ],
)
def test_what_is_old_is_found_without_reading_what_is_not(sqlite: Database, aged: Aged, index: str) -> None:
    found = plan(sqlite, old(aged, OLD).limit(500))

    assert any(index in line for line in found), found
    assert not [line for line in found if line.startswith("SCAN") or "TEMP B-TREE" in line]


@pytest.mark.parametrize("name", sorted(metadata.tables))
def test_who_names_a_row_that_goes_is_found_without_reading_the_whole_table(sqlite: Database, name: str) -> None:
    table = metadata.tables[name]
    for column in references(table) if "id" in table.c else ():
        found = plan(sqlite, sa.select(column).where(column.in_([1, 2])))

        assert all(line.startswith("SEARCH") for line in found), (str(column), found)


@pytest.mark.parametrize("aged", Aged)
def test_a_row_is_removed_by_its_key(sqlite: Database, aged: Aged) -> None:
    table = metadata.tables["schedule_fires" if aged is Aged.FIRES else "events"]
    key = ("interval", NOW) if aged is Aged.FIRES else (1,)

    found = plan(sqlite, sa.delete(table).where(among(table, [key, key])))

    assert [line for line in found if line.startswith(f"SEARCH {table.name}")], found


# --- steps ------------------------------------------------------------------------------------------------


async def test_no_transaction_is_large(store: Store, database: Database) -> None:
    first, _ = await chain(store, calls=3)
    add_events(database, 3 * PIECE_ROWS, session_id=first)
    transactions = Transactions().of(store)

    done = await steps(store, Aged.CHAINS, rows=PIECE_ROWS)

    assert [step.done for step in done if step.done] == [2]
    sizes = [rows.total() for rows in transactions.writing]
    assert sum(rows["events"] for rows in transactions.writing) >= 2 * 3 * PIECE_ROWS  # by both columns that named it
    assert max(sizes) <= 2 * PIECE_ROWS  # one piece more than is enough, at most
    assert len(sizes) > 3


async def test_a_verdict_overtakes_between_two_steps_which_end_for_its_sake(store: Store, database: Database) -> None:
    session = await started(store)
    add_events(database, 5 * PIECE_ROWS)
    transactions = Transactions(stop_in="events").of(store)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(steps, store, Aged.EVENTS)
        assert await anyio.to_thread.run_sync(transactions.stopped.wait, PATIENCE_SECONDS)
        tasks.start_soon(recorded, store, session, "toolu_1", allow())
        await anyio.wait_all_tasks_blocked()
        transactions.go_on.set()

    first, second, *rest = transactions.writing
    assert first == {"events": PIECE_ROWS}, "it goes on although a verdict waits"
    assert "tool_calls" in second
    assert sum(rows["events"] for rows in rest) == 4 * PIECE_ROWS


async def test_verdicts_without_end_do_not_keep_a_step_from_going_on(store: Store, database: Database) -> None:
    await chain(store)
    written = 0
    for _ in range(50):
        with store.database._writing.begin() as connection:
            found = look(connection, Aged.CHAINS, OLD, 500)
            step = RetentionStep(rows=500, awaited=lambda: True)
            done = remove(connection, Aged.CHAINS, found, cutoffs=OLD, now=LATER, step=step)
        written += 1
        if not done.more:
            break

    assert database.rows("sessions") == []
    assert written > 2


async def test_a_step_whose_time_is_over_ends(store: Store, database: Database) -> None:
    add_events(database, 3 * PIECE_ROWS)

    with store.database._writing.begin() as connection:
        found = look(connection, Aged.EVENTS, OLD, 500)
        over = RetentionStep(rows=500, awaited=lambda: False, until=0.0)
        done = remove(connection, Aged.EVENTS, found, cutoffs=OLD, now=LATER, step=over)

    assert done == RemovalStep(done=PIECE_ROWS, more=True)


async def test_after_every_step_the_record_can_be_verified(store: Store, database: Database) -> None:
    first, _ = await chain(store, calls=3)
    add_events(database, PIECE_ROWS, session_id=first)
    more, rounds = True, 0
    while more:
        more = (await store.retention.expire(Aged.CHAINS, OLD, now=LATER, rows=1)).more
        rounds += 1
        assert (await store.audit.verify()).faults == ()

    assert rounds > 3
    assert database.rows("sessions") == []
    assert [(row["session_id"], row["calls"]) for row in database.rows("audit_tombstones")] == [(1, 3), (2, 0)]


async def test_what_came_alive_since_it_was_looked_for_stays(store: Store, database: Database) -> None:
    await chain(store, calls=1)
    add_events(database, 1)
    found = {}
    with store.database._reading.connect() as connection:
        found = {aged: look(connection, aged, OLD, 500) for aged in (Aged.CHAINS, Aged.EVENTS)}
    database.execute("UPDATE sessions SET ended_at = '2026-06-08 00:00:00' WHERE id = 2")
    database.execute("UPDATE events SET resolved_at = NULL")

    with store.database._writing.begin() as connection:
        for aged, keys in found.items():
            assert keys
            step = RetentionStep(rows=500, awaited=lambda: False)
            assert remove(connection, aged, keys, cutoffs=OLD, now=LATER, step=step) == RemovalStep()

    assert len(database.rows("sessions")) == 2
    assert len(database.rows("tool_calls")) == 1
