"""Streams over a real port, of real logs that grow: every line once, whatever is cut, stopped or slow."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskStatus

from claudeops.app.log_lines import SessionLogs
from claudeops.domain.calls import VerdictKind
from claudeops.domain.sessions import Session, Status, Trigger
from claudeops.engine.live.hub import Hub
from claudeops.engine.session_log.reader import pack
from claudeops.engine.session_log.writer import SessionLog
from claudeops.http_server import ConnectionLimits, ConnectionPool, listen
from claudeops.store.reading.calls import CallVerdict
from claudeops.structs import replace
from claudeops.web.endpoints import EndpointTable
from claudeops.web.sse import SEND_SECONDS
from claudeops.web.streams import MOST_OF_ONE, MOST_STREAMS, Streams, stream_endpoints
from claudeops.web.table import Rooms, table_of
from support.listening import Door, bearer, token_for
from support.loop_time import LoopTime, loop_time
from support.loopback_http import ask
from support.streaming import Event, Reading, reading, said
from support.waiting import until

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
READ = bearer(2)
STEP_SECONDS = 0.1
HOSTILE = "a\r\n\r\nevent: bye\rdata: x\u2028</li><script>\x00\x1b]8;;\u202e"


def text_line(text: str) -> bytes:
    content = [{"type": "text", "text": text}]
    return json.dumps({"type": "assistant", "message": {"content": content}}).encode()


@dataclass
class HeldRecords:
    """The rows of sessions, in memory."""

    rows: dict[int, Session] = field(default_factory=dict)

    async def session(self, session_id: int) -> Session | None:
        return self.rows.get(session_id)


@dataclass
class World:
    """One session with its log, and what is in a daemon's memory."""

    log: Path
    records: HeldRecords = field(default_factory=HeldRecords)
    hub: Hub = field(default_factory=Hub)
    verdicts: dict[str, CallVerdict] = field(default_factory=dict)
    crowd: ConnectionPool = field(default_factory=partial(ConnectionPool, ConnectionLimits()))
    streams: Streams = field(init=False)
    url: str = ""

    def __post_init__(self) -> None:
        self.records.rows[7] = Session(
            id=7,
            root_session_id=7,
            parent_session_id=None,
            tier=1,
            ordinal=1,
            harness="claude",
            model="sonnet",
            trigger=Trigger.MANUAL,
            prompt_text=None,
            context=None,
            status=Status.RUNNING,
            attempt=1,
            created_at=NOON,
            log_path=str(self.log),
        )

    def end(self) -> None:
        self.records.rows[7] = replace(self.records.rows[7], status=Status.ENDED, ended_at=NOON)

    def say(self, sink: SessionLog, *texts: str) -> None:
        """Let the session say something: into its log, then to whoever listens, as a session does."""
        sink.extend([text_line(text) for text in texts], NOON)
        for text in texts:
            self.hub.publish(said(text))

    def stuck(self) -> int:
        """Return how many readers have taken so little that nothing more can be sent to them now."""
        return sum(connection.flow.write_paused for connection in self.crowd._all())

    async def known(self, _session_id: int) -> dict[str, CallVerdict]:
        return self.verdicts

    @asynccontextmanager
    async def daemon(self, boot: str = "boot") -> AsyncIterator[str]:
        """Listen as a daemon does, for the length of the block."""
        logs = SessionLogs(records=self.records, verdicts=self.known)  # type: ignore[arg-type] # of the port one method
        self.streams = Streams(live=self.hub, logs=logs, boot=boot)
        door = Door()
        door.tokens.kept |= {number: token_for(number, "read") for number in range(10, 30)}
        rooms = Rooms(readiness=list, pings=door.pings, sources=door.sources, pages=stream_endpoints(self.streams))
        door.listener.table = EndpointTable(table_of(rooms))
        async with listen(
            door.listener, host="127.0.0.1", port=0, closing=self.streams.closing, crowd=self.crowd
        ) as url:
            self.url = url
            yield url
        self.streams.close()

    @asynccontextmanager
    async def read(self, address: str = "/sessions/7/stream", last_id: str = "", **more: str) -> AsyncIterator[Reading]:
        async with reading(f"{self.url}{address}", {**READ, **more}, last_id=last_id) as stream:
            yield stream


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "session-000007.ndjson")


def numbers(events: Sequence[Event]) -> list[int]:
    """Return the numbers of lines, in the order in which they came."""
    return [int(event.id.rpartition(".")[2]) for event in events if event.name in {"line", ""}]


def titles(events: Sequence[Event]) -> list[str]:
    return [str(json.loads(event.data)["title"]) for event in events if event.name == "line"]


JSON = "/sessions/7/stream?format=json"


