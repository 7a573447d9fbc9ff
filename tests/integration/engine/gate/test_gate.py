"""The gate between a question and its answer: what is not judged, recorded and allowed does not run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import pytest

from claudeops.clock import Clock
from claudeops.domain.actions import TOO_LATE, Action
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.gate.docker_grants import DockerChange
from claudeops.domain.gate.docker_grants import Grant as DockerGrant
from claudeops.domain.looks import LookCall
from claudeops.domain.stream.events import INPUT_LEFT_OUT
from claudeops.engine.gate.gate import ANSWER_SECONDS, TOO_LONG, TOO_OLD, Gate
from claudeops.engine.gate.judging import TOO_SLOW, NotJudgedError
from claudeops.errors import DatabaseUnavailableError
from claudeops.harness.claude import ClaudeHarness
from claudeops.harness.protocol import GateRequest
from claudeops.store.calls import Calls
from claudeops.structs import replace
from support.estate import Estate, here
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

CALL = ToolCall(tool_use_id="toolu_1", tool_name="Bash", input={"command": "uptime"})
REQUEST = GateRequest(request_id="r-1", call=CALL)
ALLOW = Verdict(kind=VerdictKind.ALLOW, reason="read-only")
RESTART = DockerChange(verb="restart", named="web", name="web", id="a" * 64)


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
        judge=here(judge),
        rules=estate.context.rules,
        calls=estate.store.calls,
        clock=estate.context.clock,
        display_input=lambda call: str(dict(call.input)),
        log=estate.context.log,
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


async def test_a_call_is_denied_of_which_not_all_was_read(estate: Estate) -> None:
    gate = await gate_of(estate)
    left = {"command": "uptime", INPUT_LEFT_OUT: "[5000000 bytes, sha256 0; the log of the session has them]"}
    given = await answer(gate, replace(REQUEST, call=replace(CALL, input=left)))
    assert '"permissionDecision":"deny"' in given
    assert TOO_LONG in given
    assert not gate.allowed
    [row] = estate.rows("SELECT verdict, input FROM tool_calls")
    assert row["verdict"] == "deny"
    assert "5000000 bytes" in str(row["input"])


class Standing(Clock):
    """A clock that goes on while the daemon stands still, as often and as long as the test says."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def since_boot(self) -> float:
        return self.seconds


class StoppedAfterCommit(Calls):
    """The record, after whose commit the daemon stands still."""

    clock: Standing
    seconds = 0.0

    async def record_call(self, *given: Any, **named: Any) -> Verdict:
        verdict = await super().record_call(*given, **named)
        self.clock.seconds += self.seconds
        return verdict


async def stopped(estate: Estate, seconds: float) -> Gate:
    """Return a gate that stands still for some seconds between a verdict's commit and its answer."""
    acts = replace(
        ALLOW,
        actions=(Action(kind="restart", service="web"),),
        grants=(DockerGrant(call="toolu_1", verb="restart", container="web"),),
    )
    estate.with_context(rules=replace(estate.context.rules, limits={}))
    gate = await gate_of(estate, lambda _: acts)
    calls = StoppedAfterCommit(estate.store.database)
    calls.clock, calls.seconds = Standing(), seconds
    gate.calls, gate.clock = calls, calls.clock
    return gate


async def test_yes_that_grew_old_while_the_daemon_stood_still_is_not_given_and_nothing_of_it_counts(
    estate: Estate,
) -> None:
    gate = await stopped(estate, ANSWER_SECONDS + 1)

    told = await answer(gate)

    assert '"permissionDecision":"deny"' in told
    assert TOO_OLD in told
    assert (gate.allowed, gate.ran, gate.grants.take(RESTART)) == (set(), {}, None)
    rows = estate.rows("SELECT verdict, reason FROM tool_calls ORDER BY id")
    assert [row["verdict"] for row in rows] == ["allow", "deny"]
    (action,) = estate.rows("SELECT success, error FROM cooldown_actions")
    assert (action["success"], action["error"]) == (0, TOO_LATE)
    assert await estate.store.calls.allowed_calls(gate.session.id) == frozenset()
    assert TOO_OLD in estate.logged.getvalue()


async def test_yes_is_given_as_long_as_it_is_fresh(estate: Estate) -> None:
    gate = await stopped(estate, ANSWER_SECONDS - 1)

    assert '"permissionDecision":"allow"' in await answer(gate)

    assert gate.allowed == {"toolu_1"}
    assert gate.grants.take(RESTART) is not None


async def test_yes_that_is_too_old_is_not_given_where_that_cannot_be_put_on_record(estate: Estate) -> None:
    gate = await stopped(estate, ANSWER_SECONDS + 1)

    async def away(*_: object, **__: object) -> None:
        raise DatabaseUnavailableError("the database is away")

    gate.calls.take_back = away  # type: ignore[method-assign]  # of this object alone

    assert '"permissionDecision":"deny"' in await answer(gate)

    assert gate.allowed == set()
    assert "tool_call_unrecorded" in estate.logged.getvalue()


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


@dataclass
class Admitted:
    """The looks of a session, which keep what they are given."""

    calls: list[LookCall] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def admit(self, calls: Iterable[LookCall]) -> None:
        self.calls += calls

    def forget(self, tool_use_id: str) -> None:
        self.ended.append(tool_use_id)


LOOKING = LookCall(id="toolu_1-1", program="git", arguments=("log",))


async def test_what_the_daemon_runs_for_a_call_may_run_once_the_call_may_and_until_it_has_ended(estate: Estate) -> None:
    gate = await gate_of(estate, lambda _: replace(WRITTEN, looks_run=(LOOKING,)))
    gate.looks = looks = Admitted()  # type: ignore[assignment]  # all it needs
    await answer(gate)
    assert (looks.calls, looks.ended) == ([LOOKING], [])
    gate.ended("toolu_1", is_error=False)
    assert looks.ended == ["toolu_1"]


