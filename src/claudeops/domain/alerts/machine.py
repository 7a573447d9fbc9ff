"""What one more message makes of what is kept of an alert, and when a change is news.

Messages come late, twice and out of order, from several nodes of a cluster, and ends may be missing. So each is put in
its place by the sender's own times, and not by its arrival:

- A sender that says when it said something (``reported_at``) is ordered by that; where two times are equal, by arrival.
- Else an alert is a row of episodes. An end counts for the present episode unless it lies before its beginning. A
  beginning is a new episode if it lies after the last end, or clearly (`SAME`) after the last beginning.
- A firing alert whose episode has been resolved is most likely only late: another node repeats it until it knows the
  end. It is *contested*; unless the end comes once more within `LATE`, it fires again. So nothing is lost.
- A message without any time is believed as it comes.

An alert flaps when it changes too often, until it has been quiet. Changes outlive a resolve, which is what a flap is
made of. Two changes that we never saw lie between two episodes without an end between them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from claudeops.domain.alerts.alert import Alert, AlertState, AlertStatus, ReportedState
from claudeops.domain.alerts.rules import FlapRules, rank
from claudeops.structs import replace

SAME: Final = timedelta(minutes=2)
"""By which two nodes may differ about the beginning of one episode."""

LATE: Final = timedelta(minutes=6)
"""For which a node may go on to repeat what is resolved: Alertmanager's group interval, and a minute."""

_MOST_COUNTED: Final = 1_000_000_000  # columns are not endless


class AlertTurn(StrEnum):
    """What a message is to what is kept."""

    BEGINS = "begins"  # a new episode
    REPEATS = "repeats"  # it fires, as was known
    ENDS = "ends"  # it fired, and is resolved
    LATE = "late"  # out of date, or a repetition: it changes nothing
    ENDS_UNSEEN = "ends_unseen"  # resolved, and never known to fire


