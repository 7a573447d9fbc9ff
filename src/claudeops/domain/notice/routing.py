"""Whom a notice reaches, and when: topics and levels, quiet hours, bounds, and another try after a failure.

Pure. Quiet hours hold back whatever is neither critical nor a question; when they end it is told. A target that has had
its messages of an hour gets the rest together in the next one. A target that fails is left alone for longer each time;
a notice that could not be delivered for a day goes another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from claudeops.domain.model import Level
from claudeops.domain.notice.model import Notice, Pending, Target, Topic
from claudeops.domain.schedule.windows import open_at

HOUR: Final = timedelta(hours=1)
DEAD_AFTER: Final = timedelta(hours=24)
"""How long a notice is tried before it goes another way."""

WAITS: Final = (5.0, 30.0, 120.0, 600.0, 3600.0)
"""Seconds that a target is left alone after so many failures in a row; the last one also after all further ones."""

_QUIET_STEP: Final = timedelta(minutes=1)  # quiet hours begin and end on a minute
_WEEK: Final = timedelta(days=7)
_LEVELS: Final = tuple(Level)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What is sent to a target now, as groups that are one message each, and what waits until when."""

    messages: tuple[tuple[Pending, ...], ...] = ()
    waiting: tuple[Pending, ...] = ()
    until: datetime | None = None  # None: nothing waits


def wants(target: Target, notice: Notice) -> bool:
    """Tell whether a notice is for a target; questions and daily sums have no level of their own."""
    if notice.topic not in target.topics and notice.also not in target.topics:
        return False
    return notice.topic in {Topic.APPROVAL, Topic.DIGEST} or _LEVELS.index(notice.level) >= _LEVELS.index(
        target.min_level
    )


def targets_of(notice: Notice, targets: Iterable[Target], *, besides: str = "") -> tuple[str, ...]:
    """Return the names of the targets that a notice is for."""
    return tuple(target.name for target in targets if target.name != besides and wants(target, notice))


def quiet_until(target: Target, notice: Notice, now: datetime) -> datetime | None:
    """Return when the quiet hours end that hold a notice back; ``None``: nothing does."""
    if notice.level is Level.CRITICAL or notice.topic is Topic.APPROVAL:
        return None
    if open_at(target.quiet_hours, now, target.timezone) is None:
        return None
    at = now.replace(second=0, microsecond=0)
    end = at + _WEEK  # of windows that never end
    while at < end:
        at += _QUIET_STEP
        if open_at(target.quiet_hours, at, target.timezone) is None:
            return at
    return end


def plan(target: Target, waiting: Sequence[Pending], *, sent: Sequence[datetime], now: datetime) -> Plan:
    """Return what of ``waiting`` is sent now; ``sent`` are the times of the messages of the last hour."""
    if not waiting:
        return Plan()
    ordered = sorted(waiting, key=_urgency)
    if target.max_per_hour is None:
        return Plan(messages=tuple((pending,) for pending in ordered))
    # A question is a message of its own, because it may have buttons, and nobody can wait an hour for it.
    urgent = tuple((pending,) for pending in ordered if pending.notice.topic is Topic.APPROVAL)
    others = ordered[len(urgent) :]
    recent = sorted(at for at in sent if at > now - HOUR)
    room = target.max_per_hour - len(recent) - len(urgent)
    if not others or room >= len(others):
        return Plan(messages=(*urgent, *((pending,) for pending in others)))
    if room > 0:
        singles, rest = others[: room - 1], others[room - 1 :]
        return Plan(messages=(*urgent, *((pending,) for pending in singles), tuple(rest)))
    recent += [now] * max(0, target.max_per_hour - len(recent))  # the questions that take what room there was
    until = recent[len(recent) - target.max_per_hour] + HOUR
    return Plan(messages=urgent, waiting=tuple(others), until=until)


def wait_seconds(failures: int) -> float:
    """Return how long a target is left alone that has failed so often in a row."""
    return WAITS[min(max(failures, 1), len(WAITS)) - 1]


def is_dead(pending: Pending, now: datetime) -> bool:
    """Tell whether a notice has been tried for long enough."""
    return now - pending.created_at >= DEAD_AFTER


def _urgency(pending: Pending) -> tuple[bool, int, int]:
    """Return what orders messages: questions, then the most severe, then the oldest."""
    return pending.notice.topic is not Topic.APPROVAL, -_LEVELS.index(pending.notice.level), pending.id
