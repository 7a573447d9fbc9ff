"""What operators and the service manager exchange with a running daemon.

`CommandRunner` does what operators ask for. Their commands run in other processes, so they ask through the database.

`ServiceManager` tells the service manager that the daemon is ready, alive or stopping: a datagram each, in the protocol
of systemd's sd_notify(3), which other managers speak too:
https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html. If no manager listens, nothing is sent.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from typing import Final, TypeVar

import anyio
import msgspec

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.commands import Command, CommandName, StopTarget, lost_because, stop_target
from claudeops.domain.owner import Owner
from claudeops.engine.control import RunningSessions
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.commands import Commands
from claudeops.store.queue import Queue
from claudeops.tasks import DatabaseTrouble, Waiter
from claudeops.text import join_names

T = TypeVar("T")

STOP_LOOK_SECONDS: Final = 0.2
"""The time between two looks at what is left of a session or chain that is being stopped."""

_SIGNS_IN_TIME: Final = 3
"""Signs of life per watchdog time, so that one or two may come late."""


class CommandRunner(msgspec.Struct, frozen=True, kw_only=True):
    """Takes the commands of operators and carries them out, each beside the others.

    A command that was taken stays on record as taken until it is ended. If the daemon dies in between, another one
    finds it: it does it again, or ends it as lost.
    """

    commands: Commands
    queue: Queue
    running: RunningSessions
    rules: Callable[[], EscalationRules]  # as they are now: the estate may change
    clock: Clock
    owner: Owner  # this daemon
    log: Logger
    waiter: Waiter = msgspec.field(default_factory=Waiter)  # for commands

    async def run(self) -> None:
        """Take commands and carry them out until cancelled. While the database fails, they wait."""
        trouble = DatabaseTrouble(self.log, "orders")
        again = True  # until the first look has succeeded
        async with anyio.create_task_group() as tasks:
            while True:
                try:
                    now = self.clock.now()
                    for command in await self.commands.take(self.owner.name, now=now, again=again):
                        tasks.start_soon(self._carry_out, command, now)
                    again = False
                except StoreError as error:
                    await anyio.sleep(trouble.failed(error))
                else:
                    trouble.over()
                    await self.waiter.pause()

    async def _carry_out(self, command: Command, taken_at: datetime) -> None:
        result: str | None
        error: str | None
        began = datetime.fromtimestamp(self.owner.process_started_at, UTC)
        lost = lost_because(command, daemon=self.owner.name, daemon_started_at=began)
        if lost is not None:
            self.log.warning(LogEvent.ORDER_LOST, order=command.name, requested_by=command.requested_by, reason=lost)
            result, error = None, f"lost: {lost}"
        else:
            self.log.warning(LogEvent.ORDER_TAKEN, order=command.name, requested_by=command.requested_by)
            result, error = await self._until_done(lambda: self._obey(command))
        is_written = await self._until_done(
            lambda: self.commands.finish(
                command.id, taken_at=taken_at, result=result, error=error, now=self.clock.now()
            )
        )
        if not is_written:
            why = f"command {command.id} was taken again since {taken_at:%H:%M:%S} UTC."
            self.log.error(LogEvent.STALE_ATTEMPT, error=why)

    async def _obey(self, command: Command) -> tuple[str | None, str | None]:
        """Return what came of a command, or why nothing did."""
        match command.name:
            case CommandName.STOP_SESSIONS:
                return f"{self.running.stop_all(StopCause.PAUSED)} sessions were asked to stop", None
            case CommandName.STOP:
                target = stop_target(command.arguments)
                if target is None:
                    return None, "it does not say which session or chain is meant"
                return await self._stop(command, target), None
            case _:
                return None, "this release does not know the order"

    async def _stop(self, command: Command, target: StopTarget) -> str:
        """End what is queued, stop what runs, and go on until nothing is left: a session that ends may queue another.

        What runs is asked of the database: a session that was claimed just now is not among the running ones yet. What
        another daemon runs, or has taken over or claimed meanwhile, that one is to stop.
        """
        why = f"cancelled: stopped by {command.requested_by}"
        ended: set[int] = set()
        stopped: set[int] = set()
        reached = {self.owner.name}
        while True:
            now = self.clock.now()
            queued, running = await self.queue.end_queued(target, why=why, rules=self.rules(), now=now)
            ended |= set(queued)
            stopped |= set(running)
            if not running:
                break
            self.running.stop(running, StopCause.STOPPED)
            if others := set(running.values()) - reached:
                reached |= await self.commands.pass_on(command, owners=others, now=now)
            await anyio.sleep(STOP_LOOK_SECONDS)
        parts = [
            *([f"stopped {_sessions(stopped)}"] if stopped else []),
            *([f"took {_sessions(ended)} out of the queue"] if ended else []),
        ]
        return " and ".join(parts) or f"nothing of {target} was queued or running any more"

    async def _until_done(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something that may be done twice, again and again while the database fails."""
        trouble = DatabaseTrouble(self.log, "orders")
        while True:
            try:
                done = await work()
            except StoreError as error:
                await anyio.sleep(trouble.failed(error))
            else:
                trouble.over()
                return done


def _sessions(ids: Collection[int]) -> str:
    return f"session{'s' if len(ids) > 1 else ''} {join_names(tuple(map(str, sorted(ids))))}"


class ServiceManager(msgspec.Struct, frozen=True, kw_only=True):
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
