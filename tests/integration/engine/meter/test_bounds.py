"""Attacks with connections and bodies: whoever is on loopback takes up little of the daemon, and not for long."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import anyio
import msgspec
import pytest
from anyio.abc import SocketStream

from claudeops.engine.meter.bodies import Bodies, MeterLimits
from claudeops.formats.model_request import RequestObjection
from claudeops.http_server import ConnectionLimits
from claudeops.structs import replace
from support.metering import ASKED, Bench, bench
from support.stores import Database
from support.waiting import PATIENCE_SECONDS, until

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio

SAYS = {"text": "I look at the services.", "times": 100}
HANGS = {"hang": True, "times": 100}
MEGABYTE: Final = 1024 * 1024
PATIENT: Final = ConnectionLimits(nameless=8, of_one=4, in_all=100, head_seconds=600, rest_seconds=600)
SLOW: Final = MeterLimits(connections=PATIENT, quiet_seconds=600, body_seconds=600, room_seconds=600)
QUICK: Final = 0.2  # seconds, of limits that are waited for


def body_of(size: int) -> bytes:
    empty = msgspec.json.encode({**ASKED, "metadata": ""})
    return msgspec.json.encode({**ASKED, "metadata": "x" * (size - len(empty))})


@asynccontextmanager
async def many(the: Bench, count: int, first: bytes = b"") -> AsyncIterator[list[SocketStream]]:
    """Connect so many times, one after the other."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(the.connected(first)) for _ in range(count)]


async def told(stream: SocketStream) -> bytes:
    """Return what comes until the connection is closed."""
    said = b""
    with anyio.fail_after(PATIENCE_SECONDS):
        try:
            while True:
                said += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return said


async def push(stream: SocketStream, what: bytes) -> None:
    """Send as much as is taken."""
    try:
        await stream.send(what)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


async def drip(stream: SocketStream) -> bytes:
    """Send a byte again and again until the connection is closed; return what came."""
    said = b""
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            try:
                await stream.send(b"x")
                with anyio.move_on_after(0.01):
                    said += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return said


# --- connections ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [b"", b"POST /v1/messages HTTP/1.1\r\nhost: x\r\n"])
async def test_strangers_who_send_no_request_push_each_other_out_and_nobody_else(
    sqlite: Database, first: bytes
) -> None:
    async with bench(sqlite, SAYS, limits=SLOW) as the, the.account() as account, many(the, 100, first) as strangers:
        assert (await the.ask(account)).status == 200
        assert len(the.meter.crowd) <= PATIENT.nameless + 1
        assert await told(strangers[0]) == b"", "the oldest ones had to go"


