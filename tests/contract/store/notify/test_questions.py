"""Any store: a token opens one answer of one message once, and a message that shows too little is found."""

from __future__ import annotations

from datetime import timedelta

import pytest

from claudeops.domain.gate.approval import Answer, Answered, Approval, ApprovalStatus, NewApproval
from claudeops.domain.notices.notice import Target
from claudeops.store.store import Store
from claudeops.wording.notices.approving import NO, YES
from support.store_values import NOW, after, call, started, wanted
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

TARGETS = frozenset({"ops"})


async def question(store: Store, *, needed: int = 1) -> Approval:
    return await store.approvals.request_approval(
        NewApproval(
            session=await started(store, wanted(3)),
            call=call("toolu_1"),
            call_hash="0123",
            workdir="/work",
            redacted_input='{"command":"docker restart web"}',
            scripts=(),
            reason="restarts",
            requested_at=NOW,
            expires_at=after(minutes=15),
            services=("web",),
            needed=needed,
        )
    )


async def asked(
    store: Store, *, yes: str | None = "yes", no: str = "no", external: str | None = "77", needed: int = 1
) -> Approval:
    approval = await question(store, needed=needed)
    await message(store, approval, yes=yes, no=no, external=external)
    return approval


async def message(
    store: Store, approval: Approval, *, yes: str | None, no: str, external: str | None, target: str = "ops"
) -> int:
    found = await store.questions.open(approval, target=target, chat="-100", yes=yes, no=no, now=NOW)
    if external is not None:
        await store.questions.sent(found, external)
    return found


async def test_a_token_says_what_it_was_made_for(store: Store) -> None:
    approval = await asked(store)

    yes, no = await store.questions.by_token("yes"), await store.questions.by_token("no")

    assert yes is not None
    assert no is not None
    assert (yes.says, no.says) == (YES, NO)
    assert (yes.id, yes.approval_id, yes.call_hash) == (no.id, approval.id, approval.call_hash)
    assert (yes.target, yes.chat, yes.external_id, yes.used_at) == ("ops", "-100", "77", None)
    assert approval.services == '["web"]'


async def test_a_token_that_was_never_made_is_nobodys(store: Store) -> None:
    await asked(store, yes=None)

    assert await store.questions.by_token("yes") is None
    assert await store.questions.by_token("") is None


def said(who: str = "ada", status: ApprovalStatus = YES) -> Answer:
    return Answer(status=status, decided_by=who, decided_at=NOW, mac="proof")


@pytest.mark.dialect
@pytest.mark.parametrize(("token", "status"), [("yes", YES), ("no", NO)])
async def test_the_answer_that_decides_uses_the_tokens_of_its_message(
    store: Store, token: str, status: ApprovalStatus
) -> None:
    approval = await asked(store)

    assert await store.approvals.answer_approval(approval.id, said(status=status), token=token) is Answered.DECIDED

    for each in ("yes", "no"):
        found = await store.questions.by_token(each)
        assert found is not None
        assert found.used_at == NOW
    assert await store.approvals.answer_approval(approval.id, said("bob"), token="yes") is Answered.ALREADY


@pytest.mark.dialect
async def test_after_a_counted_yes_another_person_uses_the_same_token(store: Store, database: Database) -> None:
    approval = await asked(store, needed=2)
    answer = store.approvals.answer_approval

    assert await answer(approval.id, said("ada"), token="yes") is Answered.COUNTED
    assert await answer(approval.id, said("ada"), token="yes") is Answered.SAME_PERSON
    assert await answer(approval.id, said("bob"), token="yes") is Answered.DECIDED

    assert len(database.rows("approval_answers")) == 2
    assert await answer(approval.id, said("carol"), token="yes") is Answered.ALREADY


async def test_after_a_counted_yes_a_no_by_the_same_message_ends_it(store: Store) -> None:
    approval = await asked(store, needed=2)

    assert await store.approvals.answer_approval(approval.id, said("ada"), token="yes") is Answered.COUNTED
    assert await store.approvals.answer_approval(approval.id, said("ada", NO), token="no") is Answered.DECIDED


@pytest.mark.parametrize(
    ("token", "status"), [("nobody's", YES), ("no", YES), ("yes", NO), ("yes of another", YES), ("", YES)]
)
async def test_a_token_that_says_something_else_writes_nothing(
    store: Store, database: Database, token: str, status: ApprovalStatus
) -> None:
    approval = await asked(store)
    await message(store, await question(store), yes="yes of another", no="no of another", external="78")

    assert await store.approvals.answer_approval(approval.id, said(status=status), token=token) is Answered.UNKNOWN

    assert database.rows("approval_answers") == []
    assert [row["used_at"] for row in database.rows("approval_messages")] == [None, None]


