"""PostgreSQL, whatever its defaults are: writers see what was committed before their turn, and none holds it up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import anyio
import anyio.to_thread
import pytest
import sqlalchemy as sa

from claudeops.domain.spending.budget import AdmittedCall, Budgets, CallWaits
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.connection.engines import migrating_engine, parse_url
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import NOW, RULES, claimed, queued
from support.stores import POSTGRES, Database, opened
from support.waiting import PATIENCE_SECONDS, until, wait_until

pytest_plugins = ("support.store_fixtures",)

pytestmark = [*POSTGRES, pytest.mark.dialect]

PAID: Final = replace(
    RULES,
    tiers=tuple(replace(tier, max_budget_usd=0.5) for tier in RULES.tiers),
    budgets=Budgets(chain_usd=3, day_usd=4),
)
WAITING: Final = sa.text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
ALIVE: Final = sa.text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
LIMITS: Final = sa.text(
    "SELECT name, CAST(setting AS integer) FROM pg_settings"
    " WHERE name IN ('lock_timeout', 'idle_in_transaction_session_timeout')"
)
LEVEL: Final = sa.text("SHOW transaction_isolation")


@pytest.fixture(params=["repeatable read", "serializable", "read committed"])
def strict(request: pytest.FixtureRequest, postgresql: Database) -> Iterator[Database]:
    """Yield a database whose transactions have another isolation where they name none."""
    url = parse_url(postgresql.url)
    postgresql.execute(f"ALTER DATABASE {url.database} SET default_transaction_isolation = '{request.param}'")
    yield postgresql
    postgresql.execute(f"ALTER DATABASE {url.database} RESET default_transaction_isolation")


async def test_two_writers_that_wait_for_their_turn_are_not_promised_the_same_money(strict: Database) -> None:
    answers = list[object]()
    async with opened(strict) as one, opened(strict) as other:
        await queued(one)
        session = await claimed(one, with_rules=PAID)
        assert session is not None

        async def begin(store: Store) -> None:
            answers.append(
                await store.spending.begin_model_call(session, model="haiku", worst_usd=0.4, rules=PAID, now=NOW)
            )

        with strict.connect() as turn, strict.connect() as looking:
            turn.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": 0x636C6F70})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(begin, one)
                tasks.start_soon(begin, other)
                await until(lambda: looking.scalar(WAITING) == 2)
                turn.rollback()

    assert {type(answer) for answer in answers} == {AdmittedCall, CallWaits}
    assert [row["charged_usd"] for row in strict.rows("model_calls")] == [0.4]


async def test_what_writes_and_what_reads_name_their_isolation_themselves(strict: Database) -> None:
    async with opened(strict) as store:
        written = await store.database.write(lambda connection: connection.scalar(LEVEL))
        read = await store.database.read(lambda connection: connection.scalar(LEVEL))
    migrating = migrating_engine(parse_url(strict.url))
    with migrating.begin() as connection:
        migrated = connection.scalar(LEVEL)
    migrating.dispose()

    assert (written, migrated, read) == ("read committed", "read committed", "repeatable read")


async def test_writer_that_stands_still_is_ended_before_the_others_give_up(postgresql: Database) -> None:
    async with opened(postgresql) as store:
        limits = dict(await store.database.write(lambda connection: [tuple(row) for row in connection.execute(LIMITS)]))

    assert 0 < limits["idle_in_transaction_session_timeout"] < limits["lock_timeout"]  # milliseconds


async def test_writer_that_stood_still_reads_why_it_ended_and_the_next_gets_its_turn(postgresql: Database) -> None:
    inside = threading.Event()

    async with opened(postgresql) as stuck, opened(postgresql) as other:

        def stand_still(connection: sa.Connection) -> None:
            connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = '50ms'")
            pid = connection.scalar(sa.text("SELECT pg_backend_pid()"))
            inside.set()
            with postgresql.connect().execution_options(isolation_level="AUTOCOMMIT") as looking:
                wait_until(lambda: looking.scalar(ALIVE, {"pid": pid}) == 0)
            connection.scalar(LEVEL)

        async with anyio.create_task_group() as tasks:

            async def write() -> None:
                with pytest.raises(DatabaseUnavailableError, match=r"idle-in-transaction timeout; the same call may"):
                    await stuck.database.write(stand_still)

            tasks.start_soon(write)
            assert await anyio.to_thread.run_sync(inside.wait, PATIENCE_SECONDS)
            await queued(other)

        await queued(stuck)

    assert len(postgresql.rows("sessions")) == 2
