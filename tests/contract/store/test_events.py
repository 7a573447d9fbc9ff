"""Any store: events are conditions, raised once, counted while they last, resolved when over."""

from __future__ import annotations

import io
import json

import pytest

from claudeops import logs
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.live import EventRaised
from claudeops.domain.report.report import ServiceStatus
from claudeops.store.store import Store
from support.store_values import RULES, after, check, ending, one_session, report, started
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)


@pytest.mark.dialect
async def test_same_condition_raises_the_count_of_its_open_event(store: Store, database: Database) -> None:
    for hour in range(3):
        await one_session(store, None, at=after(hours=hour))

    (event,) = database.rows("events")
    assert (event["level"], event["count"]) == ("critical", 3)
    assert (event["session_id"], event["last_session_id"]) == (1, 3)
    assert (event["first_seen"], event["last_seen"]) == (after(minutes=1), after(hours=2, minutes=1))


async def test_event_said_twice_by_one_session_counts_once(store: Store, database: Database) -> None:
    said = NewEvent(level=EventLevel.INFO, message="web  was slow", service="web")
    again = NewEvent(level=EventLevel.INFO, message="Web was slow", service="web")

    await one_session(store, report(check("web"), events=(said, again)))

    (event,) = database.rows("events")
    assert (event["count"], event["message"]) == (1, "web  was slow")


async def test_what_the_engine_noticed_is_an_event_too(store: Store, database: Database) -> None:
    noticed = NewEvent(level=EventLevel.WARNING, message="the key changed", fingerprint="api-key-source:1")

    await one_session(store, report(check("web")), events=(noticed,))

    (event,) = database.rows("events")
    assert (event["fingerprint"], event["session_id"]) == ("api-key-source:1", 1)


async def test_healthy_check_resolves_the_service_and_a_later_fault_is_a_new_event(
    store: Store, database: Database
) -> None:
    fault = NewEvent(level=EventLevel.CRITICAL, message="web is down", service="web")
    other = NewEvent(level=EventLevel.WARNING, message="db is slow", service="db")
    for minutes, said in enumerate(
        [
            report(check("web", ServiceStatus.DEGRADED), events=(fault, other)),
            report(check("web")),
            report(check("web", ServiceStatus.DEGRADED), events=(fault,)),
        ]
    ):
        await one_session(store, said, at=after(minutes=10 * minutes))

    rows = [(row["message"], row["count"], row["resolved_at"]) for row in database.rows("events")]
    assert rows == [
        ("web is down", 1, after(minutes=11)),
        ("db is slow", 1, None),
        ("web is down", 1, None),
    ]


async def test_event_that_a_healthy_report_repeats_stays_open_and_counts(store: Store, database: Database) -> None:
    notice = NewEvent(level=EventLevel.INFO, message="an update of web is out", service="web")
    for minutes in (0, 10):
        await one_session(store, report(check("web"), events=(notice,)), at=after(minutes=minutes))

    (event,) = database.rows("events")
    assert (event["count"], event["resolved_at"]) == (2, None)


async def test_healthy_decision_resolves_events_that_name_no_service(store: Store, database: Database) -> None:
    await one_session(store, None)
    await one_session(store, report(check("web")), at=after(minutes=10))

    (event,) = database.rows("events")
    assert event["resolved_at"] == after(minutes=11)


async def test_a_healthy_round_resolves_nothing_that_the_daemon_found_wrong_with_itself(
    store: Store, database: Database
) -> None:
    dead = NewEvent(level=EventLevel.CRITICAL, message="nobody hears phone", fingerprint="notification_dead:phone")
    await store.probes.note(dead, over=False, now=after(minutes=0))
    await one_session(store, report(check("web")), at=after(minutes=10))

    (event,) = database.rows("events")
    assert event["resolved_at"] is None


async def test_session_resolves_nothing_that_was_seen_after_it_had_looked(store: Store, database: Database) -> None:
    early = await started(store)
    fault = NewEvent(level=EventLevel.CRITICAL, message="web is down", service="web")
    await one_session(store, report(check("web", ServiceStatus.DEGRADED), events=(fault,)), at=after(minutes=5))

    await store.queue.finish(ending(early, report(check("web")), ended_at=after(minutes=20)), rules=RULES)

    (event,) = database.rows("events")
    assert event["resolved_at"] is None


async def test_unproven_health_resolves_nothing(store: Store, database: Database) -> None:
    fault = NewEvent(level=EventLevel.CRITICAL, message="web is down", service="web")
    await one_session(store, report(check("web", ServiceStatus.DEGRADED), events=(fault,)))
    await one_session(store, report(check("web")), at=after(minutes=10), calls_ran=0)

    assert database.rows("events")[0]["resolved_at"] is None


@pytest.mark.dialect
async def test_whoever_listens_hears_of_every_event_once_it_is_committed(database: Database) -> None:
    heard: list[tuple[str, int | None, int]] = []

    def hear(event: EventRaised) -> None:
        heard.append((event.message, event.session_id, len(database.rows("events"))))

    store = database.open(hear)
    try:
        said = NewEvent(level=EventLevel.INFO, message="web was slow", service="web")
        await one_session(store, report(check("web"), events=(said,)))
        await one_session(store, report(check("web"), events=(said,)), at=after(hours=1))
    finally:
        await store.close()

    assert heard == [("web was slow", 1, 1), ("web was slow", 2, 1)]


async def test_a_listener_that_fails_makes_no_failure_of_what_is_committed(database: Database) -> None:
    logged = io.StringIO()

    def fail(event: EventRaised) -> None:
        raise RuntimeError(f"nobody can hear that {event.message}")

    logs.configure(level="error", fmt="json", stream=logged, redact=str)
    store = database.open(fail)
    try:
        slow = NewEvent(level=EventLevel.INFO, message="web was slow", service="web")
        late = NewEvent(level=EventLevel.INFO, message="web was late", service="web")
        end = await one_session(store, report(check("web"), events=(slow, late)))
    finally:
        await store.close()

    assert [row["outcome"] for row in database.rows("sessions") if row["id"] == end.session_id] == ["success"]
    told = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert [(line["event"], line["error"][-8:]) for line in told] == [
        ("listener_failed", "was slow"),
        ("listener_failed", "was late"),
    ]
