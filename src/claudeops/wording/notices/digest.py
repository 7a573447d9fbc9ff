"""The daily sum: what happened since the last one, from what is on record, without a model.

Pure. It is told when nothing happened as well: "quiet" is news, and silence would be none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from claudeops.domain.actions import Recheck
from claudeops.domain.calls import VerdictKind
from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import DeliveryOutcome, Notice, Topic
from claudeops.domain.schedules import Cron, latest_due
from claudeops.domain.sessions import DecisionReason
from claudeops.text import join_names, one_line
from claudeops.wording.notices.texts import in_words

UNTOLD: Final = timedelta(minutes=15)
"""How old the oldest notice may be before the sum tells of it, as `/readyz` does."""

LATE: Final = timedelta(hours=6)
"""How late a sum may come that was due while no daemon ran."""

_LONGEST: Final = timedelta(days=32)  # between two sums
_INSTANT: Final = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """The alert whose chains have cost most."""

    name: str
    service: str
    usd: float
    decisions: int  # about it


@dataclass(frozen=True, kw_only=True, slots=True)
class Sums:
    """What was counted over a time."""

    since: datetime
    chains: int = 0
    sessions: int = 0
    decisions: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, int] = field(default_factory=dict)  # of tool calls
    actions: int = 0
    actions_failed: int = 0
    actions_held: Mapping[str, int] = field(default_factory=dict)  # of those that were looked at again
    booked_usd: float = 0.0
    memories_gained: int = 0
    memories_lost: int = 0
    open_events: Mapping[str, int] = field(default_factory=dict)  # by level
    notices: Mapping[str, int] = field(default_factory=dict)  # by what came of them
    incidents_opened: int = 0
    incidents_resolved: int = 0
    incidents_open: int = 0  # now, whenever they were opened
    noisiest: Noise | None = None
    failed_sessions: int = 0
    holds: tuple[str, ...] = ()  # that keep sessions from starting now
    dead_targets: tuple[str, ...] = ()  # that could be told nothing for a day
    untold_since: datetime | None = None  # since then the oldest notice waits
    now: datetime | None = None  # when this was counted


def due(cron: Cron, now: datetime) -> tuple[datetime, datetime] | None:
    """Return when a sum was due that may still come, and from when on it counts; ``None``: there is none."""
    at = latest_due(cron, after=now - LATE, until=now)
    if at is None:
        return None
    before = latest_due(cron, after=at - _LONGEST, until=at - _INSTANT)
    return at, before or at - _LONGEST


def key_of(at: datetime) -> str:
    """Return the key under which the sum of a due time is told once."""
    return f"digest:{at.isoformat()}"


def digest(sums: Sums, *, at: datetime, daily_budget_usd: float) -> Notice:
    """Return the sum as a notice."""
    looked = f"{_some(sums.chains, 'chain')} ({_some(sums.sessions, 'session')})"
    parts = [f"quiet: {looked}" if _is_quiet(sums) else looked, *_decided(sums), *_incidents(sums), *_acted(sums)]
    if denied := sums.verdicts.get(VerdictKind.DENY.value, 0):
        parts.append(f"{_some(denied, 'call')} denied")
    parts.append(f"${sums.booked_usd:.2f} spent, the daily budget is ${daily_budget_usd:.2f}")
    if sums.memories_gained or sums.memories_lost:
        parts.append(f"memories: {sums.memories_gained} gained, {sums.memories_lost} lost")
    parts += [f"{count} {level} events open" for level in EventLevel if (count := sums.open_events.get(level.value, 0))]
    if failed := sums.notices.get(DeliveryOutcome.FAILED.value, 0) + sums.notices.get(DeliveryOutcome.UNKNOWN.value, 0):
        parts.append(f"{_some(failed, 'notice')} not delivered")
    parts += _own_health(sums)
    text = f"since {sums.since:%Y-%m-%d %H:%M} UTC: {'; '.join(parts)}."
    return Notice(topic=Topic.DIGEST, level=EventLevel.INFO, text=text, key=key_of(at))


def _is_quiet(sums: Sums) -> bool:
    others = sum(count for reason, count in sums.decisions.items() if reason != DecisionReason.HEALTHY.value)
    happened = (others, sums.actions, sums.open_events, sums.incidents_opened, sums.incidents_open)
    return not any(happened) and not _own_health(sums)


def _decided(sums: Sums) -> list[str]:
    return [
        f"{count} {reason.value.replace('_', ' ')}"
        for reason in DecisionReason
        if (count := sums.decisions.get(reason.value, 0))
    ]


def _incidents(sums: Sums) -> list[str]:
    said = []
    if sums.incidents_opened or sums.incidents_resolved or sums.incidents_open:
        opened = _some(sums.incidents_opened, "incident")
        said.append(f"{opened} opened, {sums.incidents_resolved} resolved, {sums.incidents_open} open now")
    if sums.noisiest is not None:
        alert = sums.noisiest
        about = f"{one_line(alert.name)} of {one_line(alert.service)}"
        said.append(f"the noisiest alert: {about}, ${alert.usd:.2f} in {_some(alert.decisions, 'decision')}")
    return said


def _own_health(sums: Sums) -> list[str]:
    """Return what is wrong with the daemon itself."""
    said = [f"{_some(sums.failed_sessions, 'session')} failed"] if sums.failed_sessions else []
    if sums.holds:
        said.append(f"held: {', '.join(sums.holds)}")
    if sums.dead_targets:
        said.append(f"could not be told for a day: {join_names(sums.dead_targets)}")
    if sums.untold_since is not None and sums.now is not None and sums.now - sums.untold_since >= UNTOLD:
        said.append(f"the oldest notice waits for {in_words(sums.now - sums.untold_since)}")
    return said


def _acted(sums: Sums) -> list[str]:
    if not sums.actions:
        return []
    held = sums.actions_held
    said = [f"{held[each.value]} {each.value}" for each in Recheck if held.get(each.value)]
    said += [f"{sums.actions_failed} failed"] if sums.actions_failed else []
    return [_some(sums.actions, "action") + (f" ({', '.join(said)})" if said else "")]


def _some(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
