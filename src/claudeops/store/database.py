"""An open database: one thread that writes, connections that read, and the border at which errors become ours.

Also the addresses and engines behind it, and the statements that every session needs. Those are built once: building a
statement and looking it up among the compiled ones takes three times as long as running it on SQLite. Their values are
given when they run: the columns of an UPDATE or INSERT by name, beside the parameters named here.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import bindparam, create_engine, event, insert, update
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry

from claudeops.domain.live import EventRaised
from claudeops.errors import (
    ConfigurationError,
    DatabaseUnavailableError,
    ErrorKind,
    MissingInputError,
    StaleAttemptError,
    StoreError,
)
from claudeops.files import is_there
from claudeops.store.events import collecting_events, tell_listener
from claudeops.store.tables import cooldown_actions, sessions, tool_calls
from claudeops.store.writer import Writer

T = TypeVar("T")

BUSY_SECONDS: Final = 5.0  # how long a statement waits for somebody else's lock
WAIT_SECONDS: Final = 30.0  # how long a caller waits for its turn and its answer together

ADD_SESSION: Final = insert(sessions)
ADD_CALL: Final = insert(tool_calls)
ADD_ACTION: Final = insert(cooldown_actions)

CHANGE_SESSION: Final = update(sessions).where(sessions.c.id == bindparam("session"))
"""Needs ``session``, the id."""

CHANGE_SESSION_AS_SEEN: Final = CHANGE_SESSION.where(
    sessions.c.status == bindparam("seen_status"), sessions.c.attempt == bindparam("seen_attempt")
)
"""Needs ``session``, ``seen_status`` and ``seen_attempt``: changes nothing when somebody was faster."""

_READERS: Final = 4  # reads at the same time; they never wait behind the writer
_STATEMENT_SECONDS: Final = 15  # how long PostgreSQL may work on one statement
_WRITER_KEY: Final = 0x636C6F70  # "clop": the advisory lock behind which PostgreSQL has one writer at a time

# libpq notices within about half a minute that a server is gone, not after the kernel's two hours.
_POSTGRESQL_OPTIONS: Final = {
    "connect_timeout": 5,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds
}

# SQLSTATE classes: connection, rollback (deadlock), resources (disk full), object not in the required state (lock
# timeout), operator intervention (shutdown, statement timeout), system; and a server that has become read-only.
_POSTGRESQL_UNAVAILABLE: Final = ("08", "40", "53", "55", "57", "58", "25006")

_SQLITE_UNAVAILABLE: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN")
_SQLITE_UNAVAILABLE_TOO: Final = ("SQLITE_READONLY", "SQLITE_PROTOCOL", "SQLITE_NOMEM", "SQLITE_PERM")

_SQLITE_UNSOUND: Final = ("SQLITE_NOTADB", "SQLITE_CORRUPT")

_SQLITE_REOPEN: Final = ("SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN")
"""Errors that may be over once the file is opened again: a file that could not be written when it was opened stays so
while it is open, and so does one on a disk that was away."""

_ANOTHER: Final = "name another by CLAUDEOPS_STATE_DIR or CLAUDEOPS_DATABASE_URL"
_ELSEWHERE: Final = (
    "set CLAUDEOPS_STATE_DIR (or CLAUDEOPS_DATABASE_URL) as the daemon has it, or call this where the daemon was"
    " started; a new installation begins with `claudeops run`"
)


class Database:
    """An open database. Writes go through one thread and one connection; reads have connections of their own.

    Jobs and queries get a connection and run in a thread. Every method but `close` bounds its own wait, and raises
    `DatabaseUnavailableError` (locked, full, unreachable: the same call may work later) or `StoreError`.
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
    ) -> None:
        self.url = url
        self.wait_seconds = wait_seconds
        self.now = now
        self._raised = raised
        self._wrote = wrote
        self._writing = writing_engine(url, busy_seconds=busy_seconds)
        self._reading = reading_engine(url, size=_READERS, busy_seconds=busy_seconds)
        self._readers = anyio.CapacityLimiter(_READERS)
        self._writer = Writer(wait_seconds=wait_seconds)
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
        undo: Callable[[Connection, T], None] | None = None,
    ) -> T:
        """Run a job as one transaction; urgent jobs overtake those that wait.

        Cancelling the caller never cuts a transaction: it is committed whole or not at all. ``undo`` is another
        transaction, which gets the job's result; it runs when the job was done after its caller had stopped waiting.
        """
        undone = None if undo is None else partial(self._undone, undo)
        try:
            return await self._writer.run(partial(self._transaction, job), urgent=urgent, undo=undone)
        except StoreError as error:
            if not isinstance(error, StaleAttemptError):  # that is the caller's, whom the database has answered
                self._wrote(None)
            raise

    async def write_outside(self, job: Callable[[Engine], T]) -> T:
        """Run a job in the writer's thread and outside of any transaction, which would block it."""

        def within_border() -> T:
            with border(self.url):
                return job(self._writing)

        return await self._writer.run(within_border)

    def is_awaited(self) -> bool:
        """Tell whether something urgent waits for the writer; for jobs that can be done in parts."""
        return self._writer.is_awaited()

    async def close(self) -> None:
        """Write what was submitted, then close the database; bounded, and safe to call twice."""
        await self._writer.close()
        self._closed = True  # before the connections are: a read that ends later closes its own
        with anyio.CancelScope(shield=True):
            # In a thread: SQLite's last connection writes its log back into the file.
            await anyio.to_thread.run_sync(self._writing.dispose)
            await anyio.to_thread.run_sync(self._reading.dispose)

    def _undone(self, undo: Callable[[Connection, T], None], result: T) -> None:
        self._transaction(lambda connection: undo(connection, result))

    def _transaction(self, job: Callable[[Connection], T]) -> T:
        began = time.perf_counter()
        with border(self.url), self._writing.begin() as connection, collecting_events(connection) as collected:
            result = job(connection)
        self._wrote(time.perf_counter() - began)
        for event_raised in collected:
            tell_listener(event_raised, self._raised)
        return result