async def test_a_token_about_another_call_writes_nothing(store: Store, database: Database) -> None:
    approval = await asked(store)
    database.execute("UPDATE approvals SET call_hash = '4567'")

    assert await store.approvals.answer_approval(approval.id, said(), token="yes") is Answered.UNKNOWN
    assert database.rows("approval_answers") == []


async def test_a_token_that_an_earlier_version_has_used_up_stays_used(store: Store, database: Database) -> None:
    approval = await asked(store)
    database.execute("UPDATE approval_messages SET used_at = sent_at")

    assert await store.approvals.answer_approval(approval.id, said(), token="yes") is Answered.TOKEN_USED
    assert await store.approvals.answer_approval(approval.id, said()) is Answered.DECIDED


async def test_the_first_name_of_a_message_in_its_chat_counts(store: Store) -> None:
    approval = await asked(store, external=None)
    found = await store.questions.by_token("yes")
    assert found is not None
    assert await store.questions.asking(approval.id, TARGETS) == []

    assert await store.questions.sent(found.id, "78")
    assert not await store.questions.sent(found.id, "79")
    assert await store.questions.sent(found.id, "78")

    (named,) = await store.questions.asking(approval.id, TARGETS)
    assert named.external_id == "78"


@pytest.mark.dialect
async def test_no_two_messages_of_a_chat_are_called_the_same(store: Store) -> None:
    approval = await asked(store, external="77")
    other = await message(store, approval, yes="yes2", no="no2", external=None)

    assert not await store.questions.sent(other, "77")
    assert await store.questions.sent(other, "78")


async def test_a_message_is_edited_until_it_shows_how_its_question_ended(store: Store, database: Database) -> None:
    approval = await asked(store)
    assert await store.questions.unedited(TARGETS, now=NOW) == []

    assert await store.approvals.answer_approval(approval.id, said())
    (unedited,) = await store.questions.unedited(TARGETS, now=NOW)
    assert (unedited.approval.status, unedited.row.external_id) == (YES, "77")
    await store.questions.edited(unedited.row.id, YES, now=NOW)
    assert await store.questions.unedited(TARGETS, now=NOW) == []

    database.execute("UPDATE approvals SET status = 'denied'")  # a restart: the yes was never used
    (unedited,) = await store.questions.unedited(TARGETS, now=NOW)
    assert unedited.approval.status is NO
    await store.questions.edited(unedited.row.id, NO, now=NOW)
    assert await store.questions.unedited(TARGETS, now=NOW) == []


async def test_a_question_whose_time_is_over_is_shown_so_whoever_has_written_it(store: Store) -> None:
    approval = await asked(store)

    (unedited,) = await store.questions.unedited(TARGETS, now=approval.expires_at)
    assert unedited.approval.status is ApprovalStatus.PENDING
    await store.questions.edited(unedited.row.id, ApprovalStatus.EXPIRED, now=NOW)

    await store.approvals.close_approval(approval.id, now=approval.expires_at)
    assert await store.questions.unedited(TARGETS, now=approval.expires_at) == []


async def test_messages_of_other_targets_and_those_that_never_arrived_are_left_alone(store: Store) -> None:
    approval = await asked(store, external=None)
    await message(store, approval, yes="yes2", no="no2", external="5", target="room")

    assert await store.questions.unedited(TARGETS, now=after(hours=1)) == []
    assert len(await store.questions.unedited({"room"}, now=after(hours=1))) == 1


async def test_a_chat_that_refuses_for_a_day_is_given_up(store: Store) -> None:
    await asked(store)

    assert await store.questions.unedited(TARGETS, now=NOW + timedelta(days=1)) == []


async def test_no_row_holds_a_token(store: Store, database: Database) -> None:
    await asked(store)

    (row,) = database.rows("approval_messages")
    assert set(row) == {
        *("id", "session_id", "approval_id", "call_hash", "target", "chat", "yes_digest", "no_digest"),
        *("external_id", "sent_at", "used_at", "shown", "edited_at"),
    }


@pytest.mark.dialect
async def test_a_question_whose_time_is_over_is_told_to_nobody_though_nobody_has_closed_it(
    store: Store, database: Database
) -> None:
    approval = await question(store)
    phone = Target(name="phone")
    await store.outbox.route([phone], now=NOW, most=10)

    over = approval.expires_at
    assert await store.outbox.claim("phone", now=over, until=over + timedelta(minutes=1), most=10) == []
    await store.outbox.route([phone], now=over, most=10)  # the reminder
    assert [row["result"] for row in database.rows("outbox")] == ["suppressed"] * 2
