"""The meter of a real daemon under attack, and the real CLI through it: what is bounded holds, what is asked passes."""

from __future__ import annotations

import base64
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final

import anyio
import msgspec
import psutil
import pytest
from anyio.abc import SocketAttribute

from claudeops.formats.model_request import ModelRequest, read_request, unknown_betas
from claudeops.scripted_api.requests import Recorded
from support.checkout import TESTS
from support.operating import conclude, look, operator, say
from support.senders import starts_nothing
from support.waiting import until

pytestmark = pytest.mark.anyio

USUAL_DESCRIPTORS: Final = 1024
METER: Final = TESTS / "benchmarks" / "meter_alone.py"
MEGABYTE: Final = 1024 * 1024
BODY_BYTES: Final = 30 * MEGABYTE
PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="  # gitleaks:allow
)
PAGE: Final = (
    b"%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj "
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 10 10]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF"
)


def use(name: str, **given: object) -> dict[str, object]:
    return {"text": "I use it.", "tool": {"name": name, "input": given}}


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Let this process open at least so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"needs {count} descriptors, and may have {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def port_of(process: psutil.Process) -> int:
    """Return the port of a daemon's meter, which is opened behind ready."""
    found: set[int] = set()

    def is_open() -> bool:
        listening = (one for one in process.net_connections("tcp4") if one.status == psutil.CONN_LISTEN)
        found.update(one.laddr.port for one in listening)
        return bool(found)

    await until(is_open)
    (port,) = found
    return port


async def test_half_open_connections_keep_no_session_from_starting(tmp_path: Path) -> None:
    strangers = 1300
    with descriptors(strangers + 200):
        async with (
            operator(tmp_path, haiku=[look(), conclude()]) as op,
            op.daemon(**starts_nothing(tmp_path)) as daemon,
        ):
            await daemon.until_logged("daemon_ready")
            process = psutil.Process(daemon.process.pid)
            assert process.rlimit(psutil.RLIMIT_NOFILE)[0] > USUAL_DESCRIPTORS, "raised at the start"
            process.rlimit(psutil.RLIMIT_NOFILE, (USUAL_DESCRIPTORS, USUAL_DESCRIPTORS))
            port = await port_of(process)
            async with AsyncExitStack() as stack:
                for _ in range(strangers):
                    await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
                assert process.num_fds() < USUAL_DESCRIPTORS / 2
                done = await op.bootstrap()
            assert done.code == 0, done.stderr
        assert [session["outcome"] for session in op.sessions()] == ["success"]


@pytest.mark.long
async def test_sixty_half_sent_bodies_are_not_taken_but_for_a_few(tmp_path: Path) -> None:
    """What is not taken stays with its sender: bytes are counted there, so far as the kernel's buffers allow."""
    command = [sys.executable, "-P", str(METER), str(tmp_path), "http://127.0.0.1:1"]
    async with await anyio.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url, token = (await process.stdout.receive()).decode().split()
        taken: list[int] = []
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
        given_up = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for _ in range(60):
                tasks.start_soon(_half_send, int(url.rpartition(":")[2]), head.encode(), given_up, taken)
            await given_up.wait()  # as long as the meter waits for the rest
            tasks.cancel_scope.cancel()
        process.terminate()
    assert MEGABYTE < sum(taken) < 150 * MEGABYTE


async def _half_send(port: int, head: bytes, given_up: anyio.Event, taken: list[int]) -> None:
    """Send half of a body, as far as that is taken; tell when the meter has waited long enough for the rest."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        own = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django's
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)  # or the kernel takes it that nobody reads
        try:
            await stream.send(head)
            for _ in range(BODY_BYTES // MEGABYTE // 2):
                await stream.send(bytes(MEGABYTE))
                taken.append(MEGABYTE)
            if b" 408 " in await stream.receive():
                given_up.set()
        except (anyio.BrokenResourceError, anyio.EndOfStream):
            return  # one of too many


async def test_a_session_goes_on_when_its_database_was_locked_while_a_call_ended(tmp_path: Path) -> None:
    # Two calls of the CLI's usual size are more than this session may spend, so one waits for the other's end.
    slow = {**look(), "delay_seconds": 3}
    async with operator(tmp_path, haiku=[slow, conclude()]) as op:
        async with op.daemon(CLAUDEOPS_TIER1_MAX_BUDGET_USD="0.1", CLAUDEOPS_INTERVAL="100000") as daemon:
            await op.until("SELECT * FROM model_calls", lambda rows: len(rows) == 1)
            with op.locked():
                await until(lambda: '"while_doing":"book"' in daemon.output.read_text())
                assert op.rows("SELECT ended_at FROM model_calls") == [{"ended_at": None}]
            await op.until("SELECT * FROM sessions WHERE status = 'ended'", lambda rows: len(rows) == 1)
        calls = op.rows("SELECT * FROM model_calls")
        assert [call["ended_at"] is not None for call in calls] == [True] * len(calls)
        assert sum(float(str(call["charged_usd"])) for call in calls) < 0.05, "none counts with all that it could cost"
    [session] = op.sessions()
    assert session["outcome"] == "success"


@pytest.mark.parametrize("meter", ["on", pytest.param("off", marks=pytest.mark.long)])
async def test_what_the_cli_asks_passes_and_means_the_same(tmp_path: Path, meter: str) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('extends = "default"\n[tiers.1]\ntools = ["Bash", "Read", "WebSearch"]\n', encoding="utf-8")
    image, document = tmp_path / "repos/estate/x.png", tmp_path / "repos/estate/x.pdf"
    steps = [
        use("Read", file_path=str(image)),
        use("Read", file_path=str(document)),
        use("WebSearch", query="is it down"),
        say("nothing was found"),  # what the search itself is answered with
        look(),
        conclude(),
    ]
    async with operator(tmp_path, haiku=steps) as op:
        image.write_bytes(base64.b64decode(PIXEL))
        document.write_bytes(PAGE)
        done = await op.bootstrap(CLAUDEOPS_POLICY_PATH=str(policy), CLAUDEOPS_METER=meter)
        assert done.code == 0, done.stderr
        assert "model_request_refused" not in done.stderr
        kinds = str([request.body for request in op.api.requests])
        assert all(kind in kinds for kind in ("application/pdf", "image/png", "web_search_20250305", "defer_loading"))
        assert len(op.api.requests) == len(steps)
        for request in op.api.requests:
            assert _passes(request)


def _passes(request: Recorded) -> bool:
    """Tell whether the meter would pass a request on as it is."""
    read = read_request(msgspec.json.encode(request.body), serves=lambda _: None, searching=True)
    assert isinstance(read, ModelRequest), read
    return msgspec.json.decode(read.body) == request.body and not unknown_betas(request.headers["anthropic-beta"])
