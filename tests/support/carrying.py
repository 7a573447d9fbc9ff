"""Carriers for tests: one double brings messages to the addresses of several targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from claudeops.domain.notices.notice import Target
from claudeops.notify.delivery import Carrier, DeliveryResult
from claudeops.wording.notices.texts import NoticeMessage


class ToAddresses(Protocol):
    """Couriers, and doubles of them."""

    async def deliver(
        self, address: str, messages: Sequence[NoticeMessage], results: dict[int, DeliveryResult], /
    ) -> None: ...


@dataclass
class ToAddress:
    """Brings messages to one address by a carrier that knows several."""

    carrier: ToAddresses
    address: str

    async def deliver(self, messages: Sequence[NoticeMessage], results: dict[int, DeliveryResult]) -> None:
        await self.carrier.deliver(self.address, messages, results)


def carriers(carrier: ToAddresses, targets: Iterable[Target], *, prefix: str = "") -> Mapping[str, Carrier]:
    """Return a carrier for each target, whose address is its name behind a prefix."""
    return {target.name: ToAddress(carrier, f"{prefix}{target.name}") for target in targets}
