"""Whether a session that acted is believed: shipped policy, gate, stream, ledger and decision together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from claudeops.domain.calls import ToolCall, Verdict
from claudeops.domain.stream.transcript import ObservedCall
from claudeops.engine.control import StopControl
from claudeops.engine.recovery.replay import LogRead, read_log
from claudeops.engine.session.files import LoggedInputs
from claudeops.engine.session.runner import SessionRunner
from claudeops.formats.stream.tallies import HELD_INPUT_BYTES
from claudeops.policy.tiers import JudgeScope, judge, tier_policy
from claudeops.structs import replace
from support.estate import Estate, deliver, report
from support.policy_cases import POLICY
from support.streams import called

pytestmark = pytest.mark.anyio

REQUEST = "web is down"
WELL = deliver(report())
UNSEEN = "no look at web came back after the last action"


def as_shipped(call: ToolCall, scope: JudgeScope) -> Verdict:
    return judge(call, tier=tier_policy(POLICY, 2), scope=replace(scope, repos_dir="/repos"))


def bash(name: str, command: str, **more: object) -> Mapping[str, object]:
    return {"tool": {"id": name, "name": "Bash", "input": {"command": command}, **more}}


def answered(name: str, *, fails: bool = False) -> Mapping[str, object]:
    block = {"type": "tool_result", "tool_use_id": name, "content": "ok", "is_error": fails}
    return {"frame": {"type": "user", "message": {"role": "user", "content": [block]}}}


def seeing(**more: object) -> Mapping[str, object]:
    return bash("look", "docker inspect --format '{{.State.Status}}' web", **more)


RESTART = bash("act", "docker restart web")
LOOK_BEFORE = bash("before", "docker logs --tail 1 web")


async def told(estate: Estate, *steps: Mapping[str, object], request: str = REQUEST) -> tuple[str, str]:
    """Run a tier 2 to its end; return its decision, and the events that it left."""
    estate.with_judge(as_shipped)
    estate.script(*steps)
    session = await estate.claim((await estate.queue(2, request)).id)
    ending = await SessionRunner(context=estate.context).run(session, StopControl())
    await estate.store.queue.finish(ending, rules=estate.context.rules)
    events = "; ".join(str(event["message"]) for event in estate.rows("SELECT message FROM events"))
    return str(estate.row(session.id)["decision_reason"]), events


async def test_a_restart_that_is_looked_at_afterwards_is_believed(estate: Estate) -> None:
    assert await told(estate, LOOK_BEFORE, RESTART, seeing(), WELL) == ("healthy", "")
    assert [check["status"] for check in estate.rows("SELECT status FROM service_checks")] == ["healthy"]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((RESTART,), id="nothing but the action"),
        pytest.param((LOOK_BEFORE, RESTART), id="a look before it"),
        pytest.param((RESTART, seeing(fails=True)), id="a look that failed"),
        pytest.param((RESTART, bash("look", "docker logs web --follow")), id="a look that was denied"),
        pytest.param((RESTART, bash("look", "df -h")), id="a look at the disk"),
        pytest.param((RESTART, bash("look", "docker logs --tail 1 photos")), id="a look at another service"),
        pytest.param((RESTART, bash("look", "curl -sf -w 'web: up' http://photos/")), id="a look with a label"),
        pytest.param((RESTART, bash("look", "echo web is fine")), id="words"),
        pytest.param((RESTART, bash("look", "true")), id="nothing at all"),
        pytest.param((RESTART, bash("look", "docker logs --tail 1 web || true")), id="a look that cannot fail"),
        pytest.param((RESTART, bash("look", "docker logs --tail 1 web | cat")), id="a look whose failure a pipe hides"),
        pytest.param((RESTART, bash("look", "docker logs --tail 1 web; date")), id="a look whose failure is overheard"),
        pytest.param((RESTART, bash("look", "cat /repos/web/CLAUDE-OPS.md")), id="a look into the manifest"),
        pytest.param((bash("act", "docker restart web && docker logs --tail 1 web"),), id="action and look in one"),
        pytest.param(
            (bash("act", "docker restart web", left_open=True), seeing(), answered("act")),
            id="a look that ended before the action had",
        ),
        pytest.param(
            (
                bash("act", "docker restart web", left_open=True),
                seeing(left_open=True),
                answered("act"),
                answered("look"),
            ),
            id="a look that was asked for with the action",
        ),
        pytest.param(
            (seeing(), bash("task", "uptime", left_open=True), bash("act", "docker restart web", within="task")),
            id="the action is a subagent's, after the look",
        ),
    ],
)
async def test_a_restart_that_nothing_looked_at_afterwards_is_not_believed(
    estate: Estate, steps: tuple[Mapping[str, object], ...]
) -> None:
    steps = (*steps, answered("task")) if any("within" in str(step) for step in steps) else steps
    decision, events = await told(estate, *steps, WELL)

    assert decision == "no_evidence"
    assert UNSEEN in events
    assert estate.rows("SELECT status FROM service_checks") == []
    assert "unproven-health: 1 healthy checks were not recorded" in str(estate.row(1)["warnings"])


async def test_a_subagents_look_after_a_subagents_action_is_one(estate: Estate) -> None:
    steps = (
        bash("task", "uptime", left_open=True),
        bash("act", "docker restart web", within="task"),
        seeing(within="task"),
        answered("task"),
    )
    assert await told(estate, *steps, WELL) == ("healthy", "")


async def test_a_restart_that_ended_in_an_error_is_not_believed_to_have_helped(estate: Estate) -> None:
    decision, events = await told(estate, bash("act", "docker restart web", fails=True), seeing(), WELL)

    assert decision == "no_evidence"
    assert "the restart of web ended in an error" in events
    assert [row["success"] for row in estate.rows("SELECT success FROM cooldown_actions")] == [0]
    assert estate.rows("SELECT status FROM service_checks") == []


async def test_a_look_at_an_address_counts_where_the_request_says_whose_it_is(estate: Estate) -> None:
    steps = (RESTART, bash("look", "curl -sSf http://127.0.0.1:3000/"), WELL)

    assert (await told(estate, *steps))[0] == "no_evidence"
    assert (await told(estate, *steps, request="web (http://127.0.0.1:3000/) is down"))[0] == "healthy"


@pytest.mark.parametrize("command", ["echo web is fine", "cat /repos/web/CLAUDE-OPS.md", "uptime || true"])
async def test_a_session_that_did_nothing_and_looked_at_nothing_is_not_believed_either(
    estate: Estate, command: str
) -> None:
    decision, events = await told(estate, bash("look", command), WELL)

    assert decision == "no_evidence"
    assert "no call looked at anything and came back without an error" in events


async def test_a_session_whose_only_look_failed_is_not_believed(estate: Estate) -> None:
    assert (await told(estate, bash("look", "uptime", fails=True), WELL))[0] == "no_evidence"


async def test_the_log_of_a_dead_daemon_is_weighed_like_a_live_session(estate: Estate) -> None:
    estate.with_judge(as_shipped)
    for steps, decision in (((RESTART, seeing(), WELL), "healthy"), ((LOOK_BEFORE, RESTART, WELL), "no_evidence")):
        estate.script(*steps)
        session = await estate.claim((await estate.queue(2, REQUEST)).id)
        ending = await SessionRunner(context=estate.context).run(session, StopControl())
        read = await read_log(session, estate.context)

        assert isinstance(read, LogRead)
        assert read.ending.looks == ending.looks
        await estate.store.queue.finish(read.ending, rules=estate.context.rules)
        assert estate.row(session.id)["decision_reason"] == decision


# --- more input than is held --------------------------------------------------------------------------


def flood() -> Mapping[str, object]:
    """Return a step: calls that nothing comes of, with as much input as is held for a session."""
    lengths = [200_000] * (HELD_INPUT_BYTES // 200_000) + [1000] * 200 + [1] * 50
    calls = (called(f"flood{number}", "Bash", {"command": "x" * length}) for number, length in enumerate(lengths))
    return {"raw": "".join(f"{json.dumps(call)}\n" for call in calls)}


async def test_look_after_more_input_than_is_held_is_read_in_the_log_and_believed(estate: Estate) -> None:
    estate.with_judge(as_shipped)
    estate.script(flood(), RESTART, seeing(), WELL)
    session = await estate.claim((await estate.queue(2, REQUEST)).id)
    ending = await SessionRunner(context=estate.context).run(session, StopControl())
    assert [look.tool_use_id for look in ending.looks] == ["look"]
    read = await read_log(session, estate.context)
    assert isinstance(read, LogRead)
    assert read.ending.looks == ending.looks
    await estate.store.queue.finish(ending, rules=estate.context.rules)
    assert estate.row(session.id)["decision_reason"] == "healthy"


async def test_input_in_a_log_that_is_gone_or_another_is_no_evidence(estate: Estate, tmp_path: Path) -> None:
    call = ObservedCall(tool_use_id="look", name="Bash", input={}, line=2)
    log = tmp_path / "session-000001.ndjson"
    inputs = LoggedInputs(log, estate.context.clis.harnesses["claude"], estate.context.redactor)
    assert await inputs.find(call) is None
    lines = ({"type": "system"}, called("look", "Bash", {"command": "uptime"}), called("other"))
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    found = await inputs.find(call)
    assert found == ToolCall(tool_use_id="look", tool_name="Bash", input={"command": "uptime"})
    for elsewhere in (1, 3, 4):
        assert await inputs.find(replace(call, line=elsewhere)) is None
