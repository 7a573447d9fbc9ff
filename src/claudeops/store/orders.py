"""What operators ask of the daemon, as rows of ``commands``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

from claudeops.domain.orders import Order
from claudeops.store.tables import commands

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from claudeops.domain.orders import OrderName
    from claudeops.store.rows import TableRow


def give(connection: Connection, name: OrderName, *, by: str, now: datetime) -> None:
    """Write what is asked for."""
    order = {"name": name.value, "arguments": "{}", "requested_by": by, "requested_at": now}
    connection.execute(insert(commands).values(order))


def waiting(connection: Connection) -> bool:
    """Tell whether anything is asked for that was not taken."""
    return connection.execute(select(commands.c.id).where(commands.c.taken_at.is_(None)).limit(1)).first() is not None


def take(connection: Connection, *, now: datetime) -> tuple[Order, ...]:
    """Return what was asked for and not taken yet, oldest first; nobody else gets it."""
    rows = connection.execute(select(commands).where(commands.c.taken_at.is_(None)).order_by(commands.c.id)).all()
    if rows:
        taken = update(commands).where(commands.c.id.in_([row.id for row in rows])).values(taken_at=now)
        connection.execute(taken)
    return tuple(map(_to_order, rows))


def end(connection: Connection, order_id: int, *, result: str | None, error: str | None, now: datetime) -> None:
    """Write what came of an order."""
    done = {"ended_at": now, "result": result, "error": error}
    connection.execute(update(commands).where(commands.c.id == order_id).values(done))


def _to_order(row: TableRow) -> Order:
    """Return a row as a value."""
    return Order(id=row.id, name=row.name, requested_by=row.requested_by, requested_at=row.requested_at)
