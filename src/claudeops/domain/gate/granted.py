"""The grants of one session: what the gate has allowed it to change behind the daemon's filters.

A grant is for one tool call and ends with it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from claudeops.domain.gate import cluster_grants as clusters
from claudeops.domain.gate import docker_grants as containers

Grant = containers.Grant | clusters.ClusterGrant
Change = containers.DockerChange | clusters.ClusterChange


class Grants(msgspec.Struct, kw_only=True):
    """The grants of one session that have not ended."""

    _open: list[Grant] = msgspec.field(default_factory=list)
    _used: set[tuple[int, str]] = msgspec.field(
        default_factory=set
    )  # grants by identity, with the ids that they were used for

    def admit(self, grants: Iterable[Grant]) -> None:
        """Add the grants of a call that was allowed."""
        self._open += grants

    def forget(self, call: str) -> None:
        """End the grants of a call."""
        ended = {id(grant) for grant in self._open if grant.call == call}
        self._open = [grant for grant in self._open if grant.call != call]
        self._used = {use for use in self._used if use[0] not in ended}

    def take(self, change: Change) -> Grant | None:
        """Use the first grant that a change fits; None: there is none."""
        for grant in self._open:
            use = _use(grant, change)
            if use not in self._used and _fits(grant, change):
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
