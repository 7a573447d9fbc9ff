"""What a look costs: processor time of the looking process alone, and what a thousand probes take of one core.

Servers run in a process of their own. Each look makes a connection of its own, as probes do.

``python -m benchmarks.looks CERTIFICATE`` is that process: it prints the ports of its plain server and of the one with
TLS, and ends with its stdin.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import anyio

from benchmarks.table import Setup, Table, shown, verdict
from claudeops.clock import Clock
from claudeops.domain.probes.probe import AnyLook, HttpLook, Probe, Saw, TcpLook
from claudeops.engine.probes.looker import Looker
from claudeops.engine.probes.stream import Means
from claudeops.logs import Logger
from support.certificates import Authority, make_authority, serving_with

TARGET_SHARE: Final = 0.05
"""Of one core, for a thousand HTTP probes; TLS and names cost what they cost."""

_PROBES: Final = 1000
_INTERVAL_SECONDS: Final = 30.0
_LOOKS_A_REPEAT: Final = 200
_WARM_UP: Final = 30
_AT_ONCE: Final = 10
_ANSWER: Final = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"status":"ok"}'


def cost(setup: Setup) -> Table:
    """Measure each way in turn, ten looks at a time."""
    authority = make_authority()
    certificate = authority.issue(setup.directory / "looks.pem", names=("localhost",))
    try:
        with servers(certificate) as (plain, encrypted):
            ways: dict[str, AnyLook] = {
                "http": HttpLook(url=f"http://127.0.0.1:{plain}/health", json={"/status": "ok"}),
                "http, by name": HttpLook(url=f"http://localhost:{plain}/health", json={"/status": "ok"}),
                "https, verified": HttpLook(url=f"https://localhost:{encrypted}/health", json={"/status": "ok"}),
                "tcp": TcpLook(host="127.0.0.1", port=plain),
            }
            taken = {name: anyio.run(_measured, look, authority, setup.repeats) for name, look in ways.items()}
    finally:
        certificate.unlink()
    rows = [(name, shown(costs), f"{_share(costs) * 100:.1f} %") for name, costs in taken.items()]
    met = verdict(met=_share(taken["http"]) <= TARGET_SHARE)
    return Table(
        title=f"Looks of probes: processor time of one, and of a core for {_PROBES} every {_INTERVAL_SECONDS:g} s",
        columns=("", "µs", "of a core"),
        rows=rows,
        notes=(f"Target: {TARGET_SHARE * 100:g} % of a core for http: {met}.",),
    )


def _share(costs: list[float]) -> float:
    """Return the share of one core that the median look takes, made so often."""
    return sorted(costs)[len(costs) // 2] / 1e6 * _PROBES / _INTERVAL_SECONDS


async def _measured(look: AnyLook, authority: Authority, repeats: int) -> list[float]:
    """Return the µs of processor time of a look, for each repeat."""
    trusted = authority.trust()
    looker = Looker(means=Means(clock=Clock(), verified=lambda: trusted), log=Logger({}))
    probe = Probe(name="bench", service="bench", look=look, origin="bench")

    async def some(count: int) -> None:
        for _ in range(count):
            seen = await looker.look(probe)
            if seen.saw is not Saw.UP:
                raise AssertionError(seen.detail)

    await some(_WARM_UP)
    costs = []
    for _ in range(repeats):
        before = time.process_time()
        async with anyio.create_task_group() as tasks:
            for _ in range(_AT_ONCE):
                tasks.start_soon(some, _LOOKS_A_REPEAT // _AT_ONCE)
        costs.append((time.process_time() - before) / _LOOKS_A_REPEAT * 1e6)
    return costs


@contextmanager
def servers(certificate: Path) -> Iterator[tuple[int, int]]:
    """Serve for the length of a block; yield the ports of the plain server and of the one with TLS."""
    command = [sys.executable, "-m", "benchmarks.looks", str(certificate)]
    tests = Path(__file__).parents[1]
    with subprocess.Popen(command, cwd=tests, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdin is None or process.stdout is None:
                raise AssertionError("they were asked for as pipes")
            plain, encrypted = map(int, process.stdout.readline().split())
            yield plain, encrypted
        finally:
            process.terminate()


def _serve(certificate: Path) -> None:
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(2)]
    for listener, context in zip(listeners, (None, serving_with(certificate)), strict=True):
        threading.Thread(target=_accept, args=(listener, context), daemon=True).start()
    sys.stdout.write(" ".join(str(listener.getsockname()[1]) for listener in listeners) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


def _accept(listener: socket.socket, context: ssl.SSLContext | None) -> None:
    while True:
        connection, _ = listener.accept()
        with suppress(OSError), connection:
            if context is None:
                _answer(connection)
            else:
                with context.wrap_socket(connection, server_side=True) as encrypted:
                    _answer(encrypted)


def _answer(connection: socket.socket) -> None:
    if connection.recv(4096):  # a look that asks for no more than the connection says nothing
        connection.sendall(_ANSWER)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
