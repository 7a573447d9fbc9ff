"""SQLite and PostgreSQL: transactions that are whole, waits that end, claimers that do not meet."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from functools import partial

import anyio
import pytest
import sqlalchemy as sa

from claudeops.domain.calls import VerdictKind
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.owner import Owner
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.schedules.plan import Fire
from claudeops.domain.sessions import Session, Status, Trigger
from claudeops.domain.spending.budget import Budgets
from claudeops.errors import DatabaseFullError, DatabaseUnavailableError, StoreError
from claudeops.store import queue
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import (
    NOW,
    OTHER_OWNER,
    OWNER,
    RULES,
    after,
    alarm,
    allow,
    check,
    claimed,
    ending,
    how_many_wait,
    one_session,
    queued,
    recorded,
    report,
    restart,
    started,
    wanted,
)
from support.stores import Database, opened
from support.waiting import PATIENCE_SECONDS, until

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

PAID = replace(
    RULES,
    tiers=tuple(replace(tier, max_budget_usd=0.5) for tier in RULES.tiers),
    budgets=Budgets(chain_usd=3, day_usd=4),
)


class Held:
    """Holds the writer in the middle of a claim, until the test lets go."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.let_go = threading.Event()

    def wait(self) -> str:
        self.inside.set()
        assert self.let_go.wait(PATIENCE_SECONDS)
        return "a session"

    async def claim(self, store: Store, with_rules: EscalationRules = RULES) -> Session | None:
        taken = await store.claims.claim(OWNER, rules=with_rules, now=NOW, cli_session_id=self.wait, log_path=str)
        return taken[0] if taken else None

    async def until_inside(self) -> None:
        assert await anyio.to_thread.run_sync(self.inside.wait, PATIENCE_SECONDS)


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.let_go.set()


async def test_two_claimers_on_one_database_have_one_winner(database: Database) -> None:
    async with opened(database) as store:
        wanted_ids = {(await queued(store)).id for _ in range(12)}
    barrier = threading.Barrier(2)
    claims: dict[str, list[int]] = {}

    async def work(owner: Owner) -> None:
        async with opened(database) as own:
            barrier.wait(PATIENCE_SECONDS)
            while (session := await claimed(own, owner=owner)) is not None:
                claims.setdefault(owner.name, []).append(session.id)

    threads = [threading.Thread(target=anyio.run, args=(work, owner)) for owner in (OWNER, OTHER_OWNER)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join)

    taken = [session_id for ids in claims.values() for session_id in ids]
    assert sorted(taken) == sorted(wanted_ids)
    assert {row["attempt"] for row in database.rows("sessions")} == {1}


async def test_row_that_somebody_else_has_taken_since_is_not_changed(database: Database) -> None:
    async with opened(database) as store:
        seen = await queued(store)
        taken = await claimed(store)
        with database.connect() as connection:
            assert not queue.change(connection, seen, {"owner": "too late"})
            assert queue.change(connection, taken or seen, {"owner": "in time"})


async def test_two_nodes_cannot_spend_the_same_last_restart(database: Database) -> None:
    async with opened(database) as store:
        session = await started(store, wanted(2))
    barrier = threading.Barrier(2)
    answers: list[VerdictKind] = []

    async def work(node: int) -> None:
        async with opened(database) as own:
            barrier.wait(PATIENCE_SECONDS)
            for number in range(3):
                verdict = await recorded(own, session, f"toolu_{node}_{number}", allow(restart()))
                answers.append(verdict.kind)

    threads = [threading.Thread(target=anyio.run, args=(work, node)) for node in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join)

    assert sorted(answers) == [VerdictKind.ALLOW] * 2 + [VerdictKind.DENY] * 4
    rows = database.rows("tool_calls")
    assert [row["previous_hash"] for row in rows] == ["", *[row["hash"] for row in rows[:-1]]]


