"""Real couriers on bad days: they are killed at random, and their targets hang, drip, refuse or are away.

OUTBOX_ROWS=10000 empties a longer outbox than `make test-long` has time for.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import anyio
import psutil
import pytest

from claudeops import logs
from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import Notice, Target, Topic
from claudeops.notify.channels.apprise import AddressCarrier, Courier
from claudeops.notify.sender import NoticeSender
from claudeops.store.store import Store
from claudeops.wording.notices.texts import Wording
from support.receivers import Receiver, receiving
from support.store_values import NOW
from support.stores import Database
from support.waiting import PATIENCE_SECONDS, until, until_it

pytest_plugins = ("support.store_fixtures",)

ROWS: Final = int(os.environ.get("OUTBOX_ROWS", "200"))
TARGETS: Final = (Target(name="phone"), Target(name="team"))
KILLED: Final = 0.3  # of all couriers
ARRIVED_FIRST: Final = 12  # at most, by all couriers together, from the start of one to its end
KILLED_AT_ONCE: Final = 3  # while they still import: others may have done their work, however soon they are killed
STEP: Final = timedelta(seconds=6)  # by which the clock goes on: more than the first pause of a target


@dataclass
class Clock:
    """A clock that goes when it is told to."""

    at: datetime = NOW

    def now(self) -> datetime:
        return self.at


@dataclass
class Killer:
    """Kills couriers of this process once so many messages have arrived since they were started: that is drawn."""

    draw: random.Random
    arrived: Callable[[], int]
    killed: int = 0
    _seen: set[int] = field(default_factory=set)

    async def run(self) -> None:
        me = psutil.Process()

        def new() -> set[int]:
            return {child.pid for child in me.children()} - self._seen

        async with anyio.create_task_group() as tasks:
            while True:
                await until(lambda: bool(new()))
                for pid in new():
                    self._seen.add(pid)
                    if len(self._seen) <= KILLED_AT_ONCE:
                        tasks.start_soon(self._kill, pid, 0)
                    elif self.draw.random() < KILLED:
                        tasks.start_soon(self._kill, pid, self.draw.randrange(ARRIVED_FIRST))

    async def _kill(self, pid: int, after: int) -> None:
        goal = self.arrived() + after
        await until(lambda: self.arrived() >= goal or not psutil.pid_exists(pid))
        try:
            if "claudeops.notify.courier" in psutil.Process(pid).cmdline():
                os.kill(pid, signal.SIGKILL)
                self.killed += 1
        except (psutil.Error, ProcessLookupError):
            pass  # it had done its work


@pytest.fixture
def database(sqlite: Database) -> Database:
    return sqlite


def sender(store: Store, clock: Clock, receivers: dict[str, Receiver], **courier: float) -> NoticeSender:
    to = Courier(environment={}, **courier)
    return NoticeSender(
        outbox=store.outbox,
        targets=tuple(Target(name=name) for name in receivers),
        carriers={name: AddressCarrier(address=receiver.address, courier=to) for name, receiver in receivers.items()},
        wording=Wording(redact=str),
        now=clock.now,
        log=logs.get_logger(),
        look_seconds=0.05,
    )


async def tell(store: Store, *keys: str) -> None:
    for key in keys:
        await store.outbox.add(
            Notice(topic=Topic.EVENT, level=EventLevel.WARNING, text=f"{key} is down", key=key), now=NOW
        )


@pytest.mark.parametrize("rows", [40, pytest.param(ROWS, marks=[pytest.mark.long, pytest.mark.timeout(7200)])])
async def test_couriers_killed_at_random_lose_nothing_and_double_no_more_than_they_were_killed(
    store: Store, database: Database, rows: int
) -> None:
    keys = [f"service {number}" for number in range(rows // len(TARGETS))]
    await tell(store, *keys)
    clock = Clock()
    with receiving() as phone, receiving() as team:
        receivers = {"phone": phone, "team": team}
        killer = Killer(random.Random(7), lambda: len(phone.heard) + len(team.heard))  # noqa: S311 - which one dies

        async def is_over() -> bool:
            if all(len({*each.bodies}) == len(keys) for each in receivers.values()) and not await waits(store, clock):
                return True
            clock.at += STEP
            return False

        outgoing = sender(store, clock, receivers)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(killer.run)
            tasks.start_soon(outgoing.run)
            await until_it(is_over, seconds=7200 if rows > 40 else PATIENCE_SECONDS)
            tasks.cancel_scope.cancel()
        heard = [Counter(each.bodies) for each in receivers.values()]

    assert all(set(each) == {f"{key} is down" for key in keys} for each in heard)
    assert killer.killed > 0
    doubled = sum(each.total() - len(each) for each in heard)
    assert doubled <= killer.killed
    written = database.rows("outbox")
    assert {row["result"] for row in written} == {"delivered"}
    assert len(written) == len(keys) * len(TARGETS)


async def waits(store: Store, clock: Clock) -> bool:
    return bool(await store.outbox.waiting(clock.at + timedelta(days=1)))


async def test_a_target_that_hangs_drips_refuses_or_is_away_delays_no_other(store: Store, database: Database) -> None:
    def rows_of(target: str) -> list[Mapping[str, object]]:
        return [row for row in database.rows("outbox") if row["target"] == target]

    clock = Clock()
    with ExitStack() as stack:
        names = ("hangs", "drips", "429", "500", "away", "well")
        receivers = {name: stack.enter_context(receiving()) for name in names}
        receivers["hangs"].holds = receivers["drips"].drips = True
        receivers["429"].statuses, receivers["500"].statuses = [429] * 100, [500] * 100
        outgoing = sender(store, clock, receivers, message_seconds=3600.0, deadline_seconds=7200.0)
        away = AddressCarrier(address="json://127.0.0.1:1/nobody", courier=Courier(environment={}))
        outgoing.carriers = {**outgoing.carriers, "away": away}
        await tell(store, "shop", "photos", "mail")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outgoing.run)
            await until(lambda: len(receivers["well"].heard) == 3)
            await until(lambda: bool(receivers["hangs"].heard and receivers["drips"].heard))
            await tell(store, "bank")  # while those two still hang
            await until(lambda: len(receivers["well"].heard) == 4)
            await until(lambda: [row["result"] for row in rows_of("well")] == ["delivered"] * 4)
            tasks.cancel_scope.cancel()

    results = {str(row["target"]): row["result"] for row in database.rows("outbox")}
    assert results["well"] == "delivered"
    assert "delivered" not in {result for target, result in results.items() if target != "well"}
