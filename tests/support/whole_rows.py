"""Rows that say something in every column of every table, whatever the tables are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

from claudeops.store.tables.all_tables import metadata
from claudeops.store.tables.columns import CleanText, Count, Usd, UtcDateTime
from support.stores import Database

AT: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

# What closed sets and ranges take; every other column takes any text or number.
FITTING: Final[dict[str, object]] = {
    "sessions.status": "queued",
    "service_checks.status": "healthy",
    "sessions.outcome": None,  # only with the status `ended`
    "extraction_method": "structured",
    "decision_reason": "healthy",
    "level": "info",
    "service_checks.source": "report",
    "verdict": "allow",
    "budget_entries.kind": "reserved",  # settled ones make rows of `settled_sums`
    "confidence": 0.5,
    "trust": "confirmed",
    "role": "viewer",
    "session_texts.kind": "check",
    "probes.state": "up",
    "probe_views.state": "up",
    "held": "held",
    "topic": "event",
    "outbox.result": "delivered",
    "severity": "warning",
    "incidents.status": "open",
    "alerts.status": "firing",
    "alert_decisions.decision": "started",
}

_STRANGE: Final = '{"b" : [1e0,\t2],  "a":"\u2028 \U0001f600 \u00e4 \u007f \\u0000 \ufffd"}\r\n '


_AT_THE_EDGE: Final[dict[type, Callable[[object, int], object]]] = {
    CleanText: lambda value, _: f"{value}{_STRANGE}",
    Count: lambda _, number: number - 2**63,
    Usd: lambda _, number: 0.1 + 0.2 + number,
    sa.Boolean: lambda *_: False,
    sa.Float: lambda _, number: 1e-300 * number,
}


def row(table: sa.Table, number: int) -> dict[str, object]:
    """Return a row that says something in every column; rows of the same number name each other."""
    return {column.name: value_of(column, number) for column in table.columns}


def value_of(column: sa.Column[object], number: int) -> object:
    """Return what the row with a number has in a column."""
    if (fitting := _fitting(column)) is not None:
        return fitting[0]
    if column.foreign_keys or column.name == "id":
        return number
    kind = column.type.impl if isinstance(column.type, TypeDecorator) else column.type
    match kind:
        case sa.DateTime():
            return AT.replace(tzinfo=None, microsecond=number)
        case sa.Boolean():
            return True
        case sa.Integer() | sa.Float() | sa.Numeric():
            return number
        case _:
            return f"{column.name} {number}"


def fill_tables(database: Database, numbers: range) -> None:
    """Write a row of each number into every table: plain ones, ones full of nulls, and ones with values at the edge."""
    with database.connect() as connection:
        for table in metadata.sorted_tables:
            for number in numbers:
                values = {column.name: _kind_of_value(column, number) for column in table.columns}
                connection.execute(sa.insert(table).values(values))
        connection.commit()


def _kind_of_value(column: sa.Column[object], number: int) -> object:
    if number % 3 == 1 and column.nullable and not column.foreign_keys:
        return None
    value = value_of(column, number)
    if isinstance(column.type, UtcDateTime):
        value = AT.replace(microsecond=number * 10_001)
    if number % 3 == 2 or _fitting(column) or column.primary_key:
        return value
    for kind, at_the_edge in _AT_THE_EDGE.items():
        if isinstance(column.type, kind):
            return at_the_edge(value, number)
    return value


def _fitting(column: sa.Column[object]) -> tuple[object] | None:
    """Return the value that fits, if not any does."""
    for name in (f"{column.table.name}.{column.name}", column.name):
        if name in FITTING:
            return (FITTING[name],)
    return None