async def test_end_that_cannot_be_written_whole_is_not_written_at_all(database: Database) -> None:
    async with opened(database) as store:
        session = await started(store)
        await recorded(store, session, "toolu_1", allow(restart()))
        # The follower that the end would queue is there already: the last statement of the transaction fails.
        await queued(store, wanted(2, trigger=Trigger.ESCALATION, parent_session_id=session.id))
        before = {table: database.rows(table) for table in ("sessions", "events", "service_checks", "cooldown_actions")}

        with pytest.raises(StoreError):
            await store.queue.finish(ending(session, alarm(), cost_usd=1.0), rules=RULES)

        assert {table: database.rows(table) for table in before} == before
        assert database.rows("budget_entries") == []
        assert await store.records.session(session.id) == session


async def test_cancelled_callers_transaction_is_whole(database: Database, held: Held) -> None:
    def two(connection: sa.Connection) -> None:
        queue.add_session(connection, wanted(), now=NOW)
        held.wait()
        queue.add_session(connection, wanted(), now=NOW)

    async with opened(database) as store:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.database.write, two)
            await held.until_inside()
            tasks.cancel_scope.cancel()
        held.let_go.set()
        await store.close()  # waits for what was begun

    assert len(database.rows("sessions")) == 2


async def test_what_a_claimer_took_who_has_gone_waits_again_and_nothing_is_reserved_for_it(
    database: Database, held: Held
) -> None:
    async with opened(database) as store:
        session = await queued(store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held.claim, store, PAID)
            await held.until_inside()
            tasks.cancel_scope.cancel()
        held.let_go.set()
        await until(
            lambda: database.rows("sessions")[0]["attempt"] == 1 and database.rows("sessions")[0]["status"] == "queued"
        )
        assert database.rows("budget_entries") == []
        waiting = await store.records.session(session.id)
        assert waiting == replace(session, attempt=1)

        again = await claimed(store, with_rules=PAID)
        assert again is not None
        await store.queue.finish(ending(again, report(check("web"))), rules=PAID)

    assert (again.id, again.attempt) == (session.id, 2)
    assert [row["kind"] for row in database.rows("budget_entries")] == ["reserved", "released"]


async def test_the_probe_that_a_claimer_took_who_has_gone_can_be_taken_again(database: Database, held: Held) -> None:
    parked = Hold(kind=HoldKind.PARKED, reason="the model API is overloaded", since=NOW, until=NOW)
    async with opened(database) as store:
        session = await queued(store)
        await store.holds.hold(parked, now=NOW)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held.claim, store)
            await held.until_inside()
            tasks.cancel_scope.cancel()
        held.let_go.set()
        await until(
            lambda: database.rows("sessions")[0]["attempt"] == 1 and database.rows("sessions")[0]["status"] == "queued"
        )

        again = await claimed(store, at=after(minutes=1))

    assert again is not None
    assert again.id == session.id


async def test_write_whose_caller_has_gone_before_its_turn_is_not_made(database: Database, held: Held) -> None:
    async with opened(database) as store:
        await queued(store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held.claim, store)
            await held.until_inside()
            with anyio.move_on_after(0):
                await queued(store)
            held.let_go.set()

    assert len(database.rows("sessions")) == 1


async def test_reads_do_not_wait_behind_the_writer(database: Database, held: Held) -> None:
    async with opened(database) as store:
        session = await queued(store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held.claim, store)
            await held.until_inside()
            with anyio.fail_after(PATIENCE_SECONDS):
                seen = await store.records.session(session.id)
            held.let_go.set()

    assert seen == session
    assert seen.status is Status.QUEUED


