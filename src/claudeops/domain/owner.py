"""The owner of sessions: one daemon process, what its sign of life shows, and the leases of its work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

CLOCK_LIMIT_SECONDS: Final = 30.0
"""How far a machine's clock may be off the database's before no schedule fires by it."""

LEASE_SECONDS: Final = 15.0
"""How long a lease is a daemon's after it was renewed."""

ALERTS: Final = "alerts"
NOTICES: Final = "notices"
SCHEDULES: Final = "schedules"
UPKEEP: Final = "upkeep"


def probes_of(site: str) -> str:
    """Return the name of the lease of a site's probes."""
    return f"probes:{site}"


def service_lease(service: str) -> str:
    """Return the name of the lease of a service under repair; its owner is a chain."""
    return f"service:{service}"


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Work that one owner does at a time, as he took it."""

    name: str
    owner: str  # the name of a daemon; of a service's lease: the chain
    term: int  # one more with each new owner


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A daemon process, told apart from a later one with the same pid."""

    name: str  # unique per daemon start
    pid: int
    process_started_at: float  # seconds since the epoch
    boot_id: str
    isolation: str | None = field(default=None, compare=False)  # of its sessions; not known of other daemons
    node: str = field(default="", compare=False)  # the machine's name; this and the rest likewise
    site: str = field(default="", compare=False)  # where that is
    version: str = field(default="", compare=False)  # of claudeops


class SignOfLife(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon learns when it says that it lives."""

    running: frozenset[tuple[int, int]]  # id and attempt of each session that the rows say it runs
    ahead_seconds: float | None = None  # its clock before the database's; None: they are one clock
    way_seconds: float = 0.0  # to the database and back, which makes the figure before uncertain
    newer_revision: str | None = None  # of the database; None: it is the one that this version needs

    def clock_fault(self) -> str | None:
        """Return what is wrong with this machine's clock, as a sentence; ``None``: nothing."""
        ahead = self.ahead_seconds or 0.0
        if abs(ahead) - self.way_seconds / 2 <= CLOCK_LIMIT_SECONDS:
            return None
        off = f"{abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'}"
        return f"this machine's clock is {off} the database's: no schedule fires until it is set right."


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> Iterable[str]:
    """Return what two daemons decide by and do not have alike; what one of them does not say cannot be compared."""
    return sorted(name for name in one.keys() & other.keys() if one[name] != other[name])
