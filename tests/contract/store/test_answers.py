"""Any store: a person's answer counts once, one no ends the question, and only what is proven lets a call run."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import anyio
import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.domain.gate.approval import Answered, Approval, ApprovalStatus, answer, proven_yes
from claudeops.store.acts.approvals import AnswerResult, answer_question
from claudeops.store.store import Store, open_store
from claudeops.structs import replace
from support.answering import asked_of_people
from support.store_values import NOW, RULES, after, allow, call, ending, report
from support.stores import Database, approvals_of, opened

pytest_plugins = ("support.store_fixtures",)

KEY = b"k" * 32
YES, NO = ApprovalStatus.APPROVED, ApprovalStatus.DENIED


async def say(
    store: Store, question: Approval, who: str, status: ApprovalStatus = YES, *, at: datetime = NOW
) -> AnswerResult:
    return await answer_question(store.approvals, KEY, question.id, status=status, decided_by=who, at=at)


async def now(store: Store, question: Approval) -> Approval:
    row = await store.approvals.approval(question.id)
    assert row is not None
    return row


async def test_the_first_yes_of_two_counts_and_decides_nothing(store: Store, database: Database) -> None:
    question = await asked_of_people(store)

    first = await say(store, question, "telegram:ada")
    waiting = await now(store, question)
    last = await say(store, question, "bob", at=after(minutes=1))

    assert (first.answered, last.answered) == (Answered.COUNTED, Answered.DECIDED)
    assert (waiting.status, waiting.agreed, waiting.decided_by) == (ApprovalStatus.PENDING, ("telegram:ada",), None)
    assert first.approval == waiting
    row = await now(store, question)
    assert (row.status, row.decided_by, row.decided_at) == (YES, "telegram:ada and bob", after(minutes=1))
    assert proven_yes(KEY, row) == ("telegram:ada", "bob")
    assert [(each["person"], each["status"]) for each in database.rows("approval_answers")] == [
        ("ada", "approved"),
        ("bob", "approved"),
    ]
    assert await approvals_of(store, everything=True) == (row,)


async def test_a_person_is_one_person_in_every_chat_and_at_the_shell(store: Store, database: Database) -> None:
    question = await asked_of_people(store)

    given = [(await say(store, question, who)).answered for who in ("telegram:ada", "slack:Ada", "ADA", "telegram:ada")]

    assert given == [Answered.COUNTED, *[Answered.SAME_PERSON] * 3]
    assert len(database.rows("approval_answers")) == 1
    assert (await now(store, question)).status is ApprovalStatus.PENDING


async def test_one_no_ends_it_also_after_a_yes_of_the_same_person(store: Store) -> None:
    question = await asked_of_people(store)
    await say(store, question, "telegram:ada")

    assert (await say(store, question, "ada", NO)).answered is Answered.DECIDED
    assert (await say(store, question, "bob")).answered is Answered.ALREADY
    row = await now(store, question)
    assert (row.status, row.decided_by) == (NO, "ada")
    assert proven_yes(KEY, row) == ()


async def test_a_question_of_one_person_is_decided_by_the_first_yes(store: Store) -> None:
    question = await asked_of_people(store, needed=1)

    assert (await say(store, question, "slack:ada")).answered is Answered.DECIDED
    assert (await say(store, question, "bob")).answered is Answered.ALREADY
    assert (await now(store, question)).decided_by == "slack:ada"


async def test_an_answer_to_something_else_than_was_shown_is_to_no_question(store: Store, database: Database) -> None:
    question = await asked_of_people(store)

    wrong = await answer_question(
        store.approvals, KEY, question.id, status=YES, decided_by="ada", at=NOW, call_hash="4567"
    )
    right = await answer_question(
        store.approvals, KEY, question.id, status=YES, decided_by="ada", at=NOW, call_hash="0123"
    )

    assert (wrong.answered, wrong.approval) == (Answered.UNKNOWN, None)
    assert right.answered is Answered.COUNTED
    assert len(database.rows("approval_answers")) == 1


@pytest.mark.dialect
async def test_an_answer_that_comes_too_late_is_not_written(store: Store, database: Database) -> None:
    question = await asked_of_people(store)
    await say(store, question, "ada")

    assert (await say(store, question, "bob", at=after(minutes=15))).answered is Answered.EXPIRED
    await store.approvals.close_approval(question.id, now=after(minutes=15))
    assert (await say(store, question, "bob")).answered is Answered.EXPIRED
    assert len(database.rows("approval_answers")) == 1


@pytest.mark.dialect
async def test_a_name_longer_than_its_column_is_proven_all_the_same(store: Store) -> None:
    question = await asked_of_people(store, needed=1)

    await say(store, question, f"telegram:{'a' * 300}")

    assert len(proven_yes(KEY, await now(store, question))) == 1


@pytest.mark.dialect
@pytest.mark.parametrize("turn", range(5))
async def test_two_yes_at_once_both_count_and_one_of_them_decides(store: Store, database: Database, turn: int) -> None:
    async with opened(database) as other:
        question = await asked_of_people(store)
        given = await at_once(question, (store, f"telegram:ada{turn}", YES), (other, "bob", YES))

    assert given == Counter([Answered.COUNTED, Answered.DECIDED])
    assert len(proven_yes(KEY, await now(store, question))) == 2


@pytest.mark.dialect
@pytest.mark.parametrize("turn", range(5))
async def test_two_yes_of_one_person_at_once_count_once(store: Store, database: Database, turn: int) -> None:
    async with opened(database) as other:
        question = await asked_of_people(store)
        given = await at_once(question, (store, f"telegram:ada{turn}", YES), (other, f"slack:ada{turn}", YES))

    assert given == Counter([Answered.COUNTED, Answered.SAME_PERSON])
    assert (await now(store, question)).status is ApprovalStatus.PENDING


@pytest.mark.dialect
@pytest.mark.parametrize("turn", range(5))
async def test_of_a_no_and_the_last_yes_at_once_one_wins(store: Store, database: Database, turn: int) -> None:
    async with opened(database) as other:
        question = await asked_of_people(store)
        await say(store, question, f"carol{turn}")
        given = await at_once(question, (store, "telegram:ada", YES), (other, "bob", NO))

    assert given == Counter([Answered.DECIDED, Answered.ALREADY])
    row = await now(store, question)
    assert (row.status is YES) == (len(row.answers) == 2 and len(proven_yes(KEY, row)) == 2)
    assert (row.status is NO) == (proven_yes(KEY, row) == ())


async def at_once(question: Approval, *answers: tuple[Store, str, ApprovalStatus]) -> Counter[Answered]:
    given: Counter[Answered] = Counter()

    async def one(store: Store, who: str, status: ApprovalStatus) -> None:
        given[(await say(store, question, who, status)).answered] += 1

    async with anyio.create_task_group() as tasks:
        for each in answers:
            tasks.start_soon(one, *each)
    return given


FORGED = (
    "INSERT INTO approval_answers (approval_id, person, status, decided_by, decided_at, mac)"
    " SELECT id, 'bob', 'approved', 'bob', requested_at, :mac FROM approvals WHERE id = 1"
)


async def test_forged_rows_make_the_number_and_prove_nothing(store: Store, database: Database) -> None:
    first, second = await asked_of_people(store), await asked_of_people(store)
    foreign = answer(KEY, second, status=YES, decided_by="bob", at=NOW)
    database.execute(FORGED, mac=foreign.mac)

    assert (await say(store, first, "ada")).answered is Answered.DECIDED  # the database cannot check a proof

    assert proven_yes(KEY, await now(store, first)) == ("ada",)


async def test_an_answer_that_was_taken_out_is_missing(store: Store, database: Database) -> None:
    question = await asked_of_people(store)
    await say(store, question, "ada")
    await say(store, question, "bob")
    database.execute("DELETE FROM approval_answers WHERE person = 'bob'")

    assert proven_yes(KEY, await now(store, question)) == ("ada",)


async def test_the_call_is_let_through_once_by_what_two_people_have_decided(store: Store) -> None:
    question = await asked_of_people(store)
    await say(store, question, "ada")
    await say(store, question, "bob")
    row = await now(store, question)
    session = await store.records.session(question.session_id)
    assert session is not None

    kinds = [
        (
            await store.calls.record_call(
                session, call(name), allow(), redacted_input="{}", rules=RULES, requested_at=NOW, now=NOW, approval=row
            )
        ).kind
        for name in ("toolu_1", "toolu_2")
    ]

    assert kinds == [VerdictKind.ALLOW, VerdictKind.DENY]
    assert (await now(store, question)) == replace(row, status=ApprovalStatus.USED)


async def test_an_answer_of_this_process_is_told_to_whoever_waits_and_one_that_counts_for_nothing_is_not(
    database: Database,
) -> None:
    told: list[int] = []
    store: Store = open_store(database.url, now=lambda: NOW, answered=told.append)
    try:
        question = await asked_of_people(store)
        for who, status in (("ada", YES), ("Ada", YES), ("bob", NO), ("carol", YES)):
            await say(store, question, who, status)
    finally:
        await store.close()

    assert told == [question.id, question.id]


async def test_answers_go_with_the_session_that_asked(store: Store, database: Database) -> None:
    question = await asked_of_people(store)
    await say(store, question, "ada")
    session = await store.records.session(question.session_id)
    assert session is not None
    await store.queue.finish(ending(session, report()), rules=RULES)

    assert isinstance(store, Store)
    gone = await store.deletion.delete(session.id, chain=True, counted_since=NOW, now=after(hours=1))

    assert gone.session_ids == (session.id,)
    assert (database.rows("approvals"), database.rows("approval_answers")) == ([], [])


async def test_people_are_told_how_many_must_say_yes(store: Store, database: Database) -> None:
    await asked_of_people(store)

    (event,) = database.rows("events")
    told = [str(row["payload"]) for row in database.rows("outbox")]
    assert "is needed by 2 people until" in str(event["message"])
    assert "still fewer than 2 people have said yes: " in told[1]
