"""The line between a filter's process and the daemon: an answer that comes too late lets nothing through."""

from __future__ import annotations

import json
import socket
from typing import Any

import anyio
import pytest
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from claudeops.clock import Clock
from claudeops.domain.gate.docker_grants import DockerChange
from claudeops.engine.filtering.process import ANSWER_SECONDS, LINE_BYTES, DaemonLine

pytestmark = pytest.mark.anyio

CHANGE = DockerChange(verb="restart", named="web", id="a" * 64, name="web")


class Standing(Clock):
    """A clock that goes on while one of the two stands still."""

    seconds = 1000.0

    def since_boot(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("seconds", "given", "said"),
    [
        pytest.param(ANSWER_SECONDS - 1, 7, [], id="in time"),
        pytest.param(ANSWER_SECONDS + 1, 0, [{"grant": 7, "status": 0}], id="too late"),
    ],
)
async def test_grant_that_comes_after_the_daemon_stood_still_is_given_back_unused(
    seconds: float, given: int, said: list[object]
) -> None:
    ours, theirs = socket.socketpair()
    clock, granted, lines = Standing(), list[int](), list[Any]()
    async with await UNIXSocketStream.from_socket(ours) as stream, await UNIXSocketStream.from_socket(theirs) as daemon:
        line = DaemonLine(stream=stream, received=BufferedByteReceiveStream(stream), clock=clock)
        received = BufferedByteReceiveStream(daemon)

        async def ask() -> None:
            granted.append(await line.allows(CHANGE))
            await line.failed("this is the last line")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(line.answers)
            tasks.start_soon(ask)
            first = json.loads(await received.receive_until(b"\n", LINE_BYTES))
            clock.seconds += seconds
            await daemon.send(json.dumps({"asked": first["asked"], "grant": 7}).encode() + b"\n")
            while not lines or "failed" not in lines[-1]:
                lines.append(json.loads(await received.receive_until(b"\n", LINE_BYTES)))
            tasks.cancel_scope.cancel()

    assert (granted, lines[:-1]) == ([given], said)
