"""What the meter adds to a model call: time to the first byte, and how much of the throughput it leaves."""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from benchmarks.table import Setup, Table, shown

MOST_ADDED_MS: Final = 5.0
LEAST_OF_DIRECT: Final = 0.9

_CALLS: Final = 60  # a run, for latency
_PROMPT_BYTES: Final = 60_000  # an ordinary turn of the CLI
_EVENTS: Final = 300  # an ordinary answer
_PAUSE: Final = 0.002  # seconds between events: five times as fast as a fast model writes
_SESSIONS: Final = 4  # at once


class _Client:
    """One connection that asks again and again, as the CLI does."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        prompt = [{"role": "user", "content": "x" * _PROMPT_BYTES}]
        body = {"model": "claude-haiku-5-5", "max_tokens": 1000, "stream": True, "messages": prompt}
        self._body = json.dumps(body).encode()
        self._head = f"host: x\r\nx-api-key: {token}\r\ncontent-length: {len(self._body)}\r\n\r\n"

    def ask(self, events: int, pause: float) -> tuple[float, float]:
        """Return the seconds until the first byte of the answer, and until its last."""
        # In a header that the meter passes on; it is the CLI's, for other things.
        line = f"POST /v1/messages HTTP/1.1\r\nx-stainless-timeout: events={events}&pause={pause}\r\n"
        started = time.perf_counter()
        self._socket.sendall((line + self._head).encode() + self._body)
        tail = self._socket.recv(65536)
        first = time.perf_counter() - started
        while not tail.endswith(b"0\r\n\r\n"):
            piece = self._socket.recv(65536)
            if not piece:
                raise AssertionError("the answer broke off")
            tail = tail[-8:] + piece
        return first, time.perf_counter() - started

    def close(self) -> None:
        self._socket.close()


def added(setup: Setup) -> Table:
    """Measure; each call through the meter stands beside one past it: machines have better and worse moments."""
    with _running(setup.directory) as (direct, metered):
        rows = [_latency(setup, direct, metered), _throughput(setup, direct, metered)]
    return Table(
        title="Meter: what a model call costs more through the daemon, booked before and after in SQLite",
        columns=("what", "direct", "through the meter", "p50", "p99", "of direct", "target"),
        rows=rows,
        notes=(
            f"Milliseconds. First byte: {_CALLS * setup.repeats} pairs of calls with {_PROMPT_BYTES // 1000} KB of",
            f"prompt; p50 and p99 are of the differences in a pair; target: p99 at most {MOST_ADDED_MS:g}.",
            f"Whole answers: {_SESSIONS} sessions at once, {_EVENTS} events each, one every {_PAUSE * 1000:g} ms;",
            f"target: {LEAST_OF_DIRECT} of the direct throughput.",
            "Client, meter and API are processes of their own.",
        ),
    )


def _latency(setup: Setup, direct: Callable[[], _Client], metered: Callable[[], _Client]) -> tuple[str, ...]:
    one, other = direct(), metered()
    for client in (one, other):
        client.ask(1, 0)  # connections are made, code is loaded
    # With a pause, as from a model: what is over at once is booked before it is passed on.
    pairs = [tuple(client.ask(2, _PAUSE)[0] * 1e3 for client in (one, other)) for _ in range(_CALLS * setup.repeats)]
    one.close()
    other.close()
    differences = sorted(through - past for past, through in pairs)
    p99 = differences[int(len(differences) * 0.99)]
    return (
        "first byte",
        shown([past for past, _ in pairs], 2),
        shown([through for _, through in pairs], 2),
        f"{statistics.median(differences):.2f}",
        f"{p99:.2f}",
        "",
        "met" if p99 <= MOST_ADDED_MS else "MISSED",
    )


def _throughput(setup: Setup, direct: Callable[[], _Client], metered: Callable[[], _Client]) -> tuple[str, ...]:
    pairs = [(_side_by_side(direct) * 1e3, _side_by_side(metered) * 1e3) for _ in range(setup.repeats)]
    share = [past / through for past, through in pairs]
    return (
        "whole answers",
        shown([past for past, _ in pairs]),
        shown([through for _, through in pairs]),
        "",
        "",
        shown(share, 2),
        "met" if statistics.median(share) >= LEAST_OF_DIRECT else "MISSED",
    )


def _side_by_side(connect: Callable[[], _Client]) -> float:
    """Return how long several sessions take for an answer each, at once."""
    clients = [connect() for _ in range(_SESSIONS)]
    threads = [threading.Thread(target=client.ask, args=(_EVENTS, _PAUSE)) for client in clients]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - started
    for client in clients:
        client.close()
    return took


@contextmanager
def _running(directory: Path) -> Iterator[tuple[Callable[[], _Client], Callable[[], _Client]]]:
    """Start the API and the meter; gives how to connect to each."""
    with ExitStack() as stack:
        api = stack.enter_context(_process("fast_api.py"))
        url = f"http://127.0.0.1:{api}"
        place = directory / "meter"
        place.mkdir()
        stack.callback(_emptied, place)
        metered, token = stack.enter_context(_process("meter_alone.py", str(place), url)).split()
        yield lambda: _Client(url, token), lambda: _Client(metered, token)


@contextmanager
def _process(script: str, *arguments: str) -> Iterator[str]:
    """Run a script that stands beside this one until the block is left; gives the first line that it prints."""
    command = [sys.executable, "-P", str(Path(__file__).with_name(script)), *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            if process.stdout is None:
                raise AssertionError("stdout was asked for as a pipe")
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _emptied(place: Path) -> None:
    for file in place.iterdir():
        file.unlink()
    place.rmdir()
