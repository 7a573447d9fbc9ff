"""Two people must both say yes, a question that nobody hears is over at once, and an answer wakes its call at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import anyio
import pytest

from claudeops.domain.gate.approval import Answered, Approval, ApprovalStatus, NewApproval
from claudeops.domain.notices.notice import DeliveryOutcome, Target
from claudeops.engine.gate.answering import AnswerWaker
from claudeops.notify.delivery import DeliveryResult
from claudeops.notify.sender import NoticeSender
from claudeops.store.acts.approvals import answer_question
from claudeops.store.store import Store, open_store
from claudeops.structs import replace
from claudeops.wording.notices.texts import NoticeMessage, Wording
from support.asking import ASK, CALL, KEY, Talk, talking
from support.carrying import carriers
from support.estate import Estate
from support.loop_time import loop_time
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio

TWO = replace(ASK, needed=2)
YES, NO = ApprovalStatus.APPROVED, ApprovalStatus.DENIED
PHONE, MAIL = Target(name="phone"), Target(name="mail")
LONG = 3600.0  # seconds between two looks: whatever is seen sooner was not seen by looking


@asynccontextmanager
async def permitting(talk: Talk) -> AsyncIterator[list[dict[str, object]]]:
    """Put the call to people for the length of a block; yield what the CLI was told, once it was."""
    told: list[dict[str, object]] = []
    await talk.hook()

    async def ask() -> None:
        told.append(await talk.permission())

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await talk.question()
            yield told


async def test_the_first_yes_runs_nothing_and_the_second_one_does(estate: Estate) -> None:
    async with talking(estate, lambda _: TWO) as talk, permitting(talk) as told:
        assert await talk.say(YES, who="telegram:ada") is Answered.COUNTED
        assert await talk.say(YES, who="slack:Ada") is Answered.SAME_PERSON
        assert (await talk.question()).agreed == ("telegram:ada",)
        assert (told, talk.gate.allowed) == ([], set())
        assert await talk.say(YES, who="bob") is Answered.DECIDED

    assert told == [{"behavior": "allow", "updatedInput": {"command": "sh mend.sh"}}]
    assert talk.verdicts()[-1] == ("allow", "approved by telegram:ada and bob (approval 1): restarts the database")
    assert [row["status"] for row in estate.rows("SELECT status FROM approvals")] == ["used"]


async def test_a_no_after_a_yes_ends_it(estate: Estate) -> None:
    async with talking(estate, lambda _: TWO) as talk, permitting(talk) as told:
        await talk.say(YES, who="ada")
        await talk.say(NO, who="bob")

    assert told == [{"behavior": "deny", "message": "needs approval, and bob said no"}]


async def test_one_yes_of_two_is_a_no_when_the_time_is_over(estate: Estate) -> None:
    with loop_time() as time:
        async with talking(estate, lambda _: TWO, seconds=25) as talk, permitting(talk) as told:
            await talk.say(YES, who="ada")
            time.leap(25)  # less than any bound of the database

    assert told == [{"behavior": "deny", "message": "needs approval by 2 people, and only ada said yes in time"}]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        pytest.param(
            "INSERT INTO approval_answers (approval_id, person, status, decided_by, decided_at, mac)"
            " SELECT approval_id, 'bob', status, 'bob', decided_at, mac FROM approval_answers",
            "only ada said yes with an operator's proof",
            id="another name below the first one's proof",
        ),
        pytest.param("SELECT 1", "only ada said yes with an operator's proof", id="only a changed row"),
        pytest.param("DELETE FROM approval_answers", "the answer carries no operator's proof", id="the answer is gone"),
        pytest.param(
            "UPDATE approval_answers SET mac = '00'", "the answer carries no operator's proof", id="the proof is gone"
        ),
    ],
)
async def test_nobody_who_writes_to_the_database_is_the_second_person(
    estate: Estate, statement: str, reason: str
) -> None:
    async with talking(estate, lambda _: TWO) as talk, permitting(talk) as told:
        await talk.say(YES, who="ada")
        estate.execute(statement)
        estate.execute("UPDATE approvals SET status = 'approved', needed = 1, decided_by = 'ada and bob', mac = '0'")

    assert told == [{"behavior": "deny", "message": f"needs approval by 2 people, and {reason}"}]
    assert talk.gate.allowed == set()


async def test_a_lower_number_in_the_row_makes_one_yes_no_two(estate: Estate) -> None:
    async with talking(estate, lambda _: TWO) as talk, permitting(talk) as told:
        estate.execute("UPDATE approvals SET needed = 1")
        assert await talk.say(YES, who="ada") is Answered.DECIDED

    assert "only ada said yes with an operator's proof" in str(told)


# --- nobody hears of it ---------------------------------------------------------------------------------


@dataclass
class Carrier:
    """Delivers to those who are not failing, and records it."""

    failing: frozenset[str] = frozenset()
    heard: list[tuple[str, str]] = field(default_factory=list)

    async def deliver(self, address: str, messages: Sequence[NoticeMessage], told: dict[int, DeliveryResult]) -> None:
        for index, message in enumerate(messages):
            if address in self.failing:
                told[index] = DeliveryResult(result=DeliveryOutcome.FAILED, error="401 Unauthorized")
                continue
            self.heard.append((address, message.body))
            told[index] = DeliveryResult(result=DeliveryOutcome.DELIVERED)


def outgoing(
    estate: Estate,
    carrier: Carrier,
    *targets: Target,
    store: Store | None = None,
    now: Callable[[], datetime] | None = None,
) -> NoticeSender:
    return NoticeSender(
        outbox=(store or estate.store).outbox,
        targets=targets,
        carriers=carriers(carrier, targets),
        wording=Wording(redact=str),
        now=now or estate.context.clock.now,
        log=estate.context.log,
        look_seconds=0.01,
    )


async def test_a_question_that_reached_nobody_is_over_at_once_and_says_why(estate: Estate) -> None:
    carrier = Carrier(failing=frozenset({"phone", "mail"}))
    async with talking(estate, seconds=900) as talk, anyio.create_task_group() as tasks:
        tasks.start_soon(outgoing(estate, carrier, PHONE, MAIL).run)
        async with permitting(talk) as told:
            pass
        tasks.cancel_scope.cancel()

    why = "needs approval, and the question reached nobody: phone: 401 Unauthorized, mail: 401 Unauthorized"
    assert told == [{"behavior": "deny", "message": why}]
    assert [row["status"] for row in estate.rows("SELECT status FROM approvals")] == ["expired"]
    rows = estate.rows("SELECT resolved_at FROM events WHERE fingerprint = 'approval_unheard'")
    assert [row["resolved_at"] for row in rows] == [None]


async def test_a_target_that_is_left_alone_for_an_hour_is_asked_to_deliver_a_question_at_once(estate: Estate) -> None:
    sender = outgoing(estate, Carrier(failing=frozenset({"phone"})), PHONE)
    for _ in range(9):
        sender._fail(PHONE, estate.context.clock.now())
    async with talking(estate, seconds=900) as talk, anyio.create_task_group() as tasks:
        tasks.start_soon(sender.run)
        async with permitting(talk) as told:
            pass
        tasks.cancel_scope.cancel()

    assert "the question reached nobody: phone: 401" in str(told)


class Looked:
    """Approvals of a session's desk, which count how often it has looked at a question."""

    def __init__(self, talk: Talk) -> None:
        assert talk.gate.approvals is not None
        self._inner = talk.gate.approvals.approvals
        self.close_approval = self._inner.close_approval
        self.looks = 0
        talk.gate.approvals.approvals = self  # type: ignore[assignment]  # all that is asked of it now

    async def approval(self, approval_id: int) -> Approval | None:
        self.looks += 1
        return await self._inner.approval(approval_id)


