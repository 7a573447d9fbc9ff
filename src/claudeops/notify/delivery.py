"""What comes of messages that are brought to a target, and who brings them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from claudeops.domain.notices.notice import DeliveryOutcome
from claudeops.domain.notices.refusals import CONTENT, RefusalCause
from claudeops.wording.notices.texts import NoticeMessage

MESSAGE_SECONDS: Final = 8.0
"""How long a target may take for one message."""

DEADLINE_SECONDS: Final = 20.0
"""How long a delivery of several messages may take, and a courier may live."""

NOT_BEGUN: Final = "the courier ended before it had begun"

_MOST_FAILURES: Final = 2


class DeliveryResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one message."""

    result: DeliveryOutcome
    error: str = ""
    wait_seconds: float | None = None  # that the target wants before the next message
    cause: RefusalCause | None = None  # why it was refused, where that will not pass


class Carrier(Protocol):
    """Brings messages to one target."""

    async def deliver(self, messages: Sequence[NoticeMessage], results: dict[int, DeliveryResult]) -> None:
        """Deliver messages; ``results`` gets what came of each, by its place, as soon as it is known.

        A message without an entry was not tried. Raises `OSError` when nothing can be started.
        """


class Streak(msgspec.Struct, kw_only=True):
    """How the messages of one delivery fare, one after the other."""

    failures: int = 0  # in a row

    def ends_with(self, result: DeliveryResult) -> bool:
        """Note what came of a message; return whether the target is left alone with those behind it."""
        if result.result is DeliveryOutcome.DELIVERED or result.cause == CONTENT:
            self.failures = 0
            return result.wait_seconds is not None
        self.failures += 1
        # What is known to concern the whole target needs no second proof; else the second failure in a row is one.
        is_known = result.result is DeliveryOutcome.UNKNOWN or result.cause is not None
        return is_known or result.wait_seconds is not None or self.failures == _MOST_FAILURES


async def deliver_one(carrier: Carrier, message: NoticeMessage) -> DeliveryResult:
    """Deliver one message now, past the outbox. Raises `OSError` as a carrier does."""
    results: dict[int, DeliveryResult] = {}
    await carrier.deliver([message], results)
    return results.get(0, DeliveryResult(result=DeliveryOutcome.FAILED, error=NOT_BEGUN))
