"""Notifications on their way: routed to targets, claimed, and settled by what came of them.

`claudeops.store.events.tell` writes them. Whoever decides knows no target: a notice is one row without a target until
the daemon gives it to those who want it. A claimed row belongs to its daemon until the lease ends; what a killed daemon
had claimed is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, delete, insert, or_, select, update

from claudeops.domain.events import EventLevel, NewEvent, node_of
from claudeops.domain.gate.approval import ApprovalStatus
from claudeops.domain.notices.notice import (
    ABOUT_TARGETS,
    DEAD,
    PICKY,
    REFUSED,
    UNROUTED,
    Announcement,
    DeliveryOutcome,
    Notice,
    Pending,
    Settlement,
    Target,
    Topic,
    decoded,
    encoded,
)
from claudeops.domain.notices.refusals import CONTENT, RefusalSubject
from claudeops.domain.notices.routing import DEAD_AFTER, QUESTION_TRIES, is_urgent, quiet_end, targets_of
from claudeops.store.approvals import question_key
from claudeops.store.database import Database, Fence, unfenced
from claudeops.store.events import raise_event, resolve_event, tell
from claudeops.store.reading.daily import oldest_untold, sums
from claudeops.store.rows import TableRow
from claudeops.store.tables.alerting import incidents, is_unresolved
from claudeops.store.tables.approvals import approvals
from claudeops.store.tables.events import events
from claudeops.store.tables.outbox import outbox
from claudeops.store.tables.probes import probes
from claudeops.structs import replace
from claudeops.text import clip, one_line
from claudeops.text.escapes import visible
from claudeops.wording.notices.digest import DigestFigures

_NOBODY: Final = "no target wants it"
_OLD: Final = "no daemon ran for a day after it was written"
_ANSWERED: Final = "the question waits no more"
_DEALT_WITH: Final = "it is over, or an incident tells it"
_GONE: Final = "the target is gone"
_UNREADABLE: Final = "the row is no notice"

_UNHEARD: Final = "approval_unheard"
"""The fingerprint of the event that questions to people reach nobody."""

_ERROR: Final = 200  # characters of what a target said, in a sentence


def _nobody_waits(_approval_id: int) -> None:
    return


class Outbox:
    """Notifications on their way. Whoever decides writes them in the commit that decides."""

    def __init__(
        self, database: Database, *, fence: Fence = unfenced, unheard: Callable[[int], None] = _nobody_waits
    ) -> None:
        self._database = database
        self._fence = fence
        self._unheard = unheard

    async def add(self, notice: Notice, *, now: datetime) -> None:
        """Write a notice that nothing else in the database stands for."""
        await self._database.write(lambda connection: tell(connection, notice, at=now))

    async def has(self, key: str) -> bool:
        """Tell whether a notice with a key was written, for anybody."""
        query = select(outbox.c.id).where(outbox.c.dedupe_key == key).limit(1)
        return await self._database.read(lambda connection: connection.execute(query).first() is not None)

    async def sums(self, since: datetime, *, now: datetime) -> DigestFigures:
        """Return what the daily sum counts, from a time on; one snapshot of the database."""
        return await self._database.read(partial(sums, since=since, now=now))

    async def waiting(self, now: datetime) -> frozenset[str]:
        """Return the targets for which something is due; `UNROUTED` is one of them."""
        due = select(outbox.c.target).where(*_due(now)).distinct()
        return frozenset(await self._database.read(lambda connection: connection.execute(due).scalars().all()))

    async def asking(self, now: datetime) -> frozenset[str]:
        """Return the targets for which a question to people is due that was never tried, or without a known end."""
        unclear = and_(outbox.c.attempts < QUESTION_TRIES, outbox.c.result == DeliveryOutcome.UNKNOWN.value)
        due = select(outbox.c.target).where(
            outbox.c.topic == Topic.APPROVAL.value,
            or_(outbox.c.attempts == 0, unclear),
            outbox.c.target != UNROUTED,
            *_due(now),
        )
        return frozenset(await self._database.read(lambda connection: connection.execute(due).scalars().all()))

    async def oldest(self, now: datetime) -> datetime | None:
        """Return since when the notice waits that should have been told first; ``None``: none waits.

        What quiet hours or a bound hold back should not have been told yet.
        """
        return await self._database.read(partial(oldest_untold, now=now))

    async def is_empty(self) -> bool:
        """Return whether nothing waits, not even for later."""
        waits = select(outbox.c.id).where(outbox.c.delivered_at.is_(None)).limit(1)
        return await self._database.read(lambda connection: connection.execute(waits).first() is None)

    async def route(self, targets: Sequence[Target], *, now: datetime, most: int) -> int:
        """Give notices to the targets that want them; return how many were looked at, oldest first.

        What is on its way to none of ``targets`` is suppressed.
        """
        ends = {target.name: quiet_end(target, now) for target in targets}  # once, and before the transaction
        routing = _Routing(targets=targets, now=now, quiet_ends=ends)

        def write(connection: Connection) -> int:
            self._fence(connection)
            return _route(connection, routing=routing, most=most)

        return await self._database.write(write)

    async def claim(self, target: str, *, now: datetime, until: datetime, most: int) -> Sequence[Pending]:
        """Take what is due for a target, until a time at which it may be taken again; questions first.

        What was taken before and is not known to have failed says that it may be told again.
        """

        def write(connection: Connection) -> Sequence[Pending]:
            self._fence(connection)
            return _claim(connection, target=target, now=now, until=until, most=most)

        return await self._database.write(write)

    async def sent(self, target: str, since: datetime) -> Sequence[datetime]:
        """Return when a target was sent a message, from a time on."""
        query = select(outbox.c.delivered_at).where(
            outbox.c.target == target,
            outbox.c.delivered_at > since,
            outbox.c.result == DeliveryOutcome.DELIVERED.value,
        )
        return await self._database.read(lambda connection: connection.execute(query).scalars().all())

    async def settle(
        self, target: str, settled: Sequence[Settlement], *, until: datetime, now: datetime
    ) -> Sequence[int]:
        """Write what came of rows that were claimed ``until`` a time, in one transaction.

        Returns the ids of those for which nothing was written: they are over, or were claimed again since.

        What is over without having been delivered opens the event ``notification_dead`` of the target and goes to
        another one; the next delivery resolves it, and the event ``target_refused`` of a target that takes nothing
        until somebody mends it. A question to people that no target got is on record at once, with what each one said,
        and opens the event ``approval_unheard``; the next delivery to one of them resolves it.
        """

        def write(connection: Connection) -> tuple[Sequence[int], Sequence[int]]:
            written = [each for each in settled if _settle(connection, each, until=until, now=now)]
            if any(each.result is DeliveryOutcome.DELIVERED for each in written):
                for kind in (DEAD, PICKY, REFUSED):
                    resolve_event(connection, f"{kind}{clip(target)}", at=now)
                _hear_again(connection, target, now=now)
            dead = [each for each in written if _is_dead(each)]
            if dead:
                _tell_of_death(connection, target, dead, now=now)
            refused = [
                each for each in written if each.cause is not None and each.cause.refusal is RefusalSubject.TARGET
            ]
            if refused:
                _tell_of_refusal(connection, target, refused[-1], now=now)
            failed = [each.id for each in written if each.result in {DeliveryOutcome.FAILED, DeliveryOutcome.UNKNOWN}]
            late = sorted({each.id for each in settled} - {each.id for each in written})
            return late, _unheard(connection, failed, now=now) if failed else ()

        late, unheard = await self._database.write(write)
        for approval_id in unheard:
            self._unheard(approval_id)
        return late

    async def end_events(self, standing: Collection[str], *, node: str = "", now: datetime) -> None:
        """Resolve the events about targets, by their fingerprints, but for those that may still stand.

        Those of other machines than ``node`` are not touched.
        """
        named = or_(*(events.c.fingerprint.startswith(kind, autoescape=True) for kind in ABOUT_TARGETS))
        found = select(events.c.fingerprint).where(events.c.resolved_at.is_(None), named)

        def write(connection: Connection) -> None:
            self._fence(connection)
            for name in set(connection.execute(found).scalars()) - set(standing):
                if node_of(name) in {"", node}:
                    resolve_event(connection, name, at=now)

        await self._database.write(write)


class _Routing(msgspec.Struct, frozen=True, kw_only=True):
    """How a notice is given to targets."""

    targets: Sequence[Target]
    now: datetime
    quiet_ends: Mapping[str, datetime | None]  # by the names of targets; None: it has no quiet hours now


def _due(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        outbox.c.delivered_at.is_(None),
        or_(outbox.c.not_before.is_(None), outbox.c.not_before <= now),
        or_(outbox.c.lease_until.is_(None), outbox.c.lease_until <= now),
    )


# --- to targets -------------------------------------------------------------------------------------------


def _route(connection: Connection, routing: _Routing, most: int) -> int:
    now = routing.now
    _return_strays(connection, [target.name for target in routing.targets], now=now)
    query = select(outbox).where(outbox.c.target == UNROUTED, *_due(now)).order_by(outbox.c.id).limit(most)
    rows = connection.execute(query).all()
    for row in rows:
        _route_one(connection, row, routing)
    return len(rows)


def _return_strays(connection: Connection, names: Collection[str], *, now: datetime) -> None:
    """Suppress what is on its way to targets that the operator has taken away; their notices are kept as rows."""
    stray = and_(outbox.c.delivered_at.is_(None), outbox.c.target.not_in((*names, UNROUTED)))
    if connection.execute(select(outbox.c.id).where(stray).limit(1)).first() is not None:
        over = {"result": DeliveryOutcome.SUPPRESSED.value, "error": _GONE, "delivered_at": now, "lease_until": None}
        connection.execute(update(outbox).where(stray).values(over))


def _route_one(connection: Connection, row: TableRow, routing: _Routing) -> None:
    notice = decoded(row.payload)
    told = () if notice is None else targets_of(notice, routing.targets, besides=notice.besides)
    why = _NOBODY if notice is not None else _UNREADABLE
    is_old = routing.now - row.created_at >= DEAD_AFTER
    if is_old and not _still_stands(connection, notice):
        why, told = _OLD, ()
    elif notice is not None and _is_answered(connection, notice, now=routing.now):
        why, told = _ANSWERED, ()
    elif notice is not None and notice.probe and _is_dealt_with(connection, row.event_id, notice.probe):
        why, told = _DEALT_WITH, ()
    if notice is None or not told:
        # Without its key, so that the same can be told once somebody wants it.
        over = {
            "result": DeliveryOutcome.SUPPRESSED.value,
            "error": why,
            "delivered_at": routing.now,
            "dedupe_key": None,
        }
        connection.execute(update(outbox).where(outbox.c.id == row.id).values(over))
        return
    for target in routing.targets:
        if target.name in told:
            held = None if is_urgent(notice) else routing.quiet_ends[target.name]
            # What is old on arrival has a day from now on, as all else has from when it was written.
            _add(
                connection,
                row,
                target.name,
                notice,
                not_before=held,
                created_at=routing.now if is_old else row.created_at,
            )
    connection.execute(delete(outbox).where(outbox.c.id == row.id))


def _still_stands(connection: Connection, notice: Notice | None) -> bool:
    """Tell whether a notice is of the beginning of an incident that is open, however long ago the clock says that is.

    A clock may go a day ahead at once, and nothing tells of that beginning again.
    """
    if notice is None or notice.incident is None or notice.key.split(":")[2:3] != ["opened"]:
        return False
    is_open = (incidents.c.number == notice.incident, is_unresolved)
    return connection.execute(select(incidents.c.number).where(*is_open)).first() is not None


def _add(
    connection: Connection,
    row: TableRow,
    target: str,
    notice: Notice,
    *,
    not_before: datetime | None = None,
    created_at: datetime | None = None,
) -> bool:
    """Write a notice for one target, unless it was told to it before."""
    told = select(outbox.c.id).where(outbox.c.target == target, outbox.c.dedupe_key == notice.key)
    if connection.execute(told.limit(1)).first() is not None:
        return False
    values = {
        "event_id": row.event_id,
        "target": target,
        "payload": encoded(notice),
        "created_at": created_at or row.created_at,
        "not_before": not_before,
        "attempts": 0,
        "topic": row.topic,
        "dedupe_key": notice.key,
        "incident_id": row.incident_id,
    }
    connection.execute(insert(outbox).values(values))
    return True


# --- claimed and settled ----------------------------------------------------------------------------------


def _claim(connection: Connection, target: str, now: datetime, until: datetime, most: int) -> Sequence[Pending]:
    # As `claudeops.domain.notices.routing.plan` orders them, but for the severity.
    is_question = outbox.c.topic == Topic.APPROVAL.value
    is_new_question = and_(is_question, outbox.c.attempts < QUESTION_TRIES)
    order = (is_new_question.desc(), outbox.c.attempts, is_question.desc(), outbox.c.id)
    query = select(outbox).where(outbox.c.target == target, *_due(now)).order_by(*order).limit(most)
    found = []
    for row in connection.execute(query).all():
        pending = _to_pending(row)
        if pending is None or _is_answered(connection, pending.notice, now=now):
            why = _UNREADABLE if pending is None else _ANSWERED
            over = Settlement(id=row.id, result=DeliveryOutcome.SUPPRESSED, error=why)
            _settle(connection, over, until=row.lease_until, now=now)
            continue
        taken = {"lease_until": until, "attempts": row.attempts + 1, "result": None, "payload": encoded(pending.notice)}
        connection.execute(update(outbox).where(outbox.c.id == row.id).values(taken))
        found.append(pending)
    return found


def _is_answered(connection: Connection, notice: Notice, *, now: datetime) -> bool:
    """Tell whether a notice is about a question that waits for nobody any more."""
    if notice.approval_id is None:
        return False
    waits = select(approvals.c.id).where(
        approvals.c.id == notice.approval_id,
        approvals.c.status == ApprovalStatus.PENDING.value,
        approvals.c.expires_at > now,  # whoever waits for it may be gone
    )
    return connection.execute(waits).first() is None


def _is_dealt_with(connection: Connection, event_id: int | None, probe: str) -> bool:
    """Tell whether a probe's failure is over, or has been decided about as all alerts are."""
    still = select(events.c.id).where(events.c.id == event_id, events.c.resolved_at.is_(None))
    untold = select(probes.c.name).where(probes.c.name == probe, probes.c.incident == "")
    return connection.execute(still).first() is None or connection.execute(untold).first() is None


