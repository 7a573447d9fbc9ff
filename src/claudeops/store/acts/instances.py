"""The rows of the daemons that run: each writes its own at its start, and is refused where it does not fit the others.

Daemons that share a database must prove answers by one key and judge by one policy: else what people allow at one of
them is nothing at the other, and what one forbids the other does. What else they decide by may differ for a while, as
files are changed on one machine after the other; `claudeops list-nodes` shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, delete, func, insert, or_, select

from claudeops.domain.events import FLEET_MARK
from claudeops.domain.owner import APPROVAL_KEY, OF_A_SITE, OWNER_LEASE, POLICY, Owner, differing
from claudeops.domain.sessions import Status
from claudeops.errors import ConfigurationError
from claudeops.store.rows import TableRow, to_digests
from claudeops.store.session_columns import THEIR_NOW, has_clock
from claudeops.store.tables import HEAD
from claudeops.store.tables.columns import UtcDateTime
from claudeops.store.tables.daemon import instances
from claudeops.store.tables.events import events
from claudeops.store.tables.sessions import sessions
from claudeops.text import clip, json_text

DIFFERENT: Final = f"{FLEET_MARK}different"
"""The condition that daemons that share the database decide by different things."""

UNSERVED_AFTER: Final = timedelta(minutes=5)
"""For which a session waits for a site without a daemon before that is a condition: longer than a start takes."""

_UNSERVED: Final = f"{FLEET_MARK}unserved "
_IN_ORDER: Final = select(instances).order_by(instances.c.process_started_at, instances.c.owner)
_WAITED_SINCE: Final = func.min(func.coalesce(sessions.c.not_before, sessions.c.created_at), type_=UtcDateTime())
_SERVES: Final = select(instances.c.owner).where(or_(instances.c.is_alone, instances.c.site == sessions.c.site))
_WITHOUT_NODE: Final = (
    select(sessions.c.site, _WAITED_SINCE.label("since"))
    .where(sessions.c.status == Status.QUEUED.value, sessions.c.site.is_not(None), ~_SERVES.exists())
    .group_by(sessions.c.site)
    .order_by(sessions.c.site)
)
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


def fleet_faults(connection: Connection, now: datetime) -> Mapping[str, str]:
    """Return what is wrong with the daemons as a whole, a sentence by the name of each condition."""
    faults = {}
    if apart := "; ".join(_apart(connection.execute(_IN_ORDER).all())):
        faults[DIFFERENT] = f"nodes do not decide by the same: {apart}. `claudeops list-nodes` compares them."
    for site, since in connection.execute(_WITHOUT_NODE):
        if since + UNSERVED_AFTER <= now:
            faults[clip(f"{_UNSERVED}{site}")] = (
                f"sessions wait for a node of site {site}, the first since {since:%Y-%m-%d %H:%M} UTC, and none runs."
            )
    return faults


def open_fleet_faults(connection: Connection) -> frozenset[str]:
    """Return the names of those conditions that are on record and not over."""
    named = events.c.fingerprint.startswith(FLEET_MARK, autoescape=True)
    still_open = select(events.c.fingerprint).where(events.c.resolved_at.is_(None), named)
    return frozenset(connection.execute(still_open).scalars())


def _apart(rows: Sequence[TableRow]) -> Iterator[str]:
    """Say of each daemon what the first one has otherwise; of what a site has for itself, the first one there."""
    for row in rows:
        own = to_digests(row)
        of_site = next(each for each in rows if each.site == row.site)
        differs = {name for name in differing(to_digests(rows[0]), own) if name not in OF_A_SITE}
        differs |= {name for name in differing(to_digests(of_site), own) if name in OF_A_SITE}
        if differs:
            first = of_site if differs <= OF_A_SITE else rows[0]
            yield f"{_named(row)} and {_named(first)} ({', '.join(sorted(differs))})"


def _named(row: TableRow) -> str:
    return row.node or f"pid {row.pid}"
