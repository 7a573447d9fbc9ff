"""Locks: one daemon per state directory and per database, or several that share it, for as long as a process lives.

On PostgreSQL daemons may share the lock, so one that wants the database for itself and those that share it exclude each
other. Each kind of a refusal says which of the two was in the way.

Also what must be known of a database before that: whether its file lies on a network file system, where SQLite's locks
and shared memory do not hold, and whether it can be read and written, which `check_database` finds out without leaving
a trace.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import Connection, TextClause, false, text, update
from sqlalchemy.engine import URL

from claudeops.errors import (
    AlreadyRunningError,
    ConfigurationError,
    DatabaseUnavailableError,
    ErrorKind,
    ForegroundRunningError,
    StoreError,
)
from claudeops.files import is_directory, is_there
from claudeops.store.connection.engines import border, parse_url, reading_engine, shown, sqlite_file, writing_engine
from claudeops.store.migrate import current_revision, refuse_newer
from claudeops.store.tables import HEAD
from claudeops.store.tables.daemon import instances
from claudeops.structs import replace

PATIENCE_SECONDS: Final = 3.0
"""How long `check_database` waits for somebody else's lock."""

MOUNTS: Final = Path("/proc/self/mountinfo")

_MOUNT_POINT: Final = 4  # index of the field in a line of ``mountinfo``
_OCTAL: Final = re.compile(r"\\([0-7]{3})")

_NETWORK: Final = re.compile(
    r"nfs\d*|cifs|smb\d*|smbfs|afs|ncpfs|coda|ceph|lustre|beegfs|glusterfs|gfs2?|ocfs2|davfs"
    r"|fuse\.(sshfs|ceph|glusterfs|davfs2?|s3fs|rclone|gcsfuse|goofys|smbnetfs|curlftpfs|juicefs)"
)
"""File system types as ``mountinfo`` names them. Not ``9p``: some sandboxes have it as root, and lock by themselves."""

_DAEMON_KEY: Final = 0x636C6F64  # "clod"; below 2**32, so that pg_locks shows it whole as objid

_HOLDER: Final = text(
    "SELECT activity.application_name, held.mode = 'ShareLock' AS shared FROM pg_locks AS held"
    " LEFT JOIN pg_stat_activity AS activity ON activity.pid = held.pid"
    " WHERE held.locktype = 'advisory' AND held.granted AND held.classid = 0 AND held.objid = :key"
    " AND held.objsubid = 1"
    " AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY held.pid"
)
_ATTEMPTS: Final = 10
_PAUSE_SECONDS: Final = 0.05  # between attempts: `is_claimed` takes the lock for a moment
_REMEDY: Final = "stop it first, or give this one its own CLAUDEOPS_DATABASE_URL and CLAUDEOPS_STATE_DIR"
_SHARE: Final = "CLAUDEOPS_DISPATCHER=procrastinate"


@contextmanager
def claim_database(
    url: str,
    state_dir: Path,
    *,
    shared: bool = False,
    in_foreground: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Callable[[], None]]:
    """Be the only daemon on this database and in this state directory while the block runs.

    ``shared``: together with others that share it, where it is PostgreSQL's. ``in_foreground``: not a daemon, but a
    command that runs one chain and ends with it.

    SQLite: the lock is ``<file>.lock`` beside the file itself, links resolved, so that two state directories over one
    file still meet. PostgreSQL: an advisory lock on a connection of its own. A taken file lock is tried again for half
    a second, with a ``pause`` in seconds in between.

    Yields a check, to be called now and then from any thread. It takes the lock again when its connection was dropped;
    it raises `AlreadyRunningError` when another daemon was faster, one that does not share it, and
    `DatabaseUnavailableError` when the server does not answer. A file lock ends only with the process, so for SQLite
    the check does nothing.

    Raises `AlreadyRunningError`, naming the lock and its holder (`ForegroundRunningError` where that is no daemon),
    `DatabaseUnavailableError`, or `ConfigurationError` for a SQLite file on a network file system.
    """
    use = _SHARING if shared else _ALONE
    if in_foreground:
        use = replace(use, program=_CHAIN)
    with (
        _locked_file(state_dir / "daemon.lock", what=str(state_dir), program=use.program, pause=pause),
        _claimed(url, use, pause) as check,
    ):
        yield check


