"""Slack: notices and questions to the channels of apps, what people press there, and what messages show afterwards.

What is pressed comes by two ways, Socket Mode and signed HTTP, and waits in one line, so that it does not matter by
which one, or how often. Whoever brings it waits for nothing that follows. Every call is bounded, and a Slack that hangs
or refuses holds up nothing but itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

import anyio
import msgspec

from claudeops.domain.notices.channels import ChannelAccess, TargetKind
from claudeops.domain.notices.notice import DeliveryOutcome
from claudeops.domain.notices.refusals import of_slack, slack_deafness
from claudeops.errors import StoreError
from claudeops.logs import Logger
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
from claudeops.notify.slack_api import SlackApi, SlackReply
from claudeops.notify.slack_link import SlackLink
from claudeops.wording.notices.approving import ButtonTap, Card, QuestionRow
from claudeops.wording.notices.slack import LIMIT, answered, asking, plain, presses
from claudeops.wording.notices.texts import NoticeMessage

MOST_WAITING: Final = 200
"""Presses that wait to be looked at; more are refused, and Slack says so to whoever pressed."""

AT_ONCE: Final = 8
"""Presses that are looked at together, answers to those who pressed, and edits of one channel."""

_PAUSE_SECONDS: Final = 1.0
_FINAL: Final = frozenset(
    {"message_not_found", "channel_not_found", "cant_update_message", "edit_window_closed", "is_archived"}
    | {"not_in_channel", "invalid_auth", "account_inactive", "token_revoked"}
)
"""Slack's words for an edit that it would refuse again."""


class SlackRoom(msgspec.Struct, frozen=True, kw_only=True):
    """A channel, and the app that is in it."""

    api: SlackApi
    channel: str

    async def call(self, method: str, fields: Mapping[str, Any]) -> SlackReply:
        """Call a method about this channel."""
        return await self.api.call(method, {"channel": self.channel, **fields})


@dataclass(kw_only=True)
class SlackCarrier(ChatCarrier):
    """Brings messages to one channel."""

    kind: ClassVar[TargetKind] = TargetKind.SLACK
    limit: ClassVar[int] = LIMIT
    api: SlackApi

    async def send(
        self, message: NoticeMessage, question: OutgoingQuestion | None, last: str
    ) -> tuple[DeliveryResult, str]:
        """Send a message to the channel."""
        made = plain(f"{message.title}\n{message.body}")
        if question is not None:
            made = asking(question.card, yes=question.buttons.yes, no=question.buttons.no, last=last)
        reply = await self.api.call("chat.postMessage", {"channel": self.chat, **made})
        cause = of_slack(reply.word) if reply.result is DeliveryOutcome.FAILED else None
        result = DeliveryResult(result=reply.result, error=reply.error, wait_seconds=reply.retry_after, cause=cause)
        return result, reply.ts if reply.ok else ""