@pytest.mark.parametrize("first", [b"", b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx: "])
async def test_a_head_that_does_not_come_is_not_waited_for(sqlite: Database, first: bytes) -> None:
    limits = replace(SLOW, connections=replace(PATIENT, head_seconds=QUICK))
    async with bench(sqlite, SAYS, limits=limits) as the, the.connected(first) as stream:
        assert await told(stream) == b""
        assert len(the.meter.crowd) == 0


async def test_a_head_that_comes_byte_by_byte_is_not_waited_for(sqlite: Database) -> None:
    limits = replace(SLOW, connections=replace(PATIENT, head_seconds=QUICK))
    async with (
        bench(sqlite, SAYS, limits=limits) as the,
        the.connected(b"POST /v1/messages HTTP/1.1\r\nhost: ") as stream,
    ):
        assert await drip(stream) == b""


async def test_the_head_of_a_later_request_is_not_waited_for_either(sqlite: Database) -> None:
    limits = replace(SLOW, connections=replace(PATIENT, head_seconds=QUICK))
    body = msgspec.json.encode(ASKED)
    async with (
        bench(sqlite, SAYS, limits=limits) as the,
        the.account() as account,
        the.connected(the.head(account, len(body)) + body) as stream,
    ):
        while not (await stream.receive()).endswith(b"0\r\n\r\n"):
            pass
        assert len(the.meter.crowd) == 1
        await stream.send(b"POST /v1/messages HTTP/1.1\r\n")
        assert await told(stream) == b""


@pytest.mark.parametrize("request_line", ["HEAD / HTTP/1.1", "GET /x HTTP/1.1", "POST /v1/messages HTTP/1.1"])
async def test_who_shows_no_token_is_answered_once(sqlite: Database, request_line: str) -> None:
    async with bench(sqlite, SAYS, limits=SLOW) as the:
        half = f"{request_line}\r\nhost: x\r\ncontent-length: 30000000\r\n\r\n{{".encode()
        async with the.connected(half) as stream:
            answer = await told(stream)
            assert answer.startswith(b"HTTP/1.1 ")
            assert b"connection: close" in answer
        await until(lambda: len(the.meter.crowd) == 0)


async def test_connections_of_a_session_that_are_idle_make_room_for_its_next_one(sqlite: Database) -> None:
    body = msgspec.json.encode(ASKED)
    async with bench(sqlite, SAYS, limits=SLOW) as the, the.account() as account, AsyncExitStack() as stack:
        idle = []
        for _ in range(10):
            stream = await stack.enter_async_context(the.connected(the.head(account, len(body)) + body))
            while not (await stream.receive()).endswith(b"0\r\n\r\n"):
                pass
            idle.append(stream)
        await until(lambda: len(the.meter.crowd) <= PATIENT.of_one)
        assert await told(idle[0]) == b""


async def test_a_session_has_so_many_calls_at_once_and_others_are_served_all_the_same(sqlite: Database) -> None:
    async with (
        bench(sqlite, HANGS, limits=SLOW) as the,
        the.account() as greedy,
        the.account() as other,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(PATIENT.of_one):
            tasks.start_soon(the.ask, greedy)
        await until(lambda: len(the.api.requests) == PATIENT.of_one)
        answer = await the.ask(greedy)
        assert (answer.status, "x-should-retry" in answer.headers) == (500, False)
        tasks.start_soon(the.ask, other)
        await until(lambda: len(the.api.requests) == PATIENT.of_one + 1)
        tasks.cancel_scope.cancel()


async def test_where_all_are_busy_a_stranger_has_to_go(sqlite: Database) -> None:
    limits = replace(SLOW, connections=replace(PATIENT, in_all=3))
    async with (
        bench(sqlite, HANGS, limits=limits) as the,
        the.account() as account,
        anyio.create_task_group() as tasks,
    ):
        for count in (1, 2, 3):
            tasks.start_soon(the.ask, account)
            await until(lambda count=count: len(the.api.requests) == count)  # type: ignore[misc]
        async with the.connected() as stranger:
            assert await told(stranger) == b""
        assert len(the.meter.crowd) == 3
        tasks.cancel_scope.cancel()


async def test_connections_of_a_session_end_with_it(sqlite: Database) -> None:
    body = msgspec.json.encode(ASKED)
    async with bench(sqlite, SAYS, limits=SLOW) as the:
        async with the.account() as account, the.connected(the.head(account, len(body)) + body) as stream:
            while not (await stream.receive()).endswith(b"0\r\n\r\n"):
                pass
            await account.close()
            assert len(the.meter.crowd) == 1
        await until(lambda: len(the.meter.crowd) == 0)


# --- bodies -----------------------------------------------------------------------------------------------


async def test_sixty_half_sent_bodies_take_the_room_of_two(sqlite: Database) -> None:
    connections = replace(PATIENT, of_one=100)
    limits = replace(SLOW, connections=connections, held_bytes=4 * MEGABYTE, held_bytes_of_one=2 * MEGABYTE)
    async with (
        bench(sqlite, SAYS, limits=limits) as the,
        the.account() as greedy,
        the.account() as other,
        many(the, 60, the.head(greedy, MEGABYTE)) as streams,
        anyio.create_task_group() as tasks,
    ):
        for stream in streams:
            tasks.start_soon(push, stream, b"x" * (MEGABYTE // 2))
        await until(lambda: len(the.meter.crowd) == 60)
        await until(lambda: the.meter.bodies.held_bytes == 2 * MEGABYTE)
        assert (await the.ask_raw(other, body_of(MEGABYTE))).status == 200
        assert the.meter.bodies.held_bytes == 2 * MEGABYTE
        tasks.cancel_scope.cancel()


async def test_a_body_that_stops_coming_gives_its_room_to_the_next(sqlite: Database) -> None:
    limits = replace(SLOW, held_bytes_of_one=MEGABYTE, quiet_seconds=QUICK)
    async with (
        bench(sqlite, SAYS, limits=limits) as the,
        the.account() as account,
        the.connected(the.head(account, MEGABYTE) + b"{") as half,
    ):
        await until(lambda: the.meter.bodies.held_bytes == MEGABYTE)
        assert (await the.ask_raw(account, body_of(MEGABYTE))).status == 200
        assert (await half.receive()).startswith(b"HTTP/1.1 408")


async def test_a_body_that_comes_byte_by_byte_is_not_waited_for(sqlite: Database) -> None:
    limits = replace(SLOW, connections=replace(PATIENT, rest_seconds=QUICK), body_seconds=QUICK)
    async with (
        bench(sqlite, SAYS, limits=limits) as the,
        the.account() as account,
        the.connected(the.head(account, MEGABYTE)) as stream,
    ):
        assert (await drip(stream)).startswith(b"HTTP/1.1 408"), "told, and closed after that"
        assert (the.meter.bodies.held_bytes, the.calls) == (0, [])


async def test_where_there_is_no_room_in_time_the_call_is_to_be_made_again(sqlite: Database) -> None:
    limits = replace(SLOW, held_bytes_of_one=MEGABYTE, room_seconds=QUICK)
    async with (
        bench(sqlite, SAYS, limits=limits) as the,
        the.account() as account,
        the.connected(the.head(account, MEGABYTE)),
    ):
        await until(lambda: the.meter.bodies.held_bytes == MEGABYTE)
        answer = await the.ask(account)
        assert (answer.status, "x-should-retry" in answer.headers) == (500, False)


async def test_a_body_that_is_out_is_held_no_longer(sqlite: Database) -> None:
    async with (
        bench(sqlite, HANGS, limits=SLOW) as the,
        the.account() as account,
        the.meanwhile(the.ask_raw, account, body_of(MEGABYTE)),
    ):
        assert the.meter.bodies.held_bytes == 0
        assert the.calls[0]["ended_at"] is None


async def test_a_body_whose_sender_has_gone_is_held_no_longer(sqlite: Database) -> None:
    async with bench(sqlite, SAYS, limits=SLOW) as the, the.account() as account:
        async with the.connected(the.head(account, MEGABYTE) + b"{"):
            await until(lambda: the.meter.bodies.held_bytes == MEGABYTE)
        await until(lambda: the.meter.bodies.held_bytes == 0)
        assert the.calls == []


async def test_long_bodies_are_read_beside_the_event_loop() -> None:
    bodies, threads = Bodies(SLOW), []

    def read(body: bytes) -> RequestObjection:
        threads.append(threading.get_ident())
        return RequestObjection(message=str(len(body)))

    for size in (60_000, MEGABYTE):
        assert await bodies.understood(bytes(size), read) == RequestObjection(message=str(size))
    assert threads[0] == threading.get_ident() != threads[1]


def test_few_descriptors_are_left_to_the_daemon_itself() -> None:
    narrow = MeterLimits.within(1024).connections
    assert (narrow.nameless, narrow.in_all) == (128, 256)
    assert MeterLimits.within(65_536) == MeterLimits()
