"""Catches SIGINT and SIGTERM from the first moment of the process to its last.

A module of its own that imports nothing slow, because it runs before every import that is. The interpreter itself
writes each signal to a pipe, where it waits until somebody reads it. So no signal is lost while modules are imported,
no exception interrupts code that does not expect one, and a signal wakes an event loop whichever thread received it.

Commands that have nothing to stop are ended by the signal itself while they are imported and while they exit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_READ_BYTES: Final = 4096


class _Pipe:
    """The pipe to which signals are written: process-wide, as signals are."""

    reading: int | None = None  # a descriptor, open until the process exits


def catch() -> int:
    """Keep SIGINT and SIGTERM for `caught` from now on; return the descriptor that is readable once one has come.

    Main thread only; safe to call twice.
    """
    if _Pipe.reading is None:
        _Pipe.reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, _do_nothing)
    return _Pipe.reading


def caught() -> Sequence[signal.Signals]:
    """Return the signals that came since the last call, oldest first."""
    if _Pipe.reading is None:
        return ()
    try:
        received = os.read(_Pipe.reading, _READ_BYTES)
    except BlockingIOError:
        return ()
    return [signal.Signals(number) for number in received if number in SIGNALS]


def let_end() -> None:
    """Let SIGINT end the process without a word, where it would raise `KeyboardInterrupt` wherever it happens to be."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def interrupting() -> Iterator[None]:
    """Let SIGINT raise `KeyboardInterrupt` for the length of the block, where `let_end` was called before it."""
    lets_end = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    if lets_end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if lets_end:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def ignore() -> None:
    """Ignore both signals once the exit status is known: at shutdown the interpreter restores their default actions."""
    if _Pipe.reading is not None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _do_nothing(_number: int, _frame: object) -> None:
    """Do nothing. The interpreter writes only those signals to the pipe that have a handler."""
