"""What a session does is told while it runs, as values, redacted, in the order in which it happens."""

from __future__ import annotations

import json

import anyio
import pytest

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.live import (
    AssistantSaid,
    CallEnded,
    CallJudged,
    CallStarted,
    LinesLost,
    LiveFact,
    ResultCame,
    SessionBegan,
    SessionEnded,
)
from claudeops.domain.sessions import DecisionReason, Outcome
from support.estate import Estate, deliver, look, report
from support.waiting import PATIENCE_SECONDS, until


def say(text: str) -> dict[str, object]:
    content = [{"type": "text", "text": text}]
    return {"frame": {"type": "assistant", "message": {"role": "assistant", "content": content}}}


async def told(estate: Estate, *steps: dict[str, object], kept: int = 1000) -> list[LiveFact]:
    """Run one chain of the stand-in under a supervisor and return what the hub told of it."""
    estate.script(*steps)
    await estate.queue()
    supervisor = estate.supervisor()
    with estate.context.hub.subscribe(kept=kept) as reader:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await until(lambda: bool(estate.rows("SELECT 1 FROM sessions WHERE status = 'ended'")))
            await supervisor.drain(PATIENCE_SECONDS)
        return list(iter(reader.take, None))


async def test_a_session_is_told_from_its_beginning_to_what_follows(estate: Estate) -> None:
    steps = [say("I look\nat web."), look(command="curl -s web"), deliver(report())]

    facts = await told(estate, *steps)

    began, said, judged, ended, result, over = facts
    assert isinstance(began, SessionBegan)
    assert (began.session_id, began.chain, began.tier, began.model) == (1, 1, 1, "haiku")
    assert isinstance(said, AssistantSaid)
    assert said.text == "I look at web."
    assert isinstance(judged, CallJudged)
    assert (judged.line, judged.verdict) == ("Running: curl -s web...", VerdictKind.ALLOW)
    assert isinstance(ended, CallEnded)
    assert (ended.tool_use_id, ended.line, ended.text) == (judged.tool_use_id, judged.line, "ok")
    assert isinstance(result, ResultCame)
    assert result.cost_usd == 0.01
    assert isinstance(over, SessionEnded)
    assert (over.outcome, over.decision) == (Outcome.SUCCESS, DecisionReason.HEALTHY)
    assert (over.cost_usd, over.summary) == (0.01, "Looked at every service of the estate.")


async def test_a_denied_call_is_told_with_the_reason(estate: Estate) -> None:
    def deny(_call: ToolCall, _workspace: object) -> Verdict:
        return Verdict(kind=VerdictKind.DENY, reason="not at tier 1")

    estate.with_judge(deny)

    facts = await told(estate, look(command="reboot"), deliver(report()))

    (judged,) = [fact for fact in facts if isinstance(fact, CallJudged)]
    assert (judged.verdict, judged.reason) == (VerdictKind.DENY, "not at tier 1")


@pytest.mark.parametrize("place", ["command", "output", "text"])
async def test_no_secret_is_told(estate: Estate, place: str) -> None:
    secret = "planted-secret-value"
    call = look(command=f"echo {secret}" if place == "command" else "true")
    if place == "output":
        call["tool"]["output"] = f"it is {secret}"  # type: ignore[index]
    text = say(f"I know {secret}" if place == "text" else "I know")

    facts = await told(estate, text, call, deliver(report()))

    assert {type(fact) for fact in facts} >= {AssistantSaid, CallJudged, CallEnded}
    assert secret not in repr(facts)


async def test_a_reader_that_never_reads_holds_up_no_session(estate: Estate) -> None:
    facts = await told(estate, {"raw": json.dumps(say("x")["frame"]) + "\n", "times": 5000}, deliver(report()), kept=10)

    assert isinstance(facts[0], LinesLost)
    assert len(facts) == 11
    assert isinstance(facts[-1], SessionEnded)
    assert facts[-1].outcome is Outcome.SUCCESS


async def test_a_call_of_a_cli_that_asks_nobody_is_told_when_it_starts(estate: Estate) -> None:
    estate.with_context(allow_ungated=("codex",))
    item = {"id": "i1", "type": "command_execution", "command": "uptime", "aggregated_output": "up 3 days"}
    lines = [
        {"type": "thread.started", "thread_id": "t1"},
        {"type": "item.started", "item": {**item, "status": "in_progress"}},
        {"type": "item.completed", "item": {**item, "status": "completed", "exit_code": 0}},
    ]
    with estate.context.hub.subscribe() as reader:
        await estate.one_shot("codex", lines=lines)
        facts = list(iter(reader.take, None))

    started, ended = [fact for fact in facts if isinstance(fact, CallStarted | CallEnded)]
    assert isinstance(started, CallStarted)
    assert started.line == "Running: uptime..."
    assert isinstance(ended, CallEnded)
    assert ended.text == "up 3 days"
