"""Starts a courier for some messages to one target, reads its reports, and kills it at its deadline."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio
import msgspec
from anyio.abc import Process, SocketStream

from claudeops.domain.notices.notice import DeliveryOutcome
from claudeops.domain.notices.refusals import CONTENT, RefusalCause, of_apprise
from claudeops.engine.process.leaders import end_leader, open_fed_leader
from claudeops.notify.courier import BEGUN, DELIVERED, FAILED, TIMED_OUT, CourierReport, Letter, Order
from claudeops.wording.notices.texts import NoticeMessage

MESSAGE_SECONDS: Final = 8.0
"""How long a target may take for one message."""

DEADLINE_SECONDS: Final = 20.0
"""How long a courier may live."""

_MOST_FAILURES: Final = 2
_MOST_BYTES: Final = 1024 * 1024  # of reports
_STATES: Final = {
    BEGUN: DeliveryOutcome.UNKNOWN,  # until it says more
    DELIVERED: DeliveryOutcome.DELIVERED,
    FAILED: DeliveryOutcome.FAILED,
    TIMED_OUT: DeliveryOutcome.UNKNOWN,
}
_NO_END: Final = "the courier ended before it knew"
_NO_BEGIN: Final = "the courier ended before it had begun"


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What came of one message."""

    result: DeliveryOutcome
    error: str = ""
    wait_seconds: float | None = None  # that the target asks for before the next message
    cause: RefusalCause | None = None  # why it was refused, where that will not pass


@dataclass(kw_only=True, slots=True)
class Streak:
    """How the messages of one delivery fare, one after the other."""

    failures: int = 0  # in a row

    def ends_with(self, came: Told) -> bool:
        """Note what came of a message; tell whether the target is left alone with those behind it."""
        if came.result is DeliveryOutcome.DELIVERED or came.cause == CONTENT:
            self.failures = 0
            return came.wait_seconds is not None
        self.failures += 1
        # What is known to concern the whole target needs no second proof; else the second failure in a row is one.
        is_theirs = came.result is DeliveryOutcome.UNKNOWN or came.wait_seconds is not None or came.cause is not None
        return is_theirs or self.failures == _MOST_FAILURES


@dataclass(kw_only=True)
class Courier:
    """Delivers messages by a process of its own."""

    environment: Mapping[str, str]  # proxies and CA files; nothing else of the daemon's
    message_seconds: float = MESSAGE_SECONDS
    deadline_seconds: float = DEADLINE_SECONDS

    async def deliver(self, address: str, messages: Sequence[NoticeMessage], told: dict[int, Told]) -> None:
        """Deliver messages; ``told`` gets what came of each, by its place, as soon as it is known.

        A message without an entry was not tried; of a courier that ends without a word the first one has failed.
        Raises `OSError` when no process can be started. When the caller is cancelled the process is killed, and what is
        known by then stands in ``told``.
        """
        letters = tuple(
            Letter(id=index, title=message.title, body=message.body, level=message.level.value)
            for index, message in enumerate(messages)
        )
        await self._run(self._order(address, letters), told)

    async def check(self, addresses: Mapping[str, str]) -> Mapping[str, str]:
        """Return why Apprise does not understand each of some addresses, empty where it does, by their names.

        Nothing is sent. What a courier that dies does not know is left out. Raises `OSError` as `deliver` does.
        """
        told: dict[int, Told] = {}
        await self._run(self._order(check=tuple(addresses.values())), told)
        results = {name: told.get(index) for index, name in enumerate(addresses)}
        return {
            name: "" if found.result is DeliveryOutcome.DELIVERED else found.error
            for name, found in results.items()
            if found is not None and found.error != _NO_BEGIN
        }

    def _order(self, address: str = "", letters: tuple[Letter, ...] = (), check: tuple[str, ...] = ()) -> Order:
        return Order(
            url=address,
            check=check,
            environment=dict(self.environment),
            timeout_seconds=self.message_seconds,
            deadline_seconds=math.ceil(self.deadline_seconds) + 1,
            letters=letters,
        )

    async def _run(self, order: Order, told: dict[int, Told]) -> None:
        process, stdin = await open_fed_leader([sys.executable, "-I", "-m", "claudeops.notify.courier"])
        try:
            with anyio.move_on_after(self.deadline_seconds):
                await _converse(process, stdin, msgspec.json.encode(order), told)
            if not told:  # whatever it died of is likely to come again: who is not told of it would try for ever
                told[0] = Told(result=DeliveryOutcome.FAILED, error=_NO_BEGIN)
        finally:
            await end_leader(process, stdin)


async def _converse(process: Process, stdin: SocketStream, order: bytes, told: dict[int, Told]) -> None:
    if process.stdout is None:
        raise OSError("the courier has no pipe")
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await stdin.send(order)
        await stdin.send_eof()
    rest, read = b"", 0
    with suppress(anyio.EndOfStream):
        while read < _MOST_BYTES:
            data = await process.stdout.receive()
            read += len(data)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _take(line, told)


def _take(line: bytes, told: dict[int, Told]) -> None:
    with suppress(msgspec.DecodeError):
        report = msgspec.json.decode(line, type=CourierReport)
        if report.state in _STATES:
            error = _NO_END if report.state == BEGUN else report.error
            cause = of_apprise(error) if report.state == FAILED else None
            told[report.id] = Told(result=_STATES[report.state], error=error, cause=cause)
