"""Judging in processes: a call that breaks or outlasts its judge costs its own session, and leaves nothing running."""

from __future__ import annotations

import os
import pickle
import pickletools
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path

import anyio
import psutil
import pytest

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.sessions import Outcome
from claudeops.engine.gate.judge_process import HEADER_BYTES, message, read_answer
from claudeops.engine.gate.judging import TOO_SLOW, USED_UP, JudgeProcess, NotJudgedError, _start, judge_in_process
from claudeops.engine.process import tree
from claudeops.policy.reach import no_names
from claudeops.policy.tiers import judge, tier_policy
from claudeops.structs import replace
from claudeops.text import regex
from support.estate import Estate, deliver, look, report
from support.policy_cases import POLICY, SCOPE, bash
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

ENDLESS = "all(True for _ in iter(int, 1))"
GREEDY = "bytearray(1 << 30)"
NONSENSE = "7"
FAULTY = "1 / 0"


class Written:
    """A judge that allows every call but ``hostile``, for which it evaluates an expression.

    It is source text, because the process that judges imports no module of the tests.
    """

    def __init__(self, expression: str) -> None:
        allow = "model.Verdict(kind=model.VerdictKind.ALLOW, reason='read-only')"
        choice = f"{expression} if call.input['command'] == 'hostile' else {allow}"
        module = "__import__('importlib').import_module('claudeops.domain.calls')"
        self._text = f"(lambda model: lambda call: {choice})({module})"

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return eval, (self._text,)

    def __call__(self, _call: ToolCall) -> Verdict:
        return Verdict(kind=VerdictKind.ALLOW, reason="judged here")


HOSTILE, PLAIN = bash("hostile"), bash("uptime")


@asynccontextmanager
async def judging(expression: str = ENDLESS) -> AsyncIterator[JudgeProcess[Verdict]]:
    process = JudgeProcess(judge=Written(expression), answers=Verdict, call_seconds=PATIENCE_SECONDS)
    try:
        yield process
    finally:
        await process.end()


async def refusal(process: JudgeProcess[Verdict], call: ToolCall = HOSTILE) -> NotJudgedError:
    with pytest.raises(NotJudgedError) as raised:
        await process.judge_call(call)
    return raised.value


def running(process: JudgeProcess[Verdict]) -> psutil.Process:
    assert process.pid is not None
    return psutil.Process(process.pid)


async def test_eight_calls_whose_judging_never_ends_keep_no_other_session_waiting() -> None:
    ended: list[str] = []

    async def ask(process: JudgeProcess[Verdict]) -> None:
        await process.judge_call(HOSTILE)
        ended.append("hostile")

    async with judging() as hostile, judging() as other, anyio.create_task_group() as tasks:
        await hostile.judge_call(PLAIN)
        for _ in range(8):
            tasks.start_soon(ask, hostile)
        await anyio.wait_all_tasks_blocked()
        for _ in range(8):
            assert (await other.judge_call(PLAIN)).kind is VerdictKind.ALLOW
        assert ended == []
        tasks.cancel_scope.cancel()


async def test_a_call_that_is_not_judged_in_time_is_killed_with_its_process_and_the_next_gets_another() -> None:
    async with judging() as process:
        await process.judge_call(PLAIN)
        first = running(process)
        process.call_seconds = 0.2
        error = await refusal(process)
        assert error.answer == TOO_SLOW
        assert "longer than 0.2 s" in str(error)
        assert not first.is_running()
        process.call_seconds = PATIENCE_SECONDS
        assert (await process.judge_call(PLAIN)).kind is VerdictKind.ALLOW
        assert running(process) != first


async def test_an_answer_that_is_no_longer_wanted_is_not_taken_for_the_answer_to_the_next_call() -> None:
    async with judging() as process:
        await process.judge_call(PLAIN)
        first = running(process)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.judge_call, HOSTILE)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert not first.is_running()
        assert (await process.judge_call(PLAIN)).reason == "read-only"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        pytest.param(GREEDY, "MemoryError", id="eats memory"),
        pytest.param(FAULTY, "ZeroDivisionError", id="fails"),
        pytest.param(NONSENSE, "its answer is a int", id="answers nonsense"),
        pytest.param("__import__('os').kill(0, 9)", "ended", id="dies"),
    ],
)
async def test_a_judge_that_breaks_gives_no_verdict_and_the_next_call_gets_another(
    expression: str, reason: str
) -> None:
    async with judging(expression) as process:
        error = await refusal(process)
        assert reason in str(error)
        assert error.answer == TOO_SLOW
        assert (await process.judge_call(PLAIN)).kind is VerdictKind.ALLOW


