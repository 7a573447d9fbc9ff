"""Is a database ready: real PostgreSQL servers, and what Redis and MariaDB said when they were asked."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream

from claudeops.domain.probes.probe import MysqlLook, Observation, PostgresLook, RedisLook, Saw
from support.looking import Handler, look, serving
from support.ports import kept_port
from support.postgres import Server, running_server
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


# --- PostgreSQL ---------------------------------------------------------------------------------------------


def on_loopback(server: Server) -> Handler:
    """Return a handler that hands a connection on to a server, which listens on a unix socket alone."""

    async def handler(stream: ByteStream) -> None:
        path = str(server.directory / ".s.PGSQL.5432")
        async with await anyio.connect_unix(path) as inner, anyio.create_task_group() as tasks:

            async def back() -> None:
                async for chunk in inner:
                    await stream.send(chunk)
                tasks.cancel_scope.cancel()

            tasks.start_soon(back)
            async for chunk in stream:
                await inner.send(chunk)
            tasks.cancel_scope.cancel()

    return handler


async def of_postgres(handler: Handler) -> Observation:
    async with serving(handler) as port:
        return await look(PostgresLook(host="127.0.0.1", port=port))


@pytest.mark.postgres
async def test_a_real_server_is_up_until_it_shuts_down() -> None:
    with contextlib.ExitStack() as after, running_server() as server:
        found = await of_postgres(on_loopback(server))
        assert found.saw is Saw.UP
        assert found.latency_ms is not None
        held = after.enter_context(contextlib.closing(server.connect("postgres")))
        held.execute("SELECT 1")
        # A smart shutdown waits for whoever is connected; the server takes a moment to hear of it.
        os.kill(int((server.directory / "data" / "postmaster.pid").read_text().splitlines()[0]), signal.SIGTERM)
        with anyio.fail_after(PATIENCE_SECONDS):
            while (found := await of_postgres(on_loopback(server))).saw is not Saw.DOWN:
                assert found.saw is Saw.UP
        assert "shutting down" in found.detail


def refusing(code: str, message: str) -> Handler:
    fields = f"SFATAL\0VFATAL\0C{code}\0M{message}\0\0".encode()

    async def handler(stream: ByteStream) -> None:
        await stream.receive()
        await stream.send(b"E" + struct.pack("!I", len(fields) + 4) + fields)

    return handler


@pytest.mark.parametrize(
    ("code", "message", "saw"),
    [
        ("57P03", "the database system is starting up", Saw.DOWN),
        ("57P03", "the database system is not accepting connections", Saw.DOWN),
        ("53300", "sorry, too many clients already", Saw.DEGRADED),
        ("28000", 'no pg_hba.conf entry for host "127.0.0.1"', Saw.UP),
        ("3D000", "database does not exist", Saw.UP),
    ],
)
async def test_what_a_refusal_says_decides(code: str, message: str, saw: Saw) -> None:
    found = await of_postgres(refusing(code, message))
    assert found.saw is saw
    assert message in found.detail
    assert code in found.detail


# --- Redis --------------------------------------------------------------------------------------------------


async def of_redis(answer: bytes) -> Observation:
    async def handler(stream: ByteStream) -> None:
        assert await stream.receive() == b"*1\r\n$4\r\nPING\r\n"
        for number in range(len(answer)):  # in as many pieces as a network can make of it
            await stream.send(answer[number : number + 1])

    async with serving(handler) as port:
        return await look(RedisLook(host="127.0.0.1", port=port))


@pytest.mark.parametrize(
    ("answer", "saw"),
    [
        # Recorded from Redis 7.0.15.
        (b"+PONG\r\n", Saw.UP),
        (b"-NOAUTH Authentication required.\r\n", Saw.UP),
        (b"-ERR max number of clients reached\r\n", Saw.DEGRADED),
        (b"-LOADING Redis is loading the dataset in memory\r\n", Saw.DEGRADED),
        (b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n", Saw.DEGRADED),
        (b"-MISCONF Redis is configured to save RDB snapshots\r\n", Saw.DEGRADED),
        (b"-ERR unknown command\r\n", Saw.DOWN),
        (b"+HELLO\r\n", Saw.DOWN),
        (b"$4\r\nPONG\r\n", Saw.DOWN),
        (b"HTTP/1.1 400 Bad Request\r\n", Saw.DOWN),
        (b"+PON", Saw.DOWN),
        (b"", Saw.DOWN),
    ],
)
async def test_the_answer_to_ping_decides(answer: bytes, saw: Saw) -> None:
    assert (await of_redis(answer)).saw is saw


@contextmanager
def real_redis(directory: Path, *options: str) -> Iterator[int]:
    with kept_port() as port:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", *options]
        with subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL) as process:
            try:
                yield port
            finally:
                process.terminate()


async def test_a_real_redis_is_up_with_and_without_a_password(tmp_path: Path) -> None:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed: install the Debian package 'redis-server'")
    for options in ((), ("--requirepass", "x")):
        with real_redis(tmp_path, *options) as port, anyio.fail_after(PATIENCE_SECONDS):
            while (found := await look(RedisLook(host="127.0.0.1", port=port))).saw is not Saw.UP:
                assert "refused" in found.detail


# --- MySQL and MariaDB ----------------------------------------------------------------------------------------

GREETING = bytes.fromhex("64000000") + (  # recorded from MariaDB 10.11.19
    b"\n5.5.5-10.11.19-MariaDB-0+deb12u1\x00\x0e\x00\x00\x00jF\\||zqE\x00\xfe\xf7\x08\x02\x00\xff\x81\x15"
    b"\x00\x00\x00\x00\x00\x00\x1d\x00\x00\x00Eh`&:32={wck\x00mysql_native_password\x00"
)


def packet(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


async def of_mysql(*answers: bytes) -> tuple[Observation, list[bytes]]:
    heard = []

    async def handler(stream: ByteStream) -> None:
        for answer in answers:
            await stream.send(answer)
            heard.append(await stream.receive())

    async with serving(handler) as port:
        return await look(MysqlLook(host="127.0.0.1", port=port)), heard


async def test_a_login_is_tried_and_refused_so_that_the_server_does_not_block_this_host() -> None:
    denied = packet(2, b"\xff\x15\x04#28000Access denied for user 'claudeops_probe'")
    found, heard = await of_mysql(GREETING, denied)
    assert (found.saw, found.detail) == (Saw.UP, 'it greets as "10.11.19-MariaDB-0+deb12u1"')
    assert heard[0][3] == 1
    assert b"claudeops_probe\x00" in heard[0]


async def test_another_way_to_log_in_is_refused_too() -> None:
    other = packet(2, b"\xfecaching_sha2_password\x00" + b"x" * 20 + b"\x00")
    found, heard = await of_mysql(GREETING, other, packet(4, b"\xff\x15\x04#28000Access denied"))
    assert found.saw is Saw.UP
    assert heard[1] == b"\x00\x00\x00\x03"


@pytest.mark.parametrize(
    ("code", "words", "saw"),
    [
        (1040, b"Too many connections", Saw.DEGRADED),
        (1129, b"Host '10.0.0.1' is blocked because of many connection errors", Saw.DEGRADED),
        (1130, b"Host '10.0.0.1' is not allowed to connect", Saw.UP),
    ],
)
async def test_an_error_instead_of_a_greeting_decides(code: int, words: bytes, saw: Saw) -> None:
    found, _ = await of_mysql(packet(0, b"\xff" + code.to_bytes(2, "little") + words))
    assert found.saw is saw
    assert words.decode() in found.detail


@pytest.mark.parametrize(
    "greeting",
    [
        packet(0, b"\x09old\x00"),
        packet(0, b"\n" + b"x" * 100),
        b"\xff\xff\xff\x00",
        b"SSH-2.0-OpenSSH\r\n",
        b"\x05\x00\x00\x00ab",
    ],
)
async def test_what_is_no_greeting_is_down(greeting: bytes) -> None:
    async def handler(stream: ByteStream) -> None:
        await stream.send(greeting)

    async with serving(handler) as port:
        assert (await look(MysqlLook(host="127.0.0.1", port=port))).saw is Saw.DOWN


async def test_a_server_that_dies_after_its_greeting_is_down() -> None:
    async def handler(stream: ByteStream) -> None:
        await stream.send(GREETING)
        await stream.receive()

    async with serving(handler) as port:
        assert (await look(MysqlLook(host="127.0.0.1", port=port))).saw is Saw.DOWN
