"""People are asked in the permission request, and only what was put to them, as it was, runs after their yes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import anyio
import pytest

from claudeops.domain.actions import Action
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.gate.approval import Answered, Approval, ApprovalStatus, NewApproval, answer
from claudeops.engine.gate.approval_key import ensure_key, read_key
from claudeops.engine.gate.approvals import STALE
from claudeops.engine.session.runner import SessionRunner
from claudeops.errors import ConfigurationError, MissingInputError
from claudeops.store.approvals import Approvals
from claudeops.structs import replace
from support.asking import ASK, CALL, KEY, talking
from support.estate import Estate, deliver, look, report
from support.loop_time import LeapingClock
from support.store_values import OTHER_OWNER
from support.stores import approvals_of
from support.waiting import PATIENCE_SECONDS, until, until_it

pytestmark = pytest.mark.anyio


async def test_a_persons_yes_lets_the_very_call_run_and_is_recorded(estate: Estate) -> None:
    restart = replace(ASK, actions=(Action(kind="restart", service="web"),))
    async with talking(estate, lambda _: restart) as talk:
        assert (await talk.hook())["hookSpecificOutput"] == {
            "hookEventName": "PreToolUse",
            "permissionDecision": "ask",
            "permissionDecisionReason": "restarts the database",
        }
        assert estate.rows("SELECT * FROM cooldown_actions") == []
        told = await talk.permitted(ApprovalStatus.APPROVED)
    assert told == {"behavior": "allow", "updatedInput": {"command": "sh mend.sh"}}
    assert talk.verdicts() == [
        ("ask", "restarts the database"),
        ("allow", "approved by ada (approval 1): restarts the database"),
    ]
    assert [row["service"] for row in estate.rows("SELECT service FROM cooldown_actions")] == ["web"]
    assert [row["status"] for row in estate.rows("SELECT status FROM approvals")] == ["used"]
    assert talk.gate.allowed == {"toolu_1"}


async def test_people_are_shown_what_runs_and_their_yes_is_for_that(estate: Estate) -> None:
    written = replace(ASK, ran={"command": "/usr/bin/sh mend.sh"})
    async with talking(estate, lambda _: written) as talk:
        assert "updatedInput" not in str(await talk.hook())
        told = await talk.permitted(ApprovalStatus.APPROVED)
    assert told == {"behavior": "allow", "updatedInput": {"command": "/usr/bin/sh mend.sh"}}
    assert [row["input"] for row in estate.rows("SELECT input FROM approvals")] == [
        '{"command": "/usr/bin/sh mend.sh"}'
    ]
    allowed = estate.rows("SELECT input, ran FROM tool_calls WHERE verdict = 'allow'")
    assert allowed == [{"input": '{"command": "sh mend.sh"}', "ran": '{"command": "/usr/bin/sh mend.sh"}'}]
    assert talk.gate.ran == {"toolu_1": {"command": "/usr/bin/sh mend.sh"}}


@pytest.mark.parametrize(("services", "kept"), [(("web", "db"), '["web","db"]'), ((), "[]"), (None, None)])
async def test_a_question_keeps_which_services_it_is_about_and_null_where_not_all_are_known(
    estate: Estate, services: tuple[str, ...] | None, kept: str | None
) -> None:
    actions = (Action(kind="restart", service="web"),)
    async with talking(estate, lambda _: replace(ASK, actions=actions, services=services)) as talk:
        await talk.hook()
        await talk.permitted(ApprovalStatus.DENIED)
    assert [row["services"] for row in estate.rows("SELECT services FROM approvals")] == [kept]


@pytest.mark.parametrize(
    ("command", "hidden"),
    [
        ("python3 -c 'x=1;token=exec(1)'", True),
        ("psql postgres://u:`reboot`@db/", True),
        ("echo planted-secret-value;password=planted-secret-value`reboot`", True),
        ("docker login -p planted-secret-value", False),
        ("curl -H 'x-api-key: planted-secret-value' http://web", False),
        ("docker restart web", False),
    ],
)
async def test_a_question_says_whether_people_see_the_whole_call(estate: Estate, command: str, hidden: bool) -> None:
    """By the redactor that a session has: it knows what the daemon knows."""
    estate.with_judge(lambda _, __: ASK)
    estate.with_context(approval_key=KEY)
    supervisor = estate.supervisor(slots=1, run_session=SessionRunner(context=estate.context).running)
    estate.script(look(command=command), deliver(report()))
    await estate.queue()

    async def asked() -> bool:
        return bool(await approvals_of(estate.store))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        await until_it(asked)
        (question,) = await approvals_of(estate.store)
        said = answer(KEY, question, status=ApprovalStatus.DENIED, decided_by="ada", at=datetime.now(UTC))
        await estate.store.approvals.answer_approval(question.id, said)
        await until(lambda: not supervisor.running)
        await supervisor.drain(PATIENCE_SECONDS)
    assert question.hidden is hidden
    assert "planted-secret-value" not in str(question.input)
    (reason,) = (row["reason"] for row in estate.rows("SELECT reason FROM tool_calls WHERE verdict = 'deny'"))
    assert ("people did not see all of it" in str(reason)) is hidden


async def test_a_script_says_what_of_it_people_do_not_see(estate: Estate) -> None:
    texts = {
        "whole.sh": "echo planted-secret-value\n",
        "masked.sh": "x='a;token=b'\n",
        "long.sh": "#" * 20_001,
        "huge.sh": "#" * ((1 << 20) + 1),
        "credentials.sh": "echo whatever stands in it\n",
        "program.sh": "\x7fELF\0\0password=planted\n" + "#" * 20_001,
    }
    async with talking(estate) as talk:
        for name, text in texts.items():
            (estate.root / "work" / name).write_text(text)
        call = replace(CALL, input={"command": "sh " + " ".join(texts)})
        await talk.hook(call)
        await talk.permitted(ApprovalStatus.DENIED, call=call)
    (row,) = estate.rows("SELECT scripts FROM approvals")
    found = {Path(each["path"]).name: (each["hidden"], each["cut"]) for each in json.loads(str(row["scripts"]))}
    assert found == {
        "whole.sh": (False, False),
        "masked.sh": (True, False),
        "long.sh": (False, True),
        "huge.sh": (False, True),
        "credentials.sh": (True, False),
        "program.sh": (False, False),
    }
    assert "whatever stands in it" not in str(row["scripts"])
    assert "(a program of 20,024 bytes: its contents are no text)" in str(row["scripts"])


async def test_a_yes_that_comes_when_the_session_is_being_stopped_runs_nothing(estate: Estate) -> None:
    async with talking(estate) as talk:
        await talk.hook()
        talk.gate.stopping = lambda: True
        told = await talk.permitted(ApprovalStatus.APPROVED)
    assert told["behavior"] == "deny"
    assert talk.gate.allowed == set()


async def test_a_persons_no_is_a_no_with_their_name(estate: Estate) -> None:
    async with talking(estate) as talk:
        await talk.hook()
        told = await talk.permitted(ApprovalStatus.DENIED)
    assert told == {"behavior": "deny", "message": "needs approval, and ada said no"}
    assert [kind for kind, _ in talk.verdicts()] == ["ask", "deny"]


async def test_silence_is_a_no_when_the_time_is_over(estate: Estate) -> None:
    async with talking(estate, seconds=0.1) as talk:
        await talk.hook()
        told = await talk.permission()
    assert told == {"behavior": "deny", "message": "needs approval, and nobody answered in time"}
    assert [row["status"] for row in estate.rows("SELECT status FROM approvals")] == ["expired"]
    assert estate.rows("SELECT * FROM events WHERE resolved_at IS NULL") == []


async def test_an_answer_without_the_operators_proof_lets_nothing_through(estate: Estate) -> None:
    """Whoever may write to the database, a session for instance, has not the key."""
    async with talking(estate) as talk:
        await talk.hook()
        told = await talk.permitted(ApprovalStatus.APPROVED, key=b"guessed")
    assert told == {"behavior": "deny", "message": "needs approval, and the answer carries no operator's proof"}
    assert talk.gate.allowed == set()


async def test_a_script_that_was_changed_after_people_were_asked_does_not_run(estate: Estate) -> None:
    script = estate.root / "work" / "mend.sh"
    async with talking(estate) as talk:
        script.write_text("docker restart db\n", encoding="utf-8")
        await talk.hook()

        async def change_then_approve() -> None:
            asked = await talk.question()
            assert "docker restart db" in str(asked.scripts)
            script.write_text("docker volume rm db\n", encoding="utf-8")
            await talk.say(ApprovalStatus.APPROVED)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(change_then_approve)
            told = await talk.permission()
    assert told["behavior"] == "deny"
    assert "changed since people were asked" in str(told["message"])


@pytest.mark.parametrize(
    "put",
    [
        pytest.param(replace(CALL, input={"command": "sh other.sh"}), id="another input"),
        pytest.param(replace(CALL, tool_name="Write"), id="another tool"),
        pytest.param(replace(CALL, tool_use_id="toolu_2"), id="another call"),
    ],
)
async def test_only_what_was_put_to_people_is_asked_about(estate: Estate, put: ToolCall) -> None:
    async with talking(estate) as talk:
        await talk.hook()
        assert (await talk.permission(put))["behavior"] == "deny"
    assert estate.rows("SELECT * FROM approvals") == []


@pytest.mark.parametrize("kind", [VerdictKind.DENY, VerdictKind.ALLOW])
async def test_a_permission_request_turns_no_answer_of_the_hook_around(estate: Estate, kind: VerdictKind) -> None:
    async with talking(estate, lambda _: Verdict(kind=kind, reason="so")) as talk:
        await talk.hook()
        assert (await talk.permission())["behavior"] == "deny"
    assert [verdict for verdict, _ in talk.verdicts()] == [kind.value, "deny"]


async def test_a_yes_is_good_for_one_permission_request(estate: Estate) -> None:
    async with talking(estate) as talk:
        await talk.hook()
        await talk.permitted(ApprovalStatus.APPROVED)
        assert (await talk.permission())["behavior"] == "deny"


async def test_in_a_dry_run_nobody_is_asked(estate: Estate) -> None:
    estate.with_context(rules=replace(estate.context.rules, dry_run=True))
    async with talking(estate) as talk:
        told = await talk.hook()
    assert "dry run: would restarts the database" in str(told)
    assert estate.rows("SELECT * FROM approvals") == []


async def test_a_request_that_the_cli_took_back_leaves_no_question_open(estate: Estate) -> None:
    async with talking(estate) as talk:
        await talk.hook()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.permission)
            await talk.question()
            talk.gate.withdraw("p")
    assert [row["status"] for row in estate.rows("SELECT status FROM approvals")] == ["expired"]


async def test_a_request_that_is_taken_back_while_its_question_is_written_leaves_none_open(estate: Estate) -> None:
    written, goes_on = anyio.Event(), anyio.Event()

    class Slow:
        """Approvals whose answer comes some time after the row stands."""

        async def request_approval(self, new: NewApproval) -> Approval:
            asked = await estate.store.approvals.request_approval(new)
            written.set()
            await goes_on.wait()
            return asked

        def __getattr__(self, name: str) -> object:
            return getattr(estate.store.approvals, name)

    async with talking(estate) as talk:
        await talk.hook()
        assert talk.gate.approvals is not None
        talk.gate.approvals = replace(talk.gate.approvals, approvals=cast("Approvals", Slow()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.permission)
            await written.wait()
            talk.gate.withdraw("p")
            goes_on.set()
    assert [row["status"] for row in estate.rows("SELECT status FROM approvals")] == ["expired"]


async def test_session_that_was_taken_over_is_denied_without_asking_anybody(estate: Estate) -> None:
    async with talking(estate) as talk:
        await talk.hook()
        await estate.store.recovery.reconcile(OTHER_OWNER, now=datetime.now(UTC), alive=lambda _: False)
        told = await talk.permission()
    assert STALE in str(told)
    assert estate.rows("SELECT * FROM approvals") == []
    assert '"stale_attempt"' in estate.logged.getvalue()


async def test_while_people_are_asked_no_clock_runs_and_no_slot_is_held(estate: Estate) -> None:
    """A session whose wall clock is shorter than the answer takes, beside another that needs its slot."""
    clock = LeapingClock()
    estate.with_judge(lambda _, __: ASK)
    estate.with_context(approval_key=KEY, clock=clock)
    supervisor = estate.supervisor(slots=1, run_session=SessionRunner(context=estate.context).running)
    estate.script(look(), deliver(report()))
    await estate.queue()
    await estate.queue()

    async def both_are_asked() -> bool:
        return len(await approvals_of(estate.store)) == 2

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        await until_it(both_are_asked)
        assert len(supervisor.running) == 2
        await clock.leap(2 * estate.context.timeouts.session, noticed=False)
        for asked in await approvals_of(estate.store):
            said = answer(KEY, asked, status=ApprovalStatus.APPROVED, decided_by="ada", at=datetime.now(UTC))
            assert await estate.store.approvals.answer_approval(asked.id, said) is Answered.DECIDED
        await until(lambda: not supervisor.running)
        await supervisor.drain(PATIENCE_SECONDS)
    assert [row["outcome"] for row in estate.rows("SELECT outcome FROM sessions")] == ["success", "success"]
    verdicts = {row["verdict"] for row in estate.rows("SELECT verdict FROM tool_calls")}
    assert verdicts == {"ask", "allow"}


def test_the_key_is_made_once_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    key = ensure_key(tmp_path)
    assert ensure_key(tmp_path) == read_key(tmp_path) == key
    assert (tmp_path / "approval.key").stat().st_mode & 0o777 == 0o600


def test_a_key_that_is_not_as_it_should_be_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="start the daemon once"):
        read_key(tmp_path)
    ensure_key(tmp_path)
    (tmp_path / "approval.key").chmod(0o644)
    with pytest.raises(ConfigurationError, match=r"mode 644.*: remove it"):
        read_key(tmp_path)
    (tmp_path / "approval.key").chmod(0o600)
    (tmp_path / "approval.key").write_bytes(b"short")
    with pytest.raises(ConfigurationError, match="damaged"):
        ensure_key(tmp_path)
