"""Any store: what others have found out since outranks what a log tells late, and nothing is loosened by it."""

from __future__ import annotations

from datetime import datetime

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.sessions import Outcome, Trigger
from claudeops.store.store import Store
from claudeops.structs import replace
from support.late_reports import FAULT, FULL, TIMING, WELL, amended, lost, read
from support.store_values import (
    OTHER_OWNER,
    RULES,
    after,
    alarm,
    allow,
    check,
    claimed,
    ending,
    one_session,
    queued,
    recorded,
    report,
    restart,
    started,
    wanted,
)
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)


async def test_condition_that_lasts_is_counted_up_where_it_stands(store: Store, database: Database) -> None:
    session = await lost(store)
    degraded = check("web", ServiceStatus.DEGRADED)
    await one_session(store, report(degraded, events=(replace(FAULT, message="Web answers  502"),)), at=after(hours=2))

    await amended(store, read(session))

    (event,) = [row for row in database.rows("events") if row["service"] == "web"]
    assert (event["count"], event["message"], event["last_session_id"]) == (2, "Web answers  502", 2)
    assert (event["first_seen"], event["last_seen"]) == (after(minutes=1), after(hours=2, minutes=1))


async def test_condition_that_was_open_before_is_seen_again(store: Store, database: Database) -> None:
    await one_session(store, FULL, at=after(hours=-1))
    session = await lost(store)

    await amended(store, read(session))

    (event,) = [row for row in database.rows("events") if row["service"] == "web"]
    assert (event["count"], event["session_id"], event["last_session_id"]) == (2, 1, 2)
    assert (event["first_seen"], event["last_seen"]) == (after(hours=-1, minutes=1), after(minutes=1))


async def test_condition_that_was_resolved_since_is_not_opened_again(store: Store, database: Database) -> None:
    session = await lost(store)
    await one_session(store, FULL, at=after(hours=2))
    await one_session(store, report(check("web")), at=after(hours=3))

    await amended(store, read(session))

    (event,) = [row for row in database.rows("events") if row["service"] == "web"]
    assert (event["count"], event["resolved_at"]) == (2, after(hours=3, minutes=1))


@pytest.mark.dialect
async def test_condition_that_came_back_is_counted_in_the_episode_of_its_time(store: Store, database: Database) -> None:
    session = await lost(store)
    for hour, said in ((2, FULL), (3, report(check("web"))), (4, FULL)):
        await one_session(store, said, at=after(hours=hour))

    await amended(store, read(session))

    rows = [row for row in database.rows("events") if row["service"] == "web"]
    assert [(row["count"], row["resolved_at"]) for row in rows] == [(2, after(hours=3, minutes=1)), (1, None)]


async def test_condition_that_was_over_before_is_a_new_one(store: Store, database: Database) -> None:
    await one_session(store, FULL, at=after(hours=-3))
    await one_session(store, report(check("web")), at=after(hours=-2))
    session = await lost(store)

    await amended(store, read(session))

    rows = [row for row in database.rows("events") if row["service"] == "web"]
    assert [(row["count"], row["resolved_at"]) for row in rows] == [(1, after(hours=-2, minutes=1)), (1, None)]


@pytest.mark.parametrize(
    ("service", "resolved_at"),
    [
        pytest.param("web", after(hours=2, minutes=1), id="of a service"),
        pytest.param(None, after(hours=2, minutes=1), id="of none"),
        pytest.param("mail", None, id="of one that nobody looked at"),
    ],
)
async def test_condition_that_a_later_session_found_over_alarms_nobody(
    store: Store, database: Database, service: str | None, resolved_at: datetime | None
) -> None:
    session = await lost(store)
    for hour in (2, 3):
        await one_session(store, report(check("web")), at=after(hours=hour))

    await amended(store, read(session, report(events=(replace(FAULT, service=service),))))

    (event,) = [row for row in database.rows("events") if row["message"] == FAULT.message]
    assert (event["first_seen"], event["resolved_at"]) == (after(minutes=1), resolved_at)


async def test_session_that_had_looked_before_says_nothing_about_the_end_of_a_condition(
    store: Store, database: Database
) -> None:
    await queued(store)
    early = await claimed(store, owner=OTHER_OWNER)
    assert early is not None
    session = await lost(store)
    await store.queue.finish(ending(early, report(check("web")), ended_at=after(hours=2)), rules=RULES)

    await amended(store, read(session))

    (event,) = [row for row in database.rows("events") if row["service"] == "web"]
    assert event["resolved_at"] is None


