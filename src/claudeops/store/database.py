"""An open database: one thread that writes, connections that read, and what was raised in a transaction.

Knows no tables: a command that changes one row opens it without them.
"""

from __future__ import annotations

import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import msgspec
from sqlalchemy import text
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from claudeops.domain.live import EventRaised
from claudeops.domain.sessions import Trigger
from claudeops.errors import DatabaseUnavailableError, StaleAttemptError, StoreError
from claudeops.logs import LogEvent, get_logger
from claudeops.store.connection.engines import (
    BUSY_SECONDS,
    border,
    leasing_engine,
    parse_url,
    reading_engine,
    shown,
    sqlite_file,
    writing_engine,
)
from claudeops.store.connection.writer import Checkpoints, Writer
from claudeops.store.migrate import require_head

T = TypeVar("T")

WAIT_SECONDS: Final = 30.0  # how long a caller waits for its turn and its answer together

_READERS: Final = 4  # reads at the same time; they never wait behind the writer

_RAISED: Final = "claudeops.raised"
"""The key under which a connection keeps the events of its transaction, for listeners after the commit."""

_QUEUED: Final = "claudeops.queued"
"""The same for the sessions that its transaction has queued, for who announces them before the commit."""

WAKE_SOCKET: Final = "wake.sock"
"""The name of the daemon's socket in the state directory."""

_SNAPSHOT: Final = text("SELECT CAST(txid_current_snapshot() AS text)")

wall_clock: Final = partial(datetime.now, UTC)


def no_listener(_: EventRaised) -> None:
    """Do nothing with an event that was raised."""


def unnoticed() -> None:
    """Do nothing after a change."""


def uncounted(_seconds: float | None) -> None:
    """Do nothing with the time that a transaction took."""


class QueuedSession(msgspec.Struct, frozen=True, kw_only=True):
    """What an announcement says of a session that was queued."""

    site: str | None  # whose nodes reach what it is about; None: any node does
    trigger: Trigger
    not_before: datetime | None


Announce: TypeAlias = Callable[[Any, Sequence[QueuedSession]], None]
"""Announces sessions to other nodes on the driver's connection, in the transaction that queues them. PostgreSQL's
alone. Whatever it raises undoes what it has written itself, and nothing else: the row is the truth."""

Fence: TypeAlias = Callable[[Connection], None]
"""Called in a transaction that writes; raises `StaleTermError` where the work is no longer this daemon's."""


def unfenced(_: Connection) -> None:
    """Let everything be written: whoever takes no leases has none to lose."""


def waking(state_dir: Path) -> Callable[[], None]:
    """Return what sends the daemon of a state directory a wake-up, to be passed as ``changed``.

    It neither waits nor fails: the daemon looks for what was written by itself, only later.
    """
    address = str(state_dir / WAKE_SOCKET)
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC

    def wake() -> None:
        # No daemon, another user's, a full queue, a path that is too long for an address: each is an OSError.
        with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as outlet:
            outlet.sendto(b"\n", address)

    return wake


