"""What the model API refuses one session is known to all of them at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import cast

import anyio
import pytest

from claudeops.clock import Clock
from claudeops.domain.holds import ApiRefusal, Hold, HoldKind
from claudeops.domain.sessions import FailureKind, Outcome
from claudeops.engine.control import StopControl
from claudeops.engine.meter.availability import Availability
from claudeops.engine.session.runner import SessionRunner
from claudeops.errors import DatabaseUnavailableError
from claudeops.logs import get_logger
from claudeops.store.holds import Holds
from claudeops.structs import replace
from support.estate import Estate, deliver, look, report
from support.store_values import running
from support.waiting import PATIENCE_SECONDS, until, until_it

pytestmark = pytest.mark.anyio


def retried(status: int, error: str) -> dict[str, object]:
    told = {"attempt": 1, "max_retries": 10, "retry_delay_ms": 500, "error_status": status, "error": error}
    return {"frame": {"type": "system", "subtype": "api_retry", **told}}


def gate(path: Path) -> tuple[dict[str, object], dict[str, object]]:
    """Return a step that says that it was reached, and one that waits until it is stopped."""
    return {"touch": str(path)}, {"hang": True}


@asynccontextmanager
async def listening(estate: Estate) -> AsyncIterator[Availability]:
    availability = Availability(holds=estate.store.holds, clock=estate.context.clock, log=estate.context.log)
    estate.with_context(availability=availability)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(availability.run)
        yield availability
        tasks.cancel_scope.cancel()


async def holds(estate: Estate) -> dict[HoldKind, Hold]:
    return {hold.kind: hold for hold in await estate.store.holds.standing(estate.context.clock.now())}


async def until_held(estate: Estate, *kinds: HoldKind) -> None:
    async def are_held() -> bool:
        return set(await holds(estate)) == set(kinds)

    await until_it(are_held)


class Written:
    """Stands for the port: what was written to it, in order."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    async def refused(self, refusal: ApiRefusal, *, now: datetime) -> None:  # noqa: ARG002 - as the port has it
        self.rows.append(f"refused {refusal.session_id}")

    async def answered(self, session_id: int, *, attempt: int, now: datetime) -> tuple[HoldKind, ...]:  # noqa: ARG002 - as above
        self.rows.append(f"answered {session_id}")
        return ()


