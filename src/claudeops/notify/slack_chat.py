"""Slack: notices and questions to the channels of apps, what people press there, and what messages show afterwards.

What is pressed comes by two ways, Socket Mode and signed HTTP, and waits in one line, so that it does not matter by
which one, or how often. Whoever brings it waits for nothing that follows. Every call is bounded, and a Slack that hangs
or refuses holds up nothing but itself.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio

from claudeops.domain.notices.notice import DeliveryOutcome, TargetKind
from claudeops.domain.notices.refusals import of_slack
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.notify.asking import Asking, OutgoingQuestion, Taken, status_of
from claudeops.notify.delivery import DEADLINE_SECONDS, Streak, Told
from claudeops.notify.hearing import Hearing, by_command
from claudeops.notify.slack_api import SlackApi, SlackReply
from claudeops.tasks import DatabaseTrouble
from claudeops.wording.notices.approving import ButtonTap, QuestionRow, Unedited, counted
from claudeops.wording.notices.slack import LIMIT, answered, asking, plain, presses
from claudeops.wording.notices.texts import NoticeMessage

MOST_WAITING: Final = 200
"""Presses that wait to be looked at; more are refused, and Slack says so to whoever pressed."""

AT_ONCE: Final = 8
"""Presses that are looked at together, answers to those who pressed, and edits of one channel."""

LOOK_SECONDS: Final = 1.0
"""Between two looks for messages that do not show how their question ended."""

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
_SENT_TRIES: Final = 3
_NO_END: Final = "the time ran out"
_FINAL: Final = frozenset(
    {"message_not_found", "channel_not_found", "cant_update_message", "edit_window_closed", "is_archived"}
    | {"not_in_channel", "invalid_auth", "account_inactive", "token_revoked"}
)
"""What Slack says of an edit that it would refuse again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlackRoom:
    """A channel, and the app that is in it."""

    api: SlackApi
    channel: str

    async def call(self, method: str, fields: Mapping[str, Any]) -> SlackReply:
        """Call a method about this channel."""
        return await self.api.call(method, {"channel": self.channel, **fields})


@dataclass(kw_only=True)
class SlackCarrier:
    """Brings messages to one channel; a question becomes a card."""

    room: SlackRoom
    target: str
    asking: Asking | None  # None: questions are told like everything else
    deadline_seconds: float = DEADLINE_SECONDS
    hearing: Hearing | None = None  # None: nothing is known of whether answers arrive

    async def deliver(self, address: str, messages: Sequence[NoticeMessage], told: dict[int, Told]) -> None:  # noqa: ARG002 - the channel is known
        """Deliver messages; ``told`` gets what came of each, by its place, as soon as it is known."""
        streak = Streak()
        with anyio.move_on_after(self.deadline_seconds):
            for index, message in enumerate(messages):
                if await self._deliver(message, index, told) and streak.ends_with(told[index]):
                    return

    async def _deliver(self, message: NoticeMessage, index: int, told: dict[int, Told]) -> bool:
        """Deliver one message; ``False``: it was not tried, because its question waits no more."""
        question, made = None, plain(f"{message.title}\n{message.body}")
        if self.asking is not None and message.approval_id is not None:
            question = await self.asking.ask(
                message.approval_id,
                kind=TargetKind.SLACK,
                target=self.target,
                chat=self.room.channel,
                limit=LIMIT,
                again=message.reminds,
            )
            if question is None:
                return False
            is_deaf = self.hearing is not None and self.hearing.is_deaf
            made = _card_of(question, by_command(message.approval_id) if is_deaf else "")
        told[index] = Told(result=DeliveryOutcome.UNKNOWN, error=_NO_END)  # until it says more
        reply = await self.room.call("chat.postMessage", made)
        told[index] = told_of(reply)
        if question is not None and self.asking is not None and reply.ok:
            await _name(self.asking, question, reply)
        return True


