"""Holds, as rows of ``flags``: set, released, and checked in the transaction of every claim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, delete, insert, or_, select

from claudeops.domain.events import NODE_MARK, node_of, on_node
from claudeops.domain.holds import (
    Admission,
    ApiRefusal,
    Changes,
    Hold,
    HoldKind,
    admission,
    event_name,
    has_lapsed,
    holds_of,
    opened,
    when_answered,
    when_refused,
)
from claudeops.domain.sessions import DecisionReason, Suppressed
from claudeops.errors import StaleAttemptError
from claudeops.store.alerts.announcements import of_hold
from claudeops.store.database import Database
from claudeops.store.events import raise_event, resolve_event
from claudeops.store.rows import TableRow
from claudeops.store.tables.daemon import flags, instances
from claudeops.store.tables.sessions import is_attempt

_KINDS: Final = tuple(kind.value for kind in HoldKind)

_REMEDY: Final = {HoldKind.PAUSED: " (`claudeops resume` lifts it)"}

# Built once: every claim runs them.
_STANDING: Final = select(flags).where(  # not "in": that is expanded
    or_(*(flags.c.name == kind for kind in _KINDS), flags.c.name.startswith(f"{HoldKind.DISK.value}{NODE_MARK}"))
)
_NODES: Final = select(instances.c.node)
_LAPSED: Final = _STANDING.where(flags.c.until <= bindparam("now"))


class Holds:
    """What stops claims."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def hold(self, hold: Hold, *, now: datetime) -> None:
        """Stop claims; replaces a hold of the same kind.

        The first hold of its kind writes one event (its ``reason``), which is resolved when the hold is released or
        over.
        """
        await self._database.write(partial(set_hold, hold=hold, now=now))

    async def release(self, kind: HoldKind, *, node: str = "", now: datetime) -> bool:
        """Lift a hold, of a machine if it is one's own; ``False`` if there was none of this kind."""
        return await self._database.write(partial(release, kind=kind, node=node, now=now))

    async def standing(self, now: datetime, *, node: str | None = None) -> Sequence[Hold]:
        """Return the holds that are not over at ``now`` and concern ``node``, the oldest first.

        Without a node those under which no session starts anywhere: that of one machine is one only where no other
        machine is there.
        """

        def look(connection: Connection) -> Sequence[Hold]:
            found = standing(connection, now)
            if node is not None:
                return holds_of(node, found)
            full = {hold.node for hold in found if hold.node}
            others = full and set(connection.execute(_NODES).scalars()) - full
            return holds_of("", found) if others else found

        return await self._database.read(look)

    async def refused(self, refusal: ApiRefusal, *, now: datetime) -> None:
        """Write what follows from a refusal of the model API: a hold begins, or lasts longer (``domain.holds``).

        Raises `StaleAttemptError`, with nothing written, when another daemon has taken the session over since.
        """

        def refuse(connection: Connection) -> None:
            if refusal.session_id is not None and refusal.attempt is not None:
                _require_attempt(connection, refusal.session_id, refusal.attempt)
            changes = when_refused(standing(connection, now), refusal, now)
            apply(connection, changes, now=now, session_id=refusal.session_id)

        await self._database.write(refuse)

    async def answered(self, session_id: int, *, attempt: int, now: datetime) -> Sequence[HoldKind]:
        """Release the holds whose trial a session is, because the model API has answered it; return their kinds.

        There are rarely any, so a reader looks first. Raises `StaleAttemptError` as `refused` does.
        """
        if not any(hold.trial == session_id for hold in await self.standing(now)):
            return ()

        def answer(connection: Connection) -> Sequence[HoldKind]:
            _require_attempt(connection, session_id, attempt)
            changes = when_answered(standing(connection, now), session_id)
            apply(connection, changes, now=now)
            return tuple(changes)

        return await self._database.write(answer)


async def start_refusal(holds: Holds, now: datetime) -> Suppressed | None:
    """Return why no chain can start now, if nothing can; the holds' own events say so already.

    For a caller that wants a chain now and does not wait for the end of the hold.
    """
    found = await holds.standing(now)
    if admission(found, now) is not Admission.CLOSED:
        return None
    spent = all(hold.kind is HoldKind.BUDGET for hold in found)
    reasons = "; ".join(f"{hold.reason.rstrip('.')}{_REMEDY.get(hold.kind, '')}" for hold in found)
    return Suppressed(
        reason=DecisionReason.BUDGET if spent else DecisionReason.PAUSED, message=f"no session is started: {reasons}."
    )


