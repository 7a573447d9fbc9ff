"""Any store: a question to people is answered at most once, used at most once, and over when its session is."""

from __future__ import annotations

from datetime import datetime

import pytest

from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.domain.gate.approval import Answer, Answered, Approval, ApprovalStatus, CalledScript, NewApproval
from claudeops.domain.notices.notice import DeliveryOutcome, Settlement, Target
from claudeops.domain.sessions import Session
from claudeops.errors import StaleAttemptError
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import (
    NOW,
    OTHER_OWNER,
    RULES,
    after,
    allow,
    call,
    ending,
    recorded,
    report,
    restart,
    started,
    wanted,
)
from support.stores import Database, approvals_of

pytest_plugins = ("support.store_fixtures",)


def question(session: Session, tool_use_id: str = "toolu_1") -> NewApproval:
    return NewApproval(
        session=session,
        call=call(tool_use_id),
        call_hash="0123",
        workdir="/work",
        redacted_input='{"command":"docker restart web"}',
        scripts=(CalledScript(path="/work/mend.sh", sha256="ab", text="true"),),
        reason="restarts the database",
        requested_at=NOW,
        expires_at=after(minutes=15),
    )


def yes(at: datetime = NOW, status: ApprovalStatus = ApprovalStatus.APPROVED) -> Answer:
    return Answer(status=status, decided_by="ada", decided_at=at, mac="proof")


async def approved(store: Store, session: Session) -> Approval:
    asked = await store.approvals.request_approval(question(session))
    assert await store.approvals.answer_approval(asked.id, yes()) is Answered.DECIDED
    row = await store.approvals.approval(asked.id)
    assert row is not None
    return row


async def test_question_waits_and_tells_of_itself(store: Store, database: Database) -> None:
    session = await started(store, wanted(3))

    asked = await store.approvals.request_approval(question(session))

    assert (asked.status, asked.tier, asked.workdir, asked.tool_name) == (ApprovalStatus.PENDING, 3, "/work", "Bash")
    assert await approvals_of(store) == (asked,)
    (event,) = database.rows("events")
    assert (event["level"], event["session_id"], event["resolved_at"]) == ("warning", session.id, None)
    assert f"claudeops approve {asked.id}" in str(event["message"])


@pytest.mark.dialect
async def test_attempt_that_was_taken_over_asks_nobody_any_more(store: Store, database: Database) -> None:
    session = await started(store, wanted(3))
    await store.recovery.reconcile(OTHER_OWNER, now=NOW, alive=lambda _: False)

    with pytest.raises(StaleAttemptError, match=f"session {session.id} is no longer running as attempt 1"):
        await store.approvals.request_approval(question(session))

    assert (database.rows("approvals"), database.rows("outbox")) == ([], [])


async def test_question_that_does_not_exist_is_none_and_takes_no_answer(store: Store) -> None:
    assert await store.approvals.approval(7) is None
    assert await store.approvals.answer_approval(7, yes()) is Answered.UNKNOWN


async def test_second_answer_changes_nothing(store: Store) -> None:
    asked = await approved(store, await started(store))

    assert await store.approvals.answer_approval(asked.id, yes(status=ApprovalStatus.DENIED)) is Answered.ALREADY
    assert await store.approvals.approval(asked.id) == asked
    assert await approvals_of(store) == ()
    assert await approvals_of(store, everything=True) == (asked,)


async def test_answer_after_the_time_counts_for_nothing(store: Store) -> None:
    asked = await store.approvals.request_approval(question(await started(store)))

    assert await store.approvals.answer_approval(asked.id, yes(at=after(minutes=15))) is Answered.EXPIRED
    await store.approvals.close_approval(asked.id, now=after(minutes=15))
    assert await store.approvals.answer_approval(asked.id, yes()) is Answered.EXPIRED


@pytest.mark.dialect
async def test_answer_is_used_once_by_the_allow_that_it_is_for(store: Store, database: Database) -> None:
    session = await started(store, wanted(2))
    asked = await approved(store, session)

    kinds = [
        (
            await store.calls.record_call(
                session,
                call(f"toolu_{number}"),
                allow(restart()),
                redacted_input="{}",
                rules=RULES,
                requested_at=NOW,
                now=NOW,
                approval=asked,
            )
        ).kind
        for number in range(2)
    ]

    assert kinds == [VerdictKind.ALLOW, VerdictKind.DENY]
    assert len(database.rows("cooldown_actions")) == 1
    row = await store.approvals.approval(asked.id)
    assert row == replace(asked, status=ApprovalStatus.USED)
    assert [event["resolved_at"] for event in database.rows("events")] == [NOW]