async def test_lines_come_as_the_log_grows_and_the_end_is_told(world: World) -> None:
    async with SessionLog(world.log) as sink, world.daemon(), world.read(JSON) as stream:
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        assert (stream.headers["cache-control"], stream.headers["x-accel-buffering"]) == ("no-store", "no")
        assert not {"content-length", "content-encoding"} & set(stream.headers)
        world.say(sink, "a", "b")
        await stream.until(2)
        assert world.hub.listening  # it is woken by what the session does, and need not look by itself
        world.say(sink, "c")
        await stream.until(3)
        await sink.aclose()
        world.end()
        events = await stream.to_end()

    assert (titles(events), numbers(events)) == (["a", "b", "c"], [1, 2, 3])
    assert (events[-1].name, events[-1].id) == ("ended", "7.3")


async def test_a_line_of_which_no_fact_is_published_comes_too(world: World) -> None:
    async with SessionLog(world.log) as sink, world.daemon(), world.read(JSON) as stream:
        sink.append(b'{"type":"system","subtype":"hook_started"}', NOON)
        sink.append(b"", NOON)
        events = await stream.until(2)

    assert titles(events) == ["system: hook_started", "an empty line"]


@pytest.mark.parametrize("cut", range(6))
async def test_a_connection_lost_after_any_line_costs_none_and_gives_none_twice(world: World, cut: int) -> None:
    async with SessionLog(world.log) as sink, world.daemon():
        world.say(sink, *"abc")
        async with world.read(JSON) as stream:
            if cut > 3:
                await stream.until(3)
                world.say(sink, *"de")
            await stream.until(cut)
            if cut <= 3:
                world.say(sink, *"de")
        seen = list(stream.reader.events)
        async with world.read(JSON, stream.reader.last_id) as again:
            await again.until(5 - len(seen))
            world.say(sink, "f")
            events = [*seen, *await again.until(6 - len(seen))]

    assert (titles(events), numbers(events)) == (list("abcdef"), [1, 2, 3, 4, 5, 6])
    assert {event.name for event in events} == {"line"}


async def test_a_daemon_that_stops_in_mid_stream_and_another_one_give_each_line_once(world: World) -> None:
    events: list[Event] = []
    last_id = ""
    async with SessionLog(world.log) as sink:
        for boot in range(5):
            async with AsyncExitStack() as stack:
                async with world.daemon(str(boot)):
                    stream = await stack.enter_async_context(world.read(JSON, last_id))
                    world.say(sink, *(f"{boot}-{number}" for number in range(7)))
                    await stream.until(boot)  # and no further: the rest is cut, or not
                ended = await stream.to_end()
                assert ended[-1].name == "bye"
            events += ended[:-1]
            last_id = stream.reader.last_id
        await sink.aclose()
        world.end()
        async with world.daemon("last"), world.read(JSON, last_id) as stream:
            events += (await stream.to_end())[:-1]

    assert titles(events) == [f"{boot}-{number}" for boot in range(5) for number in range(7)]
    assert numbers(events) == list(range(1, 36))


async def test_a_session_that_ended_is_read_from_its_packed_log_as_before(world: World) -> None:
    async with SessionLog(world.log) as sink:
        world.say(sink, *(str(number) for number in range(1000)))
    world.end()
    pack(world.log, lambda: None)
    async with world.daemon(), world.read(f"{JSON}&after=300") as stream:
        events = await stream.to_end()

    assert titles(events) == [str(number) for number in range(300, 1000)]
    assert events[-1].name == "ended"


@pytest.mark.parametrize("last_id", ["garbage", "8.1", "7.99", "7.x", "boot.1"])
async def test_an_id_that_names_no_line_is_answered_with_resync_and_from_where_the_page_is(
    world: World, last_id: str
) -> None:
    async with SessionLog(world.log) as sink, world.daemon():
        world.say(sink, *"abc")
        async with world.read(JSON) as stream:
            await stream.until(3)
        async with world.read(f"{JSON}&after=1", last_id) as stream:
            events = await stream.until(3)
        async with world.read(f"{JSON}&after=50") as beyond:
            from_start = await beyond.until(4)

    assert [(event.name, event.id) for event in events] == [("resync", "7.1"), ("line", "7.2"), ("line", "7.3")]
    assert [event.name for event in from_start] == ["resync", "line", "line", "line"]


async def test_the_last_id_wins_over_the_address(world: World) -> None:
    async with SessionLog(world.log) as sink, world.daemon():
        world.say(sink, *"abc")
        async with world.read(JSON) as stream:
            await stream.until(3)  # whoever names a line has read it
        async with world.read(f"{JSON}&after=0", "7.2") as stream:
            assert titles(await stream.until(1)) == ["c"]