async def test_a_question_that_somebody_has_answered_was_heard_whatever_failed(estate: Estate) -> None:
    async with talking(estate, lambda _: TWO, look_seconds=0.01) as talk, permitting(talk) as told:
        await talk.say(YES, who="ada")
        estate.execute("UPDATE approvals SET unheard = 'phone: 401'")
        looked = Looked(talk)
        await until(lambda: looked.looks > 3)
        await talk.say(YES, who="bob")

    assert told[0]["behavior"] == "allow"


async def test_a_question_that_one_target_has_got_waits_for_its_answer(estate: Estate) -> None:
    carrier = Carrier(failing=frozenset({"phone"}))
    async with talking(estate) as talk, anyio.create_task_group() as tasks:
        tasks.start_soon(outgoing(estate, carrier, PHONE, MAIL).run)
        async with permitting(talk) as told:
            await until(lambda: bool(carrier.heard))
            await until(lambda: bool(estate.rows("SELECT 1 FROM outbox WHERE result = 'failed'")))
            await talk.say(YES, who="ada")
        tasks.cancel_scope.cancel()

    assert told[0]["behavior"] == "allow"


# --- woken, and reminded --------------------------------------------------------------------------------


@asynccontextmanager
async def own_store(estate: Estate, waker: AnswerWaker) -> AsyncIterator[Store]:
    """Open the store by which this process answers, and which wakes its calls."""
    store = open_store(estate.url, answered=waker.wake)
    try:
        yield store
    finally:
        await store.close()


