"""Addresses of databases, the engines behind them, and the border at which errors become ours.

Imports neither tables nor what they hold: a command that reads one list needs no more than this to open the database.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Connection, Dialect, Engine, ExceptionContext, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry

from claudeops.errors import (
    ConfigurationError,
    DatabaseFullError,
    DatabaseUnavailableError,
    ErrorKind,
    MissingInputError,
    StoreError,
)
from claudeops.files import is_there

T = TypeVar("T")

BUSY_SECONDS: Final = 5.0  # how long a statement waits for somebody else's lock

_STATEMENT_SECONDS: Final = 15  # how long PostgreSQL may work on one statement

_STUCK_WRITER_SECONDS: Final = 3
"""How long a transaction that writes may stand still before PostgreSQL ends it, and with it the wait of all others for
their turn. Shorter than `BUSY_SECONDS`, so that a writer that stands still costs the others a wait and no failure, and
shorter than any lease, so that it ends none of theirs."""

_IDLE_SECONDS: Final = 60
"""The same for transactions that hold up no writer, or work on rows by themselves: readers, migrations."""

_LATE_SECONDS: Final = 1.0
"""The driver gives an attempt to connect up within a tenth of this after its time. Later than this a process does that
alone which stood still itself, by SIGSTOP or with its machine: it did not look whether the server had answered."""

_ISOLATION: Final = "READ COMMITTED"
"""Of transactions that write, whatever the server's default is. They wait for their turn in their first statement: at
any other level what they read would be older than that wait, and two would spend the same money."""

MOST_PAGES: Final = 4000
"""How long SQLite's log may become before a commit writes it back: one of a migration, or where `Checkpoints` cannot
follow. SQLite's own figure is 1000."""

_WRITER_KEY: Final = 0x636C6F70  # "clop": the advisory lock behind which PostgreSQL has one writer at a time

_SQLITE_WRITER: Final = {"journal_mode": "WAL", "synchronous": "FULL", "wal_autocheckpoint": str(MOST_PAGES)}

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

POSTGRESQL_FULL: Final = "53100"
"""SQLSTATE of a statement for which the server's disk has no room."""

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


def driver_options(url: URL) -> dict[str, Any]:
    """Return what PostgreSQL's driver connects with, for a library that opens connections of its own."""
    _, named = url.get_dialect()().create_connect_args(url)
    return {**_POSTGRESQL_OPTIONS, **named}


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
    engine = _engine(url, size=1, busy_seconds=busy_seconds, idle_seconds=_STUCK_WRITER_SECONDS)
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _sqlite_session(**_SQLITE_WRITER))
        event.listen(engine, "begin", _begin_immediate)
    else:
        event.listen(engine, "begin", _wait_for_turn)
    return engine


def leasing_engine(url: URL, *, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """Return an engine for PostgreSQL whose transactions write beside all others: they wait for rows, for no turn."""
    return _engine(url, size=1, busy_seconds=busy_seconds, idle_seconds=_STUCK_WRITER_SECONDS)


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
        event.listen(engine, "connect", _sqlite_session(**_SQLITE_WRITER, foreign_keys="OFF"))
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
        if getattr(error.orig, "sqlstate", None) == POSTGRESQL_FULL:
            raise DatabaseFullError(
                f"the disk of the server of the database {shown(url)} is full, make room there: the server "
                f"{_driver_message(error, url)}.",
                target=shown(url),
            ) from error.orig
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


def _engine(
    url: URL,
    *,
    size: int,
    busy_seconds: float,
    statement_seconds: float = _STATEMENT_SECONDS,
    idle_seconds: float = _IDLE_SECONDS,
) -> Engine:
    sqlite = url.get_backend_name() == "sqlite"
    options = {key: value for key, value in _POSTGRESQL_OPTIONS.items() if key not in url.query}
    engine = create_engine(
        url,
        isolation_level=None if sqlite else _ISOLATION,
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
        event.listen(engine, "do_connect", _connect)
        event.listen(engine, "connect", _postgresql_session(busy_seconds, statement_seconds, idle_seconds))
    return engine


def connected(attempt: Callable[[], T], *, seconds: float, clock: Callable[[], float] = time.monotonic) -> T:
    """Return what an attempt to connect returns, which may take so long; makes it once more if it was slept through."""
    began = clock()
    try:
        return attempt()
    except Exception as error:
        timed_out = type(error).__name__ == "ConnectionTimeout"  # psycopg's, which is not loaded for SQLite
        if not timed_out or clock() - began < seconds + _LATE_SECONDS:
            raise
    return attempt()


def _connect(
    dialect: Dialect, _: ConnectionPoolEntry, arguments: list[Any], options: dict[str, Any]
) -> DBAPIConnection:
    hosts = str(options.get("host", "")).count(",") + 1  # each has its time
    attempt = partial(dialect.connect, *arguments, **options)
    return connected(attempt, seconds=hosts * float(options["connect_timeout"]))


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
    busy_seconds: float, statement_seconds: float, idle_seconds: float
) -> Callable[[DBAPIConnection, ConnectionPoolEntry], None]:
    settings = {
        "lock_timeout": f"{int(busy_seconds * 1000)}ms",
        "statement_timeout": f"{int(statement_seconds * 1000)}ms",
        "idle_in_transaction_session_timeout": f"{int(idle_seconds * 1000)}ms",
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
