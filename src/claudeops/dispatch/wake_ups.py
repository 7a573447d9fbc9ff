"""Wakes what waits for a change in the database: at once when another process says so, else by looking.

Commands run in other processes. They write their row, commit, and send a datagram to a socket in the state directory
(`claudeops.store.database.waking`). The row is the truth and the datagram a hint: one that is lost, or cannot be sent
from another host or by another user, costs no more than the time until the next look. A look is cheap: it only finds
out whether anything was written, so that whatever waits has no need to look by itself. What this process writes needs
no look: its own commits wake what waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from operator import ne
from pathlib import Path
from typing import Final

import anyio
import msgspec

from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import Waiter, until_tick

NextVersion = Callable[[Callable[[object], bool], float], Awaitable[object]]
"""Looks at the database's version every so many seconds; returns the first that is news, or raises `StoreError`."""

LOOK_SECONDS: Final = 1.0
"""Between two looks at whether anything was written, where other hosts write or no datagram can come."""

NET_SECONDS: Final = 5.0
"""The same where only commands of this machine write, and can send datagrams: in the moments of all other loops."""

LONGEST_SECONDS: Final = 300.0
"""After which whatever waits looks by itself, whether or not anything was written: a net, as each change wakes it. What
becomes due is waited for by its own time, and a clock that is set wakes everything."""

OWN_SECONDS: Final = 1.0
"""Within which what this process writes wakes what waits for it, once for all that is written meanwhile."""

REST_SECONDS: Final = 0.05
"""After a wake-up by a datagram. While more of them come, the rest doubles."""

LONGEST_REST_SECONDS: Final = 1.0
"""However many datagrams come, the daemon is woken no more often than it looks by itself."""

_MOST: Final = 256  # datagrams that are read at once; the kernel holds no more of them by default
_MODE: Final = 0o600  # only the daemon's user, and root, may wake it


class WakeUps(msgspec.Struct, kw_only=True):
    """The wake-ups of one process; for one event loop."""

    file: Path  # of the socket
    log: Logger
    look_seconds: float = LOOK_SECONDS
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep  # before a wake-up by own writes, and after a datagram's
    _wakes: list[Callable[[], None]] = msgspec.field(default_factory=list)
    _wakes_by_others: list[Callable[[], None]] = msgspec.field(default_factory=list)
    _loop: asyncio.AbstractEventLoop | None = None  # while it runs
    _has_written: bool = False  # this process, since the last wake-up by that
    _written: anyio.Event = msgspec.field(default_factory=anyio.Event)

    def join(self, wake: Callable[[], None], *, own: bool = True) -> None:
        """Have this called at each wake-up; it must not block. ``own``: also after what this process writes."""
        (self._wakes if own else self._wakes_by_others).append(wake)

    def waiter(self, *, own: bool = True) -> Waiter:
        """Return one that is woken from now on."""
        waiter = Waiter(longest_seconds=LONGEST_SECONDS)
        self.join(waiter.wake, own=own)
        return waiter

    def note(self) -> None:
        """Have what waits woken within a second: this process has written something. On any thread."""
        if self._has_written:
            return
        self._has_written = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and what waited with it
                self._loop.call_soon_threadsafe(self._written.set)

    def wake(self) -> None:
        """Wake everything that waits."""
        for wake in (*self._wakes, *self._wakes_by_others):
            wake()

    async def run(self, next_version: NextVersion) -> None:
        """Take datagrams, and look whether the database has another version, until cancelled."""
        self._loop = asyncio.get_running_loop()
        if self._has_written:  # before there was a loop to wake
            self._written.set()
        with contextlib.ExitStack() as stack:
            inlet = self._open(stack)
            seconds = self.look_seconds if inlet is not None else min(self.look_seconds, LOOK_SECONDS)
            async with anyio.create_task_group() as tasks:
                if inlet is not None:
                    tasks.start_soon(self._wake_by, inlet)
                tasks.start_soon(self._wake_by_own)
                await self._look(next_version, seconds)

    async def _look(self, next_version: NextVersion, every: float) -> None:
        known: object = None  # what was written before the start is not
        seconds = 0.0
        while True:
            try:
                found = await next_version(partial(ne, known), seconds)
            except StoreError:
                found = object()  # whatever waits finds out for itself what is wrong, and says so
                await anyio.sleep(seconds)
            self.wake()
            known, seconds = found, every

    async def _wake_by_own(self) -> None:
        while True:
            await self._written.wait()
            await self.sleep(until_tick(OWN_SECONDS, anyio.current_time()))
            self._written = anyio.Event()
            self._has_written = False  # before the wake-up: what is written from now on needs another one
            for wake in self._wakes:
                wake()

    def _open(self, stack: contextlib.ExitStack) -> socket.socket | None:
        try:
            return stack.enter_context(open_socket(self.file))
        except OSError as error:
            why = error.strerror or str(error)
            self.log.warning(LogEvent.WAKE_SOCKET_UNUSABLE, path=str(self.file), error=why)
            return None

    async def _wake_by(self, inlet: socket.socket) -> None:
        rest = REST_SECONDS
        while True:
            await anyio.wait_readable(inlet)
            _drain(inlet)
            self.wake()
            await self.sleep(rest)
            rest = min(rest * 2, LONGEST_REST_SECONDS) if _has_more(inlet) else REST_SECONDS


@contextlib.contextmanager
def open_socket(file: Path) -> Iterator[socket.socket]:
    """Take datagrams at ``file`` while the block runs; for the holder of the state directory's lock alone.

    A socket that a dead daemon has left is replaced, and nothing else is. Raises `OSError`, also for a path that is
    longer than the 107 bytes of an address.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as inlet:
        os.fchmod(inlet.fileno(), _MODE)  # before: the file gets the socket's mode, and is never open to others
        _remove_left(file)
        inlet.bind(str(file))
        ours = _identity(file)
        try:
            yield inlet
        finally:
            with contextlib.suppress(OSError):
                if _identity(file) == ours:
                    file.unlink()


def _remove_left(file: Path) -> None:
    """Remove the socket of a dead daemon; raises `OSError` where something else is in its place."""
    try:
        found = file.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        owner = f"user {found.st_uid}'s" if found.st_uid != os.geteuid() else "no socket"
        raise FileExistsError(f"what is there is {owner}: remove it, and start the daemon again")
    file.unlink()


def _identity(file: Path) -> tuple[int, int]:
    found = file.lstat()
    return found.st_dev, found.st_ino


def _drain(inlet: socket.socket) -> None:
    """Read what has come, up to a bound; what it says does not matter."""
    with contextlib.suppress(OSError):  # there is no more
        for _ in range(_MOST):
            inlet.recv(1)


def _has_more(inlet: socket.socket) -> bool:
    try:
        inlet.recv(1, socket.MSG_PEEK)
    except OSError:
        return False
    return True