async def answered(store: Store, question: Approval, status: ApprovalStatus = YES) -> None:
    at = question.requested_at + timedelta(seconds=1)
    await answer_question(store.approvals, KEY, question.id, status=status, decided_by="telegram:ada", at=at)


async def test_a_call_that_waits_in_this_process_is_woken_by_its_answer_and_not_by_a_look(estate: Estate) -> None:
    waker = AnswerWaker(look_seconds=LONG)
    async with talking(estate, waker=waker, seconds=LONG) as talk, own_store(estate, waker) as store:
        for number in range(10):
            await woken(talk, store, str(number))

    assert len(talk.gate.allowed) == 10


async def woken(talk: Talk, store: Store, name: str) -> None:
    """Let one call be asked about and answered; return once it has its answer."""
    call = replace(CALL, tool_use_id=f"toolu_{name}", input={"command": f"sh mend.sh {name}"})
    await talk.hook(call, f"q{name}")
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.permission, call, f"p{name}")
            await answered(store, await talk.question())


class AnsweredAtOnce:
    """Approvals of a store whose questions are answered before whoever asks can listen."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.approval = store.approvals.approval
        self.close_approval = store.approvals.close_approval

    async def request_approval(self, new: NewApproval) -> Approval:
        question = await self._store.approvals.request_approval(new)
        await answered(self._store, question)
        return question


async def test_an_answer_that_comes_before_anybody_listens_is_not_lost(estate: Estate) -> None:
    waker = AnswerWaker(look_seconds=LONG)
    async with talking(estate, waker=waker, seconds=LONG) as talk, own_store(estate, waker) as store:
        assert talk.gate.approvals is not None
        talk.gate.approvals.approvals = AnsweredAtOnce(store)  # type: ignore[assignment]  # all that is asked of it
        await talk.hook()
        with anyio.fail_after(PATIENCE_SECONDS):
            told = await talk.permission()

    assert told["behavior"] == "allow"


async def test_what_reached_nobody_wakes_its_call_too(estate: Estate) -> None:
    waker = AnswerWaker(look_seconds=LONG)
    async with (
        talking(estate, waker=waker, seconds=LONG) as talk,
        own_store(estate, waker) as store,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(outgoing(estate, Carrier(failing=frozenset({"phone"})), PHONE, store=store).run)
        async with permitting(talk) as told:
            pass
        tasks.cancel_scope.cancel()

    assert "the question reached nobody" in str(told)


async def test_an_answer_of_another_process_is_found_by_looking(estate: Estate) -> None:
    async with (
        talking(estate, waker=AnswerWaker()) as talk,
        own_store(estate, AnswerWaker()) as store,
        permitting(talk) as told,
    ):
        await answered(store, await talk.question(), NO)

    assert told[0]["message"] == "needs approval, and telegram:ada said no"


async def test_news_between_two_looks_is_not_lost() -> None:
    waker = AnswerWaker(look_seconds=LONG)
    with waker.listening(3) as listening, anyio.fail_after(PATIENCE_SECONDS):
        waker.wake(3)
        await listening.pause(LONG)
        with anyio.move_on_after(0.01) as waits:
            await listening.pause(LONG)
        assert waits.cancelled_caught  # news wakes once
        waker.wake(4)
    waker.wake(3)  # nobody listens any more


@pytest.mark.parametrize("says_yes", [False, True])
async def test_people_are_reminded_at_half_time_unless_somebody_has_answered(estate: Estate, says_yes: bool) -> None:
    """The gate asks in real time; the outbox is shown a clock that has gone on to half time."""
    carrier, clock = Carrier(), [estate.context.clock.now()]
    sender = outgoing(estate, carrier, PHONE, now=lambda: clock[0])

    async def tell() -> None:
        await sender.look_once()
        await sender.deliver_once(PHONE)

    async with talking(estate, seconds=1000) as talk, permitting(talk):
        question = await talk.question()
        clock[0] = question.requested_at
        await tell()
        clock[0] = question.requested_at + timedelta(seconds=499)
        await tell()
        assert len(carrier.heard) == 1
        if says_yes:
            await talk.say(YES)
        clock[0] = question.requested_at + timedelta(seconds=500)
        await tell()
        if not says_yes:
            await talk.say(YES)

    reminders = [body for _, body in carrier.heard if "still nobody has answered" in body]
    assert len(reminders) == (0 if says_yes else 1)
    assert len(carrier.heard) == (1 if says_yes else 2)
