"""What the gate has allowed of a cluster, and whether a request to its API is that."""

from __future__ import annotations

from typing import Final

import msgspec

RESTART: Final = "restart"
SCALE: Final = "scale"
DELETE: Final = "delete"
EXEC: Final = "exec"


class ClusterGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A change that an allowed command makes, once."""

    call: str  # the tool_use_id
    verb: str
    resource: str  # the plural: ``deployments``
    name: str
    context: str = ""  # of the session's kubeconfig; empty: the current one
    namespace: str = ""  # empty: the context's own
    replicas: int | None = None  # of `SCALE`
    container: str = ""  # of `EXEC`; empty: the pod's default
    command: tuple[str, ...] = ()  # of `EXEC`


class ClusterChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a request would make, once the API server has said which object it means."""

    verb: str
    resource: str
    name: str
    context: str  # through which it was asked for
    namespace: str
    id: str  # its uid
    is_current: bool  # the context is the session's current one
    is_own: bool  # the namespace is the context's own
    replicas: int | None = None
    container: str = ""
    default_container: str = ""  # of the pod, which kubectl names where the command names none
    command: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return it as a person would name it."""
        more = f" to {self.replicas}" if self.replicas is not None else ""
        command = f": {' '.join(self.command)}" if self.command else ""
        return f"{self.verb} {self.resource}/{self.name} in {self.context}/{self.namespace}{more}{command}"


def fits(grant: ClusterGrant, change: ClusterChange) -> bool:
    """Return whether a change is what was granted."""
    return (
        (grant.verb, grant.resource, grant.name) == (change.verb, change.resource, change.name)
        and (grant.replicas, grant.command) == (change.replicas, change.command)
        and (grant.container or change.default_container) == (change.container or change.default_container)
        and (grant.context == change.context if grant.context else change.is_current)
        and (grant.namespace == change.namespace if grant.namespace else change.is_own)
    )
