"""Claiming, slots, escalation, draining: the queue's way through a daemon."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import anyio
import pytest

from claudeops.app.chain import follow
from claudeops.dispatch.local import LocalDispatcher
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.looks import EvidenceLook
from claudeops.domain.report.report import Escalation, Extraction, ExtractionMethod, Report
from claudeops.domain.sessions import Ending, Finished, Outcome, Session
from claudeops.engine.control import StopControl
from claudeops.engine.ports import SessionListener
from claudeops.engine.recovery.recovery import SessionRecovery
from claudeops.engine.session.supervisor import Supervisor
from claudeops.engine.system import GROWN_BYTES, FreeMemory
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.claims import Claims
from claudeops.store.queue import Queue
from claudeops.store.recovery import Recovery
from claudeops.structs import replace
from support.estate import Estate, deliver, leaving_nothing, look, report
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio


_STOPPED: dict[StopCause | None, Outcome] = {StopCause.CANCELLED: Outcome.CANCELLED, StopCause.LEASE_OVER: Outcome.LOST}


class ScriptedSessions:
    """Stands for `SessionRunner.run`: sessions start, and end when the test says so."""

    def __init__(self, estate: Estate) -> None:
        self.estate = estate
        self.started: dict[int, StopControl] = {}
        self.gates: dict[int, anyio.Event] = {}
        self._more = anyio.Event()

    async def __call__(self, session: Session, control: StopControl) -> Ending:
        self.started[session.id] = control
        gate = self.gates.setdefault(session.id, anyio.Event())
        self._more.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_when_asked, control, gate)
            await gate.wait()
            tasks.cancel_scope.cancel()
        return Ending(
            session_id=session.id,
            attempt=session.attempt,
            outcome=_STOPPED.get(control.cause, Outcome.ERROR),
            extraction=Extraction(method=ExtractionMethod.NONE, report=None),
            ended_at=self.estate.context.clock.now(),
            duration_ms=1,
            calls_ran=0,
        )

    async def _end_when_asked(self, control: StopControl, gate: anyio.Event) -> None:
        await control.asked()
        gate.set()

    async def until_started(self, count: int) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            while len(self.started) < count:
                self._more = anyio.Event()
                await self._more.wait()


@asynccontextmanager
async def supervised(estate: Estate, **changes: object) -> AsyncIterator[Supervisor]:
    supervisor = estate.supervisor(**changes)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        yield supervisor
        await supervisor.drain(0)


async def always() -> bool:
    return True


async def until_all_ended(estate: Estate, root_id: int) -> list[Session]:
    with anyio.fail_after(PATIENCE_SECONDS):
        return list(await follow(estate.store, root_id, told=lambda _: None, served=always))


async def test_an_escalation_becomes_the_next_tiers_session_with_its_context(estate: Estate) -> None:
    estate.script(look(), deliver(report(needed=True, status="down")))
    root = await estate.queue()
    async with supervised(estate):
        chain = await until_all_ended(estate, root.id)
    assert [(session.tier, session.decision_reason) for session in chain] == [
        (1, "escalated"),
        (2, "escalated"),
        (3, "max_tier"),
    ]
    assert {session.root_session_id for session in chain} == {root.id}
    context = json.loads(str(estate.row(chain[1].id)["context"]))
    assert context["reason"] == "web answers 502"
    assert context["failed_checks"] == ["web http"]
    assert context["service_status"][0]["status"] == "down"
    assert estate.rows("SELECT level FROM events WHERE level = 'critical'")


async def test_memory_that_a_session_needed_goes_back_once_its_end_is_written(estate: Estate) -> None:
    sizes, ended = iter((0, 2 * GROWN_BYTES, GROWN_BYTES)), []

    def trim() -> None:
        ended.append(estate.row(1)["status"])

    sessions = ScriptedSessions(estate)
    await estate.queue()
    async with supervised(estate, run_session=leaving_nothing(sessions), memory=FreeMemory(lambda: next(sizes), trim)):
        await sessions.until_started(1)
        sessions.gates[1].set()
        await until(lambda: bool(ended))
    assert ended == ["ended"]


@pytest.mark.parametrize(("slots", "before_the_end"), [(2, 0), (1, 1)])
async def test_no_claim_comes_before_an_end_unless_a_session_may_wait_for_the_slot(
    estate: Estate, slots: int, before_the_end: int
) -> None:
    seen: list[str] = []

    class Watched(LocalDispatcher):
        async def announce(self) -> None:
            seen.append(str(estate.row(1)["status"]))
            await super().announce()

    sessions = ScriptedSessions(estate)
    await estate.queue()
    async with supervised(estate, run_session=leaving_nothing(sessions), slots=slots, dispatcher=Watched()):
        await sessions.until_started(1)
        sessions.gates[1].set()
        await until(lambda: "ended" in seen)
    assert seen.count("running") == before_the_end


def escalating(estate: Estate, session: Session) -> Ending:
    return Ending(
        session_id=session.id,
        attempt=session.attempt,
        outcome=Outcome.SUCCESS,
        extraction=Extraction(
            method=ExtractionMethod.STRUCTURED,
            report=Report(summary="web is down", escalation=Escalation(needed=True, reason="web answers 502")),
        ),
        ended_at=estate.context.clock.now(),
        duration_ms=1,
        calls_ran=1,
        looks=(EvidenceLook(),),
    )


@pytest.mark.parametrize("slots", [1, 2])
async def test_the_next_tier_takes_one_claim_and_none_is_made_in_vain(estate: Estate, slots: int) -> None:
    class Counted(Claims):
        made = 0

        async def claim(self, *args: Any, **kwargs: Any) -> Sequence[Session]:
            self.made += 1
            return await super().claim(*args, **kwargs)

    async def run(session: Session, control: StopControl) -> Ending:
        if session.parent_session_id is None:
            return escalating(estate, session)
        return await sessions(session, control)

    sessions, claims = ScriptedSessions(estate), Counted(estate.store.database)
    await estate.queue()
    async with supervised(estate, run_session=leaving_nothing(run), claims=claims, slots=slots) as supervisor:
        await sessions.until_started(1)
        await until(lambda: list(supervisor.running) == [2])
        await anyio.wait_all_tasks_blocked()
        assert claims.made == 2


async def test_what_becomes_due_while_others_are_claimed_is_claimed_at_once(estate: Estate) -> None:
    left: list[float] = []

    class Watched(LocalDispatcher):
        async def wait(self) -> None:
            left.append(anyio.current_effective_deadline() - anyio.current_time())
            await super().wait()

    class Late(Claims):
        async def claim(self, *args: Any, **kwargs: Any) -> Sequence[Session]:
            claimed = await super().claim(*args, **kwargs)
            if len(claimed) == 1 and claimed[0].id == 1:
                await estate.queue()  # by somebody who announces nothing
            return claimed

    sessions = ScriptedSessions(estate)
    await estate.queue()
    given = {"claims": Late(estate.store.database), "dispatcher": Watched()}
    async with supervised(estate, run_session=leaving_nothing(sessions), **given):
        await sessions.until_started(2)
        assert left[0] <= 0


async def test_one_slot_stays_free_for_the_lowest_tier(estate: Estate) -> None:
    sessions = ScriptedSessions(estate)
    for tier in (2, 2, 1):
        await estate.queue(tier)
    async with supervised(estate, run_session=leaving_nothing(sessions)):
        await sessions.until_started(2)
        assert sorted(sessions.started) == [1, 3]  # the second remediation waits, the watch does not


async def test_a_single_slot_runs_every_tier(estate: Estate) -> None:
    sessions = ScriptedSessions(estate)
    await estate.queue(2)
    async with supervised(estate, run_session=leaving_nothing(sessions), slots=1):
        await sessions.until_started(1)


async def test_a_drain_waits_then_stops_what_still_runs_and_claims_nothing_more(estate: Estate) -> None:
    sessions = ScriptedSessions(estate)
    for _ in range(3):
        await estate.queue()
    async with supervised(estate, run_session=leaving_nothing(sessions)):
        await sessions.until_started(2)
    assert [row["outcome"] for row in estate.rows("SELECT outcome FROM sessions ORDER BY id")] == [
        "cancelled",
        "cancelled",
        None,
    ]


async def test_a_fault_in_our_own_code_ends_one_session_and_not_the_daemon(estate: Estate) -> None:
    sessions = ScriptedSessions(estate)

    async def run(session: Session, control: StopControl) -> Ending:
        if session.id == 1:
            raise RuntimeError("a fault of ours")
        return await sessions(session, control)

    await estate.queue()
    await estate.queue()
    async with supervised(estate, run_session=leaving_nothing(run)):
        await sessions.until_started(1)
        await until(lambda: estate.row(1)["status"] == "ended")
    row = estate.row(1)
    assert (row["outcome"], row["decision_reason"]) == ("error", "session_failed")
    assert "a fault of ours" in str(row["error"])
    assert "session_crashed" in estate.logged.getvalue()


async def test_a_result_waits_for_the_database_to_come_back(estate: Estate) -> None:
    class Away(Queue):
        """A queue whose database is away for the first two finishes."""

        failures = 2

        async def finish(self, ending: Ending, *, rules: EscalationRules) -> Finished:
            if self.failures:
                self.failures -= 1
                raise DatabaseUnavailableError("the database is locked")
            return await super().finish(ending, rules=rules)

    estate.script(look(), deliver(report()))
    root = await estate.queue()
    async with supervised(estate, queue=Away(estate.store.database)):
        (session,) = await until_all_ended(estate, root.id)
    assert session.decision_reason == "healthy"
    assert estate.logged.getvalue().count("database_unavailable") == 2


async def test_a_stop_says_whose_ends_the_database_has_not_taken(estate: Estate) -> None:
    class Away(Queue):
        """A queue whose database is away."""

        async def finish(self, *_: object, **__: object) -> Finished:
            raise DatabaseUnavailableError("the database is locked")

    sessions = ScriptedSessions(estate)
    written, waits = await estate.queue(), await estate.queue()
    supervisor = estate.supervisor(run_session=leaving_nothing(sessions), margin_seconds=0, stop_grace_seconds=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        await sessions.until_started(2)
        sessions.gates[written.id].set()
        await until(lambda: estate.row(written.id)["status"] == "ended")
        supervisor.queue = Away(estate.store.database)
        assert await supervisor.drain(0) == [waits.id]
        tasks.cancel_scope.cancel()


async def test_a_session_that_somebody_else_has_claimed_since_is_not_written(estate: Estate) -> None:
    sessions = ScriptedSessions(estate)
    root = await estate.queue()
    async with supervised(estate, run_session=leaving_nothing(sessions)):
        await sessions.until_started(1)
        with estate.connect() as connection:
            connection.exec_driver_sql("UPDATE sessions SET attempt = attempt + 1")
    assert estate.row(root.id)["status"] == "running"
    assert "stale_attempt" in estate.logged.getvalue()


class LeftRecovery(Recovery):
    """What is written of sessions that daemons have left, in a database that is away for the first two times."""

    failures = 2

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise DatabaseUnavailableError("the server does not answer.")

    async def mark_lost(self, *args: Any, **kwargs: Any) -> Session:
        self._fail()
        return await super().mark_lost(*args, **kwargs)


async def stopped_for_another(estate: Estate, tier: int, *, taken: bool = False) -> None:
    """Run a session that is stopped because another daemon may have it; ``taken``: it has."""
    store = replace(estate.store, recovery=LeftRecovery(estate.store.database))
    recovery = SessionRecovery(context=replace(estate.context, store=store))
    sessions = ScriptedSessions(estate)
    await estate.queue(tier)
    async with supervised(estate, run_session=leaving_nothing(sessions), give_up=recovery.give_up, slots=1) as running:
        await sessions.until_started(1)
        if taken:
            with estate.connect() as connection:
                connection.exec_driver_sql("UPDATE sessions SET attempt = attempt + 1")
        running.may_claim = lambda: False
        running.running.stop_all(StopCause.LEASE_OVER)
        await until(lambda: not running.running)


@pytest.mark.parametrize("tier", [1, 2])
async def test_session_that_another_daemon_may_have_is_followed_as_if_it_had_been_taken_over(
    estate: Estate, tier: int
) -> None:
    await stopped_for_another(estate, tier)
    rows = estate.rows("SELECT tier, trigger, outcome, parent_session_id FROM sessions ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [(tier, "manual", "lost", None), (1, "recovery", None, 1)]
    assert estate.logged.getvalue().count("database_unavailable") == 2
    assert "session_lost" in estate.logged.getvalue()


async def test_session_that_another_daemon_has_taken_over_is_left_to_it(estate: Estate) -> None:
    await stopped_for_another(estate, 1, taken=True)
    assert [row["status"] for row in estate.rows("SELECT status FROM sessions")] == ["running"]
    assert estate.rows("SELECT * FROM events") == []
    assert "stale_attempt" in estate.logged.getvalue()


async def test_daemon_that_may_not_claim_leaves_the_queue_alone_until_it_may(estate: Estate) -> None:
    sessions, may, looked = ScriptedSessions(estate), list[bool](), list[bool]()
    root = await estate.queue()

    def may_claim() -> bool:
        looked.append(bool(may))
        return bool(may)

    async with supervised(estate, run_session=leaving_nothing(sessions), may_claim=may_claim):
        await until(lambda: len(looked) > 1)
        assert estate.row(root.id)["status"] == "queued"
        may.append(True)
        await sessions.until_started(1)


async def test_session_that_is_claimed_too_late_never_starts(estate: Estate) -> None:
    sessions, held, may = ScriptedSessions(estate), HeldClaims(estate), [True]
    root = await estate.queue()
    run = leaving_nothing(sessions)
    async with supervised(estate, run_session=run, claims=held, may_claim=lambda: bool(may)):
        await held.taken.wait()
        may.clear()
        held.let_go.set()
        await until(lambda: estate.row(root.id)["status"] == "ended")
    assert (estate.row(root.id)["outcome"], sessions.started) == ("lost", {})
    assert [row["trigger"] for row in estate.rows("SELECT trigger FROM sessions")] == ["manual", "recovery"]


async def test_an_end_that_waits_for_the_database_holds_no_slot_and_does_not_pile_up(estate: Estate) -> None:
    class Slow(Queue):
        """A queue whose database takes no end before the test lets it."""

        let_go = anyio.Event()

        async def finish(self, ending: Ending, *, rules: EscalationRules) -> Finished:
            await self.let_go.wait()
            return await super().finish(ending, rules=rules)

    sessions, slow = ScriptedSessions(estate), Slow(estate.store.database)
    queued = [(await estate.queue()).id for _ in range(3)]
    async with supervised(estate, run_session=leaving_nothing(sessions), queue=slow, slots=1) as supervisor:
        for number in (1, 2):
            await sessions.until_started(number)
            sessions.gates[queued[number - 1]].set()
        await until(lambda: supervisor._written == set(queued[:2]))
        await anyio.wait_all_tasks_blocked()
        assert sorted(sessions.started) == queued[:2]  # two ends wait: enough is under way for one slot
        slow.let_go.set()
        await sessions.until_started(3)


@pytest.mark.parametrize("asks", [False, True])  # for a tier above the last one
async def test_the_next_session_does_not_wait_for_what_the_last_one_leaves_behind(estate: Estate, asks: bool) -> None:
    sessions, removed = ScriptedSessions(estate), anyio.Event()
    estate.with_context(rules=replace(estate.context.rules, max_tier=1))

    @asynccontextmanager
    async def running(session: Session, control: StopControl) -> AsyncIterator[Ending]:
        ending = await sessions(session, control)
        yield escalating(estate, session) if asks else ending
        await removed.wait()

    first, _ = await estate.queue(), await estate.queue()
    by_announcements = LocalDispatcher(interval_seconds=math.inf)
    async with supervised(estate, run_session=running, slots=1, dispatcher=by_announcements) as supervisor:
        await sessions.until_started(1)
        sessions.gates[first.id].set()
        await sessions.until_started(2)
        await until(lambda: estate.row(first.id)["status"] == "ended")
        assert first.id in supervisor.running  # until its directories have gone, or they would pile up
        removed.set()
        await until(lambda: first.id not in supervisor.running)


async def test_several_free_slots_are_filled_one_by_one_but_for_the_one_that_is_kept(estate: Estate) -> None:
    """What is claimed first starts while the rest is claimed, and does not end together with it."""
    steps: list[int] = []

    class Noted(Claims):
        async def claim(self, *args: Any, **kwargs: Any) -> Sequence[Session]:
            claimed = await super().claim(*args, **kwargs)
            steps.append(len(claimed))
            return claimed

    sessions, claims = ScriptedSessions(estate), Noted(estate.store.database)
    for tier in (2, 2, 2, 2, 1):
        await estate.queue(tier)
    async with supervised(estate, run_session=leaving_nothing(sessions), claims=claims, slots=4):
        await sessions.until_started(4)
        assert sorted(sessions.started) == [1, 2, 3, 5]
    assert steps == [1, 1, 1, 1]


async def test_many_free_slots_are_filled_together(estate: Estate) -> None:
    """What has started would keep the rest waiting."""
    sessions = ScriptedSessions(estate)
    for _ in range(60):
        await estate.queue()
    async with supervised(estate, run_session=leaving_nothing(sessions), slots=60):
        await sessions.until_started(60)
    started = estate.rows("SELECT DISTINCT started_at FROM sessions")
    assert len(started) == 1


async def test_a_foreground_run_leaves_other_chains_queued(estate: Estate) -> None:
    estate.script(look(), deliver(report()))
    other = await estate.queue()
    mine = await estate.queue()
    async with supervised(estate, chain=mine.id):
        await until_all_ended(estate, mine.id)
    assert estate.row(other.id)["status"] == "queued"


class HeldClaims(Claims):
    """The claims of an estate, which come back when the test lets them: the row is written long before."""

    def __init__(self, estate: Estate) -> None:
        super().__init__(estate.store.database)
        self.taken = anyio.Event()
        self.let_go = anyio.Event()

    async def claim(self, *args: Any, **kwargs: Any) -> Sequence[Session]:
        claimed = await super().claim(*args, **kwargs)
        if claimed:
            self.taken.set()
            await self.let_go.wait()
        return claimed


@pytest.mark.parametrize("hurried", [False, True])
async def test_a_stop_that_meets_a_claim_leaves_no_row_running(estate: Estate, hurried: bool) -> None:
    sessions, held = ScriptedSessions(estate), HeldClaims(estate)
    root = await estate.queue()
    supervisor = estate.supervisor(run_session=leaving_nothing(sessions), claims=held)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        await held.taken.wait()
        assert (supervisor.running, estate.row(root.id)["status"]) == ({}, "running")

        async def drain() -> None:
            await supervisor.drain(0 if hurried else PATIENCE_SECONDS)
            tasks.cancel_scope.cancel()  # as the daemon does

        tasks.start_soon(drain)
        await anyio.wait_all_tasks_blocked()
        held.let_go.set()
        if not hurried:  # it is a running session like any other, and gets its time
            await sessions.until_started(1)
            sessions.gates[root.id].set()
    row = estate.row(root.id)
    assert (row["status"], row["outcome"]) == ("ended", "cancelled" if hurried else "error")
    assert list(sessions.started) == ([] if hurried else [root.id])  # no process for what is to stop at once


class _Listener(SessionListener):
    """Hears of everything."""


@pytest.mark.parametrize("listener", ["started", "ended", "left", "hub"])
async def test_who_only_listens_and_fails_ends_neither_the_session_nor_the_daemon(
    estate: Estate, listener: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("nobody can hear that")

    estate.script(look(), deliver(report()))
    first, second = await estate.queue(), await estate.queue()
    deaf = _Listener()
    if listener != "hub":
        setattr(deaf, listener, fail)
    with estate.context.hub.subscribe(wake=fail) if listener == "hub" else nullcontext():
        async with supervised(estate, slots=1, listeners=[deaf]):
            for root in (first, second):
                (session,) = await until_all_ended(estate, root.id)
                assert (session.outcome, session.decision_reason) == ("success", "healthy")
    assert "listener_failed" in estate.logged.getvalue()
    assert "session_crashed" not in estate.logged.getvalue()