def parse_url(url: str) -> URL:
    """Return a checked database address; for PostgreSQL always with psycopg 3.

    Raises `ConfigurationError` for anything but a SQLite file or a PostgreSQL database.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        # The text is not repeated: it could not be parsed, so a password in it could not be hidden.
        raise ConfigurationError(
            "CLAUDEOPS_DATABASE_URL is no database address; write sqlite:////path/to/file or postgresql://host/name.",
            target="CLAUDEOPS_DATABASE_URL",
        ) from None
    backend = parsed.drivername.partition("+")[0]
    if backend in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise ConfigurationError(
            f"CLAUDEOPS_DATABASE_URL names {backend}; claudeops keeps its data in sqlite or postgresql only.",
            target="CLAUDEOPS_DATABASE_URL",
        )
    if not parsed.database or parsed.database == ":memory:" or parsed.database.startswith("file:"):
        raise ConfigurationError(
            "CLAUDEOPS_DATABASE_URL names no file; write sqlite:////path/to/file.", target="CLAUDEOPS_DATABASE_URL"
        )
    return parsed.set(drivername="sqlite+pysqlite")


def sqlite_file(url: URL) -> Path | None:
    """Return the file behind a SQLite address, links resolved; ``None`` for PostgreSQL."""
    return Path(str(url.database)).resolve() if url.get_backend_name() == "sqlite" else None


def shown(url: URL) -> str:
    """Return the database's name for a message, without its password."""
    return str(sqlite_file(url) or url.set(drivername="postgresql", query={}).render_as_string(hide_password=True))


def missing(url: URL) -> MissingInputError:
    """Return the error for a database that is missing or empty.

    Usually the installation exists, and the command looks for it in the wrong place.
    """
    file = sqlite_file(url)
    if file is not None and not is_there(file):
        return MissingInputError(
            f"there is no database {file}: {_ELSEWHERE}.", operation="db.connect", target=shown(url)
        )
    return MissingInputError(
        f"the database {shown(url)} is empty: {_ELSEWHERE}.", operation="db.connect", target=shown(url)
    )


def writing_engine(url: URL, *, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """Return an engine with one connection, whose transactions take the write lock at once."""
    engine = _engine(url, size=1, busy_seconds=busy_seconds)
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _sqlite_session(journal_mode="WAL", synchronous="FULL"))
        event.listen(engine, "begin", _begin_immediate)
    else:
        event.listen(engine, "begin", _wait_for_turn)
    return engine


def reading_engine(url: URL, *, size: int, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """Return an engine whose connections only read, each transaction from one snapshot.

    The file may turn out not to be ours, so nothing in it is changed, not even its journal mode.
    """
    engine = _engine(url, size=size, busy_seconds=busy_seconds)
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _sqlite_session(query_only="ON"))
        event.listen(engine, "begin", _begin_deferred)
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def migrating_engine(url: URL, *, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """Return an engine for migrations: no statement limit, and SQLite lets tables be rebuilt.

    SQLite enforces no foreign keys here: a batch migration drops and recreates tables, which would empty those that
    refer to them. The migration checks the keys before it commits.
    """
    engine = _engine(url, size=1, busy_seconds=busy_seconds, statement_seconds=0)
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _sqlite_session(journal_mode="WAL", synchronous="FULL", foreign_keys="OFF"))
        event.listen(engine, "begin", _begin_immediate)
    else:
        event.listen(engine, "begin", _wait_for_turn)
    return engine


