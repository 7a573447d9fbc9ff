"""A burst of sessions that are due at once, beside as many tasks as slots that only sleep in the same process."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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
from claudeops.logs import LogEvent
from claudeops.store.claims import Claims
from support.estate import Estate, leaving_nothing, open_estate

SHARE: Final = 0.7
"""Of what tasks that only sleep reach in the same run."""

SLOTS: Final = 2
WORK_SECONDS: Final = 0.01
_RUNS: Final = 3  # at most: each takes several seconds


def rate(setup: Setup) -> Table:
    """Measure with the real queue, claims, ends and wake-ups; only the session itself is replaced by a wait.

    Runs of sessions and runs of the baseline take turns, so that both meet the same machine.
    """
    pairs = [(anyio.run(asleep, setup.burst), anyio.run(burst, setup)) for _ in range(min(setup.repeats, _RUNS))]
    slept, ran = [pair[0] for pair in pairs], [pair[1][0] for pair in pairs]
    share = statistics.median(run[0] / baseline for baseline, run in pairs)
    processor = [run[1] * 1000 for _, run in pairs]
    return Table(
        title=f"Burst: {setup.burst} sessions due at once, {SLOTS} slots, {WORK_SECONDS * 1000:g} ms of work each",
        columns=("", "runs", "a second", "of the baseline", "target", "processor ms each"),
        rows=[
            ("baseline: only sleep", str(len(pairs)), shown(slept), "", "", ""),
            (
                "claimed, run, ended",
                str(len(pairs)),
                shown(ran),
                f"{share:.0%}",
                f"{SHARE:.0%} ({verdict(met=share >= SHARE)})",
                shown(processor, 1),
            ),
        ],
        notes=(
            f"Baseline: {SLOTS} asyncio tasks that sleep {WORK_SECONDS * 1000:g} ms at a time. SQLite with WAL and",
            "synchronous=FULL; a healthy report with one check each. In the process that measures, without a CLI.",
        ),
    )


async def asleep(times: int) -> float:
    """Return sleeps a second of as many tasks as there are slots."""
    left = iter(range(times))

    async def sleep() -> None:
        for _ in left:
            await anyio.sleep(WORK_SECONDS)

    started = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(SLOTS):
            tasks.start_soon(sleep)
    return times / (time.perf_counter() - started)


async def burst(setup: Setup, url: str | None = None) -> tuple[float, float]:
    """Return sessions a second, from the first claim to the last end, and the processor seconds of each."""
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        async with open_estate(Path(name), url=url) as estate:
            for _ in range(setup.burst):
                await estate.queue()
            estate.context.log.info(LogEvent.DAEMON_READY)  # as in a daemon, the log is in use before the burst
            work = _Work(estate, setup.burst)
            async with _supervised(estate, work, estate.store.claims) as run:
                started, used = time.perf_counter(), time.process_time()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run.run)
                    await work.done.wait()
                    taken, used = time.perf_counter() - started, time.process_time() - used
                    await run.drain(0)
            return setup.burst / taken, used / setup.burst


def supervised(estate: Estate, expected: int, *, claims: Claims) -> AbstractAsyncContextManager[Supervisor]:
    """Return a supervisor of sessions that only wait."""
    return _supervised(estate, _Work(estate, expected), claims)


@asynccontextmanager
async def _supervised(estate: Estate, work: _Work, claims: Claims) -> AsyncIterator[Supervisor]:
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
        run = leaving_nothing(work)
        yield estate.supervisor(run_session=run, claims=claims, running=running, listeners=[keeper, work], slots=SLOTS)
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
