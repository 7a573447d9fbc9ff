"""What operators ask of a running daemon: rows of ``commands``, written by another process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class CommandName(StrEnum):
    """What can be asked."""

    STOP_SESSIONS = "stop_sessions"  # stop every running session now; they end as ``cancelled``


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """Something that was asked and is to be done."""

    id: int
    name: str  # an `OrderName`, or one that a newer release knows
    requested_by: str | None
    requested_at: datetime
