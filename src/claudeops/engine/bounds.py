"""What one session may use of the machine, beside its memory, and what is said when it reached a bound."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What one session may use at most; ``None``: as much as there is."""

    processes: int | None = None  # at once; threads count, as they do for the kernel
    file_mb: int | None = None  # MiB of one file
    disk_mb: int | None = None  # MiB of all that it keeps on disk

    @property
    def file_bytes(self) -> int | None:
        """Return the size that a file may have, in bytes."""
        return None if self.file_mb is None else self.file_mb * MIB

    @property
    def disk_bytes(self) -> int | None:
        """Return the disk space in bytes."""
        return None if self.disk_mb is None else self.disk_mb * MIB


def allowed(limit: int, wanted: int) -> int:
    """Return ``wanted``, or the daemon's own hard limit (`resource.RLIMIT_FSIZE` …) if that is lower.

    Nobody without a privilege may give a process more than it has itself.
    """
    hard = resource.getrlimit(limit)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
