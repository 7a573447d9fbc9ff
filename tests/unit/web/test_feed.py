"""What all sessions do, to many readers: in order, without a silent gap, and at nobody's cost but the slow one's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import msgspec
import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.domain.live import CallJudged, LinesLost
from claudeops.engine.live.hub import KEPT, Hub
from claudeops.web.feed import RING, WAITING, Feed
from support.streaming import NOON, Event, EventReader, said
from support.waiting import PATIENCE_SECONDS, until


@dataclass
class Reader:
    """Reads as fast as it may."""

    events: EventReader = field(default_factory=EventReader)
    may: anyio.Event = field(default_factory=anyio.Event)  # read

    async def write(self, content: bytes) -> None:
        await self.may.wait()
        self.events.feed(content)

    @property
    def texts(self) -> list[str]:
        return [str(msgspec.json.decode(event.data)["text"]) for event in self.events.named("assistant_said")]

    async def has(self, count: int) -> None:
        await until(lambda: len(self.events.events) >= count)


@dataclass
class Fleet:
    """A hub, and what reads from it."""

    hub: Hub = field(default_factory=Hub)
    stirred: list[int] = field(default_factory=list)
    feed: Feed = field(init=False)

    def __post_init__(self) -> None:
        self.feed = Feed(self.hub, "boot", stir=self.stirred.append)

    @asynccontextmanager
    async def read(self, after: str = "", *, slowly: bool = False, as_json: bool = True) -> AsyncIterator[Reader]:
        reader = Reader()
        if not slowly:
            reader.may.set()
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await self.feed.send(reader.write, after=after, as_json=as_json)

            before = self.feed._readers
            tasks.start_soon(run)
            with anyio.fail_after(PATIENCE_SECONDS):
                while self.feed._readers == before or (not slowly and not reader.events.last_id):
                    await anyio.lowlevel.checkpoint()
            yield reader
            tasks.cancel_scope.cancel()

    async def publish(self, *texts: str) -> None:
        """Publish, and let the event loop turn."""
        for text in texts:
            self.hub.publish(said(text))
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    fleet = Fleet()
    yield fleet
    fleet.feed.close()


async def test_every_reader_gets_every_fact_in_order_and_each_is_encoded_once(fleet: Fleet) -> None:
    async with fleet.read() as one, fleet.read() as other:
        await fleet.publish("a", "b")
        await fleet.publish("c")
        await one.has(3)
        await other.has(3)

        assert one.texts == other.texts == ["a", "b", "c"]
        first, second = fleet.feed._ring[0], fleet.feed._ring[0]
        assert first.frame(as_json=True) is second.frame(as_json=True)
    assert fleet.stirred == [7, 7, 7]


async def test_there_is_one_subscription_and_none_once_nobody_reads(fleet: Fleet) -> None:
    subscribed = [len(fleet.hub._readers)]
    async with fleet.read(), fleet.read():
        subscribed.append(len(fleet.hub._readers))
    subscribed.append(len(fleet.hub._readers))  # whoever lost the connection may come back
    fleet.feed.close()
    subscribed.append(len(fleet.hub._readers))

    assert subscribed == [0, 1, 1, 0]


async def test_whoever_comes_back_gets_what_came_meanwhile_and_nothing_twice(fleet: Fleet) -> None:
    async with fleet.read() as reader:
        await fleet.publish("a", "b")
        await reader.has(2)
    await fleet.publish("c", "d")
    async with fleet.read(reader.events.last_id) as again:
        await fleet.publish("e")
        await again.has(3)

        assert again.texts == ["c", "d", "e"]
        assert again.events.named("resync") == []


async def test_the_same_id_twice_gives_the_same_and_the_newest_gives_nothing(fleet: Fleet) -> None:
    async with fleet.read() as reader:
        await fleet.publish("a", "b", "c")
        await reader.has(3)
        begin = reader.events.events[0].id
    for _ in range(2):
        async with fleet.read(begin) as again:
            await again.has(2)
            assert again.texts == ["b", "c"]
    async with fleet.read(reader.events.last_id) as last:
        assert last.events.events == []


@pytest.mark.parametrize("after", ["older.1", "boot.999", "garbage", "boot.", "boot.-1", "\x00", "boot.1.1"])
async def test_an_id_that_is_not_known_is_answered_with_resync_and_not_with_silence(fleet: Fleet, after: str) -> None:
    async with fleet.read(), fleet.read(after) as reader:
        await fleet.publish("a")
        await reader.has(2)

        assert [event.name for event in reader.events.events] == ["resync", "assistant_said"]


async def test_what_has_fallen_out_of_the_ring_is_a_resync(fleet: Fleet) -> None:
    async with fleet.read() as reader:
        await fleet.publish("first", "second")
        await reader.has(2)
        oldest = reader.events.events[0].id
        for _ in range(RING // 512):
            await fleet.publish(*["x"] * 512)
        async with fleet.read(oldest) as late:
            await late.has(1)
            assert late.events.events[0].name == "resync"


async def test_what_was_published_while_nobody_read_is_a_resync(fleet: Fleet) -> None:
    async with fleet.read() as reader:
        await fleet.publish("a")
        await reader.has(1)
    fleet.feed.close()
    await fleet.publish("nobody hears this")
    async with fleet.read(reader.events.last_id) as again:
        await again.has(1)
        assert again.events.events[0].name == "resync"


async def test_a_reader_that_reads_nothing_loses_the_oldest_and_holds_up_nobody(fleet: Fleet) -> None:
    async with fleet.read() as quick, fleet.read(slowly=True) as slow:
        for number in range(2 * WAITING):
            await fleet.publish(str(number))
        await quick.has(2 * WAITING)
        assert quick.texts == [str(number) for number in range(2 * WAITING)]
        slow.may.set()
        await until(lambda: slow.events.last_id == quick.events.last_id)

        (lost,) = slow.events.named("lost")
        assert slow.texts == [str(number) for number in range(int(lost.data), 2 * WAITING)]
        assert (int(lost.data), fleet.feed.dropped) == (WAITING, WAITING)


async def test_what_the_hub_itself_has_lost_is_told_to_everybody(fleet: Fleet) -> None:
    async with fleet.read() as reader:
        for number in range(KEPT + 3):
            fleet.hub.publish(said(str(number)))  # all in one turn of the loop
        await reader.has(KEPT + 1)

        assert reader.events.events[0].name == "lost"
        assert (reader.events.events[0].data, fleet.feed.dropped) == ("3", 3)


async def test_a_page_is_told_what_has_changed_and_that_a_call_waits_for_people(fleet: Fleet) -> None:
    judged = CallJudged(
        at=NOON,
        session_id=7,
        chain=7,
        tier=2,
        tool_use_id='"><script>',
        tool="Bash",
        line="<script>",
        verdict=VerdictKind.ASK,
        reason="",
    )
    async with fleet.read(as_json=False) as reader:
        fleet.hub.publish(judged)
        fleet.hub.publish(said("<script>"))
        fleet.hub.publish(LinesLost(at=NOON, count=2))
        await reader.has(3)

    assert [(event.name, event.data) for event in reader.events.events] == [
        ("approval", "call_judged 7"),
        ("changed", "assistant_said 7"),
        ("lost", "2"),
    ]


async def test_a_fact_in_json_has_its_name_and_all_that_it_says(fleet: Fleet) -> None:
    async with fleet.read() as reader:
        hostile = "a\r\n\r\ndata: b\u2028\x00"
        await fleet.publish(hostile)
        await reader.has(1)

    assert reader.texts == [hostile]
    assert isinstance(reader.events.events[0], Event)
