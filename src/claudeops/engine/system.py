"""The machine as it is: its clock, and this process among all that it ever ran."""

from __future__ import annotations

import os
import resource
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil

from claudeops.domain.model import Owner

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
MOST_DESCRIPTORS: Final = 65_536
"""Sessions inherit the limit, and there are programs that walk through all of it: with a billion, for minutes."""

_SAME_START_SECONDS: Final = 1.0  # clock ticks, and a database's rounding


class SystemClock:
    """The `Clock` port over the machine's own clocks."""

    def now(self) -> datetime:
        """Return the wall clock, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()


def raise_descriptor_limit() -> int:
    """Let this process open as many files and connections as it may, within reason; return how many that are.

    The usual 1024 are for programs that know no better than ``select``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def this_owner() -> Owner:
    """Return this process as an owner of sessions; every call names a new one."""
    return Owner(
        name=uuid.uuid4().hex,
        pid=os.getpid(),
        process_started_at=psutil.Process().create_time(),
        boot_id=_boot_id(),
    )


def alive(owner: Owner) -> bool:
    """Return whether an owner's process still runs on this machine since the same boot.

    An owner of another machine is never alive here: only one daemon works on a database at a time.
    """
    if owner.boot_id != _boot_id():
        return False
    try:
        process = psutil.Process(owner.pid)
        return (
            abs(process.create_time() - owner.process_started_at) < _SAME_START_SECONDS
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.Error:
        return False


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
