"""Services under repair: each is one chain's at a time, by a lease that the chain owns.

A chain takes the lease in the transaction of the verdict that allows its first action on the service, and gives it back
in the one that ends it. Meanwhile the sign of life of the daemon that runs it renews the lease, and that of any daemon
where it waits in the queue. After a death it ends by itself; whoever stops the chain frees its services.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Integer, bindparam, cast, exists, func, or_, select, update

from claudeops.domain.actions import ServiceLease
from claudeops.domain.owner import SERVICE_SECONDS, service_lease
from claudeops.domain.sessions import Outcome, Session, Status
from claudeops.store.leases import take
from claudeops.store.rows import TableRow
from claudeops.store.tables.columns import Name, UtcDateTime
from claudeops.store.tables.daemon import leases
from claudeops.store.tables.sessions import cooldown_actions, sessions
from claudeops.text import clip

_LEASES: Final = leases.c
_IS_SERVICE: Final = _LEASES.name.like(f"{service_lease('')}%")
_OF_SERVICES: Final = select(leases).where(_IS_SERVICE, _LEASES.owner.is_not(None)).order_by(_LEASES.name)
_FREE: Final = update(leases).values(owner=None, ends_at=datetime(1970, 1, 1, tzinfo=UTC))
"""For whoever comes next, also by a clock that was set back meanwhile."""

_ACTED: Final = (
    select(func.min(cooldown_actions.c.timestamp, type_=UtcDateTime()))
    .join(sessions, sessions.c.id == cooldown_actions.c.session_id)
    .where(
        sessions.c.root_session_id == bindparam("chain", type_=Integer),
        cooldown_actions.c.service == bindparam("service"),
    )
)
_RUNS: Final = exists().where(
    sessions.c.root_session_id == bindparam("chain", type_=Integer), sessions.c.status == Status.RUNNING.value
)
_IS_LOST: Final = exists().where(
    sessions.c.id == bindparam("ended", type_=Integer), sessions.c.outcome == Outcome.LOST.value
)
_ALIVE: Final = select(cast(sessions.c.root_session_id, Name)).where(
    or_(
        sessions.c.status == Status.QUEUED.value,
        (sessions.c.status == Status.RUNNING.value) & (sessions.c.owner == bindparam("daemon")),
    )
)


def take_services(
    connection: Connection, services: Iterable[str], chain: int, *, now: datetime
) -> Mapping[str, ServiceLease]:
    """Take or renew the leases of some services for a chain, all or none; return those that other chains have."""
    names = {_name(service): service for service in services}
    mine = take(connection, names, str(chain), now=now, seconds=SERVICE_SECONDS)
    if len(mine) == len(names):
        return {}
    for name in mine:
        if _acted_at(connection, names[name], chain) is None:  # it was taken just now
            connection.execute(_FREE.where(_LEASES.name == name))
    return in_other_hands(connection, names.values(), chain, now=now)


def in_other_hands(
    connection: Connection, services: Iterable[str], chain: int, *, now: datetime
) -> Mapping[str, ServiceLease]:
    """Return the leases that other chains have of some services."""
    names = {_name(service): service for service in services}
    named = (_LEASES.name.in_(sorted(names)), _LEASES.owner != str(chain), _LEASES.ends_at > _now(connection, now))
    found = connection.execute(select(leases).where(*named)).all()
    return {names[row.name]: _to_lease(connection, row) for row in found}


def held(connection: Connection, *, now: datetime) -> Sequence[ServiceLease]:
    """Return the services under repair, by name."""
    rows = connection.execute(_OF_SERVICES.where(_LEASES.ends_at > _now(connection, now))).all()
    return [_to_lease(connection, row) for row in rows]


def _to_lease(connection: Connection, row: TableRow) -> ServiceLease:
    service, chain = row.name.partition(":")[2], int(row.owner)
    return ServiceLease(service=service, chain=chain, since=_acted_at(connection, service, chain), ends_at=row.ends_at)


def _acted_at(connection: Connection, service: str, chain: int) -> datetime | None:
    """Return when a chain has first acted on a service; ``None``: not yet."""
    found: datetime | None = connection.scalar(_ACTED, {"chain": chain, "service": service})
    return found


def release_services(connection: Connection, ended: Session) -> None:
    """Give back the services of a chain whose last session has ended; one of whose sessions still runs keeps them.

    Those of a lost one are free when their leases end: a call of it may still be under way.
    """
    chain = ended.root_session_id
    mine = _FREE.where(_IS_SERVICE, _LEASES.owner == str(chain), ~_RUNS, ~_IS_LOST)
    connection.execute(mine, {"chain": chain, "ended": ended.id})


def renew_services(connection: Connection, daemon: str, *, now: datetime) -> None:
    """Renew the services of the chains that a daemon runs, or that wait in the queue."""
    end = _now(connection, now) + timedelta(seconds=SERVICE_SECONDS)
    alive = update(leases).where(_IS_SERVICE, _LEASES.owner.in_(_ALIVE)).values(ends_at=end)
    connection.execute(alive, {"daemon": daemon})


def _name(service: str) -> str:
    return clip(service_lease(service))


def _now(connection: Connection, now: datetime) -> Any:
    """Return the time by the clock that judges leases: SQLite has this machine's."""
    return now if connection.dialect.name == "sqlite" else func.now()
