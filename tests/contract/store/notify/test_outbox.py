"""Any store: what is decided is told in the same commit, once a target, and not lost when a daemon dies."""

from __future__ import annotations

from datetime import timedelta

import pytest

from claudeops import logs
from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import UNROUTED, DeliveryOutcome, Notice, Settlement, Target, Topic
from claudeops.domain.schedules import Cron
from claudeops.domain.schedules.windows import read_window
from claudeops.notify.digest import DigestSender
from claudeops.store.store import Store
from support.alerts import alert
from support.store_values import NOW, RULES, after, alarm, ending, one_session, started
from support.stores import Database
from support.told import taken

pytest_plugins = ("support.store_fixtures",)

PHONE = Target(name="phone")
TEAM = Target(name="team", min_level=EventLevel.INFO)
LEASE = timedelta(seconds=60)


def notice(key: str = "k", **more: object) -> Notice:
    fields = {"topic": Topic.EVENT, "level": EventLevel.WARNING, "text": "shop is down", "key": key, **more}
    return Notice(**fields)  # type: ignore[arg-type]


async def to_phone(store: Store, *keys: str) -> None:
    for key in keys:
        await store.outbox.add(notice(key), now=NOW)
    await store.outbox.route([PHONE], now=NOW, most=100)


async def test_an_event_is_told_when_it_opens_and_not_while_it_lasts(store: Store, database: Database) -> None:
    for hour in range(3):
        await one_session(store, None, at=after(hours=hour))

    events = database.rows("events")
    told = database.rows("outbox")
    assert len(told) == len(events)
    assert {row["event_id"] for row in told} == {row["id"] for row in events}
    assert {row["target"] for row in told} == {UNROUTED}


async def test_an_escalation_is_told_with_what_it_has_cost(store: Store, database: Database) -> None:
    session = await started(store)

    await store.queue.finish(ending(session, alarm(), cost_usd=0.25), rules=RULES)

    (row,) = [row for row in database.rows("outbox") if "tier 2 looks into it" in str(row["payload"])]
    assert row["topic"] == "incident"
    assert '"cost_usd":0.25' in str(row["payload"])


async def test_a_notice_reaches_those_who_want_it_and_each_of_them_once(store: Store, database: Database) -> None:
    await store.outbox.add(notice(level=EventLevel.INFO), now=NOW)
    await store.outbox.add(notice(level=EventLevel.INFO), now=NOW)  # not yet on its way: the same
    assert await store.outbox.waiting(NOW) == {UNROUTED}

    assert await store.outbox.route([PHONE, TEAM], now=NOW, most=100) == 1
    await store.outbox.add(notice(level=EventLevel.INFO), now=NOW)
    await store.outbox.route([PHONE, TEAM], now=NOW, most=100)

    assert [row["target"] for row in database.rows("outbox")] == ["team"]
    assert await store.outbox.waiting(NOW) == {"team"}


async def test_what_nobody_wants_is_over_and_said_so(store: Store, database: Database) -> None:
    await store.outbox.add(notice(level=EventLevel.INFO), now=NOW)

    await store.outbox.route([PHONE], now=NOW, most=100)

    (row,) = database.rows("outbox")
    assert (row["result"], row["delivered_at"]) == ("suppressed", NOW)
    assert await store.outbox.waiting(NOW) == frozenset()


async def test_nobody_is_told_what_happened_days_ago_while_no_daemon_ran(store: Store, database: Database) -> None:
    await store.outbox.add(notice(), now=NOW)

    await store.outbox.route([PHONE], now=after(days=1), most=100)

    (row,) = database.rows("outbox")
    assert (row["result"], row["target"]) == ("suppressed", UNROUTED)


@pytest.mark.dialect
@pytest.mark.parametrize(
    ("key", "status", "told"),
    [
        ("incident:1:opened:0", "open", True),
        ("incident:1:opened:2", "acknowledged", True),
        ("incident:1:opened:0", "resolved", False),
        ("incident:8:opened:0", "open", False),  # there is no such incident
        ("incident:1:worse:critical:0", "open", False),
        ("incident:1:resolved:0", "resolved", False),
    ],
)
async def test_a_clock_that_leaps_a_day_takes_no_open_incident_out_of_sight(
    store: Store, database: Database, key: str, status: str, told: bool
) -> None:
    await taken(store, alert("Down", "shop"))
    database.execute(f"UPDATE incidents SET status = '{status}'")  # noqa: S608 - of this test
    database.execute("DELETE FROM outbox")
    await store.outbox.add(notice(key, topic=Topic.INCIDENT, incident=int(key.split(":")[1])), now=NOW)

    await store.outbox.route([PHONE], now=after(days=1), most=100)

    claimed = await store.outbox.claim("phone", now=after(days=1), until=after(days=2), most=10)
    assert [each.notice.key for each in claimed] == ([key] if told else [])
    assert [each.created_at for each in claimed] == [after(days=1)] * len(claimed)  # and has its day to arrive