async def test_hostile_lines_are_events_of_their_own_and_no_html(world: World) -> None:
    async with SessionLog(world.log) as sink, world.daemon():
        world.say(sink, HOSTILE, "next")
        async with (
            world.read() as page,
            world.read("/sessions/7/stream", accept="text/event-stream; profile=json") as api,
        ):
            html, events = await page.until(2), await api.until(2)

    assert numbers(html) == numbers(events) == [1, 2]
    assert html[0].data.startswith('<li id="L1" class="said">')
    assert html[0].data.count("<") == 4  # an item and its text
    assert "script" in html[0].data
    assert titles(events)[1] == "next"


async def test_a_page_is_told_what_the_gate_said_to_a_call(world: World) -> None:
    world.verdicts["a"] = CallVerdict(
        verdict=VerdictKind.DENY, reason="<no>", requested_at=NOON, decided_at=NOON, ended_at=None, is_error=None
    )
    use = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "rm"}}
    async with SessionLog(world.log) as sink, world.daemon(), world.read() as stream:
        sink.append(json.dumps({"type": "assistant", "message": {"content": [use]}}).encode(), NOON)
        (event,) = await stream.until(1)

    assert "<b>deny</b> &lt;no&gt;" in event.data


async def test_many_readers_of_one_session_cost_one_reading(world: World) -> None:
    async with SessionLog(world.log) as sink, world.daemon(), AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(world.read(JSON)) for _ in range(10)]
        for number in range(50):
            world.say(sink, str(number))
        for stream in streams:
            assert titles(await stream.until(50)) == [str(number) for number in range(50)]
        assert len(world.streams._tails) == 1
    assert world.streams._tails == {}


async def test_a_reader_that_reads_nothing_holds_up_neither_session_nor_others(world: World) -> None:
    async with SessionLog(world.log) as sink, world.daemon(), world.read(JSON) as slow, world.read(JSON) as quick:
        text = "x" * 100_000
        for _ in range(150):
            world.say(sink, text)
        assert numbers(await quick.until(150)) == list(range(1, 151))
        assert numbers(await slow.until(150)) == list(range(1, 151))  # and it has lost nothing: it is all in the log


