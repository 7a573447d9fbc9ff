"""A disk that does not answer: who opens, lists, makes or removes something on it hangs until it is back."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.waiting import PATIENCE_SECONDS

_EVENTS = frozenset(
    {
        *("open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.chmod"),
        *("os.chown", "os.link", "os.symlink", "os.truncate"),
    }
)


class Disk:
    """Everything below a directory. What the event loop does there is noted, and let through."""

    def __init__(self, below: Path, *, answers: bool) -> None:
        self._below = str(below)
        self._loop = threading.get_ident()
        self._answers = threading.Event()
        self.reached = threading.Event()  # somebody asks it
        self.on_the_loop: list[str] = []
        if answers:
            self._answers.set()

    def touched(self, what: str, path: object) -> None:
        """Hang if a path is on this disk, for as long as it does not answer."""
        if not isinstance(path, str | bytes | os.PathLike):
            return
        named = os.fsdecode(path)
        if named != self._below and not named.startswith(f"{self._below}/"):
            return
        if threading.get_ident() == self._loop:
            self.on_the_loop.append(f"{what} {named}")
            return
        self.reached.set()
        self._answers.wait(PATIENCE_SECONDS)  # a test that waits for a disk that never comes back must end too

    @property
    def is_back(self) -> bool:
        return self._answers.is_set()

    def comes_back(self) -> None:
        """Answer everybody."""
        self._answers.set()


_watched: Disk | None = None


def _see(event: str, args: tuple[object, ...]) -> None:
    if _watched is not None and event in _EVENTS and args:
        _watched.touched(event, args[0])


sys.addaudithook(_see)  # cannot be removed again; without a disk it does nothing


@contextmanager
def disk(below: Path, *, answers: bool) -> Iterator[Disk]:
    """Watch everything below a directory while the block runs; it hangs, or ``answers``. Entered on the event loop."""
    global _watched  # noqa: PLW0603 - an audit hook has no other way to know
    stat, lstat = os.stat, os.lstat
    _watched = one = Disk(below, answers=answers)
    os.stat, os.lstat = _telling(one, stat), _telling(one, lstat)  # no audit event tells of these
    try:
        yield one
    finally:
        one.comes_back()
        _watched = None
        os.stat, os.lstat = stat, lstat


def _telling(one: Disk, real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
    def look(path: object, *args: object, **named: object) -> os.stat_result:
        one.touched("stat", path)
        return real(path, *args, **named)

    return look