async def test_the_daemon_runs_nothing_for_a_call_that_is_denied(estate: Estate) -> None:
    gate = await gate_of(estate, lambda _: replace(WRITTEN, kind=VerdictKind.DENY, looks_run=(LOOKING,)))
    gate.looks = looks = Admitted()  # type: ignore[assignment]  # as above
    await answer(gate)
    assert looks.calls == []


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
    gate.calls = Away()  # type: ignore[assignment]  # the one method that is called
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
    gate.calls = Hanging()  # type: ignore[assignment]  # as above
    assert '"permissionDecision":"deny"' in await answer(gate)


async def test_a_policy_that_fails_gives_no_answer_at_all(estate: Estate) -> None:
    def judge(_call: ToolCall) -> Verdict:
        raise RuntimeError("a fault in the policy")

    gate = await gate_of(estate, judge)
    with pytest.raises(RuntimeError):
        await answer(gate)
    assert gate.allowed == set()


OTHER = GateRequest(request_id="r-1", call=replace(CALL, tool_use_id="toolu_2", input={"command": "reboot"}))


class Slow:
    """A store that writes no verdict before it is let go."""

    def __init__(self, gate: Gate) -> None:
        self._verdicts = gate.calls
        self.begun = 0
        self.let_go = anyio.Event()

    async def record_call(self, *given: object, **named: object) -> Verdict:
        self.begun += 1
        await self.let_go.wait()
        return await self._verdicts.record_call(*given, **named)  # type: ignore[arg-type]  # passed through


@pytest.mark.parametrize("second", [REQUEST, OTHER], ids=["the same call", "another call"])
async def test_two_requests_with_one_number_are_both_answered_and_end_nothing(
    estate: Estate, second: GateRequest
) -> None:
    gate, answers = await gate_of(estate), Answers()
    slow = Slow(gate)
    gate.calls = slow  # type: ignore[assignment]  # the one method that is called
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for request in (REQUEST, second):
                answering = partial(gate.answer, request, harness=ClaudeHarness(), channel=answers)  # type: ignore[arg-type]  # all it needs
                tasks.start_soon(answering)
            while slow.begun < 2:  # each is judged in a thread first
                await anyio.lowlevel.checkpoint()
            slow.let_go.set()

    allowed = sorted(b'"permissionDecision":"allow"' in sent for sent in answers.sent)
    assert allowed == ([True, True] if second is REQUEST else [False, True])
    assert gate.allowed == {"toolu_1"}
    rows = estate.rows("SELECT tool_use_id, verdict FROM tool_calls ORDER BY id")
    assert [row["verdict"] for row in rows if row["tool_use_id"] == "toolu_2"] == (
        [] if second is REQUEST else ["deny"]
    )


async def test_a_number_that_was_answered_stands_for_no_other_call(estate: Estate) -> None:
    gate = await gate_of(estate)
    assert '"permissionDecision":"allow"' in await answer(gate)
    told = await answer(gate, OTHER)
    assert '"permissionDecision":"deny"' in told
    assert "another request had this one's number" in told


async def test_what_is_withdrawn_is_withdrawn_for_every_request_of_that_number(estate: Estate) -> None:
    gate, answers = await gate_of(estate), Answers()
    gate.calls = Slow(gate)  # type: ignore[assignment]  # the one method that is called
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for request in (REQUEST, OTHER):
                answering = partial(gate.answer, request, harness=ClaudeHarness(), channel=answers)  # type: ignore[arg-type]  # all it needs
                tasks.start_soon(answering)
            await anyio.wait_all_tasks_blocked()
            gate.withdraw("r-1")
    gate.withdraw("r-1")  # once more, and of what nobody knows
    gate.withdraw("r-2")
    assert answers.sent == []
    assert gate.allowed == set()


async def test_the_second_restart_of_a_service_is_the_last_one_for_hours(estate: Estate) -> None:
    restart = Verdict(kind=VerdictKind.ALLOW, reason="restart", actions=(Action(kind="restart", service="web"),))
    gate = await gate_of(estate, lambda _: restart)
    told = [await answer(gate) for _ in range(3)]
    assert ['"permissionDecision":"allow"' in text for text in told] == [True, True, False]
    assert "2 of 2 allowed within 4 h are used" in told[2]
    assert len(estate.rows("SELECT * FROM cooldown_actions")) == 2


async def test_a_call_that_could_not_be_judged_is_a_no_with_the_reason_in_the_log(estate: Estate) -> None:
    async def judge(_call: ToolCall) -> Verdict:
        raise NotJudgedError("the process that judges ended")

    gate = await gate_of(estate)
    gate.judge = judge
    told = await answer(gate)
    assert '"permissionDecision":"deny"' in told
    assert TOO_SLOW in told
    assert gate.allowed == set()
    assert [row["verdict"] for row in estate.rows("SELECT verdict FROM tool_calls")] == ["deny"]
    assert "tool_call_not_judged" in estate.logged.getvalue()
    assert "the process that judges ended" in estate.logged.getvalue()


async def test_a_session_that_is_stopped_while_its_call_is_judged_runs_nothing(estate: Estate) -> None:
    gate = await gate_of(estate, lambda _: ALLOW)

    def judge(_: ToolCall) -> Verdict:
        gate.stopping = lambda: True
        return ALLOW

    gate.judge = here(judge)
    assert "being stopped" in await answer(gate)
    assert gate.allowed == set()
