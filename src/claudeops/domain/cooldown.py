"""The cooldown ledger: whether an action may still run.

An action kind without a limit is never used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from claudeops.domain.model import Action, ActionLimit, PastAction
from claudeops.domain.text import same


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
    window = timedelta(seconds=limit.window_seconds)
    counted = sorted(
        past.at
        for past in ledger
        if past.kind == action.kind and same(past.service, action.service) and past.at > now - window
    )
    if len(counted) < limit.count:
        return None
    used = f"{len(counted)} of {limit.count} allowed within {limit.window_seconds / 3600:g} h are used"
    refusal = f"{action.kind} of {action.service} refused: {used}"
    if limit.count <= 0:
        return refusal + "."
    free_at = counted[-limit.count] + window
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
