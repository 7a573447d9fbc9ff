"""The hub: everybody hears everything in order, and nobody is waited for."""

from __future__ import annotations

from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import anyio.to_thread

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.live import AssistantSaid, LinesLost, LiveFact
from claudeops.engine.live.hub import Broadcast, Hub, Subscription
from claudeops.formats.stream import AssistantText, ToolEnded
from claudeops.wording.live import Viewpoint
from support.store_values import running
from support.waiting import PATIENCE_SECONDS

AT = datetime(2026, 1, 2, tzinfo=UTC)


def said(text: str) -> LiveFact:
    return AssistantSaid(at=AT, session_id=1, chain=1, tier=1, text=text)


def texts(reader: Subscription) -> list[str]:
    return [fact.text if isinstance(fact, AssistantSaid) else str(fact) for fact in iter(reader.take, None)]


def test_every_reader_hears_everything_from_its_subscription_on_in_order() -> None:
    hub = Hub()
    with hub.subscribe() as first:
        hub.publish(said("a"))
        with hub.subscribe() as second:
            hub.publish(said("b"))

            assert texts(first) == ["a", "b"]
            assert texts(second) == ["b"]


def test_a_slow_reader_loses_the_oldest_and_is_told_how_many_while_the_others_lose_nothing() -> None:
    hub = Hub()
    with hub.subscribe(kept=3) as slow, hub.subscribe() as other:
        for number in range(40):
            hub.publish(said(str(number)))

        assert slow.take() == LinesLost(at=AT, count=37)
        assert texts(slow) == ["37", "38", "39"]
        hub.publish(said("40"))
        assert texts(slow) == ["40"]  # a mark stands once
        assert texts(other) == [str(number) for number in range(41)]


def test_who_has_left_is_not_spoken_to() -> None:
    hub = Hub()
    listening = []
    with hub.subscribe() as gone:
        listening.append(hub.listening)

    hub.publish(said("a"))

    assert [*listening, hub.listening] == [True, False]
    assert texts(gone) == []


async def test_what_another_thread_publishes_arrives_on_the_event_loop() -> None:
    hub = Hub()
    publish = hub.from_threads()
    with hub.subscribe() as reader, anyio.fail_after(PATIENCE_SECONDS):
        await anyio.to_thread.run_sync(publish, said("a"))

        assert await reader.receive() == said("a")


async def test_a_waiting_reader_wakes_for_the_next_fact() -> None:
    hub = Hub()
    heard: list[LiveFact] = []
    with hub.subscribe() as reader:

        async def read() -> None:
            heard.append(await reader.receive())

        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await anyio.lowlevel.checkpoint()
                hub.publish(said("a"))

    assert heard == [said("a")]


def test_without_a_reader_nothing_is_made_of_what_a_session_says() -> None:
    def never(_text: str) -> str:
        raise AssertionError("somebody redacted what nobody reads")

    view = Viewpoint(root="/", redact=never)
    broadcast = Broadcast(session=running(), view=view, asks=True, hub=Hub())
    call = ToolCall(tool_use_id="a", tool_name="Bash", input={"command": "uptime"})

    broadcast.note(AssistantText(text="I look."), AT)
    broadcast.note(ToolEnded(tool_use_id="a", is_error=False, text="up 3 days"), AT)
    broadcast.judged(call, Verdict(kind=VerdictKind.ALLOW, reason="only looks"), AT)
