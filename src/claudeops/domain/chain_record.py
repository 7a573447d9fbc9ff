"""What the database knows of a chain beside its sessions: calls, actions, events. For whoever tells of it.

What the database tells of a session that its log cannot: what the gate answered, and which events were written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from claudeops.domain.live import EventRaised
from claudeops.domain.model import Level, Status, Verdict, VerdictKind


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


# --- one session --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One answer of the gate. A call that is put to people has two: the question, and what came of it."""

    verdict: Verdict
    at: datetime  # UTC; when it was decided


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRecord:
    """What is on record about a session so far."""

    verdicts: Mapping[str, tuple[Judged, ...]]  # by ``tool_use_id``, oldest first
    events: tuple[EventRaised, ...]  # those that the session opened, or counted up last; oldest first


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a session stands, for who wants to know which chains are under way."""

    session_id: int
    chain: int  # the root session's id
    status: Status