@contextmanager
def border(url: URL) -> Iterator[None]:
    """Turn the database's errors into ours: one sentence each, without SQL, values or password.

    Raises `DatabaseUnavailableError` where the same call may work later, else `StoreError`.
    """
    try:
        yield
    except PoolTimeoutError as error:
        raise DatabaseUnavailableError(
            f"the database {shown(url)} has no free connection.", target=shown(url)
        ) from error
    except DBAPIError as error:
        if is_unsound(error.orig, url):
            raise StoreError(
                f"the database {shown(url)} cannot be read ({error.orig}): put a backup in its place, or {_ANOTHER}.",
                kind=ErrorKind.FILESYSTEM,
                target=shown(url),
            ) from error.orig
        sentence = f"the database {shown(url)} {_driver_message(error, url)}"
        if _may_pass(error):
            raise DatabaseUnavailableError(
                f"{sentence}; the same call may work later.", target=shown(url)
            ) from error.orig
        raise StoreError(f"{sentence}.", target=shown(url)) from error.orig
    except SQLAlchemyError as error:
        raise StoreError(
            f"the database {shown(url)} was asked wrongly: {type(error).__name__}.", target=shown(url)
        ) from error


def is_unsound(error: BaseException | None, url: URL) -> bool:
    """Tell whether an error means that the file is no SQLite database, or a damaged one: no later call will work."""
    name: str = getattr(error, "sqlite_errorname", "")  # of sqlite3 alone
    if name == "SQLITE_CANTOPEN":
        return os.path.isdir(str(url.database))  # noqa: PTH112 - `Path` raises where it may not look
    return name.startswith(_SQLITE_UNSOUND)


def _driver_message(error: DBAPIError, url: URL) -> str:
    """Return the first line of the driver's message; PostgreSQL's further lines carry values."""
    line = (str(error.orig).strip().splitlines() or [type(error.orig).__name__])[0]
    return f"says: {line.replace(str(url.password), '***') if url.password else line}".rstrip(".")


def _may_pass(error: DBAPIError) -> bool:
    """Tell whether the error may pass: the database is away, locked or full, rather than asked something wrong."""
    if error.connection_invalidated:
        return True
    if isinstance(error.orig, sqlite3.Error):
        name: str = getattr(error.orig, "sqlite_errorname", "")  # absent when Python itself refused
        return name.startswith(_SQLITE_UNAVAILABLE + _SQLITE_UNAVAILABLE_TOO)
    state: str | None = getattr(error.orig, "sqlstate", None)
    if state is None:  # no server answered; the other kinds of driver errors are programming errors
        return type(error).__name__ in {"OperationalError", "InterfaceError"}
    return state.startswith(_POSTGRESQL_UNAVAILABLE)


def _engine(url: URL, *, size: int, busy_seconds: float, statement_seconds: float = _STATEMENT_SECONDS) -> Engine:
    sqlite = url.get_backend_name() == "sqlite"
    options = {key: value for key, value in _POSTGRESQL_OPTIONS.items() if key not in url.query}
    engine = create_engine(
        url,
        pool_size=size,
        max_overflow=0,
        pool_timeout=busy_seconds,
        pool_pre_ping=not sqlite,
        hide_parameters=True,
        connect_args={"timeout": busy_seconds} if sqlite else options,
    )
    if sqlite:
        event.listen(engine, "handle_error", _open_anew)
    else:
        event.listen(engine, "connect", _postgresql_session(busy_seconds, statement_seconds))
    return engine


def _open_anew(context: ExceptionContext) -> None:
    """Make the next call open the file again."""
    name: str = getattr(context.original_exception, "sqlite_errorname", "")
    if name.startswith(_SQLITE_REOPEN):
        context.is_disconnect = True
        if context.execution_context is not None:
            context.execution_context.cursor.close()  # else a kept error keeps the file open


def _sqlite_session(**pragmas: str) -> Callable[[DBAPIConnection, ConnectionPoolEntry], None]:
    def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        # The driver must not begin or commit by itself: it would take the lock only at the first write.
        connection.isolation_level = None
        cursor = connection.cursor()
        for name, value in {"foreign_keys": "ON", **pragmas}.items():
            cursor.execute(f"PRAGMA {name} = {value}")
        cursor.close()

    return prepare


def _postgresql_session(
    busy_seconds: float, statement_seconds: float
) -> Callable[[DBAPIConnection, ConnectionPoolEntry], None]:
    settings = {
        "lock_timeout": f"{int(busy_seconds * 1000)}ms",
        "statement_timeout": f"{int(statement_seconds * 1000)}ms",
        "idle_in_transaction_session_timeout": "60s",
        "timezone": "UTC",
    }

    def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        for name, value in settings.items():
            cursor.execute(f"SET {name} = '{value}'")
        cursor.close()
        connection.commit()

    return prepare


def _begin_immediate(connection: Connection) -> None:
    # Takes the write lock at once. A lock taken later, after a read, could fail without waiting.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin_deferred(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _wait_for_turn(connection: Connection) -> None:
    # One writer at a time, as on SQLite: the cooldown ledger, hash chains and fires are read before they are written,
    # and two nodes must not both read the older state. The lock is released at the end of the transaction.
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITER_KEY})")
