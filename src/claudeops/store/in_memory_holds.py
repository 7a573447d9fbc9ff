"""How `InMemoryStore` keeps holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claudeops.domain.holds import event_name, has_lapsed, opened
from claudeops.store.holds import hold_values, is_hold, to_hold
from claudeops.store.in_memory_writes import raise_event, resolve_event

if TYPE_CHECKING:
    from datetime import datetime

    from claudeops.domain.holds import Hold, HoldKind
    from claudeops.domain.refusals import Changes
    from claudeops.store.in_memory_tables import PlainTables


def standing(tables: PlainTables, now: datetime) -> tuple[Hold, ...]:
    """Return the holds that are not over, the longest standing first."""
    holds = (hold for hold in map(to_hold, tables.rows("flags", is_hold)) if not has_lapsed(hold, now))
    return tuple(sorted(holds, key=lambda hold: (hold.since, hold.kind)))


def set_hold(tables: PlainTables, hold: Hold, *, now: datetime) -> None:
    """Write a hold in the place of one of its kind; its event is raised if none of its kind stood."""
    clear_lapsed(tables, now)
    stood = tables.rows("flags", lambda row: row.name == hold.kind.value)
    tables.delete("flags", lambda row: row.name == hold.kind.value)
    tables.insert("flags", hold_values(hold, now=now))
    if not stood:
        raise_event(tables, opened(hold), session_id=None, at=now)


def release(tables: PlainTables, kind: HoldKind, *, now: datetime) -> bool:
    """Take a hold away and resolve its event; ``False``: there was none."""
    stood = tables.rows("flags", lambda row: row.name == kind.value)
    tables.delete("flags", lambda row: row.name == kind.value)
    if stood:
        resolve_event(tables, event_name(kind), at=now)
    return bool(stood)


def apply(tables: PlainTables, changes: Changes, *, now: datetime) -> None:
    """Write what the domain says about holds."""
    for kind, hold in changes.items():
        if hold is None:
            release(tables, kind, now=now)
        else:
            set_hold(tables, hold, now=now)


def clear_lapsed(tables: PlainTables, now: datetime) -> None:
    """Release what is over by itself."""
    for hold in map(to_hold, tables.rows("flags", is_hold)):
        if has_lapsed(hold, now):
            release(tables, hold.kind, now=now)
