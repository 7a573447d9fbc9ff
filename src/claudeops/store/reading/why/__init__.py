"""Why nothing was done about a service: everything on record that explains it, in the order of time.

Where a service is named, its own record counts and what concerns every service: fires of schedules, holds, what is
wrong with the daemon, rounds that looked at everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection

from claudeops.domain.why import Reason, Why, WhyKind
from claudeops.store.reading.why import beside_sessions
from claudeops.store.reading.why import sessions as of_sessions
from claudeops.store.reading.why.beside_sessions import OpenQuestion
from claudeops.structs import replace

_BEFORE: Final = (timedelta(days=1), timedelta(days=7), timedelta(days=30))
"""How far back the last thing on record is looked for, each time further."""


def reasons(connection: Connection, *, service: str | None, since: datetime, until: datetime, limit: int) -> Why:
    """Return the reasons from ``since`` on and before ``until``, of any spelling of a service; at most ``limit``.

    Of more, the latest are returned, after all that began before the time and held in it.
    """
    asked = OpenQuestion(connection=connection, service=service, since=since, until=until, limit=limit)
    seen = of_sessions.sessions_of(asked)
    own = list(_own(asked, seen))
    found = [*_common(asked, seen), *own]
    silent = not own and (service is not None or not found)
    return Why(
        service=service,
        since=since,
        until=until,
        reasons=_latest(found, asked),
        cut=len(found) > limit,
        silent=silent,
        before=_before(asked) if silent else None,
    )


def _own(asked: OpenQuestion, seen: of_sessions.Sessions) -> Iterator[Reason]:
    """Yield what is about the service itself; of one moment, what comes first leads to the rest."""
    alerted = list(beside_sessions.alerted(asked))
    yield from alerted
    yield from beside_sessions.silenced(asked)
    yield from of_sessions.begun(asked, seen.own)
    yield from beside_sessions.checked(asked)
    yield from beside_sessions.probes_failed(asked)
    yield from of_sessions.refused(asked, seen)
    yield from beside_sessions.acted(asked)
    yield from of_sessions.unanswered(asked, seen)
    yield from of_sessions.ended(asked, seen.own)
    numbers = [*(one.incident for one in alerted), *(row.incident_id for row in seen.own.values())]
    yield from beside_sessions.raised(asked, [number for number in numbers if number is not None])


def _common(asked: OpenQuestion, seen: of_sessions.Sessions) -> Iterator[Reason]:
    """Yield what concerns every service."""
    yield from beside_sessions.fires(asked)
    yield from beside_sessions.holds(asked)
    yield from beside_sessions.faults(asked)
    yield from beside_sessions.probes_standing(asked)
    yield from of_sessions.begun(asked, seen.rounds)
    yield from of_sessions.ended(asked, seen.rounds)


def _latest(found: Iterable[Reason], asked: OpenQuestion) -> tuple[Reason, ...]:
    """Return the reasons in order: of those within the time the latest, all others if there is room."""
    ordered = sorted(found, key=lambda one: one.at)
    held = [one for one in ordered if one.at < asked.since][-asked.limit :]
    room = asked.limit - len(held)
    within = [one for one in ordered if one.at >= asked.since]
    return (*held, *within[len(within) - room if len(within) > room else 0 :])


def _before(asked: OpenQuestion) -> Reason | None:
    """Return what is last on record about the service before the time."""
    for age in _BEFORE:
        earlier = replace(asked, since=asked.since - age, until=asked.since, limit=1)
        seen = of_sessions.sessions_of(earlier)
        found = list(_own(earlier, seen))
        if asked.service is None:
            found += [one for one in _common(earlier, seen) if one.kind is not WhyKind.HOLD]
        within = [one for one in found if one.at < asked.since]
        if within:
            return max(within, key=lambda one: one.at)
    return None
