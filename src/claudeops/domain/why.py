"""Why nothing was done: reasons on record, as values. Their sentences are in `claudeops.wording.why`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

_AFTERWARDS: Final = timedelta(minutes=10)
"""What is shown after the moment that was asked about: what it led to."""

_EARLIEST: Final = datetime(1990, 1, 1, tzinfo=UTC)
"""Nothing is on record before; earlier moments leave no room for times before them."""


class WhyKind(StrEnum):
    """What a reason is read from."""

    FIRE = "fire"  # a due time of a schedule, and what came of it
    ALERT = "alert"  # a decision about an alert
    SILENCE = "silence"  # an operator's, while it holds
    PROBE = "probe"  # a change that the daemon's probes saw, or how they stand
    CHECK = "check"  # how a session found a service
    SESSION = "session"  # queued, started or ended
    CALL = "call"  # of a tool, denied or left without an answer
    APPROVAL = "approval"  # a question to people that brought no yes
    COOLDOWN = "cooldown"  # a limit of actions that was reached
    HOLD = "hold"  # what kept every session in the queue
    ACTION = "action"  # what was done, and whether it held
    EVENT = "event"  # what sessions or the daemon raised, and what a person has done


class ReasonTone(StrEnum):
    """What a reason means for somebody who wonders why nothing was done."""

    GOOD = "good"  # it was well, or it was mended
    NEUTRAL = "neutral"  # it went as it should, or as an operator wanted
    BAD = "bad"  # it went wrong, or something stood in the way


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One thing on record that explains what was done or not."""

    at: datetime  # UTC; before the time asked for, where it began then and still held
    kind: WhyKind
    text: str  # one sentence
    level: ReasonTone = ReasonTone.NEUTRAL
    session_id: int | None = None
    chain: int | None = None  # its first session's id
    incident: int | None = None  # its number
    event_id: int | None = None
    silence: int | None = None  # its number


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The reasons within a time, in their order."""

    service: str | None  # as it was asked for; None: all services
    since: datetime  # UTC
    until: datetime  # UTC; not within
    reasons: tuple[Reason, ...] = ()
    cut: bool = False  # there are more; the latest are here
    silent: bool = False  # none is about the service itself, or there is none at all
    before: Reason | None = None  # where it is silent: what was last on record about it


def window(at: datetime | None, within: timedelta, now: datetime) -> tuple[datetime, datetime]:
    """Return since when and until when reasons are shown: until shortly after a moment, or until now."""
    until = now if at is None or at >= now - _AFTERWARDS else max(at, _EARLIEST) + _AFTERWARDS
    return until - within, until
