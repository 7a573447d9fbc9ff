"""What the rooms of the engine do is counted where it happens: once, and with what it led to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from claudeops.domain.gate.approval import ApprovalStatus, answer
from claudeops.domain.sessions import Session
from claudeops.engine.meter.meter import MeterDeps
from claudeops.engine.recovery.recovery import SessionRecovery
from claudeops.engine.session.supervisor import Supervisor
from claudeops.metrics import KnownSets, Metrics
from claudeops.structs import replace
from support.asking import ASK, KEY
from support.estate import Estate, deliver, look, report
from support.metering import bench
from support.replays import ran
from support.stores import Database, approvals_of
from support.waiting import PATIENCE_SECONDS, until, until_it

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio


@dataclass
class Counts:
    """Metrics, and a look at them."""

    metrics: Metrics

    def of(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"claudeops_{name}", labels) or 0.0


@pytest.fixture
def counts() -> Counts:
    return Counts(Metrics(KnownSets(version="1", tiers=(1, 2, 3))))


async def asking(estate: Estate, counts: Counts) -> tuple[Supervisor, Session]:
    """Return what runs a session that asks people about its one call."""
    estate.with_judge(lambda _, __: ASK)
    estate.with_context(approval_key=KEY, counts=counts.metrics)
    estate.script(look(), deliver(report()))
    session = await estate.queue()
    return estate.supervisor(slots=1, listeners=[counts.metrics]), session


async def until_it_waits(estate: Estate) -> None:
    async def waits() -> bool:
        return bool(await approvals_of(estate.store))

    await until_it(waits)


async def test_a_call_that_people_decide_is_counted_with_both_answers_and_the_way_they_took(
    estate: Estate, counts: Counts
) -> None:
    supervisor, _ = await asking(estate, counts)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        await until_it_waits(estate)
        assert counts.of("sessions_running", tier="1") == 1
        (question,) = await approvals_of(estate.store)
        now = datetime.now(UTC)
        said = answer(KEY, question, status=ApprovalStatus.APPROVED, decided_by="telegram:ada", at=now)
        await estate.store.approvals.answer_approval(question.id, said)
        await until(lambda: not supervisor.running)
        await supervisor.drain(PATIENCE_SECONDS)
    assert [counts.of("tool_calls_total", tier="1", verdict=verdict) for verdict in ("ask", "allow", "deny")] == [
        1,
        1,
        0,
    ]
    assert counts.of("approvals_total", status="approved", channel="telegram") == 1
    assert counts.of("approval_wait_seconds_count") == 1
    assert counts.of("gate_decision_duration_seconds_count") == 1  # without the time that people took
    assert counts.of("session_duration_seconds_count", tier="1") == 1
    assert counts.of("sessions_running", tier="1") == 0


async def test_a_question_that_ends_with_its_session_is_counted_as_one_without_an_answer(
    estate: Estate, counts: Counts
) -> None:
    supervisor, _ = await asking(estate, counts)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        await until_it_waits(estate)
        await supervisor.drain(0)
    assert counts.of("approvals_total", status="expired", channel="none") == 1
    assert counts.of("sessions_total", tier="1", trigger="manual", outcome="cancelled") == 1


async def test_a_process_that_outlives_its_session_is_counted(estate: Estate, counts: Counts) -> None:
    estate.with_context(counts=counts.metrics)
    await estate.finished({"stray": str(estate.root / "stray.pid")}, look(), deliver(report()))
    assert counts.of("strays_killed_total") == 1


@pytest.mark.parametrize(("kept", "outcome"), [(True, "success"), (False, "lost")])
async def test_what_a_dead_daemon_left_is_counted_by_the_next_one(
    estate: Estate, counts: Counts, *, kept: bool, outcome: str
) -> None:
    await ran(estate, look(), deliver(report()))
    if not kept:
        Path(estate.log_path(1)).write_bytes(b"")
    estate.with_context(counts=counts.metrics)
    estate.owner = replace(estate.owner, name=f"{estate.owner.name}+")
    now = estate.context.clock.now()
    orphans = (await estate.store.recovery.reconcile(estate.owner, now=now, alive=lambda _: False)).sessions
    await SessionRecovery(context=estate.context).take_up(orphans)
    assert counts.of("sessions_total", tier="1", trigger="manual", outcome=outcome) == 1


async def test_a_model_call_is_counted_with_its_answer_its_tokens_and_its_price(
    sqlite: Database, counts: Counts
) -> None:
    async with bench(sqlite, {"text": "I look."}) as the:
        deps: MeterDeps = replace(the.meter._deps, counts=counts.metrics)
        the.meter._deps = deps
        async with the.account() as account:
            assert (await the.ask(account)).status == 200
        (booked,) = the.calls
    about = {"model": "claude-haiku-4-5"}
    assert counts.of("model_calls_total", tier="1", status="200", **about) == 1
    assert counts.of("model_tokens_total", kind="output", **about) == booked["output_tokens"]
    assert counts.of("spend_usd_total", tier="1", **about) == pytest.approx(float(str(booked["charged_usd"])))
