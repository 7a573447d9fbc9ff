"""What is told of sessions while they run: values for whoever looks on, made into lines where they are read.

Texts in them are redacted, cut, and one line each; what a terminal would take for an order is the renderer's to
escape. Nothing is decided from these values: the row and the log are the truth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from datetime import datetime

    from claudeops.domain.model import DecisionReason, Level, Outcome, Trigger, VerdictKind


class _Told(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What all of them have; ``kind`` names the fact in JSON."""

    at: datetime  # UTC


class _OfSession(_Told, frozen=True, kw_only=True):
    session_id: int
    chain: int  # the root session's id
    tier: int


class SessionBegan(_OfSession, frozen=True, kw_only=True, tag="session_began"):
    """A queued session was taken and is about to be started."""

    model: str
    trigger: Trigger
    reason: str | None = None  # why the tier below handed over, or what an operator asked for


class CallStarted(_OfSession, frozen=True, kw_only=True, tag="call_started"):
    """A tool call of a CLI that asks nobody."""

    tool_use_id: str
    tool: str
    line: str  # what the call does, for people


class CallJudged(_OfSession, frozen=True, kw_only=True, tag="call_judged"):
    """A tool call with the gate's answer."""

    tool_use_id: str
    tool: str
    line: str  # what the call does, for people
    verdict: VerdictKind
    reason: str


class CallEnded(_OfSession, frozen=True, kw_only=True, tag="call_ended"):
    """A tool call's result."""

    tool_use_id: str
    line: str  # what the call did; "" when its start was not seen
    is_error: bool
    text: str  # the first lines that say something, as one; "" for none
    characters: int  # of the whole result


class AssistantSaid(_OfSession, frozen=True, kw_only=True, tag="assistant_said"):
    """What the model says beside its calls."""

    text: str


class ResultCame(_OfSession, frozen=True, kw_only=True, tag="result_came"):
    """A result line; the process ends soon, or is asked once more."""

    is_error: bool
    cost_usd: float | None  # None: not said
    num_turns: int | None


class EventRaised(_Told, frozen=True, kw_only=True, tag="event_raised"):
    """An event was written to the database, or counted up there."""

    level: Level
    message: str
    service: str | None = None
    session_id: int | None = None  # None: the daemon's own


class SessionEnded(_OfSession, frozen=True, kw_only=True, tag="session_ended"):
    """A session is over and what follows from it is decided."""

    outcome: Outcome
    decision: DecisionReason
    cost_usd: float | None = None  # None: unknown
    duration_ms: int | None = None
    num_turns: int | None = None
    summary: str | None = None  # of the report
    error: str | None = None
    next_session_id: int | None = None
    next_tier: int | None = None


class LinesLost(_Told, frozen=True, kw_only=True, tag="lines_lost"):
    """A reader was too slow: so many facts passed it by."""

    count: int


LiveFact = (
    SessionBegan
    | CallStarted
    | CallJudged
    | CallEnded
    | AssistantSaid
    | ResultCame
    | EventRaised
    | SessionEnded
    | LinesLost
)
