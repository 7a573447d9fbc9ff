"""A chat of a scripted Telegram, with the parts of the daemon that speak to it, and people who tap."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import anyio

from claudeops import logs
from claudeops.domain.gate.approval import Approval, CalledScript, NewApproval
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.channels import TargetKind
from claudeops.domain.notices.notice import DeliveryOutcome, Target
from claudeops.domain.sessions import Session
from claudeops.notify.bot_api import BotApi
from claudeops.notify.channels.telegram import Moves, TelegramBot, TelegramCarrier
from claudeops.notify.delivery import DeliveryResult
from claudeops.notify.questions import ChatQuestions
from claudeops.notify.reception import AnswerReception
from claudeops.notify.sender import NoticeSender
from claudeops.scripted_api.telegram import BotMessage, ScriptedTelegram, serve_telegram
from claudeops.store.store import Store
from claudeops.wording.notices.texts import NoticeMessage as Notice
from claudeops.wording.notices.texts import Wording
from support.carrying import ToAddress
from support.store_values import NOW, call
from support.waiting import PATIENCE_SECONDS

TOKEN: Final = "123456789:token-of-the-scripted-bot"
KEY: Final = b"k" * 32
ROOM: Final = -1001
OTHER_ROOM: Final = -1002
ALICE: Final = 11
BOB: Final = 12
STRANGER: Final = 99
PEOPLE: Final = (
    Approver(name="alice", ids={TargetKind.TELEGRAM: str(ALICE)}),
    Approver(name="bob", ids={TargetKind.TELEGRAM: str(BOB)}),
)
SECRET: Final = "hunter2-is-the-password"


@dataclass
class Clock:
    """A clock that goes when it is told to."""

    at: datetime = NOW

    def now(self) -> datetime:
        return self.at


@dataclass
class Elsewhere:
    """The carrier of all targets that are no chats; it records."""

    heard: list[str] = field(default_factory=list)

    async def deliver(self, address: str, messages: Sequence[Notice], told: dict[int, DeliveryResult]) -> None:
        for index, message in enumerate(messages):
            self.heard.append(f"{address}: {message.title} {message.body}")
            told[index] = DeliveryResult(result=DeliveryOutcome.DELIVERED)


@dataclass
class Chat:
    """Everything at once."""

    store: Store
    telegram: ScriptedTelegram
    clock: Clock
    bot: TelegramBot
    outgoing: NoticeSender
    elsewhere: Elsewhere

    @property
    def messages(self) -> list[BotMessage]:
        return self.telegram.messages

    async def until(self, condition: Callable[[], object], *, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until something holds; what the database says is looked at as well."""
        with anyio.fail_after(seconds):
            while not condition():  # noqa: ASYNC110 - the database sets no event
                await anyio.sleep(0.01)

    async def asked(self, approval: Approval) -> BotMessage:
        """Return the message that asks."""
        await self.until(lambda: [each for each in self.messages if each.text.startswith(f"Approval {approval.id}:")])
        return next(each for each in self.messages if each.text.startswith(f"Approval {approval.id}:"))

    async def tap(self, message: BotMessage, said: str, *, sender: int, chat: int | None = None) -> str:
        """Tap, and return what whoever tapped is told."""
        return await self.heard(self.telegram.tap(message, said, sender=sender, chat=chat))

    async def heard(self, query: str) -> str:
        await self.until(lambda: query in self.telegram.answers)
        return self.telegram.answers[query]

    async def approval(self, approval: Approval) -> Approval:
        found = await self.store.approvals.approval(approval.id)
        assert found is not None
        return found


async def ask(
    store: Store,
    session: Session,
    *,
    tool_use_id: str = "toolu_1",
    command: str = "docker restart web",
    input_json: str | None = None,
    services: tuple[str, ...] | None = ("web",),
    reason: str = "restarts the shop",
    minutes: float = 15,
    needed: int = 1,
    hidden: bool = False,
    passkey: bool = False,
) -> Approval:
    """Write a question, as the gate does."""
    escaped = command.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return await store.approvals.request_approval(
        NewApproval(
            session=session,
            call=call(tool_use_id),
            call_hash=f"hash of {tool_use_id}",
            workdir="/work",
            redacted_input=input_json or f'{{"command":"{escaped}"}}',
            scripts=(CalledScript(path="/work/mend.sh", sha256="ab" * 32, text="true"),),
            reason=reason,
            requested_at=NOW,
            expires_at=NOW + timedelta(minutes=minutes),
            services=services,
            needed=needed,
            hidden=hidden,
            passkey=passkey,
        )
    )


@asynccontextmanager
async def chatting(
    store: Store,
    *,
    approvers: Sequence[Approver] = PEOPLE,
    rooms: Sequence[tuple[str, int]] = (("ops", ROOM),),
    url: str | None = None,
    seconds: float = 8,
    run: bool = True,
    impatient: bool = False,
) -> AsyncIterator[Chat]:
    """Run a bot and the outbox on a scripted Telegram until the block is left; ``url`` is another server's.

    ``impatient``: the bot polls and tries again within moments.
    """
    clock = Clock()
    wording = Wording(redact=lambda text: text.replace(SECRET, "[redacted]"), public_url="https://ops.example")
    async with serve_telegram(token=TOKEN, chats=(ROOM, OTHER_ROOM)) as telegram:
        questions = ChatQuestions(
            rows=store.questions,
            approvals=store.approvals,
            key=KEY,
            approvers=approvers,
            wording=wording,
            now=clock.now,
            log=logs.get_logger(),
        )
        api = BotApi(url or telegram.url, TOKEN, network={}, seconds=seconds)
        chats = {name: str(room) for name, room in rooms}
        reception = AnswerReception(targets=chats.keys(), events=store.probes, redact=wording.redact, now=clock.now)
        bot = TelegramBot(
            api=api, chats=chats, questions=questions, log=logs.get_logger(), look_seconds=0.02, reception=reception
        )
        if impatient:
            bot.poll_seconds, bot.first_pause = 1, 0.01
        elsewhere = Elsewhere()
        chats_of = {
            name: TelegramCarrier(
                api=api,
                target=name,
                chat=chat,
                questions=questions,
                reception=reception,
                moves=Moves(target=name, chat=chat, events=store.probes, now=clock.now),
            )
            for name, chat in chats.items()
        }
        targets = [Target(name=name, kind=TargetKind.TELEGRAM) for name in chats]
        outgoing = NoticeSender(
            outbox=store.outbox,
            targets=[*targets, Target(name="mail")],
            carriers={**chats_of, "mail": ToAddress(elsewhere, "mail")},
            wording=wording,
            now=clock.now,
            log=logs.get_logger(),
            look_seconds=0.02,
        )
        chat = Chat(store=store, telegram=telegram, clock=clock, bot=bot, outgoing=outgoing, elsewhere=elsewhere)
        async with anyio.create_task_group() as tasks:
            if run:
                tasks.start_soon(bot.run)
                tasks.start_soon(outgoing.run)
            yield chat
            tasks.cancel_scope.cancel()
        await api.close()
