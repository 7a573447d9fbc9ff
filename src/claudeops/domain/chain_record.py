"""What the database knows of a chain beside its sessions: calls, actions, events. For whoever tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from claudeops.domain.model import Level, VerdictKind


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownCall:
    """A tool call with the gate's verdict."""

    session_id: int
    tool_name: str
    shown_input: str  # redacted JSON
    verdict: VerdictKind
    reason: str
    is_error: bool | None  # None: no result was seen


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownAction:
    """An entry of the cooldown ledger."""

    session_id: int
    kind: str
    service: str
    success: bool | None  # None: not settled


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownEvent:
    """An event that a session of the chain wrote first."""

    session_id: int
    level: Level
    service: str | None
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainRecord:
    """Everything in the order in which it was written."""

    calls: tuple[KnownCall, ...] = ()
    actions: tuple[KnownAction, ...] = ()
    events: tuple[KnownEvent, ...] = ()
