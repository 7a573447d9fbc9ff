"""A plan: a schedule with what its fires start, and when a fire starts nothing.

Settled here:

- A fire that comes late stands for everything that was missed before it. If it was later than half the way to the next
  due time, and by a minute or more, it stands for that one too: nobody buys the same look twice within a few minutes.
- A fire that is later than its schedule's grace is not made up for. Without a grace it always is: a look that nobody
  made is missing however late it is.
- A schedule that never fired begins with a fire when it has an interval, for it says how often somebody should look.
  One with a crontab line says when, and waits for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.closed_set import ClosedSet
from claudeops.domain.schedules import NEVER, Schedule, fires_at, next_due
from claudeops.domain.schedules.windows import Window, open_at
from claudeops.domain.sessions import DecisionReason, NewSession
from claudeops.structs import replace
from claudeops.text import one_line, unique

LATE: Final = timedelta(minutes=1)
"""The least lateness from which a fire may stand for the next due time."""


class Overlap(StrEnum):
    """What a fire does while a chain of its schedule has not ended."""

    SKIP = "skip"
    QUEUE = "queue"  # one waits for its end
    ALLOW = "allow"


class SchedulePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule and what a fire of it starts."""

    schedule: Schedule
    timezone: str = "UTC"  # IANA name; of the quiet hours
    tier: int = 1
    prompt: str = ""  # what the sessions are asked besides the usual round
    services: tuple[str, ...] = ()  # that they look at; empty: all
    budget_usd: float | None = None  # for the first session of each chain; None: its tier's
    site: str | None = None  # whose nodes run its chains; None: any node may
    quiet_hours: tuple[Window, ...] = ()
    overlap: Overlap = Overlap.SKIP
    grace_seconds: float | None = None  # how late a missed fire is made up for; None: however late
    begins_at_once: bool = True  # the first fire is overdue, instead of waiting for the first due time
    enabled: bool = True
    origin: str = ""  # the file and line that declares it

    @property
    def name(self) -> str:
        """The schedule's name."""
        return self.schedule.name


class LastFire(msgspec.Struct, frozen=True, kw_only=True):
    """The last fires of a schedule that are on record."""

    due_at: datetime  # of the latest one, whatever came of it
    started_due_at: datetime | None = None  # of the latest one that started a chain
    started_at: datetime | None = None  # when it did


class LastRound(msgspec.Struct, frozen=True, kw_only=True):
    """The last chain that a schedule started, once it has ended."""

    reason: DecisionReason  # of its last session
    looked_from: datetime  # when its first session started
    services: tuple[str, ...] = ()  # that its reports named


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """A fire to be recorded."""

    schedule: str
    due_at: datetime
    overlap: Overlap = Overlap.SKIP
    skip: SkipReason | None = None  # why it starts nothing, whatever else is the case
    saved_usd: float | None = None  # what a chain would have cost, by estimate; None: unknown, or nothing is saved


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """Fires that started nothing since a moment."""

    since: datetime
    skipped: Mapping[str, int] = msgspec.field(default_factory=dict)  # by reason
    usd: float = 0.0  # that were saved, by estimate


def last_due(plan: SchedulePlan, last: LastFire | None) -> datetime | None:
    """Return the due time after which a plan is due again; ``None``: it waits for the next one."""
    if last is not None:
        return last.due_at
    return NEVER if plan.begins_at_once else None


def why_not(plan: SchedulePlan, due_at: datetime, last: LastFire | None, now: datetime) -> SkipReason | None:
    """Return why a fire starts nothing, as far as clock and calendar say; ``None``: they do not object."""
    late = now - fires_at(plan.schedule, due_at)
    if plan.grace_seconds is not None and late > timedelta(seconds=plan.grace_seconds):
        return SkipReason.MISSED
    if open_at(plan.quiet_hours, now, plan.timezone) is not None:
        return SkipReason.QUIET_HOURS
    if last is not None and _stands_for(plan, last, due_at):
        return SkipReason.JUST_DONE
    return None


def request(plan: SchedulePlan) -> str | None:
    """Return what the sessions of a plan are asked, beside the usual round; ``None``: nothing."""
    return asked(plan.prompt, plan.services)


def asked(prompt: str, services: Sequence[str]) -> str | None:
    """Return a request in an operator's words, and for a look at some services alone; ``None``: nothing is asked."""
    parts = [prompt.strip()] if prompt.strip() else []
    if services:
        parts.append(f"Look at these services and at no others: {', '.join(map(one_line, services))}.")
    return "\n\n".join(parts) or None


def session_of(plan: SchedulePlan, new: NewSession) -> NewSession:
    """Return the first session of a plan's chain; ``new`` is one of its tier."""
    return replace(
        new,
        prompt_text=request(plan),
        services=unique(map(one_line, plan.services)),
        budget_usd=plan.budget_usd,
        site=plan.site,
    )


def _stands_for(plan: SchedulePlan, last: LastFire, due_at: datetime) -> bool:
    """Tell whether the last chain was started so late that it is this due time's as well."""
    if last.started_due_at is None or last.started_at is None:
        return False
    following = next_due(plan.schedule.cadence, last.started_due_at)
    late = last.started_at - fires_at(plan.schedule, last.started_due_at)
    return due_at == following and late >= max(LATE, (following - last.started_due_at) / 2)


class SkipReason(ClosedSet):
    """Why a due fire started no chain."""

    CHAIN_UNFINISHED = "chain_unfinished", "a chain of this schedule has not ended"
    SUPPRESSED = "suppressed", "the highest tier, dry run or a cooldown forbade it"
    QUIET_HOURS = "quiet_hours", "the schedule's quiet hours"
    MISSED = "missed", "it would have come later than the schedule's grace allows"
    JUST_DONE = "just_done", "the fire before it came so late that it stands for this one too"
    UNCHANGED = "unchanged", "every probe is up, and nothing has changed since a model last looked (tier 0)"
