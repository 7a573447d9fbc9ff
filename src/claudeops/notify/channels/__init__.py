"""The kinds of channels, a module each, which has the name of its kind and knows all that is not pure.

A new kind is such a module and its entry in the table of `claudeops.domain.notices.channels`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import ClassVar, Final, TypeAlias

import msgspec

from claudeops.domain.notices.channels import ChannelAccess, TargetKind
from claudeops.logs import Logger
from claudeops.notify.delivery import Carrier, DeliveryResult
from claudeops.notify.questions import ChatQuestions
from claudeops.notify.reception import AnswerReception
from claudeops.store.probes import Probes
from claudeops.text.escapes import visible
from claudeops.wording.notices.texts import NoticeMessage

Targets: TypeAlias = Mapping[str, ChannelAccess]
"""Of one kind, by their names."""

_MOST_CHARACTERS: Final = 300  # of a server's answer


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelContext:
    """What the channels of a daemon share."""

    questions: ChatQuestions | None  # None: no answer could be proved, so nothing is listened to
    events: Probes
    redact: Callable[[str], str]
    now: Callable[[], datetime]
    log: Logger
    checked: dict[str, str] = field(repr=False)  # addresses that Apprise was given to check, by targets
    node: str = ""  # the machine on which they are used

    def reception(self, targets: Collection[str], *, settle_seconds: float = 0.0) -> AnswerReception:
        """Return what knows whether the answers in some chats arrive."""
        return AnswerReception(
            targets=targets,
            events=self.events,
            redact=self.redact,
            now=self.now,
            node=self.node,
            settle_seconds=settle_seconds,
        )


class ConnectedTargets(msgspec.Struct, frozen=True, kw_only=True):
    """The targets of one kind, while the daemon runs."""

    carriers: Mapping[str, Carrier]  # by targets
    tasks: Sequence[Callable[[], Coroutine[None, None, None]]] = ()  # run until cancelled
    events: Sequence[str] = ()  # fingerprints of those about answers that may be open
    take: Callable[[bytes, frozenset[str]], bool] | None = None  # what comes by HTTP; False: too much waits


class ChannelFaults(msgspec.Struct, kw_only=True):
    """What is wrong with targets of one kind, as sentences."""

    certain: list[str] = msgspec.field(default_factory=list)
    doubtful: list[str] = msgspec.field(
        default_factory=list
    )  # a server that does not answer now, or a chat that has moved
    remedies: list[str] = msgspec.field(default_factory=list)  # of faults whose sentence has none

    def add(self, what: str, answer: str, remedy: str, *, is_certain: bool) -> None:
        """Note what a server has answered about something; ``remedy`` is a clause, or empty."""
        shown = visible(" ".join(answer.split()))[:_MOST_CHARACTERS]
        fault = f"{what[:1].upper()}{what[1:]}: {shown}" + (f"; {remedy}." if remedy else ".")
        (self.certain if is_certain else self.doubtful).append(fault)


@dataclass(frozen=True, slots=True)
class NoticeChannel(ABC):
    """One kind of channel."""

    check_seconds: ClassVar[float] = 10.0
    network: Mapping[str, str]  # proxies and CA files, by variable

    @abstractmethod
    def connect(self, targets: Targets, context: ChannelContext) -> ConnectedTargets:
        """Connect the targets of this kind. Raises `ConfigurationError` for a proxy that cannot be used."""

    @abstractmethod
    async def try_target(self, target: str, access: ChannelAccess, message: NoticeMessage) -> DeliveryResult:
        """Send one message now. Raises `OSError` when nothing can be started, and what `connect` raises."""

    @abstractmethod
    async def check(self, targets: Targets, faults: ChannelFaults, *, has_approvers: bool) -> None:
        """Find what is wrong with targets, without a message to any of them.

        ``has_approvers``: some people may answer there. Raises what `try_target` raises.
        """


def channel_of(kind: TargetKind, network: Mapping[str, str]) -> NoticeChannel:
    """Return a kind of channel; its module is imported only where a target is of that kind."""
    channel: type[NoticeChannel] = import_module(f"{__name__}.{kind}").CHANNEL
    return channel(network)
