"""Telegram: notices and questions to the chats of a bot, the taps of its buttons, and what messages show afterwards.

One long poll for each bot, however many chats it has. Telegram itself keeps which updates have been taken: the next
poll confirms them, and one that comes twice all the same finds its token used. Every call is bounded, and a bot that
hangs or fails holds up nothing but itself.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import anyio
import msgspec

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.notices.notice import MOVED, DeliveryOutcome, TargetKind
from claudeops.domain.notices.refusals import of_telegram, telegram_deafness
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.notify.asking import Asking, Buttons, OutgoingQuestion, Taken, status_of, with_count
from claudeops.notify.bot_api import BotApi, BotReply, Came
from claudeops.notify.delivery import DEADLINE_SECONDS, Streak, Told
from claudeops.notify.hearing import Hearing, by_command
from claudeops.store.notify.questions import Questions
from claudeops.store.probes import Probes
from claudeops.tasks import DatabaseTrouble
from claudeops.text import clip
from claudeops.wording.notices.approving import ButtonTap, Card, QuestionRow, Unedited, shown, uncalled, units
from claudeops.wording.notices.texts import NoticeMessage

LIMIT: Final = 4096
"""UTF-16 code units of a message: https://core.telegram.org/bots/api#sendmessage."""

LOOK_SECONDS: Final = 1.0
"""Between two looks for messages that do not show how their question ended."""

POLL_SECONDS: Final = 25

SETTLE_SECONDS: Final = 3.0 * POLL_SECONDS
"""For how long polls succeed before a bot counts as getting its updates again."""

_POLL_GRACE_SECONDS: Final = 10.0
_UPDATES: Final = 20  # of one poll
_EDITS: Final = 5  # at once
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
_SENT_TRIES: Final = 3
_UNCHANGED: Final = "message is not modified"
_NO_END: Final = "the time ran out"


class _Chat(msgspec.Struct):
    id: int


class _Sent(msgspec.Struct):
    message_id: int


class _TappedMessage(msgspec.Struct):
    message_id: int
    chat: _Chat


class _User(msgspec.Struct):
    id: int


class _Query(msgspec.Struct, rename={"sender": "from"}):
    id: str
    sender: _User
    message: _TappedMessage | None = None
    data: str = ""


class _Update(msgspec.Struct):
    update_id: int
    callback_query: msgspec.Raw = msgspec.Raw(b"null")


# --- what is sent -----------------------------------------------------------------------------------------


def text_of(message: NoticeMessage) -> dict[str, object]:
    """Return a notice as the arguments of a message, its title in bold."""
    title = uncalled(message.title)
    bold = [{"type": "bold", "offset": 0, "length": units(title)}]
    return {"text": f"{title}\n{uncalled(message.body)}", "entities": bold, **_PLAIN}


def card_of(card: Card, text: str, buttons: Buttons | None = None) -> dict[str, object]:
    """Return a card as the arguments of a message, the call as it is, and with buttons."""
    begin, end = card.code
    code = {"type": "pre", "offset": units(text[:begin]), "length": units(text[begin:end])}
    given = buttons or Buttons()
    row = [{"text": said, "callback_data": data} for said, data in (("No", given.no), ("Yes", given.yes)) if data]
    return {
        "text": text,
        "entities": [code] if end > begin else [],
        "reply_markup": {"inline_keyboard": [row] if row else []},
        **_PLAIN,
    }


_PLAIN: Final = {"link_preview_options": {"is_disabled": True}}  # a preview would fetch what a model has written


def told_of(reply: BotReply) -> Told:
    """Return what came of a message, as the outbox takes it."""
    results = {Came.OK: DeliveryOutcome.DELIVERED, Came.UNCLEAR: DeliveryOutcome.UNKNOWN}
    return Told(
        result=results.get(reply.came, DeliveryOutcome.FAILED),
        error=reply.error,
        wait_seconds=reply.wait_seconds,
        cause=of_telegram(reply.status, reply.description) if reply.came is Came.REFUSED else None,
    )


