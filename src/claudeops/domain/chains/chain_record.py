"""What the database knows about a chain or session beside its row and log: verdicts, actions, events.

For everything that reports on a chain: a session's log says neither what the gate answered nor which events were
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from claudeops.domain.actions import PastAction
from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.domain.live import EventRaised
from claudeops.domain.sessions import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedCall:
    """A tool call with the gate's verdict."""

    session_id: int
    tool_name: str
    redacted_input: str  # redacted JSON
    verdict: VerdictKind
    reason: str
    is_error: bool | None  # None: no result was seen


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainRecord:
    """A whole chain, in the order in which it was written."""

    calls: tuple[JudgedCall, ...] = ()
    actions: tuple[PastAction, ...] = ()
    events: tuple[EventRaised, ...] = ()


# --- one session --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedVerdict:
    """One answer of the gate. A call that waits for a person has two: the question, and what came of it."""

    verdict: Verdict
    at: datetime  # UTC; when it was decided


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRecord:
    """What is on record about one session so far."""

    verdicts: Mapping[str, tuple[TimedVerdict, ...]]  # by ``tool_use_id``, oldest first
    events: tuple[EventRaised, ...]  # those that the session opened or was the last to raise; oldest first
    actions: tuple[PastAction, ...] = ()  # of the session, oldest first


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionPosition:
    """Where a session stands, for readers that follow the chains under way."""

    session_id: int
    chain: int  # the root session's id
    status: Status
