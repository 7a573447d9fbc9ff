"""What operators and the service manager exchange with a running daemon.

`run_commands` does what operators ask for. Their commands run in other processes, so they ask through the database.

`ServiceManager` tells the service manager that the daemon is ready, alive or stopping: a datagram each, in the protocol
of systemd's sd_notify(3), which other managers speak too:
https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html. If no manager listens, nothing is sent.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio

from claudeops.domain.commands import CommandName
from claudeops.domain.outcome import StopCause
from claudeops.engine.ports import Clock, Queue
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import DatabaseTrouble

LOOK_SECONDS: Final = 1.0
"""How soon a command is noticed."""

_SIGNS_IN_TIME: Final = 3
"""Signs of life per watchdog time, so that one or two may come late."""


async def run_commands(queue: Queue, clock: Clock, stop_all: Callable[[StopCause], int], log: Logger) -> None:
    """Take commands and run them until cancelled. While the database fails, they wait."""
    trouble = DatabaseTrouble(log, "orders")
    while True:
        pause = LOOK_SECONDS
        try:
            for command in await queue.take_commands(now=clock.now()):
                log.warning(LogEvent.ORDER_TAKEN, order=command.name, requested_by=command.requested_by)
                if command.name == CommandName.STOP_SESSIONS:
                    result, error = f"{stop_all(StopCause.PAUSED)} sessions were asked to stop", None
                else:
                    result, error = None, "this release does not know the order"
                await queue.finish_command(command.id, result=result, error=error, now=clock.now())
        except StoreError as error_of_database:
            pause = trouble.failed(error_of_database)
        else:
            trouble.over()
        await anyio.sleep(pause)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceManager:
    """The daemon's side of the protocol; raises nothing, because a deaf manager must not end the daemon."""

    address: str | None  # of the manager's socket; ``@`` in front: an abstract name; None: there is no manager
    watchdog_seconds: float | None
    log: Logger

    def ready(self) -> None:
        """Say that sessions may start."""
        self._tell("READY=1")

    def stopping(self) -> None:
        """Say that the orderly shutdown has begun."""
        self._tell("STOPPING=1")

    async def show_life(self) -> None:
        """Send signs of life until cancelled, if a manager wants them: they show that the event loop still runs."""
        if self.address is None or self.watchdog_seconds is None:
            return
        while True:
            self._tell("WATCHDOG=1")
            await anyio.sleep(self.watchdog_seconds / _SIGNS_IN_TIME)

    def _tell(self, what: str) -> None:
        if self.address is None:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.settimeout(0)  # a manager whose queue is full must not hold up the event loop
                out.sendto(what.encode(), address)
        except OSError as error:
            self.log.warning(LogEvent.SERVICE_MANAGER_DEAF, said=what, error=str(error))