async def test_a_read_whose_caller_has_gone_leaves_no_connection_behind(database: Database, held: Held) -> None:
    alive = set[int]()
    async with opened(database) as store:
        sa.event.listen(store.database._reading, "connect", lambda connection, _: alive.add(id(connection)))
        sa.event.listen(store.database._reading, "close", lambda connection, _: alive.discard(id(connection)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.database.read, lambda _: held.wait())
            await held.until_inside()
            tasks.cancel_scope.cancel()
    assert len(alive) == 1
    held.let_go.set()

    await until(lambda: not alive)


async def test_a_directory_of_logs_that_gives_no_answer_holds_up_no_write(database: Database, held: Held) -> None:
    def log_path(session_id: int) -> str:
        return f"{session_id}, {held.wait()}"

    async with opened(database) as store:
        session = await queued(store)
        claim = partial(store.claims.claim, OWNER, rules=RULES, now=NOW, cli_session_id=str, log_path=log_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(claim)
            await held.until_inside()
            with anyio.fail_after(PATIENCE_SECONDS):
                later = await queued(store)
            held.let_go.set()

    rows = database.rows("sessions")
    assert [(row["id"], row["log_path"]) for row in rows] == [
        (session.id, f"{session.id}, a session"),
        (later.id, None),
    ]


async def test_who_waits_in_vain_for_the_directory_of_logs_takes_nothing(sqlite: Database, held: Held) -> None:
    async with opened(sqlite) as store:
        await queued(store)

        def lose_patience(*_: object) -> None:
            store.database.wait_seconds = 0.1  # with the directory alone: what is due was seen

        sa.event.listen(store.database._reading, "checkin", lose_patience)
        with pytest.raises(DatabaseUnavailableError, match=r"the directory of the logs gave no answer within 0\.1 s"):
            await store.claims.claim(OWNER, rules=RULES, now=NOW, cli_session_id=str, log_path=lambda _: held.wait())
        held.let_go.set()
        sa.event.remove(store.database._reading, "checkin", lose_patience)
        store.database.wait_seconds = PATIENCE_SECONDS
        assert await claimed(store) is not None


async def test_closing_writes_what_was_handed_in(database: Database, held: Held) -> None:
    async with opened(database) as store:
        await queued(store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held.claim, store)
            await held.until_inside()
            tasks.start_soon(queued, store)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(store.close)
            await anyio.wait_all_tasks_blocked()
            held.let_go.set()

    assert [row["status"] for row in database.rows("sessions")] == ["running", "queued"]


def locking(database: Database) -> AbstractContextManager[sa.Connection]:
    """Hold what every writer needs, from another connection."""
    connection = database.connect()
    if database.url.startswith("sqlite"):
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
    else:
        connection.exec_driver_sql("LOCK TABLE sessions")
    return connection


async def test_locked_database_is_unavailable_and_a_later_call_works(database: Database) -> None:
    impatient = Database(database.url, busy_seconds=0.1)
    async with opened(impatient) as store:
        with locking(database), pytest.raises(DatabaseUnavailableError, match="the same call may work later"):
            await queued(store)

        session = await queued(store)

    assert [row["id"] for row in database.rows("sessions")][-1] == session.id
    assert len(database.rows("sessions")) == 1


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
async def test_connections_that_the_server_dropped_are_made_again(postgresql: Database) -> None:
    async with opened(postgresql) as store:
        await queued(store)
        await how_many_wait(store)
        with postgresql.connect() as connection:
            connection.execute(
                sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            )

        await queued(store)

        assert await how_many_wait(store) == 2


async def test_full_disk_is_unavailable_and_writes_nothing(sqlite: Database) -> None:
    async with opened(sqlite) as store:

        def fill(connection: sa.Connection) -> None:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

        await store.database.write(fill)
        with pytest.raises(DatabaseUnavailableError, match="full"):
            await queued(store, wanted(prompt_text="x" * 2_000_000))

        assert sqlite.rows("sessions") == []


async def test_full_disk_of_the_server_names_that_disk_and_the_remedy(postgresql: Database) -> None:
    raised = "RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'could not extend file'"
    async with opened(postgresql) as store:
        with pytest.raises(DatabaseFullError) as caught:
            await store.database.write(lambda connection: connection.execute(sa.text(f"DO $$ BEGIN {raised}; END $$")))

    assert str(caught.value).startswith("the disk of the server of the database postgresql")
    assert str(caught.value).endswith("is full, make room there: the server says: could not extend file.")


async def test_database_keeps_what_was_committed_and_checks_references(sqlite: Database) -> None:
    async with opened(sqlite) as store:
        with store.database._writing.connect() as connection:
            pragmas = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            }

    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000}


