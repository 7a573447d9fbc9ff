"""The rows of the daemons that run: each writes its own at its start, and is refused where it does not fit the others.

Daemons that share a database must prove answers by one key and judge by one policy: else what people allow at one of
them is nothing at the other, and what one forbids the other does. What else they decide by may differ for a while, as
files are changed on one machine after the other; `claudeops list-nodes` shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, delete, insert, select

from claudeops.domain.owner import APPROVAL_KEY, OWNER_LEASE, POLICY, Owner, differing
from claudeops.errors import ConfigurationError
from claudeops.store.rows import TableRow, to_digests
from claudeops.store.session_columns import THEIR_NOW, has_clock
from claudeops.store.tables import HEAD
from claudeops.store.tables.daemon import instances
from claudeops.text import json_text

_REMEDIES: Final = {
    APPROVAL_KEY: "its yes to a question would count for nothing there: copy approval.key from the state directory of "
    "{node} into that of this daemon, readable by its user alone",
    POLICY: "what one of them allows the other would refuse: give both the same file in CLAUDEOPS_POLICY_PATH, or stop "
    "{node} first",
}


def register(connection: Connection, owner: Owner, now: datetime, **more: str) -> None:
    """Write the row of an owner that has none, with its sign of life by the database's clock."""
    values = {
        "owner": owner.name,
        "pid": owner.pid,
        "process_started_at": owner.process_started_at,
        "boot_id": owner.boot_id,
        "pid_namespace": owner.pid_namespace,
        "heartbeat": THEIR_NOW if has_clock(connection) else now,
        "node": owner.node or None,
        "site": owner.site or None,
        "max_tier": owner.max_tier,
        "is_alone": owner.is_alone,
        "version": owner.version or None,
        "revision": HEAD,
    }
    connection.execute(insert(instances).values(values | more))


def forget(connection: Connection, names: Collection[str]) -> None:
    """Remove the rows of owners."""
    connection.execute(delete(instances).where(instances.c.owner.in_(names)))


def known_owners(connection: Connection, now: datetime) -> Sequence[Owner]:
    """Return the owners that have a row, each with its silence."""
    if has_clock(connection):
        return [to_owner(row, row.at) for row in connection.execute(select(instances, THEIR_NOW.label("at")))]
    return [to_owner(row, now) for row in connection.execute(select(instances))]


def to_owner(row: TableRow, at: datetime) -> Owner:
    """Return an ``instances`` row as a value."""
    return Owner(
        name=row.owner,
        pid=row.pid,
        process_started_at=row.process_started_at,
        boot_id=row.boot_id,
        pid_namespace=row.pid_namespace,
        silent=at - row.heartbeat,
    )


def in_row(digests: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return digests as a row has them; nothing where there are none."""
    return {"digests": json_text(dict(digests))} if digests else {}


def refuse_differing(
    connection: Connection, owner: Owner, digests: Mapping[str, str], living: Collection[str], *, now: datetime
) -> None:
    """Raise `ConfigurationError` where another one that lives decides by another key or policy, with the remedy.

    Another version may understand the same policy otherwise, so only those of one version are compared by it. An owner
    whose last sign of life is old keeps nobody away: it may be dead, and its machine gone for good.
    """
    at = {known.name: known for known in known_owners(connection, now)}
    query = select(instances).where(instances.c.owner.in_(living), instances.c.owner != owner.name)
    for row in connection.execute(query.order_by(instances.c.process_started_at, instances.c.owner)):
        if at[row.owner].silent >= OWNER_LEASE:
            continue
        differs = set(differing(digests, to_digests(row)))
        if row.version != owner.version:
            differs.discard(POLICY)
        for name in (APPROVAL_KEY, POLICY):
            if name in differs:
                node = f"node {row.node}" if row.node else f"the daemon with pid {row.pid}"
                raise ConfigurationError(
                    f"this daemon has another {name.replace('_', ' ')} than {node}, which works on the same database, "
                    f"so {_REMEDIES[name].format(node=node)}.",
                    operation="node.join",
                    target=name,
                )
