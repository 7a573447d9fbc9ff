"""Who owns sessions: an `Owner` tells this process apart from every other that ever ran here.

Apart from the rest of the system, because quick commands ask whether a daemon lives and wait for no event loop.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final

import psutil

from claudeops.domain.owner import Outlook, Owner

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE: Final = Path("/proc/self/ns/pid")
_SAME_START_SECONDS: Final = 1.0  # clock ticks, and a database's rounding


def this_owner(
    *, node: str = "", site: str = "", version: str = "", max_tier: int | None = None, is_alone: bool = False
) -> Owner:
    """Return this process as an owner of sessions; every call gives it a new name."""
    return Owner(
        name=uuid.uuid4().hex,
        pid=os.getpid(),
        process_started_at=psutil.Process().create_time(),
        boot_id=_boot_id(),
        pid_namespace=_pid_namespace(),
        node=node,
        site=site,
        version=version,
        is_alone=is_alone,
        max_tier=max_tier,
    )


def lives(other: Owner, outlook: Outlook) -> bool:
    """Return whether another owner lives: by its process where that can be seen, else by its sign of life."""
    return alive(other) if outlook.owner.sees(other) else not outlook.is_dead(other)


def alive(owner: Owner) -> bool:
    """Return whether an owner's process runs on this machine, since the same boot; one elsewhere counts as gone."""
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


def _pid_namespace() -> str | None:
    try:
        return _PID_NAMESPACE.readlink().name
    except OSError:
        return None
