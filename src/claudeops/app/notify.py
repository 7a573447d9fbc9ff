"""Notices and questions, wired from the settings: what empties the outbox, the channels, and one message past all that.

Part of the composition root.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import anyio
import msgspec

from claudeops.app.node import Node
from claudeops.domain.events import EventLevel
from claudeops.domain.notices.channels import ChannelAccess, TargetKind, by_kind
from claudeops.domain.notices.notice import ADDRESS, DEAD, MOVED, PICKY, REFUSED, Notice, Target, Topic
from claudeops.domain.schedules import Cron
from claudeops.engine.operator_file import OperatorFile
from claudeops.logs import LogEvent
from claudeops.notify.channels import ChannelContext, ConnectedTargets, channel_of
from claudeops.notify.delivery import DeliveryResult
from claudeops.notify.digest import DigestSender
from claudeops.notify.questions import ChatQuestions
from claudeops.notify.sender import NoticeSender
from claudeops.settings import Settings
from claudeops.settings.notify import Targets, read_notify_again
from claudeops.structs import replace
from claudeops.tasks import Waiter
from claudeops.text import clip
from claudeops.text.redact import Redactor
from claudeops.wording.notices.texts import Wording, message


class Notifications(msgspec.Struct, frozen=True, kw_only=True):
    """What notifies people and takes their answers while the daemon runs."""

    sender: NoticeSender
    connections: Sequence[ConnectedTargets]
    digest: DigestSender | None

    async def run(self) -> None:
        """Deliver what is in the outbox, take answers and send the daily digest, until cancelled."""
        tasks: list[Callable[[], Coroutine[None, None, None]]] = [self.sender.run]
        tasks += [task for connection in self.connections for task in connection.tasks]
        tasks += [self.digest.run] if self.digest is not None else []
        async with anyio.create_task_group() as group:
            for task in tasks:
                group.start_soon(task)


@dataclass(kw_only=True)
class ReloadedNotifications:
    """Notifications as the operator's file says now: after an edit, everything begins anew with its targets."""

    node: Node
    file: OperatorFile[Targets]
    checked: dict[str, str]  # addresses that need no other check, whatever is edited
    waiter: Waiter  # for notices
    current: Notifications
    _runs: bool = False

    @property
    def oldest(self) -> datetime | None:
        """Since when the notice waits that should have left first, as last seen; ``None``: none waits."""
        return self.current.sender.oldest

    def is_late(self) -> str:
        """Return why notices do not leave, as one sentence; empty: they do."""
        return self.current.sender.is_late()

    def take(self, payload: bytes, targets: frozenset[str]) -> bool:
        """Take what is pressed and comes by HTTP; ``False``: too much waits, or there is no such target any more."""
        takers = [each.take for each in self.current.connections if each.take is not None]
        return self._runs and any(take(payload, targets) for take in takers)

    async def run(self) -> None:
        """Notify until cancelled. What is being sent at the moment of an edit is sent again, and says so."""
        self._runs = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.file.run)
            while True:
                async with anyio.create_task_group() as now:
                    now.start_soon(self.current.run)
                    await self.file.change()
                    now.cancel_scope.cancel()
                self.current = self._anew()
                names = [target.name for target in self.file.value.targets]
                self.node.log.info(LogEvent.TARGETS_CHANGED, targets=names)

    async def look(self) -> None:
        """Read the file while nothing is run, so that a run begins with what it says; raises `StoreError`."""
        before = self.file.value
        await self.file.look()
        if self.file.value is not before and not self._runs:
            self.current = self._anew()

    def forget(self) -> None:
        """Begin anew with nothing in memory, once this is run again; until then nothing is taken."""
        self._runs, self.current = False, self._anew()

    def _anew(self) -> Notifications:
        return _notifications(_with_targets(self.node, self.file.value), self.checked, self.waiter)