async def test_what_meter_and_stream_both_report_is_written_once_and_anew_after_a_refusal() -> None:
    written = Written()
    availability = Availability(holds=cast("Holds", written), clock=Clock(), log=get_logger())
    for _ in ("by the meter", "by the stream"):
        availability.report_success(running(id=7))
    availability.report_refusal(ApiRefusal(kind=FailureKind.OVERLOADED, message="529", session_id=7))
    for _ in ("by the meter", "by the stream"):
        availability.report_success(running(id=7))
    availability.report_success(running(id=8))
    expected = ["answered 7", "refused 7", "answered 7", "answered 8"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(availability.run)
        await until(lambda: len(written.rows) >= len(expected))
        tasks.cancel_scope.cancel()
    assert written.rows == expected


async def test_a_session_that_has_ended_is_forgotten(estate: Estate) -> None:
    async with listening(estate) as availability:
        for _ in range(2):
            await estate.run(look(), deliver(report()))
    assert not availability._served  # else it would grow with every session


async def test_others_wait_while_a_cli_repeats_a_call_and_go_on_when_it_is_answered(
    estate: Estate, tmp_path: Path
) -> None:
    reached = tmp_path / "reached"
    async with listening(estate), anyio.create_task_group() as tasks:
        estate.script(retried(429, "rate_limit"), {"touch": str(reached)}, {"await_user": True})
        session = await estate.queue()
        claimed, control = await estate.claim(), StopControl()
        tasks.start_soon(SessionRunner(context=estate.context).run, claimed, control)
        await until_held(estate, HoldKind.PARKED)
        assert (await holds(estate))[HoldKind.PARKED].trial == session.id
        estate.context.availability.report_success(claimed)  # type: ignore[union-attr]  # it was given above
        await until_held(estate)
        await until(lambda: "hold_released" in estate.logged.getvalue())
        tasks.cancel_scope.cancel()
    assert "model_api_refused" in estate.logged.getvalue()


async def test_a_tool_call_after_a_hiccup_opens_the_queue_again(estate: Estate) -> None:
    async with listening(estate):
        ending = await estate.run(retried(529, "overloaded"), look(), deliver(report()))
        await until(lambda: "hold_released" in estate.logged.getvalue())
        assert await holds(estate) == {}
    assert ending.outcome is Outcome.SUCCESS


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_ends_the_session_at_once_and_opens_the_breaker_with_one_critical_event(
    estate: Estate, status: int
) -> None:
    # No clock of ours can end it.
    estate.with_context(timeouts=replace(estate.context.timeouts, startup=3600, silence=3600, session=3600))
    async with listening(estate):
        with anyio.fail_after(PATIENCE_SECONDS):
            ending = await estate.run(retried(status, "authentication_failed"), {"hang": True})
        await until_held(estate, HoldKind.BREAKER)
        await estate.store.queue.finish(ending, rules=estate.context.rules)
    assert (ending.outcome, ending.failure_kind) == (Outcome.ERROR, FailureKind.AUTH)
    critical = estate.rows("SELECT fingerprint, count FROM events WHERE level = 'critical'")
    assert critical == [{"fingerprint": "hold:breaker", "count": 1}]
    assert [row["trigger"] for row in estate.rows("SELECT * FROM sessions")] == ["manual", "retry"]


async def test_a_plans_reset_time_parks_until_then(estate: Estate) -> None:
    resets_at = int(estate.context.clock.now().timestamp()) + 3 * 3600
    info = {"status": "rejected", "rateLimitType": "five_hour", "resetsAt": resets_at}
    limited = {"frame": {"type": "rate_limit_event", "rate_limit_info": info}}
    refused = {"result": {"is_error": True, "api_error_status": 429, "result": "limit reached", "usage": {}}}
    async with listening(estate):
        ending = await estate.run(limited, refused)
        await until_held(estate, HoldKind.PARKED)
        await estate.store.queue.finish(ending, rules=estate.context.rules)
    until_when = (await holds(estate))[HoldKind.PARKED].until
    assert until_when is not None
    assert 0 <= until_when.timestamp() - resets_at <= 30


async def test_what_holds_nobody_back_is_not_written(estate: Estate) -> None:
    async with listening(estate) as availability:
        availability.report_refusal(ApiRefusal(kind=FailureKind.OTHER))
        availability.report_refusal(ApiRefusal(kind=FailureKind.BILLING, message="credit balance is too low"))
        await until_held(estate, HoldKind.BREAKER)
        await until(lambda: "model_api_refused" in estate.logged.getvalue())  # written when the row stands
    assert estate.logged.getvalue().count("model_api_refused") == 1


async def test_report_of_an_attempt_that_was_taken_over_is_a_line_of_the_log_and_the_next_one_counts(
    estate: Estate,
) -> None:
    await estate.queue()
    session = await estate.claim()
    async with listening(estate) as availability:
        for attempt in (session.attempt - 1, session.attempt):
            availability.report_refusal(
                ApiRefusal(kind=FailureKind.AUTH, session_id=session.id, attempt=attempt, message=f"by {attempt}")
            )
        await until_held(estate, HoldKind.BREAKER)
        await until(lambda: "model_api_refused" in estate.logged.getvalue())
    logged = estate.logged.getvalue()
    assert (logged.count('"stale_attempt"'), logged.count("model_api_refused")) == (1, 1)


async def test_a_refusal_waits_for_the_database(estate: Estate) -> None:
    class Away:
        """Holds whose database is away for the first write."""

        away = True

        async def refused(self, refusal: ApiRefusal, **when: object) -> None:
            if self.away:
                self.away = False
                raise DatabaseUnavailableError("the database is locked")
            await estate.store.holds.refused(refusal, **when)  # type: ignore[arg-type]  # as it came

    availability = Availability(holds=Away(), clock=estate.context.clock, log=estate.context.log)  # type: ignore[arg-type]  # all that is asked of it
    async with anyio.create_task_group() as tasks:
        availability.report_refusal(ApiRefusal(kind=FailureKind.AUTH))
        tasks.start_soon(availability.run)
        await until_held(estate, HoldKind.BREAKER)
        tasks.cancel_scope.cancel()
