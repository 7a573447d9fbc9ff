"""A session's gate that puts calls to people, a CLI that asks it, and people who answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field

import anyio

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.gate.approval import Answered, Approval, ApprovalStatus
from claudeops.engine.gate.answering import LOOK_SECONDS, AnswerWaker
from claudeops.engine.gate.approvals import ApprovalService
from claudeops.engine.gate.gate import Gate
from claudeops.harness.claude import ClaudeHarness
from claudeops.harness.protocol import GateRequest, QuestionWay
from claudeops.store.acts.approvals import answer_question
from support.estate import Estate, here
from support.stores import approvals_of
from support.waiting import PATIENCE_SECONDS

KEY = b"k" * 32
ASK = Verdict(kind=VerdictKind.ASK, reason="restarts the database")
CALL = ToolCall(tool_use_id="toolu_1", tool_name="Bash", input={"command": "sh mend.sh"})


@dataclass
class Answers:
    """A channel that keeps what was sent."""

    sent: list[dict[str, object]] = field(default_factory=list)

    async def send(self, message: bytes) -> bool:
        self.sent.append(json.loads(message)["response"]["response"])
        return True


@dataclass
class Talk:
    """A gate with a desk, and a CLI that asks it."""

    estate: Estate
    gate: Gate
    channel: Answers = field(default_factory=Answers)

    async def hook(self, call: ToolCall = CALL, name: str = "q") -> dict[str, object]:
        return await self._ask(GateRequest(request_id=name, call=call))

    async def permission(self, call: ToolCall = CALL, name: str = "p") -> dict[str, object]:
        return await self._ask(GateRequest(request_id=name, call=call, question=QuestionWay.PERMISSION))

    async def _ask(self, request: GateRequest) -> dict[str, object]:
        await self.gate.answer(request, harness=ClaudeHarness(), channel=self.channel)  # type: ignore[arg-type]  # all it needs
        return self.channel.sent[-1]

    async def question(self) -> Approval:
        while not (waiting := await approvals_of(self.estate.store)):  # noqa: ASYNC110 - as an operator looks
            await anyio.sleep(0.01)
        return waiting[0]

    async def say(self, status: ApprovalStatus, key: bytes = KEY, who: str = "ada") -> Answered:
        asked, now = await self.question(), self.estate.context.clock.now()
        approvals = self.estate.store.approvals
        result = await answer_question(approvals, key, asked.id, status=status, decided_by=who, at=now)
        return result.answered

    async def permitted(self, status: ApprovalStatus, key: bytes = KEY, call: ToolCall = CALL) -> dict[str, object]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.say, status, key)
            return await self.permission(call)
        raise AssertionError

    def verdicts(self) -> list[tuple[object, object]]:
        rows = self.estate.rows("SELECT verdict, reason FROM tool_calls ORDER BY id")
        return [(row["verdict"], row["reason"]) for row in rows]


@asynccontextmanager
async def talking(
    estate: Estate,
    judge: Callable[[ToolCall], Verdict] = lambda _: ASK,
    *,
    seconds: float = PATIENCE_SECONDS,
    tier: int = 1,
    look_seconds: float = LOOK_SECONDS,
    waker: AnswerWaker | None = None,
    passkey: bool = False,
) -> AsyncIterator[Talk]:
    """Open the gate of a session that asks people."""
    await estate.queue(tier)
    session = await estate.claim()
    context = estate.context
    workdir = estate.root / "work"
    workdir.mkdir(exist_ok=True)
    desk = ApprovalService(
        session=session,
        approvals=estate.store.approvals,
        clock=context.clock,
        key=KEY,
        timeout_seconds=seconds,
        workdir=str(workdir),
        own=(str(workdir),),
        redact=context.redactor.text,
        waiting=nullcontext,
        log=context.log,
        waker=waker or AnswerWaker(look_seconds=look_seconds),
        passkey=passkey,
    )
    yield Talk(
        estate,
        Gate(
            session=session,
            judge=here(judge),
            rules=context.rules,
            calls=estate.store.calls,
            clock=context.clock,
            display_input=lambda call: json.dumps(dict(call.input)),
            approvals=desk,
            log=context.log,
        ),
    )
