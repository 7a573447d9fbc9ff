"""A sender in a process of its own, which posts bodies of alerts at a steady rate and notes what is answered.

Each body has its moment, whether or not those before it are answered: what it waits for counts. A line of the file of
answers is written before the next body of its connection goes out, so that it is there although the sender is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

import anyio
import msgspec

CONNECTIONS: Final = 24
SERVICES: Final = 200

_HEAD_END: Final = b"\r\n\r\n"


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """One body, and its answer."""

    number: int
    status: int
    waited: float  # seconds from its moment until it was answered
    delivery: str = ""  # its key, of a body that is stored


def body(number: int, *, alerts: int, distinct: int) -> bytes:
    """Return a body as Alertmanager's, of one service; after ``distinct`` alerts they repeat."""
    first = number * alerts % distinct
    service = f"s{first // alerts % SERVICES}"
    told = [
        {
            "status": "firing",
            "labels": {"alertname": f"A{first + place}", "service": service, "severity": "critical", "instance": "i:1"},
            "annotations": {"summary": f"{service} does not answer", "runbook": "http://127.0.0.1/runbook"},
            "startsAt": "2026-03-01T11:00:00Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://127.0.0.1:9090/graph?g0.expr=up",
            "fingerprint": f"{first + place:016x}",
        }
        for place in range(alerts)
    ]
    whole = {"version": "4", "groupKey": service, "receiver": "claudeops", "externalURL": str(number), "alerts": told}
    return json.dumps(whole).encode()


async def send(chosen: argparse.Namespace, sink: TextIO) -> None:
    """Post everything."""
    content = [
        body(number, alerts=chosen.alerts, distinct=chosen.distinct)
        for number in range(round(chosen.seconds * chosen.rate))
    ]
    began = time.perf_counter() + 0.2
    turns = itertools.count()
    async with anyio.create_task_group() as connections:
        for _ in range(CONNECTIONS):
            connections.start_soon(_connection, chosen, content, turns, began, sink)


async def _connection(
    chosen: argparse.Namespace, content: list[bytes], turns: Iterator[int], began: float, sink: TextIO
) -> None:
    reader, writer = await asyncio.open_connection(chosen.host, chosen.port)
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = (
        f"POST {chosen.path} HTTP/1.1\r\nhost: {chosen.host}:{chosen.port}\r\n"
        f"authorization: {chosen.authorization}\r\ncontent-type: application/json\r\ncontent-length: "
    )
    try:
        for number in turns:
            if number >= len(content):
                break
            due = began + number / chosen.rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            writer.write(f"{head}{len(content[number])}\r\n\r\n".encode() + content[number])
            status, answer = await _answer(reader)
            waited = time.perf_counter() - due
            delivery = str(json.loads(answer)["delivery"]) if status == chosen.stored else ""
            said = Posted(number=number, status=status, waited=waited, delivery=delivery)
            sink.write(msgspec.json.encode(said).decode() + "\n")
            sink.flush()
    except (OSError, asyncio.IncompleteReadError):
        return  # the daemon is gone
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(_HEAD_END)
    lines = head.decode().lower().split("\r\n")
    length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
    return int(lines[0].split()[1]), await reader.readexactly(length)


def command(url: str, authorization: str, file: Path, **numbers: float) -> list[str]:
    """Return the command of a sender."""
    host, _, port = url.removeprefix("http://").partition(":")
    given = {"host": host, "port": port, "authorization": authorization, "file": str(file), **numbers}
    named = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    return [sys.executable, str(Path(__file__)), *named]


def answers(file: Path) -> list[Posted]:
    """Return what a sender has noted."""
    whole = [line for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return [msgspec.json.decode(line, type=Posted) for line in whole]


def main() -> None:
    """Send as the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/api/v1/alerts/am")
    parser.add_argument("--authorization", required=True)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--alerts", type=int, default=10)
    parser.add_argument("--distinct", type=int, default=2000)
    parser.add_argument("--stored", type=int, default=202)
    chosen = parser.parse_args()
    with chosen.file.open("a", encoding="utf-8") as sink:
        anyio.run(send, chosen, sink)


if __name__ == "__main__":
    main()
