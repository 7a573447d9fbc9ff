"""Leases: what one owner does at a time, whoever else works on the database.

A lease is taken, renewed and given back by one statement on its row. Its end is judged by the database's clock: on
PostgreSQL the server's, on SQLite this machine's. Its term is raised with each new owner, so that whoever was stopped
and goes on later finds, in the transaction that writes, that the work is another's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import BindParameter, Connection, bindparam, func, select, text, update

from claudeops.domain.owner import LEASE_SECONDS, Lease
from claudeops.errors import StaleTermError
from claudeops.store.database import Database, Fence
from claudeops.store.tables.columns import Name, UtcDateTime
from claudeops.store.tables.daemon import leases
from claudeops.text import clip

_LEASES: Final = leases.c
_HELD: Final = select(leases).where(_LEASES.owner.is_not(None)).order_by(_LEASES.name)
_CURRENT: Final = select(_LEASES.owner, _LEASES.term).where(_LEASES.name == bindparam("lease"))
_CHECKED: Final = _CURRENT.with_for_update(read=True)  # a take-over waits for the commit; SQLite has one writer anyway


class Leases:
    """The leases of a daemon, and the terms under which it writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held: dict[str, Lease] | None = None  # by the kind of work; None: this process takes no leases

    async def take(
        self, names: Iterable[str], owner: str, *, seconds: float = LEASE_SECONDS, alone: bool = False
    ) -> Mapping[str, Lease]:
        """Take or renew leases; return those that ``owner`` has now, by name. See `take`.

        They are the terms of the `fence` from now on: what is not among them writes no more.
        """
        wanted = tuple(names)

        def write(connection: Connection) -> Mapping[str, Lease]:
            return take(connection, wanted, owner, now=self._database.now(), seconds=seconds, alone=alone)

        if alone:  # once, so that no connection is kept for it
            found = await self._database.write(write, is_news=False)
        else:
            found = await self._database.write_beside(write)
        self._held = {_kind(name): lease for name, lease in found.items()}
        return found

    async def give_back(self, held: Iterable[Lease]) -> None:
        """End leases at once, so that the next owner need not wait; those that another has taken stay his."""
        given = tuple(held)
        for lease in given:
            self.drop(lease.name)

        def write(connection: Connection) -> None:
            for lease in given:
                give_back(connection, lease, now=self._database.now())

        await self._database.write_beside(write)

    def drop(self, name: str) -> None:
        """Write no more under a lease, whether or not another owner has taken it by now."""
        if self._held is not None:
            self._held.pop(_kind(name), None)

    def fence(self, kind: str) -> Fence:
        """Return what a transaction calls that writes as the one daemon that does a kind of work.

        A process that takes no leases is let through: a command, or a chain in the foreground.
        """

        def check_term(connection: Connection) -> None:
            if self._held is None:
                return
            lease = self._held.get(kind)
            if lease is None:
                raise StaleTermError(f"{kind} is not this daemon's work.")
            check(connection, lease)

        return check_term

    async def holders(self) -> Mapping[str, Lease]:
        """Return who has which lease, by name; not those that were given back."""
        return await self._database.read(
            lambda connection: {
                row.name: Lease(name=row.name, owner=row.owner, term=row.term) for row in connection.execute(_HELD)
            }
        )


def _kind(name: str) -> str:
    return name.partition(":")[0]


def take(
    connection: Connection,
    names: Iterable[str],
    owner: str,
    *,
    now: datetime,
    seconds: float = LEASE_SECONDS,
    alone: bool = False,
) -> Mapping[str, Lease]:
    """Take or renew leases in one statement; return those that ``owner`` has now, by name.

    A lease is his where it is new, was his before, or has ended; with ``alone`` he is the only one who can have any, so
    that each is his. ``now`` counts on SQLite alone.
    """
    given = {clip(name): name for name in names}
    ordered = sorted(given)  # two owners lock rows in the same order
    if not ordered:
        return {}
    is_alone = "1 = 1 OR " if alone else ""
    ours = connection.dialect.name == "sqlite"  # its clock is this machine's
    begin, end = (":begin", ":end") if ours else ("now()", "now() + make_interval(secs => :seconds)")
    values = ", ".join(f"(:name_{place}, :owner, 1, {end})" for place in range(len(ordered)))
    # Built as text: a conflict clause of SQLAlchemy loads the dialect of a database that is not in use.
    statement = text(
        f"INSERT INTO leases (name, owner, term, ends_at) VALUES {values}"  # noqa: S608 - our own words and marks
        " ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, ends_at = excluded.ends_at,"
        " term = CASE WHEN leases.owner = excluded.owner THEN leases.term ELSE leases.term + 1 END"
        f" WHERE {is_alone}leases.owner = excluded.owner OR leases.ends_at <= {begin} RETURNING name, term"
    )
    names_bound = {f"name_{place}": name for place, name in enumerate(ordered)}
    typed: list[BindParameter[Any]] = [
        bindparam(mark, name, type_=Name()) for mark, name in {**names_bound, "owner": owner}.items()
    ]
    if ours:
        times = {"begin": now, "end": now + timedelta(seconds=seconds)}
        typed += [bindparam(mark, time, type_=UtcDateTime()) for mark, time in times.items()]
    else:
        typed.append(bindparam("seconds", seconds))
    found = connection.execute(statement.bindparams(*typed)).all()
    return {given[row.name]: Lease(name=given[row.name], owner=owner, term=row.term) for row in found}


def give_back(connection: Connection, lease: Lease, *, now: datetime) -> bool:
    """End a lease at once; ``False``: another owner has taken it. ``now`` counts on SQLite alone."""
    mine = (_LEASES.name == lease.name, _LEASES.owner == lease.owner, _LEASES.term == lease.term)
    given = update(leases).where(*mine).values(owner=None, ends_at=_end(connection, now))
    return connection.execute(given).rowcount == 1


def give_back_all(connection: Connection, owner: str, *, now: datetime) -> None:
    """End all leases of an owner at once. ``now`` counts on SQLite alone."""
    connection.execute(update(leases).where(_LEASES.owner == owner).values(owner=None, ends_at=_end(connection, now)))


def _end(connection: Connection, now: datetime) -> Any:
    return now if connection.dialect.name == "sqlite" else func.now()


def check(connection: Connection, lease: Lease) -> None:
    """Raise `StaleTermError` unless a lease is still its owner's; another one's take-over waits for this transaction.

    Its end is not looked at: as long as no other owner has taken it, what is written under it is in order.
    """
    row = connection.execute(_CHECKED, {"lease": lease.name}).first()
    if row is None or (row.owner, row.term) != (lease.owner, lease.term):
        raise StaleTermError(f"the lease {lease.name} of term {lease.term} is over: another owner has taken it.")
