"""A burst of sessions that are due at once: how much of a slot's time is work."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from benchmarks.table import Setup, Table, shown, verdict
from claudeops.domain.looks import EvidenceLook
from claudeops.domain.report.report import Escalation, Extraction, ExtractionMethod, Report, ServiceCheck, ServiceStatus
from claudeops.domain.sessions import Ending, Finished, Outcome, Session
from claudeops.engine.control import RunningSessions, StopControl
from claudeops.engine.daemon.status import StatusFile, StatusWriter
from claudeops.engine.ports import SessionListener
from claudeops.engine.session.supervisor import Supervisor
from support.estate import Estate, open_estate

SHARE: Final = 0.95
"""Of the ideal, where a slot does nothing but work."""

SLOTS: Final = 2
WORK_SECONDS: Final = 0.01
_RUNS: Final = 3  # at most: each takes several seconds


def rate(setup: Setup) -> Table:
    """Measure with the real queue, claims, ends and wake-ups; only the session itself is replaced by a wait."""
    rates = [anyio.run(_burst, setup) for _ in range(min(setup.repeats, _RUNS))]
    ideal = SLOTS / WORK_SECONDS
    median = sorted(rates)[len(rates) // 2]
    return Table(
        title=f"Burst: {setup.burst} sessions due at once, {SLOTS} slots, {WORK_SECONDS * 1000:g} ms of work each",
        columns=("", "runs", "sessions/s", "of the ideal", "target"),
        rows=[
            (
                "claimed, run, ended",
                str(len(rates)),
                shown(rates),
                f"{median / ideal:.0%}",
                f"{ideal * SHARE:.0f} ({verdict(met=median >= ideal * SHARE)})",
            )
        ],
        notes=(
            f"Ideal: {ideal:g} a second. SQLite with WAL and synchronous=FULL; a healthy report with one check each.",
            "95 % leaves half a millisecond between two sessions. A claim's statements and its commit, which must be",
            "on the disk before anything is started, take longer than that; ends are written beside the work.",
        ),
    )


async def _burst(setup: Setup) -> float:
    """Return sessions a second, from the first claim to the last end."""
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        async with open_estate(Path(name)) as estate:
            for _ in range(setup.burst):
                await estate.queue()
            work = _Work(estate, setup.burst)
            async with _supervised(estate, work) as run:
                started = time.perf_counter()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run.run)
                    await work.done.wait()
                    taken = time.perf_counter() - started
                    await run.drain(0)
            return setup.burst / taken


@asynccontextmanager
async def _supervised(estate: Estate, work: _Work) -> AsyncIterator[Supervisor]:
    """Return a supervisor; ``daemon.json`` is kept true meanwhile, as the daemon does."""
    running = RunningSessions()
    keeper = StatusWriter(
        file=StatusFile(estate.root / "daemon.json", estate.owner, estate.context.clock.now()),
        holds=estate.store.holds,
        clock=estate.context.clock,
        running=running.sessions,
        log=estate.context.log,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        yield estate.supervisor(run_session=work, running=running, listeners=[keeper, work], slots=SLOTS)
        tasks.cancel_scope.cancel()


class _Work(SessionListener):
    """Stands for `SessionRunner.run`."""

    def __init__(self, estate: Estate, expected: int) -> None:
        self._estate = estate
        self._left = expected
        self.done = anyio.Event()

    async def __call__(self, session: Session, _control: StopControl) -> Ending:
        await anyio.sleep(WORK_SECONDS)
        check = ServiceCheck(service="web", status=ServiceStatus.HEALTHY, detail="answers 200")
        report = Report(summary="Looked at web.", escalation=Escalation(needed=False), services_checked=(check,))
        return Ending(
            session_id=session.id,
            attempt=session.attempt,
            outcome=Outcome.SUCCESS,
            extraction=Extraction(method=ExtractionMethod.STRUCTURED, report=report),
            ended_at=self._estate.context.clock.now(),
            duration_ms=round(WORK_SECONDS * 1000),
            calls_ran=1,
            looks=(EvidenceLook(),),
        )

    def ended(self, session: Session, ending: Ending, finished: Finished) -> None:  # noqa: ARG002 - every end counts
        self._left -= 1
        if not self._left:
            self.done.set()
