"""SIGINT and SIGTERM, heard from the first moment of the process to its last, whatever is going on in it.

Imports nothing that takes time: it comes before everything that does. What is heard waits in a pipe, which the
interpreter itself writes to, until somebody asks; so nothing is lost while modules are imported, no exception breaks
into code that does not expect one, and a signal wakes an event loop whichever thread it came to.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_BYTES: Final = 4096


class _Ear:
    """As wide as what it is about: a process has its signals once."""

    reading: int | None = None  # a descriptor, open until the process ends


def hear() -> int:
    """Keep SIGINT and SIGTERM for `heard` from now on; return the descriptor that is readable when one has come.

    In the main thread only; safe to call twice.
    """
    if _Ear.reading is None:
        _Ear.reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, _keep)
    return _Ear.reading


def heard() -> Sequence[signal.Signals]:
    """Return what came since the last time, oldest first."""
    if _Ear.reading is None:
        return ()
    try:
        came = os.read(_Ear.reading, _BYTES)
    except BlockingIOError:
        return ()
    return [signal.Signals(number) for number in came if number in SIGNALS]


def ignore() -> None:
    """Let none of them end the process any more, whose status is known: the interpreter would give them back."""
    if _Ear.reading is not None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _keep(_number: int, _frame: object) -> None:
    """Be there: the interpreter writes only those signals down that somebody handles."""
