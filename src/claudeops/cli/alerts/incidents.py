"""``ack``, ``resolve`` and ``silence``: what a person says of alerts and incidents.

All of them work with and without a running daemon, which sees the changes in the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from claudeops.cli.operator import CommandResult, not_found, now, operators_name, refused, run_on_database
from claudeops.cli.views.incidents import silence_text
from claudeops.domain.alerts.matchers import Matcher
from claudeops.domain.alerts.model import AlertState, Incident, IncidentStatus, Silence
from claudeops.domain.alerts.suppression import preview
from claudeops.domain.gate.approval import visible
from claudeops.domain.text import join_names
from claudeops.domain.text.answers import plain
from claudeops.settings import Settings
from claudeops.store.reading.silences import to_entry
from claudeops.store.store import SqlStore

LOOKED_BACK: Final = timedelta(days=7)
"""For which a silence's preview looks back."""

_SHOWN: Final = 10  # alerts that a preview names


def acknowledge(number: int, *, as_json: bool) -> int:
    """Note that whoever asks is on an incident; return the exit status."""

    async def note(_settings: Settings, store: SqlStore) -> CommandResult:
        found = await store.alerts.acknowledge(number, by=operators_name(), now=now())
        if found is None:
            return _unknown(number)
        if found.status is IncidentStatus.RESOLVED:
            return refused("ack", str(number), f"Incident {number} is over already.")
        return _changed(found, f"{found.acked_by} is on it; what else comes about it starts nothing")

    return run_on_database("ack", note, as_json=as_json, target=str(number))


def resolve(number: int, *, as_json: bool) -> int:
    """Note that whoever asks says that an incident is over; return the exit status."""

    async def note(_settings: Settings, store: SqlStore) -> CommandResult:
        found = await store.alerts.resolve(number, by=operators_name(), now=now())
        return _unknown(number) if found is None else _changed(found, "it is over")

    return run_on_database("resolve", note, as_json=as_json, target=str(number))


def silence(matchers: tuple[Matcher, ...], *, lasts: timedelta, comment: str, only_preview: bool, as_json: bool) -> int:
    """Silence what fits the matchers for a while, or only say what that would be; return the exit status."""

    async def add(_settings: Settings, store: SqlStore) -> CommandResult:
        at = now()
        wanted = Silence(
            id=0,
            matchers=matchers,
            starts_at=at,
            ends_at=at + lasts,
            created_by=operators_name(),
            comment=comment,
        )
        known = await store.alerts.lately(at - LOOKED_BACK)
        kept = wanted if only_preview else await store.alerts.silence(wanted)
        return _silenced(kept, known, at, is_kept=not only_preview)

    return run_on_database("silence", add, as_json=as_json)


def end_silence(number: int, *, as_json: bool) -> int:
    """End a silence before its time; return the exit status."""

    async def end(_settings: Settings, store: SqlStore) -> CommandResult:
        at = now()
        found = await store.alerts.end_silence(number, by=operators_name(), now=at)
        if found is None:
            message = f"there is no silence {number}; `claudeops list-silences --all` shows them"
            return not_found("silence_not_found", str(number), message)
        if found.ends_at < at:
            return refused("end-silence", str(number), f"Silence {number} is over already.")
        return CommandResult(
            text=f"silence {number} is over; what it has held back and still fires is decided about now",
            body={"handled": True, "silence": plain(to_entry(found))},
        )

    return run_on_database("end-silence", end, as_json=as_json, target=str(number))


def _silenced(silence: Silence, known: Sequence[AlertState], at: datetime, *, is_kept: bool) -> CommandResult:
    seen = preview(silence, known, since=at - LOOKED_BACK)
    names = {state.key: f"{state.name} of {state.service}" for state in known}
    now_names = [visible(names[key]) for key in seen.now[:_SHOWN]]
    more = f" and {len(seen.now) - _SHOWN} more" if len(seen.now) > _SHOWN else ""
    head = silence_text(to_entry(silence)) if is_kept else "nothing was silenced; this silence"
    text = (
        f"{head}\n  holds back now: {join_names(now_names) or 'nothing'}{more}\n"
        f"  would have held back within 7 days: {len(seen.before)} more alerts"
    )
    return CommandResult(
        text=text,
        body={
            "handled": is_kept,
            "silence": plain(to_entry(silence)),
            "now_count": len(seen.now),
            "before_count": len(seen.before),
            "now": now_names,
        },
    )


def _changed(incident: Incident, what: str) -> CommandResult:
    return CommandResult(
        text=f"incident {incident.number}: {what}",
        body={
            "incident": incident.number,
            "handled": True,
            "status": incident.status.value,
            "acked_by": incident.acked_by or None,
            "resolved_at": incident.resolved_at,
        },
    )


def _unknown(number: int) -> CommandResult:
    message = f"there is no incident {number}; `claudeops list-incidents --all` shows them"
    return not_found("incident_not_found", str(number), message)
