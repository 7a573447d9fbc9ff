"""Any store: who sends is counted, and a source that sends what cannot be read is one event, told once."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from claudeops.domain.alerts.alert import SenderBody, Unparsed
from claudeops.domain.alerts.register import ReceivedBody
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.sessions import Handover, NewSession, Trigger
from claudeops.store.reading import opened as reading
from claudeops.store.reading.sources import SourceEntry, listed
from claudeops.store.store import Store
from support.alerts import SOURCE, alert, rules_of
from support.store_values import RULES, after, wanted
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

ABOUT: Final = AlertFiles(alerts=rules_of(), escalation=RULES)
OTHER: Final = "scripts"


def chain_of(tier: int, told: Handover) -> NewSession:
    return wanted(tier, trigger=Trigger.ALERT, context=told)


def readable(key: str = "r", source: str = SOURCE, minutes: float = 0) -> ReceivedBody:
    said = SenderBody(source=source, key=key, alerts=(alert(), alert("Slow")))
    return ReceivedBody(content=said, received_at=after(minutes=minutes), raw='{"fine": 1}')


def broken(
    why: str = "line 1: a", key: str = "u", source: str = SOURCE, minutes: float = 0, raw: str = "<a>"
) -> ReceivedBody:
    return ReceivedBody(content=Unparsed(source=source, key=key, why=why), received_at=after(minutes=minutes), raw=raw)


async def receive(store: Store, *posts: ReceivedBody, minutes: float = 0) -> None:
    await store.alerts.receive(posts, now=after(minutes=minutes))


def events(database: Database) -> list[tuple[object, object, bool]]:
    return [(row["message"], row["count"], row["resolved_at"] is None) for row in database.rows("events")]


def told(database: Database) -> list[tuple[object, object]]:
    notices = [msgspec.json.decode(str(row["payload"])) for row in database.rows("outbox")]
    return [(notice["topic"], notice["text"]) for notice in notices]


def entries(database: Database) -> dict[str, SourceEntry]:
    with reading(database.url) as connection:
        return {entry.source: entry for entry in listed(connection)}


@pytest.mark.dialect
async def test_what_a_source_brings_is_counted_and_its_last_trouble_is_kept(store: Store, database: Database) -> None:
    await receive(store, readable(), readable("s", OTHER))
    await receive(store, broken(minutes=1), readable(minutes=1), broken("line 2: b", "v", minutes=2), minutes=2)

    found = entries(database)
    assert found.keys() == {SOURCE, OTHER}
    assert found[SOURCE] == SourceEntry(
        kind=None,
        declared=False,
        source=SOURCE,
        since=after(minutes=0),
        heard_at=after(minutes=2),
        bodies=4,
        alerts=4,
        unreadable=2,
        readable=False,
        unreadable_at=after(minutes=2),
        reason="line 2: b",
        sent="<a>",
    )
    assert (found[OTHER].bodies, found[OTHER].readable, found[OTHER].reason) == (1, True, None)


@pytest.mark.dialect
async def test_a_source_that_cannot_be_read_is_one_event_that_its_next_readable_body_ends(
    store: Store, database: Database
) -> None:
    await receive(store, broken("line 1: a"), broken("line 1: a", source=OTHER))
    for minute in range(1, 10):
        await receive(store, broken(f"line {minute}: b", f"k{minute}"), minutes=minute)

    assert events(database) == [
        (f"{SOURCE} sends what cannot be read: line 9: b", 10, True),
        (f"{OTHER} sends what cannot be read: line 1: a", 1, True),
    ]
    assert told(database) == [
        ("self", f"{SOURCE} sends what cannot be read: line 1: a"),
        ("self", f"{OTHER} sends what cannot be read: line 1: a"),
    ]

    await receive(store, readable(), minutes=10)

    assert [is_open for _, _, is_open in events(database)] == [False, True]
    found = entries(database)
    assert (found[SOURCE].readable, found[SOURCE].reason, found[OTHER].readable) == (True, "line 9: b", False)


@pytest.mark.dialect
async def test_a_source_that_goes_to_and_fro_is_told_once_a_day_and_fills_no_list(
    store: Store, database: Database
) -> None:
    for minute in range(0, 600, 60):
        await receive(store, broken(key=f"u{minute}"), readable(f"r{minute}"), minutes=minute)
        await receive(store, readable(f"s{minute}"), broken(key=f"v{minute}"), minutes=minute + 1)

    assert [(count, is_open) for _, count, is_open in events(database)] == [(20, True)]
    assert len(told(database)) == 1

    await receive(store, readable("t"), minutes=600)
    await receive(store, broken(key="w"), minutes=600 + 24 * 60 - 1)
    assert len(told(database)) == 1
    await receive(store, readable("x"), minutes=3000)
    await receive(store, broken(key="y"), minutes=3001 + 24 * 60)
    assert [(count, is_open) for _, count, is_open in events(database)] == [(21, False), (1, True)]
    assert len(told(database)) == 2


async def test_a_body_that_comes_again_is_sent_again(store: Store, database: Database) -> None:
    await receive(store, broken())
    await receive(store, broken(minutes=3), minutes=3)

    assert [row["repeats"] for row in database.rows("alert_deliveries")] == [1]
    found = entries(database)[SOURCE]
    assert (found.bodies, found.unreadable, found.heard_at) == (2, 2, after(minutes=3))
    assert [count for _, count, _ in events(database)] == [2]


async def test_a_source_that_is_no_longer_declared_is_no_longer_a_trouble(store: Store, database: Database) -> None:
    await receive(store, broken(source="gone"), broken())

    await store.alerts.tick(ABOUT, chain_of, now=after(minutes=1))

    assert {str(said).partition(" ")[0]: is_open for said, _, is_open in events(database)} == {
        "gone": False,
        SOURCE: True,
    }
    found = entries(database)
    assert (found["gone"].readable, found[SOURCE].readable) == (True, False)


async def test_what_it_sent_is_shown_as_far_as_it_helps_and_as_long_as_it_is_kept(
    store: Store, database: Database
) -> None:
    await receive(store, broken(raw="x" * 5000))
    assert entries(database)[SOURCE].sent == "x" * 300

    for statement in ("DELETE FROM alert_decisions", "DELETE FROM alert_deliveries"):
        database.execute(statement)
    found = entries(database)[SOURCE]
    assert (found.sent, found.reason, found.unreadable) == (None, "line 1: a", 1)
