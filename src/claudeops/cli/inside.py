"""Whether we run inside one of our own sessions: a session must not be its own operator.

The mark in our own environment can be taken out by whoever starts us; those of the processes above us cannot.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from claudeops.engine.tree import SESSION_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DEEPEST: Final = 100  # generations; a chain of parents has an end


def inside_a_session(environ: Mapping[str, str], *, proc: Path = Path("/proc")) -> bool:
    """Tell whether we, or a process above us, carry the mark of a session."""
    if SESSION_MARK in environ:
        return True
    mark = f"{SESSION_MARK}=".encode()
    return any(entry.startswith(mark) for entries in _above(os.getppid(), proc) for entry in entries)


def _above(pid: int, proc: Path) -> Iterator[list[bytes]]:
    """Give the environments of the processes above, as far as they can be read."""
    for _ in range(_DEEPEST):
        if pid <= 0:
            return
        directory = proc / str(pid)
        with contextlib.suppress(OSError):  # another user's: a session's processes are ours, or see only their own
            yield (directory / "environ").read_bytes().split(b"\0")
        try:
            # The name in parentheses may hold anything; what follows the last one is state and parent.
            pid = int((directory / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
