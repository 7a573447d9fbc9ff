"""The daemons that run on the database: where each is, what it is, when it last showed life, and what it has otherwise.

Lives are measured by the database's clock, with which each of them writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from sqlalchemy import Connection, func, select

from claudeops.domain.events import DIFFERENT, FLEET_MARK
from claudeops.domain.owner import differing
from claudeops.store.rows import TableRow, to_digests
from claudeops.store.tables.columns import UtcDateTime
from claudeops.store.tables.daemon import instances, leases
from claudeops.store.tables.events import events

SILENT_SECONDS: Final = 30.0
"""After which a daemon is worth a look: six signs of life did not come."""

_HELD: Final = select(leases.c.name, leases.c.owner).where(leases.c.owner.is_not(None)).order_by(leases.c.name)

_CONDITIONS: Final = (
    select(events.c.message)
    .where(events.c.resolved_at.is_(None), events.c.fingerprint.startswith(FLEET_MARK, autoescape=True))
    .where(events.c.fingerprint != DIFFERENT)
    .order_by(events.c.id)
)


class NodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon."""

    node: str | None  # the machine's name; this and the next three are None where its version does not say them
    site: str | None
    version: str | None  # of claudeops
    revision: str | None  # of the tables, which that version needs
    pid: int
    since: datetime  # when it was started, by its own clock
    seen_at: datetime  # its last sign of life, by the database's clock
    silent_s: float  # since then, by the same clock
    max_tier: int | None  # the highest that it runs; None where its version does not say it
    roles: tuple[str, ...]  # what it does for all, such as `alerts`
    digests: Mapping[str, str]  # of what it decides by; empty where it does not say
    differs: tuple[str, ...]  # what of all this the first in the list has otherwise


def listed(connection: Connection, *, now: datetime) -> Sequence[NodeEntry]:
    """Return the daemons that are registered, the one that was started first at the top.

    ``now`` is what the clock says where the database has none of its own.
    """
    if connection.dialect.name != "sqlite":
        now = connection.execute(select(func.clock_timestamp(type_=UtcDateTime()))).scalar_one()
    rows = connection.execute(select(instances).order_by(instances.c.process_started_at, instances.c.owner)).all()
    each = [_compared(row) for row in rows]
    held = connection.execute(_HELD).all()

    def roles(owner: str) -> tuple[str, ...]:
        return tuple(lease.name for lease in held if lease.owner == owner)

    return tuple(
        _entry(row, tuple(differing(each[0], own)), roles(row.owner), now) for row, own in zip(rows, each, strict=True)
    )


def conditions(connection: Connection) -> Sequence[str]:
    """Return what stands on record about nodes that are not in the list, and about sessions that wait for one."""
    return tuple(connection.execute(_CONDITIONS).scalars())


def _entry(row: TableRow, differs: tuple[str, ...], roles: tuple[str, ...], now: datetime) -> NodeEntry:
    return NodeEntry(
        node=row.node,
        site=row.site,
        version=row.version,
        revision=row.revision,
        pid=row.pid,
        since=datetime.fromtimestamp(row.process_started_at, UTC),
        seen_at=row.heartbeat,
        silent_s=max(0.0, (now - row.heartbeat).total_seconds()),
        max_tier=row.max_tier,
        roles=roles,
        digests=to_digests(row),
        differs=differs,
    )


def _compared(row: TableRow) -> Mapping[str, str]:
    """Return what of a row is compared with others."""
    plain = {"version": row.version, "revision": row.revision}
    return {**{name: value for name, value in plain.items() if value is not None}, **to_digests(row)}