class AlertStep(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from one message."""

    state: AlertState
    turn: AlertTurn


def step(kept: AlertState | None, alert: Alert, *, source: str, now: datetime, flapping: FlapRules) -> AlertStep:
    """Return what is kept of an alert after one more message."""
    if kept is None:
        return _first(alert, source, now)
    counted = replace(kept, count=min(kept.count + 1, _MOST_COUNTED), last_seen=max(kept.last_seen, now))
    if alert.state is ReportedState.FIRING:
        return _fires(counted, alert, now, flapping)
    return _ends(counted, alert, now, flapping)


def _first(alert: Alert, source: str, now: datetime) -> AlertStep:
    fires = alert.state is ReportedState.FIRING
    state = AlertState(
        source=source,
        fingerprint=alert.fingerprint,
        name=alert.name,
        service=alert.service,
        service_by=alert.service_by,
        severity=alert.severity,
        status=AlertStatus.FIRING if fires else AlertStatus.RESOLVED,
        labels=alert.labels,
        annotations=alert.annotations,
        url=alert.url,
        starts_at=alert.starts_at,
        ends_at=alert.ends_at,
        reported_at=alert.reported_at,
        began=now,
        last_seen=now,
        flips=1 if fires else 0,
        changes=(now,) if fires else (),
    )
    return AlertStep(state=state, turn=AlertTurn.BEGINS if fires else AlertTurn.ENDS_UNSEEN)


# --- it fires ---------------------------------------------------------------------------------------------


def _fires(kept: AlertState, alert: Alert, now: datetime, rules: FlapRules) -> AlertStep:
    if _is_overtaken(kept, alert):
        return AlertStep(state=kept, turn=AlertTurn.LATE)
    if kept.status is AlertStatus.RESOLVED:
        if _is_of_ended_episode(kept, alert):
            return AlertStep(state=replace(kept, contested_at=kept.contested_at or now), turn=AlertTurn.LATE)
        return AlertStep(state=_begun(kept, alert, now, rules, changes=1), turn=AlertTurn.BEGINS)
    if alert.starts_at is not None and kept.starts_at is not None and alert.starts_at > kept.starts_at + SAME:
        return AlertStep(state=_begun(kept, alert, now, rules, changes=2), turn=AlertTurn.BEGINS)
    began = kept.began if kept.fires else now
    again = _merged(kept, alert, status=AlertStatus.FIRING, began=began)
    return AlertStep(state=again, turn=AlertTurn.REPEATS)


def _is_overtaken(kept: AlertState, alert: Alert) -> bool:
    """Return whether the sender has sent something newer before, by its own time.

    Of two equal times the later arrival counts: some senders give the end the time of its problem.
    """
    return kept.reported_at is not None and alert.reported_at is not None and alert.reported_at < kept.reported_at


def _is_of_ended_episode(kept: AlertState, alert: Alert) -> bool:
    """Return whether a beginning is of the episode that has been resolved, or of an older one."""
    if alert.reported_at is not None and kept.reported_at is not None:
        return False  # what is older has been sorted out
    if alert.starts_at is None:
        return False
    if kept.starts_at is not None and alert.starts_at > kept.starts_at + SAME:
        return False
    return kept.ends_at is None or alert.starts_at <= kept.ends_at


def _begun(kept: AlertState, alert: Alert, now: datetime, rules: FlapRules, *, changes: int) -> AlertState:
    """Return an alert in a new episode: all that belonged to the old one is gone, but the changes."""
    merged = replace(_merged(kept, alert), starts_at=alert.starts_at, ends_at=kept.ends_at)
    return replace(
        _changed(merged, now, rules, changes=changes),
        status=AlertStatus.FIRING,
        began=now,
        contested_at=None,
        decision=None,
        due_at=None,
    )


def _merged(kept: AlertState, alert: Alert, **changes: Any) -> AlertState:
    """Return what is kept with the newest words, and the earliest beginning that two nodes give for one episode."""
    starts = [at for at in (kept.starts_at, alert.starts_at) if at is not None]
    times = [at for at in (kept.reported_at, alert.reported_at) if at is not None]
    return replace(
        kept,
        name=alert.name,
        service=alert.service,
        service_by=alert.service_by,
        severity=alert.severity,
        labels=alert.labels,
        annotations=alert.annotations,
        url=alert.url or kept.url,
        starts_at=min(starts, default=None),
        reported_at=max(times, default=None),
        **changes,
    )


# --- it is over -------------------------------------------------------------------------------------------


def _ends(kept: AlertState, alert: Alert, now: datetime, rules: FlapRules) -> AlertStep:
    if kept.status is AlertStatus.RESOLVED:
        latest = max((at for at in (kept.reported_at, alert.reported_at) if at is not None), default=None)
        ended = max((at for at in (kept.ends_at, alert.ends_at) if at is not None), default=None)
        return AlertStep(state=replace(kept, contested_at=None, reported_at=latest, ends_at=ended), turn=AlertTurn.LATE)
    if _is_overtaken(kept, alert) or _is_of_earlier_episode(kept, alert):
        return AlertStep(state=kept, turn=AlertTurn.LATE)
    merged = replace(_merged(kept, alert), severity=max(kept.severity, alert.severity, key=rank))
    ended_state = replace(
        _changed(merged, now, rules, changes=1),
        status=AlertStatus.RESOLVED,
        starts_at=kept.starts_at,
        ends_at=alert.ends_at,
        began=now,
        contested_at=None,
        due_at=None,
    )
    return AlertStep(state=ended_state, turn=AlertTurn.ENDS)


def _is_of_earlier_episode(kept: AlertState, alert: Alert) -> bool:
    if (alert.reported_at is not None and kept.reported_at is not None) or kept.starts_at is None:
        return False
    if alert.ends_at is not None:
        return alert.ends_at < kept.starts_at
    return alert.starts_at is not None and alert.starts_at < kept.starts_at - SAME


# --- changes ----------------------------------------------------------------------------------------------


def _changed(state: AlertState, now: datetime, rules: FlapRules, *, changes: int) -> AlertState:
    """Return an alert that has changed so many times, and whether it flaps now."""
    recent = recent_changes(state, now, rules)
    all_of_them = (*recent, *((now,) * changes))[-max(rules.changes, 2) :]
    return replace(
        state,
        flips=min(state.flips + changes, _MOST_COUNTED),
        changes=all_of_them,
        flapping=flaps(state, now, rules) or len(all_of_them) >= rules.changes,
    )


def recent_changes(state: AlertState, now: datetime, rules: FlapRules) -> tuple[datetime, ...]:
    """Return the changes that count; those of the future were seen by a clock that has been set back."""
    return tuple(each for each in state.changes if now - rules.window < each <= now)


def flaps(state: AlertState, now: datetime, rules: FlapRules) -> bool:
    """Return whether an alert changes too often to be news: it did, and has not been quiet since."""
    if not rules.enabled or not state.flapping or not state.changes:
        return False
    return now - rules.quiet < state.changes[-1] <= now


# --- silence of a sender ----------------------------------------------------------------------------------


def is_stale(state: AlertState, now: datetime, stale_after: timedelta | None) -> bool:
    """Return whether a firing alert has not been repeated for too long."""
    return state.fires and stale_after is not None and now - state.last_seen >= stale_after


def gone_stale(state: AlertState, now: datetime) -> AlertState:
    """Return an alert whose sender has fallen silent about it. That is no end: it is only no longer known to fire."""
    return replace(state, status=AlertStatus.STALE, began=now, due_at=None)


def is_upheld(state: AlertState, now: datetime) -> bool:
    """Return whether a contested alert fires after all: its end has not come once more."""
    at = state.contested_at
    return state.status is AlertStatus.RESOLVED and at is not None and not at <= now < at + LATE


def upheld(state: AlertState, now: datetime, rules: FlapRules) -> AlertState:
    """Return a contested alert as one that fires again."""
    return replace(
        _changed(state, now, rules, changes=1),
        status=AlertStatus.FIRING,
        began=now,
        contested_at=None,
        decision=None,
        due_at=None,
    )