def _to_pending(row: TableRow) -> Pending | None:
    notice = decoded(row.payload)
    if notice is None:
        return None
    # An attempt without a known end, because the time ran out or its daemon died, may have been delivered.
    unclear = row.attempts > 0 and row.result in {None, DeliveryOutcome.UNKNOWN.value}
    again = replace(notice, again=notice.again or unclear)
    return Pending(id=row.id, target=row.target, notice=again, created_at=row.created_at, attempts=row.attempts)


def _settle(connection: Connection, settled: Settlement, *, until: datetime | None, now: datetime) -> bool:
    """Write what came of a row; ``False``: it is over already, or another lease than ``until`` a time is on it."""
    values: dict[str, object] = {"lease_until": None, "not_before": settled.again_at}
    if settled.result is None:  # not tried: as if it had not been claimed
        values |= {"attempts": outbox.c.attempts - 1, "result": DeliveryOutcome.FAILED.value}
    else:
        values |= {"result": settled.result.value, "error": settled.error or None}
    if settled.again_at is None:
        values["delivered_at"] = now
    row = connection.execute(select(outbox).where(outbox.c.id == settled.id)).one_or_none()
    if row is None or row.delivered_at is not None or row.lease_until != until:
        return False
    connection.execute(update(outbox).where(outbox.c.id == settled.id).values(values))
    notice = decoded(row.payload) if _is_dead(settled) else None
    if notice is not None:
        next((name for name in settled.instead if _add(connection, row, name, notice)), None)
    return True


