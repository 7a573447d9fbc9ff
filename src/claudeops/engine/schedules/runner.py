"""Keeps all schedules of the daemon: fires them, and reads them again when their file has changed.

The schedules on record decide what is due, so a restart, or a change of the file, skips no fire and fires none again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.probes.tier0 import Need, Tier0Gate
from claudeops.domain.schedules import fires_at
from claudeops.domain.schedules.plan import (
    Fire,
    LastFire,
    Saved,
    SchedulePlan,
    SkipReason,
    last_due,
    session_of,
    why_not,
)
from claudeops.domain.sessions import NewSession, Session
from claudeops.engine.operator_file import OperatorFile
from claudeops.engine.ports import UNCOUNTED, Counting, Dispatcher
from claudeops.engine.schedules.scheduler import WATCH_SECONDS, Scheduler
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.schedules import Schedules
from claudeops.tasks import DatabaseTrouble

Plans = tuple[SchedulePlan, ...]

_COUNTED: Final = timedelta(days=1)
"""For how long the status says what was skipped."""


async def always(_plan: SchedulePlan, _now: datetime) -> Tier0Gate:
    """Say that every look is needed."""
    return Tier0Gate(need=Need.NO_PROBES, sentence="there are no probes")


@dataclass(kw_only=True)
class ScheduleRunner:
    """Keeps the schedules until it is cancelled; starts nothing any more once it is paused."""

    plans: Plans
    schedules: Schedules
    clock: Clock
    log: Logger
    dispatcher: Dispatcher
    rules: Callable[[], EscalationRules]
    new_session: Callable[[int], NewSession]  # of a tier
    file: OperatorFile[Plans] | None = None  # says at first what the plans are; None: there is none
    gate: Callable[[SchedulePlan, datetime], Awaitable[Tier0Gate]] = always  # tier 0
    counts: Counting = UNCOUNTED
    held_back: Callable[[], bool] = lambda: False  # nothing fires for now
    watch_seconds: float = WATCH_SECONDS
    saved: Saved | None = None  # within the last day
    _paused: bool = False
    _scheduler: Scheduler | None = None

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Keep the schedules; started once the first ones are timed."""
        async with anyio.create_task_group() as tasks:
            if self.file is not None:
                tasks.start_soon(self.file.run)
            plans = await self._keep(self.plans, task_status)
            while True:
                plans = await self._keep(plans, TASK_STATUS_IGNORED)

    async def _keep(self, plans: Plans, task_status: TaskStatus[None]) -> Plans:
        """Keep some schedules until the file has others, and return those."""
        last = await self._last_fires()
        async with anyio.create_task_group() as tasks:
            scheduler = self._scheduler_of(plans, last)
            self.plans, self._scheduler = plans, scheduler  # together: `next_fires` pairs them by name
            await tasks.start(scheduler.run)
            if self._paused:
                scheduler.pause()
            self._tell(last)
            task_status.started()
            others = await self._next_plans()
            # What is on its way into the database gets there all the same, and is found there at the next turn.
            scheduler.pause()
            tasks.cancel_scope.cancel()
        return others

    @property
    def names(self) -> str:
        """The names of the schedules, for the log."""
        return ", ".join(plan.name for plan in self.plans)

    def latest(self) -> Plans:
        """Return the schedules as the file had them at the last look, also where another daemon times them."""
        return self.plans if self.file is None else self.file.value

    def pause(self) -> None:
        """Start no more fires. A fire under way is not cut off."""
        self._paused = True
        if self.file is not None:
            self.file.pause()
        if self._scheduler is not None:
            self._scheduler.pause()

    def forget(self) -> None:
        """Time nothing any more, and begin anew by what is on record."""
        self._scheduler = None

    def next_fires(self) -> Mapping[str, datetime | None]:
        """Return when each schedule fires next, ``None`` for those that are switched off."""
        scheduler = self._scheduler
        return {
            plan.name: scheduler.next_fire(plan.name) if plan.enabled and scheduler is not None else None
            for plan in self.plans
        }

    def _scheduler_of(self, plans: Plans, last: Mapping[str, LastFire]) -> Scheduler:
        kept = {plan.name: plan for plan in plans if plan.enabled}
        due = {name: last_due(plan, last.get(name)) for name, plan in kept.items()}
        return Scheduler(
            clock=self.clock,
            schedules=[plan.schedule for plan in kept.values()],
            fire=lambda name, due_at: self._fire(kept[name], due_at),
            on_error=lambda name, due_at, error: self.log.error(
                LogEvent.SCHEDULE_FIRE_FAILED, schedule=name, due_at=due_at.isoformat(), error=str(error)
            ),
            last_due={name: due_at for name, due_at in due.items() if due_at is not None},
            held_back=self.held_back,
            watch_seconds=self.watch_seconds,
        )

    def _tell(self, last: Mapping[str, LastFire]) -> None:
        for name, next_fire in self.next_fires().items():
            recorded = last.get(name)
            self.log.info(
                LogEvent.SCHEDULE_KEPT,
                schedule=name,
                last_due=None if recorded is None else recorded.due_at.isoformat(),
                next_fire=None if next_fire is None else next_fire.isoformat(),
            )

    async def _last_fires(self) -> Mapping[str, LastFire]:
        trouble = DatabaseTrouble(self.log, "schedule")
        while True:
            try:
                last = await self.schedules.last_fires()
                await self._count()
            except StoreError as error:
                await anyio.sleep(trouble.failed(error))
            else:
                trouble.over()
                return last

    # --- firing ---------------------------------------------------------------------------------------

    async def _fire(self, plan: SchedulePlan, due_at: datetime) -> None:
        now = self.clock.now()
        skip = why_not(plan, due_at, (await self.schedules.last_fires()).get(plan.name), now)
        needed = None if skip is not None else await self.gate(plan, now)
        if needed is not None and needed.may_skip:
            skip = SkipReason.UNCHANGED
        saved = await self.schedules.mean_cost(plan.name) if skip is SkipReason.UNCHANGED else None
        fire = Fire(schedule=plan.name, due_at=due_at, overlap=plan.overlap, skip=skip, saved_usd=saved)
        new = session_of(plan, self.new_session(plan.tier))
        result = await self.schedules.fire(fire, new, rules=self.rules(), now=now)
        if result is not None:
            self.counts.fired((now - fires_at(plan.schedule, due_at)).total_seconds())
        about = {"schedule": plan.name, "due_at": due_at.isoformat()}
        match result:
            case Session():
                self.log.info(LogEvent.SCHEDULE_FIRED, session_id=result.id, **about)
                await self.dispatcher.announce()
            case SkipReason.UNCHANGED:
                why = "" if needed is None else needed.sentence
                self.log.info(LogEvent.SCHEDULE_SKIPPED, reason=result.value, saved_usd=saved, why=why, **about)
            case SkipReason():
                self.log.warning(LogEvent.SCHEDULE_SKIPPED, reason=result.value, **about)
            case None:
                pass  # already fired: by an earlier daemon, or before the clock was set back
        await self._count()

    async def _count(self) -> None:
        self.saved = await self.schedules.saved(self.clock.now() - _COUNTED)

    async def _next_plans(self) -> Plans:
        """Return the schedules of the file as soon as they are others than those in force."""
        file = self.file
        while file is None or self._paused or file.value == self.plans:
            await (anyio.sleep_forever() if file is None else file.change())
        self.log.info(LogEvent.SCHEDULES_CHANGED, schedules=[plan.name for plan in file.value])
        return file.value
