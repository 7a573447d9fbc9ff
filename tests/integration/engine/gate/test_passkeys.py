"""Where a passkey is demanded, the gate lets nothing run without its signature, whatever the rows say."""

from __future__ import annotations

import anyio
import pytest
import sqlalchemy as sa

from claudeops.domain.gate.approval import Answered, ApprovalStatus
from claudeops.domain.gate.passkey import CHALLENGE_TIME, Assertion, Challenge, NewPasskey
from claudeops.store.acts.approvals import answer_question
from support.asking import KEY, Talk, talking
from support.estate import Estate
from support.store_values import NOW

pytestmark = pytest.mark.anyio

YES = ApprovalStatus.APPROVED


async def run(estate: Estate, statement: str) -> None:
    await estate.store.database.write(lambda connection: connection.execute(sa.text(statement)))


async def sign(talk: Talk) -> Answered:
    """Say yes with a passkey's signature."""
    question = await talk.question()
    new = NewPasskey(
        user_id=1, name="blue", rp_id="localhost", credential_id="aWQ", public_key="a", sign_count=0, created_at=NOW
    )
    await talk.estate.store.passkeys.add(new, by="ada")
    signed = Assertion(
        challenge=Challenge(
            nonce=b"n" * 32,
            call_hash=question.call_hash,
            approval_id=question.id,
            expires_at=question.requested_at + CHALLENGE_TIME,
        ),
        user_id=1,
        rp_id="localhost",
        credential_id="aWQ",
        public_key="a2V5",
        authenticator_data="ZGF0YQ",
        client_data="e30",
        signature="c2ln",
        sign_count=1,
    )
    approvals, at = talk.estate.store.approvals, question.requested_at
    result = await answer_question(
        approvals, KEY, question.id, status=YES, decided_by="web:ada", at=at, assertion=signed
    )
    return result.answered


async def test_a_call_runs_by_a_signed_yes_and_not_by_another(estate: Estate) -> None:
    async with talking(estate, passkey=True) as talk:
        await talk.hook()
        async with anyio.create_task_group() as tasks:

            async def people() -> None:
                assert await talk.say(YES) is Answered.NEEDS_PASSKEY
                assert await sign(talk) is Answered.DECIDED

            tasks.start_soon(people)
            told = await talk.permission()
    assert told["behavior"] == "allow"


async def test_a_row_that_no_longer_demands_a_passkey_fools_no_gate(estate: Estate) -> None:
    async with talking(estate, passkey=True) as talk:
        await talk.hook()
        async with anyio.create_task_group() as tasks:

            async def people() -> None:
                await talk.question()
                await run(estate, "UPDATE approvals SET passkey = NULL")
                assert await talk.say(YES) is Answered.DECIDED  # with the operator's proof, which holds

            tasks.start_soon(people)
            told = await talk.permission()
    assert told["behavior"] == "deny"
    assert "passkey's signature" in str(told["message"])


async def test_a_signature_that_was_written_beside_an_answer_fools_no_gate(estate: Estate) -> None:
    async with talking(estate, passkey=True) as talk:
        await talk.hook()
        async with anyio.create_task_group() as tasks:

            async def people() -> None:
                await talk.question()
                await run(estate, "UPDATE approvals SET passkey = NULL, needed = 2")
                assert await talk.say(YES) is Answered.COUNTED
                await run(estate, "UPDATE approval_answers SET assertion = 'abc'")
                await run(estate, "UPDATE approvals SET status = 'approved'")

            tasks.start_soon(people)
            told = await talk.permission()
    assert told["behavior"] == "deny"