# --- what is pressed --------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class SlackChat:
    """Takes the presses of all channels, and keeps their messages true, until cancelled."""

    rooms: Mapping[str, SlackRoom]  # by targets
    questions: ChatQuestions
    log: Logger
    look_seconds: float = LOOK_SECONDS
    _waiting: list[ButtonTap] = field(default_factory=list)
    _due: anyio.Event = field(default_factory=anyio.Event)  # something waits
    _responding: int = 0
    _whispers: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(AT_ONCE))

    def __post_init__(self) -> None:
        self.editors = {
            name: ChatEditor(
                targets={name},
                name=f" in {name}",
                questions=self.questions,
                edit=self._edit,
                method="chat.update",
                limit=LIMIT,
                at_once=AT_ONCE,
                log=self.log,
                look_seconds=self.look_seconds,
            )
            for name in self.rooms
        }

    async def run(self) -> None:
        """Take presses and edit; a fault of ours here ends no session."""
        try:
            async with anyio.create_task_group() as tasks:
                for work in [self._take_presses] * AT_ONCE + [editor.run for editor in self.editors.values()]:
                    tasks.start_soon(partial(keep_going, work, self.log, pause_seconds=_PAUSE_SECONDS))
        finally:
            for room in self.rooms.values():
                await room.api.close()

    def take(self, payload: bytes, targets: frozenset[str]) -> bool:
        """Take what Slack sends; ``False``: too much waits. ``targets``: those for which it was proven to be Slack."""
        taps = [
            ButtonTap(
                kind=TargetKind.SLACK,
                sender=press.user,
                chat=press.channel,
                message=press.ts,
                data=press.value,
                targets=targets & self.rooms.keys(),
            )
            for press in presses(payload)
        ]
        if len(self._waiting) + len(taps) > MOST_WAITING:
            return False
        self._waiting += taps
        self._due.set()
        return True

    async def pressed(self, targets: frozenset[str], payload: bytes) -> None:
        """Take what came by Socket Mode, once there is room: until then its sender passes on nothing else."""
        while not self.take(payload, targets):  # noqa: ASYNC110 - whoever makes room sets no event
            await anyio.sleep(_PAUSE_SECONDS)

    async def _take_presses(self) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                while not self._waiting:
                    if self._due.is_set():
                        self._due = anyio.Event()
                    await self._due.wait()
                tap = self._waiting.pop(0)
                result = await self.questions.take(tap)
                for editor in self.editors.values():
                    editor.answered()
                if self._responding < MOST_WAITING:
                    tasks.start_soon(self._respond, tap, result)  # it waits for Slack, and the next press does not

    async def _respond(self, tap: ButtonTap, result: TapResult) -> None:
        self._responding += 1
        try:
            await self._show(tap, result)
        finally:
            self._responding -= 1

    async def _show(self, tap: ButtonTap, result: TapResult) -> None:
        """Show that a yes was counted, and to the person who pressed what no message shows."""
        if result.counted and result.approval is not None:
            with suppress(StoreError):
                await self._show_count(result.approval.id, result.counted)
        room = next((self.rooms[name] for name in sorted(tap.targets) if self.rooms[name].channel == tap.chat), None)
        if room is not None and (result.refused is not None or result.counted):  # the changed message shows the rest
            async with self._whispers:
                await room.call("chat.postEphemeral", {"user": tap.sender, **plain(result.text)})

    async def _show_count(self, approval_id: int, name: str) -> None:
        async with anyio.create_task_group() as tasks:
            for row in await self.questions.rows.asking(approval_id, self.rooms.keys()):
                tasks.start_soon(self.editors[row.target].show_count, row, name)

    async def _edit(self, row: QuestionRow, card: Card, last: str, buttons: Buttons | None) -> EditResult:
        made = asking(card, yes=buttons.yes, no=buttons.no, last=last) if buttons else answered(card, last)
        message = {"channel": row.chat, "ts": row.external_id or ""}
        reply = await self.rooms[row.target].api.call("chat.update", {**message, **made})
        return EditResult(
            is_done=reply.ok,
            is_final=reply.word in _FINAL,
            error=reply.error,
            wait_seconds=reply.retry_after or 0.0,
        )


def presses_of(chat: SlackChat, targets: frozenset[str]) -> Callable[[bytes], Awaitable[None]]:
    """Return what takes the presses of one app, in whose channels alone they can have happened."""
    return partial(chat.pressed, targets)


# --- the channel ------------------------------------------------------------------------------------------


