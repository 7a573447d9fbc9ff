"""The outbox is emptied: one target never waits for another, and nothing is lost or told without need twice."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import pytest

from claudeops import logs
from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import DeliveryOutcome, Notice, Target, Topic
from claudeops.domain.notices.refusals import CONTENT, RefusalCause
from claudeops.domain.notices.routing import DEAD_AFTER
from claudeops.notify.channels.apprise import Courier
from claudeops.notify.delivery import DeliveryResult
from claudeops.notify.sender import LEASE, NoticeSender
from claudeops.store.store import Store
from claudeops.wording.notices.texts import NoticeMessage, Wording
from support.answering import asked_of_people
from support.carrying import carriers
from support.store_values import NOW
from support.stores import Database
from support.waiting import until

pytest_plugins = ("support.store_fixtures",)

PHONE = Target(name="phone")
TEAM = Target(name="team")


@dataclass
class Clock:
    """A clock that goes when it is told to."""

    at: datetime = NOW

    def now(self) -> datetime:
        return self.at


@dataclass
class Carrier:
    """Carries nothing anywhere, and records it."""

    heard: list[tuple[str, NoticeMessage]] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)  # addresses
    hanging: set[str] = field(default_factory=set)
    faulty: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)  # nobody knows whether it has arrived
    deaths: random.Random | None = None  # decides at which message the courier is killed
    killed: int = 0

    async def deliver(self, address: str, messages: Sequence[NoticeMessage], told: dict[int, DeliveryResult]) -> None:
        if address in self.hanging:
            await anyio.sleep_forever()
        if address in self.faulty:
            raise RuntimeError("a fault of ours")
        for index, message in enumerate(messages):
            if address in self.silent:
                told[index] = DeliveryResult(result=DeliveryOutcome.UNKNOWN, error="no end")
                continue
            if address in self.failing:
                told[index] = DeliveryResult(result=DeliveryOutcome.FAILED, error="refused by secret-of-the-address")
                return
            self.heard.append((address, message))
            if self.deaths is not None and self.deaths.random() < 0.1:
                told[index] = DeliveryResult(result=DeliveryOutcome.UNKNOWN, error="killed")
                self.killed += 1
                return
            told[index] = DeliveryResult(result=DeliveryOutcome.DELIVERED)


@pytest.fixture
def database(sqlite: Database) -> Database:
    return sqlite


@pytest.fixture
def logged() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


def sender(store: Store, carrier: Carrier, clock: Clock, *targets: Target) -> NoticeSender:
    return NoticeSender(
        outbox=store.outbox,
        targets=targets,
        carriers=carriers(carrier, targets, prefix="to "),
        wording=Wording(redact=lambda text: text.replace("secret-of-the-address", "[redacted]")),
        now=clock.now,
        log=logs.get_logger(),
        look_seconds=0.01,
    )


async def tell(store: Store, *keys: str, level: EventLevel = EventLevel.WARNING) -> None:
    for key in keys:
        await store.outbox.add(Notice(topic=Topic.EVENT, level=level, text=f"{key} is down", key=key), now=NOW)


async def test_a_notice_is_told_to_every_target(store: Store, logged: io.StringIO) -> None:
    carrier = Carrier()
    outgoing = sender(store, carrier, Clock(), PHONE, TEAM)
    counted: list[tuple[str, DeliveryOutcome]] = []
    outgoing.counted = lambda *about: counted.append(about)
    await tell(store, "shop")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outgoing.run)
        await until(lambda: len(carrier.heard) == 2)
        tasks.cancel_scope.cancel()

    assert counted == [("apprise", DeliveryOutcome.DELIVERED)] * 2

    assert sorted(address for address, _ in carrier.heard) == ["to phone", "to team"]
    assert "notification_failed" not in logged.getvalue()


async def test_notice_that_was_claimed_again_meanwhile_is_left_to_whoever_has_it(
    store: Store, database: Database, logged: io.StringIO
) -> None:
    class Slow(Carrier):
        """Delivers so late that another daemon has claimed the notice."""

        async def deliver(
            self, address: str, messages: Sequence[NoticeMessage], told: dict[int, DeliveryResult]
        ) -> None:
            await super().deliver(address, messages, told)
            later = NOW + LEASE
            assert len(await store.outbox.claim("phone", now=later, until=later + LEASE, most=1)) == 1

    outgoing = sender(store, Slow(), Clock(), PHONE)
    await tell(store, "shop")
    await outgoing.look_once()

    await outgoing.deliver_once(PHONE)

    (row,) = database.rows("outbox")
    assert (row["lease_until"], row["delivered_at"]) == (NOW + 2 * LEASE, None)
    assert logged.getvalue().count('"stale_attempt"') == 1


async def test_a_target_that_hangs_delays_no_other(store: Store, logged: io.StringIO) -> None:
    carrier = Carrier(hanging={"to phone"})
    outgoing = sender(store, carrier, Clock(), PHONE, TEAM)
    await tell(store, "shop", "photos")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outgoing.run)
        await until(lambda: len(carrier.heard) == 2)
        tasks.cancel_scope.cancel()

    assert {address for address, _ in carrier.heard} == {"to team"}
    assert logged.getvalue().count("notification_failed") == 0


async def test_a_fault_of_ours_ends_nothing_else(store: Store, database: Database, logged: io.StringIO) -> None:
    carrier = Carrier(faulty={"to phone"})
    outgoing = sender(store, carrier, Clock(), PHONE, TEAM)
    await tell(store, "shop")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outgoing.run)
        await until(lambda: len(carrier.heard) == 1 and "RuntimeError" in logged.getvalue())
        tasks.cancel_scope.cancel()

    (row,) = [row for row in database.rows("outbox") if row["target"] == "phone"]
    assert row["delivered_at"] is None


async def test_a_target_that_fails_is_left_alone_and_what_it_says_is_redacted(
    store: Store, database: Database, logged: io.StringIO
) -> None:
    clock, carrier = Clock(), Carrier(failing={"to phone"})
    outgoing = sender(store, carrier, clock, PHONE)
    await tell(store, "shop")
    await outgoing.look_once()
    await outgoing.deliver_once(PHONE)

    (row,) = database.rows("outbox")
    assert (row["result"], row["not_before"]) == ("failed", NOW + timedelta(seconds=5))
    assert row["error"] == "refused by [redacted]"
    assert "secret-of" not in logged.getvalue()

    clock.at += timedelta(seconds=5)
    await outgoing.deliver_once(PHONE)
    (row,) = database.rows("outbox")
    assert row["not_before"] == clock.at + timedelta(seconds=30)


async def test_whoever_is_told_nothing_for_a_quarter_of_an_hour_can_be_seen_from_outside(
    store: Store, logged: io.StringIO
) -> None:
    carrier, clock = Carrier(failing={"to phone"}), Clock()
    outgoing = sender(store, carrier, clock, PHONE)
    await tell(store, "shop")

    assert outgoing.is_late() == ""
    await outgoing.look_once()
    await outgoing.deliver_once(PHONE)
    clock.at = NOW + timedelta(minutes=14)
    await outgoing.look_once()
    assert (outgoing.oldest, outgoing.is_late()) == (NOW, "")

    clock.at = NOW + timedelta(minutes=15)
    assert outgoing.is_late() == "A notice has waited since 2026-03-01 12:00 UTC: see `claudeops notify test`."
    carrier.failing.clear()
    await outgoing.deliver_once(PHONE)
    await outgoing.look_once()
    assert (outgoing.oldest, outgoing.is_late()) == (None, "")
    assert "notification_failed" in logged.getvalue()


async def test_after_a_day_it_goes_another_way(store: Store, database: Database, logged: io.StringIO) -> None:
    clock, carrier = Clock(), Carrier(failing={"to phone"})
    critical = Target(name="team", min_level=EventLevel.CRITICAL)
    outgoing = sender(store, carrier, clock, PHONE, critical)
    await tell(store, "shop")
    await outgoing.look_once()

    clock.at += DEAD_AFTER
    await outgoing.deliver_once(PHONE)
    await outgoing.look_once()
    await outgoing.deliver_once(critical)

    assert len(carrier.heard) == 2
    said = " ".join(f"{message.title} {message.body}" for _, message in carrier.heard)
    assert "shop is down" in said
    assert "notifications to phone have failed for a day" in said
    assert logged.getvalue()
    assert {row["level"] for row in database.rows("events")} == {"critical"}


async def test_what_exceeds_the_hour_is_told_together(store: Store, database: Database, logged: io.StringIO) -> None:
    carrier, clock = Carrier(), Clock()
    bounded = Target(name="phone", max_per_hour=2)
    outgoing = sender(store, carrier, clock, bounded)
    await tell(store, *(f"service {number}" for number in range(50)))
    await outgoing.look_once()
    await outgoing.deliver_once(bounded)

    assert len(carrier.heard) == 2
    assert carrier.heard[1][1].title == "WARNING · 49 notices"
    assert [row["delivered_at"] for row in database.rows("outbox")] == [NOW] * 50

    await tell(store, "one more")
    await outgoing.look_once()
    await outgoing.deliver_once(bounded)
    clock.at += timedelta(hours=1)
    await outgoing.deliver_once(bounded)
    assert len(carrier.heard) == 3
    assert "again" not in carrier.heard[2][1].title
    assert "notification_failed" not in logged.getvalue()


@pytest.mark.parametrize("seed", range(5))
async def test_couriers_killed_at_random_lose_nothing_and_double_no_more_than_they_were_killed(
    store: Store, logged: io.StringIO, seed: int
) -> None:
    clock, carrier = Clock(), Carrier(deaths=random.Random(seed))  # noqa: S311 - which message dies
    outgoing = sender(store, carrier, clock, PHONE)
    keys = [f"service {number}" for number in range(100)]
    await tell(store, *keys)
    await outgoing.look_once()

    for _ in range(400):
        clock.at += LEASE
        await outgoing.deliver_once(PHONE)
        if not await store.outbox.waiting(clock.at + timedelta(hours=2)):
            break

    heard = [message.body for _, message in carrier.heard]
    assert set(heard) == {f"{key} is down" for key in keys}
    assert len(heard) - len(keys) <= carrier.killed
    repeated = [message.title for _, message in carrier.heard if message.title.startswith("(again)")]
    assert len(repeated) == len(heard) - len(keys)
    assert logged.getvalue()


async def test_a_question_is_tried_twice_within_seconds_at_a_target_that_hangs_for_hours(store: Store) -> None:
    """Else a call waits its whole time for an answer that nobody can give."""
    carrier, clock = Carrier(silent={"to phone"}), Clock()
    send = sender(store, carrier, clock, PHONE)
    for _ in range(9):
        send._fail(PHONE, clock.at)
    await asked_of_people(store)

    for _ in range(2):
        while await send.look_once():
            pass
        assert send._states["phone"].due.is_set()
        await send.deliver_once(PHONE)
        send._states["phone"].due = anyio.Event()
        clock.at += timedelta(seconds=5)

    row = await store.approvals.approval(1)
    assert row is not None
    assert row.unheard == "phone: no end"
    await send.look_once()
    assert not send._states["phone"].due.is_set()


# --- what is refused for good ---------------------------------------------------------------------------------


@dataclass
class Picky(Carrier):
    """Refuses whatever has one of these words in it, and stops at the second failure in a row, as couriers do."""

    words: tuple[str, ...] = ()
    cause: RefusalCause | None = None

    async def deliver(self, address: str, messages: Sequence[NoticeMessage], told: dict[int, DeliveryResult]) -> None:
        failures = 0
        for index, message in enumerate(messages):
            if not any(word in message.body for word in self.words):
                self.heard.append((address, message))
                told[index], failures = DeliveryResult(result=DeliveryOutcome.DELIVERED), 0
                continue
            told[index] = DeliveryResult(result=DeliveryOutcome.FAILED, error="no", cause=self.cause)
            failures += self.cause != CONTENT
            if failures == 2:
                return


async def rounds(outgoing: NoticeSender, clock: Clock, target: Target, count: int, *, seconds: float = 5) -> None:
    """Look and deliver as the daemon does, the clock going on in between."""
    for _ in range(count):
        await outgoing.look_once()
        if outgoing._states[target.name].due.is_set():
            outgoing._states[target.name].due = anyio.Event()
            await outgoing.deliver_once(target)
        clock.at += timedelta(seconds=seconds)


@pytest.mark.parametrize("cause", [None, CONTENT], ids=str)
@pytest.mark.parametrize("level", [EventLevel.WARNING, EventLevel.CRITICAL])
async def test_notices_that_are_always_refused_keep_no_others_waiting(
    store: Store, logged: io.StringIO, cause: RefusalCause | None, level: EventLevel
) -> None:
    carrier, clock = Picky(words=("spam",), cause=cause), Clock()
    outgoing = sender(store, carrier, clock, PHONE)
    await tell(store, "spam 1", "spam 2", "spam 3", level=level)
    await tell(store, "shop", "photos", "mail")

    await rounds(outgoing, clock, PHONE, 9)

    assert {message.body for _, message in carrier.heard} == {"shop is down", "photos is down", "mail is down"}
    assert "notification_failed" in logged.getvalue()


async def test_a_target_that_refuses_some_words_is_not_left_alone_for_that(store: Store) -> None:
    carrier, clock = Picky(words=("spam",), cause=CONTENT), Clock()
    outgoing = sender(store, carrier, clock, PHONE)
    await tell(store, "spam 1", "spam 2")
    await rounds(outgoing, clock, PHONE, 300, seconds=60)  # for hours there is nothing else

    await tell(store, "shop")
    await rounds(outgoing, clock, PHONE, 2)  # one gives it to its target

    assert [message.body for _, message in carrier.heard] == ["shop is down"]


@pytest.mark.parametrize("level", [EventLevel.WARNING, EventLevel.CRITICAL])
async def test_one_refused_notice_takes_none_with_it_of_those_that_are_told_together(
    store: Store, level: EventLevel
) -> None:
    carrier, clock = Picky(words=("spam",), cause=CONTENT), Clock()
    bounded = Target(name="phone", max_per_hour=1)
    outgoing = sender(store, carrier, clock, bounded)
    keys = [f"service {number}" for number in range(3)]
    await tell(store, *keys[:2], "spam", *keys[2:], level=level)

    await rounds(outgoing, clock, bounded, 600, seconds=60)

    told = "\n".join(message.body for _, message in carrier.heard)
    assert all(f"{key} is down" in told for key in keys)
    assert "spam" not in told


async def test_what_one_target_refuses_goes_another_way_within_minutes(store: Store, database: Database) -> None:
    carrier, clock = Picky(words=("spam",), cause=CONTENT), Clock()
    mail = Target(name="mail", topics=frozenset({Topic.DIGEST}))
    outgoing = sender(store, carrier, clock, PHONE, mail)
    outgoing.carriers = {**outgoing.carriers, **carriers(Carrier(heard=carrier.heard), [mail], prefix="to ")}
    await tell(store, "spam")

    await rounds(outgoing, clock, PHONE, 20, seconds=10)
    await rounds(outgoing, clock, mail, 1)

    assert [(address, message.body) for address, message in carrier.heard] == [("to mail", "spam is down")]
    (event,) = database.rows("events")
    assert (event["fingerprint"], event["level"]) == ("notices_refused:phone", "warning")
    assert event["message"] == (
        "phone refuses some notifications (no), which go another way: see what `claudeops notify test phone` says."
    )


async def test_a_target_that_takes_nothing_any_more_is_an_event_with_the_remedy_until_it_does(
    store: Store, database: Database
) -> None:
    cause = RefusalCause(remedy="unarchive the channel")
    carrier, clock = Picky(words=("down",), cause=cause), Clock()
    outgoing = sender(store, carrier, clock, PHONE, TEAM)
    outgoing.carriers = {**outgoing.carriers, **carriers(Carrier(), [TEAM], prefix="to ")}
    await tell(store, "shop")

    await rounds(outgoing, clock, PHONE, 20)

    (event,) = database.rows("events")
    assert (event["fingerprint"], event["level"]) == ("target_refused:phone", "critical")
    assert event["message"] == "phone takes no notifications until somebody mends it (no): unarchive the channel."
    about = [row["target"] for row in database.rows("outbox") if "until somebody mends it" in str(row["payload"])]
    assert about == ["team"]  # once, and not to the target that it is about

    carrier.words = ()
    await rounds(outgoing, clock, PHONE, 5, seconds=3600)
    (event,) = database.rows("events")
    assert event["resolved_at"] is not None


async def test_a_carrier_that_always_fails_over_a_fault_of_ours_is_tried_for_a_day_and_no_longer(
    store: Store, database: Database
) -> None:
    carrier, clock = Carrier(faulty={"to phone"}), Clock()
    outgoing = sender(store, carrier, clock, PHONE)
    await tell(store, "shop")
    await outgoing.look_once()

    with pytest.raises(RuntimeError):
        await outgoing.deliver_once(PHONE)
    (row,) = database.rows("outbox")
    assert (row["attempts"], row["result"], row["error"]) == (1, "failed", "a fault of ours: RuntimeError")

    clock.at += DEAD_AFTER
    with pytest.raises(RuntimeError):
        await outgoing.deliver_once(PHONE)
    assert [row["fingerprint"] for row in database.rows("events")] == ["notification_dead:phone"]


@pytest.mark.parametrize("binary", ["/bin/false", "/bin/true"])
async def test_couriers_that_die_at_once_are_few_and_the_question_counts_as_not_received(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, binary: str
) -> None:
    started = tmp_path / "started"
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho >> {started}\nexec {binary}\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    clock = Clock()
    outgoing = sender(store, Carrier(), clock, PHONE)
    outgoing.carriers = carriers(Courier(environment={}), [PHONE], prefix="to ")
    await asked_of_people(store)

    await rounds(outgoing, clock, PHONE, 40, seconds=1)

    assert started.read_text().count("\n") <= 3  # at once, after 5 s, after 35 s
    question = await store.approvals.approval(1)
    assert question is not None
    assert question.unheard == "phone: the courier ended before it had begun"
