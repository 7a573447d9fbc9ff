"""Notices and questions, wired from the settings: what empties the outbox, the bots, and one message past all that.

Part of the composition root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from types import MappingProxyType

import anyio

from claudeops.app.node import Node
from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import (
    ADDRESS,
    DEAD,
    MOVED,
    PICKY,
    REFUSED,
    DeliveryOutcome,
    Notice,
    Target,
    TargetKind,
    Topic,
)
from claudeops.domain.schedules import Cron
from claudeops.engine.operator_file import OperatorFile
from claudeops.logs import LogEvent
from claudeops.notify.addresses import AddressCheck
from claudeops.notify.asking import Asking
from claudeops.notify.bot_api import BotApi
from claudeops.notify.delivery import Courier, Told
from claudeops.notify.digest import DigestKeeper
from claudeops.notify.hearing import Hearing
from claudeops.notify.outgoing import Carrier, Outgoing, try_address
from claudeops.notify.slack_api import SlackApi
from claudeops.notify.slack_chat import SlackCarrier, SlackChat, SlackRoom, heard_by
from claudeops.notify.slack_link import SlackLink
from claudeops.notify.telegram import SETTLE_SECONDS, Moves, TelegramBot, TelegramCarrier
from claudeops.settings import Settings
from claudeops.settings.notify import Targets, read_notify_again
from claudeops.text import clip
from claudeops.text.redact import Redactor
from claudeops.wording.notices.texts import Wording


@dataclass(frozen=True, kw_only=True, slots=True)
class People:
    """Everything that tells and asks people while the daemon runs."""

    outgoing: Outgoing
    bots: Sequence[TelegramBot]
    slack: SlackChat | None  # None: there is none
    links: Sequence[SlackLink]  # to Slack, by Socket Mode
    digest: DigestKeeper | None
    addresses: AddressCheck

    async def run(self) -> None:
        """Deliver what is in the outbox, hear answers and tell the daily sum, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.outgoing.run)
            tasks.start_soon(self.addresses.run)
            for bot in self.bots:
                tasks.start_soon(bot.run)
            if self.slack is not None:
                tasks.start_soon(self.slack.run)
            for link in self.links:
                tasks.start_soon(link.run)
            if self.digest is not None:
                tasks.start_soon(self.digest.run)


