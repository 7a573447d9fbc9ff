"""Keeps the listener at Slack alive, a process of its own (`claudeops.notify.slack_socket`): whenever it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process, SocketStream

from claudeops.domain.notices.refusals import slack_deafness
from claudeops.engine.process.leaders import end_leader, open_fed_leader
from claudeops.logs import LogEvent, Logger
from claudeops.notify.reception import AnswerReception
from claudeops.notify.slack_socket import CONNECTED, LOST, MOST_BYTES, PRESSED, SlackLine, SlackRequest, word_in

WAITS: Final = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Seconds before the process is started again, by its failures in a row."""

PATIENCE_SECONDS: Final = 30.0
"""How long the process may be without a connection before it is started anew."""

_SETTLED_SECONDS: Final = 10.0  # with a connection, after which an end counts as the first one


@dataclass(kw_only=True)
class SlackLink:
    """Listens to what people press in Slack, until cancelled."""

    app_token: str = field(repr=False)
    api: str
    environment: Mapping[str, str]  # proxies and CA files; nothing else of the daemon's
    pressed: Callable[[bytes], Awaitable[None]]  # is given what Slack sends, as JSON
    log: Logger
    waits: tuple[float, ...] = WAITS
    patience_seconds: float = PATIENCE_SECONDS
    pid: int | None = None  # of the process that lives
    is_connected: bool = False
    reception: AnswerReception | None = None

    async def run(self) -> None:
        """Keep a process listening."""
        failures = 0
        while True:
            began, was_connected = time.monotonic(), False
            try:
                error = await self._listen()
                was_connected = self.is_connected
            except OSError as fault:
                error = fault.strerror or "no process"
            finally:
                self.is_connected = False
            had_settled = was_connected and time.monotonic() - began > _SETTLED_SECONDS
            failures = 1 if had_settled else failures + 1
            self.log.warning(LogEvent.SLACK_LOST, error=error, failures=failures)
            if self.reception is not None and not was_connected:
                await self.reception.failed(error, slack_deafness(word_in(error)))
            await anyio.sleep(self.waits[min(failures, len(self.waits)) - 1])

    async def _listen(self) -> str:
        """Return why the process has ended. Raises `OSError` when there is none."""
        request = SlackRequest(
            app_token=self.app_token,
            api=self.api,
            patience_seconds=self.patience_seconds,
            environment=dict(self.environment),
        )
        process, stdin = await open_fed_leader([sys.executable, "-I", "-m", "claudeops.notify.slack_socket"])
        self.pid = process.pid
        try:
            return await self._converse(process, stdin, msgspec.json.encode(request) + b"\n")
        finally:
            self.pid = None
            await end_leader(process, stdin)

    async def _converse(self, process: Process, stdin: SocketStream, request: bytes) -> str:
        if process.stdout is None:
            raise OSError("the process has no pipe")
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await stdin.send(request)
        return await self._read(process.stdout)

    async def _read(self, stdout: ByteReceiveStream) -> str:
        rest, error = b"", "the process has ended"
        with suppress(anyio.EndOfStream):
            while len(rest) <= MOST_BYTES:
                *lines, rest = (rest + await stdout.receive()).split(b"\n")
                for text in lines:
                    with suppress(msgspec.DecodeError):
                        line = msgspec.json.decode(text, type=SlackLine)
                        error = line.error if line.state == LOST else error
                        await self._take(line)
        return error

    async def _take(self, line: SlackLine) -> None:
        if line.state == CONNECTED and not self.is_connected:
            self.is_connected = True
            self.log.info(LogEvent.SLACK_CONNECTED)
            if self.reception is not None:
                await self.reception.succeeded()
        elif line.state == PRESSED:
            await self.pressed(bytes(line.payload))
