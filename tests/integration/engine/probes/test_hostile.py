"""A service that wants to hurt costs at most its timeout and its bytes, and what it did is told in clean words."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream

from claudeops.domain.probes.probe import (
    MOST_DETAIL,
    HttpLook,
    MysqlLook,
    PostgresLook,
    Probe,
    RedisLook,
    Saw,
    TcpLook,
    TlsLook,
)
from claudeops.engine.probes.looker import Looker
from claudeops.engine.probes.stream import MOST_BYTES
from support.certificates import Authority, serving_with
from support.looking import QUIET, answers, drips, head, look, means, never, replies, says, serving
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

SHORT = 0.1  # seconds that looks may take which come to nothing
ENOUGH = 3.0  # seconds that looks may take which have seen something before that

KINDS: dict[str, Callable[[int], object]] = {
    "http": lambda port: HttpLook(url=f"http://127.0.0.1:{port}/"),
    "https": lambda port: HttpLook(url=f"https://127.0.0.1:{port}/", verify=False),
    "tcp": lambda port: TcpLook(host="127.0.0.1", port=port, banner="ready"),
    "tls": lambda port: TlsLook(host="127.0.0.1", port=port),
    "postgres": lambda port: PostgresLook(host="127.0.0.1", port=port),
    "mysql": lambda port: MysqlLook(host="127.0.0.1", port=port),
    "redis": lambda port: RedisLook(host="127.0.0.1", port=port),
}


async def flood(stream: ByteStream) -> None:
    """Send what is not asked for, without end."""
    while True:
        await stream.send(b"\x00\xff" * 32768)


async def hang_up(_stream: ByteStream) -> None:
    """Close at once."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("deed", [never, drips])
async def test_whoever_is_slow_costs_the_timeout(kind: str, deed: Callable[[ByteStream], object]) -> None:
    # Neither of the two ever ends: whoever waited for it would be here for ever.
    async with serving(deed) as port:  # type: ignore[arg-type]  # one of the two above
        with anyio.fail_after(PATIENCE_SECONDS):
            found = await look(KINDS[kind](port), timeout=SHORT)  # type: ignore[arg-type]  # one of the looks above
    assert found.saw is Saw.DOWN
    if deed is never:  # some protocols show with the first byte that they are not spoken
        assert "no end after 0.1 s: " in found.detail
        assert found.latency_ms is None


@pytest.mark.parametrize("kind", KINDS)
async def test_whoever_floods_is_left_after_so_many_bytes(kind: str) -> None:
    async with serving(flood) as port:
        found = await look(KINDS[kind](port))  # type: ignore[arg-type]  # as above
    assert found.saw is Saw.DOWN
    assert found.detail.isprintable()


@pytest.mark.parametrize("kind", KINDS)
async def test_whoever_closes_at_once_is_down(kind: str) -> None:
    async with serving(hang_up) as port:
        found = await look(KINDS[kind](port))  # type: ignore[arg-type]  # as above
    assert found.saw is Saw.DOWN
    assert "clos" in found.detail or "reset" in found.detail


@pytest.mark.parametrize("kind", KINDS)
async def test_escape_sequences_reach_no_detail(kind: str) -> None:
    words = b"\x1b]0;owned\x07\x1b[2J\r\n\x00\xff\xfe \xe2\x80\xae desrever \xf3\xa0\x80\x81" + b"x" * 2000
    async with serving(says(words)) as port:
        found = await look(KINDS[kind](port), timeout=SHORT)  # type: ignore[arg-type]  # as above
    assert found.saw is Saw.DOWN
    assert found.detail.isprintable()
    assert len(found.detail) <= MOST_DETAIL


# --- a body ---------------------------------------------------------------------------------------------------


async def test_a_gigabyte_is_read_to_the_bound_and_left() -> None:
    sent = 0

    async def handler(stream: ByteStream) -> None:
        nonlocal sent
        await head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
        while sent < 1 << 30:
            await stream.send(b"x" * 65536)
            sent += 65536

    async with serving(handler) as port:
        url = f"http://127.0.0.1:{port}/"
        assert (await look(HttpLook(url=url))).saw is Saw.UP
        assert sent < 64 * MOST_BYTES  # what the kernel holds between the two comes on top
        found = await look(HttpLook(url=url, text="y"))
        assert found.detail == 'answered 200, but without the text "y" within its first 256 KiB'
        assert "more than 256 KiB" in (await look(HttpLook(url=url, json={"/a": 1}))).detail


async def test_a_body_that_stops_half_way_is_down_and_says_where() -> None:
    async def handler(stream: ByteStream) -> None:
        await head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await anyio.sleep_forever()

    async with serving(handler) as port:
        found = await look(HttpLook(url=f"http://127.0.0.1:{port}/"), timeout=ENOUGH)
    assert found.detail == "no end after 3 s: it answered 200; waiting for the rest of the body"


