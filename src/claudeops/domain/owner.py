"""The owner of sessions: one daemon process, what its sign of life shows, when it counts as dead, and its leases.

An owner whose process can be seen from here is judged by its process, at once. Any other one is judged by its sign of
life, on the database's clock: it is dead when its lease is over. Where a lock keeps all other daemons from the
database, none of those can live, so nothing has to be waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

CLOCK_LIMIT_SECONDS: Final = 30.0
"""How far a machine's clock may be off the database's before no schedule fires by it."""

OWNER_LEASE: Final = timedelta(seconds=60)
"""How long an owner lives after its last sign of life, unless the operator sets another time: longer than a yes is
good (10 s), and than a transaction lasts (8 s, its wait included)."""

SESSION_LEASE: Final = timedelta(hours=1)
"""Added to a session's last sign of life, for people and other tools to read when that was. What frees a session is
whether its owner lives, because a long session is not a dead one."""

LOG_GRACE: Final = timedelta(minutes=10)
"""How long a dead owner's session waits for a daemon that has its log, unless the operator sets another time: a machine
starts again in less."""

_GAPS: Final = 4
"""A fourth of a lease between two signs of life of its own, and a daemon has not seen those of others."""

LEASE_SECONDS: Final = 15.0
"""How long a lease is a daemon's after it was renewed."""

HOLD_SECONDS: Final = LEASE_SECONDS * 2 / 3
"""After which a daemon that could not renew a lease leaves its work alone: well before another may begin with it."""
SERVICE_SECONDS: Final = 900.0
"""How long the lease of a service outlives the last sign of its chain: longer than a call that the chain was allowed
may still be under way (`claudeops.domain.gate.granted.GRANT_SECONDS`), whose daemon has died."""

ALERTS: Final = "alerts"
NOTICES: Final = "notices"
PROBES: Final = "probes"
SCHEDULES: Final = "schedules"
UPKEEP: Final = "upkeep"
ROLES: Final = frozenset({ALERTS, NOTICES, PROBES, SCHEDULES, UPKEEP})
"""The kinds of work that one daemon does for all; of probes, one for each site."""

OF_A_SITE: Final = frozenset({"probes", "manifests", "library"})
"""Of what a daemon decides by, what only those of its site should have alike: another one has other services."""

APPROVAL_KEY: Final = "approval_key"
POLICY: Final = "policy"
"""Of what a daemon decides by, what all that share a database must have alike."""


def probes_of(site: str) -> str:
    """Return the name of the lease of a site's probes."""
    return f"{PROBES}:{site}"


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
    pid_namespace: str | None = None  # in which its pid means something; None: an earlier version's, taken for ours
    isolation: str | None = field(default=None, compare=False)  # of its sessions; not known of other daemons
    node: str = field(default="", compare=False)  # the machine's name; this and the rest likewise
    site: str = field(default="", compare=False)  # where that is
    version: str = field(default="", compare=False)  # of claudeops
    is_alone: bool = field(default=False, compare=False)  # no other daemon works on its database
    max_tier: int | None = field(default=None, compare=False)  # the highest that it runs; not known of other daemons
    silent: timedelta = field(default=timedelta(0), compare=False)  # since its last sign of life

    def sees(self, other: Owner) -> bool:
        """Return whether the other's process can be seen from here: the same boot and namespace of process ids."""
        same_pids = other.pid_namespace is None or other.pid_namespace == self.pid_namespace
        return bool(self.boot_id) and self.boot_id == other.boot_id and same_pids


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """By what a daemon judges the owners whose processes it cannot see."""

    owner: Owner  # itself
    sole: bool  # the lock that keeps every other daemon from the database is its own
    watched: timedelta = timedelta(0)  # for how long it could have seen every sign of life
    lease: timedelta = OWNER_LEASE

    def is_dead(self, other: Owner) -> bool:
        """Return whether an owner is dead, by its sign of life.

        After a time without the database everybody's sign of life is old, so the daemon that is back first must have
        seen a whole lease pass.
        """
        return self.sole or min(other.silent, self.watched) >= self.lease


def watched_since(
    since: datetime | None, last: datetime | None, at: datetime, *, lease: timedelta = OWNER_LEASE
) -> datetime:
    """Return since when a daemon sees the others' signs of life, that had its own ``last`` one, and has another now.

    All three on the database's clock; a gap between its own, or a clock that jumps, begins it anew.
    """
    if since is None or last is None or not timedelta(0) <= at - last <= lease / _GAPS:
        return at
    return since


class SignOfLife(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon learns when it says that it lives."""

    running: frozenset[tuple[int, int]]  # id and attempt of each session that the rows say it runs
    ahead_seconds: float | None = None  # its clock before the database's; None: they are one clock
    way_seconds: float = 0.0  # to the database and back, which makes the figure before uncertain
    newer_revision: str | None = None  # of the database; None: it is the one that this version needs
    job_tables: str | None = None  # their version in the database; None: it has none
    at: datetime | None = None  # when, on the database's clock; None: not known
    others: tuple[Owner, ...] = ()  # with a row of their own
    orphans: frozenset[int] = frozenset()  # sessions that run by their rows, and whose owner has none
    is_back: bool = False  # its node counted as dead

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