def _is_dead(settled: Settlement) -> bool:
    return settled.again_at is None and settled.result in {DeliveryOutcome.FAILED, DeliveryOutcome.UNKNOWN}


def _tell_of_death(connection: Connection, target: str, dead: Sequence[Settlement], *, now: datetime) -> None:
    remedy = f"see what `claudeops notify test {target}` says."
    if all(each.cause == CONTENT for each in dead):
        message = f"{target} refuses some notifications ({_said(dead[0])}), which go another way: {remedy}"
        event = NewEvent(level=EventLevel.WARNING, message=message, fingerprint=f"{PICKY}{clip(target)}")
    else:
        message = f"notifications to {target} have failed for a day and go another way: {remedy}"
        event = NewEvent(level=EventLevel.CRITICAL, message=message, fingerprint=_dead_name(target))
    raise_event(connection, event, session_id=None, at=now, about=Announcement(besides=target))


def _tell_of_refusal(connection: Connection, target: str, refused: Settlement, *, now: datetime) -> None:
    remedy = refused.cause.remedy if refused.cause is not None else ""
    message = f"{target} takes no notifications until somebody mends it ({_said(refused)}): {remedy}."
    event = NewEvent(level=EventLevel.CRITICAL, message=message, fingerprint=_refused_name(target))
    raise_event(connection, event, session_id=None, at=now, about=Announcement(besides=target))


