"""A hundred who watch a session, in a process of its own: ``python watchers.py URL SESSION TOKENS``.

Each line of its standard input is a command. ``watch N`` opens the streams after line N, and is answered with
``watching`` when each has been given its first bytes. ``rest`` closes them, and is answered with two numbers: of the
lines that came, and of the frames that told of a loss. This process steps back for what is measured.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from support.listening import secret_of

WATCHERS: Final = 100
_NICENESS: Final = 10


async def serve(url: str, session: int, tokens: Sequence[int]) -> None:
    """Watch and rest as commanded."""
    while (command := await _command()).startswith("watch"):
        path = f"/sessions/{session}/stream?after={command.split()[1]}"
        seen = [0, 0]
        async with anyio.create_task_group() as tasks:
            for number in range(WATCHERS):
                await tasks.start(_watch, url, path, tokens[number % len(tokens)], seen)
            _say("watching")
            await _command()
            tasks.cancel_scope.cancel()
        _say(f"{seen[0]} {seen[1]}")


async def _watch(url: str, path: str, token: int, seen: list[int], *, task_status: TaskStatus[None]) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        proof = f"Authorization: Bearer {secret_of(token)}"
        request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{proof}\r\n\r\n"
        await stream.send(request.encode())
        while True:
            received = await stream.receive()
            seen[0] += received.count(b"<li id=")
            seen[1] += received.count(b"event: resync") + received.count(b"event: lost")
            task_status.started()
            task_status = anyio.TASK_STATUS_IGNORED


async def _command() -> str:
    line: str = await anyio.to_thread.run_sync(sys.stdin.readline)
    return line.strip()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.nice(_NICENESS)
    anyio.run(serve, sys.argv[1], int(sys.argv[2]), [int(number) for number in sys.argv[3].split(",")])
