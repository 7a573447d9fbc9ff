"""Questions in chats, whatever the chat: a card and its tokens go out, and a tap becomes an answer or changes nothing.

A tap is checked in this order: who is it, is the token one of ours and of this message, does the question still wait;
then the answer goes the one way that all answers go, and uses the token up in the transaction that writes it: a tap
counts as a whole or not at all, and may be repeated. Every tap is on record in the log.
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final

import anyio
import msgspec

from claudeops.domain.gate.approval import Answered, Approval, ApprovalStatus
from claudeops.domain.notices.approvers import Approver, approver_of
from claudeops.domain.notices.channels import TargetKind
from claudeops.domain.notices.notice import DeliveryOutcome
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.notify.delivery import DEADLINE_SECONDS, DeliveryResult, Streak
from claudeops.notify.reception import AnswerReception, by_command
from claudeops.store.acts.approvals import AnswerResult, answer_question
from claudeops.store.approvals import Approvals
from claudeops.store.notify.questions import Questions
from claudeops.tasks import DatabaseTrouble
from claudeops.wording.notices.approving import (
    NO,
    REFUSALS,
    TOKEN_BYTES,
    YES,
    ButtonTap,
    Card,
    QuestionRow,
    TapRefusal,
    Unedited,
    button_data,
    card,
    counted,
    digest_of,
    has_approver,
    is_over,
    outcome,
    refusal,
)
from claudeops.wording.notices.texts import NoticeMessage, Wording

LOOK_SECONDS: Final = 1.0
"""Between two looks for messages that do not show how their question ended."""

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
_SENT_TRIES: Final = 3
_MOST_KEPT: Final = 1000
"""Messages whose buttons are known, the latest ones; a question waits for minutes, and ends with the daemon."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Buttons:
    """What the buttons of a message hold; ``""``: there is no such button."""

    yes: str = field(default="", repr=False)
    no: str = field(default="", repr=False)


class OutgoingQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is about to be sent."""

    message_id: int  # ours
    card: Card
    buttons: Buttons


class TapResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a tap."""

    text: str  # for the person who tapped
    refused: TapRefusal | None = None  # None: it counts
    approval: Approval | None = None
    counted: str = ""  # by whom a yes was counted, where another one has to follow


