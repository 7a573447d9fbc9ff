"""Channels of a scripted Slack, with the parts of the daemon that speak to it, and people who press."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio

from claudeops import logs
from claudeops.domain.gate.approval import Approval
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.channels import TargetKind
from claudeops.domain.notices.notice import Target
from claudeops.notify.channels.slack import SlackCarrier, SlackChat, SlackRoom, presses_of
from claudeops.notify.questions import ChatQuestions
from claudeops.notify.reception import AnswerReception
from claudeops.notify.sender import NoticeSender
from claudeops.notify.slack_api import SlackApi
from claudeops.notify.slack_link import SlackLink
from claudeops.store.store import Store
from claudeops.wording.notices.texts import Wording
from support.carrying import ToAddress
from support.chatting import KEY, SECRET, Clock, Elsewhere
from support.slack import APP_TOKEN, BOT_TOKEN, CHANNEL, Posted, SlackServer, slack
from support.waiting import PATIENCE_SECONDS

ALICE: Final = "U0000ALICE"
BOB: Final = "U0000BOB"
STRANGER: Final = "U0STRANGER"
PEOPLE: Final = (
    Approver(name="alice", ids={TargetKind.SLACK: ALICE}),
    Approver(name="bob", ids={TargetKind.SLACK: BOB}),
)
OTHER_CHANNEL: Final = "C0000BOSS"
OPS: Final = ("ops", CHANNEL)
BOSS: Final = ("boss", OTHER_CHANNEL)


@dataclass
class Slacking:
    """Everything at once."""

    store: Store
    server: SlackServer
    clock: Clock
    chat: SlackChat
    link: SlackLink
    outgoing: NoticeSender
    elsewhere: Elsewhere

    @property
    def messages(self) -> list[Posted]:
        return self.server.messages

    async def until(self, condition: Callable[[], object], *, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until something holds."""
        with anyio.fail_after(seconds):
            while not condition():  # noqa: ASYNC110 - the server's threads set no event of ours
                await anyio.sleep(0.01)

    def about(self, approval: Approval, channel: str = CHANNEL) -> list[Posted]:
        """Return the messages of a channel about a question."""
        named = f"Approval {approval.id}"
        return [each for each in self.messages if each.channel == channel and named in each.all_text]

    async def asked(self, approval: Approval, channel: str = CHANNEL) -> Posted:
        """Return the message that asks, once it is known by its name."""

        async def is_named() -> bool:
            found = await self.store.questions.asking(approval.id, {"ops", "boss"})
            return any(each.chat == channel for each in found)

        with anyio.fail_after(PATIENCE_SECONDS):
            while not self.about(approval, channel) or not await is_named():  # noqa: ASYNC110 - as below
                await anyio.sleep(0.01)
        return self.about(approval, channel)[0]

    def press(
        self,
        message: Posted,
        said: str,
        *,
        user: str,
        value: str = "",
        channel: str = "",
        targets: Sequence[str] = ("ops", "boss"),
    ) -> None:
        """Press a button, as it comes by HTTP."""
        worth = value or message.buttons[said]["value"]
        payload = self.server.pressed(message, worth, user=user, channel=channel)
        assert self.chat.take(json.dumps(payload).encode(), frozenset(targets))

    async def whispered(self, user: str, count: int = 1) -> str:
        """Return what one person alone was told, last."""
        await self.until(lambda: len(self._whispers(user)) >= count)
        return self._whispers(user)[-1]

    def _whispers(self, user: str) -> list[str]:
        return [str(said["text"]) for said in self.server.ephemeral if said["user"] == user]

    async def approval(self, approval: Approval) -> Approval:
        found = await self.store.approvals.approval(approval.id)
        assert found is not None
        return found

    async def settled(self) -> None:
        """Return once everything that was pressed has been looked at and answered."""
        marker = len(self._whispers("U0MARKER"))
        self.press(Posted(channel=CHANNEL, ts="0", fields={}), "", user="U0MARKER", value="approve:nothing")
        await self.until(lambda: len(self._whispers("U0MARKER")) > marker)


@asynccontextmanager
async def slacking(
    store: Store,
    *,
    approvers: Sequence[Approver] = PEOPLE,
    rooms: Sequence[tuple[str, str]] = (OPS,),
    seconds: float = 8,
    listens: bool = False,
    second: SlackServer | None = None,
) -> AsyncIterator[Slacking]:
    """Run Slack's channels and the outbox until the block is left; the room ``boss`` may be at a second server."""
    clock = Clock()
    wording = Wording(redact=lambda text: text.replace(SECRET, "[redacted]"), public_url="https://ops.example")
    with slack(channels=(CHANNEL, OTHER_CHANNEL)) as server:
        questions = ChatQuestions(
            rows=store.questions,
            approvals=store.approvals,
            key=KEY,
            approvers=approvers,
            wording=wording,
            now=clock.now,
            log=logs.get_logger(),
        )
        places = {
            name: SlackRoom(
                api=SlackApi(
                    second.api if second is not None and name == "boss" else server.api,
                    BOT_TOKEN,
                    network={},
                    seconds=seconds,
                ),
                channel=channel,
            )
            for name, channel in rooms
        }
        chat = SlackChat(rooms=places, questions=questions, log=logs.get_logger(), look_seconds=0.02)
        link = SlackLink(
            app_token=APP_TOKEN,
            api=server.api,
            environment={},
            pressed=presses_of(chat, frozenset(places)),
            log=logs.get_logger(),
            waits=(0.05,),
            reception=AnswerReception(targets=places.keys(), events=store.probes, redact=wording.redact, now=clock.now),
        )
        elsewhere = Elsewhere()
        outgoing = NoticeSender(
            outbox=store.outbox,
            targets=[*(Target(name=name, kind=TargetKind.SLACK) for name in places), Target(name="mail")],
            carriers={
                **{
                    name: SlackCarrier(
                        api=room.api, chat=room.channel, target=name, questions=questions, reception=link.reception
                    )
                    for name, room in places.items()
                },
                "mail": ToAddress(elsewhere, "mail"),
            },
            wording=wording,
            now=clock.now,
            log=logs.get_logger(),
            look_seconds=0.02,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chat.run)
            tasks.start_soon(outgoing.run)
            if listens:
                tasks.start_soon(link.run)
            yield Slacking(
                store=store,
                server=server,
                clock=clock,
                chat=chat,
                link=link,
                outgoing=outgoing,
                elsewhere=elsewhere,
            )
            tasks.cancel_scope.cancel()
