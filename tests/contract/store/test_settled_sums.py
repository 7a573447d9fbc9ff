"""Any store: the day's sum is that of its entries, whoever wrote them, and is found without reading them."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import available_timezones

import pytest
import sqlalchemy as sa

from claudeops.domain.retention import Aged, cutoffs
from claudeops.domain.sessions import Session
from claudeops.domain.spending.budget import AdmittedCall, Budgets, bucket_of, last_midnight
from claudeops.domain.spending.tokens import CallState
from claudeops.errors import StaleAttemptError
from claudeops.store.glance import glance
from claudeops.store.spend import spent_since
from claudeops.store.store import Store
from claudeops.structs import replace
from support.late_reports import read
from support.store_values import NOW, OWNER, RULES, claimed, ending, gone, queued, wanted
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

PAID: Final = replace(
    RULES,
    tiers=tuple(replace(tier, max_budget_usd=500) for tier in RULES.tiers),
    budgets=Budgets(chain_usd=1e6, day_usd=1e6),
)
OPERATIONS: Final = 40


def entries(database: Database) -> Mapping[datetime, object]:
    """Return the sum of what was settled in each quarter of an hour, by the entries."""
    found: defaultdict[datetime, float] = defaultdict(float)
    for row in database.rows("budget_entries"):
        if row["kind"] == "settled":
            assert isinstance(row["created_at"], datetime)
            found[bucket_of(row["created_at"])] += float(str(row["amount_usd"]))
    return {bucket: pytest.approx(usd, abs=1e-9) for bucket, usd in found.items()}


def sums(database: Database) -> Mapping[object, object]:
    return {row["bucket"]: row["amount_usd"] for row in database.rows("settled_sums")}


def entry(database: Database, usd: float, at: datetime) -> None:
    """Write an entry as a daemon of an older version does, which knows nothing of sums."""
    moment = at.replace(tzinfo=None) if database.url.startswith("sqlite") else at
    database.execute(
        "INSERT INTO budget_entries (kind, amount_usd, created_at) VALUES ('settled', :usd, :at)",
        usd=usd,
        at=f"{moment:%Y-%m-%d %H:%M:%S.%f}" + ("" if moment.tzinfo is None else "+00"),
    )


class Life:
    """What sessions of several daemons do one after the other, drawn from a seed."""

    def __init__(self, store: Store, other: Store, seed: int) -> None:
        self.stores = (store, other)
        self.draw = random.Random(seed)  # noqa: S311 - which test it is, not a secret
        self.now = NOW
        self.running: list[Session] = []
        self.ended: list[Session] = []

    async def step(self) -> None:
        self.now += timedelta(seconds=self.draw.randrange(1, 1500))
        step = self.draw.choice(
            (self.start, self.start, self.call, self.call, self.end, self.end, self.lose, self.late, self.remove)
        )
        await step(self.draw.choice(self.stores))

    async def start(self, store: Store) -> None:
        await queued(store, wanted(), at=self.now)
        session = await claimed(store, at=self.now, with_rules=PAID)
        assert session is not None
        self.running.append(session)

    async def call(self, store: Store) -> None:
        if not self.running:
            return
        session = self.draw.choice(self.running)
        answer = await store.spending.begin_model_call(
            session, model="claude-haiku-5-5", worst_usd=0.3, rules=PAID, now=self.now
        )
        assert isinstance(answer, AdmittedCall)
        if self.draw.random() < 0.8:
            usd = self.usd()
            await store.spending.book_model_call(
                CallState(id=answer.id, http_status=200, cost_usd=usd, charged_usd=usd, ended_at=self.now)
            )

    async def end(self, store: Store) -> None:
        if self.running:
            session = self.running.pop(self.draw.randrange(len(self.running)))
            cost = self.draw.choice((None, self.usd(), float("inf")))
            end = ending(session, ended_at=self.now, cost_usd=cost)
            await store.queue.finish(end, rules=PAID)
            with pytest.raises(StaleAttemptError):
                await store.queue.finish(end, rules=PAID)
            self.ended.append(session)

    async def lose(self, store: Store) -> None:
        await gone(store, at=self.now)
        self.ended += self.running
        self.running = []
        while (recovery := await claimed(store, at=self.now, owner=OWNER, with_rules=PAID)) is not None:
            self.running.append(recovery)

    async def late(self, store: Store) -> None:
        for ended in self.ended[-3:]:
            if (session := await store.records.session(ended.id)) is not None:
                await store.recovery.backfill(read(session, ended_at=self.now, cost_usd=self.usd()))

    async def remove(self, store: Store) -> None:
        late = self.now + timedelta(days=self.draw.choice((0, 400)))
        while (await store.retention.expire(Aged.CHAINS, cutoffs(late, retention_days=30), now=late, rows=50)).more:
            pass

    def usd(self) -> float:
        return self.draw.choice((0.1, 0.2, 1 / 3, 1e-7, 12.345678912345, self.draw.random()))


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_whatever_happens_the_sums_are_those_of_the_entries(database: Database, seed: int) -> None:
    async with opened(database) as store, opened(database) as other:
        life = Life(store, other, seed)
        for _ in range(OPERATIONS):
            await life.step()
            assert sums(database) == entries(database)

        assert entries(database)
        assert [fault for fault in (await store.audit.verify()).faults if fault.session_id is None] == []


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu", "Pacific/Chatham", "America/St_Johns"])
async def test_a_day_begins_with_its_first_entry_and_ends_with_its_last(database: Database, zone: str) -> None:
    midnight = last_midnight(NOW, zone)
    for usd, at in ((0.1, -1e-6), (0.2, 0), (0.4, 1), (0.8, 3 * 3600), (1.6, 20 * 3600)):
        entry(database, usd, midnight + timedelta(seconds=at))

    async with opened(database) as store:
        found = await store.database.read(lambda connection: spent_since(connection, midnight))

    assert found == pytest.approx(3.0)
    assert glance(database.url, now=NOW, midnight=midnight).today_usd == pytest.approx(3.0)


async def test_what_an_older_daemon_settles_counts_towards_the_budget(database: Database) -> None:
    entry(database, 3.9, NOW)
    short = replace(PAID, budgets=Budgets(chain_usd=1e6, day_usd=4))

    async with opened(database) as store:
        await queued(store)
        assert await claimed(store, with_rules=short) is None


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE settled_sums SET amount_usd = amount_usd - 0.1",
        "DELETE FROM settled_sums",
        "UPDATE budget_entries SET amount_usd = amount_usd + 0.1",
        "DELETE FROM budget_entries",
    ],
)
async def test_a_sum_that_is_not_that_of_its_entries_is_a_fault_of_the_audit(database: Database, change: str) -> None:
    entry(database, 0.5, NOW)
    async with opened(database) as store:
        assert (await store.audit.verify()).verified

        database.execute(change)

        [fault] = (await store.audit.verify()).faults
    assert (fault.kind.value, fault.session_id) == ("changed", None)
    assert "settled" in fault.message


async def test_many_sums_are_compared_in_pages(database: Database) -> None:
    _fill(database, 450, minutes=15)
    async with opened(database) as store:
        assert (await store.audit.verify()).verified
        changed = bucket_of(NOW) + timedelta(minutes=15 * 200)
        at = f"{changed:%Y-%m-%d %H:%M:%S.%f}" + ("" if database.url.startswith("sqlite") else "+00")
        database.execute("UPDATE settled_sums SET amount_usd = 0.02 WHERE bucket = :at", at=at)

        [fault] = (await store.audit.verify()).faults
    assert f"{changed:%Y-%m-%d %H:%M} UTC" in fault.message


def test_a_day_begins_with_a_quarter_of_an_hour_in_every_time_zone() -> None:
    days = [datetime(year, month, 15, 12, tzinfo=UTC) for year in (2026, 2030, 2037) for month in range(1, 13)]
    odd = {
        zone
        for zone in available_timezones()
        for day in days
        if (midnight := last_midnight(day, zone)) != bucket_of(midnight)
    }
    assert odd == set()


# --- how much is read ---------------------------------------------------------------------------------------


@contextmanager
def reads(store: Store, database: Database) -> Iterator[list[int]]:
    """Yield a list of what the writer's statements work on: rows on PostgreSQL, steps of its machine on SQLite."""
    engine, seen, found = store.database._writing, list[tuple[str, Any]](), list[int]()
    is_sqlite = database.url.startswith("sqlite")

    def note(_: object, cursor: Any, statement: str, parameters: Any, *__: object) -> None:
        if is_sqlite:
            cursor.connection.set_progress_handler(lambda: found.append(10), 10)
        elif statement.startswith("SELECT") and "pg_" not in statement:
            seen.append((statement, parameters))

    sa.event.listen(engine, "before_cursor_execute", note)
    yield found
    sa.event.remove(engine, "before_cursor_execute", note)
    with database.connect() as connection:
        for statement, parameters in seen:
            plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
            found.append(_rows_of(json.loads(plan)[0]["Plan"] if isinstance(plan, str) else plan[0]["Plan"]))


