"""Bodies as senders brought them, whether or not they can be read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, bindparam, insert, select, update

from claudeops.domain.alerts.model import Delivery
from claudeops.domain.alerts.register import Posted
from claudeops.errors import StoreError
from claudeops.store.tables import alert_deliveries

SAME_DELIVERY: Final = timedelta(minutes=10)
"""In which the same key is the same delivery."""

_SAME: Final = (
    select(alert_deliveries.c.id)
    .where(
        alert_deliveries.c.source == bindparam("of_source"),
        alert_deliveries.c.key == bindparam("of_key"),
        alert_deliveries.c.received_at > bindparam("since"),
    )
    .order_by(alert_deliveries.c.id.desc())
    .limit(1)
)
_AGAIN: Final = (
    update(alert_deliveries)
    .where(alert_deliveries.c.id == bindparam("delivery"))
    .values(repeats=alert_deliveries.c.repeats + 1)
)
_DELIVER: Final = insert(alert_deliveries)


def deliver(connection: Connection, post: Posted, *, now: datetime) -> int:
    """Write a body, or count the row of the same one up; return its id."""
    said = post.said
    same = {"of_source": said.source, "of_key": said.key, "since": now - SAME_DELIVERY}
    known = connection.execute(_SAME, same).scalar()
    if known is not None:
        connection.execute(_AGAIN, {"delivery": known})
        return int(known)
    is_read = isinstance(said, Delivery)
    values = {
        "source": said.source,
        "key": said.key,
        "received_at": post.received_at,
        "raw": post.raw,
        "status": "read" if is_read else "unparsed",
        "remark": (said.remark or None) if isinstance(said, Delivery) else said.why,
        "alerts": len(said.alerts) if isinstance(said, Delivery) else 0,
        "left_out": said.left_out if isinstance(said, Delivery) else 0,
        "repeats": 0,
    }
    key = connection.execute(_DELIVER, values).inserted_primary_key
    if key is None:
        raise StoreError("the database gave a new delivery no id.")
    return int(key.id)