async def test_a_body_that_is_cut_off_is_down() -> None:
    async with serving(replies(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")) as port:
        found = await look(HttpLook(url=f"http://127.0.0.1:{port}/"))
    assert found.saw is Saw.DOWN
    assert "ended early" in found.detail


async def test_chunks_of_one_byte_do_not_keep_the_event_loop() -> None:
    chunks = b"1\r\nx\r\n" * 60_000
    turns = 0

    async def beat() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving(replies(start, chunks, b"0\r\n\r\n")) as port, anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        found = await look(HttpLook(url=f"http://127.0.0.1:{port}/"), timeout=PATIENCE_SECONDS)
        tasks.cancel_scope.cancel()
    assert found.saw is Saw.UP
    assert turns > 60_000 / 500  # others had their turn between the chunks, and not between reads alone


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 999999 No\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\nX\x00: \x1b[31m\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 40_000,
        b"\x16\x03\x01\x02\x00",
    ],
)
async def test_what_is_not_http_is_down(answer: bytes) -> None:
    async with serving(replies(answer)) as port:
        found = await look(HttpLook(url=f"http://127.0.0.1:{port}/"))
    assert found.saw is Saw.DOWN
    assert found.detail.isprintable()


async def test_heads_without_end_are_left_after_so_many_bytes() -> None:
    async def handler(stream: ByteStream) -> None:
        await head(stream)
        while True:
            await stream.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    async with serving(handler) as port:
        found = await look(HttpLook(url=f"http://127.0.0.1:{port}/"), timeout=PATIENCE_SECONDS)
    assert (found.saw, found.detail) == (Saw.DOWN, "it sent more than 512 KiB: waiting for the answer")


async def test_another_protocol_is_quoted() -> None:
    async with serving(says(b"SSH-2.0-OpenSSH_9.2\r\n")) as port:
        found = await look(HttpLook(url=f"http://127.0.0.1:{port}/"))
        assert found.detail == 'it does not speak HTTP: it answered "SSH-2.0-OpenSSH_9.2"'
        found = await look(TlsLook(host="127.0.0.1", port=port))
        assert found.detail == 'it does not speak TLS: it answered "SSH-2.0-OpenSSH_9.2"'


# --- TLS ------------------------------------------------------------------------------------------------------


async def test_whoever_is_silent_behind_the_handshake_costs_the_timeout(tmp_path: Path, authority: Authority) -> None:
    async with serving(never, tls=serving_with(authority.issue(tmp_path / "good"))) as port:
        asked = HttpLook(url=f"https://127.0.0.1:{port}/")
        found = await look(asked, timeout=ENOUGH, verified=authority.trust())
    assert found.detail == "no end after 3 s: waiting for the answer"


async def test_plain_http_behind_a_tls_port_is_told(tmp_path: Path, authority: Authority) -> None:
    async with serving(answers(), tls=serving_with(authority.issue(tmp_path / "good"))) as port:
        found = await look(HttpLook(url=f"http://127.0.0.1:{port}/"), timeout=SHORT)
    assert found.saw is Saw.DOWN


async def test_protocols_that_do_not_meet_are_told(tmp_path: Path, authority: Authority) -> None:
    old = serving_with(authority.issue(tmp_path / "good"))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    new = authority.trust()
    new.minimum_version = ssl.TLSVersion.TLSv1_3
    async with serving(answers(), tls=old) as port:
        found = await look(TlsLook(host="127.0.0.1", port=port), verified=new)
    assert found.saw is Saw.DOWN
    assert "TLS handshake" in found.detail


# --- a name ---------------------------------------------------------------------------------------------------


async def test_a_lookup_that_hangs_costs_the_timeout_and_is_our_own_fault() -> None:
    over = threading.Event()

    def hang(_host: str, _port: int) -> list[object]:
        over.wait(PATIENCE_SECONDS)
        return []

    try:
        found = await look(HttpLook(url="http://shop.example/"), timeout=SHORT, resolve=hang)
    finally:
        over.set()
    assert (found.saw, found.detail) == (Saw.NOTHING, "no end after 0.1 s: looking up shop.example")


async def test_a_cancelled_look_leaves_nothing_open() -> None:
    reached = anyio.Event()

    async def handler(stream: ByteStream) -> None:
        reached.set()
        await never(stream)

    async with serving(handler) as port, anyio.create_task_group() as tasks:
        looker = Looker(means=means(), log=QUIET)
        asked = TcpLook(host="127.0.0.1", port=port, banner="x")
        patient = Probe(name="a", service="a", look=asked, timeout=PATIENCE_SECONDS, origin="t")
        tasks.start_soon(looker.look, patient)
        await reached.wait()
        tasks.cancel_scope.cancel()
