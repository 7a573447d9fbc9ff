"""The disk space of a session: its own directories, places where every user may write, and nameless open files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, Protocol

import msgspec

EVERYBODYS: Final = tuple(map(Path, ("/tmp", "/var/tmp", "/dev/shm")))  # noqa: S108 - looked at, not written to
"""Where a session with a user of its own may write, besides its own directories."""

_ENTRY_BYTES: Final = 4096
"""What every name counts for at least, because empty files can use up a disk's inodes."""

_BLOCK_BYTES: Final = 512  # of ``st_blocks``, on every file system
_OWNERS_LOOK: Final = 0o700
_OTHERS_WRITE: Final = 0o002

FileKey = tuple[int, int]
"""Device and inode: a file that has two names, or is open twice, counts once."""


class DiskUse(msgspec.Struct):
    """The files that a look has found."""

    used_bytes: int = 0
    sizes: dict[FileKey, int] = msgspec.field(
        default_factory=dict
    )  # bytes, holes included: the kernel bounds that size
    too_deep: bool = False  # something lies deeper than a path can reach, which only serves to hide it

    def add(self, found: os.stat_result) -> None:
        """Count a file, a directory or a link."""
        key = (found.st_dev, found.st_ino)
        if key not in self.sizes:
            self.sizes[key] = found.st_size if stat.S_ISREG(found.st_mode) else 0
            self.used_bytes += found.st_blocks * _BLOCK_BYTES

    def grown_to(self, file_bytes: int, since: DiskUse) -> bool:
        """Return whether a file has reached a size that it did not have in ``since``."""
        return any(size >= file_bytes > since.sizes.get(key, 0) for key, size in self.sizes.items())


class DiskPlace(Protocol):
    """Where a session may have files."""

    @property
    def uid(self) -> int | None:
        """Return its own user; ``None``: the daemon's."""

    def measure(self, pids: Iterable[int] = (), *, enough_bytes: int | None = None) -> DiskUse:
        """Return what is there now; the look may end early beyond ``enough_bytes``. Call it off the event loop.

        ``pids``: the session's processes, whose open files without a name count too.
        """


class Premises(msgspec.Struct, frozen=True, kw_only=True):
    """The places where a session may have files. `measure` looks at all of them: call it off the event loop."""

    root: Path  # its workspace
    uid: int | None = None  # of its own; None: the daemon's
    everybodys: Collection[Path] = EVERYBODYS

    def measure(self, pids: Iterable[int] = (), *, enough_bytes: int | None = None) -> DiskUse:
        """Return what is there now; the look ends early beyond ``enough_bytes``.

        ``pids``: the session's processes, whose open files without a name count too.
        """
        use = DiskUse()
        enough = sys.maxsize if enough_bytes is None else enough_bytes
        _walk(self.root, use, owner=None, enough_bytes=enough)
        if self.uid is not None:
            for place in self.everybodys:
                _walk(place, use, owner=self.uid, enough_bytes=enough)
        with contextlib.suppress(OSError):
            device = self.root.stat().st_dev
            for pid in pids:
                _add_nameless(pid, device, use)
        return use


class MemoryPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The file system in memory that holds all of a session's files. The kernel knows what they take."""

    root: Path  # as we reach it
    descriptor: int  # of the same
    file_bytes: int | None = None  # the size of one file that matters; None: none does
    uid: int | None = None

    def measure(self, pids: Iterable[int] = (), *, enough_bytes: int | None = None) -> DiskUse:
        """Return what is there now; only where the size of one file matters that takes a look at each."""
        kernel = os.fstatvfs(self.descriptor)
        use = DiskUse()
        if self.file_bytes is not None and kernel.f_blocks * kernel.f_frsize > self.file_bytes:
            use = Premises(root=self.root, everybodys=()).measure(pids, enough_bytes=enough_bytes)
        names = kernel.f_files - kernel.f_ffree
        use.used_bytes = (kernel.f_blocks - kernel.f_bfree) * kernel.f_frsize + names * _ENTRY_BYTES
        use.too_deep = False  # it counts all the same
        return use


def _walk(top: Path, use: DiskUse, *, owner: int | None, enough_bytes: int) -> None:
    """Count what is below a directory; with an ``owner``, only what belongs to that user."""
    waiting = [str(top)]
    while waiting and use.used_bytes <= enough_bytes:
        directory = waiting.pop()
        try:
            entries = _entries(directory)
        except OSError as error:  # gone meanwhile, or another user's and closed to us
            use.too_deep |= error.errno == errno.ENAMETOOLONG and owner is None
            continue
        for path, found in entries:
            if owner is None or found.st_uid == owner:
                use.used_bytes += _ENTRY_BYTES
                use.add(found)
            if stat.S_ISDIR(found.st_mode) and _is_open_to(owner, found):
                waiting.append(path)


def _entries(directory: str) -> list[tuple[str, os.stat_result]]:
    """Return a directory's entries. A session may have closed it to its own user, which may be the daemon's too."""
    try:
        return _listed(directory)
    except PermissionError:
        _open_up(directory)
        return _listed(directory)


def _listed(directory: str) -> list[tuple[str, os.stat_result]]:
    listed: list[tuple[str, os.stat_result]] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                listed.append((entry.path, entry.stat(follow_symlinks=False)))
    return listed


def _open_up(directory: str) -> None:
    """Let the owner look into a directory. Works on a descriptor, because a link may have replaced the directory."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", _OWNERS_LOOK)  # noqa: PTH101 - pathlib would resolve the link
    finally:
        os.close(descriptor)


def _is_open_to(owner: int | None, directory: os.stat_result) -> bool:
    """Return whether a user may have made anything in a directory."""
    return owner is None or directory.st_uid == owner or bool(directory.st_mode & _OTHERS_WRITE)


def _add_nameless(pid: int, device: int, use: DiskUse) -> None:
    """Count a process's open files that were removed meanwhile: they take room until they are closed."""
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - hundreds, once a second
            with contextlib.suppress(OSError):
                found = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116 - as above
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 0 and found.st_dev == device:
                    use.add(found)