@dataclass(kw_only=True)
class PeopleKeeper:
    """Tells and asks people as the operator's file says now: after an edit, everything begins anew with its targets."""

    node: Node
    file: OperatorFile[Targets]
    people: People

    @property
    def oldest(self) -> datetime | None:
        """Since when the notice waits that should have been told first, as last seen; ``None``: none waits."""
        return self.people.outgoing.oldest

    def is_late(self) -> str:
        """Return why people are not told, as one sentence; empty: they are."""
        return self.people.outgoing.is_late()

    def take(self, payload: bytes, targets: frozenset[str]) -> bool:
        """Take what is pressed in Slack; ``False``: too much waits, or Slack is no target any more."""
        return self.people.slack is not None and self.people.slack.take(payload, targets)

    async def run(self) -> None:
        """Tell and ask until cancelled. What is being sent at the moment of an edit is sent again, and says so."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.file.run)
            while True:
                async with anyio.create_task_group() as now:
                    now.start_soon(self.people.run)
                    await self.file.change()
                    now.cancel_scope.cancel()
                self.people = people_of(_telling(self.node, self.file.value), checked=self.people.addresses.checked)
                names = [target.name for target in self.file.value.targets]
                self.node.log.info(LogEvent.TARGETS_CHANGED, targets=names)


def people_keeper(node: Node) -> PeopleKeeper:
    """Return what tells and asks people. Raises `ConfigurationError` for a proxy that cannot be used."""
    settings = node.settings
    before = Targets(
        path=settings.notices.path,
        targets=settings.notices.targets,
        addresses=settings.notices.addresses,
        telegram=settings.notices.telegram,
        slack=settings.notices.slack,
        approvers=settings.notices.approvers,
        files=(),
        environment=settings.notices.env,
    )
    file = OperatorFile(
        path=settings.notices.path,
        value=before,
        read=partial(read_notify_again, before=before, timezone=settings.schedule.timezone),
        name="targets",
        refused=LogEvent.TARGETS_REFUSED,
        events=node.store.probes,
        clock=node.clock,
        log=node.log,
        beside=lambda targets: targets.files[1:],
    )
    return PeopleKeeper(node=node, file=file, people=people_of(node))


def _telling(node: Node, found: Targets) -> Node:
    """Return a node that tells and asks whom a file names."""
    notices = replace(
        node.settings.notices,
        targets=found.targets,
        addresses=found.addresses,
        telegram=found.telegram,
        slack=found.slack,
        approvers=found.approvers,
    )
    return replace(node, settings=replace(node.settings, notices=notices))


def people_of(node: Node, *, checked: Mapping[str, str] = MappingProxyType({})) -> People:
    """Return what tells and asks people. Raises `ConfigurationError` for a proxy that cannot be used.

    ``checked`` are the addresses that Apprise was given to check before, by their targets.
    """
    settings, asking = node.settings, asking_of(node)
    carriers: dict[str, Carrier] = {}
    bots: list[TelegramBot] = []
    for api, names in bots_of(settings):
        chats = {name: settings.notices.telegram[name].chat for name in names}
        hearing = _hearing(node, names, settle_seconds=SETTLE_SECONDS)
        for name, chat in chats.items():
            moves = Moves(target=name, chat=chat, events=node.store.probes, now=node.clock.now)
            carriers[name] = TelegramCarrier(
                api=api, target=name, chat=chat, asking=asking, hearing=hearing, moves=moves
            )
        if asking is not None:
            bots.append(TelegramBot(api=api, chats=chats, asking=asking, log=node.log, hearing=hearing))
    rooms = rooms_of(settings)
    slack = None if asking is None or not rooms else SlackChat(rooms=rooms, asking=asking, log=node.log)
    links = () if slack is None else links_of(node, slack)
    heard = {name: link.hearing for link in links if link.hearing is not None for name in link.hearing.targets}
    for name, room in rooms.items():
        carriers[name] = SlackCarrier(room=room, target=name, asking=asking, hearing=heard.get(name))
    listening = [*(bot.hearing for bot in bots if bot.is_polled), *(link.hearing for link in links)]
    return People(
        outgoing=outgoing(node, carriers, [hearing.fingerprint for hearing in listening if hearing is not None]),
        bots=bots,
        slack=slack,
        links=links,
        digest=digest_keeper(node),
        addresses=AddressCheck(
            courier=courier(settings),
            addresses={name: settings.notices.addresses[name] for name in sorted(settings.notices.addresses)},
            events=node.store.probes,
            redact=node.context.redactor.text,
            now=node.clock.now,
            log=node.log,
            checked=checked,
        ),
    )


def _hearing(node: Node, names: Sequence[str], *, settle_seconds: float = 0.0) -> Hearing:
    """Return what knows whether the answers in some chats arrive."""
    return Hearing(
        targets=names,
        events=node.store.probes,
        redact=node.context.redactor.text,
        now=node.clock.now,
        settle_seconds=settle_seconds,
    )


def rooms_of(settings: Settings) -> Mapping[str, SlackRoom]:
    """Return the channels in Slack, by targets."""
    network = {**settings.environment.inherited, **settings.environment.proxies}
    return {
        name: SlackRoom(api=SlackApi(given.api, given.bot_token, network=network), channel=given.channel)
        for name, given in settings.notices.slack.items()
    }


def links_of(node: Node, slack: SlackChat) -> Sequence[SlackLink]:
    """Return a link for every app that speaks Socket Mode: two of one app would each hear a part of it."""
    settings = node.settings
    found: dict[tuple[str, str], set[str]] = {}
    for name, given in settings.notices.slack.items():
        if given.app_token and any(person.slack_user_id for person in settings.notices.approvers):
            found.setdefault((given.api, given.app_token), set()).add(name)
    return [
        SlackLink(
            app_token=token,
            api=api,
            environment={**settings.environment.inherited, **settings.environment.proxies},
            pressed=heard_by(slack, frozenset(names)),
            log=node.log,
            hearing=_hearing(node, sorted(names)),
        )
        for (api, token), names in found.items()
    ]


def asking_of(node: Node) -> Asking | None:
    """Return what asks people in chats; ``None`` without a key, because then no answer can be proved."""
    key = node.context.approvals.approval_key
    if key is None:
        return None
    return Asking(
        questions=node.store.questions,
        approvals=node.store.approvals,
        key=key,
        approvers=node.settings.notices.approvers,
        wording=_wording(node.settings, node.context.redactor),
        now=node.clock.now,
        log=node.log,
    )


def bots_of(settings: Settings) -> Sequence[tuple[BotApi, Sequence[str]]]:
    """Return every bot once, with its targets: a bot can be polled by one only."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, chat in settings.notices.telegram.items():
        found.setdefault((chat.api, chat.token), []).append(name)
    network = {**settings.environment.inherited, **settings.environment.proxies}
    return [(BotApi(api, token, network=network), names) for (api, token), names in found.items()]