@pytest.mark.dialect
async def test_what_was_not_tried_is_claimed_before_what_has_failed(store: Store) -> None:
    async def claim(most: int) -> list[str]:
        """Claim and have all of it fail."""
        found = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=most)
        failed = [Settlement(id=each.id, result=DeliveryOutcome.FAILED, again_at=NOW) for each in found]
        await store.outbox.settle("phone", failed, until=NOW + LEASE, now=NOW)
        return [each.notice.key for each in found]

    await store.outbox.add(notice("question", topic=Topic.APPROVAL), now=NOW)
    await to_phone(store, "a", "b")
    assert await claim(2) == ["question", "a"]
    assert await claim(2) == ["question", "b"]  # its second try decides whether anybody knows of it
    await to_phone(store, "c", "d")

    assert await claim(9) == ["c", "d", "a", "b", "question"]
    await to_phone(store, "e")
    assert await claim(2) == ["e", "c"]


@pytest.mark.dialect
async def test_what_comes_in_quiet_hours_waits_for_their_end(store: Store) -> None:
    quiet = Target(name="team", quiet_hours=(read_window("00:00-23:59"),))
    await store.outbox.add(notice(), now=NOW)
    await store.outbox.add(notice("worse", level=EventLevel.CRITICAL), now=NOW)

    await store.outbox.route([quiet], now=NOW, most=100)

    claimed = await store.outbox.claim("team", now=NOW, until=NOW + LEASE, most=10)
    assert [each.notice.key for each in claimed] == ["worse"]
    assert await store.outbox.waiting(after(days=1)) == {"team"}


@pytest.mark.dialect
async def test_the_age_of_what_waits_counts_from_when_it_should_have_been_told(store: Store) -> None:
    assert await store.outbox.oldest(NOW) is None
    quiet = Target(name="team", quiet_hours=(read_window("00:00-23:59"),))
    await store.outbox.add(notice(), now=NOW)
    assert await store.outbox.oldest(after(minutes=5)) == NOW

    await store.outbox.route([quiet], now=NOW, most=100)
    assert await store.outbox.oldest(after(minutes=5)) is None  # quiet hours hold it back
    ended = await store.outbox.oldest(after(days=1))
    assert ended is not None
    assert ended > after(hours=11)


@pytest.mark.dialect
async def test_what_is_claimed_is_claimed_once_and_after_its_daemons_death_again(store: Store) -> None:
    await to_phone(store, "a", "b")

    first = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=10)
    nothing = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=10)
    again = await store.outbox.claim("phone", now=NOW + LEASE, until=NOW + 2 * LEASE, most=10)

    assert [(each.notice.key, each.notice.again) for each in first] == [("a", False), ("b", False)]
    assert nothing == []
    assert [(each.notice.key, each.notice.again) for each in again] == [("a", True), ("b", True)]


async def test_questions_are_claimed_first(store: Store) -> None:
    await store.outbox.add(notice("a"), now=NOW)
    await store.outbox.add(notice("b", topic=Topic.APPROVAL), now=NOW)
    await store.outbox.route([PHONE], now=NOW, most=100)

    (claimed,) = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=1)

    assert claimed.notice.key == "b"


@pytest.mark.parametrize(
    ("result", "again"), [(DeliveryOutcome.FAILED, False), (DeliveryOutcome.UNKNOWN, True), (None, False)], ids=str
)
async def test_only_what_may_have_arrived_says_so_when_it_is_tried_again(
    store: Store, result: DeliveryOutcome | None, again: bool
) -> None:
    await to_phone(store, "a")
    (claimed,) = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=10)

    later = NOW + timedelta(seconds=5)
    settled = [Settlement(id=claimed.id, result=result, again_at=later)]
    await store.outbox.settle("phone", settled, until=NOW + LEASE, now=NOW)

    assert await store.outbox.waiting(NOW) == frozenset()
    (tried,) = await store.outbox.claim("phone", now=later, until=later + LEASE, most=10)
    assert tried.notice.again is again
    assert tried.attempts == (0 if result is None else 1)


@pytest.mark.dialect
async def test_what_was_delivered_is_over_and_counts_for_its_hour(store: Store, database: Database) -> None:
    await to_phone(store, "a", "b")
    one, two = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=10)

    with_it = Settlement(id=two.id, result=DeliveryOutcome.SUPPRESSED, error="told together")
    settled = [Settlement(id=one.id, result=DeliveryOutcome.DELIVERED), with_it]
    await store.outbox.settle("phone", settled, until=NOW + LEASE, now=NOW)

    assert await store.outbox.waiting(after(days=9)) == frozenset()
    assert list(await store.outbox.sent("phone", NOW - timedelta(hours=1))) == [NOW]
    assert {row["result"] for row in database.rows("outbox")} == {"delivered", "suppressed"}


