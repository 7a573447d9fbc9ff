"""Live facts: what sessions do while they run, as values.

Texts in the facts are redacted, cut, and one line each; escaping what a terminal would take for a command is the
renderer's job. Nothing is decided from these values: the row and the log are the truth.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from claudeops.domain.actions import Recheck
from claudeops.domain.calls import VerdictKind
from claudeops.domain.events import EventLevel
from claudeops.domain.sessions import DecisionReason, Outcome, Trigger


class _Told(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every live fact has; ``kind`` names the fact in JSON."""

    at: datetime  # UTC


class _OfSession(_Told, frozen=True, kw_only=True):
    session_id: int
    chain: int  # the root session's id
    tier: int


class SessionBegan(_OfSession, frozen=True, kw_only=True, tag="session_began"):
    """A queued session was claimed and is about to be started."""

    model: str
    trigger: Trigger
    started_by: str | None = None  # the person or token; None: the daemon itself
    reason: str | None = None  # why the tier below handed over, or what an operator asked for


class CallStarted(_OfSession, frozen=True, kw_only=True, tag="call_started"):
    """A tool call of a CLI without a gate."""

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
    text: str  # the first lines that are not blank, as one; "" for none
    characters: int  # of the whole result


class AssistantSaid(_OfSession, frozen=True, kw_only=True, tag="assistant_said"):
    """Text of the model beside its calls."""

    text: str


class ResultCame(_OfSession, frozen=True, kw_only=True, tag="result_came"):
    """A result line; the process ends soon, or gets a repair turn."""

    is_error: bool
    cost_usd: float | None  # None: not stated
    num_turns: int | None


class EventRaised(_Told, frozen=True, kw_only=True, tag="event_raised"):
    """An event was written to the database, or its count was raised."""

    level: EventLevel
    message: str
    service: str | None = None
    session_id: int | None = None  # None: an event of the daemon itself


class SessionEnded(_OfSession, frozen=True, kw_only=True, tag="session_ended"):
    """A session has ended, and what follows is decided."""

    outcome: Outcome
    decision: DecisionReason
    cost_usd: float | None = None  # None: unknown
    duration_ms: int | None = None
    num_turns: int | None = None
    summary: str | None = None  # of the report
    error: str | None = None
    next_session_id: int | None = None
    next_tier: int | None = None


class ActionFollowedUp(_OfSession, frozen=True, kw_only=True, tag="action_followed_up"):
    """What became of an action of a session that has ended; ``at`` is when that was found, or is looked at."""

    action: str  # its kind
    service: str
    held: Recheck | None  # None: nobody has looked yet


class LinesLost(_Told, frozen=True, kw_only=True, tag="lines_lost"):
    """A reader was too slow and missed this many facts."""

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
    | ActionFollowedUp
    | LinesLost
)
