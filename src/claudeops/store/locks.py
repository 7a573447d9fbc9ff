"""One daemon per database and per state directory, held by locks that end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from sqlalchemy import text

from claudeops.errors import AlreadyRunningError, DatabaseUnavailableError, StoreError
from claudeops.store.connections import border, parse_url, reading_engine, shown, sqlite_file
from claudeops.store.network_files import refuse_network_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Connection
    from sqlalchemy.engine import URL

_DAEMON_KEY: Final = 0x636C6F64  # "clod"; below 2**32, so that pg_locks shows it whole as objid
_ATTEMPTS: Final = 10
_PAUSE_SECONDS: Final = 0.05  # between attempts: somebody may just be looking whether the lock is taken
_REMEDY: Final = "stop it first, or give this one its own CLAUDEOPS_DATABASE_URL and CLAUDEOPS_STATE_DIR"

_HOLDER: Final = text(
    "SELECT activity.application_name FROM pg_locks AS held"
    " LEFT JOIN pg_stat_activity AS activity ON activity.pid = held.pid"
    " WHERE held.locktype = 'advisory' AND held.granted AND held.classid = 0 AND held.objid = :key"
    " AND held.objsubid = 1"
    " AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@contextmanager
def claim_database(
    url: str, state_dir: Path, *, pause: Callable[[float], None] = time.sleep
) -> Iterator[Callable[[], None]]:
    """Be the only daemon on this database and in this state directory while the block runs.

    SQLite: the lock is ``<file>.lock`` beside the file itself, links resolved, so that two state directories
    over one file still meet. PostgreSQL: an advisory lock on a connection of its own. A lock that is taken
    is tried again for half a second, with a ``pause`` in seconds between.

    Yields a check, to be called now and then from any thread: it takes the lock of a connection that was dropped
    again, and raises `AlreadyRunningError` when another daemon was faster, `DatabaseUnavailableError` when the
    server does not answer. File locks end with the process only, so there it does nothing.

    Raises `AlreadyRunningError`, naming the lock and its holder, `DatabaseUnavailableError`, or
    `ConfigurationError` for a SQLite file on a network file system.
    """
    parsed = parse_url(url)
    file = sqlite_file(parsed)
    if file is not None:
        refuse_network_file(file)
    with ExitStack() as held:
        held.enter_context(_locked_file(state_dir / "daemon.lock", what=str(state_dir), pause=pause))
        if file is not None:
            held.enter_context(_locked_file(_lock_file(file), what=str(file), pause=pause))
            yield _nothing
        else:
            yield held.enter_context(_locked_server(parsed)).check


def is_claimed(url: str) -> bool:
    """Tell whether a daemon runs on this database, without being in its way. Blocks.

    Raises `DatabaseUnavailableError` when that cannot be told.
    """
    with claim_watch(url) as claimed:
        return claimed()


@contextmanager
def claim_watch(url: str) -> Iterator[Callable[[], bool]]:
    """Give `is_claimed` for who asks again and again: on PostgreSQL all its questions share one connection.

    What it gives blocks, and may be called from any thread, by one at a time.
    """
    parsed = parse_url(url)
    file = sqlite_file(parsed)
    if file is not None:
        yield partial(_file_is_locked, _lock_file(file))
        return
    engine = reading_engine(parsed, size=1)

    def is_held() -> bool:
        with border(parsed), engine.connect() as connection:
            return _holder(connection) is not None

    try:
        yield is_held
    finally:
        engine.dispose()


def _lock_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.lock")


@contextmanager
def _locked_file(path: Path, *, what: str, pause: Callable[[float], None]) -> Iterator[None]:
    """Hold a lock file; it is never removed, because another process may be opening it."""
    descriptor = _open(path, os.O_RDWR | os.O_CREAT)
    try:
        if not _lock(descriptor, pause):
            pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise AlreadyRunningError(
                f"another claudeops daemon (pid {pid}) already uses {what} and holds {path}: {_REMEDY}."
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, pause: Callable[[float], None]) -> bool:
    """Take the lock; try for half a second, because `is_claimed` holds it for a moment."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            pause(_PAUSE_SECONDS)
        if _flock(descriptor, fcntl.LOCK_EX):
            return True
    return False


def _file_is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    descriptor = _open(path, os.O_RDONLY)
    try:
        return not _flock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _flock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags, 0o600)
    except OSError as error:
        raise DatabaseUnavailableError(f"the lock file {path} cannot be opened: {error.strerror}.") from error


def _nothing() -> None:
    """Check nothing."""


class _ServerLock:
    """The advisory lock; it goes with its connection, and so with the process."""

    def __init__(self, url: URL) -> None:
        named = url.update_query_dict({"application_name": f"claudeops daemon, pid {os.getpid()}"})
        self._url = url
        self._engine = reading_engine(named, size=1)
        self._connection: Connection | None = None

    def take(self) -> None:
        """Connect and take the lock; raises `AlreadyRunningError` or `DatabaseUnavailableError`."""
        with border(self._url):
            self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            taken = self._connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _DAEMON_KEY})
            holder = None if taken else _holder(self._connection)
        if not taken:
            raise AlreadyRunningError(
                f"another claudeops daemon ({holder or 'unknown'}) already uses {shown(self._url)}"
                f" and holds its advisory lock: {_REMEDY}."
            )

    def check(self) -> None:
        """Take the lock again if its connection is gone."""
        if self._connection is not None:
            try:
                with border(self._url):
                    self._connection.scalar(text("SELECT 1"))
            except StoreError:
                self._let_go()
            else:
                return
        self.take()

    def close(self) -> None:
        """Let the lock go."""
        self._let_go()
        self._engine.dispose()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # closes it: pooled, it would keep the lock
            connection.close()


@contextmanager
def _locked_server(url: URL) -> Iterator[_ServerLock]:
    lock = _ServerLock(url)
    try:
        lock.take()
        yield lock
    finally:
        lock.close()


def _holder(connection: Connection) -> str | None:
    """Return the name of the connection that holds the advisory lock; ``None``: nobody does."""
    row = connection.execute(_HOLDER, {"key": _DAEMON_KEY}).first()
    return None if row is None else row.application_name or "unknown"
