"""What a session's start waits for where its tier has keys of ssh, an engine of docker or clusters."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Final

import anyio
import structlog

from benchmarks.table import Setup, Table, spread
from claudeops.domain.gate.granted import Grants
from claudeops.domain.network.destination import Destination, at_ports
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.docker.filter import open_filter
from claudeops.engine.kubernetes.filter import open_cluster_filter
from claudeops.engine.kubernetes.kubeconfig import TierClusters
from claudeops.engine.kubernetes.upstream import Context
from claudeops.engine.ssh.agent import open_agent
from claudeops.engine.ssh.keys import find_keys
from support.levels import PATH
from support.ssh_servers import make_key

_OPENED: Final = 10  # of each, for each repeat
_HOST: Final = "127.0.0.1"
_CLUSTER: Final = Context(name="prod", server=f"https://{_HOST}:6443", namespace="default", is_current=True)
_LOG: Final = structlog.wrap_logger(structlog.PrintLogger(StringIO()))

Opening = Callable[[Workspace], AbstractAsyncContextManager[object]]


def opened(setup: Setup) -> Table:
    """Measure how long each takes until a session can have it, and all of them at once, as a start opens them."""
    cell = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert isinstance(cell, BubblewrapCell), cell
    home = setup.directory / "home"
    public = make_key(home / ".ssh" / "id_ed25519")
    (home / ".ssh" / "known_hosts").write_text(f"{_HOST} {public}\n")
    keys = find_keys(home)

    async def listed() -> Sequence[Destination]:
        return [at_ports(_HOST, [22])]

    ways: dict[str, Opening] = {
        "the agent of ssh, a key in it": lambda place: open_agent(cell, place, keys, listed, _LOG),
        "the filter of docker": lambda place: open_filter(Path("/run/docker.sock"), place, (), Grants(), _LOG),
        "the filter of a cluster": lambda place: open_cluster_filter(
            TierClusters(current=_CLUSTER.name, contexts=(_CLUSTER,)), place, (), Grants(), _LOG
        ),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    first: dict[str, float] = {}
    for number in range(_OPENED * setup.repeats + 1):
        for name, way in ways.items():
            place = workspaces.make(setup.directory / f"session-{number}", template_home=home, without=keys.files)
            took = anyio.run(partial(_timed, way, place))
            shutil.rmtree(place.root)
            if number:
                taken[name].append(took)
            else:
                first[name] = took
    return Table(
        title="Doors: what a session's start waits for, beside its walls",
        columns=("", "starts", "median ms", "p99 ms", "longest ms", "the daemon's first ms"),
        rows=[(name, str(len(times)), *spread(times, 1), f"{first[name]:.1f}") for name, times in taken.items()],
        notes=(
            f"Their sum is {sum(map(statistics.median, taken.values())):.1f} ms. A session's agent starts while its",
            "network, its filters and its prompt are made, so that a start waits for less than the sum.",
        ),
    )


async def _timed(way: Opening, place: Workspace) -> float:
    began = time.perf_counter()
    async with way(place):
        return (time.perf_counter() - began) * 1000