@dataclass(kw_only=True)
class Moves:
    """Keeps the event that a group is another chat than the file of targets says: it became a supergroup."""

    target: str
    chat: str  # as the file has it
    events: Probes
    now: Callable[[], datetime]
    _written: str | None = None  # the chat that the event names, nothing if there is none; None: not known

    async def note(self, chat: str) -> None:
        """Note by which id the chat takes messages."""
        moved = "" if chat == self.chat else chat
        if moved == self._written:
            return
        message = (
            f"the group of {self.target} became a supergroup, and its messages follow it: "
            f'write chat = "{chat}" for {self.target} in the file of targets.'
        )
        event = NewEvent(level=EventLevel.WARNING, message=message, fingerprint=clip(f"{MOVED}{self.target}"))
        with suppress(StoreError):  # the next message notes it
            await self.events.note(event, over=not moved, now=self.now())
            self._written = moved


@dataclass(kw_only=True)
class TelegramCarrier:
    """Brings messages to one chat; a question becomes a card."""

    api: BotApi
    target: str
    chat: str
    asking: Asking | None  # None: questions are told like everything else
    deadline_seconds: float = DEADLINE_SECONDS
    hearing: Hearing | None = None  # None: nothing is known of whether answers arrive
    moves: Moves | None = None  # None: nobody is told that the chat has another id than the file says

    async def deliver(self, address: str, messages: Sequence[NoticeMessage], told: dict[int, Told]) -> None:  # noqa: ARG002 - the chat is known
        """Deliver messages; ``told`` gets what came of each, by its place, as soon as it is known."""
        streak = Streak()
        with anyio.move_on_after(self.deadline_seconds):
            for index, message in enumerate(messages):
                if await self._deliver(message, index, told) and streak.ends_with(told[index]):
                    return

    async def _deliver(self, message: NoticeMessage, index: int, told: dict[int, Told]) -> bool:
        """Deliver one message; ``False``: it was not tried, because its question waits no more."""
        reply = await self._send(message, index, told)
        if reply is not None and reply.moved_to is not None:
            # The chat stays by this name until the daemon ends; what reads the file next finds out anew.
            self.chat = str(reply.moved_to)
            reply = await self._send(message, index, told)
            if reply is not None and reply.came is Came.OK:
                moved = f'the group became a supergroup: write chat = "{self.chat}" for {self.target}'
                told[index] = replace(told[index], error=moved)
        if reply is None:
            return False
        if self.moves is not None and reply.came is Came.OK:
            await self.moves.note(self.chat)
        return True

    async def _send(self, message: NoticeMessage, index: int, told: dict[int, Told]) -> BotReply | None:
        """Send one message to the chat as it is called now; ``None``: its question waits no more."""
        question = None
        if self.asking is not None and message.approval_id is not None:
            question = await self.asking.ask(
                message.approval_id,
                kind=TargetKind.TELEGRAM,
                target=self.target,
                chat=self.chat,
                limit=LIMIT,
                again=message.reminds,
            )
            if question is None:
                return None
        told[index] = Told(result=DeliveryOutcome.UNKNOWN, error=_NO_END)  # until it says more
        made = text_of(message) if question is None else self._card(question, message.approval_id)
        reply = await self.api.call("sendMessage", {"chat_id": int(self.chat), **made})
        told[index] = told_of(reply)
        if question is not None and reply.came is Came.OK:
            await self._name(question, reply)
        return reply

    def _card(self, question: OutgoingQuestion, approval_id: int | None) -> dict[str, object]:
        text = question.card.text
        if approval_id is not None and self.hearing is not None and self.hearing.is_deaf:
            text = shown(question.card, by_command(approval_id))
        return card_of(question.card, text, question.buttons)

    async def _name(self, question: OutgoingQuestion, reply: BotReply) -> None:
        """Write what the message is called, without which nobody can edit it."""
        with suppress(msgspec.DecodeError):
            sent = msgspec.json.decode(reply.result, type=_Sent)
            for _ in range(_SENT_TRIES):
                try:
                    await self._questions.sent(question.message_id, str(sent.message_id))
                except StoreError:
                    await anyio.sleep(_FIRST_PAUSE_SECONDS)
                else:
                    return

    @property
    def _questions(self) -> Questions:
        if self.asking is None:
            raise AssertionError("only a question has a name")
        return self.asking.questions


