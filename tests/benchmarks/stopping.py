"""How long a daemon takes to end when it is asked to, while many read its streams."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

import anyio

from benchmarks.table import Setup, Table, spread, verdict
from support.estate import deliver, report
from support.senders import token
from support.stand_in_daemon import StandInNode, stand_in_node, told
from support.streaming import Reading, reading
from support.waiting import until

TARGET_SECONDS: Final = 2.0

_READERS: Final = 100
_DEAF: Final = 10  # of them, who take nothing of eight megabytes
_TOKENS: Final = 5  # a caller has at most twenty streams
_LINES: Final = 2000
_LINE_BYTES: Final = 4000
_LISTENS: Final = {"CLAUDEOPS_LISTENER": "on", "CLAUDEOPS_DASHBOARD_PORT": "0"}
_SMALL: Final = 4096  # bytes that a deaf reader's system takes for him


def stopped(setup: Setup) -> Table:
    """Measure stops of daemons that nobody reads, that many read, and that some of them do not even read."""
    taken = anyio.run(_measured, setup)
    rows = []
    for name, seconds in taken.items():
        target = f"{TARGET_SECONDS:g} ({verdict(met=max(seconds) <= TARGET_SECONDS)})" if "nobody" not in name else ""
        rows.append((name, str(len(seconds)), *spread(seconds), target))
    return Table(
        title="Stop: SIGTERM → the daemon has ended, no session running",
        columns=("", "stops", "median s", "p99 s", "longest s", "target"),
        rows=rows,
        notes=("Every reader but the deaf has read its `bye`, and the exit status is 0. The target is for each.",),
    )


async def _measured(setup: Setup) -> Mapping[str, Sequence[float]]:
    kinds = {
        "nobody reads": (0, 0),
        f"{_READERS} streams": (_READERS, 0),
        f"the same, {_DEAF} of them deaf": (_READERS, _DEAF),
    }
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    root = setup.directory / "stopping"
    await anyio.Path(root).mkdir()
    async with stand_in_node(root) as node:
        node.script(*[{"line_of": _LINE_BYTES}] * _LINES, deliver(report()))
        headers = await _prepared(node)
        for _ in range(setup.repeats):
            for name, (readers, deaf) in kinds.items():
                taken[name].append(await _stop(node, headers, readers, deaf))
    return taken


async def _prepared(node: StandInNode) -> Sequence[Mapping[str, str]]:
    """Have the first session, whose log is long; return the headers of those who may read it."""
    async with node.daemon(**_LISTENS):
        await node.until_idle()
    return [(await token(node.operator, "read"))[1] for _ in range(_TOKENS)]


async def _stop(node: StandInNode, headers: Sequence[Mapping[str, str]], readers: int, deaf: int) -> float:
    """Return how many seconds it takes."""
    async with node.daemon(**_LISTENS) as daemon, AsyncExitStack() as stack:
        await daemon.until_logged("web_ready")
        url = str(told(daemon, "web_ready")[0]["url"])
        heard = []
        for number in range(readers):
            header = headers[number % len(headers)]
            if number < deaf:
                stack.enter_context(await _deaf(url, header))
            else:
                heard.append(await stack.enter_async_context(reading(f"{url}/stream", header)))
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for stream in heard:
                tasks.start_soon(_read, stream)
            status, ended = await daemon.stop(), time.monotonic()
        if status:
            raise AssertionError(f"the daemon ended with status {status}")
        return ended - began


async def _read(stream: Reading) -> None:
    if not (events := await stream.to_end()) or events[-1].name != "bye":
        raise AssertionError("a stream ended without its `bye`")


async def _deaf(url: str, header: Mapping[str, str]) -> socket.socket:
    """Return the connection of one who asks for a long log and takes nothing of it, once it could."""
    host, _, port = url.removeprefix("http://").partition(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
    connection.connect((host, int(port)))
    proof = f"Authorization: {header['authorization']}"
    connection.sendall(
        f"GET /sessions/1/stream?format=json HTTP/1.1\r\nHost: {host}:{port}\r\n{proof}\r\n\r\n".encode()
    )

    await until(lambda: _taken(connection) >= _SMALL // 2)
    return connection


def _taken(connection: socket.socket) -> int:
    """Return how many bytes a system has taken for one who does not read."""
    with suppress(BlockingIOError):
        return len(connection.recv(_SMALL, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return 0
