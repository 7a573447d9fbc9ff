"""Copies of a SQLite database: made before it is changed for good, or because an operator wants one."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

from claudeops.errors import ConfigurationError, StoreError
from claudeops.store.connections import missing, shown, sqlite_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from sqlalchemy.engine import URL

_PRIVATE: Final = 0o600
_LOCKED_SECONDS: Final = 60.0


def _take_it_as_it_is(_copy: Path) -> None:
    return


def back_up(file: Path, backup_dir: Path, *, revision: str, now: datetime) -> Path:
    """Copy a database that may be in use; return the copy, which is on the disk when this returns.

    The name is ``<file>.backup-<revision>-<UTC time>``; it appears only once the copy is complete, and
    never takes an existing file's place. Raises `StoreError`.
    """
    target = backup_dir / f"{file.name}.backup-{revision}-{now:%Y%m%dT%H%M%S.%fZ}"
    try:
        backup_dir.mkdir(parents=True, exist_ok=True)
        _copy_whole(file, target)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"the database {file} could not be backed up to {target}: {error}.") from error
    return target


def back_up_to(url: URL, target: Path) -> int:
    """Copy a SQLite database that may be in use to ``target``; return the copy's size in bytes.

    The copy is one moment's state, on the disk and found sound by SQLite when this returns; ``target`` appears only
    then. Raises `ConfigurationError` where there is no such database or ``target`` exists, else `StoreError`.
    """
    file = sqlite_file(url)
    if file is None:
        raise ConfigurationError(
            f"the database {shown(url)} is PostgreSQL's, which is backed up by its own program: use pg_dump."
        )
    if not file.exists():
        raise missing(url)
    try:
        _copy_whole(file, target, check=_refuse_unsound)
        return target.stat().st_size
    except FileExistsError as error:
        raise ConfigurationError(
            f"{error.filename} exists, and a backup takes no file's place: name another."
        ) from None
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"the database {file} could not be backed up to {target}: {error}.") from error


def newest_backup(url: URL, backup_dir: Path | None = None) -> Path | None:
    """Return the newest complete backup of a database, from ``backup_dir`` or beside the file."""
    file = sqlite_file(url)
    if file is None:
        return None
    places = {file.parent} | ({backup_dir} if backup_dir is not None else set())
    found = [path for place in places for path in place.glob(f"{_literal(file.name)}.backup-*") if _complete(path)]
    return max(found, key=lambda path: path.name.rpartition("-")[2], default=None)


def _copy_whole(file: Path, target: Path, check: Callable[[Path], None] = _take_it_as_it_is) -> None:
    partial = target.with_name(f"{target.name}.partial")
    with ExitStack() as unfinished:
        for path in (target, partial):  # the names are ours from here
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE))
            unfinished.callback(path.unlink, missing_ok=True)
        _copy(file, partial)
        check(partial)
        partial.replace(target)
        unfinished.pop_all()
    _sync(target.parent)


def _refuse_unsound(copy: Path) -> None:
    """Raise `sqlite3.DatabaseError` for a copy that SQLite finds fault with: the source has it as well."""
    with closing(sqlite3.connect(f"{copy.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(f"it is damaged: {verdict}")


def _copy(source: Path, target: Path) -> None:
    give_up = time.monotonic() + _LOCKED_SECONDS

    def progress(status: int, _remaining: int, _total: int) -> None:
        # SQLite tries a locked database again and again, for ever; it calls here between the attempts.
        if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED} and time.monotonic() > give_up:
            raise sqlite3.OperationalError("it is locked by another process")

    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new, progress=progress)
    _sync(target)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _complete(path: Path) -> bool:
    """Tell a backup from a name that was reserved by a process which did not live to fill it."""
    return not path.name.endswith(".partial") and path.stat().st_size > 0


def _literal(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)
