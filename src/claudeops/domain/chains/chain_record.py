"""What the database knows about a chain or session beside its row and log: verdicts, actions, events.

For everything that reports on a chain: a session's log says neither what the gate answered nor which events were
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from claudeops.domain.actions import PastAction
from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.domain.live import EventRaised
from claudeops.domain.sessions import Status


class JudgedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call with the gate's verdict."""

    session_id: int
    tool_name: str
    redacted_input: str  # redacted JSON
    verdict: VerdictKind
    reason: str
    is_error: bool | None  # None: no result was seen


class ChainRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A whole chain, in the order in which it was written."""

    calls: tuple[JudgedCall, ...] = ()
    actions: tuple[PastAction, ...] = ()
    events: tuple[EventRaised, ...] = ()


# --- one session --------------------------------------------------------------------------------------


class TimedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the gate. A call that waits for a person has two: the question, and what came of it."""

    verdict: Verdict
    at: datetime  # UTC; when it was decided


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is on record about one session so far."""

    verdicts: Mapping[str, tuple[TimedVerdict, ...]]  # by ``tool_use_id``, oldest first
    events: tuple[EventRaised, ...]  # those that the session opened or was the last to raise; oldest first
    actions: tuple[PastAction, ...] = ()  # of the session, oldest first


class SessionPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session stands, for readers that follow the chains under way."""

    session_id: int
    chain: int  # the root session's id
    status: Status