def outgoing(node: Node, chats: Mapping[str, Carrier], hearing: Sequence[str] = ()) -> Outgoing:
    """Return what tells people what the daemon has decided; ``hearing``: events that chats keep about answers."""
    settings = node.settings
    about = [
        f"{kind}{target.name}" for target in settings.notices.targets for kind in (DEAD, PICKY, REFUSED, MOVED, ADDRESS)
    ]
    return Outgoing(
        outbox=node.store.outbox,
        targets=settings.notices.targets,
        addresses=settings.notices.addresses,
        carrier=courier(settings),
        chats=chats,
        wording=_wording(settings, node.context.redactor),
        now=node.clock.now,
        log=node.log,
        standing=frozenset(map(clip, (*about, *hearing))),
        counted=node.metrics.message_sent,
    )


def digest_keeper(node: Node) -> DigestKeeper | None:
    """Return what tells the daily sum; ``None``: nobody wants one."""
    settings = node.settings
    if settings.notices.digest_cron is None:
        return None
    return DigestKeeper(
        outbox=node.store.outbox,
        cron=Cron(expr=settings.notices.digest_cron, timezone=settings.schedule.timezone),
        daily_budget_usd=settings.budgets.daily_usd,
        now=node.clock.now,
        log=node.log,
    )


def courier(settings: Settings) -> Courier:
    """Return what starts couriers: they are given the proxies and CA files, and nothing else of the daemon's."""
    return Courier(environment={**settings.environment.inherited, **settings.environment.proxies})


async def say_hello(settings: Settings, target: Target) -> Told:
    """Send a target a message that says nothing but that it would be heard; return what came of it."""
    notice = Notice(
        topic=Topic.SELF, level=EventLevel.INFO, text="this is a test: claudeops would be heard here.", key=""
    )
    wording = _wording(settings, Redactor(settings.secrets))
    match target.kind:
        case TargetKind.TELEGRAM:
            chat = settings.notices.telegram[target.name]
            api = BotApi(
                chat.api, chat.token, network={**settings.environment.inherited, **settings.environment.proxies}
            )
            carrier = TelegramCarrier(api=api, target=target.name, chat=chat.chat, asking=None)
            try:
                return await try_address("", carrier, notice, wording)
            finally:
                await api.close()
        case TargetKind.SLACK:
            return await _hello_in_slack(settings, target.name, notice, wording)
        case TargetKind.APPRISE:
            return await try_address(settings.notices.addresses[target.name], courier(settings), notice, wording)


async def _hello_in_slack(settings: Settings, name: str, notice: Notice, wording: Wording) -> Told:
    """Send a channel a message, and see whether Slack would open a connection for what is pressed there."""
    given, room = settings.notices.slack[name], rooms_of(settings)[name]
    ear = SlackApi(
        given.api, given.app_token, network={**settings.environment.inherited, **settings.environment.proxies}
    )
    try:
        told = await try_address("", SlackCarrier(room=room, target=name, asking=None), notice, wording)
        if told.result is DeliveryOutcome.DELIVERED and given.app_token:
            opened = await ear.call("apps.connections.open", {})
            if not opened.ok:
                error = f"the message arrived, but what is pressed would not be heard by Socket Mode: {opened.error}"
                return Told(result=DeliveryOutcome.FAILED, error=error)
        return told
    finally:
        await room.api.close()
        await ear.close()


def _wording(settings: Settings, redactor: Redactor) -> Wording:
    return Wording(redact=redactor.text, public_url=settings.listener.public_url or "")
