"""Silences: written, and ended before their time, each with who has done it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, and_, insert, or_, select, update

from claudeops.domain.alerts.alert import AlertState, AlertStatus, Silence
from claudeops.domain.alerts.suppression import silenced_by
from claudeops.errors import StoreError
from claudeops.store.alerts.rows import matchers_text, to_silence, to_state
from claudeops.store.database import Database
from claudeops.store.events import note_deed
from claudeops.store.tables.alerting import alerts, silences
from claudeops.structs import replace


class Silences:
    """Silences, as people write them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, silence: Silence) -> Silence:
        """Write a silence; return it with its number."""
        return await self._database.write(partial(_add, silence=silence))

    async def end(self, number: int, *, by: str, now: datetime) -> Silence | None:
        """End a silence before its time; return it as it is then, ``None`` if there is none.

        One that is over already stays as it was.
        """
        return await self._database.write(partial(_end, number=number, by=by, at=now))

    async def alerts(self, since: datetime) -> Sequence[AlertState]:
        """Return what a silence may hold back: the alerts that fire, or were heard of since a moment."""
        known = select(alerts).where(
            or_(
                alerts.c.status == AlertStatus.FIRING.value,
                and_(alerts.c.status.in_([status.value for status in AlertStatus]), alerts.c.last_seen >= since),
            )
        )
        return await self._database.read(lambda connection: tuple(map(to_state, connection.execute(known))))


def _add(connection: Connection, silence: Silence) -> Silence:
    """Write a silence; return it with its number."""
    values = {
        "matchers": matchers_text(silence.matchers),
        "starts_at": silence.starts_at,
        "ends_at": silence.ends_at,
        "created_by": silence.created_by,
        "created_at": silence.starts_at,
        "comment": silence.comment,
        "suppressed_count": 0,
    }
    key = connection.execute(insert(silences).values(values)).inserted_primary_key
    if key is None:
        raise StoreError("the database gave a new silence no id.")
    kept = replace(silence, id=int(key.id))
    note_deed(connection, silenced_by(kept), at=silence.starts_at)
    return kept


def _end(connection: Connection, number: int, *, by: str, at: datetime) -> Silence | None:
    """End a silence before its time; return it as it is then, ``None`` where there is none.

    One that is over stays as it was.
    """
    row = connection.execute(select(silences).where(silences.c.id == number)).one_or_none()
    if row is None:
        return None
    silence = to_silence(row)
    if at >= silence.ends_at:
        return silence
    connection.execute(update(silences).where(silences.c.id == number).values(ends_at=at, ended_by=by))
    until = f"{silence.ends_at:%Y-%m-%d %H:%M} UTC"
    note_deed(connection, f"{by} has ended silence {number}, which would have held until {until}", at=at)
    return replace(silence, ends_at=at, ended_by=by)
