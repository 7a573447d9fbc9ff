"""A session's own files in memory: a tmpfs that the kernel bounds, for home, work, temporary and state directory.

The launcher makes it where only the session sees it, and hands the daemon a descriptor. By that the daemon copies in
what it has prepared on the disk, before anything of the session runs, and reads what the session leaves, also when it
has ended. Nothing has to be cleaned up: the kernel frees it with the last process that has it, also after a crash.

The daemon reaches it by paths below ``/proc/PID/fd``, which its other processes (the one that judges) may use too.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from claudeops.engine.cell.bubblewrap import Mount
from claudeops.engine.cell.cell import OwnFiles
from claudeops.engine.cell.cgroups import MIB
from claudeops.engine.cell.workspace import LOOK_SECONDS, MAKE_SECONDS, SESSION_FILES, Workspace
from claudeops.structs import replace
from claudeops.tasks import check_abandoned

_BYTES_FOR_A_FILE: Final = 4096
"""What a name takes at least: as where files on the disk are counted (`disk_use`)."""

_MEMORY_OF_A_FILE: Final = 1024  # bytes that the kernel keeps for each, whatever is in it
_SHARE_OF_MACHINE: Final = 4
_SHARE_OF_MARGIN: Final = 16
_WORD_BYTES: Final = 16


class FilesBound(msgspec.Struct, frozen=True, kw_only=True):
    """How much a session's files in memory may be."""

    most_bytes: int
    most_files: int

    @property
    def memory_mb(self) -> int:
        """Return how much memory (MiB, rounded up) that takes at most."""
        return -(-(self.most_bytes + self.most_files * _MEMORY_OF_A_FILE) // MIB)


def room_for_files(*, session_mb: int, slots: int, machine_mb: int, free_mb: int) -> int:
    """Return the memory (MiB) that the files of one session may take, beside what it may have for its processes.

    No more than it may have for these; for all slots together no more than a quarter of the machine; and no more than
    what is free beside the processes of all of them.
    """
    return max(0, min(session_mb, machine_mb // _SHARE_OF_MACHINE // slots, free_mb // slots - session_mb))


def bound_in_memory(disk_bytes: int | None, *, given_bytes: int, room_mb: int) -> FilesBound | None:
    """Return the bound of a session's files in memory; ``None`` where they do not fit, or have no bound.

    ``given_bytes``: what is there before it starts, which does not count against it. The kernel's bound is a little
    above the session's: what has reached that one is then seen, even if something of it has been removed meanwhile.
    """
    if disk_bytes is None:
        return None
    whole = disk_bytes + disk_bytes // _SHARE_OF_MARGIN + given_bytes
    bound = FilesBound(most_bytes=whole, most_files=whole // _BYTES_FOR_A_FILE)
    return bound if bound.memory_mb <= room_mb else None


def prepared_bytes(workspace: Workspace) -> int:
    """Return what the files of a workspace take in memory: whole pages, holes and second names included."""
    return sum(map(_size, _names(workspace.own)))


class MemoryFiles(msgspec.Struct, kw_only=True):
    """The files of one session, before and after the launcher has made them."""

    workspace: Workspace  # on the disk
    sandboxed: OwnFiles
    _ours: socket.socket
    _held: ExitStack
    _descriptor: int | None = None

    @property
    def reached(self) -> Workspace:
        """Return where this process, and others of its user, reach them once they are moved in."""
        if self._descriptor is None:
            raise AssertionError("the session's files are not there yet")
        return Workspace(way_to(self._descriptor))

    @property
    def descriptor(self) -> int:
        """Return the descriptor of their root."""
        if self._descriptor is None:
            raise AssertionError("the session's files are not there yet")
        return self._descriptor

    def outside(self, path: Path) -> Path:
        """Return where a file of the session's own directories is reached, by its path in the session."""
        return self.reached.root / path.relative_to(self.workspace.root)

    def seen(self, mounts: Iterable[Mount]) -> tuple[Mount, ...]:
        """Return a session's mounts with sources that this process, and others of its user, can look at."""
        return self._moved(mounts, self.reached.root)

    def prepared(self, mounts: Iterable[Mount]) -> tuple[Mount, ...]:
        """Return the same for what the daemon has prepared on the disk, before it is moved in."""
        return self._moved(mounts, self.workspace.root)

    def _moved(self, mounts: Iterable[Mount], root: Path) -> tuple[Mount, ...]:
        place = self.sandboxed.place
        return tuple(
            replace(mount, source=root / mount.source.relative_to(place))
            if f"{mount.source}/".startswith(f"{place}/")
            else mount
            for mount in mounts
        )

    async def move_in(self) -> None:
        """Copy what the daemon has prepared into them, while the session waits for its word; raises `OSError`."""
        self._descriptor = received(self._ours)
        self._held.callback(os.close, self._descriptor)
        await SESSION_FILES.run(
            partial(_copy, self.workspace.own, self.reached.own),
            seconds=MAKE_SECONDS,
            what="copying a session's files into memory",
        )


@asynccontextmanager
async def open_files(bound: FilesBound | None, workspace: Workspace) -> AsyncIterator[MemoryFiles | None]:
    """Hold a session's files in memory for the length of the block, where they fit; raises `OSError`."""
    if bound is None:
        yield None
        return
    await SESSION_FILES.run(
        partial(workspace.memory.mkdir, mode=0o700), seconds=LOOK_SECONDS, what=f"making {workspace.memory}"
    )
    with ExitStack() as held:
        ours, theirs = map(held.enter_context, socket.socketpair())
        yield MemoryFiles(
            workspace=workspace,
            sandboxed=sandboxed(bound, workspace, door=theirs.fileno()),
            _ours=ours,
            _held=held,
        )


def sandboxed(bound: FilesBound, workspace: Workspace, *, door: int) -> OwnFiles:
    """Return what the launcher is to make; ``door``: the descriptor over which it hands them over."""
    return OwnFiles(door=door, place=workspace.memory, most_bytes=bound.most_bytes, most_files=bound.most_files)


def received(door: socket.socket) -> int:
    """Return the descriptor that the launcher has sent before it became bubblewrap; raises `OSError`."""
    flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    _, descriptors, _, _ = socket.recv_fds(door, _WORD_BYTES, 1, flags)
    if not descriptors:
        raise OSError(errno.EPROTO, "the session's files in memory were not handed over")
    return descriptors[0]


def way_to(descriptor: int) -> Path:
    """Return the path by which this process, and others of its user, reach what a descriptor of this process is."""
    return Path(f"/proc/{os.getpid()}/fd/{descriptor}")


def _names(directories: Iterable[Path]) -> Iterator[str]:
    for directory in directories:
        for parent, inner, files in os.walk(directory):
            check_abandoned()
            yield from (os.path.join(parent, name) for name in (*inner, *files))  # noqa: PTH118 - as os.walk says it


def _size(path: str) -> int:
    found = os.lstat(path)
    content = 0 if stat.S_ISDIR(found.st_mode) else found.st_size
    return _BYTES_FOR_A_FILE * (1 + -(-content // _BYTES_FOR_A_FILE))


def _copy(sources: Iterable[Path], targets: Iterable[Path]) -> None:
    for source, target in zip(sources, targets, strict=True):
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=_while_wanted)


def _while_wanted(_directory: str, _names: list[str]) -> tuple[str, ...]:
    check_abandoned()
    return ()
