"""Files that others could have put something else in the place of."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from pathlib import Path

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe must not wait for a writer


def open_plain(path: Path | str, *, follow_links: bool = True, directory_fd: int | None = None) -> BinaryIO:
    """Open a regular file for reading, without ever waiting.

    Raises `OSError`, also for anything that is no regular file, and for a link where ``follow_links`` is off.
    ``directory_fd`` is where a relative path begins.
    """
    flags = _READ if follow_links else _READ | os.O_NOFOLLOW
    descriptor = os.open(path, flags, dir_fd=directory_fd)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))
