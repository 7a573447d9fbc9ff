"""Several daemons on one PostgreSQL, each as on a machine of its own: a namespace of process ids, a road to the server.

Who sees another's process judges by that. So each daemon runs where it sees none of the others, as in containers, and
the signs of life decide. When it is killed, everything that it started ends with it, as with a machine.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import anyio
import psutil
import sqlalchemy as sa

from support.operating import COMMAND, Daemon
from support.stand_in_daemon import StandInNode, stand_in_node, told
from support.stores import Database
from support.waiting import PATIENCE_SECONDS, until

APART: Final = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")

TAKEOVER_SECONDS: Final = 30.0
STOP_SECONDS: Final = 1.0


@cache
def refusal() -> str | None:
    """Return why daemons cannot be kept from seeing each other here; ``None``: they can."""
    try:
        done = subprocess.run([*APART, "true"], capture_output=True, check=False, timeout=PATIENCE_SECONDS)
    except OSError as error:
        return f"unshare does not run: {error}"
    return done.stderr.decode(errors="replace").strip() or "unshare failed" if done.returncode else None


class Road:
    """A node's road to PostgreSQL, over TCP on loopback, which can be cut; a thread carries what is said."""

    def __init__(self, server: Path) -> None:
        self.is_cut = False
        self._server = str(server)  # its socket
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._order, self._orders = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._other_end: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run)
        for watched in (self._listener, self._orders):
            self._selector.register(watched, selectors.EVENT_READ)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def cut(self) -> None:
        """Break every connection, and refuse all others until `is_cut` says otherwise."""
        self.is_cut = True
        self._order.send(b"c")

    def close(self) -> None:
        """Break every connection, and be no road any more."""
        self._order.send(b"e")
        self._thread.join()
        for left in (self._listener, self._order, self._orders, self._selector):
            left.close()

    def _run(self) -> None:
        order = b""
        while order != b"e":
            for key, _ in self._selector.select():
                ready = key.fileobj
                if ready is self._orders:
                    order = self._orders.recv(1)
                    for end in tuple(self._other_end):
                        self._drop(end)
                elif ready is self._listener:
                    self._accept()
                elif isinstance(ready, socket.socket) and ready in self._other_end:
                    self._carry(ready)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.socket(socket.AF_UNIX)
        try:
            if not self.is_cut:
                server.connect(self._server)
        except OSError:
            pass
        else:
            if not self.is_cut:
                self._other_end |= {client: server, server: client}
                for end in (client, server):
                    self._selector.register(end, selectors.EVENT_READ)
                return
        client.close()
        server.close()

    def _carry(self, source: socket.socket) -> None:
        try:
            said = source.recv(65_536)
            if said:
                self._other_end[source].sendall(said)
        except OSError:
            said = b""
        if not said:
            self._drop(source)

    def _drop(self, end: socket.socket) -> None:
        for each in (end, self._other_end.get(end)):
            if each is not None and self._other_end.pop(each, None) is not None:
                self._selector.unregister(each)
                each.close()


@dataclass
class Machine:
    """A node as an operator sees it: its directories, its CLI, its daemon, its road to the database."""

    name: str
    node: StandInNode
    road: Road
    database: Database
    daemon: Daemon = field(init=False)
    pid: int = field(init=False, default=0)  # of the daemon itself

    @property
    def root(self) -> Path:
        return self.node.root

    def settings(self, **changes: str) -> dict[str, str]:
        """Return the settings of one of several daemons, unless the changes say that it is the only one."""
        name = sa.make_url(self.database.url).database
        return self.node.settings(
            CLAUDEOPS_DATABASE_URL=f"postgresql://claudeops@127.0.0.1:{self.road.port}/{name}",
            CLAUDEOPS_NODE=self.name,
            CLAUDEOPS_TAKEOVER_TIMEOUT=f"{TAKEOVER_SECONDS:g}",
            CLAUDEOPS_STOP_GRACE=f"{STOP_SECONDS:g}",
            CLAUDEOPS_LOG_GRACE="0",  # no other machine has its logs
            CLAUDEOPS_TIER1_ENV="STAND_IN_STEPS,SIGNALS",  # what they name can be read in the cell
            SIGNALS=str(self.signals),
            **{"CLAUDEOPS_DISPATCHER": "procrastinate"} | changes,
        )

    @property
    def signals(self) -> Path:
        """Where the test leaves signs for a session."""
        return self.root / "signals"

    @asynccontextmanager
    async def running(self, **changes: str) -> AsyncIterator[None]:
        """Run the daemon while the block runs; it is stopped politely unless it is gone by then."""
        async with self.node.operator.daemon(**self.settings(**changes)) as self.daemon:
            try:
                await until(self._is_there)
                await self.daemon.until_logged("daemon_ready")
                yield
            finally:
                self.signal(signal.SIGCONT)
                self.signal(signal.SIGTERM)
                with anyio.CancelScope(shield=True), anyio.move_on_after(PATIENCE_SECONDS / 4):
                    await self.daemon.process.wait()
                self.signal(signal.SIGKILL)
                with anyio.CancelScope(shield=True):
                    await self.daemon.process.wait()

    def _is_there(self) -> bool:
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.daemon.process.pid).children():
                self.pid = child.pid
        return bool(self.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send the daemon itself a signal."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def logged(self, *events: str) -> Sequence[Mapping[str, object]]:
        """Return what the daemon has logged of some events."""
        return told(self.daemon, *events)


@asynccontextmanager
async def machine(name: str, root: Path, server: Path, database: Database) -> AsyncIterator[Machine]:
    """Give a machine below ``root``, whose daemon does not run yet."""
    root.mkdir()
    (root / "signals").mkdir()
    async with stand_in_node(root) as node:
        node.operator.forks = False
        node.operator.runs = (*APART, *COMMAND, "run")
        with contextlib.closing(Road(server / ".s.PGSQL.5432")) as road:
            yield Machine(name, node, road, database)


def share_key(one: Machine, other: Machine) -> None:
    """Give a machine the key that all have alike, by which approvals are proven."""
    shutil.copy(one.root / "state" / "approval.key", other.root / "state" / "approval.key")
