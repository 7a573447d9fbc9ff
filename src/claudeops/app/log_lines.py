"""The logs of sessions as the listener reads them: rows say where they are, threads read them. Part of the composition.

Threads are few, and each piece of work is abandoned when it takes too long: a disk that hangs costs no more than them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec

from claudeops.domain.sessions import Session, Status, log_elsewhere
from claudeops.engine.session_log.lines import SessionLogLines
from claudeops.engine.session_log.reader import open_log
from claudeops.errors import StoreError
from claudeops.harness import HARNESSES
from claudeops.store.reading.calls import CallVerdict
from claudeops.store.sessions import Records
from claudeops.tasks import Threads
from claudeops.web.ports import LinesPart, LogElsewhereError
from claudeops.wording.stream import ShownLine, shown

READ_SECONDS: Final = 20.0
"""For one reading; a packed log is read from its start."""

_PIECE: Final = 1024 * 1024  # bytes
_MOST_READINGS: Final = 8  # at once
_ROW_SECONDS: Final = 0.5  # for which a row of a running session is believed
_NO_VERDICTS: Final[Mapping[str, CallVerdict]] = {}

Verdicts = Callable[[int], Awaitable[Mapping[str, CallVerdict]]]


class SessionLogs(msgspec.Struct, frozen=True, kw_only=True):
    """`claudeops.web.ports.LogLines`."""

    records: Records
    verdicts: Verdicts  # on the calls of a session; raises `StoreError`
    node: str = ""  # this machine
    threads: Threads = msgspec.field(default_factory=partial(Threads, most=_MOST_READINGS))

    async def open(self, session_id: int) -> LogPlace | None:
        """Return the log of a session, unopened."""
        session = await self.records.session(session_id)
        return None if session is None else LogPlace(session, self)


class LogPlace:
    """`claudeops.web.ports.OpenLog`: one reader's place in a log."""

    def __init__(self, session: Session, logs: SessionLogs) -> None:
        self._session = session
        self._seen_at = anyio.current_time()
        self._logs = logs
        self._lines: SessionLogLines | None = None

    async def read(self, after: int, *, limit: int) -> LinesPart:
        """Return lines. The row comes before the look, so that the log of a session that has ended is complete."""
        await self._look_at_row()
        session = self._session
        has_ended = session.status is Status.ENDED
        if session.log_path is None:
            return LinesPart(lines=(), verdicts=_NO_VERDICTS, more=False, ended=has_ended)
        if self._lines is None:
            self._lines = SessionLogLines(Path(session.log_path))
        work = partial(_read, self._lines, session, after, limit, complete=has_ended)
        try:
            lines, more = await self._logs.threads.run(work, seconds=READ_SECONDS, what="reading a log")
        except FileNotFoundError:
            if where := log_elsewhere(session, self._logs.node):
                raise LogElsewhereError(errno.ENOENT, where) from None
            if has_ended:
                raise
            lines, more = (), False  # it is opened a moment after its row names it
        except BaseException:
            self._lines = None  # an abandoned thread may still use it
            raise
        return LinesPart(
            lines=lines, verdicts=await self._verdicts(lines), more=more, ended=has_ended and not lines and not more
        )

    async def digest(self) -> str:
        """Return the SHA-256 of the whole log."""
        path = Path(self._session.log_path or "")
        return await self._logs.threads.run(partial(_digest, path), seconds=READ_SECONDS, what="reading a log")

    def close(self) -> None:
        """Close what reading has left open."""
        if self._lines is not None:
            self._lines.close()

    async def _look_at_row(self) -> None:
        now = anyio.current_time()
        if self._session.status is Status.ENDED or now - self._seen_at < _ROW_SECONDS:
            return
        with contextlib.suppress(StoreError):  # it comes back; until then the row is as it was
            self._session = await self._logs.records.session(self._session.id) or self._session
            self._seen_at = now

    async def _verdicts(self, lines: tuple[ShownLine, ...]) -> Mapping[str, CallVerdict]:
        if not any(line.tool_use_id for line in lines):
            return _NO_VERDICTS
        with contextlib.suppress(StoreError):
            return await self._logs.verdicts(self._session.id)
        return _NO_VERDICTS


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open_log(path) as log:
        while content := log.read(_PIECE):
            digest.update(content)
    return digest.hexdigest()


def _read(
    log: SessionLogLines, session: Session, after: int, limit: int, *, complete: bool
) -> tuple[tuple[ShownLine, ...], bool]:
    reader = HARNESSES[session.harness].reader
    read = log.read(after, limit=limit, complete=complete)
    lines = (shown(line.content, line=line.number, at=line.at, reader=reader) for line in read.lines)
    return tuple(lines), read.more