async def test_a_process_that_was_killed_between_two_calls_is_replaced() -> None:
    async with judging() as process:
        await process.judge_call(PLAIN)
        running(process).kill()
        await refusal(process, PLAIN)
        assert (await process.judge_call(PLAIN)).kind is VerdictKind.ALLOW


async def test_a_session_that_has_used_up_its_time_gets_no_verdict_but_delivers_its_report() -> None:
    async with judging() as process:
        process.session_seconds = 0
        error = await refusal(process, PLAIN)
        assert error.answer == USED_UP
        assert process.pid is None
        delivered = await process.judge_call(replace(PLAIN, tool_name="StructuredOutput"))
        assert delivered.reason == "judged here"


async def test_a_process_ends_when_the_daemon_has_gone() -> None:
    async with judging() as process:
        await process.judge_call(PLAIN)
        orphan = process._running
        assert orphan is not None
        await orphan.stream.aclose()
        with anyio.fail_after(PATIENCE_SECONDS):
            assert await orphan.process.wait() == 0


async def test_the_kernel_ends_a_call_that_never_ends_when_the_daemon_does_not() -> None:
    async with judging() as process:
        process._running = orphan = await _start(process.judge, 0.2)
        assert "ended" in str(await refusal(process))
        assert orphan.process.returncode == -signal.SIGALRM


async def test_nothing_runs_after_the_session() -> None:
    before = set(psutil.Process().children())
    async with judge_in_process(Written(ENDLESS)) as judged:
        await judged(PLAIN)
        (started,) = set(psutil.Process().children()) - before
        assert started.pid in tree._started  # no look for orphans takes it for one
    assert not started.is_running()
    assert started.pid not in tree._started


def test_an_answer_names_no_function_that_is_then_called(tmp_path: Path) -> None:
    class Answer:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return os.mkdir, (str(tmp_path / "made"),)

    assert "posix.mkdir" in str(read_answer(pickle.dumps(Answer())))
    assert list(tmp_path.iterdir()) == []


class PickledByName(StrEnum):
    """An enum whose members are pickled as Python 3.11 to 3.11.3 pickles every one."""

    ALLOW = "allow"

    def __reduce_ex__(self, _protocol: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        return getattr, (type(self), self.name)


def test_an_answer_can_be_read_whatever_python_makes_of_its_enums() -> None:
    verdict = Verdict(kind=VerdictKind.ALLOW, reason="read-only")
    assert read_answer(message(verdict)[HEADER_BYTES:]) == verdict
    named = {text for _, text, _ in pickletools.genops(message(PickledByName.ALLOW)[HEADER_BYTES:])}
    assert "PickledByName" in named
    assert "getattr" not in named


def test_an_expression_that_was_used_reaches_the_process_like_one_that_was_not() -> None:
    used = regex.Pattern("a+")
    assert used.fullmatch("aa")
    passed_on = pickle.loads(message(used)[HEADER_BYTES:])  # noqa: S301 - our own
    assert passed_on.fullmatch("aa")


async def test_the_policy_says_the_same_there_as_here() -> None:
    scope = replace(SCOPE, expand=no_names)  # the process has no test's functions
    policy = partial(judge, tier=tier_policy(POLICY, 2), scope=scope)
    commands = ("uptime && df -h /", "docker restart web", "cat /etc/shadow", "curl https://elsewhere.example/")
    async with judge_in_process(policy) as judged:
        for command in commands:
            there, here = await judged(bash(command)), policy(bash(command))
            assert there == here
            assert there.look == here.look


async def test_a_whole_session_is_judged_by_its_process(estate: Estate) -> None:
    tiers = {number: replace(tier, judge=judge) for number, tier in estate.context.tiers.items()}
    estate.with_context(tiers=tiers, judging=judge_in_process)
    ending = await estate.run(look(), look("toolu_2", "cat /etc/shadow"), deliver(report()))
    assert ending.outcome is Outcome.SUCCESS
    assert [row["verdict"] for row in estate.rows("SELECT verdict FROM tool_calls ORDER BY id")][:2] == [
        "allow",
        "deny",
    ]