class SlackChannel(NoticeChannel):
    """Channels of Slack's apps."""

    def connect(self, targets: Targets, context: ChannelContext) -> ConnectedTargets:
        """Connect channels, and listen to the presses in them."""
        rooms = {name: _room(access, self.network) for name, access in targets.items()}
        chat: SlackChat | None = None
        links: Sequence[SlackLink] = ()
        if context.questions is not None:
            chat = SlackChat(rooms=rooms, questions=context.questions, log=context.log)
            links = self._links(targets, chat, context)
        receptions = [link.reception for link in links if link.reception is not None]
        known = {name: reception for reception in receptions for name in reception.targets}
        carriers = {
            name: SlackCarrier(
                api=room.api,
                target=name,
                chat=room.channel,
                questions=context.questions,
                reception=known.get(name),
            )
            for name, room in rooms.items()
        }
        return ConnectedTargets(
            carriers=carriers,
            tasks=[*([chat.run] if chat else []), *(link.run for link in links)],
            events=[reception.fingerprint for reception in receptions],
            take=None if chat is None else chat.take,
        )

    def _links(self, targets: Targets, chat: SlackChat, context: ChannelContext) -> Sequence[SlackLink]:
        """Return a link for every app that speaks Socket Mode: two of one app would each get a part of the presses."""
        found: dict[tuple[str, str], set[str]] = {}
        for name, access in targets.items():
            token = access.secrets.get("app_token", "")
            if token and any(TargetKind.SLACK in person.ids for person in chat.questions.approvers):
                found.setdefault((access.api, token), set()).add(name)
        return [
            SlackLink(
                app_token=token,
                api=api,
                environment=self.network,
                pressed=presses_of(chat, frozenset(names)),
                log=context.log,
                reception=context.reception(sorted(names)),
            )
            for (api, token), names in found.items()
        ]

    async def try_target(self, target: str, access: ChannelAccess, message: NoticeMessage) -> DeliveryResult:
        """Send one message, and see whether Slack would open a connection for what is pressed there."""
        room, socket = _room(access, self.network), _socket(access, self.network)
        carrier = SlackCarrier(api=room.api, target=target, chat=room.channel, questions=None)
        try:
            result = await deliver_one(carrier, message)
            if result.result is DeliveryOutcome.DELIVERED and "app_token" in access.secrets:
                opened = await socket.call("apps.connections.open", {})
                if not opened.ok:
                    error = (
                        f"the message arrived, but what is pressed would not be heard by Socket Mode: {opened.error}"
                    )
                    return DeliveryResult(result=DeliveryOutcome.FAILED, error=error)
            return result
        finally:
            await room.api.close()
            await socket.close()

    async def check(self, targets: Targets, faults: ChannelFaults, *, has_approvers: bool) -> None:
        """Look at each app: its bot's token, and whether Slack would open a connection for what is pressed."""
        async with anyio.create_task_group() as tasks:
            for name, access in targets.items():
                tasks.start_soon(_check_app, name, access, self.network, faults, has_approvers)


def _room(access: ChannelAccess, network: Mapping[str, str]) -> SlackRoom:
    return SlackRoom(api=SlackApi(access.api, access.secrets["bot_token"], network=network), channel=access.place)


def _socket(access: ChannelAccess, network: Mapping[str, str]) -> SlackApi:
    return SlackApi(access.api, access.secrets.get("app_token", ""), network=network)


async def _check_app(
    name: str,
    access: ChannelAccess,
    network: Mapping[str, str],
    faults: ChannelFaults,
    has_approvers: bool,  # noqa: FBT001 - of a task
) -> None:
    bot, socket = _room(access, network).api, _socket(access, network)
    try:
        await _check_token(bot, "auth.test", f"the app of {name}", faults, _remedy)
        if "app_token" in access.secrets and has_approvers:
            lost = f"what is pressed in {name} would not arrive"
            await _check_token(socket, "apps.connections.open", lost, faults, slack_deafness)
    finally:
        await bot.close()
        await socket.close()


def _remedy(word: str) -> str:
    cause = of_slack(word)
    return "" if cause is None else cause.remedy


async def _check_token(
    api: SlackApi, method: str, what: str, faults: ChannelFaults, remedy_of: Callable[[str], str]
) -> None:
    reply = await api.call(method, {})
    remedy = remedy_of(reply.word)
    if not reply.ok and (remedy or not reply.word or reply.result is DeliveryOutcome.UNKNOWN):
        faults.add(what, reply.error, remedy, is_certain=bool(remedy))


CHANNEL: Final = SlackChannel