class Database:
    """An open database. Writes go through one thread and one connection; reads have connections of their own.

    Jobs and queries get a connection and run in a thread. Every method but `close` bounds its own wait, except that
    `next_version` waits for news, and raises `DatabaseUnavailableError` (locked, full, unreachable: the same call may
    work later) or `StoreError`.
    """

    def __init__(
        self,
        url: URL,
        *,
        busy_seconds: float,
        wait_seconds: float,
        now: Callable[[], datetime],
        raised: Callable[[EventRaised], None],
        wrote: Callable[[float | None], None],
        changed: Callable[[], None],
        announce: Announce | None,
    ) -> None:
        self.url = url
        self.wait_seconds = wait_seconds
        self.now = now
        self._raised = raised
        self._wrote = wrote
        self._changed = changed
        self._announce = announce
        self._writing = writing_engine(url, busy_seconds=busy_seconds)
        self._reading = reading_engine(url, size=_READERS, busy_seconds=busy_seconds)
        self._readers = anyio.CapacityLimiter(_READERS)
        self._leasing: Engine | None = None
        self._busy_seconds = busy_seconds
        self._kept: tuple[Connection, Any] | None = None  # the writer's thread alone uses it
        self._keeps = sqlite_file(url) is not None  # the pool of PostgreSQL makes sure that its connection lives
        self._checkpoints = Checkpoints(sqlite_file(url))
        self._writer = Writer(wait_seconds=wait_seconds, at_last=self._release)
        self._closed = False

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query on one snapshot; one that takes too long is abandoned in its thread."""

        def snapshot() -> T:
            pool = self._reading.pool
            try:
                with border(self.url), self._reading.connect() as connection:
                    return query(connection)
            finally:
                if self._closed:  # it was abandoned, and `close` did not wait for it
                    for left in (pool, self._reading.pool):
                        left.dispose()

        with anyio.move_on_after(self.wait_seconds):
            return await anyio.to_thread.run_sync(snapshot, abandon_on_cancel=True, limiter=self._readers)
        raise DatabaseUnavailableError(
            f"the database gave no answer within {self.wait_seconds:g} s.", target=shown(self.url)
        )

    async def write(
        self,
        job: Callable[[Connection], T],
        *,
        urgent: bool = False,
        is_news: bool = True,
        undo: Callable[[Connection, T], None] | None = None,
    ) -> T:
        """Run a job as one transaction; urgent jobs overtake those that wait. What is no news wakes nothing.

        Cancelling the caller never cuts a transaction: it is committed whole or not at all. ``undo`` is another
        transaction, which gets the job's result; it runs when the job was done after its caller had stopped waiting.
        """
        undone = None if undo is None else partial(self._undone, undo)
        try:
            return await self._writer.run(partial(self._transaction, job, is_news=is_news), urgent=urgent, undo=undone)
        except StoreError as error:
            if not isinstance(error, StaleAttemptError):  # that is the caller's, whom the database has answered
                self._wrote(None)
            raise

    async def write_outside(self, job: Callable[[Engine], T]) -> T:
        """Run a job in the writer's thread and outside of any transaction, which would block it."""

        def within_border() -> T:
            self._release()  # so that the engine opens no second one that writes
            with border(self.url):
                return job(self._writing)

        return await self._writer.run(within_border)

    async def write_beside(self, job: Callable[[Connection], T]) -> T:
        """Run a job as one transaction that waits for no other writer's turn, and is no news.

        For single rows alone, which it locks in the order of their keys. On SQLite, which has one writer at a time, it
        waits as `write` does. One that takes too long is abandoned in its thread.
        """
        if self._keeps:
            return await self.write(job, is_news=False)
        if self._leasing is None:
            self._leasing = leasing_engine(self.url, busy_seconds=self._busy_seconds)
        engine = self._leasing

        def transaction() -> T:
            try:
                with border(self.url), engine.begin() as connection:
                    return job(connection)
            finally:
                if self._closed:  # it was abandoned, and `close` did not wait for it
                    engine.dispose()

        with anyio.move_on_after(self.wait_seconds):
            return await anyio.to_thread.run_sync(transaction, abandon_on_cancel=True)
        raise DatabaseUnavailableError(
            f"the database gave no answer within {self.wait_seconds:g} s.", target=shown(self.url)
        )

    async def checkpoint(self) -> bool:
        """Write SQLite's log back into its file, while others write; ``False`` if a reader was in the way."""

        def write_back() -> bool:
            try:
                return self._checkpoints.run()
            except sqlite3.Error as error:
                raise self._unreadable(error) from error

        with anyio.move_on_after(self.wait_seconds):
            return await anyio.to_thread.run_sync(write_back, abandon_on_cancel=True)
        return False

    def is_awaited(self) -> bool:
        """Tell whether something urgent waits for the writer; for jobs that can be done in parts."""
        return self._writer.is_awaited()

    async def version(self) -> object:
        """Return a value that changes when another process writes; on PostgreSQL also when anybody does.

        It is cheap: no table is read, and no lock is taken.
        """
        if not self._keeps:
            return await self.read(lambda connection: connection.scalar(_SNAPSHOT))
        return await self._writer.run(self._data_version)

    async def next_version(self, is_news: Callable[[object], bool], seconds: float) -> object:
        """Look at the version at every tick of so many seconds, and return the first one that is news; unbounded.

        What is news is decided on any thread. On SQLite a look that finds none wakes the writer's thread alone.
        """
        if self._keeps:
            return await self._writer.watch(self._data_version, is_news, seconds=seconds)
        from claudeops.tasks import until_tick  # noqa: PLC0415 - a command looks at nothing again

        while True:
            await anyio.sleep(until_tick(seconds, anyio.current_time()))
            if is_news(found := await self.version()):
                return found

    async def close(self) -> None:
        """Write what was submitted, then close the database; bounded, and safe to call twice."""
        await self._writer.close()
        self._closed = True  # before the connections are: a read that ends later closes its own
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._checkpoints.wait, self.wait_seconds)
            # In a thread: SQLite's last connection writes its log back into the file.
            await anyio.to_thread.run_sync(self._writing.dispose)
            await anyio.to_thread.run_sync(self._reading.dispose)
            if self._leasing is not None:
                await anyio.to_thread.run_sync(self._leasing.dispose)

    def _undone(self, undo: Callable[[Connection, T], None], result: T) -> None:
        self._transaction(lambda connection: undo(connection, result))

    def _transaction(self, job: Callable[[Connection], T], *, is_news: bool = True) -> T:
        began = time.perf_counter()
        with border(self.url), self._begun() as connection, _collecting(connection) as (collected, queued):
            result = job(connection)
            if queued and self._announce is not None:
                _announce_in(connection, self._announce, queued)
        self._wrote(time.perf_counter() - began)
        if is_news:
            self._changed()
        for event_raised in collected:
            _tell(event_raised, self._raised)
        self._checkpoints.look()
        return result

    @contextmanager
    def _begun(self) -> Iterator[Connection]:
        """Yield a connection in a transaction; for SQLite always the same one, until something fails."""
        if not self._keeps:
            with self._writing.begin() as connection:
                yield connection
            return
        connection, _ = self._connected()
        try:
            with connection.begin():
                yield connection
        except BaseException:
            self._release()
            raise

    def _connected(self) -> tuple[Connection, Any]:
        """Return the connection that is kept, and its driver's."""
        if self._kept is None:
            opened = self._writing.connect()
            self._kept = opened, opened.connection.driver_connection
            opened.detach()  # the way out of the pool and back takes longer than a statement
        return self._kept

    def _data_version(self) -> object:
        """Return what SQLite counts: commits by others than this connection, which is the only one that writes here."""
        with border(self.url):
            _, file = self._connected()
        try:
            return file.execute("PRAGMA data_version").fetchone()
        except file.Error as error:  # outside of a transaction, which would take the lock
            self._release()
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> DatabaseUnavailableError:
        target = shown(self.url)
        return DatabaseUnavailableError(f"the database {target} cannot be read ({error}).", target=target)

    def _release(self) -> None:
        if self._kept is not None:
            (connection, file), self._kept = self._kept, None
            connection.close()
            file.close()  # after a failure for which it must be opened anew, the line above has not closed it


