"""Notices to people: what waits, what was sent to which target, and what failed, and why."""

from __future__ import annotations

from datetime import datetime

import msgspec
from sqlalchemy import Connection, select

from claudeops.domain.events import EventLevel
from claudeops.domain.listing import Listing, Page
from claudeops.domain.notices.notice import UNROUTED, DeliveryOutcome, Topic, decoded
from claudeops.store.reading import page
from claudeops.store.rows import TableRow
from claudeops.store.tables.outbox import outbox


class NoticeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A notice to one target."""

    notice_id: int
    target: str | None  # None: no target has been chosen yet
    topic: Topic
    level: EventLevel | None  # None: the row cannot be read
    text: str  # one sentence
    service: str | None
    incident: int | None  # that it is about
    approval: int | None
    session_id: int | None
    created_at: datetime
    not_before: datetime | None  # it waits until then
    attempts: int
    result: DeliveryOutcome | None  # of the last attempt; None: there was none, or one is under way
    error: str | None  # of the last attempt that failed, or why no target was sent it
    settled_at: datetime | None  # None: it waits


def listed(
    connection: Connection, wanted: Listing, *, target: str | None = None, waiting: bool = False
) -> Page[NoticeEntry]:
    """Return notices, newest first; with ``waiting`` those that are still to be sent."""
    query = select(outbox)
    if target is not None:
        query = query.where(outbox.c.target == target)
    if waiting:
        query = query.where(outbox.c.delivered_at.is_(None))
    return page(connection, query, outbox.c.id, wanted, _entry)


def _entry(row: TableRow) -> NoticeEntry:
    notice = decoded(row.payload)
    return NoticeEntry(
        notice_id=row.id,
        target=None if row.target == UNROUTED else row.target,
        topic=Topic(row.topic),
        level=None if notice is None else notice.level,
        text="" if notice is None else notice.text,
        service=None if notice is None else notice.service or None,
        incident=row.incident_id,
        approval=None if notice is None else notice.approval_id,
        session_id=None if notice is None else notice.session_id,
        created_at=row.created_at,
        not_before=row.not_before,
        attempts=row.attempts,
        result=None if row.result is None else DeliveryOutcome(row.result),
        error=row.error,
        settled_at=row.delivered_at,
    )
