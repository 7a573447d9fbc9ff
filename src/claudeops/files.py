"""Which directories are never shown whole; where a path leads, whether it is there, and how its text begins.

Whoever may look gets an answer, and whoever may not an error of one sentence: `Path.exists` and its like raise where a
directory on the way may not be searched, or where a name is too long.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from claudeops.errors import ConfigurationError, ErrorKind

NEVER_WHOLE: Final = frozenset(map(Path, ("/", "/etc", "/root", "/home", "/var", "/proc", "/sys", "/dev", "/run")))
"""Directories that hold secrets: no session sees one of them whole, whoever names it."""

_MOST_BYTES: Final = 256 * 1024  # of one file of text


def resolve(path: Path) -> Path:
    """Do the same as `Path.resolve`; a path that leads through no links is returned as it is, which takes half."""
    found = os.path.realpath(path)
    return path if found == str(path) else Path(found)


def is_there(path: Path) -> bool:
    """Return whether a path leads to anything. Raises `ConfigurationError`."""
    return _mode(path) is not None


def is_file(path: Path) -> bool:
    """Return whether a path leads to a file. Raises `ConfigurationError`."""
    mode = _mode(path)
    return mode is not None and stat.S_ISREG(mode)


def is_directory(path: Path) -> bool:
    """Return whether a path leads to a directory. Raises `ConfigurationError`."""
    mode = _mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def read_text(path: Path, *, most: int = _MOST_BYTES) -> str:
    """Return the beginning of a file, of so many bytes, or "" where there is none, or none that the daemon may read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # opening a pipe would wait for a writer
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, most).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def refused(path: Path | str, error: OSError) -> ConfigurationError:
    """Return the error for a path that this user may not use, or that is none."""
    why = error.strerror or type(error).__name__
    return ConfigurationError(
        f"user {os.geteuid()} cannot look at {path} ({why}): call this as the daemon's user, or correct the path.",
        kind=ErrorKind.FILESYSTEM,
        target=str(path),
    )


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise refused(path, error) from error