def standing(connection: Connection, now: datetime) -> tuple[Hold, ...]:
    """Return the holds in force, the longest standing first."""
    holds = map(_to_hold, connection.execute(_STANDING))
    return _longest_first(hold for hold in holds if not has_lapsed(hold, now))


def standing_now(connection: Connection, now: datetime) -> tuple[Hold, ...]:
    """Return the holds in force, and release those that have lapsed."""
    found = [_to_hold(row) for row in connection.execute(_STANDING)]
    for hold in found:
        if has_lapsed(hold, now):
            release(connection, hold.kind, node=hold.node, now=now)
    return _longest_first(hold for hold in found if not has_lapsed(hold, now))


def set_hold(connection: Connection, hold: Hold, *, now: datetime, session_id: int | None = None) -> None:
    """Set a hold in the place of one of the same kind (and machine); raise its event if there was none.

    ``session_id``: the session that it comes of.
    """
    _clear_lapsed(connection, now)
    stood = connection.execute(delete(flags).where(flags.c.name == on_node(hold.kind.value, hold.node))).rowcount
    connection.execute(insert(flags).values(_hold_values(hold, now=now)))
    if not stood:
        about = of_hold(connection, hold, session_id)
        raise_event(connection, opened(hold), session_id=None, at=now, about=about)


def release(connection: Connection, kind: HoldKind, *, now: datetime, node: str = "") -> bool:
    """Remove a hold and resolve its event; ``False``: there was none."""
    released = connection.execute(delete(flags).where(flags.c.name == on_node(kind.value, node))).rowcount > 0
    if released:
        resolve_event(connection, event_name(kind, node), at=now)
    return released


def apply(connection: Connection, changes: Changes, *, now: datetime, session_id: int | None = None) -> None:
    """Write the changes that the domain decided on; ``session_id``: because of that session."""
    for kind, hold in changes.items():
        if hold is None:
            release(connection, kind, now=now)
        else:
            set_hold(connection, hold, now=now, session_id=session_id)


def _require_attempt(connection: Connection, session_id: int, attempt: int) -> None:
    if connection.execute(is_attempt, {"session": session_id, "attempt": attempt}).first() is None:
        raise StaleAttemptError(f"session {session_id} is no longer that of attempt {attempt}.")


def _clear_lapsed(connection: Connection, now: datetime) -> None:
    """Release the holds that have lapsed."""
    rows = connection.execute(_LAPSED, {"now": now}).all()
    for hold in map(_to_hold, rows):
        if has_lapsed(hold, now):
            release(connection, hold.kind, node=hold.node, now=now)


def _longest_first(holds: Iterable[Hold]) -> tuple[Hold, ...]:
    return tuple(sorted(holds, key=lambda hold: (hold.since, hold.kind)))


class _StoredHold(msgspec.Struct, omit_defaults=True):
    """The part of a hold that ``flags.value`` stores as JSON."""

    since: datetime | None = None
    failures: int = 1
    probe: int | None = None


def _hold_values(hold: Hold, *, now: datetime) -> dict[str, object]:
    """Return the columns of a hold."""
    stored = _StoredHold(since=hold.since, failures=hold.failures, probe=hold.trial)
    return {
        "name": on_node(hold.kind.value, hold.node),
        "value": msgspec.json.encode(stored).decode(),
        "reason": hold.reason,
        "until": hold.until,
        "updated_at": now,
        "updated_by": hold.by,
    }


_STORED_HOLD: Final = msgspec.json.Decoder(_StoredHold)


def _to_hold(row: TableRow) -> Hold:
    """Return a row as a hold; one whose value cannot be decoded is in force all the same."""
    try:
        stored = _STORED_HOLD.decode(row.value)
    except msgspec.DecodeError:
        stored = _StoredHold()
    return Hold(
        kind=HoldKind(row.name.partition(NODE_MARK)[0]),
        node=node_of(row.name),
        reason=row.reason or "no reason was given",
        since=stored.since or row.updated_at,
        until=row.until,
        by=row.updated_by,
        failures=stored.failures,
        trial=stored.probe,
    )
