"""Whether what a process holds grows with what it does, or only until it has everything that it needs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from support.held import Held

DESCRIPTORS: Final = 8
"""That may come late: four connections for reading, of two each, are opened when they are first needed at once."""

THREADS: Final = 4
"""That may come and go: workers that wait a while for more work."""

KIB_A_SESSION: Final = 8.0
"""Of memory of its own, of which a tenth of a session's stream would be three times as much."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What has changed since a daemon had settled."""

    settled: int  # index of the first look that counts: caches, connections and the allocator's arenas have filled
    descriptors: int
    threads: int
    own_kib_a_session: float

    @classmethod
    def of(cls, held: Sequence[Held]) -> Self:
        """Compare looks at an idle daemon; the first third of them is for settling."""
        settled = len(held) // 3
        counted = held[settled:]
        half = len(counted) // 2
        early, late = counted[:half], counted[half:]
        sessions = statistics.mean(look.sessions for look in late) - statistics.mean(look.sessions for look in early)
        grown = min(look.own_mib for look in late) - min(look.own_mib for look in early)
        return cls(
            settled=settled,
            descriptors=min(look.descriptors for look in late) - min(look.descriptors for look in early),
            threads=min(look.threads for look in late) - min(look.threads for look in early),
            own_kib_a_session=grown * 1024 / sessions,
        )

    @property
    def faults(self) -> list[str]:
        """What has grown beyond noise."""
        found = []
        if self.descriptors > DESCRIPTORS:
            found.append(f"{self.descriptors} more descriptors")
        if self.threads > THREADS:
            found.append(f"{self.threads} more threads")
        if self.own_kib_a_session > KIB_A_SESSION:
            found.append(f"{self.own_kib_a_session:.1f} KiB more memory with each session")
        return found

    def __str__(self) -> str:
        said = ", ".join(self.faults) if self.faults else "nothing has grown"
        return (
            f"Since the daemon had settled {said}: {self.descriptors:+} descriptors, {self.threads:+} threads, "
            f"{self.own_kib_a_session:+.2f} KiB of its own memory a session."
        )
