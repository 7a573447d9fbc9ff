"""What a daemon takes over while it runs, and what it leaves to those that have the log."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import anyio
import pytest

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.owner import LOG_GRACE, OWNER_LEASE, Outlook, Owner
from claudeops.domain.sessions import Ending, Finished
from claudeops.engine.recovery.recovery import SessionRecovery
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.queue import Queue
from claudeops.structs import replace
from support.estate import Estate, deliver, look, report
from support.replays import ran
from support.waiting import until

pytestmark = pytest.mark.anyio


class LaterClock(Clock):
    """The wall clock, moved on."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


async def daemon_beside(estate: Estate) -> tuple[SessionRecovery, Outlook, LaterClock]:
    """Return a second daemon, on another machine, with its place on record."""
    owner = Owner(name="node-2", pid=4712, process_started_at=1.0, boot_id="boot-2")
    await estate.store.recovery.reconcile(owner, now=estate.context.clock.now(), alive=lambda _: True)
    clock = LaterClock()
    clock.ahead = OWNER_LEASE
    context = replace(estate.context, clock=clock)
    return SessionRecovery(context=context), Outlook(owner=owner, sole=False, watched=OWNER_LEASE), clock


def outcomes(estate: Estate) -> list[object]:
    return [row["outcome"] or row["status"] for row in estate.rows("SELECT * FROM sessions ORDER BY id")]


async def test_session_of_an_owner_that_died_later_ends_by_its_log_without_a_start(estate: Estate) -> None:
    await ran(estate, look(), deliver(report()))
    recovery, outlook, _ = await daemon_beside(estate)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recovery.run)
        recovery.wake(outlook)
        await until(lambda: outcomes(estate) == ["success"])
        tasks.cancel_scope.cancel()

    assert "sessions_reconciled" in estate.logged.getvalue()
    assert [row["owner"] for row in estate.rows("SELECT owner FROM instances")] == ["node-2"]


async def test_node_that_died_without_a_session_is_one_line_of_whoever_finds_it(estate: Estate) -> None:
    estate.execute("UPDATE instances SET node = 'loft' WHERE boot_id <> 'boot-2'")
    recovery, outlook, clock = await daemon_beside(estate)
    clock.ahead = OWNER_LEASE / 2
    assert await recovery.sweep(outlook) == ()
    assert "node_dead" not in estate.logged.getvalue()

    clock.ahead = OWNER_LEASE
    for _ in range(2):
        assert await recovery.sweep(outlook) == ()

    assert estate.logged.getvalue().count('"node_dead"') == 1
    assert [row["fingerprint"] for row in estate.rows("SELECT * FROM events")] == ["fleet:dead loft"]


async def test_owner_that_lives_keeps_its_session_although_its_log_is_here(estate: Estate) -> None:
    await ran(estate, look(), deliver(report()))
    recovery, outlook, clock = await daemon_beside(estate)
    clock.ahead = OWNER_LEASE / 2

    assert await recovery.sweep(outlook) == ()
    assert outcomes(estate) == ["running"]


async def test_session_whose_log_is_elsewhere_is_lost_only_after_a_grace(estate: Estate) -> None:
    await ran(estate, look(), deliver(report()))
    Path(estate.log_path(1)).unlink()
    recovery, outlook, clock = await daemon_beside(estate)

    assert await recovery.sweep(outlook) == ()
    assert [row["owner"] for row in estate.rows("SELECT owner FROM instances")] == ["node-2"]
    clock.ahead = LOG_GRACE - timedelta(seconds=30)
    assert await recovery.sweep(outlook) == ()
    assert outcomes(estate) == ["running"]
    clock.ahead = LOG_GRACE
    (taken,) = await recovery.sweep(outlook)
    await recovery.take_up([taken])

    assert (taken.attempt, outcomes(estate)) == (2, ["lost", "queued"])


async def test_log_of_a_process_of_this_machine_is_waited_for_by_no_grace(estate: Estate) -> None:
    await ran(estate, look(), deliver(report()))
    Path(estate.log_path(1)).unlink()
    recovery, outlook, _ = await daemon_beside(estate)
    successor = replace(estate.owner, name="node-1-again")
    estate.execute("UPDATE instances SET process_started_at = 1 WHERE boot_id <> 'boot-2'")

    (taken,) = await recovery.sweep(Outlook(owner=successor, sole=False, watched=outlook.watched))

    assert taken.id == 1


async def test_what_was_taken_over_and_could_not_be_ended_is_ended_when_the_database_is_back(estate: Estate) -> None:
    tries: list[int] = []

    class AwayOnce(Queue):
        """A queue whose database is away at the first end."""

        async def finish(self, ending: Ending, *, rules: EscalationRules) -> Finished:
            tries.append(ending.session_id)
            if len(tries) == 1:
                raise DatabaseUnavailableError("the database is away.")
            return await super().finish(ending, rules=rules)

    await ran(estate, look(), deliver(report()))
    estate.with_context(store=replace(estate.store, queue=AwayOnce(estate.store.database)))
    recovery, outlook, _ = await daemon_beside(estate)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recovery.run)
        recovery.wake(outlook)
        await until(lambda: outcomes(estate) == ["success"])
        tasks.cancel_scope.cancel()

    assert tries == [1, 1]


async def test_a_stop_waits_until_what_was_taken_over_has_ended_and_nothing_more_is_taken_over(estate: Estate) -> None:
    asked, let_go = anyio.Event(), anyio.Event()

    class Slow(Queue):
        """A queue whose database takes no end before the test lets it."""

        async def finish(self, ending: Ending, *, rules: EscalationRules) -> Finished:
            asked.set()
            await let_go.wait()
            return await super().finish(ending, rules=rules)

    await ran(estate, look(), deliver(report()))
    estate.with_context(store=replace(estate.store, queue=Slow(estate.store.database)))
    recovery, outlook, _ = await daemon_beside(estate)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recovery.run)
        recovery.wake(outlook)
        await asked.wait()
        async with anyio.create_task_group() as stopping:
            stopping.start_soon(recovery.settle)
            await anyio.wait_all_tasks_blocked()
            assert (outcomes(estate), recovery.unsettled()) == (["running"], [1])
            let_go.set()
        assert (outcomes(estate), recovery.unsettled()) == (["success"], [])
        recovery.wake(outlook)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()


async def test_operator_says_how_long_a_session_waits_for_its_log(estate: Estate) -> None:
    await ran(estate, look(), deliver(report()))
    Path(estate.log_path(1)).unlink()
    recovery, outlook, _ = await daemon_beside(estate)
    recovery.log_grace = timedelta(0)

    assert [session.id for session in await recovery.sweep(outlook)] == [1]
