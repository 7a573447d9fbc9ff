"""What a file of the operator's said when it was last right, and what is wrong with it now.

A look changes nothing: it returns the next such value. So it may run in a thread that is left behind when the disk
hangs; what that thread finds too late is lost, and is found anew by the next look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from claudeops.errors import ConfigurationError

T = TypeVar("T")

Signature = tuple[tuple[int, int, int, int], ...]
"""Of some files: the device, number, size and time of each."""


class LastGood(msgspec.Struct, Generic[T], frozen=True):
    """The value that serves."""

    value: T
    fault: str = ""  # a sentence or clause about the file as it is now; "": it is right
    seen: Signature | None = None  # of what the value was read from; None: the file is read at the next look


def look_again(
    last: LastGood[T],
    path: Path,
    read: Callable[[Path], T],
    *,
    beside: Sequence[Path] | None = (),
    absent: LastGood[T] | None = None,
) -> LastGood[T]:
    """Return what a file says by now; blocks.

    A file that is wrong is read at each look: what mends it may not show in its signature. ``read`` raises
    `ConfigurationError` for it. ``beside`` are files whose contents belong to it; None: they are not known, so that
    each look reads it all. ``absent`` serves where there is no file; None: that it is gone is a fault. Raises `OSError`
    where the disk does not answer.
    """
    try:
        seen = None if beside is None else _signature(path, *beside)
        if seen is not None and seen == last.seen and not last.fault:
            return last
        return LastGood(read(path), seen=seen)
    except ConfigurationError as error:
        return LastGood(last.value, str(error), last.seen)
    except (FileNotFoundError, NotADirectoryError) as error:
        return absent or LastGood(last.value, f"{error.filename} is not there any more.", last.seen)


def _signature(*paths: Path) -> Signature:
    found = [path.stat() for path in paths]
    return tuple((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns) for each in found)
