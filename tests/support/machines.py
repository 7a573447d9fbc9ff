"""Several daemons on one PostgreSQL, each as on a machine of its own: a namespace of process ids, a road to the server.

Who sees another's process judges by that. So each daemon runs where it sees none of the others, as in containers, and
the signs of life decide. When it is killed, everything that it started ends with it, as with a machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import anyio
import psutil
import sqlalchemy as sa
from anyio.abc import SocketAttribute, SocketStream

from support.operating import COMMAND, Daemon
from support.stand_in_daemon import StandInNode, stand_in_node, told
from support.stores import Database
from support.waiting import PATIENCE_SECONDS, until

APART: Final = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")

TAKEOVER_SECONDS: Final = 30.0
STOP_SECONDS: Final = 1.0
BEAT_SECONDS: Final = TAKEOVER_SECONDS / 12
"""Between two signs of life: a take-over comes at the first one after the lease."""


@cache
def refusal() -> str | None:
    """Return why daemons cannot be kept from seeing each other here; ``None``: they can."""
    try:
        done = subprocess.run([*APART, "true"], capture_output=True, check=False, timeout=PATIENCE_SECONDS)
    except OSError as error:
        return f"unshare does not run: {error}"
    return done.stderr.decode(errors="replace").strip() or "unshare failed" if done.returncode else None


@dataclass
class Road:
    """A node's road to PostgreSQL, over TCP on loopback, which can be cut."""

    server: Path  # its socket
    port: int = 0
    is_cut: bool = False
    _open: set[anyio.CancelScope] = field(default_factory=set)

    def cut(self) -> None:
        """Break every connection, and refuse all others."""
        self.is_cut = True
        for scope in tuple(self._open):
            scope.cancel()

    async def run(self, listener: anyio.abc.Listener[SocketStream]) -> None:
        """Carry what is said until cancelled."""
        await listener.serve(self._carry)

    async def _carry(self, client: SocketStream) -> None:
        with anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                async with client:
                    if self.is_cut:
                        return
                    with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                        async with await anyio.connect_unix(self.server) as server, anyio.create_task_group() as tasks:
                            tasks.start_soon(self._pass, server, client, scope)
                            await self._pass(client, server, scope)
            finally:
                self._open.discard(scope)

    async def _pass(
        self, source: anyio.abc.ByteReceiveStream, sink: anyio.abc.ByteSendStream, scope: anyio.CancelScope
    ) -> None:
        with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                await sink.send(await source.receive())
        scope.cancel()


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
        """Return the settings of one of several daemons."""
        name = sa.make_url(self.database.url).database
        return self.node.settings(
            CLAUDEOPS_DATABASE_URL=f"postgresql://claudeops@127.0.0.1:{self.road.port}/{name}",
            CLAUDEOPS_DISPATCHER="procrastinate",
            CLAUDEOPS_NODE=self.name,
            CLAUDEOPS_TAKEOVER_TIMEOUT=f"{TAKEOVER_SECONDS:g}",
            CLAUDEOPS_STOP_GRACE=f"{STOP_SECONDS:g}",
            CLAUDEOPS_LOG_GRACE="0",  # no other machine has its logs
            CLAUDEOPS_TIER1_ENV="STAND_IN_STEPS,SIGNALS",  # what they name can be read in the cell
            SIGNALS=str(self.signals),
            **changes,
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
    road = Road(server / ".s.PGSQL.5432")
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, stand_in_node(root) as node, anyio.create_task_group() as tasks:
        road.port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no query of Django's
        tasks.start_soon(road.run, listener)
        node.operator.forks = False
        node.operator.runs = (*APART, *COMMAND, "run")
        yield Machine(name, node, road, database)
        tasks.cancel_scope.cancel()


def share_key(one: Machine, other: Machine) -> None:
    """Give a machine the key that all have alike, by which approvals are proven."""
    shutil.copy(one.root / "state" / "approval.key", other.root / "state" / "approval.key")