def notifications(node: Node) -> ReloadedNotifications:
    """Return what notifies people. Raises `ConfigurationError` for a proxy that cannot be used."""
    settings = node.settings
    before = Targets(
        path=settings.notices.path,
        targets=settings.notices.targets,
        addresses=settings.notices.addresses,
        chats=settings.notices.chats,
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
        node=node.owner.node,
    )
    checked: dict[str, str] = {}
    waiter = node.wake_ups.waiter()
    current = _notifications(node, checked, waiter)
    return ReloadedNotifications(node=node, file=file, checked=checked, waiter=waiter, current=current)


def _with_targets(node: Node, found: Targets) -> Node:
    notices = replace(
        node.settings.notices,
        targets=found.targets,
        addresses=found.addresses,
        chats=found.chats,
        approvers=found.approvers,
    )
    return replace(node, settings=replace(node.settings, notices=notices))


def _notifications(node: Node, checked: dict[str, str], waiter: Waiter) -> Notifications:
    settings, network = node.settings, network_of(node.settings)
    context = ChannelContext(
        questions=_questions(node),
        events=node.store.probes,
        redact=node.context.redactor.text,
        now=node.clock.now,
        log=node.log,
        checked=checked,
        node=node.owner.node,
    )
    kinds = channels_of(settings)
    connections = [channel_of(kind, network).connect(targets, context) for kind, targets in kinds.items()]
    about = [
        f"{kind}{target.name}" for target in settings.notices.targets for kind in (DEAD, PICKY, REFUSED, MOVED, ADDRESS)
    ]
    sender = NoticeSender(
        outbox=node.store.outbox,
        targets=settings.notices.targets,
        carriers={name: carrier for each in connections for name, carrier in each.carriers.items()},
        wording=_wording(settings, node.context.redactor),
        now=node.clock.now,
        log=node.log,
        kept_events=frozenset(map(clip, [*about, *(event for each in connections for event in each.events)])),
        counted=node.counts.message_sent,
        node=node.owner.node,
        waiter=waiter,
    )
    return Notifications(sender=sender, connections=connections, digest=_digest(node))


def channels_of(settings: Settings) -> Mapping[TargetKind, Mapping[str, ChannelAccess]]:
    """Return the targets by their kinds."""
    return by_kind({target.name: _access(settings, target) for target in settings.notices.targets})


def _access(settings: Settings, target: Target) -> ChannelAccess:
    if target.kind is TargetKind.APPRISE:
        return ChannelAccess(kind=target.kind, secrets={"url": settings.notices.addresses[target.name]})
    return settings.notices.chats[target.name]


def network_of(settings: Settings) -> Mapping[str, str]:
    """Return the proxies and CA files by variable: channels are given these, and nothing else of the daemon's."""
    return {**settings.environment.inherited, **settings.environment.proxies}


def _questions(node: Node) -> ChatQuestions | None:
    """Return what puts questions to people in chats; ``None`` without a key, because then no answer can be proved."""
    key = node.context.approvals.approval_key
    if key is None:
        return None
    return ChatQuestions(
        rows=node.store.questions,
        approvals=node.store.approvals,
        key=key,
        approvers=node.settings.notices.approvers,
        wording=_wording(node.settings, node.context.redactor),
        now=node.clock.now,
        log=node.log,
    )


def _digest(node: Node) -> DigestSender | None:
    settings = node.settings
    if settings.notices.digest_cron is None:
        return None
    return DigestSender(
        outbox=node.store.outbox,
        cron=Cron(expr=settings.notices.digest_cron, timezone=settings.schedule.timezone),
        daily_budget_usd=settings.budgets.daily_usd,
        now=node.clock.now,
        log=node.log,
    )


async def send_test(settings: Settings, target: Target) -> DeliveryResult:
    """Send a target a message that is only a test; return what came of it. Raises `OSError` without a courier."""
    notice = Notice(
        topic=Topic.SELF, level=EventLevel.INFO, text="this is a test: claudeops would be heard here.", key=""
    )
    channel = channel_of(target.kind, network_of(settings))
    wording = _wording(settings, Redactor(settings.secrets))
    return await channel.try_target(target.name, _access(settings, target), message([notice], wording))


def _wording(settings: Settings, redactor: Redactor) -> Wording:
    return Wording(redact=redactor.text, public_url=settings.listener.public_url or "")