def _said(refused: Settlement) -> str:
    return visible(one_line(refused.error))[:_ERROR]


def _refused_name(target: str) -> str:
    return f"{REFUSED}{clip(target)}"


def _dead_name(target: str) -> str:
    return f"{DEAD}{clip(target)}"


# --- questions that reach nobody --------------------------------------------------------------------------


def _unheard(connection: Connection, failed: Sequence[int], *, now: datetime) -> Sequence[int]:
    """Put on record which questions have failed at every target by these failures; return the questions."""
    tried = select(outbox.c.payload).where(outbox.c.id.in_(failed), outbox.c.topic == Topic.APPROVAL.value)
    notices = map(decoded, connection.execute(tried).scalars().all())
    asked = dict.fromkeys(notice.approval_id for notice in notices if notice is not None)
    return [number for number in asked if number is not None and _is_unheard(connection, number, now=now)]


def _is_unheard(connection: Connection, approval_id: int, *, now: datetime) -> bool:
    """Tell whether it is known from now on that a question has reached nobody, and say so on record."""
    query = select(outbox).where(
        outbox.c.topic == Topic.APPROVAL.value, outbox.c.dedupe_key == question_key(approval_id)
    )
    rows = [row for row in connection.execute(query.order_by(outbox.c.id)).all() if row.error != _GONE]
    if not rows or not all(map(_has_failed, rows)):
        return False
    said = ", ".join(f"{row.target}: {visible(one_line(row.error))[:_ERROR] or row.result}" for row in rows)
    marked = update(approvals).where(
        approvals.c.id == approval_id,
        approvals.c.status == ApprovalStatus.PENDING.value,
        approvals.c.unheard.is_(None),
    )
    if not connection.execute(marked.values(unheard=said)).rowcount:
        return False
    message = (
        f"approval {approval_id} has reached nobody ({said}): see what `claudeops notify test {rows[0].target}` says; "
        "no call that needs approval runs meanwhile."
    )
    event = NewEvent(level=EventLevel.CRITICAL, message=message, fingerprint=_UNHEARD)
    raise_event(connection, event, session_id=None, at=now)
    return True


def _has_failed(row: TableRow) -> bool:
    """Tell whether a target is known not to have got a question: one that gave no answer may have got it."""
    if row.attempts < 1:
        return False
    unclear = row.result == DeliveryOutcome.UNKNOWN.value and row.attempts >= QUESTION_TRIES
    return bool(unclear or row.result == DeliveryOutcome.FAILED.value)


def _hear_again(connection: Connection, target: str, *, now: datetime) -> None:
    """Resolve the event that questions reach nobody, now that a target of questions was reached."""
    stands = select(events.c.id).where(events.c.fingerprint == _UNHEARD, events.c.resolved_at.is_(None))
    if connection.execute(stands).first() is None:
        return
    asked = select(outbox.c.id).where(outbox.c.target == target, outbox.c.topic == Topic.APPROVAL.value)
    if connection.execute(asked.limit(1)).first() is not None:
        resolve_event(connection, _UNHEARD, at=now)
