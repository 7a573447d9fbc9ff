"""The filters of a session, and what it was granted to change behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from claudeops.clock import Clock
from claudeops.domain.gate.granted import Grants
from claudeops.engine.cell.bubblewrap import DOCKER_SOCKET, KUBECONFIG_FILE, BubblewrapCell
from claudeops.engine.cell.cell import DOCKER_HOST, KUBECONFIG
from claudeops.engine.cell.look_cell import LookCell
from claudeops.engine.cell.workspace import LOOK_SECONDS, SESSION_FILES, Workspace
from claudeops.engine.docker.cell import DockerCell
from claudeops.engine.docker.filter import open_filter
from claudeops.engine.kubernetes.cell import KubectlCell
from claudeops.engine.kubernetes.filter import ClusterFilter, open_cluster_filter
from claudeops.engine.kubernetes.kubeconfig import TierClusters, below, read_clusters
from claudeops.engine.session.context import SessionContext, TierSetup
from claudeops.formats.network.addresses import Endpoint
from claudeops.logs import Logger


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What stands before the engines that a tier's sessions reach."""

    grants: Grants = msgspec.field(default_factory=Grants)
    docker: Path | None = None  # the socket of the one before docker's engine
    clusters: ClusterFilter | None = None
    hidden: tuple[Path, ...] = ()  # of the machine: what leads past them

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where they listen on this machine."""
        return () if self.clusters is None else (self.clusters.endpoint,)

    @property
    def given(self) -> dict[Path, Path]:
        """What a session in a namespace has of them, by its place there."""
        of_clusters = None if self.clusters is None else self.clusters.kubeconfig
        places = ((DOCKER_SOCKET, self.docker), (KUBECONFIG_FILE, of_clusters))
        return {place: source for place, source in places if source is not None}

    def variables(self, *, in_namespaces: bool) -> dict[str, str]:
        """Return what the session's programs find them by."""
        found: dict[str, str] = {}
        for place, source in self.given.items():
            where = place if in_namespaces else source
            found |= {KUBECONFIG: str(where)} if place == KUBECONFIG_FILE else {DOCKER_HOST: f"unix://{where}"}
        return found


async def clusters_of(tier: TierSetup) -> TierClusters | None:
    """Return which clusters sessions of a tier reach through the filter; None: there is none. Raises `OSError`."""
    if not tier.kubeconfigs:
        return None
    read = partial(read_clusters, tier.kubeconfigs)
    return await SESSION_FILES.run(read, seconds=LOOK_SECONDS, what="reading the kubeconfig of a tier")


def files_below(tier: TierSetup, clusters: TierClusters | None) -> frozenset[Path]:
    """Return which files of a tier's home lead past the filter, by their paths below it."""
    return frozenset() if clusters is None else below(clusters.files, tier.template_home)


def cells_behind(context: SessionContext, tier: TierSetup) -> Mapping[str, LookCell]:
    """Return where the daemon changes what no filter can judge, by program, for the filters that there are."""
    cell, found = context.confinement.cell, dict[str, LookCell]()
    if not isinstance(cell, BubblewrapCell):
        return found
    redact = context.redactor.text
    if tier.docker is not None:
        found["docker"] = DockerCell(
            bubblewrap=cell, path=context.path, engine=tier.docker, home=tier.template_home, redact=redact
        )
    if tier.kubeconfigs:
        found["kubectl"] = KubectlCell(
            bubblewrap=cell,
            path=context.path,
            kubeconfigs=tier.kubeconfigs,
            repos_dir=context.repos_dir,
            redact=redact,
        )
    return found


@asynccontextmanager
async def open_filters(
    context: SessionContext, tier: TierSetup, workspace: Workspace, clusters: TierClusters | None, log: Logger
) -> AsyncIterator[Filters]:
    """Serve a session's filters for the length of the block; raises `OSError`."""
    grants = Grants(since_boot=Clock().since_boot)
    async with (
        open_filter(tier.docker, workspace, context.secrets, grants, log) as docker,
        open_cluster_filter(clusters, workspace, context.secrets, grants, log) as cluster_filter,
    ):
        engines = () if tier.docker is None else (tier.docker,)
        files = () if clusters is None else sorted(clusters.files)
        yield Filters(grants=grants, docker=docker, clusters=cluster_filter, hidden=(*engines, *files))
