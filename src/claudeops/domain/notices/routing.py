"""Whom a notice reaches, and when: topics and levels, quiet hours, bounds, and another try after a failure.

Pure. Quiet hours hold back whatever is neither critical nor a question; when they end it is sent. A target that has had
its messages of an hour gets the rest together in the next one, and critical notices together at once. A target that
fails is left alone for longer each time; a notice that could not be delivered for a day goes another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import Notice, Pending, Target, Topic
from claudeops.domain.schedules.windows import closed_from

HOUR: Final = timedelta(hours=1)
DEAD_AFTER: Final = timedelta(hours=24)
"""How long a notice is tried before it goes another way."""

WAITS: Final = (5.0, 30.0, 120.0, 600.0, 3600.0)
"""Seconds that a target is left alone after so many failures in a row; the last one also after all further ones."""

QUESTION_TRIES: Final = 2
"""After how many attempts without a known end a question counts as not received: the first may have arrived."""

REFUSED_TRIES: Final = 3
"""After how many attempts a notice that is refused for what it says goes another way, if there is one."""

_WEEK: Final = timedelta(days=7)
_LEVELS: Final = tuple(EventLevel)


class RoutingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent to a target now, as groups that are one message each, and what waits until when."""

    messages: tuple[tuple[Pending, ...], ...] = ()
    waiting: tuple[Pending, ...] = ()
    until: datetime | None = None  # None: nothing waits


def wants(target: Target, notice: Notice) -> bool:
    """Return whether a notice is for a target; questions and daily digests have no level of their own."""
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
    return None if is_urgent(notice) else quiet_end(target, now)


def quiet_end(target: Target, now: datetime) -> datetime | None:
    """Return when the quiet hours of a target end, in a week at the latest; ``None``: there are none now."""
    end = closed_from(target.quiet_hours, now, target.timezone, most=_WEEK)
    return None if end is None else end.replace(second=0, microsecond=0)  # of windows that never end


def is_urgent(notice: Notice) -> bool:
    """Return whether a notice waits neither for the end of quiet hours nor for the next hour of its target."""
    return notice.level is EventLevel.CRITICAL or notice.topic is Topic.APPROVAL


def plan(target: Target, waiting: Sequence[Pending], *, sent: Sequence[datetime], now: datetime) -> RoutingPlan:
    """Return what of ``waiting`` is sent now; ``sent`` are the times of the messages of the last hour."""
    if not waiting:
        return RoutingPlan()
    ordered = sorted(waiting, key=_urgency)
    if target.max_per_hour is None:
        return RoutingPlan(messages=_alone(ordered))
    # A question is a message of its own, because it may have buttons, and it cannot wait an hour.
    questions = [pending for pending in ordered if pending.notice.topic is Topic.APPROVAL]
    others = [pending for pending in ordered if pending.notice.topic is not Topic.APPROVAL]
    recent = sorted(at for at in sent if at > now - HOUR)
    room = target.max_per_hour - len(recent) - len(questions)
    if room >= len(others):
        return RoutingPlan(messages=_alone(ordered))
    groups = _within(others, room)
    among = {pending.id for group in groups for pending in group}
    rest = tuple(pending for pending in others if pending.id not in among)
    messages = (*_alone(questions), *groups)
    if not rest:
        return RoutingPlan(messages=messages)
    recent += [now] * max(0, target.max_per_hour - len(recent))  # what is sent now takes what room there was
    return RoutingPlan(messages=messages, waiting=rest, until=recent[len(recent) - target.max_per_hour] + HOUR)


def _within(others: Sequence[Pending], room: int) -> Sequence[tuple[Pending, ...]]:
    """Return the messages for which there is room, and those of critical notices, which do not wait for any."""
    fresh = [pending for pending in others if not pending.refusals]
    refused = [pending for pending in others if pending.refusals]
    if room > 0:
        folded = fresh[room - 1 :] if len(fresh) > room else []
        groups = [*_alone(fresh[: len(fresh) - len(folded)]), *([tuple(folded)] if folded else [])]
    else:
        critical = tuple(pending for pending in fresh if is_urgent(pending.notice))
        groups = [critical] if critical else []
    parts = _parts(refused)
    left = max(0, room - len(groups))
    groups += parts[:left]
    # What was refused is no part of a message with what was not, or that would be refused too.
    return [*groups, *_alone([each for part in parts[left:] for each in part if is_urgent(each.notice)])]


def _parts(refused: Sequence[Pending]) -> Sequence[tuple[Pending, ...]]:
    """Return what was refused as messages that are halved each time, until what is at fault stands alone."""
    if not refused:
        return ()
    size = max(1, len(refused) >> max(pending.refusals for pending in refused))
    return [tuple(refused[begin : begin + size]) for begin in range(0, len(refused), size)]


def _alone(each: Sequence[Pending]) -> tuple[tuple[Pending, ...], ...]:
    return tuple((pending,) for pending in each)


def wait_seconds(failures: int) -> float:
    """Return how long a target is left alone that has failed so often in a row."""
    return WAITS[min(max(failures, 1), len(WAITS)) - 1]


def is_dead(pending: Pending, now: datetime) -> bool:
    """Return whether a notice has been tried for long enough."""
    return now - pending.created_at >= DEAD_AFTER


def _urgency(pending: Pending) -> tuple[bool, int, bool, int, int]:
    """Return what orders messages: new questions, then what has failed least often, and of that the most severe.

    What a target refuses again and again so stands behind everything that it has not been given yet. A question whose
    second attempt is due is new: until then it may count as not received.
    """
    is_question = pending.notice.topic is Topic.APPROVAL
    is_new = is_question and pending.attempts < QUESTION_TRIES
    severity = -_LEVELS.index(pending.notice.level)
    return not is_new, pending.attempts, not is_question, severity, pending.id
