"""The grants of one session: what the gate has allowed it to change behind the daemon's filters.

A grant is for one tool call and ends with it. Where the daemon does not see the end, because it was stopped or the
machine slept, the grant is too old to be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from claudeops.domain.gate import cluster_grants as clusters
from claudeops.domain.gate import docker_grants as containers

Grant = containers.Grant | clusters.ClusterGrant
Change = containers.DockerChange | clusters.ClusterChange


GRANT_SECONDS: Final = 600.0
"""How old the verdict of a grant may be when it is used: as old as the longest call that a CLI waits for."""


def _ageless() -> float:
    return 0.0


class Grants(msgspec.Struct, kw_only=True):
    """The grants of one session that have not ended."""

    since_boot: Callable[[], float] = _ageless  # seconds, also of sleep; the default is for grants without a filter
    _admitted: dict[str, float] = msgspec.field(default_factory=dict)  # when calls were allowed
    _open: list[Grant] = msgspec.field(default_factory=list)
    _used: set[tuple[int, str]] = msgspec.field(
        default_factory=set
    )  # grants by identity, with the ids that they were used for

    def admit(self, grants: Iterable[Grant]) -> None:
        """Add the grants of a call that was allowed."""
        added = list(grants)
        self._open += added
        self._admitted |= {grant.call: self.since_boot() for grant in added}

    def forget(self, call: str) -> None:
        """End the grants of a call."""
        ended = {id(grant) for grant in self._open if grant.call == call}
        self._open = [grant for grant in self._open if grant.call != call]
        self._admitted.pop(call, None)
        self._used = {use for use in self._used if use[0] not in ended}

    def take(self, change: Change) -> Grant | None:
        """Use the first grant that a change fits and whose verdict is not too old; None: there is none."""
        oldest = self.since_boot() - GRANT_SECONDS
        for grant in self._open:
            use = _use(grant, change)
            if use not in self._used and self._admitted[grant.call] >= oldest and _fits(grant, change):
                self._used.add(use)
                return grant
        return None

    def give_back(self, grant: Grant, change: Change) -> None:
        """Let a grant be used again: nothing came of the change."""
        self._used.discard(_use(grant, change))


def _fits(grant: Grant, change: Change) -> bool:
    match grant, change:
        case containers.Grant(), containers.DockerChange():
            return containers.fits(grant, change)
        case clusters.ClusterGrant(), clusters.ClusterChange():
            return clusters.fits(grant, change)
        case _:
            return False


def _use(grant: Grant, change: Change) -> tuple[int, str]:
    """Return what a grant serves once.

    What a command names is one thing, whatever id its name has come to stand for since; a service may have several
    containers.
    """
    of_service = isinstance(grant, containers.Grant) and isinstance(change, containers.DockerChange) and grant.service
    return id(grant), change.id if of_service and isinstance(change, containers.DockerChange) else ""