def _rows_of(node: Mapping[str, Any]) -> int:
    own = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) if "Relation Name" in node else 0
    return int(own * node["Actual Loops"]) + sum(map(_rows_of, node.get("Plans", ())))


def _analyzed(database: Database) -> None:
    if not database.url.startswith("sqlite"):
        database.execute("ANALYZE")


async def _a_call(store: Store) -> None:
    session = await claimed(store, with_rules=PAID)
    assert session is not None
    answer = await store.spending.begin_model_call(session, model="m", worst_usd=0.1, rules=PAID, now=NOW)
    assert isinstance(answer, AdmittedCall)
    await store.queue.finish(ending(session), rules=PAID)


async def test_a_claim_a_call_and_an_end_read_no_more_for_a_day_that_had_many(database: Database) -> None:
    async with opened(database) as store:
        for _ in range(2):
            await queued(store)
        entry(database, 0.01, NOW)
        _analyzed(database)
        with reads(store, database) as few:
            await _a_call(store)
        _fill(database, 20_000, minutes=0.04)
        _analyzed(database)
        with reads(store, database) as many:
            await _a_call(store)

    assert sum(few) > 0
    assert sum(many) - sum(few) < 2_000, (sum(few), sum(many))


def _fill(database: Database, count: int, *, minutes: float) -> None:
    """Settle so many entries, one after the other, since midnight."""
    series = (
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})"
        " INSERT INTO budget_entries (kind, amount_usd, created_at) SELECT 'settled', 0.001, {at} FROM numbers"
    )
    at = f"datetime('2026-03-01 00:00:01', '+' || (n * {minutes}) || ' minutes') || '.000000'"
    if not database.url.startswith("sqlite"):
        at = f"timestamptz '2026-03-01 00:00:01+00' + n * {minutes} * interval '1 minute'"
    with database.connect() as connection:
        connection.exec_driver_sql(series.format(count=count, at=at))
        connection.commit()