async def test_healthy_check_resolves_what_was_open_before_the_session(store: Store, database: Database) -> None:
    await one_session(store, FULL, at=after(hours=-1))
    session = await lost(store)

    await amended(store, read(session, report(check("web"))))

    (event,) = [row for row in database.rows("events") if row["service"] == "web"]
    assert event["resolved_at"] == after(minutes=1)


async def test_healthy_check_does_not_resolve_what_was_seen_since(store: Store, database: Database) -> None:
    session = await lost(store)
    await one_session(store, FULL, at=after(hours=2))

    await amended(store, read(session, report(check("web"))))

    (event,) = [row for row in database.rows("events") if row["service"] == "web"]
    assert event["resolved_at"] is None


async def test_condition_of_no_service_takes_more_than_a_late_report_to_be_over(
    store: Store, database: Database
) -> None:
    await one_session(store, None, at=after(hours=-1))
    session = await lost(store)

    await amended(store, read(session, report(check("web"))))

    assert [event["resolved_at"] for event in database.rows("events")] == [None, None]


async def test_memory_that_was_confirmed_since_is_reinforced_where_it_stands(store: Store, database: Database) -> None:
    session = await lost(store)
    await one_session(store, WELL, at=after(hours=2))

    await amended(store, read(session, WELL))

    (memory,) = database.rows("memories")
    assert (memory["confidence"], memory["updated_at"]) == (0.8, after(hours=2, minutes=1))


async def test_memory_of_a_later_time_is_not_contradicted(store: Store, database: Database) -> None:
    session = await lost(store)
    since = replace(TIMING, observation="answers within 80 ms")
    await one_session(store, report(check("web"), memories=(since,)), at=after(hours=2))

    await amended(store, read(session, WELL))

    rows = [(row["observation"], row["confidence"], row["updated_at"]) for row in database.rows("memories")]
    assert rows == [
        ("answers within 80 ms", 0.7, after(hours=2, minutes=1)),
        ("answers within 40 ms", 0.7, after(minutes=1)),
    ]


async def test_memory_of_an_earlier_time_is_contradicted(store: Store, database: Database) -> None:
    before = replace(TIMING, observation="answers within 80 ms")
    await one_session(store, report(check("web"), memories=(before,)), at=after(hours=-1))
    session = await lost(store)

    await amended(store, read(session, WELL))

    assert [row["confidence"] for row in database.rows("memories")] == [0.5, 0.7]


async def test_nothing_is_dated_later_than_the_end_of_its_session(store: Store, database: Database) -> None:
    session = await lost(store)

    await amended(store, read(session, ended_at=after(days=3)))

    dates = {row["created_at"] for table in ("events", "memories", "budget_entries") for row in database.rows(table)}
    assert dates == {after(hours=1)}


# --- the ledger ---------------------------------------------------------------------------------------------


async def _restart(store: Store, at: datetime) -> VerdictKind:
    session = await started(store, wanted(2), at=at)
    verdict = await recorded(store, session, f"toolu_{session.id}", allow(restart()), at=at)
    await store.queue.finish(ending(session, alarm("db"), ended_at=at), rules=RULES)
    while (follower := await claimed(store, at=at)) is not None:
        await store.queue.finish(ending(follower, report(), ended_at=at), rules=RULES)
    return verdict.kind


async def test_late_report_clears_no_counter(store: Store) -> None:
    for minutes in (-20, -10):
        await _restart(store, after(minutes=minutes))
    first, second = await lost(store), await lost(store, at=after(minutes=2))
    for session in (first, second):
        await amended(store, read(session, report(check("web"))))

    assert await _restart(store, after(hours=1)) is VerdictKind.DENY


async def test_late_health_does_not_second_the_health_that_another_saw(store: Store) -> None:
    for minutes in (-20, -10):
        await _restart(store, after(minutes=minutes))
    session = await lost(store)
    await one_session(store, report(check("web", ServiceStatus.DOWN)), at=after(minutes=70))
    await amended(store, read(session, report(check("web"))))
    await one_session(store, report(check("web")), at=after(minutes=80))

    assert await _restart(store, after(minutes=90)) is VerdictKind.DENY


@pytest.mark.parametrize(("outcome", "kind"), [(Outcome.ERROR, VerdictKind.DENY), (Outcome.SUCCESS, VerdictKind.ALLOW)])
async def test_session_that_failed_is_no_witness_of_health(store: Store, outcome: Outcome, kind: VerdictKind) -> None:
    for minutes in (-20, -10):
        await _restart(store, after(minutes=minutes))
    await one_session(store, report(check("web")), at=after(minutes=10))
    await one_session(store, report(check("web")), at=after(minutes=20), trigger=Trigger.RETRY, outcome=outcome)

    assert await _restart(store, after(minutes=30)) is kind
