"""The machine's users that sessions run as at level ``user``: lent to one session at a time, whoever's daemon it is."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet
    from pathlib import Path

FIRST_UID: Final = 60600
UIDS: Final = 64
"""The users of sessions: numbers that neither distributions nor systemd give to anybody (systemd.io/UIDS-GIDS)."""

_CLOSED_TO_OTHERS: Final = 0o700
_PASSED: Final = 0o711  # not listed
_HOMES: Final = "homes"


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionUser:
    """A user that is lent out."""

    uid: int
    lock: int  # descriptor: whoever has it open holds the user


@contextlib.contextmanager
def lent(directory: Path) -> Iterator[SessionUser]:
    """Lend a user that nobody on this machine has; raises `OSError`, also when all are taken. ``directory`` is root's.

    The guardian of a session kills every process of its user, so no two sessions may share one, though they be of two
    daemons. The lock is the kernel's: it ends with the last process that has it open, which is the guardian where the
    daemon was killed. A user who still has processes, for their guardian was killed too, is passed over.
    """
    directory.mkdir(mode=_CLOSED_TO_OTHERS, exist_ok=True)
    busy = _with_processes()
    for uid in range(FIRST_UID, FIRST_UID + UIDS):
        if uid in busy:
            continue
        lock = os.open(directory / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if _locked(lock):
                yield SessionUser(uid=uid, lock=lock)
                return
        finally:
            os.close(lock)
    raise OSError(errno.EBUSY, f"all {UIDS} users for sessions are taken on this machine", str(directory))


def listed_home(directory: Path, uid: int) -> Path:
    """Return what the machine's list of users has to say that the home of a session's user is.

    Not every program asks the environment: ``ssh`` looks there, and does not run for a user who is on no list.
    """
    return directory / _HOMES / str(uid)


def settle(directory: Path, uid: int, home: Path) -> None:
    """Let a user's home be that of the session which has the user now; raises `OSError`."""
    listed = listed_home(directory, uid)
    listed.parent.mkdir(mode=_PASSED, exist_ok=True)
    fresh = listed.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(home)
    fresh.replace(listed)


def unlisted(directory: Path) -> int:
    """Return how many of the users are on no list of this machine, or have another home there."""
    return sum(_home(uid) != str(listed_home(directory, uid)) for uid in range(FIRST_UID, FIRST_UID + UIDS))


def _home(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _with_processes() -> AbstractSet[int]:
    """Return the owners of all processes."""
    found: set[int] = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # gone meanwhile
                    found.add(entry.stat().st_uid)
    return found