@dataclass(kw_only=True)
class ChatQuestions:
    """Puts questions to people in chats, and takes their answers."""

    rows: Questions
    approvals: Approvals
    key: bytes = field(repr=False)  # proves answers
    approvers: Sequence[Approver]
    wording: Wording
    now: Callable[[], datetime]
    log: Logger
    draw: Callable[[int], bytes] = secrets.token_bytes
    answer: Callable[..., Awaitable[AnswerResult]] = answer_question
    _buttons_of: dict[int, Buttons] = field(default_factory=dict, repr=False)  # by message; the database has digests

    async def open(
        self, approval_id: int, *, kind: TargetKind, target: str, chat: str, limit: int, again: bool
    ) -> OutgoingQuestion | None:
        """Return the message of a question, once its tokens are on record; ``None``: the question waits no more.

        Where no approver could answer it has no buttons; where the call does not fit, or a yes needs a passkey,
        none for yes.
        Raises `StoreError`.
        """
        approval = await self.approvals.approval(approval_id)
        now = self.now()
        if approval is None or is_over(approval, now):
            return None
        drawn = card(approval, wording=self.wording, limit=limit, now=now, again=again)
        buttons = self._buttons(approval, drawn, kind)
        yes, no = _digests(buttons, chat)
        message_id = await self.rows.open(approval, target=target, chat=chat, yes=yes, no=no, now=now)
        self._buttons_of[message_id] = buttons
        if len(self._buttons_of) > _MOST_KEPT:
            del self._buttons_of[next(iter(self._buttons_of))]
        return OutgoingQuestion(message_id=message_id, card=drawn, buttons=buttons)

    async def reopen(self, row: QuestionRow, *, limit: int) -> OutgoingQuestion | None:
        """Return a message that is in its chat already, with its own buttons, so that it may be edited.

        ``None``: its question waits no more, or its buttons are not known here. An edit that does not happen changes
        nothing: the buttons in the chat are good for everybody who has not answered yet.
        """
        approval = await self.approvals.approval(row.approval_id)
        buttons = self._buttons_of.get(row.id)
        if approval is None or buttons is None or is_over(approval, self.now()):
            return None
        drawn = card(approval, wording=self.wording, limit=limit, now=self.now())
        return OutgoingQuestion(message_id=row.id, card=drawn, buttons=buttons)

    async def sent(self, question: OutgoingQuestion, external_id: str) -> None:
        """Write which message of its chat a question is, without which it cannot be edited."""
        for _ in range(_SENT_TRIES):
            try:
                await self.rows.sent(question.message_id, external_id)
            except StoreError:
                await anyio.sleep(_FIRST_PAUSE_SECONDS)
            else:
                return

    def ended(self, approval: Approval, *, limit: int) -> tuple[Card, str]:
        """Return what a message shows whose question is over: its card, and the line about the outcome."""
        return card(approval, wording=self.wording, limit=limit, now=self.now()), outcome(approval, self.wording)

    async def take(self, tap: ButtonTap) -> TapResult:
        """Take a tap, and put it on record."""
        try:
            result = await self._take(tap)
        except StoreError:
            result = TapResult(text=REFUSALS[TapRefusal.UNAVAILABLE], refused=TapRefusal.UNAVAILABLE)
        if result.refused is not None:
            number = None if result.approval is None else result.approval.id
            facts = {"chat": tap.chat, "sender": tap.sender, "approval_id": number}
            self.log.warning(LogEvent.APPROVAL_TAP_REFUSED, kind=tap.kind.value, reason=result.refused.value, **facts)
        return result

    async def _take(self, tap: ButtonTap) -> TapResult:
        person = approver_of(self.approvers, kind=tap.kind, sender=tap.sender)
        if person is None:  # before any look at the database: strangers cost it nothing
            return _refused(TapRefusal.NOT_LISTED, None)
        token = digest_of(tap.data, chat=tap.chat)
        row = await self.rows.by_token(token)
        approval = None if row is None else await self.approvals.approval(row.approval_id)
        why = refusal(tap, row, approval, self.approvers, now=self.now())
        if why is not None or row is None or row.says is None:
            return _refused(why or TapRefusal.UNKNOWN_TOKEN, approval)
        # The tap may come before the id of its message, or that never came.
        if row.external_id is None and not await self.rows.sent(row.id, tap.message):
            return _refused(TapRefusal.OTHER_MESSAGE, approval)
        result = await self.answer(
            self.approvals,
            self.key,
            row.approval_id,
            status=row.says,
            decided_by=f"{tap.kind}:{person.name}",
            at=self.now(),
            call_hash=row.call_hash,
            token=token,
        )
        return self._result(row, result, row.says, person.name)

    def _result(self, row: QuestionRow, result: AnswerResult, says: ApprovalStatus, name: str) -> TapResult:
        approval = result.approval
        match result.answered:
            case Answered.DECIDED:
                found = TapResult(text=f"Your {'yes' if says is YES else 'no'} is taken.", approval=approval)
            case Answered.COUNTED:
                text = f"{counted(name)} Another person has to say yes too."
                found = TapResult(text=text, approval=approval, counted=name)
            case refused:
                return _refused(_WHY.get(refused, TapRefusal.OVER), approval)
        facts = {"answered": result.answered.value, "says": says.value, "approver": name}
        self.log.info(LogEvent.APPROVAL_TAPPED, approval_id=row.approval_id, target=row.target, **facts)
        return found

    def _buttons(self, approval: Approval, drawn: Card, kind: TargetKind) -> Buttons:
        if not has_approver(self.approvers, kind=kind, approval=approval):
            return Buttons()
        takes_yes = drawn.fits and not approval.passkey
        yes = button_data(YES, self.draw(TOKEN_BYTES)) if takes_yes else ""
        return Buttons(yes=yes, no=button_data(NO, self.draw(TOKEN_BYTES)))


_WHY: Final = {
    Answered.NEEDS_PASSKEY: TapRefusal.NEEDS_PASSKEY,
    Answered.SAME_PERSON: TapRefusal.SAME_PERSON,
    Answered.TOKEN_USED: TapRefusal.USED_TOKEN,
    Answered.UNKNOWN: TapRefusal.UNKNOWN_TOKEN,
}
"""Why an answer counts for nothing; every other one came too late."""


def _refused(why: TapRefusal, approval: Approval | None) -> TapResult:
    return TapResult(text=REFUSALS[why], refused=why, approval=approval)


def _digests(buttons: Buttons, chat: str) -> tuple[str | None, str | None]:
    yes, no = ((digest_of(data, chat=chat) if data else None) for data in (buttons.yes, buttons.no))
    return yes, no


# --- what is sent -----------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class ChatCarrier(ABC):
    """Brings messages to one chat; a question becomes a card."""

    kind: ClassVar[TargetKind]
    limit: ClassVar[int]  # of a card, in UTF-16 code units
    target: str
    chat: str
    questions: ChatQuestions | None  # None: questions go out like everything else
    deadline_seconds: float = DEADLINE_SECONDS
    reception: AnswerReception | None = None  # None: it is not known whether answers arrive

    @abstractmethod
    async def send(
        self, message: NoticeMessage, question: OutgoingQuestion | None, last: str
    ) -> tuple[DeliveryResult, str]:
        """Send a message, or a question and a line after its card; return the message's id in the chat as well."""

    async def deliver(self, messages: Sequence[NoticeMessage], results: dict[int, DeliveryResult]) -> None:
        """Deliver messages, as a carrier does."""
        streak = Streak()
        with anyio.move_on_after(self.deadline_seconds):
            for index, message in enumerate(messages):
                if await self.deliver_at(index, message, results) and streak.ends_with(results[index]):
                    return

    async def deliver_at(self, index: int, message: NoticeMessage, results: dict[int, DeliveryResult]) -> bool:
        """Deliver one message; ``False``: it was not tried, because its question waits no more."""
        question, last = None, ""
        if self.questions is not None and message.approval_id is not None:
            question = await self.questions.open(
                message.approval_id,
                kind=self.kind,
                target=self.target,
                chat=self.chat,
                limit=self.limit,
                again=message.reminds,
            )
            if question is None:
                return False
            last = by_command(message.approval_id) if self.reception is not None and self.reception.is_broken else ""
        results[index] = DeliveryResult(result=DeliveryOutcome.UNKNOWN, error="the time ran out")  # until it is known
        results[index], external_id = await self.send(message, question, last)
        if self.questions is not None and question is not None and external_id:
            await self.questions.sent(question, external_id)
        return True


