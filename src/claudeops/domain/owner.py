"""The owner of sessions: one daemon process."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A daemon process, told apart from a later one with the same pid."""

    name: str  # unique per daemon start
    pid: int
    process_started_at: float  # seconds since the epoch
    boot_id: str
    isolation: str | None = field(default=None, compare=False)  # of its sessions; not known of other daemons
