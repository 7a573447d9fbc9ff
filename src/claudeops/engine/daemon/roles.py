"""Roles: what one daemon does for all that work on a database, each with a lease, and its loops while that is held.

A daemon that is the only one has every role from its start to its end, and renews nothing. One of several takes what is
free and renews it at the moments of its sign of life, but by itself, because that waits for other writers. Where it
could not renew for two thirds of a lease it leaves the work alone, before another may begin with it: its loops are
cancelled, and what they keep in memory is dropped. That time is measured by a clock that goes on while the machine
sleeps. A daemon that is stopped in the midst of its work finds in its next transaction that the term is another's;
nothing is written then, and the role is lost.

While the database is away the loops of a daemon that is the only one wait for it, as they do for any other failure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
import msgspec
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from claudeops.clock import Clock
from claudeops.domain.owner import HOLD_SECONDS, Lease
from claudeops.errors import DatabaseUnavailableError, StaleTermError, StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.leases import Leases
from claudeops.tasks import DatabaseTrouble, open_tasks, until_tick

RENEW_SECONDS: Final = 5.0
"""Between two renewals, and how long one may take."""


def _nothing() -> None:
    return


class FleetRole(msgspec.Struct, frozen=True, kw_only=True):
    """Work that one daemon does at a time."""

    name: str  # of its lease
    loops: Sequence[Callable[[], Coroutine[object, object, None]]] = ()  # each runs until cancelled
    forget: Callable[[], None] = _nothing  # drops what they keep in memory


class _HeldRole(msgspec.Struct, kw_only=True):
    """A role whose loops run, or are about to end."""

    lease: Lease
    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    is_lost: bool = False
    is_given_back: bool = False  # once its loops have ended, instead of when the lease is over


@dataclass(kw_only=True)
class Roles:
    """The roles of one daemon."""

    leases: Leases
    owner: str  # the daemon's name
    clock: Clock
    log: Logger
    alone: bool  # no other daemon can work on the database: nothing is renewed, and a dead one's leases are taken
    may_hold: Callable[[], bool] = lambda: True  # False: this daemon's clock is wrong; asked where others can take over
    changed: Callable[[], None] = _nothing  # called after roles were taken or lost
    renew_seconds: float = RENEW_SECONDS
    _roles: dict[str, FleetRole] = field(default_factory=dict)
    _held: dict[str, _HeldRole] = field(default_factory=dict)
    _until: float = 0.0  # seconds since boot: when they are left alone unless they are renewed
    _renewed: anyio.Event = field(default_factory=anyio.Event)
    _tasks: TaskGroup = field(init=False)
    _trouble: DatabaseTrouble = field(init=False)

    def __post_init__(self) -> None:
        self._trouble = DatabaseTrouble(self.log, "leases")

    async def run(self, roles: Sequence[FleetRole], *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Take these roles and run their loops until cancelled; started after the first try."""
        self._roles = {role.name: role for role in roles}
        async with open_tasks() as self._tasks:
            await self.renew()
            task_status.started()
            if not self.alone:
                self._tasks.start_soon(self._keep_renewing)
            await self._leave_in_time()

    async def renew(self) -> None:
        """Renew the leases that are held, and take those that are free. Raises nothing.

        A daemon that is the only one calls it whenever it surely has the lock on the database; mostly nothing is to be
        done.
        """
        if self.alone and len(self._held) == len(self._roles):
            return
        self._leave_overdue()
        if not (self.alone or self.may_hold()):
            for held in self._held.values():
                held.is_given_back = True
                self._lose(held, "this machine's clock is wrong")
            return
        began = self.clock.since_boot()
        try:
            # A stop waits for it: a lease that is taken after the departure is nobody's until its end.
            with anyio.fail_after(RENEW_SECONDS, shield=True):
                found = await self.leases.take(self._roles, self.owner, alone=self.alone)
        except TimeoutError:
            self._trouble.failed(DatabaseUnavailableError("the database did not renew the leases in time."))
            return
        except StoreError as error:
            self._trouble.failed(error)
            return
        self._trouble.over()
        self._until = math.inf if self.alone else began + HOLD_SECONDS
        for name, held in self._held.items():
            if held.is_lost:
                self.leases.drop(name)  # its loops have not ended yet, and may write no more
            elif found.get(name) != held.lease:
                self._lose(held, "another daemon has had it since")
        self._leave_overdue()  # the machine may have slept meanwhile
        if self.clock.since_boot() < self._until:
            self._begin([lease for name, lease in found.items() if name not in self._held])
        self._renewed.set()

    def holds(self, name: str) -> bool:
        """Return whether this daemon has a role now."""
        held = self._held.get(name)
        return held is not None and not held.is_lost and self.clock.since_boot() < self._until

    def held(self) -> Sequence[str]:
        """Return the names of the roles that this daemon has now."""
        return sorted(filter(self.holds, self._held))

    def _begin(self, taken: Collection[Lease]) -> None:
        if not taken:
            return
        for lease in taken:
            self._held[lease.name] = held = _HeldRole(lease=lease)
            self._tasks.start_soon(self._serve, self._roles[lease.name], held)
        self.log.info(LogEvent.ROLE_TAKEN, roles=sorted(lease.name for lease in taken))
        self.changed()

    async def _serve(self, role: FleetRole, held: _HeldRole) -> None:
        """Run the loops of a role until it is lost."""
        try:
            with held.scope:
                async with anyio.create_task_group() as tasks:
                    for loop in role.loops:
                        tasks.start_soon(loop)
                    await anyio.sleep_forever()
        except* StaleTermError as refused:
            self._lose(held, str(next(_each(refused))))
        role.forget()
        if held.is_given_back:
            try:
                await self.leases.give_back([held.lease])
            except StoreError as error:
                self._trouble.failed(error)
        del self._held[role.name]

    def _lose(self, held: _HeldRole, why: str) -> None:
        if held.is_lost:
            return
        held.is_lost = True
        held.scope.cancel()
        self.leases.drop(held.lease.name)
        self.log.warning(LogEvent.ROLE_LOST, role=held.lease.name, error=why)
        self.changed()

    async def _keep_renewing(self) -> None:
        while True:
            await anyio.sleep(until_tick(self.renew_seconds, anyio.current_time()))
            await self.renew()

    async def _leave_in_time(self) -> None:
        """Leave the roles alone when their time is over, until cancelled."""
        while True:
            self._renewed = anyio.Event()
            with anyio.move_on_after(self._until - self.clock.since_boot() if self.held() else math.inf):
                await self._renewed.wait()
            self._leave_overdue()

    def _leave_overdue(self) -> None:
        if self.clock.since_boot() >= self._until:
            for held in self._held.values():
                self._lose(held, "it could not be renewed in time")


def _each(group: BaseExceptionGroup[StaleTermError]) -> Iterator[StaleTermError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _each(error)
        else:
            yield error
