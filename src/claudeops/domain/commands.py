"""Commands of operators to a running daemon: rows of ``commands``, written by another process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class CommandName(StrEnum):
    """What an operator can ask for."""

    STOP_SESSIONS = "stop_sessions"  # stop every running session now; they end as ``cancelled``


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """One request that is still to be carried out."""

    id: int
    name: str  # a `CommandName`, or one that only a newer release knows
    requested_by: str | None
    requested_at: datetime
