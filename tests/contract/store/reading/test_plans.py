"""SQLite: no list of the API reads a big table from one end to the other, whatever it is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa

from claudeops.domain.events import EventLevel
from claudeops.domain.listing import Listing, reference
from claudeops.domain.sessions import Outcome
from claudeops.store.reading import (
    alerts,
    approvals,
    calls_made,
    events,
    memories,
    services,
    session_ids,
    session_rows,
    silences,
)
from claudeops.store.reading.incidents import entries
from claudeops.store.reading.planned import notices
from support.migrated import write_migrated
from support.store_values import NOW
from support.stores import Database

BIG: Final = (
    *("events", "sessions", "tool_calls", "model_calls", "service_checks", "cooldown_actions", "alerts"),
    *("incidents", "memories", "outbox"),
)
SCAN: Final = re.compile(rf"^SCAN ({'|'.join(BIG)})\b(?! USING)")
SORT: Final = "USE TEMP B-TREE FOR ORDER BY"

List = Callable[[sa.Connection, Listing], object]

LISTS: Final[Mapping[str, tuple[List, tuple[str, ...]]]] = {
    "events": (events.listed, ("service", "level", "since", "until", "tier")),
    "open events": (partial(events.listed, only_open=True), ("service", "level", "since", "until")),
    "sessions": (session_rows.listed, ("service", "since", "until", "tier", "outcome")),
    "checks": (services.checks, ("service", "since", "until")),
    "actions": (services.actions, ("service", "since", "until", "tier")),
    "incidents": (partial(entries.listed, everything=True, now=NOW), ("service", "level", "since", "until")),
    "alerts": (alerts.listed, ("service", "level")),
    "all alerts": (partial(alerts.listed, everything=True), ("service", "level")),
    "approvals": (approvals.listed, ("since", "until")),
    "memories": (partial(memories.listed, now=NOW), ("service",)),
    "all memories": (partial(memories.listed, now=NOW, everything=True), ("service",)),
    "audit": (calls_made.audit_links, ()),
    "audit of a session": (partial(calls_made.audit_links, session_id=1), ()),
    "silences": (partial(silences.newest, now=NOW, everything=False), ()),
    "all silences": (partial(silences.newest, now=NOW, everything=True), ()),
    "notices": (notices.listed, ()),
    "waiting notices": (partial(notices.listed, waiting=True), ()),
    "notices to a target": (partial(notices.listed, target="phone"), ()),
    "waiting notices to a target": (partial(notices.listed, target="phone", waiting=True), ()),
    "calls": (partial(calls_made.of_tools, session_id=1), ()),
    "model calls": (partial(calls_made.of_the_model, session_id=1), ()),
}
FILTERS: Final[Mapping[str, Any]] = {
    "service": "web",
    "level": EventLevel.WARNING,  # and what is worse: two values
    "tier": 2,
    "outcome": Outcome.ERROR,
    "since": NOW - timedelta(days=2),
    "until": NOW,
}


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """Return a database that knows two spellings of a service."""
    file = tmp_path / "claudeops.db"
    write_migrated(file)
    made = Database(f"sqlite:///{file}")
    made.execute(
        "INSERT INTO sessions (id, tier, ordinal, harness, model, trigger, status, created_at, attempt, audit_head)"
        " VALUES (1, 1, 0, 'claude', 'haiku', 'manual', 'queued', '2026-03-01 12:00:00.000000', 1, '')"
    )
    for name in ("web", "Web"):
        made.execute(
            "INSERT INTO events (level, service, message, created_at, fingerprint, first_seen, last_seen, count) VALUES"
            " ('critical', :name, 'x', :at, :name, :at, :at, 1)",
            name=name,
            at="2026-03-01 12:00:00.000000",
        )
        made.execute(
            "INSERT INTO service_checks (session_id, service, status, source, checked_at) VALUES"
            " (1, :name, 'down', 'report', '2026-03-01 12:00:00.000000')",
            name=name,
        )
    return made


def asked(names: tuple[str, ...]) -> Iterator[Listing]:
    """Yield a list with every set of filters, from its beginning and further on."""
    places: tuple[dict[str, int], ...] = ({}, {"before": 1000}, {"after": 1000})
    for chosen, place in product(product((False, True), repeat=len(names)), places):
        given = {name: FILTERS[name] for name, wanted in zip(names, chosen, strict=True) if wanted}
        yield Listing(before=place.get("before"), after=place.get("after"), **given)


def plans_of(connection: sa.Connection, read: List, wanted: Listing) -> list[str]:
    """Return the steps by which SQLite finds what a list asks for."""
    statements: list[tuple[str, Any]] = []

    def note(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        statements.append((statement, parameters))

    sa.event.listen(connection, "before_cursor_execute", note)
    read(connection, wanted)
    sa.event.remove(connection, "before_cursor_execute", note)
    rows = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", given).all() for text, given in statements]
    return [row[3] for found in rows for row in found]


@pytest.mark.parametrize("name", LISTS)
def test_no_list_scans_a_big_table_but_in_the_order_of_its_keys(name: str, database: Database) -> None:
    read, filters = LISTS[name]
    with database.connect() as connection:
        for wanted in asked(filters):
            steps = plans_of(connection, read, wanted)
            assert steps
            # Without a filter a list is read by its key, from its end: a limit bounds that.
            unfiltered = Listing(before=wanted.before, after=wanted.after) == wanted
            scans = [step for step in steps if SCAN.match(step) and not unfiltered]
            assert scans == [], (wanted, steps)


@pytest.mark.parametrize("text", ["abcd", "1234", "7"])
def test_a_session_is_named_without_reading_all(text: str, database: Database) -> None:
    def named(connection: sa.Connection, _: Listing) -> object:
        return session_ids(connection, reference(text))

    with database.connect() as connection:
        steps = plans_of(connection, named, Listing())

    assert [step for step in steps if step.startswith("SEARCH sessions")]
    assert not [step for step in steps if SCAN.match(step)]


def test_a_service_with_several_spellings_is_not_sorted(database: Database) -> None:
    with database.connect() as connection:
        for wanted in (Listing(service="web"), Listing(service="web", before=1000)):
            steps = plans_of(connection, events.listed, wanted)
            branches = [step for step in steps if "ix_events_service_level_id" in step]
            assert len(branches) == 6  # two spellings, three levels
            assert not [step for step in steps if step == SORT and "MATERIALIZE" in step]


def test_incidents_of_a_level_and_worse_are_not_sorted(database: Database) -> None:
    with database.connect() as connection:
        for wanted in (Listing(level=EventLevel.INFO), Listing(level=EventLevel.INFO, before=1000)):
            steps = plans_of(connection, partial(entries.listed, everything=True, now=NOW), wanted)
            branches = [step for step in steps if "ix_incidents_severity_number" in step]
            assert len(branches) == 3
            assert SORT not in steps
