"""The cooldown ledger: whether an action may still run.

An action kind without a limit is never used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from claudeops.domain.actions import Action, ActionLimit, PastAction
from claudeops.text import casefold_key, same


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a limit that has been used at all."""

    service: str
    kind: str
    used: int
    count: int  # that the limit allows
    free_at: datetime | None  # when the next one is possible; None: now


def left(
    ledger: Sequence[PastAction], kinds: Iterable[str], limits: Mapping[str, ActionLimit], now: datetime
) -> tuple[Left, ...]:
    """Return what is left of every limit of ``kinds`` that the ledger has touched, the most used-up first."""
    found = []
    for kind in kinds:
        limit = limits.get(kind)
        if limit is None:
            continue
        services = {casefold_key(past.service): past.service for past in ledger if past.kind == kind}
        for service in services.values():
            action = Action(kind=kind, service=service)
            counted = _counted(ledger, action, limit, now)
            if counted:
                found.append(_left(action, limit, counted))
    return tuple(sorted(found, key=lambda each: (each.free_at is None, each.service, each.kind)))


def over_limit(
    ledger: Sequence[PastAction], action: Action, limits: Mapping[str, ActionLimit], now: datetime
) -> str | None:
    """Return the sentence that refuses ``action``, or ``None`` when it may run once more.

    The window slides: an entry counts until it is ``window_seconds`` old. Entries from the future, which
    exist after the clock was set back, count too.
    """
    limit = limits.get(action.kind)
    if limit is None:
        return None
    counted = _counted(ledger, action, limit, now)
    if len(counted) < limit.count:
        return None
    used = f"{len(counted)} of {limit.count} allowed within {limit.window_seconds / 3600:g} h are used"
    refusal = f"{action.kind} of {action.service} refused: {used}"
    if limit.count <= 0:
        return refusal + "."
    free_at = _left(action, limit, counted).free_at
    return f"{refusal}, the next one is possible after {free_at:%Y-%m-%d %H:%M} UTC."


def used_up(
    services: Sequence[str],
    kinds: Iterable[str],
    *,
    limits: Mapping[str, ActionLimit],
    ledger: Sequence[PastAction],
    now: datetime,
) -> bool:
    """Tell whether no action is left for any of the services; False without services or without kinds."""
    actions = [Action(kind=kind, service=service) for service in services for kind in kinds]
    return bool(actions) and all(over_limit(ledger, action, limits, now) for action in actions)


def _counted(ledger: Sequence[PastAction], action: Action, limit: ActionLimit, now: datetime) -> list[datetime]:
    """Return when the actions ran that still count, oldest first."""
    since = now - timedelta(seconds=limit.window_seconds)
    return sorted(
        past.at
        for past in ledger
        if past.kind == action.kind and same(past.service, action.service) and past.at > since
    )


def _left(action: Action, limit: ActionLimit, counted: Sequence[datetime]) -> Left:
    full = 0 < limit.count <= len(counted)
    window = timedelta(seconds=limit.window_seconds)
    return Left(
        service=action.service,
        kind=action.kind,
        used=len(counted),
        count=limit.count,
        free_at=counted[-limit.count] + window if full else None,
    )
