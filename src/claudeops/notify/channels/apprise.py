"""Apprise: a courier process for each delivery to an address, and one that checks what addresses it understands.

Apprise takes half a second and 40 MB to import, so a courier does it, and no start of the daemon waits for it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final

import anyio
import msgspec
from anyio.abc import Process, SocketStream

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.notices.channels import ChannelAccess
from claudeops.domain.notices.notice import ADDRESS, DeliveryOutcome
from claudeops.domain.notices.refusals import of_apprise
from claudeops.engine.process.leaders import end_leader, open_fed_leader
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.notify.channels import ChannelContext, ChannelFaults, ConnectedTargets, NoticeChannel, Targets
from claudeops.notify.courier import (
    BEGUN,
    DELIVERED,
    FAILED,
    TIMED_OUT,
    CourierReport,
    CourierRequest,
    OutgoingMessage,
)
from claudeops.notify.delivery import DEADLINE_SECONDS, MESSAGE_SECONDS, NOT_BEGUN, DeliveryResult, deliver_one
from claudeops.store.probes import Probes
from claudeops.tasks import DatabaseTrouble
from claudeops.text import clip, join_names, one_line
from claudeops.text.escapes import visible
from claudeops.wording.notices.texts import NoticeMessage

_MOST_BYTES: Final = 1024 * 1024  # of reports
_STATES: Final = {
    BEGUN: DeliveryOutcome.UNKNOWN,  # until another report follows
    DELIVERED: DeliveryOutcome.DELIVERED,
    FAILED: DeliveryOutcome.FAILED,
    TIMED_OUT: DeliveryOutcome.UNKNOWN,
}
_NO_END: Final = "the courier ended before it knew"
_TRIES: Final = 5  # of couriers that die or cannot be started
_PAUSE_SECONDS: Final = 30.0
_WIKI: Final = "Write it as https://github.com/caronc/apprise/wiki says for that service."


@dataclass(kw_only=True)
class Courier:
    """Delivers messages by a process of its own."""

    environment: Mapping[str, str]  # proxies and CA files; nothing else of the daemon's
    message_seconds: float = MESSAGE_SECONDS
    deadline_seconds: float = DEADLINE_SECONDS

    async def deliver(
        self, address: str, messages: Sequence[NoticeMessage], results: dict[int, DeliveryResult]
    ) -> None:
        """Deliver messages to an address, as a carrier does.

        Of a courier that ends without a report the first message has failed. When the caller is cancelled the process
        is killed, and what is known by then stands in ``results``.
        """
        outgoing = tuple(
            OutgoingMessage(id=index, title=message.title, body=message.body, level=message.level.value)
            for index, message in enumerate(messages)
        )
        await self._run(self._request(address, outgoing), results)

    async def check(self, addresses: Mapping[str, str]) -> Mapping[str, str]:
        """Return why Apprise does not understand each of some addresses, empty where it does, by their names.

        Nothing is sent. What a courier that dies does not know is left out. Raises `OSError` as `deliver` does.
        """
        results: dict[int, DeliveryResult] = {}
        await self._run(self._request(check=tuple(addresses.values())), results)
        found = {name: results[index] for index, name in enumerate(addresses) if index in results}
        return {
            name: "" if result.result is DeliveryOutcome.DELIVERED else result.error
            for name, result in found.items()
            if result.error != NOT_BEGUN
        }

    def _request(
        self, address: str = "", messages: tuple[OutgoingMessage, ...] = (), check: tuple[str, ...] = ()
    ) -> CourierRequest:
        return CourierRequest(
            url=address,
            check=check,
            environment=dict(self.environment),
            timeout_seconds=self.message_seconds,
            deadline_seconds=math.ceil(self.deadline_seconds) + 1,
            messages=messages,
        )

    async def _run(self, request: CourierRequest, results: dict[int, DeliveryResult]) -> None:
        process, stdin = await open_fed_leader([sys.executable, "-I", "-m", "claudeops.notify.courier"])
        try:
            with anyio.move_on_after(self.deadline_seconds):
                await _converse(process, stdin, msgspec.json.encode(request), results)
            if not results:  # whatever it died of is likely to come again: without a failure it is tried for ever
                results[0] = DeliveryResult(result=DeliveryOutcome.FAILED, error=NOT_BEGUN)
        finally:
            await end_leader(process, stdin)


async def _converse(process: Process, stdin: SocketStream, request: bytes, results: dict[int, DeliveryResult]) -> None:
    if process.stdout is None:
        raise OSError("the courier has no pipe")
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await stdin.send(request)
        await stdin.send_eof()
    rest, read = b"", 0
    with suppress(anyio.EndOfStream):
        while read < _MOST_BYTES:
            data = await process.stdout.receive()
            read += len(data)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _note(line, results)


def _note(line: bytes, results: dict[int, DeliveryResult]) -> None:
    with suppress(msgspec.DecodeError):
        report = msgspec.json.decode(line, type=CourierReport)
        if report.state in _STATES:
            error = _NO_END if report.state == BEGUN else report.error
            cause = of_apprise(error) if report.state == FAILED else None
            results[report.id] = DeliveryResult(result=_STATES[report.state], error=error, cause=cause)


@dataclass(frozen=True, kw_only=True, slots=True)
class AddressCarrier:
    """Brings messages to one address."""

    address: str = field(repr=False)
    courier: Courier

    async def deliver(self, messages: Sequence[NoticeMessage], results: dict[int, DeliveryResult]) -> None:
        """Deliver messages."""
        await self.courier.deliver(self.address, messages, results)


@dataclass(kw_only=True)
class AddressCheck:
    """Checks each address once while the daemon runs: what Apprise does not understand is an event."""

    courier: Courier
    addresses: Mapping[str, str] = field(repr=False)  # by targets
    events: Probes
    redact: Callable[[str], str]
    now: Callable[[], datetime]
    log: Logger
    checked: dict[str, str] = field(repr=False)  # as they were when they were checked

    async def run(self) -> None:
        """Check until every address is checked; then there is nothing more to do."""
        trouble = DatabaseTrouble(self.log, "addresses of targets")
        for _ in range(_TRIES):
            wait = _PAUSE_SECONDS
            try:
                if await self.check_once():
                    return
                trouble.over()
            except OSError:
                pass  # no process can be started, which its deliveries report as well
            except StoreError as error:
                wait = max(wait, trouble.failed(error))
            await anyio.sleep(wait)

    async def check_once(self) -> bool:
        """Check what is new; return whether nothing is left to check. Raises `OSError` and `StoreError`."""
        new = {name: address for name, address in self.addresses.items() if self.checked.get(name) != address}
        if new:
            for name, reason in (await self.courier.check(new)).items():
                await self._note(name, visible(self.redact(one_line(reason))))
                self.checked[name] = new[name]
        return all(self.checked.get(name) == address for name, address in new.items())

    async def _note(self, name: str, reason: str) -> None:
        message = f"Apprise does not understand the address of {name}, so nothing is sent there: {reason}."
        event = NewEvent(level=EventLevel.CRITICAL, message=message, fingerprint=clip(f"{ADDRESS}{name}"))
        await self.events.note(event, over=not reason, now=self.now())
        if reason:
            self.log.error(LogEvent.ADDRESS_REFUSED, target=name, error=reason)


def _addresses(targets: Targets) -> dict[str, str]:
    return {name: targets[name].secrets["url"] for name in sorted(targets)}


class AppriseChannel(NoticeChannel):
    """Addresses of Apprise."""

    check_seconds: ClassVar[float] = 2 * DEADLINE_SECONDS  # the courier has its own deadline

    def connect(self, targets: Targets, context: ChannelContext) -> ConnectedTargets:
        """Connect addresses, and check them."""
        courier, addresses = Courier(environment=self.network), _addresses(targets)
        check = AddressCheck(
            courier=courier,
            addresses=addresses,
            events=context.events,
            redact=context.redact,
            now=context.now,
            log=context.log,
            checked=context.checked,
        )
        carriers = {name: AddressCarrier(address=address, courier=courier) for name, address in addresses.items()}
        return ConnectedTargets(carriers=carriers, tasks=[check.run])

    async def try_target(self, target: str, access: ChannelAccess, message: NoticeMessage) -> DeliveryResult:
        """Send one message."""
        del target
        carrier = AddressCarrier(address=access.secrets["url"], courier=Courier(environment=self.network))
        return await deliver_one(carrier, message)

    async def check(self, targets: Targets, faults: ChannelFaults, *, has_approvers: bool) -> None:
        """Find addresses that Apprise does not understand."""
        del has_approvers
        reasons = await Courier(environment=self.network).check(_addresses(targets))
        wrong = {name: reason for name, reason in sorted(reasons.items()) if reason}
        if wrong:
            faults.certain.append(f"Apprise does not understand the address of {join_names(list(wrong))}.")
            faults.remedies += [*(f"{name}: {reason}." for name, reason in wrong.items()), _WIKI]


CHANNEL: Final = AppriseChannel
