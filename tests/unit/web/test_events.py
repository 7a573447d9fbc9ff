"""The frames of a stream: whatever is in a text, a reader gets it as one event, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from claudeops.web.sse import HEARTBEAT, EventStream, Write, frame, natural, number_after, opening
from claudeops.web.tail import TailLine, plain
from claudeops.wording.stream import ShownKind, ShownLine
from support.streaming import Event, EventReader
from support.waiting import PATIENCE_SECONDS

HOSTILE = [
    "data: forged\n\n",
    "a\r\rid: 7.999\rdata: forged\r\r",
    "a\r\n\r\nevent: bye\r\ndata: x\r\n\r\n",
    "a\n\nretry: 1\n\n",
    "\u2028data: x\u2029\n\n",
    "\x00id: \x00",
    "\ufeffdata: x",
    ": hb",
    "\x0b\x0c\x1c\x85",
    "",
    "\n",
    "<script>alert(1)</script>",
    "\u202egnp.exe",
]


def read(content: bytes, cut: int = 0) -> EventReader:
    reader = EventReader()
    reader.feed(content[:cut])
    reader.feed(content[cut:])
    return reader


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_text_ends_its_event_or_begins_another(text: str) -> None:
    reader = read(frame("7.1", "line", text) + frame("7.2", "", "next"))

    assert [(event.id, event.name) for event in reader.events] == [("7.1", "line"), ("7.2", "")]
    assert reader.events[0].data == text.replace("\r\n", "\n").replace("\r", "\n")


@given(text=st.text(), cut=st.integers(min_value=0, max_value=60))
def test_any_text_is_one_event_wherever_the_connection_cuts_it(text: str, cut: int) -> None:
    content = frame("7.1", "", text) + frame("7.2", "bye", "bye")

    reader = read(content, min(cut, len(content)))

    said = text.encode(errors="replace").decode().replace("\r\n", "\n").replace("\r", "\n")
    assert reader.events == [Event(id="7.1", name="", data=said), Event(id="7.2", name="bye", data="bye")]


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\0b"])
def test_an_id_or_a_name_of_several_lines_is_no_frame(name: str) -> None:
    with pytest.raises(ValueError, match="one line"):
        frame(name, "", "x")
    with pytest.raises(ValueError, match="one line"):
        frame("7.1", name, "x")


def test_a_stream_that_breaks_before_its_first_event_is_resumed_where_it_began() -> None:
    reader = read(opening("7.12") + HEARTBEAT)

    assert (reader.events, reader.last_id, reader.comments) == ([], "7.12", 1)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_hostile_line_is_shown_as_text_and_acts_in_no_page(text: str) -> None:
    line = ShownLine(line=1, at=None, kind=ShownKind.TEXT, title=text, text=text + " ", tool_use_id=text)

    html = plain([line], {})

    assert html.count("<") == 2 + 2  # the item and its text, each begun and ended
    (event,) = read(TailLine(line, {}).frame(7, plain)).events
    assert event.id == "7.1"


@pytest.mark.parametrize(
    "garbage", ["", "7", "7.", "7.x", "8.3", "7.-3", "7.3.4", "7. 3", "7.٣", "7." + "9" * 40, ".3", "boot.3"]
)
def test_what_is_no_id_of_ours_is_none(garbage: str) -> None:
    assert number_after("7", garbage) is None


def test_an_id_of_ours_is_read() -> None:
    assert (number_after("7", "7.12"), natural("0"), natural("12")) == (12, 0, 12)


async def test_a_reader_that_takes_nothing_any_more_is_given_up_and_its_room_is_free() -> None:
    sent: list[Message] = []
    stuck = anyio.Event()

    async def send(message: Message) -> None:
        sent.append(message)
        if message.get("more_body"):
            await stuck.wait()

    async def receive() -> Message:
        await stuck.wait()
        raise AssertionError

    async def body(write: Write) -> None:
        await write(b"first")
        await write(b"second")

    room: list[str] = []

    @contextmanager
    def taken() -> Iterator[None]:
        room.append("taken")
        yield
        room.append("free")

    with anyio.fail_after(PATIENCE_SECONDS):
        stream = EventStream(body, closing=anyio.Event(), room=taken(), send_seconds=0.01)
        await stream({"type": "http"}, receive, send)

    assert [message.get("body") for message in sent] == [None, b"first"]
    assert room == ["taken", "free"]