async def test_what_cannot_be_delivered_goes_another_way_and_is_an_event_until_something_is(
    store: Store, database: Database
) -> None:
    await store.outbox.add(notice(), now=NOW)
    await store.outbox.route([PHONE, TEAM], now=NOW, most=100)
    database.execute("DELETE FROM outbox WHERE target = 'team'")
    (claimed,) = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=10)

    dead = Settlement(id=claimed.id, result=DeliveryOutcome.FAILED, error="no", instead=("team",))
    await store.outbox.settle("phone", [dead], until=NOW + LEASE, now=NOW)

    (event,) = database.rows("events")
    assert (event["fingerprint"], event["level"]) == ("notification_dead:phone", "critical")
    await store.outbox.route([PHONE, TEAM], now=NOW, most=100)
    others = [(row["target"], row["topic"]) for row in database.rows("outbox") if row["delivered_at"] is None]
    assert sorted(others) == [("team", "event"), ("team", "self")]  # of a target's death that target is not told

    await to_phone(store, "later")
    (claimed,) = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=10)
    await store.outbox.settle(
        "phone", [Settlement(id=claimed.id, result=DeliveryOutcome.DELIVERED)], until=NOW + LEASE, now=after(hours=1)
    )
    (event,) = database.rows("events")
    assert event["resolved_at"] == after(hours=1)


async def test_what_was_on_its_way_to_a_target_that_is_gone_is_over(store: Store, database: Database) -> None:
    await to_phone(store, "a")

    await store.outbox.route([TEAM], now=after(hours=1), most=100)

    (row,) = database.rows("outbox")
    assert (row["result"], row["delivered_at"]) == ("suppressed", after(hours=1))


@pytest.mark.dialect
async def test_of_two_that_settle_the_first_counts(store: Store, database: Database) -> None:
    await to_phone(store, "a")
    (claimed,) = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=10)

    delivered = Settlement(id=claimed.id, result=DeliveryOutcome.DELIVERED)
    await store.outbox.settle("phone", [delivered], until=NOW + LEASE, now=NOW)
    await store.outbox.settle(
        "phone", [Settlement(id=claimed.id, result=DeliveryOutcome.FAILED, error="late")], until=NOW + LEASE, now=NOW
    )

    (row,) = database.rows("outbox")
    assert (row["result"], row["error"]) == ("delivered", None)


@pytest.mark.dialect
async def test_late_result_does_not_end_the_lease_of_whoever_has_the_notice_now(
    store: Store, database: Database
) -> None:
    await to_phone(store, "a", "b")
    first, second = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=10)
    assert len(await store.outbox.claim("phone", now=NOW + LEASE, until=NOW + 2 * LEASE, most=1)) == 1

    results = [Settlement(id=each.id, result=None, again_at=NOW) for each in (first, second)]
    late = await store.outbox.settle("phone", results, until=NOW + LEASE, now=NOW + LEASE)

    assert late == [first.id]
    assert [row["lease_until"] for row in database.rows("outbox")] == [NOW + 2 * LEASE, None]
    over = Settlement(id=first.id, result=DeliveryOutcome.DELIVERED)
    assert await store.outbox.settle("phone", [over], until=NOW + 2 * LEASE, now=NOW + LEASE) == []


async def test_an_event_that_opens_again_is_told_again(store: Store, database: Database) -> None:
    for hour in (0, 1):
        await one_session(store, None, at=after(hours=hour))
        database.execute("UPDATE events SET resolved_at = last_seen")

    assert len(database.rows("outbox")) == 2


@pytest.mark.dialect
async def test_the_sum_of_a_day_counts_what_is_on_record_and_is_told_once(store: Store, database: Database) -> None:
    session = await started(store)
    await store.queue.finish(ending(session, alarm(), cost_usd=0.25), rules=RULES)
    clock = NOW + timedelta(minutes=5)
    keeper = DigestSender(
        outbox=store.outbox,
        cron=Cron(expr="* * * * *"),
        daily_budget_usd=25.0,
        now=lambda: clock,
        log=logs.get_logger(),
    )

    sums = await store.outbox.sums(NOW - timedelta(hours=1), now=clock)
    await keeper.look_once()
    keeper._sent = None  # as after a restart
    await keeper.look_once()

    assert (sums.chains, sums.sessions, sums.booked_usd) == (1, 1, 0.25)
    assert sums.decisions == {"escalated": 1}
    assert [row["topic"] for row in database.rows("outbox")].count("digest") == 1
