"""Questions in chats, whatever the chat: a card and its tokens go out, and a tap becomes an answer or changes nothing.

A tap is taken in this order: who is it, is the token one of ours and of this message, does the question still wait;
then the answer goes the one way that all answers go, and uses the token up in the transaction that writes it: a tap is
taken as a whole or not at all, and may be repeated. Every tap is on record in the log.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from claudeops.domain.gate.approval import Answered, Approval, ApprovalStatus
from claudeops.domain.notices.approvers import Approver, approver_of
from claudeops.domain.notices.notice import TargetKind
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.acts.approvals import AnswerResult, answer_question
from claudeops.store.approvals import Approvals
from claudeops.store.notify.questions import Questions
from claudeops.wording.notices.approving import (
    NO,
    REFUSALS,
    TOKEN_BYTES,
    YES,
    ButtonTap,
    Card,
    QuestionRow,
    TapRefusal,
    button_data,
    card,
    counted,
    digest_of,
    has_somebody,
    is_over,
    outcome,
    refusal,
    shown,
)
from claudeops.wording.notices.texts import Wording

_MOST_KEPT: Final = 1000
"""Messages whose buttons are known, the latest ones; a question waits for minutes, and ends with the daemon."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Buttons:
    """What the buttons of a message hold; ``""``: there is no such button."""

    yes: str = field(default="", repr=False)
    no: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class OutgoingQuestion:
    """A message that is about to be sent."""

    message_id: int  # ours
    card: Card
    buttons: Buttons


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """What came of a tap."""

    text: str  # for whoever tapped
    refused: TapRefusal | None = None  # None: it was taken
    approval: Approval | None = None
    counted: str = ""  # whose yes was counted, where another one has to follow


@dataclass(kw_only=True)
class Asking:
    """Asks people in chats, and takes their answers."""

    questions: Questions
    approvals: Approvals
    key: bytes = field(repr=False)  # proves answers
    approvers: Sequence[Approver]
    wording: Wording
    now: Callable[[], datetime]
    log: Logger
    draw: Callable[[int], bytes] = secrets.token_bytes
    answer: Callable[..., Awaitable[AnswerResult]] = answer_question
    _buttons_of: dict[int, Buttons] = field(default_factory=dict, repr=False)  # by message; the database has digests

    async def ask(
        self, approval_id: int, *, kind: TargetKind, target: str, chat: str, limit: int, again: bool
    ) -> OutgoingQuestion | None:
        """Return the message that asks a question, once its tokens are on record; ``None``: it waits no more.

        Without anybody who could answer there it has no buttons; where the call does not fit, or a yes needs a passkey,
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
        message_id = await self.questions.open(approval, target=target, chat=chat, yes=yes, no=no, now=now)
        self._buttons_of[message_id] = buttons
        if len(self._buttons_of) > _MOST_KEPT:
            del self._buttons_of[next(iter(self._buttons_of))]
        return OutgoingQuestion(message_id=message_id, card=drawn, buttons=buttons)

    async def asked_still(self, asked: QuestionRow, *, limit: int) -> OutgoingQuestion | None:
        """Return a message that is in its chat already, with its own buttons, so that it may be edited.

        ``None``: its question waits no more, or its buttons are not known here. An edit that does not happen changes
        nothing: the buttons in the chat are good for everybody who has not answered yet.
        """
        approval = await self.approvals.approval(asked.approval_id)
        buttons = self._buttons_of.get(asked.id)
        if approval is None or buttons is None or is_over(approval, self.now()):
            return None
        drawn = card(approval, wording=self.wording, limit=limit, now=self.now())
        return OutgoingQuestion(message_id=asked.id, card=drawn, buttons=buttons)

    def ended(self, approval: Approval, *, limit: int) -> tuple[Card, str]:
        """Return what a message shows whose question is over: its card, and the line about the outcome."""
        return card(approval, wording=self.wording, limit=limit, now=self.now()), outcome(approval, self.wording)

    async def take(self, tap: ButtonTap) -> Taken:
        """Take a tap, and put it on record."""
        try:
            taken = await self._take(tap)
        except StoreError:
            taken = Taken(text=REFUSALS[TapRefusal.UNAVAILABLE], refused=TapRefusal.UNAVAILABLE)
        if taken.refused is not None:
            number = None if taken.approval is None else taken.approval.id
            facts = {"chat": tap.chat, "sender": tap.sender, "approval_id": number}
            self.log.warning(LogEvent.APPROVAL_TAP_REFUSED, kind=tap.kind.value, reason=taken.refused.value, **facts)
        return taken

    async def _take(self, tap: ButtonTap) -> Taken:
        person = approver_of(self.approvers, kind=tap.kind, sender=tap.sender)
        if person is None:  # before the database is asked: strangers cost it nothing
            return _refused(TapRefusal.NOT_LISTED, None)
        token = digest_of(tap.data, chat=tap.chat)
        asked = await self.questions.by_token(token)
        approval = None if asked is None else await self.approvals.approval(asked.approval_id)
        why = refusal(tap, asked, approval, self.approvers, now=self.now())
        if why is not None or asked is None or asked.says is None:
            return _refused(why or TapRefusal.UNKNOWN_TOKEN, approval)
        # The tap may be faster than what its message is called, or that was never told.
        if asked.external_id is None and not await self.questions.sent(asked.id, tap.message):
            return _refused(TapRefusal.OTHER_MESSAGE, approval)
        result = await self.answer(
            self.approvals,
            self.key,
            asked.approval_id,
            status=asked.says,
            decided_by=f"{tap.kind}:{person.name}",
            at=self.now(),
            call_hash=asked.call_hash,
            token=token,
        )
        return self._told(asked, result, asked.says, person.name)

    def _told(self, asked: QuestionRow, result: AnswerResult, says: ApprovalStatus, name: str) -> Taken:
        approval = result.approval
        match result.answered:
            case Answered.DECIDED:
                taken = Taken(text=f"Your {'yes' if says is YES else 'no'} is taken.", approval=approval)
            case Answered.COUNTED:
                said = counted(name)
                taken = Taken(text=f"{said} Another person has to say yes too.", approval=approval, counted=name)
            case refused:
                return _refused(_WHY.get(refused, TapRefusal.OVER), approval)
        facts = {"answered": result.answered.value, "says": says.value, "approver": name}
        self.log.info(LogEvent.APPROVAL_TAPPED, approval_id=asked.approval_id, target=asked.target, **facts)
        return taken

    def _buttons(self, approval: Approval, drawn: Card, kind: TargetKind) -> Buttons:
        if not has_somebody(self.approvers, kind=kind, approval=approval):
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


def status_of(approval: Approval) -> ApprovalStatus:
    """Return how a question that is over stands, whoever has written it by now."""
    return ApprovalStatus.EXPIRED if approval.status is ApprovalStatus.PENDING else approval.status


def with_count(drawn: Card, name: str) -> str:
    """Return the text of a message that waits for a second yes."""
    return shown(drawn, counted(name))


def _refused(why: TapRefusal, approval: Approval | None) -> Taken:
    return Taken(text=REFUSALS[why], refused=why, approval=approval)


def _digests(buttons: Buttons, chat: str) -> tuple[str | None, str | None]:
    yes, no = ((digest_of(data, chat=chat) if data else None) for data in (buttons.yes, buttons.no))
    return yes, no
