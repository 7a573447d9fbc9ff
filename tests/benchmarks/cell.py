"""What the walls around a session cost: at its start, and at each call of a tool."""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.table import Setup, Table, spread, verdict
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import IsolationLevel, OwnNetwork, SandboxSpec
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.cell.own_files import FilesBound, received, sandboxed
from claudeops.engine.cell.own_network import Network, hosts_file, listing
from claudeops.engine.cell.workspace import Workspace
from support.levels import PATH

START_MILLISECONDS: Final = 30.0
"""More than bubblewrap with the same view alone, at the median of pairs."""

_PLACES: Final = 20
_FILES: Final = FilesBound(most_bytes=2 << 30, most_files=1 << 19)
_STARTS: Final = 20  # for each repeat
_BEFORE_THE_WORDS: Final = 11  # interpreter, launcher and its settings; then their number


def start(setup: Setup) -> Table:
    """Measure starts in the cell and in bubblewrap alone in turn; likewise the shell of tools and bash."""
    cell = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert isinstance(cell, BubblewrapCell), cell
    workspace = workspaces.make(setup.directory / "session", template_home=None)
    (setup.directory / "repos").mkdir()
    cell.hand_over(workspace)
    network = Network(tcp=tuple((f"10.0.0.{number}", 443) for number in range(1, _PLACES + 1)))
    for directory in Workspace(workspace.memory).own:  # for bubblewrap alone, which has no file system in memory
        directory.mkdir(parents=True)
    ours, theirs = socket.socketpair()
    files, door = socket.socketpair()
    spec = SandboxSpec(
        workspace=workspace,
        binary=Path("/bin/true"),
        repos_dir=setup.directory / "repos",
        path=PATH,
        network=OwnNetwork(door=theirs.fileno(), hosts=hosts_file(network)),
        files=sandboxed(_FILES, workspace, door=door.fileno()),
    )
    whole = cell.enclose(spec).before
    ways = {
        "bubblewrap alone": _without_launcher(whole),
        "the cell": whole,
        "bash": (),
        "the shell of tools": (),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_STARTS * setup.repeats):
        taken["bubblewrap alone"].append(_started(ways["bubblewrap alone"]))
        ours.sendall(listing(network))
        taken["the cell"].append(_started(ways["the cell"], theirs.fileno(), door.fileno()))
        _taken_over(ours)
        os.close(received(files))
        for name, shell in (("bash", "/bin/bash"), ("the shell of tools", str(workspace.shell))):
            if Path(shell).exists():
                taken[name].append(_timed([shell, "-c", "true"]))
    for each in (ours, theirs, files, door):
        each.close()
    shutil.rmtree(workspace.root)
    more = _more(taken["the cell"], taken["bubblewrap alone"])
    met = verdict(met=more <= START_MILLISECONDS)
    return Table(
        title="Walls: a session's place → its program runs and has ended; a tool's shell likewise",
        columns=("", "starts", "median ms", "p99 ms", "longest ms", "more, median of pairs", "target"),
        rows=[
            _row("bubblewrap alone", taken, "", ""),
            _row("the cell", taken, f"{more:.1f}", f"{START_MILLISECONDS:g} ms ({met})"),
            *(
                [
                    _row("bash", taken, "", ""),
                    _row("the shell of tools", taken, f"{_more(taken['the shell of tools'], taken['bash']):.1f}", ""),
                ]
                if taken["the shell of tools"]
                else []
            ),
        ],
        notes=(
            f"Both have the same view; the cell has a network with {_PLACES} places and files in memory too.",
            "The program is /bin/true, the interpreter of the launcher the daemon's.",
        ),
    )


def _row(name: str, taken: dict[str, list[float]], more: str, target: str) -> tuple[str, ...]:
    return (name, str(len(taken[name])), *spread(taken[name], 1), more, target)


def _more(longer: Sequence[float], shorter: Sequence[float]) -> float:
    return statistics.median(one - other for one, other in zip(longer, shorter, strict=True))


def _without_launcher(before: Sequence[str]) -> tuple[str, ...]:
    """Return bubblewrap's command line as the launcher would have it, without what the launcher adds."""
    count = int(before[_BEFORE_THE_WORDS])
    words = ["--ro-bind" if word == "--copy" else word for word in before[_BEFORE_THE_WORDS + 1 :]]
    return (*words[:count], "--", *words[count:])


def _taken_over(ours: socket.socket) -> None:
    """Close the sockets that a start has handed over."""
    _, descriptors, _, _ = socket.recv_fds(ours, 4096, 253)
    assert len(descriptors) == _PLACES
    for descriptor in descriptors:
        os.close(descriptor)
    assert ours.recv(4096) == b".\n"


def _started(before: Sequence[str], *inherited: int) -> float:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"go\n")
        return _timed([*before, str(theirs.fileno()), "/bin/true"], theirs.fileno(), *inherited)


def _timed(command: Sequence[str], *inherited: int) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, pass_fds=inherited, env={"PATH": PATH}, stdin=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000
