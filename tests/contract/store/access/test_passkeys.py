"""Passkeys in any store: whose they are, and that what one has signed is kept with the answer or not at all."""

from __future__ import annotations

import pytest

from claudeops.domain.gate.approval import Answered, Approval, ApprovalStatus
from claudeops.domain.gate.passkey import CHALLENGE_TIME, Assertion, Challenge, NewPasskey
from claudeops.store.access.passkeys import MOST
from claudeops.store.acts.approvals import AnswerResult, answer_question
from claudeops.store.store import Store
from claudeops.structs import replace
from support.answering import asked_of_people
from support.store_values import NOW, after
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.dialect

KEY = b"k" * 32
NEW = NewPasskey(
    user_id=1,
    name="blue key",
    rp_id="localhost",
    credential_id="aWQ",
    public_key="a2V5",
    sign_count=0,
    created_at=NOW,
)


async def demanded(store: Store, database: Database) -> Approval:
    """Return a question that demands a passkey, of which there is one."""
    question = await asked_of_people(store)
    database.execute("UPDATE approvals SET passkey = true, needed = 1")
    assert await store.passkeys.add(NEW, by="ada") is not None
    return question


def made(question: Approval, *, count: int = 1, signature: str = "c2ln") -> Assertion:
    expires_at = NOW + CHALLENGE_TIME
    return Assertion(
        challenge=Challenge(
            nonce=b"n" * 32, call_hash=question.call_hash, approval_id=question.id, expires_at=expires_at
        ),
        user_id=1,
        rp_id="localhost",
        credential_id="aWQ",
        public_key="a2V5",
        authenticator_data="ZGF0YQ",
        client_data="e30",
        signature=signature,
        sign_count=count,
    )


async def say(store: Store, question: Approval, signed: Assertion | None, *, who: str = "web:ada") -> AnswerResult:
    return await answer_question(
        store.approvals, KEY, question.id, status=ApprovalStatus.APPROVED, decided_by=who, at=NOW, assertion=signed
    )


async def test_a_signature_is_kept_with_its_answer(store: Store, database: Database) -> None:
    question = await demanded(store, database)
    assert (await say(store, question, made(question))).answered is Answered.DECIDED
    (kept,), (answer,) = database.rows("passkey_assertions"), database.rows("approval_answers")
    assert kept["digest"] == answer["assertion"] == made(question).digest
    assert (kept["nonce"], kept["call_hash"], kept["answer"]) == ((b"n" * 32).hex(), question.call_hash, "approve")
    (passkey,) = await store.passkeys.of_user(1)
    assert (passkey.sign_count, passkey.last_used_at) == (1, NOW)


async def test_a_yes_that_is_not_signed_leaves_no_trace(store: Store, database: Database) -> None:
    question = await demanded(store, database)
    for signed in (
        None,
        replace(made(question), challenge=replace(made(question).challenge, approval_id=question.id + 1)),
        replace(made(question), challenge=replace(made(question).challenge, call_hash="another")),
        replace(made(question), challenge=replace(made(question).challenge, answer="deny")),
    ):
        assert (await say(store, question, signed)).answered is Answered.NEEDS_PASSKEY
    assert database.rows("approval_answers") == database.rows("passkey_assertions") == []


async def test_a_signature_by_a_passkey_that_is_gone_or_counts_backwards_leaves_no_trace(
    store: Store, database: Database
) -> None:
    question = await demanded(store, database)
    database.execute("UPDATE passkeys SET sign_count = 5")
    for signed in (
        made(question, count=5),
        made(question, count=0),
        replace(made(question, count=9), user_id=2),
        replace(made(question, count=9), credential_id="another"),
    ):
        assert (await say(store, question, signed)).answered is Answered.SIGNED_BEFORE
    assert database.rows("approval_answers") == database.rows("passkey_assertions") == []


async def test_a_passkey_that_does_not_count_signs_each_thing_once(store: Store, database: Database) -> None:
    question = await demanded(store, database)
    database.execute("UPDATE approvals SET needed = 3")
    assert (await say(store, question, made(question, count=0))).answered is Answered.COUNTED
    again = await say(store, question, made(question, count=0), who="web:bob")
    other = await say(store, question, made(question, count=0, signature="b3RoZXI"), who="web:bob")
    assert (again.answered, other.answered) == (Answered.SIGNED_BEFORE, Answered.COUNTED)


async def test_a_user_has_so_many_passkeys_each_once_and_removes_no_others(store: Store) -> None:
    for number in range(MOST):
        assert await store.passkeys.add(replace(NEW, credential_id=f"id{number}"), by="ada") is not None
    assert await store.passkeys.add(replace(NEW, credential_id="more"), by="ada") is None
    assert await store.passkeys.add(replace(NEW, user_id=2, credential_id="id0"), by="bob") is None
    assert await store.passkeys.remove(1, user_id=2, by="bob", now=NOW) is None
    gone = await store.passkeys.remove(1, user_id=1, by="ada", now=after(minutes=1))
    assert gone is not None
    assert [one.id for one in await store.passkeys.of_user(1)] == list(range(2, MOST + 1))
