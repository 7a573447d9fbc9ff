"""Any store: lists hold what was asked for, the newest first, and pages neither repeat nor skip an entry."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import ToolEnd
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.listing import Listing, Reference
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.sessions import Outcome
from claudeops.store.reading import events, services, session_ids, session_rows
from claudeops.store.store import Store
from support.store_values import (
    RULES,
    after,
    alarm,
    allow,
    check,
    ending,
    one_session,
    recorded,
    report,
    restart,
    started,
    wanted,
)
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect


def said(*messages: str, level: EventLevel = EventLevel.WARNING, service: str | None = "web") -> tuple[NewEvent, ...]:
    return tuple(NewEvent(level=level, message=message, service=service) for message in messages)


def messages(database: Database, wanted: Listing, *, only_open: bool = False) -> list[str]:
    with database.connect() as connection:
        return [event.message for event in events.listed(connection, wanted, only_open=only_open).items]


# --- events -----------------------------------------------------------------------------------------------


@pytest.fixture
async def three_events(store: Store) -> None:
    await one_session(store, report(events=said("first", level=EventLevel.INFO, service=None)), at=after())
    await one_session(store, report(events=said("second", service="Web")), at=after(hours=1))
    await one_session(store, report(events=said("third", level=EventLevel.CRITICAL)), at=after(hours=2))


@pytest.mark.usefixtures("three_events")
async def test_events_are_filtered_by_level_service_and_time(database: Database) -> None:
    # Sessions that said nothing of a service also raise what the daemon itself noticed.
    found = messages(database, Listing())
    assert [message for message in found if message in {"first", "second", "third"}] == ["third", "second", "first"]
    assert messages(database, Listing(service="WEB")) == ["third", "second"]
    assert messages(database, Listing(level=EventLevel.CRITICAL, service="web")) == ["third"]
    assert messages(database, Listing(since=after(hours=1), until=after(hours=2), service="web")) == ["second"]
    assert messages(database, Listing(service="nobody")) == []


@pytest.mark.usefixtures("three_events")
async def test_pages_hold_every_entry_once_while_others_are_added(database: Database) -> None:
    with database.connect() as connection:
        whole = [event.event_id for event in events.listed(connection, Listing()).items]
    seen: list[int] = []
    before: int | None = None
    while True:
        with database.connect() as connection:
            page = events.listed(connection, Listing(limit=2, before=before))
        seen += [event.event_id for event in page.items]
        database.execute(
            "INSERT INTO events (level, message, created_at, first_seen, last_seen, fingerprint, count) SELECT"
            " 'info', 'later', created_at, first_seen, last_seen, fingerprint || :mark, 1 FROM events WHERE id = 1",
            mark=str(len(seen)),
        )
        if page.before is None:
            break
        before = page.before
    assert seen == whole


@pytest.mark.usefixtures("three_events")
async def test_whoever_goes_on_from_the_newest_entry_misses_none_of_those_that_come(database: Database) -> None:
    with database.connect() as connection:
        whole = [event.event_id for event in events.listed(connection, Listing()).items]
        seen, at = list[int](), whole[-1]
        while page := events.listed(connection, Listing(limit=2, after=at)).items:
            assert [event.event_id for event in page] == sorted((event.event_id for event in page), reverse=True)
            seen += [event.event_id for event in reversed(page)]
            at = page[0].event_id
        between = events.listed(connection, Listing(after=whole[-1], before=whole[0])).items
    assert seen == whole[-2::-1]
    assert [event.event_id for event in between] == whole[1:-1]


async def test_events_without_a_session_are_listed_too(store: Store, database: Database) -> None:
    await store.holds.hold(Hold(kind=HoldKind.DISK, reason="a disk is full", since=after()), now=after())
    with database.connect() as connection:
        [event] = events.listed(connection, Listing()).items
        assert sum(events.open_by_level(connection).values()) == 1
    assert (event.session_id, event.count, event.resolved_at) == (None, 1, None)
    assert "a disk is full" in event.message

    await store.holds.release(HoldKind.DISK, now=after(hours=1))
    assert messages(database, Listing(), only_open=True) == []


async def test_events_are_filtered_by_the_tier_and_outcome_of_their_session(store: Store, database: Database) -> None:
    await one_session(store, report(events=said("of tier 1")))
    session = await started(store, wanted(2))
    await store.queue.finish(ending(session, report(events=said("of tier 2")), outcome=Outcome.MAX_TURNS), rules=RULES)

    assert "of tier 1" not in messages(database, Listing(tier=2))
    assert "of tier 2" in messages(database, Listing(tier=2, outcome=Outcome.MAX_TURNS))
    assert messages(database, Listing(tier=2, outcome=Outcome.SUCCESS)) == []


async def test_sessions_of_a_service_that_came_later_are_listed_from_the_oldest_on(
    store: Store, database: Database
) -> None:
    for hour in range(4):
        await one_session(store, report(check("web" if hour else "db")), at=after(hours=hour))
    with database.connect() as connection:
        found, at = list[int](), 1
        while page := session_rows.listed(connection, Listing(service="web", limit=1, after=at)).items:
            at = page[0].id
            found.append(at)
    assert found == [2, 3, 4]


# --- services ---------------------------------------------------------------------------------------------


async def test_checks_of_a_service_are_listed_by_any_spelling(store: Store, database: Database) -> None:
    await one_session(store, report(check("Web"), check("db")))
    await one_session(store, alarm("web"), at=after(hours=1))

    with database.connect() as connection:
        found = services.checks(connection, Listing(service="WEB")).items
        everything = services.checks(connection, Listing(since=after(minutes=-1), tier=1)).items
        nothing = services.checks(connection, Listing(service="nobody"))

    assert [(one.service, one.status) for one in found] == [
        ("web", ServiceStatus.DOWN),
        ("Web", ServiceStatus.HEALTHY),
    ]
    assert (found[0].tier, found[0].session_id, found[0].detail) == (1, 2, "502")
    assert [one.service for one in everything] == ["web", "db", "Web"]
    assert (nothing.items, nothing.before) == ((), None)


async def test_actions_are_listed_with_their_results(store: Store, database: Database) -> None:
    session = await started(store, wanted(2))
    await recorded(store, session, "toolu_1", allow(restart()))
    with database.connect() as connection:
        [reserved] = services.actions(connection, Listing()).items
    ended = ToolEnd(tool_use_id="toolu_1", ended_at=after(minutes=1), is_error=True)
    await store.queue.finish(ending(session, report(check("web")), tool_ends=(ended,)), rules=RULES)

    with database.connect() as connection:
        [action] = services.actions(connection, Listing(service="web", tier=2)).items
        assert services.actions(connection, Listing(tier=3)).items == ()

    assert (reserved.success, reserved.held) == (None, None)
    assert (action.action_type, action.service, action.success) == ("restart", "web", False)
    assert (action.session_id, action.chain, action.tier) == (session.id, session.id, 2)


# --- ids --------------------------------------------------------------------------------------------------


async def test_a_session_is_found_by_its_number_or_its_clis_id(store: Store, database: Database) -> None:
    first = await started(store)
    await store.queue.finish(ending(first, report()), rules=RULES)
    second = await started(store)

    with database.connect() as connection:
        assert list(session_ids(connection, Reference(number=first.id, prefix=None))) == [first.id]
        assert list(session_ids(connection, Reference(number=None, prefix="5e0b1"))) == [second.id, first.id]
        assert list(session_ids(connection, Reference(number=None, prefix="5e%"))) == []
        assert list(session_ids(connection, Reference(number=None, prefix="e0b1"))) == []  # from its middle
        assert list(session_ids(connection, Reference(number=99, prefix=None))) == []
