"""Bodies as senders brought them, whether or not they can be read, and the queue of those to be decided about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from claudeops.domain.alerts.alert import AlertDecision, SenderBody, Unparsed
from claudeops.domain.alerts.register import Backlog, ReceivedBody
from claudeops.errors import StoreError
from claudeops.store.alerts import sources
from claudeops.store.rows import TableRow
from claudeops.store.tables.alerting import alert_decisions, alert_deliveries, alert_queue
from claudeops.text import json_text

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
_WAIT: Final = insert(alert_queue)
_FIRST: Final = select(alert_queue).order_by(alert_queue.c.priority, alert_queue.c.id).limit(bindparam("most"))
_DECIDED: Final = delete(alert_queue).where(alert_queue.c.id == bindparam("of_id"))
_OLDEST: Final = select(alert_queue.c.id, alert_queue.c.received_at).order_by(alert_queue.c.id).limit(1)
_NEWEST: Final = select(func.max(alert_queue.c.id))
_ADD_DECISION: Final = insert(alert_decisions)


_FAILURE: Final = 0  # of a probe
_BODY: Final = 1  # of a sender


class Waiting(msgspec.Struct, frozen=True):
    """A body that is to be decided about."""

    id: int
    delivery_id: int
    received_at: datetime
    said: SenderBody


# --- coming in --------------------------------------------------------------------------------------------


def receive(connection: Connection, bodies: Iterable[ReceivedBody], *, now: datetime) -> list[bool]:
    """Write some bodies, those with alerts as waiting for a decision; return whether each is one that was on record."""
    repeats, waiting, received = [], [], []
    for post in bodies:
        delivery_id, known = deliver(connection, post, now=now)
        received.append((post, delivery_id))
        repeats.append(known)
        if isinstance(post.content, Unparsed):
            unread(connection, delivery_id, f"the body could not be read: {post.content.why}", at=now)
        elif post.content.alerts:
            waiting.append(_to_wait(delivery_id, post.content, _BODY, at=post.received_at))
    if waiting:
        connection.execute(_WAIT, waiting)
    sources.note(connection, received, now=now)
    return repeats


def wait(connection: Connection, delivery_id: int, body: SenderBody, *, at: datetime) -> None:
    """Put failures of probes, which are on record, into the queue, before the bodies of senders."""
    connection.execute(_WAIT, _to_wait(delivery_id, body, _FAILURE, at=at))


def _to_wait(delivery_id: int, body: SenderBody, priority: int, *, at: datetime) -> dict[str, object]:
    return {"delivery_id": delivery_id, "received_at": at, "said": _text(body), "priority": priority}


def _text(said: SenderBody) -> str:
    try:
        return msgspec.json.encode(said).decode()
    except UnicodeEncodeError:  # half a surrogate pair
        return json_text(msgspec.to_builtins(said))


def deliver(connection: Connection, post: ReceivedBody, *, now: datetime) -> tuple[int, bool]:
    """Write a body, or count the row of the same one up; return its id, and whether it was known."""
    said = post.content
    same = {"of_source": said.source, "of_key": said.key, "since": now - SAME_DELIVERY}
    known = connection.execute(_SAME, same).scalar()
    if known is not None:
        connection.execute(_AGAIN, {"delivery": known})
        return int(known), True
    is_read = isinstance(said, SenderBody)
    values = {
        "source": said.source,
        "key": said.key,
        "received_at": post.received_at,
        "raw": post.raw,
        "status": "read" if is_read else "unparsed",
        "remark": (said.remark or None) if isinstance(said, SenderBody) else said.why,
        "alerts": len(said.alerts) if isinstance(said, SenderBody) else 0,
        "left_out": said.left_out if isinstance(said, SenderBody) else 0,
        "repeats": 0,
    }
    key = connection.execute(_DELIVER, values).inserted_primary_key
    if key is None:
        raise StoreError("the database gave a new delivery no id.")
    return int(key.id), False


def unread(connection: Connection, delivery_id: int, because: str, *, at: datetime) -> None:
    """Write the decision about a body of which nothing can be made."""
    undecided(connection, delivery_id, AlertDecision.UNPARSED, because, at=at)


def undecided(connection: Connection, delivery_id: int, decision: AlertDecision, because: str, *, at: datetime) -> None:
    """Write what became of something in a body that makes no alert."""
    row = {"delivery_id": delivery_id, "at": at, "decision": decision.value, "because": because}
    connection.execute(_ADD_DECISION, row)


# --- the queue --------------------------------------------------------------------------------------------


def first(connection: Connection, most: int) -> Sequence[TableRow]:
    """Return the rows of the bodies that have waited longest, in the order in which they came; failures go first."""
    return connection.execute(_FIRST, {"most": most}).all()


_SENDER_BODY: Final = msgspec.json.Decoder(SenderBody)


def understood(row: TableRow) -> Waiting:
    """Return a row of the queue as a value. Raises `msgspec.MsgspecError`."""
    said = _SENDER_BODY.decode(row.said)
    return Waiting(id=row.id, delivery_id=row.delivery_id, received_at=row.received_at, said=said)


def forget(connection: Connection, ids: Iterable[int]) -> None:
    """Take bodies out of the queue, in the transaction that decides about them."""
    if rows := [{"of_id": each} for each in ids]:
        connection.execute(_DECIDED, rows)


def set_aside(connection: Connection, why: str, *, now: datetime) -> str | None:
    """Take the first body out of the queue, with the reason as its decision; return its key."""
    row = next(iter(first(connection, 1)), None)
    if row is None:
        return None
    unread(connection, row.delivery_id, f"it could not be decided about: {why}", at=now)
    forget(connection, [row.id])
    key = select(alert_deliveries.c.key).where(alert_deliveries.c.id == row.delivery_id)
    return str(connection.execute(key).scalar_one())


def backlog(connection: Connection) -> Backlog | None:
    """Return how much waits, by its numbers: to count it would take as long as to read it."""
    row = connection.execute(_OLDEST).one_or_none()
    if row is None:
        return None
    return Backlog(bodies=int(connection.execute(_NEWEST).scalar_one()) - int(row.id) + 1, since=row.received_at)
