"""What operators ask of a running daemon: rows of ``commands``, written by another process."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


class OrderName(StrEnum):
    """What can be asked."""

    STOP_SESSIONS = "stop_sessions"  # stop every running session now; they end as ``cancelled``


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """Something that was asked and is to be done."""

    id: int
    name: str  # an `OrderName`, or one that a newer release knows
    requested_by: str | None
    requested_at: datetime