async def test_a_hundred_streams_end_with_the_daemon(world: World) -> None:
    async with SessionLog(world.log) as sink, AsyncExitStack() as stack:
        async with world.daemon():
            streams = []
            for number in range(100):
                address = JSON if number % 2 else "/stream?format=json"
                headers = bearer(10 + number // 10)
                streams.append(await stack.enter_async_context(world.read(address, **headers)))
            world.say(sink, "a")
            assert world.streams.clients == 100
            for stream in streams:
                await stream.until(1)
        for stream in streams:
            assert (await stream.to_end())[-1].name == "bye"
            assert stream.is_whole
        await until(lambda: world.streams.clients == 0)
        assert not world.hub.listening


async def test_a_stop_waits_for_nobody_who_does_not_read_and_says_bye_to_all_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Time stands still until all others have their `bye`, and passes in steps from then on."""
    stop = anyio.Event()

    async def daemon(*, task_status: TaskStatus[None]) -> None:
        async with world.daemon():
            task_status.started()
            await stop.wait()

    async with SessionLog(world.log) as sink, AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        await tasks.start(daemon)
        for _ in range(2000):
            world.say(sink, "x" * 4000)
        deaf = [await stack.enter_async_context(world.read(JSON)) for _ in range(10)]
        await until(lambda: world.stuck() == len(deaf))
        heard = [
            await stack.enter_async_context(world.read(address, **bearer(10)))
            for address in ("/stream", f"{JSON}&after=2000")
            for _ in range(10)
        ]
        with loop_time(slowness=10**9) as time:
            stop.set()
            for stream in heard:
                assert (await stream.to_end())[-1].name == "bye"
                assert stream.is_whole
            steps = await _steps(time, lambda: not len(world.crowd))
        assert steps * STEP_SECONDS <= 2
        for stream in deaf:
            await stream.to_end()
            assert not stream.is_whole
    assert caplog.messages == []  # nor is it a fault of ours


async def test_one_who_takes_nothing_for_a_minute_is_dropped(world: World) -> None:
    with loop_time() as time:
        async with SessionLog(world.log) as sink, world.daemon(), world.read(JSON):
            for _ in range(2000):
                world.say(sink, "x" * 4000)
            await until(lambda: world.stuck() == 1)
            await _steps(time, lambda: not len(world.crowd), SEND_SECONDS)


async def _steps(time: LoopTime, is_over: Callable[[], bool], seconds: float = STEP_SECONDS) -> int:
    """Let time pass until something is over, with as much room for everybody's work in between; return the steps."""
    for step in count():
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        if is_over():
            return step
        time.leap(seconds)
    raise AssertionError


async def test_one_caller_has_so_many_streams_and_all_together_so_many(world: World) -> None:
    async with SessionLog(world.log), world.daemon(), AsyncExitStack() as stack:
        for number in range(MOST_STREAMS):
            stream = await stack.enter_async_context(world.read("/stream", **bearer(10 + number // MOST_OF_ONE)))
            assert stream.status == 200
        of_one = await ask(f"{world.url}/stream", method="GET", headers=bearer(10))
        of_all = await ask(f"{world.url}{JSON}", method="GET", headers=bearer(25))
        assert (of_one.status, of_all.status) == (503, 503)
        assert of_one.headers["retry-after"] == "15"
        await stack.aclose()
        await until(lambda: world.streams.clients == 0)
        async with world.read("/stream", **bearer(10)) as again:
            assert again.status == 200


async def test_the_fleet_goes_on_where_a_reader_was(world: World) -> None:
    async with world.daemon():
        async with world.read("/stream?format=json") as stream:
            await until(lambda: world.hub.listening)
            world.hub.publish(said("a"))
            await stream.until(1)
        world.hub.publish(said("b"))
        async with world.read("/stream?format=json", stream.reader.last_id) as again:
            (event,) = await again.until(1)
    assert (event.name, json.loads(event.data)["text"]) == ("assistant_said", "b")
    async with world.daemon("another"), world.read("/stream", event.id) as later:
        assert [event.name for event in await later.until(1)] == ["resync"]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/sessions/8/stream", 404),
        ("/sessions/x/stream", 404),
        ("/sessions/07x/stream", 404),
        (f"/sessions/{'9' * 50}/stream", 404),
        ("/sessions/7/stream?after=x", 422),
        ("/sessions/7/stream?after=-1", 422),
        ("/sessions/7/stream?unknown=1", 422),
        ("/sessions/7/stream?format=xml", 422),
        ("/stream?limit=1", 422),
        ("/api/v1/sessions/8/lines", 404),
        ("/api/v1/sessions/7/lines?limit=0", 422),
        ("/api/v1/sessions/7/lines?limit=201", 422),
        ("/api/v1/sessions/7/lines?after=-1", 422),
        ("/api/v1/sessions/7/lines?before=1", 422),
    ],
)
async def test_what_is_not_there_or_not_taken_is_a_problem_and_no_stream(
    world: World, target: str, status: int
) -> None:
    async with SessionLog(world.log), world.daemon():
        answer = await ask(f"{world.url}{target}", method="GET", headers=READ)
        head = await ask(f"{world.url}{target}", method="HEAD", headers=READ)

    assert (answer.status, head.status) == (status, 405)


async def test_a_log_that_is_not_kept_any_more_is_not_found(world: World) -> None:
    world.end()
    async with world.daemon():
        for target in (JSON, "/api/v1/sessions/7/lines"):
            assert (await ask(f"{world.url}{target}", method="GET", headers=READ)).status == 404


async def test_the_torn_last_line_of_a_session_that_has_ended_comes_before_its_end(world: World) -> None:
    async with SessionLog(world.log) as sink:
        world.say(sink, "a")
    with world.log.open("ab") as file:
        file.write(text_line("torn")[:-2])
    world.end()
    async with world.daemon(), world.read(JSON) as stream:
        events = await stream.to_end()

    assert [(event.name, event.id) for event in events] == [("line", "7.1"), ("line", "7.2"), ("ended", "7.2")]


async def test_lines_come_by_pages_without_a_gap(world: World) -> None:
    async with SessionLog(world.log) as sink:
        world.say(sink, *(str(number) for number in range(5)))
    world.end()
    found: list[object] = []
    after: object = 0
    async with world.daemon():
        while after is not None:
            page = (
                await ask(f"{world.url}/api/v1/sessions/7/lines?after={after}&limit=2", method="GET", headers=READ)
            ).json
            assert isinstance(page["items"], list)
            found += [item["title"] for item in page["items"]]
            after = page["next"]

    assert found == [str(number) for number in range(5)]


async def test_a_stream_without_news_shows_that_it_lives(world: World) -> None:
    async with SessionLog(world.log), world.daemon():
        world.streams.heartbeat_seconds = 0.01
        for address in (JSON, "/stream"):
            async with world.read(address) as stream:
                await stream.until_heartbeat()
                assert stream.reader.events == []


async def test_a_session_that_waits_to_start_has_a_stream_already(world: World) -> None:
    row = world.records.rows[7]
    world.records.rows[7] = replace(row, status=Status.QUEUED, log_path=None)
    async with world.daemon(), world.read(JSON) as stream:
        world.records.rows[7] = row
        async with SessionLog(world.log) as sink:
            world.say(sink, "a")
            assert titles(await stream.until(1)) == ["a"]
