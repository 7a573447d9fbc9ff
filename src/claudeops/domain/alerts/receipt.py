"""What a sender learns about a body: that it is stored, which it is before anything is decided about it."""

from __future__ import annotations

from typing import Final

import msgspec

WEBHOOK: Final = "webhook"
"""The source for which the operator's key stands."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A body that is stored."""

    delivery: str  # its key: the same body, or the same id of the sender, has the same
    alerts: int = 0  # that were understood; a decision about each follows
    readable: bool = True  # else it is kept as it came
    repeats: bool = False  # a delivery that came within the last ten minutes