@contextmanager
def hold_database(url: str, *, pause: Callable[[float], None] = time.sleep) -> Iterator[Callable[[], None]]:
    """Keep every daemon from this database while the block runs: half of `claim_database`, without a state directory.

    Yields its check, and raises what it raises.
    """
    with _claimed(url, _APART, pause) as check:
        yield check


@contextmanager
def hold_for_migration(
    url: str, *, shared: bool, pause: Callable[[float], None] = time.sleep
) -> Iterator[Callable[[], None]]:
    """Keep the daemons from this database that a migration is not to run beside, as `hold_database` does.

    ``shared``: those of a fleet may run; they drain when the database is newer than they.
    """
    with _claimed(url, _MIGRATING_BESIDE if shared else _MIGRATING, pause) as check:
        yield check


@contextmanager
def _claimed(url: str, use: _Use, pause: Callable[[float], None]) -> Iterator[Callable[[], None]]:
    parsed = parse_url(url)
    file = sqlite_file(parsed)
    if file is None:
        with _locked_server(parsed, use) as lock:
            yield lock.check
        return
    refuse_network_file(file)
    with _locked_file(_lock_file(file), what=str(file), program=use.program, pause=pause):
        yield no_check


def is_claimed(url: str) -> bool:
    """Tell whether a daemon runs on this database, or a command like one, without getting in its way. Blocks.

    Raises `DatabaseUnavailableError` when that cannot be found out.
    """
    with claim_watch(url) as claimed:
        return claimed()


def is_served(url: str) -> bool:
    """Tell likewise whether a daemon runs, which claims what is queued: a command in the foreground does not."""
    with claim_watch(url, chains=False) as served:
        return served()


@contextmanager
def claim_watch(url: str, *, chains: bool = True) -> Iterator[Callable[[], bool]]:
    """Yield `is_claimed` for callers that ask repeatedly: on PostgreSQL all the questions share one connection.

    Without ``chains`` it is `is_served`.

    The yielded function blocks; it may be called from any thread, but from one at a time.
    """
    parsed = parse_url(url)
    file = sqlite_file(parsed)
    if file is not None:
        yield partial(_file_is_locked, _lock_file(file), chains=chains)
        return
    engine = reading_engine(parsed, size=1)

    def is_held() -> bool:
        with border(parsed), engine.connect() as connection:
            return any(chains or not holder.is_passing for holder in _holders(connection))

    try:
        yield is_held
    finally:
        engine.dispose()


def refuse_network_file(file: Path, *, mounts: Path = MOUNTS) -> None:
    """Raise `ConfigurationError` for a SQLite file on a network file system; ``file`` is absolute, links resolved.

    Refuse nothing where the mounts cannot be read.
    """
    try:
        listed = mounts.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    kind, where = filesystem_of(file, listed)
    if _NETWORK.fullmatch(kind):
        raise ConfigurationError(
            f"CLAUDEOPS_DATABASE_URL: {file} lies on a network file system ({kind}, mounted at {where}), where SQLite's"
            " locks do not keep two daemons apart: put the file on a local disk, or use PostgreSQL."
        )


def filesystem_of(file: Path, listed: str) -> tuple[str, str]:
    """Return the type and the mount point of the file system that holds ``file``; ``listed`` is a ``mountinfo``.

    Of two mounts on one point the later one is visible.
    """
    best = ("", "")
    for line in listed.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) <= _MOUNT_POINT or not kinds:
            continue
        where = _OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[_MOUNT_POINT])
        if file.is_relative_to(where) and len(where) >= len(best[1]):
            best = (kinds[0], where)
    return best


class DatabaseCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A database that can be read and written."""

    revision: str | None  # None: there is none yet, or an empty one
    head: str  # the revision that this version of claudeops needs


def check_database(url: str, backup_dir: Path, *, busy_seconds: float = PATIENCE_SECONDS) -> DatabaseCheck:
    """Read the revision and begin to write, without changing anything; a missing SQLite file is not created.

    Raises `DatabaseUnavailableError` (not reachable, locked), `NewerDatabaseError`, `ConfigurationError` (the address
    is wrong, the tables are somebody else's) or `StoreError` (not writable, no database at all).
    """
    parsed = parse_url(url)
    revision = current_revision(parsed, busy_seconds=busy_seconds)
    if revision is not None:
        refuse_newer(parsed, revision, backup_dir=backup_dir)
    file = sqlite_file(parsed)
    if file is not None and revision is None:
        _require_directory(file)
        return DatabaseCheck(revision=None, head=HEAD)
    engine = writing_engine(parsed, busy_seconds=busy_seconds)
    try:
        with border(parsed), engine.connect() as connection:
            if revision is not None:
                # Needs the right to write and the lock, and changes no row.
                connection.execute(update(instances).values(pid=instances.c.pid).where(false()))
            elif file is None:
                _require_rights(connection, parsed)
            connection.rollback()
    finally:
        engine.dispose()
    return DatabaseCheck(revision=revision, head=HEAD)


@contextmanager
def _locked_file(path: Path, *, what: str, program: str, pause: Callable[[float], None]) -> Iterator[None]:
    """Hold a lock file. It is never removed, because another process may be opening it."""
    descriptor = _open(path, os.O_RDWR | os.O_CREAT)
    try:
        if not _lock(descriptor, pause):
            pid, program = _holder_of(descriptor)
            raise _in_the_way(program)(
                f"another claudeops daemon (pid {pid}) already uses {what} and holds {path}: {_REMEDY}."
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}{f' {program}' if program in _PASSING else ''}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _holder_of(descriptor: int) -> tuple[str, str]:
    """Return the pid of the process that holds a lock file, and its program: empty for a daemon."""
    pid, _, program = os.pread(descriptor, 64, 0).decode("ascii", "replace").strip().partition(" ")
    return pid or "unknown", program


def _in_the_way(program: str) -> type[AlreadyRunningError]:
    """Return the error of whoever wants a lock that a program holds."""
    return ForegroundRunningError if program in _PASSING else AlreadyRunningError


def _lock_file(file: Path) -> Path:
    return file.with_name(f"{file.name}.lock")


def _lock(descriptor: int, pause: Callable[[float], None]) -> bool:
    """Take the lock; try for half a second, because `is_claimed` takes it for a moment."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            pause(_PAUSE_SECONDS)
        if _flock(descriptor, fcntl.LOCK_EX):
            return True
    return False


def _file_is_locked(path: Path, *, chains: bool) -> bool:
    if not is_there(path):
        return False
    descriptor = _open(path, os.O_RDONLY)
    try:
        is_locked = not _flock(descriptor, fcntl.LOCK_SH)
        return is_locked and (chains or _holder_of(descriptor)[1] not in _PASSING)
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


@contextmanager
def _locked_server(url: URL, use: _Use) -> Iterator[_ServerLock]:
    lock = _ServerLock(url, use)
    try:
        lock.take()
        yield lock
    finally:
        lock.close()


class _Use(msgspec.Struct, frozen=True, kw_only=True):
    """For what a process takes the advisory lock."""

    program: str
    take: TextClause


_CHAIN: Final = "chain"
_MIGRATION: Final = "migration"
_PASSING: Final = frozenset({_CHAIN, _MIGRATION})
"""What ends by itself: whoever wants the lock may wait for it."""

_ALONE: Final = _Use(program="daemon", take=text("SELECT pg_try_advisory_lock(:key)"))
_APART: Final = _Use(program="copy", take=_ALONE.take)  # no daemon is to run
_MIGRATING: Final = _Use(program=_MIGRATION, take=_ALONE.take)
_SHARING: Final = _Use(program="daemon", take=text("SELECT pg_try_advisory_lock_shared(:key)"))
_MIGRATING_BESIDE: Final = _Use(program=_MIGRATION, take=_SHARING.take)


class _ServerLock:
    """The advisory lock; it ends with its connection, and so with the process."""

    def __init__(self, url: URL, use: _Use) -> None:
        named = url.update_query_dict({"application_name": f"claudeops {use.program}, pid {os.getpid()}"})
        self._url = url
        self._use = use
        self._engine = reading_engine(named, size=1)
        self._connection: Connection | None = None

    def take(self) -> None:
        """Connect and take the lock; raises `AlreadyRunningError` or `DatabaseUnavailableError`."""
        with border(self._url):
            self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            taken = self._connection.scalar(self._use.take, {"key": _DAEMON_KEY})
            holder = None if taken else next(iter(_holders(self._connection)), None)
        if not taken:
            error = ForegroundRunningError if holder is not None and holder.is_passing else AlreadyRunningError
            raise error(_refusal(self._url, holder, self._use))

    def check(self) -> None:
        """Take the lock again if its connection is gone."""
        if self._connection is not None:
            try:
                with border(self._url):
                    self._connection.scalar(text("SELECT 1"))
            except StoreError:
                self._release()
            else:
                return
        self.take()

    def close(self) -> None:
        """Release the lock."""
        self._release()
        self._engine.dispose()

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # closes the connection: in the pool it would keep the lock
            connection.close()


class _Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The connection that holds the advisory lock, or one of those that share it."""

    name: str
    shared: bool

    @property
    def is_passing(self) -> bool:
        return any(self.name.startswith(f"claudeops {program},") for program in _PASSING)


def _holders(connection: Connection) -> Sequence[_Holder]:
    """Return who holds the advisory lock."""
    rows = connection.execute(_HOLDER, {"key": _DAEMON_KEY})
    return [_Holder(name=row.application_name or "unknown", shared=row.shared) for row in rows]


def _refusal(url: URL, holder: _Holder | None, use: _Use) -> str:
    """Return why a process that wants the lock cannot have it."""
    name = "unknown" if holder is None else holder.name
    if holder is not None and holder.shared:
        here = "" if use is _APART else f"set {_SHARE} here too, or "
        return (
            f"other claudeops daemons ({name}) share {shown(url)} by {_SHARE}, and this process needs it for itself: "
            f"{here}stop all of them first."
        )
    taken = f"another claudeops daemon ({name}) already uses {shown(url)} and holds its advisory lock"
    if use.take is _SHARING.take:
        return f"{taken} for itself, without {_SHARE}: set that for it too, or {_REMEDY}."
    return f"{taken}: {_REMEDY}."


def no_check() -> None:
    """Do nothing: a file lock cannot be lost."""


def _require_directory(file: Path) -> None:
    """Raise `StoreError` unless a new database can be created at ``file``, missing directories included."""
    if is_there(file) and not os.access(file, os.R_OK | os.W_OK):
        raise StoreError(
            f"the database {file} is not user {os.geteuid()}'s to write: change its owner.", kind=ErrorKind.FILESYSTEM
        )
    nearest = next(path for path in file.parents if is_there(path))
    if not is_directory(nearest) or not os.access(nearest, os.W_OK | os.X_OK):
        raise StoreError(
            f"the database {file} cannot be made, for user {os.geteuid()} may not write in {nearest}: "
            "change its owner, or set CLAUDEOPS_DATABASE_URL.",
            kind=ErrorKind.FILESYSTEM,
        )


def _require_rights(connection: Connection, url: URL) -> None:
    may = connection.execute(text("SELECT has_schema_privilege(current_schema(), 'CREATE')")).scalar_one()
    if not may:
        raise StoreError(f"the database {shown(url)} lets its user make no tables: GRANT CREATE on its schema.")
