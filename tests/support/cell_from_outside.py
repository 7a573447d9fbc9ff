"""What lies in the cell of a running session, as root sees it from outside: past the gate and all permissions."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 4 * 1024 * 1024  # what is larger is a program
_PROGRAMS: Final = frozenset({"/proc", "/sys", "/dev", "/usr", sys.base_prefix, sys.prefix})
"""Of the kernel, and what every session is shown to run: some ten thousand files."""

Inode = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class InCell:
    """The files of a cell by their places in it, and the sockets."""

    texts: dict[str, bytes]
    sockets: dict[str, Inode]


def inode(path: Path) -> Inode:
    """Return what tells a file from every other, by whatever name it is found."""
    found = path.lstat()
    return found.st_dev, found.st_ino


def what_a_cell_holds(pid: int) -> InCell:
    """Return what a process of a session could find without its gate."""
    texts: dict[str, bytes] = {}
    sockets: dict[str, Inode] = {}
    root = Path(f"/proc/{pid}/root/")
    for path in _files(root):
        with suppress(OSError):  # removed since
            mode, name = path.lstat(), f"/{path.relative_to(root)}"
            if stat.S_ISSOCK(mode.st_mode):
                sockets[name] = inode(path)
            elif stat.S_ISREG(mode.st_mode) and mode.st_size <= _MOST_BYTES:
                texts[name] = path.read_bytes()
    return InCell(texts=texts, sockets=sockets)


def _files(root: Path) -> Iterator[Path]:
    for directory, directories, names in os.walk(f"{root}/"):
        place = Path("/", Path(directory).relative_to(root))
        directories[:] = [name for name in directories if str(place / name) not in _PROGRAMS]
        yield from (Path(directory, name) for name in names)
