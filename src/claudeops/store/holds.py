"""Holds as rows of ``flags``: set, released, and asked for in the transaction of every claim."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime  # noqa: TC003 - msgspec reads the annotation
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import delete, insert, select, update

from claudeops.domain.holds import Hold, HoldKind, event_name, has_lapsed, opened
from claudeops.store.events import raise_event, resolve_event
from claudeops.store.tables import flags

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from claudeops.store.rows import TableRow

_KINDS: Final = tuple(kind.value for kind in HoldKind)


class _Kept(msgspec.Struct, omit_defaults=True):
    """What ``flags.value`` holds of a hold, as JSON."""

    since: datetime | None = None
    failures: int = 1
    probe: int | None = None


def hold_values(hold: Hold, *, now: datetime) -> dict[str, object]:
    """Return the columns of a hold."""
    kept = _Kept(since=hold.since, failures=hold.failures, probe=hold.probe)
    return {
        "name": hold.kind.value,
        "value": msgspec.json.encode(kept).decode(),
        "reason": hold.reason,
        "until": hold.until,
        "updated_at": now,
        "updated_by": hold.by,
    }


def to_hold(row: TableRow) -> Hold:
    """Return a row as a hold; one whose value cannot be read holds all the same."""
    try:
        kept = msgspec.json.decode(row.value, type=_Kept)
    except msgspec.DecodeError:
        kept = _Kept()
    return Hold(
        kind=HoldKind(row.name),
        reason=row.reason or "no reason was given",
        since=kept.since or row.updated_at,
        until=row.until,
        by=row.updated_by,
        failures=kept.failures,
        probe=kept.probe,
    )


def is_hold(row: TableRow) -> bool:
    """Tell a hold from other flags."""
    return row.name in _KINDS


def standing(connection: Connection, now: datetime) -> tuple[Hold, ...]:
    """Return the holds that are not over, the longest standing first."""
    rows = connection.execute(select(flags).where(flags.c.name.in_(_KINDS)))
    holds = (hold for hold in map(to_hold, rows) if not has_lapsed(hold, now))
    return tuple(sorted(holds, key=lambda hold: (hold.since, hold.kind)))


def set_hold(connection: Connection, hold: Hold, *, now: datetime) -> None:
    """Write a hold in the place of one of its kind; its event is raised if none of its kind stood."""
    clear_lapsed(connection, now)
    stood = connection.execute(delete(flags).where(flags.c.name == hold.kind.value)).rowcount
    connection.execute(insert(flags).values(hold_values(hold, now=now)))
    if not stood:
        raise_event(connection, opened(hold), session_id=None, at=now)


def release(connection: Connection, kind: HoldKind, *, now: datetime) -> bool:
    """Take a hold away and resolve its event; ``False``: there was none."""
    released = connection.execute(delete(flags).where(flags.c.name == kind.value)).rowcount > 0
    if released:
        resolve_event(connection, event_name(kind), at=now)
    return released


def begin_probe(connection: Connection, session_id: int, *, now: datetime) -> None:
    """Note that a session tries for all: until it is known what became of it, nobody else starts."""
    for hold in standing(connection, now):
        values = hold_values(replace(hold, probe=session_id), now=now)
        connection.execute(update(flags).where(flags.c.name == hold.kind.value).values(values))


def clear_lapsed(connection: Connection, now: datetime) -> None:
    """Release what is over by itself."""
    rows = connection.execute(select(flags).where(flags.c.name.in_(_KINDS), flags.c.until <= now)).all()
    for hold in map(to_hold, rows):
        if has_lapsed(hold, now):
            release(connection, hold.kind, now=now)
