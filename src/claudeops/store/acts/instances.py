"""The rows of the daemons that run: each writes its own at its start, and is refused where it does not fit the others.

Daemons that share a database must prove answers by one key and judge by one policy: else what people allow at one of
them is nothing at the other, and what one forbids the other does. What else they decide by may differ for a while, as
files are changed on one machine after the other; `claudeops list-nodes` shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Final

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, or_, select

from claudeops.domain.events import DEAD, DIFFERENT, FLEET_MARK, EventLevel, NewEvent
from claudeops.domain.owner import APPROVAL_KEY, OF_A_SITE, OWNER_LEASE, POLICY, Owner, differing
from claudeops.domain.sessions import Status
from claudeops.errors import ConfigurationError
from claudeops.store.events import raise_event, resolve_event
from claudeops.store.rows import TableRow, to_digests
from claudeops.store.session_columns import THEIR_NOW, has_clock
from claudeops.store.tables import HEAD
from claudeops.store.tables.columns import UtcDateTime
from claudeops.store.tables.daemon import instances
from claudeops.store.tables.events import events
from claudeops.store.tables.sessions import sessions
from claudeops.text import clip, json_text

UNSERVED: Final = f"{FLEET_MARK}unserved "
ABSENT: Final = f"{FLEET_MARK}absent "
"""Begin the conditions that sessions wait for a site of which no daemon runs, and for a machine on which none does."""

UNSERVED_AFTER: Final = timedelta(minutes=5)
"""For which a session waits for a site or a machine without a daemon before that is a condition: longer than a start
takes."""

FORGOTTEN_AFTER: Final = timedelta(days=7)
"""After its death a node that has not come back is no condition any more: its machine is gone for good."""

_NAMED_SESSIONS: Final = 5
_IN_ORDER: Final = select(instances).order_by(instances.c.process_started_at, instances.c.owner)
_WAITED_SINCE: Final = func.coalesce(sessions.c.not_before, sessions.c.created_at, type_=UtcDateTime())
_OF_SITE: Final = or_(sessions.c.site.is_(None), instances.c.site == sessions.c.site)
_OF_NODE: Final = or_(sessions.c.for_node.is_(None), instances.c.node == sessions.c.for_node)
_SERVES: Final = select(instances.c.owner).where(or_(instances.c.is_alone, and_(_OF_SITE, _OF_NODE)))
_UNSERVED_SESSIONS: Final = (
    select(sessions.c.id, sessions.c.site, sessions.c.for_node, _WAITED_SINCE.label("since"))
    .where(sessions.c.status == Status.QUEUED.value, ~_SERVES.exists())
    .where(or_(sessions.c.site.is_not(None), sessions.c.for_node.is_not(None)))
)
_WITHOUT_NODE: Final = (
    _UNSERVED_SESSIONS.with_only_columns(sessions.c.site, func.min(_WAITED_SINCE, type_=UtcDateTime()).label("since"))
    .where(sessions.c.for_node.is_(None))
    .group_by(sessions.c.site)
    .order_by(sessions.c.site)
)
_FOR_ABSENT: Final = _UNSERVED_SESSIONS.where(sessions.c.for_node.is_not(None)).order_by(
    sessions.c.for_node, _WAITED_SINCE, sessions.c.id
)
_DEAD: Final = select(events.c.fingerprint, events.c.message).where(
    events.c.resolved_at.is_(None),
    events.c.fingerprint.startswith(DEAD, autoescape=True),
    events.c.last_seen > bindparam("since"),
)
_REMEDIES: Final = {
    APPROVAL_KEY: "its yes to a question would count for nothing there: copy approval.key from the state directory of "
    "{node} into that of this daemon, readable by its user alone",
    POLICY: "what one of them allows the other would refuse: give both the same file in CLAUDEOPS_POLICY_PATH, or stop "
    "{node} first",
}


def register(connection: Connection, owner: Owner, now: datetime, **more: str) -> bool:
    """Write the row of an owner that has none, with its sign of life by the database's clock.

    Returns whether its node counted as dead, which is over.
    """
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
    return resolve_event(connection, _death_of(owner.node), at=now)


def note_dead(
    connection: Connection, dead: Iterable[Owner], living: Collection[str], *, now: datetime
) -> Sequence[str]:
    """Raise an event for each node of a fleet that has died; ``living`` are the nodes that show life.

    Returns the names of those nodes. One that starts again, and sees its predecessor's process gone, has not died.
    """
    nodes = {owner.node: owner for owner in dead if owner.node and not owner.is_alone and owner.node not in living}
    for owner in nodes.values():
        message = (
            f"node {owner.node}{f' of site {owner.site}' if owner.site else ''} (pid {owner.pid}) has stopped without "
            f"departing; its last sign of life is {owner.silent.total_seconds():.0f} s old. The others do its work: "
            "start it again, or leave it, if its machine is gone for good."
        )
        event = NewEvent(level=EventLevel.WARNING, message=message, fingerprint=_death_of(owner.node))
        raise_event(connection, event, session_id=None, at=now)
    return tuple(nodes)


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
        node=row.node or "",
        site=row.site or "",
        is_alone=bool(row.is_alone),
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


def fleet_conditions(connection: Connection, now: datetime) -> tuple[Mapping[str, str], frozenset[str]]:
    """Return what is wrong now, and the names of what is on record; one snapshot has a death in both or none."""
    return fleet_faults(connection, now), open_fleet_faults(connection)


def fleet_faults(connection: Connection, now: datetime) -> Mapping[str, str]:
    """Return what is wrong with the daemons as a whole, a sentence by the name of each condition."""
    faults = {}
    if apart := "; ".join(_apart(connection.execute(_IN_ORDER).all())):
        faults[DIFFERENT] = f"nodes do not decide by the same: {apart}. `claudeops list-nodes` compares them."
    for site, since in connection.execute(_WITHOUT_NODE):
        if since + UNSERVED_AFTER <= now:
            faults[clip(f"{UNSERVED}{site}")] = (
                f"sessions wait for a node of site {site}, the first since {since:%Y-%m-%d %H:%M} UTC, and none runs."
            )
    for node, rows in groupby(connection.execute(_FOR_ABSENT), key=attrgetter("for_node")):
        waiting = list(rows)
        if waiting[0].since + UNSERVED_AFTER <= now:
            faults[clip(f"{ABSENT}{node}")] = _absent(node, waiting)
    dead = connection.execute(_DEAD, {"since": now - FORGOTTEN_AFTER})
    return faults | {row.fingerprint: row.message for row in dead}


def _death_of(node: str) -> str:
    return clip(f"{DEAD}{node}")


def _absent(node: str, waiting: Sequence[TableRow]) -> str:
    """Say what waits for a machine without a daemon, and the way out; a start alone may be impossible."""
    stops = ", ".join(f"`claudeops stop {row.id}`" for row in waiting[:_NAMED_SESSIONS])
    more = f" and {len(waiting) - _NAMED_SESSIONS} more" if len(waiting) > _NAMED_SESSIONS else ""
    one = len(waiting) == 1
    return (
        f"{f'session {waiting[0].id} waits' if one else f'{len(waiting)} sessions wait'} for node {node}, "
        f"{'' if one else 'the first '}since {waiting[0].since:%Y-%m-%d %H:%M} UTC, and no daemon runs there: start "
        f"it, or cancel {'the session' if one else 'the sessions'} with {stops}{more}."
    )


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
