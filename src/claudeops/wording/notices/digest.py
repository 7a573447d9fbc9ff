"""The daily digest: what happened since the last one, from what is on record, without a model.

Pure. It is sent even when nothing happened, so that silence means that the daemon is dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from claudeops.domain.actions import Recheck
from claudeops.domain.calls import VerdictKind
from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import DeliveryOutcome, Notice, Topic
from claudeops.domain.schedules import Cron, latest_due
from claudeops.domain.sessions import DecisionReason
from claudeops.text import join_names, one_line
from claudeops.wording.notices.texts import in_words

UNSENT_AFTER: Final = timedelta(minutes=15)
"""How old the oldest notice may be before the digest names it, as `/readyz` does."""

LATE: Final = timedelta(hours=6)
"""How late a digest may come that was due while no daemon ran."""

_LONGEST: Final = timedelta(days=32)  # between two digests
_INSTANT: Final = timedelta(microseconds=1)


class NoisiestAlert(msgspec.Struct, frozen=True, kw_only=True):
    """The alert whose chains have cost most."""

    name: str
    service: str
    usd: float
    decisions: int  # about it


class DigestFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted over a time."""

    since: datetime
    chains: int = 0
    sessions: int = 0
    decisions: Mapping[str, int] = msgspec.field(default_factory=dict)
    verdicts: Mapping[str, int] = msgspec.field(default_factory=dict)  # of tool calls
    actions: int = 0
    actions_failed: int = 0
    actions_held: Mapping[str, int] = msgspec.field(default_factory=dict)  # of those that were looked at again
    booked_usd: float = 0.0
    memories_gained: int = 0
    memories_lost: int = 0
    open_events: Mapping[str, int] = msgspec.field(default_factory=dict)  # by level
    notices: Mapping[str, int] = msgspec.field(default_factory=dict)  # by what came of them
    incidents_opened: int = 0
    incidents_resolved: int = 0
    incidents_open: int = 0  # now, whenever they were opened
    noisiest: NoisiestAlert | None = None
    failed_sessions: int = 0
    holds: tuple[str, ...] = ()  # that keep sessions from starting now
    dead_targets: tuple[str, ...] = ()  # to which nothing could be delivered for a day
    unsent_since: datetime | None = None  # since then the oldest notice waits
    now: datetime | None = None  # when this was counted


def due(cron: Cron, now: datetime) -> tuple[datetime, datetime] | None:
    """Return when a digest was due that may still come, and from when on it counts; ``None``: there is none."""
    at = latest_due(cron, after=now - LATE, until=now)
    if at is None:
        return None
    before = latest_due(cron, after=at - _LONGEST, until=at - _INSTANT)
    return at, before or at - _LONGEST


def key_of(at: datetime) -> str:
    """Return the key under which the digest of a due time is sent once."""
    return f"digest:{at.isoformat()}"


def digest(figures: DigestFigures, *, at: datetime, daily_budget_usd: float) -> Notice:
    """Return the digest as a notice."""
    looked = f"{_some(figures.chains, 'chain')} ({_some(figures.sessions, 'session')})"
    parts = [
        f"quiet: {looked}" if _is_quiet(figures) else looked,
        *_decided(figures),
        *_incidents(figures),
        *_acted(figures),
    ]
    if denied := figures.verdicts.get(VerdictKind.DENY.value, 0):
        parts.append(f"{_some(denied, 'call')} denied")
    parts.append(f"${figures.booked_usd:.2f} spent, the daily budget is ${daily_budget_usd:.2f}")
    if figures.memories_gained or figures.memories_lost:
        parts.append(f"memories: {figures.memories_gained} gained, {figures.memories_lost} lost")
    parts += [
        f"{count} {level} events open" for level in EventLevel if (count := figures.open_events.get(level.value, 0))
    ]
    if failed := figures.notices.get(DeliveryOutcome.FAILED.value, 0) + figures.notices.get(
        DeliveryOutcome.UNKNOWN.value, 0
    ):
        parts.append(f"{_some(failed, 'notice')} not delivered")
    parts += _own_health(figures)
    text = f"since {figures.since:%Y-%m-%d %H:%M} UTC: {'; '.join(parts)}."
    return Notice(topic=Topic.DIGEST, level=EventLevel.INFO, text=text, key=key_of(at))


def _is_quiet(figures: DigestFigures) -> bool:
    others = sum(count for reason, count in figures.decisions.items() if reason != DecisionReason.HEALTHY.value)
    happened = (others, figures.actions, figures.open_events, figures.incidents_opened, figures.incidents_open)
    return not any(happened) and not _own_health(figures)


def _decided(figures: DigestFigures) -> list[str]:
    return [
        f"{count} {reason.value.replace('_', ' ')}"
        for reason in DecisionReason
        if (count := figures.decisions.get(reason.value, 0))
    ]


def _incidents(figures: DigestFigures) -> list[str]:
    parts = []
    if figures.incidents_opened or figures.incidents_resolved or figures.incidents_open:
        opened = _some(figures.incidents_opened, "incident")
        parts.append(f"{opened} opened, {figures.incidents_resolved} resolved, {figures.incidents_open} open now")
    if figures.noisiest is not None:
        alert = figures.noisiest
        about = f"{one_line(alert.name)} of {one_line(alert.service)}"
        parts.append(f"the noisiest alert: {about}, ${alert.usd:.2f} in {_some(alert.decisions, 'decision')}")
    return parts


def _own_health(figures: DigestFigures) -> list[str]:
    """Return what is wrong with the daemon itself."""
    parts = [f"{_some(figures.failed_sessions, 'session')} failed"] if figures.failed_sessions else []
    if figures.holds:
        parts.append(f"held: {', '.join(figures.holds)}")
    if figures.dead_targets:
        parts.append(f"could not be told for a day: {join_names(figures.dead_targets)}")
    if (
        figures.unsent_since is not None
        and figures.now is not None
        and figures.now - figures.unsent_since >= UNSENT_AFTER
    ):
        parts.append(f"the oldest notice waits for {in_words(figures.now - figures.unsent_since)}")
    return parts


def _acted(figures: DigestFigures) -> list[str]:
    if not figures.actions:
        return []
    held = figures.actions_held
    parts = [f"{held[each.value]} {each.value}" for each in Recheck if held.get(each.value)]
    parts += [f"{figures.actions_failed} failed"] if figures.actions_failed else []
    return [_some(figures.actions, "action") + (f" ({', '.join(parts)})" if parts else "")]


def _some(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
