"""How `InMemoryStore` removes what is too old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claudeops.domain.expiry import Aged
from claudeops.domain.model import Status
from claudeops.store.expiry import LONG_TEXTS, references
from claudeops.store.tables import metadata
from claudeops.store.tombstones import RETENTION, bury_in_memory

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from types import SimpleNamespace

    from claudeops.domain.expiry import Cutoffs
    from claudeops.store.in_memory_tables import PlainTables


def expire(tables: PlainTables, aged: Aged, *, cutoffs: Cutoffs, now: datetime, rows: int) -> int:
    """Remove what is too old of a kind; a chain is never cut in two, as nobody waits here."""
    match aged:
        case Aged.CHAINS:
            return _remove_chains(tables, cutoffs.audit, now=now, rows=rows)
        case Aged.TEXTS:
            return _shorten(tables, cutoffs.details, rows)
        case Aged.CHECKS:
            return _remove_checks(tables, cutoffs.details, rows)
        case Aged.EVENTS:
            return _remove_events(tables, cutoffs.details, rows)
        case Aged.FIRES:
            return _remove_fires(tables, cutoffs.audit, rows)


def _remove_chains(tables: PlainTables, before: datetime, *, now: datetime, rows: int) -> int:
    open_ones = {row.root_session_id for row in tables.rows("sessions") if not _ended_before(row, before)}
    roots = sorted({row.root_session_id for row in tables.rows("sessions")} - open_ones)[:rows]
    ids = [row.id for row in tables.rows("sessions", lambda row: row.root_session_id in roots)]
    bury_in_memory(tables, ids, reason=RETENTION, at=now)
    return _delete(tables, "sessions", ids)


def _ended_before(row: SimpleNamespace, before: datetime) -> bool:
    return bool(row.status == Status.ENDED.value and row.ended_at < before)


def _shorten(tables: PlainTables, before: datetime, limit: int) -> int:
    old = tables.rows(
        "sessions",
        lambda row: _ended_before(row, before) and any(getattr(row, name) is not None for name in LONG_TEXTS),
    )
    for row in old[:limit]:
        tables.update("sessions", row, dict.fromkeys(LONG_TEXTS))
    return len(old[:limit])


def _remove_checks(tables: PlainTables, before: datetime, limit: int) -> int:
    latest = {row.service: row.id for row in tables.rows("service_checks")}
    old = tables.rows("service_checks", lambda row: row.checked_at < before and row.id != latest[row.service])
    return _delete(tables, "service_checks", [row.id for row in old[:limit]])


def _remove_events(tables: PlainTables, before: datetime, limit: int) -> int:
    old = tables.rows("events", lambda row: row.resolved_at is not None and row.resolved_at < before)
    return _delete(tables, "events", [row.id for row in old[:limit]])


def _remove_fires(tables: PlainTables, before: datetime, limit: int) -> int:
    fires = tables.rows("schedule_fires")
    latest = {schedule: max(row.due_at for row in fires if row.schedule == schedule) for schedule in _schedules(fires)}
    old = [row for row in fires if row.due_at < before and row.due_at != latest[row.schedule]][:limit]
    tables.delete("schedule_fires", lambda row: any(row is gone for gone in old))
    return len(old)


def _schedules(fires: Collection[SimpleNamespace]) -> set[str]:
    return {row.schedule for row in fires}


def _delete(tables: PlainTables, table: str, ids: Collection[int]) -> int:
    for column in references(metadata.tables[table]):
        name, other = column.name, column.table.name
        if other == table:
            continue
        if not column.nullable:
            tables.delete(other, lambda row, name=name: getattr(row, name) in ids)  # type: ignore[misc]
            continue
        for row in tables.rows(other, lambda row, name=name: getattr(row, name) in ids):  # type: ignore[misc]
            tables.update(other, row, {name: None})
    tables.delete(table, lambda row: row.id in ids)
    return len(ids)