# --- what messages show -----------------------------------------------------------------------------------


class EditResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an edit."""

    is_done: bool
    is_final: bool = False  # the same edit would be refused again
    error: str = ""
    wait_seconds: float = 0.0  # that the server wants before the next one


@dataclass(kw_only=True)
class ChatEditor:
    """Keeps the messages of questions in some chats true, until cancelled."""

    targets: Collection[str]
    name: str = ""  # of the chats, for the log
    questions: ChatQuestions
    edit: Callable[[QuestionRow, Card, str, Buttons | None], Awaitable[EditResult]]  # None: the question is over
    method: str  # for the log
    limit: int
    at_once: int
    log: Logger
    look_seconds: float = LOOK_SECONDS
    _changed: anyio.Event = field(default_factory=anyio.Event)  # something was answered
    _turn: anyio.Lock = field(default_factory=anyio.Lock)  # no count is shown after an outcome
    _pause: float = 0.0  # seconds after the last failure; 0: there was none
    _left_until: float = -math.inf  # by the event loop's clock

    def answered(self) -> None:
        """Look at once: something was answered."""
        self._changed.set()

    async def run(self) -> None:
        """Look again and again for messages that do not show how their question ended."""
        database = DatabaseTrouble(self.log, f"messages about approvals{self.name}")
        while True:
            wait = self.look_seconds
            try:
                wait = max(wait, await self.edit_once())
                database.over()
            except StoreError as error:
                wait = max(wait, database.failed(error))
            with anyio.move_on_after(wait):
                await self._changed.wait()
            self._changed = anyio.Event()

    async def edit_once(self) -> float:
        """Edit the messages that do not show how their question ended; return how long the chats are left alone."""
        if (left := self._left()) > 0:  # an answer wakes us, but does not make the server take more
            return left
        found = await self.questions.rows.unedited(self.targets, now=self.questions.now())
        limiter = anyio.CapacityLimiter(self.at_once)

        async def edit(unedited: Unedited) -> None:
            async with limiter:
                if not self._left():
                    await self._end(unedited)

        async with self._turn, anyio.create_task_group() as tasks:
            for unedited in found:
                tasks.start_soon(edit, unedited)
        return self._left()

    async def show_count(self, row: QuestionRow, name: str) -> None:
        """Let a message show whose yes counts; its buttons count also where that is refused."""
        async with self._turn:
            with suppress(StoreError):
                if (question := await self.questions.reopen(row, limit=self.limit)) is not None:
                    await self.edit(row, question.card, counted(name), question.buttons)

    def _left(self) -> float:
        return max(self._left_until - anyio.current_time(), 0.0)

    async def _end(self, unedited: Unedited) -> None:
        """Show how a question ended."""
        row, approval = unedited.row, unedited.approval
        card, last = self.questions.ended(approval, limit=self.limit)
        result = await self.edit(row, card, last, None)
        if not result.is_done and not result.is_final:
            if not self._pause:
                self.log.warning(LogEvent.CHAT_UNREACHABLE, what=self.method, error=result.error)
            self._pause = min(self._pause * 2 or _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
            self._left_until = anyio.current_time() + max(self._pause, result.wait_seconds)
            return
        if not result.is_done:
            facts = {"approval_id": approval.id, "target": row.target, "error": result.error}
            self.log.warning(LogEvent.CHAT_MESSAGE_STALE, **facts)
        elif self._pause:
            self._pause = 0.0
            self.log.info(LogEvent.CHAT_REACHABLE, what=self.method)
        is_over = approval.status is not ApprovalStatus.PENDING
        with suppress(StoreError):  # the next look edits it once more
            await self.questions.rows.edited(
                row.id, approval.status if is_over else ApprovalStatus.EXPIRED, now=self.questions.now()
            )


async def keep_going(work: Callable[[], Awaitable[None]], log: Logger, *, pause_seconds: float) -> None:
    """Do some work again whenever it ends: a fault of ours in a chat ends no session."""
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - see above
            log.error(LogEvent.CHAT_CRASHED, error=type(error).__name__)
        await anyio.sleep(pause_seconds)
