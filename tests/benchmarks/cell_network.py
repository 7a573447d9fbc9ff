"""What a session's own network costs: a new connection, and many bytes, beside the machine's network."""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio

from benchmarks.table import Setup, Table, spread, verdict
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import PYTHON, BubblewrapCell, interpreter
from claudeops.engine.cell.cell import IsolationLevel, OwnNetwork, SandboxSpec
from claudeops.engine.cell.forwarder import open_network
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.cell.own_network import Network, hosts_file
from support.levels import PATH

CONNECTION_MILLISECONDS: Final = 1.0
"""More for a new connection with its answer, at the median."""

THROUGHPUT: Final = 0.5
"""Of what the machine's own network carries."""

_CONNECTIONS: Final = 300  # for each repeat
_BYTES: Final = 256 * 1024 * 1024

# A connection is a question of a byte and its answer. Bulk is one connection with one way at a time.
_CLIENT: Final = f"""
import json, socket, sys, time
port, connections = int(sys.argv[1]), int(sys.argv[2])
def connected(kind):
    mine = socket.create_connection(("127.0.0.1", port))
    mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    mine.sendall(kind)
    return mine
taken = []
for _ in range(connections):
    began = time.perf_counter()
    with connected(b"q") as mine:
        assert mine.recv(1) == b"a"
    taken.append((time.perf_counter() - began) * 1000)
room, rates = bytearray(1 << 20), {{}}
for name, kind in (("down", b"d"), ("up", b"u")):
    began = time.perf_counter()
    with connected(kind) as mine:
        if name == "down":
            while mine.recv_into(room):
                pass
        else:
            for _ in range({_BYTES} >> 20):
                mine.sendall(room)
            mine.shutdown(socket.SHUT_WR)
            assert mine.recv(1) == b"a"
    rates[name] = {_BYTES} / (time.perf_counter() - began) / 1e6
print(json.dumps([taken, rates]))
"""

# In a process of its own, as a destination is: the daemon's threads do not share their interpreter with it.
_SERVER: Final = f"""
import socket, sys, threading
room = bytes(1 << 20)
def serve(one):
    with one:
        kind = one.recv(1)
        if kind == b"d":
            for _ in range({_BYTES} >> 20):
                one.sendall(room)
            return
        if kind == b"u":
            into = bytearray(1 << 20)
            while one.recv_into(into):
                pass
        one.sendall(b"a")
with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        one, _ = listener.accept()
        threading.Thread(target=serve, args=(one,), daemon=True).start()
"""


def connections(setup: Setup) -> Table:
    """Measure the same program on the machine's network and on a session's own, in turn."""
    cell = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert isinstance(cell, BubblewrapCell), cell
    taken: dict[str, list[float]] = {"the machine's": [], "a session's own": []}
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in taken}
    with _serving() as port:
        for _ in range(setup.repeats):
            for name in taken:
                found = _direct(port) if name == "the machine's" else anyio.run(_within, cell, setup.directory, port)
                taken[name] += found[0]
                rates[name].append(found[1])
    more = statistics.median(taken["a session's own"]) - statistics.median(taken["the machine's"])
    share = {
        way: statistics.median(
            own[way] / direct[way] for own, direct in zip(rates["a session's own"], rates["the machine's"], strict=True)
        )
        for way in ("down", "up")
    }
    targets = (
        f"1 ms more ({verdict(met=more <= CONNECTION_MILLISECONDS)}: {more:.2f})",
        f"{THROUGHPUT:g} ({verdict(met=min(share.values()) >= THROUGHPUT)}: {share['down']:.2f}, {share['up']:.2f})",
    )
    return Table(
        title="Network of a session: connections to a listed place, a byte each way; and 256 MiB each way",
        columns=("", "connections", "median ms", "p99 ms", "longest ms", "MB/s down", "MB/s up", "targets"),
        rows=[
            (
                name,
                str(len(taken[name])),
                *spread(taken[name]),
                *(f"{statistics.median(rate[way] for rate in rates[name]):.0f}" for way in ("down", "up")),
                targets[number],
            )
            for number, name in enumerate(taken)
        ],
        notes=("On loopback, the destination a process of its own; of throughput the median of the pairs' shares.",),
    )


@contextmanager
def _serving() -> Iterator[int]:
    server = subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.communicate()


def _direct(port: int) -> tuple[list[float], dict[str, float]]:
    return _ran([str(PYTHON), "-I", "-S"], port)


async def _within(cell: BubblewrapCell, directory: Path, port: int) -> tuple[list[float], dict[str, float]]:
    workspace = workspaces.make(directory / "session", template_home=None)
    cell.hand_over(workspace)
    (directory / "repos").mkdir(exist_ok=True)
    network = Network(tcp=(("127.0.0.1", port),))
    async with open_network(network, lambda failure: sys.exit(failure.error)) as opened:
        own = OwnNetwork(door=opened.door, hosts=hosts_file(network))
        spec = SandboxSpec(
            workspace=workspace,
            binary=PYTHON,
            repos_dir=directory / "repos",
            path=PATH,
            shown=interpreter(),
            network=own,
        )
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(b"go\n")
            command = [*cell.enclose(spec).before, str(theirs.fileno()), str(PYTHON), "-I", "-S"]
            found = await anyio.to_thread.run_sync(lambda: _ran(command, port, theirs.fileno(), own.door))
    shutil.rmtree(workspace.root)
    return found


def _ran(command: list[str], port: int, *inherited: int) -> tuple[list[float], dict[str, float]]:
    words = [*command, "-c", _CLIENT, str(port), str(_CONNECTIONS)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, pass_fds=inherited, env={"PATH": PATH})
    taken, rates = json.loads(done.stdout)
    return taken, rates