@pytest.mark.parametrize("change", [{"mac": "forged"}, {"call_hash": "4567"}, {"id": 99}])
async def test_row_that_is_not_what_was_proven_lets_nothing_through(store: Store, change: dict[str, object]) -> None:
    session = await started(store)
    asked = replace(await approved(store, session), **change)  # type: ignore[arg-type]  # the test names its fields

    verdict = await store.calls.record_call(
        session, call(), allow(), redacted_input="{}", rules=RULES, requested_at=NOW, now=NOW, approval=asked
    )

    assert verdict.kind is VerdictKind.DENY


@pytest.mark.dialect
async def test_question_that_waited_in_vain_expires_and_an_answered_one_does_not(
    store: Store, database: Database
) -> None:
    session = await started(store)
    in_vain = await store.approvals.request_approval(question(session))
    answered = await approved(store, session)

    assert (await store.approvals.close_approval(in_vain.id, now=after(minutes=15))).status is ApprovalStatus.EXPIRED
    assert (await store.approvals.close_approval(answered.id, now=after(minutes=15))).status is ApprovalStatus.APPROVED
    assert [event["resolved_at"] for event in database.rows("events")] == [after(minutes=15), None]


async def test_questions_of_a_session_end_with_it(store: Store, database: Database) -> None:
    session = await started(store)
    await store.approvals.request_approval(question(session))
    await approved(store, session)

    await store.queue.finish(ending(session, report()), rules=RULES)

    assert [row["status"] for row in database.rows("approvals")] == ["expired", "expired"]
    asked = [row for row in database.rows("events") if str(row["fingerprint"]).startswith("approval:")]
    assert all(row["resolved_at"] is not None for row in asked)


async def test_daemon_that_starts_denies_what_was_asked_before(store: Store, database: Database) -> None:
    session = await started(store)
    await store.approvals.request_approval(question(session))
    await approved(store, session)

    await store.recovery.reconcile(OTHER_OWNER, now=after(minutes=1), alive=lambda _: False)

    rows = database.rows("approvals")
    assert [(row["status"], row["decided_by"]) for row in rows] == [("denied", "restart of the daemon")] * 2


async def test_ask_is_held_to_the_limits_and_reserves_nothing(store: Store, database: Database) -> None:
    session = await started(store, wanted(2))
    ask = Verdict(kind=VerdictKind.ASK, reason="restarts the database", actions=(restart(),))

    first = await recorded(store, session, "toolu_1", ask)
    await recorded(store, session, "toolu_2", allow(restart()))
    await recorded(store, session, "toolu_3", allow(restart()))
    last = await recorded(store, session, "toolu_4", ask)

    assert (first.kind, last.kind) == (VerdictKind.ASK, VerdictKind.DENY)
    assert [row["tool_use_id"] for row in database.rows("cooldown_actions")] == ["toolu_2", "toolu_3"]


async def test_people_are_asked_and_reminded_once_and_never_after_the_answer(store: Store) -> None:
    everybody = [Target(name="phone")]
    session = await started(store, wanted(3))
    asked = await store.approvals.request_approval(question(session))
    half = NOW + (asked.expires_at - NOW) / 2

    await store.outbox.route(everybody, now=NOW, most=100)
    (first,) = await store.outbox.claim("phone", now=NOW, until=half, most=10)
    await store.outbox.settle("phone", [Settlement(id=first.id, result=DeliveryOutcome.DELIVERED)], until=half, now=NOW)
    await store.outbox.route(everybody, now=half, most=100)
    (reminder,) = await store.outbox.claim("phone", now=half, until=half, most=10)

    assert (first.notice.topic, first.notice.key) == ("approval", f"approval:{asked.id}")
    assert reminder.notice.text.startswith("still nobody has answered: ")
    assert await store.approvals.answer_approval(asked.id, yes(half)) is Answered.DECIDED
    assert await store.outbox.claim("phone", now=half, until=half, most=10) == []
    assert await store.outbox.waiting(after(hours=1)) == frozenset()
