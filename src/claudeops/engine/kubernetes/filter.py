"""A session's filter before the clusters of its tier: its port, its kubeconfig, and the process that answers there."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from claudeops.domain.gate.cluster_grants import ClusterChange
from claudeops.domain.gate.granted import Grants
from claudeops.engine.cell.headers.authority import Authority
from claudeops.engine.cell.workspace import LOOK_SECONDS, SESSION_FILES, Workspace
from claudeops.engine.filtering.daemon import Filter
from claudeops.engine.kubernetes.kubeconfig import TierClusters
from claudeops.formats.kubeconfig import FilteredContext, filtered
from claudeops.formats.network.addresses import Endpoint
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import open_tasks

_NAME: Final = "kubeconfig"
_MODULE: Final = "claudeops.engine.kubernetes.process"
_ADDRESS: Final = "127.0.0.1"
_WAITING: Final = 32  # connections that nobody has accepted yet
_MODE: Final = 0o600


class ClusterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What a session has of it."""

    kubeconfig: Path
    endpoint: Endpoint  # of this machine


@asynccontextmanager
async def open_cluster_filter(
    clusters: TierClusters | None, workspace: Workspace, known: tuple[str, ...], grants: Grants, log: Logger
) -> AsyncIterator[ClusterFilter | None]:
    """Serve a session's filter for the length of the block, where there are clusters; raises `OSError`.

    ``known``: secrets of the daemon, which are taken out of every answer.
    """
    if clusters is None:
        yield None
        return
    for each in clusters.unserved:
        log.warning(LogEvent.CONTEXT_NOT_SERVED, context=each.context, reason=each.reason)
    with socket.create_server((_ADDRESS, 0), backlog=_WAITING) as listening:
        port = int(listening.getsockname()[1])
        tokens = {secrets.token_urlsafe(32): context for context in clusters.contexts}
        place = workspace.etc / _NAME
        certificate = await SESSION_FILES.run(  # a library that takes time to import, and keys
            partial(_write, place, clusters, list(tokens), port, workspace.uid),
            seconds=LOOK_SECONDS,
            what=f"making {place}",
        )
        opened = Filter(
            engine="kubernetes",
            module=_MODULE,
            first={
                "certificate": certificate,
                "contexts": {token: asdict(context) for token, context in tokens.items()},
                "secrets": known,
            },
            changes=ClusterChange,
            grants=grants,
            log=log,
        )
        async with open_tasks() as tasks:
            tasks.start_soon(opened.serve, listening)
            try:
                yield ClusterFilter(kubeconfig=place, endpoint=(_ADDRESS, port))
            finally:
                tasks.cancel_scope.cancel()


def _write(place: Path, clusters: TierClusters, tokens: list[str], port: int, uid: int | None) -> str:
    """Write the kubeconfig of a session, for its user alone; return the filter's certificate with its key."""
    authority = Authority(name="clusters")
    contexts = [
        FilteredContext(context=context.name, namespace=context.namespace, token=token)
        for token, context in zip(tokens, clusters.contexts, strict=True)
    ]
    text = filtered(contexts, current=clusters.current, port=port, authority=authority.certificate)
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        if uid is not None:
            os.fchown(file.fileno(), uid, uid)
    if uid is not None:
        place.parent.chmod(0o711)  # it is another user that reads it: the way there is passable
    return authority.certified(_ADDRESS).decode()
