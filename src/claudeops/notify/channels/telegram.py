"""Telegram: notices and questions to the chats of a bot, the taps of its buttons, and what messages show afterwards.

One long poll for each bot, however many chats it has. Telegram itself keeps which updates have been taken: the next
poll confirms them, and one that comes twice all the same finds its token used. Every call is bounded, and a bot that
hangs or fails holds up nothing but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import ClassVar, Final

import anyio
import msgspec

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.notices.channels import ChannelAccess, TargetKind
from claudeops.domain.notices.notice import MOVED, DeliveryOutcome
from claudeops.domain.notices.refusals import RefusalSubject, of_telegram, telegram_deafness
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.notify.bot_api import BotApi, BotReply, CallOutcome
from claudeops.notify.channels import ChannelContext, ChannelFaults, ConnectedTargets, NoticeChannel, Targets
from claudeops.notify.delivery import DeliveryResult, deliver_one
from claudeops.notify.questions import (
    LOOK_SECONDS,
    Buttons,
    ChatCarrier,
    ChatEditor,
    ChatQuestions,
    EditResult,
    OutgoingQuestion,
    TapResult,
    keep_going,
)
from claudeops.notify.reception import AnswerReception
from claudeops.store.probes import Probes
from claudeops.structs import replace
from claudeops.text import clip, join_names
from claudeops.wording.notices.approving import ButtonTap, Card, QuestionRow, shown, uncalled, units
from claudeops.wording.notices.texts import NoticeMessage

LIMIT: Final = 4096
"""UTF-16 code units of a message: https://core.telegram.org/bots/api#sendmessage."""

POLL_SECONDS: Final = 25

SETTLE_SECONDS: Final = 3.0 * POLL_SECONDS
"""For how long polls succeed before a bot counts as getting its updates again."""

_POLL_GRACE_SECONDS: Final = 10.0
_UPDATES: Final = 20  # of one poll
_EDITS: Final = 5  # at once
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
_UNCHANGED: Final = "message is not modified"
_SENSELESS: Final = "its answer makes no sense"


class _Webhook(msgspec.Struct):
    url: str = ""


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
    row = [{"text": label, "callback_data": data} for label, data in (("No", given.no), ("Yes", given.yes)) if data]
    return {
        "text": text,
        "entities": [code] if end > begin else [],
        "reply_markup": {"inline_keyboard": [row] if row else []},
        **_PLAIN,
    }


_PLAIN: Final = {"link_preview_options": {"is_disabled": True}}  # a preview would fetch what a model has written