def open_database(
    url: str,
    *,
    busy_seconds: float = BUSY_SECONDS,
    wait_seconds: float = WAIT_SECONDS,
    now: Callable[[], datetime] = wall_clock,
    raised: Callable[[EventRaised], None] = no_listener,
    wrote: Callable[[float | None], None] = uncounted,
    changed: Callable[[], None] = unnoticed,
    announce: Announce | None = None,
    is_checked: bool = False,
) -> Database:
    """Open a database that has been migrated; its parameters are those of `claudeops.store.store.open_store`.

    Raises `DatabaseUnavailableError`, `NewerDatabaseError`, or `ConfigurationError` where the address is wrong or the
    database was not migrated.
    """
    parsed = parse_url(url)
    if not is_checked:
        require_head(parsed, busy_seconds=busy_seconds)
    return Database(
        parsed,
        busy_seconds=busy_seconds,
        wait_seconds=wait_seconds,
        now=now,
        raised=raised,
        wrote=wrote,
        changed=changed,
        announce=announce,
    )


@contextmanager
def _collecting(connection: Connection) -> Iterator[tuple[list[EventRaised], list[QueuedSession]]]:
    """Yield the list of the events that the block raises on ``connection``, and that of the sessions it queues."""
    collected: list[EventRaised] = []
    queued: list[QueuedSession] = []
    connection.info[_RAISED], connection.info[_QUEUED] = collected, queued
    try:
        yield collected, queued
    finally:
        if not connection.invalidated:  # `info` of a lost connection is gone: to ask for it raises
            del connection.info[_RAISED], connection.info[_QUEUED]


def _announce_in(connection: Connection, announce: Announce, queued: Sequence[QueuedSession]) -> None:
    """Announce what a transaction has queued; what comes of that leaves the transaction as it was."""
    try:
        with connection.begin_nested():
            announce(connection.connection.driver_connection, queued)
    except DBAPIError:  # of the savepoint: the transaction is over
        raise
    except Exception as error:  # noqa: BLE001 - the sessions are queued whatever it is, and are found by looking
        cause = error.__cause__ or error
        why = (str(cause).strip().splitlines() or [""])[0]
        get_logger().warning(LogEvent.ANNOUNCEMENT_FAILED, count=len(queued), error=f"{type(cause).__name__}: {why}")


def _tell(event: EventRaised, listener: Callable[[EventRaised], None]) -> None:
    """Tell a listener of a committed event; if the listener fails, the commit still stands."""
    try:
        listener(event)
    except Exception as error:  # noqa: BLE001 - see above
        get_logger().error(LogEvent.LISTENER_FAILED, error=f"{type(error).__name__}: {error}")


def note_raised(connection: Connection, event: EventRaised) -> None:
    """Note an event that the transaction of ``connection`` raises, for listeners after the commit."""
    collected: list[EventRaised] | None = connection.info.get(_RAISED)
    if collected is not None:
        collected.append(event)


def note_queued(connection: Connection, session: QueuedSession) -> None:
    """Note a session that the transaction of ``connection`` queues, for who announces it."""
    queued: list[QueuedSession] | None = connection.info.get(_QUEUED)
    if queued is not None:
        queued.append(session)
