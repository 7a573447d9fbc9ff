"""Any store: a question that every target has failed at is known to have reached nobody, and no other one is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import DeliveryOutcome, Notice, Settlement, Target, Topic
from claudeops.domain.schedules.windows import read_window
from claudeops.store.store import Store, open_store
from support.answering import asked_of_people
from support.store_values import NOW, after
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

PHONE, MAIL = Target(name="phone"), Target(name="mail")
DIGESTS = Target(name="digests", topics=frozenset({Topic.DIGEST, Topic.SELF}))
LEASE = timedelta(seconds=60)
AGAIN = NOW + timedelta(seconds=5)


async def tried(
    store: Store, results: Mapping[str, DeliveryOutcome | None], *, error: str = "", at: timedelta = timedelta(0)
) -> None:
    """Let targets try what is due for them; each has one result for all of it."""
    now = NOW + at
    for target, result in results.items():
        claimed = await store.outbox.claim(target, now=now, until=now + LEASE, most=10)
        over = result is DeliveryOutcome.DELIVERED
        settled = [
            Settlement(id=each.id, result=result, error="" if over else error, again_at=None if over else now)
            for each in claimed
        ]
        await store.outbox.settle(target, settled, until=now + LEASE, now=now)


async def unheard(store: Store) -> str | None:
    row = await store.approvals.approval(1)
    assert row is not None
    return row.unheard


async def asked(store: Store, *targets: Target) -> None:
    await asked_of_people(store)
    await store.outbox.route(targets, now=NOW, most=10)


def raised(database: Database) -> list[tuple[object, object, object]]:
    return [
        (row["level"], row["count"], row["resolved_at"])
        for row in database.rows("events")
        if row["fingerprint"] == "approval_unheard"
    ]


@pytest.mark.dialect
async def test_a_question_that_all_have_failed_at_is_on_record_with_what_each_one_said(
    store: Store, database: Database
) -> None:
    await asked(store, PHONE, MAIL, DIGESTS)

    await tried(store, {"phone": DeliveryOutcome.FAILED}, error="401\nUnauthorized \u202e")
    assert await unheard(store) is None
    await tried(store, {"mail": DeliveryOutcome.FAILED})

    assert await unheard(store) == "phone: 401 Unauthorized \\u202e, mail: failed"
    assert raised(database) == [("critical", 1, None)]
    (event,) = [row for row in database.rows("events") if row["fingerprint"] == "approval_unheard"]
    assert "approval 1 has reached nobody (phone: 401" in str(event["message"])
    await store.outbox.route([PHONE, MAIL, DIGESTS], now=NOW, most=10)
    assert "digests" in await store.outbox.waiting(NOW)  # somebody else may hear of it


async def test_a_question_that_one_has_got_was_heard(store: Store, database: Database) -> None:
    await asked(store, PHONE, MAIL)

    await tried(store, {"phone": DeliveryOutcome.DELIVERED, "mail": DeliveryOutcome.FAILED})
    await tried(store, {"mail": DeliveryOutcome.FAILED}, at=timedelta(seconds=5))

    assert (await unheard(store), raised(database)) == (None, [])


async def test_a_question_that_is_told_together_with_another_was_heard(store: Store) -> None:
    await asked(store, PHONE, MAIL)
    (claimed,) = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=10)
    with_it = Settlement(id=claimed.id, result=DeliveryOutcome.SUPPRESSED, error="told together with 7")
    await store.outbox.settle("phone", [with_it], until=NOW + LEASE, now=NOW)

    await tried(store, {"mail": DeliveryOutcome.FAILED})

    assert await unheard(store) is None


async def test_a_target_that_was_not_tried_yet_may_still_reach_somebody(store: Store) -> None:
    await asked(store, PHONE, MAIL)

    await tried(store, {"phone": DeliveryOutcome.FAILED, "mail": None})
    assert await unheard(store) is None
    await tried(store, {"mail": DeliveryOutcome.FAILED})

    assert await unheard(store) == "phone: failed, mail: failed"


async def test_a_target_that_did_not_answer_may_have_got_it_until_it_does_not_answer_again(store: Store) -> None:
    await asked(store, PHONE)

    await tried(store, {"phone": DeliveryOutcome.UNKNOWN}, error="no end")
    assert await unheard(store) is None
    await tried(store, {"phone": DeliveryOutcome.UNKNOWN}, error="no end")

    assert await unheard(store) == "phone: no end"


async def test_without_a_target_for_questions_nothing_is_known(store: Store, database: Database) -> None:
    await asked(store, DIGESTS)
    await store.outbox.add(Notice(topic=Topic.DIGEST, level=EventLevel.INFO, text="quiet", key="d"), now=NOW)
    await store.outbox.route([DIGESTS], now=NOW, most=10)

    await tried(store, {"digests": DeliveryOutcome.FAILED})

    assert (await unheard(store), raised(database)) == (None, [])


async def test_a_failed_reminder_takes_back_no_question_that_was_heard(store: Store) -> None:
    await asked(store, PHONE)
    await tried(store, {"phone": DeliveryOutcome.DELIVERED})

    half = timedelta(minutes=8)
    await store.outbox.route([PHONE], now=NOW + half, most=10)
    await tried(store, {"phone": DeliveryOutcome.FAILED}, at=half)

    assert await unheard(store) is None


async def test_a_question_that_is_over_is_not_said_to_be_unheard(store: Store, database: Database) -> None:
    await asked(store, PHONE)
    claimed = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=10)
    await store.approvals.close_approval(1, now=NOW)

    failed = [Settlement(id=each.id, result=DeliveryOutcome.FAILED, again_at=AGAIN) for each in claimed]
    await store.outbox.settle("phone", failed, until=NOW + LEASE, now=NOW)

    assert (await unheard(store), raised(database)) == (None, [])


async def test_the_event_counts_each_question_and_ends_when_a_target_of_questions_is_reached(
    store: Store, database: Database
) -> None:
    await asked(store, PHONE)
    await tried(store, {"phone": DeliveryOutcome.FAILED})
    await asked(store, PHONE)
    await tried(store, {"phone": DeliveryOutcome.FAILED})
    assert raised(database) == [("critical", 2, None)]

    await store.outbox.add(Notice(topic=Topic.SELF, level=EventLevel.CRITICAL, text="disk", key="disk"), now=NOW)
    await store.outbox.route([DIGESTS], now=NOW, most=10)
    await tried(store, {"digests": DeliveryOutcome.DELIVERED})
    assert raised(database) == [("critical", 2, None)]  # it never asks anybody anything

    await asked(store, PHONE)
    await tried(store, {"phone": DeliveryOutcome.DELIVERED}, at=timedelta(seconds=9))
    assert raised(database) == [("critical", 2, NOW + timedelta(seconds=9))]


async def test_whoever_waits_in_this_process_is_told_once(database: Database) -> None:
    told: list[int] = []
    store = open_store(database.url, now=lambda: NOW, answered=told.append)
    try:
        await asked(store, PHONE)
        await tried(store, {"phone": DeliveryOutcome.FAILED})
        await tried(store, {"phone": DeliveryOutcome.FAILED})
    finally:
        await store.close()

    assert told == [1]


async def test_a_question_that_may_have_arrived_waits_for_no_pause_before_its_second_try(store: Store) -> None:
    await asked(store, PHONE)

    await tried(store, {"phone": DeliveryOutcome.UNKNOWN})
    assert await store.outbox.asking(NOW) == {"phone"}
    await tried(store, {"phone": DeliveryOutcome.UNKNOWN})

    assert await store.outbox.asking(NOW) == frozenset()


async def test_only_a_question_that_was_never_tried_waits_for_no_pause(store: Store) -> None:
    await asked(store, PHONE)
    await store.outbox.add(Notice(topic=Topic.SELF, level=EventLevel.CRITICAL, text="disk", key="disk"), now=NOW)
    await store.outbox.route([PHONE], now=NOW, most=10)

    assert await store.outbox.asking(NOW) == {"phone"}
    await tried(store, {"phone": DeliveryOutcome.FAILED})

    assert await store.outbox.asking(after(minutes=1)) == frozenset()
    assert "phone" in await store.outbox.waiting(after(minutes=1))


async def test_quiet_hours_hold_back_no_question(store: Store) -> None:
    quiet = Target(name="phone", quiet_hours=(read_window("00:00-23:59"),), min_level=EventLevel.CRITICAL)
    await asked(store, quiet)

    (claimed,) = await store.outbox.claim("phone", now=NOW, until=NOW + LEASE, most=10)

    assert claimed.notice.approval_id == 1