def result_of(reply: BotReply) -> DeliveryResult:
    """Return what came of a message, as the outbox takes it."""
    results = {CallOutcome.OK: DeliveryOutcome.DELIVERED, CallOutcome.UNCLEAR: DeliveryOutcome.UNKNOWN}
    return DeliveryResult(
        result=results.get(reply.outcome, DeliveryOutcome.FAILED),
        error=reply.error,
        wait_seconds=reply.wait_seconds,
        cause=of_telegram(reply.status, reply.description) if reply.outcome is CallOutcome.REFUSED else None,
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
class TelegramCarrier(ChatCarrier):
    """Brings messages to one chat of a bot."""

    kind: ClassVar[TargetKind] = TargetKind.TELEGRAM
    limit: ClassVar[int] = LIMIT
    api: BotApi
    moves: Moves | None = None  # None: it is not noted that the chat has another id than the file says
    _moved_to: int | None = None  # by the last answer

    async def deliver_at(self, index: int, message: NoticeMessage, results: dict[int, DeliveryResult]) -> bool:
        """Deliver one message, to the supergroup if the group became one."""
        if not await super().deliver_at(index, message, results):
            return False
        if self._moved_to is not None:
            # The chat stays by this name until the daemon ends; what reads the file next finds out anew.
            self.chat = str(self._moved_to)
            if not await super().deliver_at(index, message, results):
                return False
            if results[index].result is DeliveryOutcome.DELIVERED:
                moved = f'the group became a supergroup: write chat = "{self.chat}" for {self.target}'
                results[index] = replace(results[index], error=moved)
        if self.moves is not None and results[index].result is DeliveryOutcome.DELIVERED:
            await self.moves.note(self.chat)
        return True

    async def send(
        self, message: NoticeMessage, question: OutgoingQuestion | None, last: str
    ) -> tuple[DeliveryResult, str]:
        """Send a message to the chat as it is called now."""
        made = text_of(message)
        if question is not None:
            text = shown(question.card, last) if last else question.card.text
            made = card_of(question.card, text, question.buttons)
        reply = await self.api.call("sendMessage", {"chat_id": int(self.chat), **made})
        self._moved_to = reply.moved_to
        external_id = ""
        if reply.outcome is CallOutcome.OK:
            with suppress(msgspec.DecodeError):
                external_id = str(msgspec.json.decode(reply.result, type=_Sent).message_id)
        return result_of(reply), external_id


# --- a bot ------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class TelegramBot:
    """Receives the taps of one bot's buttons, and keeps its messages true, until cancelled."""

    api: BotApi
    chats: Mapping[str, str]  # by target
    questions: ChatQuestions
    log: Logger
    look_seconds: float = LOOK_SECONDS
    poll_seconds: int = POLL_SECONDS
    first_pause: float = _FIRST_PAUSE_SECONDS  # seconds after the first failed poll of a row
    reception: AnswerReception | None = None
    _after: int = 0  # the first update that was not taken
    _pause: float = 0.0  # seconds after the last failed poll; 0: polls succeed

    def __post_init__(self) -> None:
        self.editor = ChatEditor(
            targets=self.chats.keys(),
            questions=self.questions,
            edit=self._edit,
            method="editMessageText",
            limit=LIMIT,
            at_once=_EDITS,
            log=self.log,
            look_seconds=self.look_seconds,
        )

    @property
    def is_polled(self) -> bool:
        """Whether people may answer there."""
        return any(TargetKind.TELEGRAM in person.ids for person in self.questions.approvers)

    async def run(self) -> None:
        """Poll and edit; a fault of ours here ends no session."""
        try:
            async with anyio.create_task_group() as tasks:
                for work in ([self._poll] if self.is_polled else []) + [self.editor.run]:
                    tasks.start_soon(partial(keep_going, work, self.log, pause_seconds=_LONGEST_PAUSE_SECONDS))
        finally:
            await self.api.close()

    # --- taps ---------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        while True:
            wanted = {"timeout": self.poll_seconds, "limit": _UPDATES, "allowed_updates": ["callback_query"]}
            offset = {"offset": self._after} if self._after else {}
            bound = self.poll_seconds + _POLL_GRACE_SECONDS
            reply = await self.api.call("getUpdates", {**wanted, **offset}, seconds=bound)
            updates = _updates(reply)
            if updates is None:
                wait = self._note_failure(reply)
                await self._note_reception(reply)
                await anyio.sleep(wait)
                continue
            if self._pause:
                self._pause = 0.0
                self.log.info(LogEvent.CHAT_REACHABLE, what="getUpdates")
            if self.reception is not None:
                await self.reception.succeeded()
            async with anyio.create_task_group() as tasks:
                for update in updates:
                    self._after = max(self._after, update.update_id + 1)
                    if (query := _query(update)) is not None and (result := await self._take(query)) is not None:
                        tasks.start_soon(self._respond, query, result)

    def _note_failure(self, reply: BotReply) -> float:
        """Note a failed poll, the first of a row in the log; return how long to wait."""
        if not self._pause:
            self.log.warning(LogEvent.CHAT_UNREACHABLE, what="getUpdates", error=reply.error or _SENSELESS)
        self._pause = min(self._pause * 2 or self.first_pause, _LONGEST_PAUSE_SECONDS)
        return max(self._pause, reply.wait_seconds or 0.0)

    async def _note_reception(self, reply: BotReply) -> None:
        """Note that updates do not come; a server that is away takes no questions either, so that is none of this."""
        if self.reception is not None and reply.outcome is not CallOutcome.AWAY:
            status = reply.status if reply.outcome is CallOutcome.REFUSED else None
            why = reply.description or reply.error or _SENSELESS
            await self.reception.failed(why, telegram_deafness(status, reply.description))

    async def _take(self, query: _Query) -> TapResult | None:
        try:
            return await self.questions.take(self._tap(query))
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

    async def _respond(self, query: _Query, result: TapResult) -> None:
        self.editor.answered()
        answer = {"callback_query_id": query.id, "text": result.text, "show_alert": result.refused is not None}
        await self.api.call("answerCallbackQuery", answer)
        if result.counted and result.approval is not None:
            with suppress(StoreError):
                for row in await self.questions.rows.asking(result.approval.id, self.chats.keys()):
                    await self.editor.show_count(row, result.counted)

    async def _edit(self, row: QuestionRow, card: Card, last: str, buttons: Buttons | None) -> EditResult:
        message = {"chat_id": int(row.chat), "message_id": int(row.external_id or 0)}
        made = card_of(card, shown(card, last if buttons else uncalled(last)), buttons)
        reply = await self.api.call("editMessageText", {**message, **made})
        return EditResult(
            is_done=reply.outcome is CallOutcome.OK or _UNCHANGED in reply.error,
            is_final=reply.is_final,
            error=reply.error or _SENSELESS,
            wait_seconds=reply.wait_seconds or 0.0,
        )


def _updates(reply: BotReply) -> Sequence[_Update] | None:
    if reply.outcome is not CallOutcome.OK:
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


# --- the channel ------------------------------------------------------------------------------------------


class TelegramChannel(NoticeChannel):
    """Chats of Telegram's bots."""

    def connect(self, targets: Targets, context: ChannelContext) -> ConnectedTargets:
        """Connect chats, and each bot once: it can be polled by one only."""
        carriers: dict[str, TelegramCarrier] = {}
        bots: list[TelegramBot] = []
        for api, chats in _bots(targets, self.network):
            reception = context.reception(chats, settle_seconds=SETTLE_SECONDS)
            for name, chat in chats.items():
                moves = Moves(target=name, chat=chat, events=context.events, now=context.now)
                carriers[name] = TelegramCarrier(
                    api=api, target=name, chat=chat, questions=context.questions, reception=reception, moves=moves
                )
            if context.questions is not None:
                bots.append(
                    TelegramBot(api=api, chats=chats, questions=context.questions, log=context.log, reception=reception)
                )
        receptions = [bot.reception for bot in bots if bot.is_polled]
        return ConnectedTargets(
            carriers=carriers,
            tasks=[bot.run for bot in bots],
            events=[reception.fingerprint for reception in receptions if reception is not None],
        )

    async def try_target(self, target: str, access: ChannelAccess, message: NoticeMessage) -> DeliveryResult:
        """Send one message."""
        api = BotApi(access.api, access.secrets["token"], network=self.network)
        try:
            return await deliver_one(
                TelegramCarrier(api=api, target=target, chat=access.place, questions=None), message
            )
        finally:
            await api.close()

    async def check(self, targets: Targets, faults: ChannelFaults, *, has_approvers: bool) -> None:
        """Look at each bot: its token, whether its updates go elsewhere, and whether it is in its chats."""
        async with anyio.create_task_group() as tasks:
            for api, chats in _bots(targets, self.network):
                tasks.start_soon(_check_bot, api, chats, faults, has_approvers)


def _bots(targets: Targets, network: Mapping[str, str]) -> Collection[tuple[BotApi, Mapping[str, str]]]:
    """Return every bot once, with the chats of its targets."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name, access in targets.items():
        found.setdefault((access.api, access.secrets["token"]), {})[name] = access.place
    return [(BotApi(api, token, network=network), chats) for (api, token), chats in found.items()]


async def _check_bot(api: BotApi, chats: Mapping[str, str], faults: ChannelFaults, has_approvers: bool) -> None:  # noqa: FBT001 - of a task
    bot = f"the bot of {join_names(list(chats))}"
    try:
        reply = await api.call("getMe", {})
        if reply.outcome is not CallOutcome.OK:
            cause = of_telegram(reply.status, reply.description) if reply.outcome is CallOutcome.REFUSED else None
            faults.add(bot, reply.error, "" if cause is None else cause.remedy, is_certain=cause is not None)
            return
        if has_approvers:
            reply = await api.call("getWebhookInfo", {})
            if reply.outcome is CallOutcome.OK and _has_webhook(reply.result):
                remedy = "delete it (deleteWebhook of the Bot API), and answer with `claudeops approve N` until then"
                faults.add(bot, "a webhook takes what is pressed there", remedy, is_certain=True)
        for name, chat in chats.items():
            await _check_chat(api, name, chat, faults)
    finally:
        await api.close()


def _has_webhook(result: bytes) -> bool:
    try:
        return bool(msgspec.json.decode(result, type=_Webhook).url)
    except msgspec.DecodeError:
        return False


async def _check_chat(api: BotApi, name: str, chat: str, faults: ChannelFaults) -> None:
    reply = await api.call("getChat", {"chat_id": int(chat)})
    if reply.outcome is not CallOutcome.REFUSED or reply.status == 404:  # noqa: PLR2004 - a server of one's own may not know it
        return
    if reply.moved_to is not None:
        faults.add(name, "its group became a supergroup", f'write chat = "{reply.moved_to}"', is_certain=False)
        return
    cause = of_telegram(reply.status, reply.description)
    if cause is not None and cause.refusal is RefusalSubject.TARGET:
        faults.add(name, reply.error, cause.remedy, is_certain=True)


CHANNEL: Final = TelegramChannel
