"""The doctor's look at chats: what the daemon has noted of targets, and what their servers say now.

Nothing is sent, and no update is taken: a poll of the doctor's would end the daemon's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from claudeops.app.notify import bots_of, rooms_of
from claudeops.domain.gate.approval import visible
from claudeops.domain.notices.notice import DEAF, DeliveryOutcome
from claudeops.domain.notices.refusals import RefusalSubject, of_slack, of_telegram, slack_deafness
from claudeops.errors import ClaudeopsError, ConfigurationError
from claudeops.notify.bot_api import BotApi, Came
from claudeops.notify.slack_api import SlackApi
from claudeops.settings import Settings
from claudeops.store.glance import noted_of_targets
from claudeops.text import join_names

_SECONDS: Final = 10.0  # for all chats together
_MOST_CHARACTERS: Final = 300  # of what a server says


class _Webhook(msgspec.Struct):
    url: str = ""


@dataclass(kw_only=True)
class ChatFaults:
    """What is wrong with chats, as sentences with their remedies."""

    certain: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)  # a server that does not answer now, or a chat that has moved


async def chat_faults(settings: Settings) -> ChatFaults:
    """Return what is wrong with the targets of notices, as far as it can be seen without a message."""
    faults = ChatFaults()
    try:
        bots, rooms = bots_of(settings), rooms_of(settings)
    except ConfigurationError as error:  # a proxy that cannot be used
        return ChatFaults(certain=[visible(str(error))])
    with anyio.move_on_after(_SECONDS) as bound:
        async with anyio.create_task_group() as tasks:
            for api, names in bots:
                tasks.start_soon(_look_at_bot, settings, api, names, faults)
            for name, room in rooms.items():
                tasks.start_soon(_look_at_app, settings, name, room.api, faults)
    if bound.cancelled_caught:
        faults.doubtful.append(f"Some chat's server has not answered within {_SECONDS:.0f} s.")
    faults.certain += [each for each in await _noted(settings) if each not in faults.certain]
    faults.certain.sort()
    faults.doubtful.sort()
    return faults


async def _noted(settings: Settings) -> Sequence[str]:
    """Return what the daemon says of targets; nothing where its database does not answer, which another check says."""
    with suppress(ClaudeopsError):
        ask = partial(noted_of_targets, settings.places.database_url)
        noted = await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)
        names = {target.name for target in settings.notices.targets}
        return [_sentence(message) for name, message in noted if name.startswith(DEAF) or _about(name) in names]
    return ()


def _about(fingerprint: str) -> str:
    return fingerprint.partition(":")[2]


def _sentence(message: str) -> str:
    return f"{message[:1].upper()}{visible(message[1:])}" if message.startswith("answers ") else visible(message)


# --- Telegram ---------------------------------------------------------------------------------------------


async def _look_at_bot(settings: Settings, api: BotApi, names: Sequence[str], faults: ChatFaults) -> None:
    """Look at a bot: its token, whether its updates go elsewhere, and whether it is in its chats."""
    listed = join_names(names)
    try:
        reply = await api.call("getMe", {})
        if reply.came is not Came.OK:
            cause = of_telegram(reply.status, reply.description) if reply.came is Came.REFUSED else None
            where = faults.doubtful if cause is None else faults.certain
            where.append(_refused(f"the bot of {listed}", reply.error, "" if cause is None else cause.remedy))
            return
        if any(person.telegram_id for person in settings.notices.approvers):
            reply = await api.call("getWebhookInfo", {})
            if reply.came is Came.OK and _has_webhook(reply.result):
                remedy = "delete it (deleteWebhook of the Bot API), and answer with `claudeops approve N` until then"
                faults.certain.append(_refused(f"the bot of {listed}", "a webhook takes what is pressed there", remedy))
        for name in names:
            await _look_at_chat(api, name, settings.notices.telegram[name].chat, faults)
    finally:
        await api.close()


def _has_webhook(result: bytes) -> bool:
    try:
        return bool(msgspec.json.decode(result, type=_Webhook).url)
    except msgspec.DecodeError:
        return False


async def _look_at_chat(api: BotApi, name: str, chat: str, faults: ChatFaults) -> None:
    reply = await api.call("getChat", {"chat_id": int(chat)})
    if reply.came is not Came.REFUSED or reply.status == 404:  # noqa: PLR2004 - a server of one's own may not know it
        return
    if reply.moved_to is not None:
        faults.doubtful.append(_refused(name, "its group became a supergroup", f'write chat = "{reply.moved_to}"'))
        return
    cause = of_telegram(reply.status, reply.description)
    if cause is not None and cause.refusal is RefusalSubject.TARGET:
        faults.certain.append(_refused(name, reply.error, cause.remedy))


# --- Slack ------------------------------------------------------------------------------------------------


async def _look_at_app(settings: Settings, name: str, bot: SlackApi, faults: ChatFaults) -> None:
    """Look at an app: its bot's token, and whether Slack would open a connection for what is pressed."""
    given = settings.notices.slack[name]
    ear = SlackApi(
        given.api, given.app_token, network={**settings.environment.inherited, **settings.environment.proxies}
    )
    try:
        await _look_at_token(bot, "auth.test", f"the app of {name}", faults, _spoken)
        if given.app_token and any(person.slack_user_id for person in settings.notices.approvers):
            await _look_at_token(
                ear, "apps.connections.open", f"what is pressed in {name} would not arrive", faults, slack_deafness
            )
    finally:
        await bot.close()
        await ear.close()


def _spoken(word: str) -> str:
    cause = of_slack(word)
    return "" if cause is None else cause.remedy


async def _look_at_token(
    api: SlackApi, method: str, what: str, faults: ChatFaults, remedy_of: Callable[[str], str]
) -> None:
    reply = await api.call(method, {})
    if reply.ok:
        return
    remedy = remedy_of(reply.word)
    if remedy:
        faults.certain.append(_refused(what, reply.error, remedy))
    elif not reply.word or reply.result is DeliveryOutcome.UNKNOWN:
        faults.doubtful.append(_refused(what, reply.error, ""))


def _refused(what: str, said: str, remedy: str) -> str:
    shown = visible(" ".join(said.split()))[:_MOST_CHARACTERS]
    return f"{what[:1].upper()}{what[1:]}: {shown}" + (f"; {remedy}." if remedy else ".")
