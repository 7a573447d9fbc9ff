"""The gate between a question and its answer: what is not judged, recorded and allowed does not run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio
import pytest

from claudeops.domain.model import Action, ToolCall, Verdict, VerdictKind
from claudeops.engine.gate import Gate
from claudeops.errors import DatabaseUnavailableError
from claudeops.harness.claude import ClaudeHarness
from claudeops.harness.protocol import GateRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.estate import Estate

pytestmark = pytest.mark.anyio

CALL = ToolCall(tool_use_id="toolu_1", tool_name="Bash", input={"command": "uptime"})
REQUEST = GateRequest(request_id="r-1", call=CALL)
ALLOW = Verdict(kind=VerdictKind.ALLOW, reason="read-only")


@dataclass
class Answers:
    """A channel that keeps what was sent."""

    sent: list[bytes] = field(default_factory=list)

    async def send(self, message: bytes) -> bool:
        self.sent.append(message)
        return True


async def gate_of(estate: Estate, judge: Callable[[ToolCall], Verdict] = lambda _: ALLOW) -> Gate:
    await estate.queue()
    return Gate(
        session=await estate.claim(),
        judge=judge,
        rules=estate.kit.rules,
        store=estate.store,
        clock=estate.kit.clock,
        show_input=lambda call: str(dict(call.input)),
        log=estate.kit.log,
    )


async def answer(gate: Gate, request: GateRequest = REQUEST) -> str:
    answers = Answers()
    await gate.answer(request, harness=ClaudeHarness(), channel=answers)  # type: ignore[arg-type]  # all it needs
    (sent,) = answers.sent
    return sent.decode()


async def test_a_yes_is_recorded_before_it_is_given(estate: Estate) -> None:
    gate = await gate_of(estate)
    assert '"permissionDecision":"allow"' in await answer(gate)
    assert gate.allowed == {"toolu_1"}
    assert [row["verdict"] for row in estate.rows("SELECT verdict FROM tool_calls")] == ["allow"]


WRITTEN = replace(ALLOW, ran={"command": "/usr/bin/uptime"})


async def test_what_was_judged_runs_in_the_place_of_what_was_asked_and_both_are_kept(estate: Estate) -> None:
    gate = await gate_of(estate, lambda _: WRITTEN)
    assert '"updatedInput":{"command":"/usr/bin/uptime"}' in await answer(gate)
    assert gate.ran == {"toolu_1": {"command": "/usr/bin/uptime"}}
    (row,) = estate.rows("SELECT input, ran FROM tool_calls")
    assert row == {"input": "{'command': 'uptime'}", "ran": "{'command': '/usr/bin/uptime'}"}


async def test_a_denied_call_is_given_nothing_to_run(estate: Estate) -> None:
    gate = await gate_of(estate, lambda _: replace(WRITTEN, kind=VerdictKind.DENY))
    assert "updatedInput" not in await answer(gate)
    assert gate.ran == {}
    assert estate.rows("SELECT ran FROM tool_calls") == [{"ran": None}]


async def test_a_no_is_no_yes_of_any_kind(estate: Estate) -> None:
    gate = await gate_of(estate, lambda _: Verdict(kind=VerdictKind.DENY, reason="not at this tier"))
    told = await answer(gate)
    assert '"permissionDecision":"deny"' in told
    assert "not at this tier" in told
    assert gate.allowed == set()


async def test_what_needs_approval_is_denied_where_nobody_can_be_asked(estate: Estate) -> None:
    gate = await gate_of(estate, lambda _: Verdict(kind=VerdictKind.ASK, reason="restarts the database"))
    assert '"permissionDecision":"deny"' in await answer(gate)
    assert [row["verdict"] for row in estate.rows("SELECT verdict FROM tool_calls")] == ["deny"]


async def test_while_a_session_is_stopped_nothing_runs_but_its_report_is_taken(estate: Estate) -> None:
    gate = await gate_of(estate)
    gate.stopping = lambda: True
    assert "being stopped" in await answer(gate)
    reporting = GateRequest(request_id="r-2", call=replace(CALL, tool_use_id="toolu_2", tool_name="StructuredOutput"))
    assert '"permissionDecision":"allow"' in await answer(gate, reporting)


async def test_a_verdict_that_the_database_does_not_take_is_a_no(estate: Estate) -> None:
    class Away:
        async def record_call(self, *_: object, **__: object) -> Verdict:
            raise DatabaseUnavailableError("the database is locked")

    gate = await gate_of(estate)
    gate.store = Away()  # type: ignore[assignment]  # the one method that is called
    told = await answer(gate)
    assert '"permissionDecision":"deny"' in told
    assert "database unavailable" in told
    assert gate.allowed == set()


async def test_a_database_that_hangs_is_a_no_after_its_time(estate: Estate) -> None:
    class Hanging:
        async def record_call(self, *_: object, **__: object) -> Verdict:
            await anyio.sleep_forever()
            raise AssertionError

    gate = await gate_of(estate)
    gate.record_seconds = 0.05
    gate.store = Hanging()  # type: ignore[assignment]  # as above
    assert '"permissionDecision":"deny"' in await answer(gate)


async def test_a_policy_that_fails_gives_no_answer_at_all(estate: Estate) -> None:
    def judge(_call: ToolCall) -> Verdict:
        raise RuntimeError("a fault in the policy")

    gate = await gate_of(estate, judge)
    with pytest.raises(RuntimeError):
        await answer(gate)
    assert gate.allowed == set()


async def test_the_second_restart_of_a_service_is_the_last_one_for_hours(estate: Estate) -> None:
    restart = Verdict(kind=VerdictKind.ALLOW, reason="restart", actions=(Action(kind="restart", service="web"),))
    gate = await gate_of(estate, lambda _: restart)
    told = [await answer(gate) for _ in range(3)]
    assert ['"permissionDecision":"allow"' in text for text in told] == [True, True, False]
    assert "2 of 2 allowed within 4 h are used" in told[2]
    assert len(estate.rows("SELECT * FROM cooldown_actions")) == 2
