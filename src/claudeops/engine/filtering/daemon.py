"""The daemon's side of a session's filter: its process, its line, and what the gate has granted.

The process starts with the session's first connection, and anew with the next one where it has ended.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from typing import Final

import anyio
import msgspec
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from claudeops.domain.gate.granted import Change, Grant, Grants
from claudeops.engine.filtering.process import LINE_BYTES
from claudeops.engine.process.leaders import end_leader, open_leader
from claudeops.logs import LogEvent, Logger

_BROKEN: Final = (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.DelimiterNotFound)
_AGAIN_SECONDS: Final = 1.0
_NOT_SENT: Final = 0
_TARGET_CHARACTERS: Final = 300


class Filter(msgspec.Struct, kw_only=True):
    """A filter of one session."""

    engine: str  # what is behind it, as the log names it
    module: str  # of the process
    first: Mapping[str, object]  # what the process has to know
    changes: type[Change]  # that it asks for
    grants: Grants
    log: Logger
    _used: dict[int, tuple[Grant, Change]] = msgspec.field(default_factory=dict)
    _count: int = 0

    async def serve(self, listening: socket.socket) -> None:
        """Run the process whenever the session connects, until cancelled."""
        while True:
            await anyio.wait_readable(listening)
            try:
                await self._run(listening)
            except (OSError, ValueError, *_BROKEN) as error:
                self.log.error(LogEvent.FILTER_ENDED, engine=self.engine, error=str(error) or type(error).__name__)
            await anyio.sleep(_AGAIN_SECONDS)

    async def _run(self, listening: socket.socket) -> None:
        """Run one process to its end; raises what a broken line raises."""
        ours, theirs = socket.socketpair()
        with theirs:
            stream = await UNIXSocketStream.from_socket(ours)
            async with stream:
                command = (sys.executable, "-I", "-m", self.module)
                process = await open_leader(command, connection=listening, stdout=theirs.fileno())
                theirs.close()
                try:
                    await stream.send(json.dumps(self.first).encode() + b"\n")
                    received = BufferedByteReceiveStream(stream)
                    while True:
                        await self._take(json.loads(await received.receive_until(b"\n", LINE_BYTES)), stream)
                finally:
                    await end_leader(process)

    async def _take(self, line: Mapping[str, object], stream: UNIXSocketStream) -> None:
        match line:
            case {"asked": int(number), "change": dict(given)}:
                answer = {"asked": number, "grant": self._allow(msgspec.convert(given, self.changes))}
                await stream.send(json.dumps(answer).encode() + b"\n")
            case {"grant": int(number), "status": int(status)}:
                self._ended(number, status)
            case {"dropped": {"target": str(target), "names": list(names)}}:
                self.log.info(
                    LogEvent.PARAMETERS_DROPPED,
                    engine=self.engine,
                    target=target[:_TARGET_CHARACTERS],
                    names=list(map(str, names)),
                )
            case {"failed": str(error)}:
                self.log.error(LogEvent.FILTER_CONNECTION_BROKEN, engine=self.engine, error=error[:_TARGET_CHARACTERS])
            case {"refused": dict(refusal)}:
                self.log.info(
                    LogEvent.REQUEST_REFUSED,
                    engine=self.engine,
                    method=str(refusal.get("method")),
                    target=str(refusal.get("target"))[:_TARGET_CHARACTERS],
                    status=refusal.get("status"),
                    sentence=str(refusal.get("sentence"))[:_TARGET_CHARACTERS],
                )

    def _allow(self, change: Change) -> int:
        """Use a grant; return its number, 0: there is none."""
        grant = self.grants.take(change)
        if grant is None:
            return 0
        self._count += 1
        self._used[self._count] = (grant, change)
        return self._count

    def _ended(self, number: int, status: int) -> None:
        if (used := self._used.pop(number, None)) is None:
            return
        grant, change = used
        if status == _NOT_SENT:
            self.grants.give_back(grant, change)
        self.log.info(
            LogEvent.CHANGE_PASSED_ON,
            engine=self.engine,
            tool_use_id=grant.call,
            change=str(change),
            id=change.id,
            status=status,
        )