async def test_readers_cannot_write(database: Database) -> None:
    async with opened(database) as store:
        with pytest.raises(sa.exc.DBAPIError), store.database._reading.connect() as connection:
            connection.exec_driver_sql("DELETE FROM sessions")


async def test_times_are_sortable_utc_text_in_sqlite(sqlite: Database) -> None:
    async with opened(sqlite) as store:
        await queued(store, at=after(minutes=1))

    with sqlite.connect() as connection:
        written = connection.exec_driver_sql("SELECT created_at FROM sessions").scalar_one()
    assert written == "2026-03-01 12:01:00.000000"


async def test_naive_time_is_refused(database: Database) -> None:
    async with opened(database) as store:
        naive = Fire(schedule="default", due_at=NOW.replace(tzinfo=None))
        with pytest.raises(StoreError):
            await store.schedules.fire(naive, wanted(), rules=RULES, now=NOW)

        assert await how_many_wait(store) == 0


async def test_ids_of_deleted_sessions_are_not_used_again(database: Database) -> None:
    async with opened(database) as store:
        first = await queued(store)
        database.execute("DELETE FROM sessions")
        second = await queued(store)

    assert second.id > first.id


async def test_handover_that_cannot_be_read_is_handed_over_as_text(database: Database) -> None:
    async with opened(database) as store:
        session = await queued(store, wanted(2))
        database.execute("UPDATE sessions SET context = '{half'")
        claim = await claimed(store)

    assert claim is not None
    assert claim.id == session.id
    assert claim.context is not None
    assert claim.context.findings == "{half"


async def test_healthy_estate_leaves_a_database_that_answers_without_claudeops(sqlite: Database) -> None:
    async with opened(sqlite) as store:
        session = await started(store)
        await store.queue.finish(ending(session, report(check("web"))), rules=RULES)

    with sqlite.connect() as connection:
        row = connection.exec_driver_sql("SELECT status, outcome, decision_reason FROM sessions").one()
    assert tuple(row) == ("ended", "success", "healthy")


async def test_a_verdict_that_was_committed_too_late_does_not_stay_an_allow(sqlite: Database) -> None:
    async with opened(replace(sqlite, busy_seconds=PATIENCE_SECONDS)) as store:
        await one_session(store, report(check("web", ServiceStatus.DOWN)))
        session = await started(store, wanted(2, prompt_text="web is down"))
        begun = threading.Event()
        with closing(sqlite3.connect(sqlite.file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            sa.event.listen(store.database._writing, "before_cursor_execute", lambda *_: begun.set())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(recorded, store, session, "toolu_1", allow(restart()))
                assert await anyio.to_thread.run_sync(begun.wait, PATIENCE_SECONDS)
                tasks.cancel_scope.cancel()
            other.execute("ROLLBACK")
        await until(lambda: len(sqlite.rows("tool_calls")) == 2)
        late = await store.calls.allowed_calls(session.id)
        again = await recorded(store, session, "toolu_2", allow(restart()))

    assert late == frozenset()
    first, second, third = sqlite.rows("tool_calls")
    assert [row["verdict"] for row in (first, second, third)] == ["allow", "deny", "allow"]
    assert (second["previous_hash"], third["previous_hash"]) == (first["hash"], second["hash"])
    spent, free = sqlite.rows("cooldown_actions")
    assert (spent["success"], spent["cleared_at"] is None) == (False, False)
    assert (free["success"], free["cleared_at"]) == (None, None)
    assert again.kind is VerdictKind.ALLOW