def told_of(reply: SlackReply) -> Told:
    """Return what came of a message, as the outbox takes it."""
    cause = of_slack(reply.word) if reply.result is DeliveryOutcome.FAILED else None
    return Told(result=reply.result, error=reply.error, wait_seconds=reply.retry_after, cause=cause)


async def _name(asking: Asking, question: OutgoingQuestion, reply: SlackReply) -> None:
    """Write what the message is called, without which nobody can edit it."""
    for _ in range(_SENT_TRIES):
        try:
            await asking.questions.sent(question.message_id, reply.ts)
        except StoreError:
            await anyio.sleep(_FIRST_PAUSE_SECONDS)
        else:
            return


def _card_of(question: OutgoingQuestion, last: str = "") -> dict[str, Any]:
    return asking(question.card, yes=question.buttons.yes, no=question.buttons.no, last=last)


# --- what is pressed --------------------------------------------------------------------------------------


@dataclass(kw_only=True, slots=True)
class _Edits:
    """How the edits in one channel have fared lately."""

    turn: anyio.Lock = field(default_factory=anyio.Lock)  # no count is shown after an outcome
    changed: anyio.Event = field(default_factory=anyio.Event)  # something was answered
    pause: float = 0.0  # seconds after the last failure; 0: there was none
    left_until: float = -math.inf  # by the event loop's clock

    def failed(self, reply: SlackReply) -> None:
        """Leave the channel alone for a while."""
        self.pause = min(self.pause * 2 or _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self.left_until = anyio.current_time() + max(self.pause, reply.retry_after or 0.0)


@dataclass(kw_only=True)
class SlackChat:
    """Hears what is pressed in all channels, and keeps their messages true, until cancelled."""

    rooms: Mapping[str, SlackRoom]  # by targets
    asking: Asking
    log: Logger
    look_seconds: float = LOOK_SECONDS
    _waiting: list[ButtonTap] = field(default_factory=list)
    _due: anyio.Event = field(default_factory=anyio.Event)  # something waits
    _responding: int = 0
    _whispers: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(AT_ONCE))
    _edits: dict[str, _Edits] = field(init=False)  # by targets

    def __post_init__(self) -> None:
        self._edits = {name: _Edits() for name in self.rooms}

    async def run(self) -> None:
        """Hear and edit; a fault of ours here ends no session."""
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(AT_ONCE):
                    tasks.start_soon(self._kept_going, self._hear)
                for name in self.rooms:
                    tasks.start_soon(self._kept_going, partial(self._keep, name))
        finally:
            for room in self.rooms.values():
                await room.api.close()

    async def _kept_going(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - see `run`
                self.log.error(LogEvent.CHAT_CRASHED, error=type(error).__name__)
            await anyio.sleep(_FIRST_PAUSE_SECONDS)

    def take(self, payload: bytes, targets: frozenset[str]) -> bool:
        """Take what Slack says; ``False``: too much waits. ``targets``: those for which it was proven to be Slack."""
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

    async def heard(self, targets: frozenset[str], payload: bytes) -> None:
        """Take what came by Socket Mode, once there is room: until then its sender says it to nobody else."""
        while not self.take(payload, targets):  # noqa: ASYNC110 - whoever makes room sets no event
            await anyio.sleep(_FIRST_PAUSE_SECONDS)

    async def _hear(self) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                while not self._waiting:
                    if self._due.is_set():
                        self._due = anyio.Event()
                    await self._due.wait()
                tap = self._waiting.pop(0)
                taken = await self.asking.take(tap)
                for edits in self._edits.values():
                    edits.changed.set()
                if self._responding < MOST_WAITING:
                    tasks.start_soon(self._respond, tap, taken)  # it waits for Slack, and the next press does not

    async def _respond(self, tap: ButtonTap, taken: Taken) -> None:
        self._responding += 1
        try:
            await self._tell(tap, taken)
        finally:
            self._responding -= 1

    async def _tell(self, tap: ButtonTap, taken: Taken) -> None:
        """Show that a yes was counted, and tell whoever pressed what no message shows."""
        if taken.counted and taken.approval is not None:
            with suppress(StoreError):
                await self._show_count(taken.approval.id, taken.counted)
        room = next((self.rooms[name] for name in sorted(tap.targets) if self.rooms[name].channel == tap.chat), None)
        if room is not None and (taken.refused is not None or taken.counted):  # a message that changes says the rest
            async with self._whispers:
                await room.call("chat.postEphemeral", {"user": tap.sender, **plain(taken.text)})

    async def _show_count(self, approval_id: int, name: str) -> None:
        """Let every message of a question say who has said yes; its buttons count also where that is refused."""
        messages = await self.asking.questions.asking(approval_id, self.rooms.keys())
        async with anyio.create_task_group() as tasks:
            for asked in messages:
                tasks.start_soon(self._show_count_in, asked, name)

    async def _show_count_in(self, asked: QuestionRow, name: str) -> None:
        async with self._edits[asked.target].turn:
            with suppress(StoreError):
                if (question := await self.asking.asked_still(asked, limit=LIMIT)) is not None:
                    await self._edit(asked, _card_of(question, counted(name)))

    # --- what messages show -------------------------------------------------------------------------------

    async def _keep(self, target: str) -> None:
        database, edits = DatabaseTrouble(self.log, f"messages about approvals in {target}"), self._edits[target]
        while True:
            wait = self.look_seconds
            try:
                wait = max(wait, await self.edit_once(target))
                database.over()
            except StoreError as error:
                wait = max(wait, database.failed(error))
            with anyio.move_on_after(wait):
                await edits.changed.wait()
            edits.changed = anyio.Event()

    async def edit_once(self, target: str) -> float:
        """Edit the messages of a channel that do not show how their question ended; return for how long it is left."""
        edits = self._edits[target]
        left = edits.left_until - anyio.current_time()
        if left > 0:  # an answer wakes us, but does not make Slack take more
            return left
        found = await self.asking.questions.unedited({target}, now=self.asking.now())
        limiter = anyio.CapacityLimiter(AT_ONCE)

        async def edit(unedited: Unedited) -> None:
            async with limiter:
                if edits.left_until <= anyio.current_time():
                    await self._end(unedited, edits)

        async with edits.turn, anyio.create_task_group() as tasks:
            for unedited in found:
                tasks.start_soon(edit, unedited)
        return max(edits.left_until - anyio.current_time(), 0.0)

    async def _end(self, unedited: Unedited, edits: _Edits) -> None:
        """Show how a question ended."""
        asked, approval = unedited.asked, unedited.approval
        card, last = self.asking.ended(approval, limit=LIMIT)
        reply = await self._edit(asked, answered(card, last))
        if not reply.ok:
            if reply.word not in _FINAL:
                if not edits.pause:
                    self.log.warning(LogEvent.CHAT_UNREACHABLE, what="chat.update", error=reply.error)
                edits.failed(reply)
                return
            facts = {"approval_id": approval.id, "target": asked.target, "error": reply.error}
            self.log.warning(LogEvent.CHAT_MESSAGE_STALE, **facts)
        elif edits.pause:
            edits.pause = 0.0
            self.log.info(LogEvent.CHAT_REACHABLE, what="chat.update")
        with suppress(StoreError):  # the next look edits it once more
            await self.asking.questions.edited(asked.id, status_of(approval), now=self.asking.now())

    async def _edit(self, asked: QuestionRow, made: Mapping[str, Any]) -> SlackReply:
        room = self.rooms[asked.target]
        return await room.api.call("chat.update", {"channel": asked.chat, "ts": asked.external_id or "", **made})


def heard_by(chat: SlackChat, targets: frozenset[str]) -> Callable[[bytes], Awaitable[None]]:
    """Return what takes the presses of one app, in whose channels alone they can have happened."""
    return partial(chat.heard, targets)