# --- a bot ------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, slots=True)
class _Trouble:
    """How one thing that a bot does has fared lately."""

    log: Logger
    what: str
    first_pause: float = _FIRST_PAUSE_SECONDS
    pause: float = 0.0  # seconds before the next try

    def failed(self, reply: BotReply) -> float:
        """Note a failure, the first of a row in the log; return how long to wait."""
        if not self.pause:
            why = reply.error or "its answer makes no sense"
            self.log.warning(LogEvent.CHAT_UNREACHABLE, what=self.what, error=why)
        self.pause = min(self.pause * 2 or self.first_pause, _LONGEST_PAUSE_SECONDS)
        return max(self.pause, reply.wait_seconds or 0.0)

    def over(self) -> None:
        """Note that it works."""
        if self.pause:
            self.pause = 0.0
            self.log.info(LogEvent.CHAT_REACHABLE, what=self.what)


@dataclass(kw_only=True)
class TelegramBot:
    """Hears the taps of one bot's buttons, and keeps its messages true, until cancelled."""

    api: BotApi
    chats: Mapping[str, str]  # by target
    asking: Asking
    log: Logger
    look_seconds: float = LOOK_SECONDS
    poll_seconds: int = POLL_SECONDS
    first_pause: float = _FIRST_PAUSE_SECONDS  # seconds after the first failed poll of a row
    hearing: Hearing | None = None
    _after: int = 0  # the first update that was not taken
    _changed: anyio.Event = field(default_factory=anyio.Event)
    _editing: anyio.Lock = field(default_factory=anyio.Lock)  # no count is shown after an outcome
    _left_until: float = -math.inf  # edits, by the event loop's clock

    @property
    def is_polled(self) -> bool:
        """Whether anybody may answer there."""
        return any(person.telegram_id for person in self.asking.approvers)

    async def run(self) -> None:
        """Hear and edit; a fault of ours here ends no session."""
        try:
            async with anyio.create_task_group() as tasks:
                if self.is_polled:
                    tasks.start_soon(self._kept_going, self._hear)
                tasks.start_soon(self._kept_going, self._keep)
        finally:
            await self.api.close()

    async def _kept_going(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - see `run`
                self.log.error(LogEvent.CHAT_CRASHED, error=type(error).__name__)
            await anyio.sleep(_LONGEST_PAUSE_SECONDS)

    # --- taps ---------------------------------------------------------------------------------------------

    async def _hear(self) -> None:
        trouble = _Trouble(log=self.log, what="getUpdates", first_pause=self.first_pause)
        while True:
            wanted = {"timeout": self.poll_seconds, "limit": _UPDATES, "allowed_updates": ["callback_query"]}
            offset = {"offset": self._after} if self._after else {}
            bound = self.poll_seconds + _POLL_GRACE_SECONDS
            reply = await self.api.call("getUpdates", {**wanted, **offset}, seconds=bound)
            updates = _updates(reply)
            if updates is None:
                wait = trouble.failed(reply)
                await self._is_deaf(reply)
                await anyio.sleep(wait)
                continue
            trouble.over()
            if self.hearing is not None:
                await self.hearing.works()
            async with anyio.create_task_group() as tasks:
                for update in updates:
                    self._after = max(self._after, update.update_id + 1)
                    if (query := _query(update)) is not None and (taken := await self._take(query)) is not None:
                        tasks.start_soon(self._respond, query, taken)

    async def _is_deaf(self, reply: BotReply) -> None:
        """Note that updates do not come; a server that is away takes no questions either, so that is none of this."""
        if self.hearing is not None and reply.came is not Came.AWAY:
            refused = reply.status if reply.came is Came.REFUSED else None
            why = reply.description or reply.error or "its answer makes no sense"
            await self.hearing.failed(why, telegram_deafness(refused, reply.description))

    async def _take(self, query: _Query) -> Taken | None:
        try:
            return await self.asking.take(self._tap(query))
        except Exception as error:  # noqa: BLE001 - one tap that we fail over must not keep those behind it waiting
            self.log.error(LogEvent.CHAT_CRASHED, error=type(error).__name__)
            return None

    def _tap(self, query: _Query) -> ButtonTap:
        message = query.message
        return ButtonTap(
            kind=TargetKind.TELEGRAM,
            sender=str(query.sender.id),
            chat="" if message is None else str(message.chat.id),
            message="" if message is None else str(message.message_id),
            data=query.data,
            targets=frozenset(self.chats),
        )

    async def _respond(self, query: _Query, taken: Taken) -> None:
        self._changed.set()
        answer = {"callback_query_id": query.id, "text": taken.text, "show_alert": taken.refused is not None}
        await self.api.call("answerCallbackQuery", answer)
        if taken.counted and taken.approval is not None:
            with suppress(StoreError):
                await self._show_count(taken.approval.id, taken.counted)

    async def _show_count(self, approval_id: int, name: str) -> None:
        """Let every message of a question say who has said yes; its buttons count also where that is refused."""
        async with self._editing:
            for asked in await self.asking.questions.asking(approval_id, frozenset(self.chats)):
                if (question := await self.asking.asked_still(asked, limit=LIMIT)) is not None:
                    await self._edit(asked, card_of(question.card, with_count(question.card, name), question.buttons))

    # --- what messages show -------------------------------------------------------------------------------

    async def _keep(self) -> None:
        database = DatabaseTrouble(self.log, "messages about approvals")
        trouble = _Trouble(log=self.log, what="editMessageText")
        while True:
            wait = self.look_seconds
            try:
                wait = max(wait, await self.edit_once(trouble))
                database.over()
            except StoreError as error:
                wait = max(wait, database.failed(error))
            with anyio.move_on_after(wait):
                await self._changed.wait()
            self._changed = anyio.Event()

    async def edit_once(self, trouble: _Trouble) -> float:
        """Edit the messages that do not show how their question ended; return how long the bot is left alone."""
        left = self._left_until - anyio.current_time()
        if left > 0:  # a tap wakes us, but does not make the server take more
            return left
        found = await self.asking.questions.unedited(frozenset(self.chats), now=self.asking.now())
        waits: list[float] = []
        limiter = anyio.CapacityLimiter(_EDITS)

        async def edit(unedited: Unedited) -> None:
            async with limiter:
                if not waits and (wait := await self._end(unedited, trouble)) > 0:
                    waits.append(wait)

        async with self._editing, anyio.create_task_group() as tasks:
            for unedited in found:
                tasks.start_soon(edit, unedited)
        if found and not waits:
            trouble.over()
        wait = max(waits, default=0.0)
        self._left_until = anyio.current_time() + wait
        return wait

    async def _end(self, unedited: Unedited, trouble: _Trouble) -> float:
        """Show how a question ended; return how long to wait before the next try, 0 if there is none."""
        asked, approval = unedited.asked, unedited.approval
        card, last = self.asking.ended(approval, limit=LIMIT)
        reply = await self._edit(asked, card_of(card, shown(card, uncalled(last))))
        if reply.came is not Came.OK and _UNCHANGED not in reply.error:
            if not reply.is_final:
                return trouble.failed(reply)
            facts = {"approval_id": approval.id, "target": asked.target, "error": reply.error}
            self.log.warning(LogEvent.CHAT_MESSAGE_STALE, **facts)
        with suppress(StoreError):  # the next look edits it once more, and is told that it is so already
            await self.asking.questions.edited(asked.id, status_of(approval), now=self.asking.now())
        return 0.0

    async def _edit(self, asked: QuestionRow, made: Mapping[str, object]) -> BotReply:
        about = {"chat_id": int(asked.chat), "message_id": int(asked.external_id or 0)}
        return await self.api.call("editMessageText", {**about, **made})


def _updates(reply: BotReply) -> Sequence[_Update] | None:
    if reply.came is not Came.OK:
        return None
    try:
        return msgspec.json.decode(reply.result, type=list[_Update])
    except msgspec.DecodeError:
        return None


def _query(update: _Update) -> _Query | None:
    """Return the tap in an update; ``None`` for anything else."""
    try:
        return msgspec.json.decode(update.callback_query, type=_Query | None)
    except msgspec.DecodeError:
        return None
