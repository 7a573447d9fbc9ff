"""The chat of a rehearsal: a scripted Telegram, and people who tap as the scenario says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from claudeops.rehearsal.scenario import Chat
from claudeops.scripted_api.telegram import BotMessage, ScriptedTelegram, serve_telegram

TARGET: Final = "chat"
ROOM: Final = -1001
TOKEN: Final = "1234567:rehearsal-token-that-opens-nothing"  # noqa: S105 - the scripted server's
_FIRST_PERSON: Final = 101
_STRANGERS: Final = 900


@dataclass(kw_only=True)
class PlayedChat:
    """A chat while a rehearsal runs, and what came of it."""

    chat: Chat
    telegram: ScriptedTelegram
    answers: list[str] = field(default_factory=list)  # what whoever tapped was told, each after a name

    @property
    def url(self) -> str:
        """Where the Bot API answers."""
        return self.telegram.url

    @property
    def people(self) -> dict[str, int]:
        """The approvers by name, with their ids."""
        return {name: _FIRST_PERSON + index for index, name in enumerate(self.chat.approvers)}

    @property
    def texts(self) -> Sequence[str]:
        """What the messages show now."""
        return [message.text for message in self.telegram.messages]

    @property
    def is_asking(self) -> bool:
        """Whether a message still has buttons."""
        return any(message.buttons for message in self.telegram.messages)

    async def play(self) -> None:
        """Tap on the first message that asks, each time after the tap before was answered."""
        await self.telegram.wait_for(lambda telegram: any(message.buttons for message in telegram.messages))
        message = next(message for message in self.telegram.messages if message.buttons)
        held = dict(message.buttons)  # somebody who taps late still sees them
        for tap in self.chat.taps:
            if (data := held.get(tap.button)) is not None:
                await self._tap(message, data, tap.by)

    async def _tap(self, message: BotMessage, data: str, name: str) -> None:
        query = self.telegram.forge(message, data, sender=self.people.get(name, _STRANGERS))
        await self.telegram.wait_for(lambda telegram: query in telegram.answers)
        self.answers.append(f"{name}: {self.telegram.answers[query]}")


@asynccontextmanager
async def playing(chat: Chat | None) -> AsyncIterator[PlayedChat | None]:
    """Serve the chat of a scenario, if it has one, until the block is left."""
    if chat is None:
        yield None
        return
    async with serve_telegram(token=TOKEN, chats=(ROOM,)) as telegram:
        yield PlayedChat(chat=chat, telegram=telegram)
