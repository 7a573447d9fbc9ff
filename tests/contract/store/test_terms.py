"""What one daemon does for all is refused once another has its lease, and let through where none is taken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final

import pytest
import sqlalchemy as sa

from claudeops.domain.alerts.alert import SenderBody
from claudeops.domain.alerts.register import ReceivedBody
from claudeops.domain.alerts.rules import Grouping
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.calls import ToolEnd
from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import DeliveryOutcome, Notice, Settlement, Target, Topic
from claudeops.domain.owner import ALERTS, NOTICES, SCHEDULES, probes_of
from claudeops.domain.probes.history import Bucket
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.probes.record import Stretch
from claudeops.domain.schedules.plan import Fire
from claudeops.errors import StaleTermError
from claudeops.store.alerts.transaction import PIECE
from claudeops.store.store import Store
from claudeops.store.tables.all_tables import metadata
from claudeops.structs import replace
from support.alerts import SOURCE, alert, bring, rules_of
from support.probe_values import probe, turned
from support.store_values import (
    NOW,
    OWNER,
    RULES,
    after,
    allow,
    check,
    claimed,
    ending,
    queued,
    recorded,
    report,
    restart,
    wanted,
)
from support.stores import Database, Row, opened
from support.told import ABOUT, chain_of

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

EACH: Final = (ALERTS, NOTICES, SCHEDULES, probes_of("north"))
ONE, OTHER = "a" * 32, "b" * 32
FOLLOWED: Final = replace(RULES, follow_up_seconds=900.0)
PHONE: Final = Target(name="phone")


def body(key: str, *names: str, group: str = "g") -> ReceivedBody:
    content = SenderBody(source=SOURCE, key=key, alerts=tuple(map(alert, names)), group_key=group)
    return ReceivedBody(content=content, received_at=NOW, raw="{}")


async def prepared(store: Store) -> None:
    """Give each kind of work something to do."""
    await store.probes.enrol((probe("web"),), OWNER, now=NOW)
    await queued(store, wanted(2))
    session = await claimed(store)
    assert session is not None
    await recorded(store, session, "toolu_1", allow(restart("web")))
    ends = (ToolEnd(tool_use_id="toolu_1", ended_at=after(minutes=1), is_error=False),)
    await store.queue.finish(ending(session, report(check("web")), tool_ends=ends), rules=FOLLOWED)
    await store.alerts.receive([body("a", "Down")], now=NOW)
    await store.outbox.add(Notice(topic=Topic.EVENT, level=EventLevel.WARNING, text="down", key="k"), now=NOW)
    await store.outbox.route([PHONE], now=NOW, most=100)


WORK: Final[Mapping[str, Callable[[Store], Awaitable[object]]]] = {
    "a fire": lambda store: store.schedules.fire(Fire(schedule="s", due_at=NOW), wanted(), rules=RULES, now=NOW),
    "follow-ups": lambda store: store.follow_ups.answer_due(rules=FOLLOWED, now=after(minutes=16)),
    "declared probes": lambda store: store.probes.enrol((probe("db"),), OWNER, now=NOW),
    "what probes saw": lambda store: store.probes.observed(
        [turned(probe("web"), ProbeState.DOWN, at=NOW)], owner=OWNER, rules=RULES, now=NOW
    ),
    "incidents of probes": lambda store: store.probes.join({"web": "probe:1"}),
    "history of probes": lambda store: store.probes.add_history(
        [Stretch(probe="web", start=NOW, bucket=Bucket(checks=1))]
    ),
    "a round of alerts": lambda store: store.alerts.decide(ABOUT, chain_of, now=NOW),
    "the clock of alerts": lambda store: store.alerts.tick(ABOUT, chain_of, now=NOW),
    "failures of probes": lambda store: store.alerts.queue_failures(["web"], "probe:1", now=NOW),
    "a body that nobody understands": lambda store: store.alerts.set_aside("why", now=NOW),
    "routing": lambda store: store.outbox.route([], now=NOW, most=100),
    "a claim of notices": lambda store: store.outbox.claim("phone", now=NOW, until=after(minutes=1), most=9),
    "events about targets": lambda store: store.outbox.end_events((), now=NOW),
}


def content(database: Database) -> dict[str, list[Row]]:
    return {name: database.rows(name) for name in metadata.tables if name != "leases"}


async def taken_over(database: Database, store: Store) -> None:
    await store.leases.take(EACH, ONE, seconds=0.0)
    async with opened(database) as other:
        await other.leases.take(EACH, OTHER)


@pytest.mark.parametrize("work", WORK)
async def test_work_of_a_lease_that_another_has_leaves_nothing(store: Store, database: Database, work: str) -> None:
    await prepared(store)
    await taken_over(database, store)
    before = content(database)

    with pytest.raises(StaleTermError):
        await WORK[work](store)

    assert content(database) == before


@pytest.mark.parametrize("work", WORK)
async def test_work_is_done_by_the_holder_and_where_no_lease_is_taken(sqlite: Database, work: str) -> None:
    async with opened(sqlite) as store:
        await prepared(store)
        await WORK[work](store)
    async with opened(sqlite) as store:
        await store.leases.take(EACH, ONE)
        await WORK[work](store)


async def test_work_of_a_role_that_was_dropped_is_refused_although_nobody_else_has_it(store: Store) -> None:
    await prepared(store)
    await store.leases.take(EACH, ONE)
    store.leases.drop(probes_of("north"))

    with pytest.raises(StaleTermError):
        await WORK["history of probes"](store)
    await WORK["a round of alerts"](store)


async def test_what_was_sent_under_a_term_that_is_over_is_on_record_all_the_same(
    store: Store, database: Database
) -> None:
    await prepared(store)
    await store.leases.take(EACH, ONE, seconds=0.0)
    rows = await store.outbox.claim("phone", now=NOW, until=after(minutes=1), most=9)
    await taken_over(database, store)

    sent = [Settlement(id=row.id, result=DeliveryOutcome.DELIVERED) for row in rows]
    assert list(await store.outbox.settle("phone", sent, until=after(minutes=1), now=NOW)) == []

    assert {row["result"] for row in database.rows("outbox") if row["target"] == "phone"} == {"delivered"}


async def test_later_pieces_of_a_storm_are_refused_when_another_has_taken_over_in_between(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = AlertFiles(alerts=rules_of(Grouping(wait=timedelta(minutes=1))), escalation=RULES)
    names = [f"A{number}" for number in range(PIECE * 2)]
    posts = [body(str(first), *names[first : first + 100], group="") for first in range(0, PIECE * 2, 100)]
    await store.leases.take(EACH, ONE, seconds=0.0)
    await bring(store.alerts, posts, about, chain_of, now=NOW)
    write = store.database.write

    async def then_taken_over(job: Callable[[sa.Connection], object]) -> object:
        done = await write(job)
        async with opened(database) as other:
            await other.leases.take(EACH, OTHER)
        return done

    monkeypatch.setattr(store.database, "write", then_taken_over)
    done = await store.alerts.tick(about, chain_of, now=after(minutes=2))
    monkeypatch.undo()

    assert len(done.started) == 1  # of the first transaction, which is on record
    assert sum(row["due_at"] is not None for row in database.rows("alerts")) == PIECE
    with pytest.raises(StaleTermError):
        await store.alerts.tick(about, chain_of, now=after(minutes=3))


async def test_alerts_that_another_has_decided_about_meanwhile_are_not_overwritten(
    store: Store, database: Database
) -> None:
    await store.alerts.receive([body("a", "Down")], now=NOW)
    await store.alerts.decide(ABOUT, chain_of, now=NOW)  # and keeps the alert in memory
    store.alerts.forget()  # the role is lost
    async with opened(database) as other:
        again = replace(body("b", "Down"), received_at=after(minutes=1))
        await other.alerts.receive([again], now=after(minutes=1))
        await other.alerts.decide(ABOUT, chain_of, now=after(minutes=1))

    await store.alerts.receive([replace(body("c", "Down"), received_at=after(minutes=2))], now=after(minutes=2))
    await store.alerts.decide(ABOUT, chain_of, now=after(minutes=2))

    assert [row["count"] for row in database.rows("alerts")] == [3]
