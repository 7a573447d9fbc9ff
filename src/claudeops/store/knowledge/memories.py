"""Memories in the database: what the end of a session reads and writes of them, and what operators do by hand.

Rows are never deleted: a memory that is forgotten, replaced or faded is out of use, and can be brought back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, insert, or_, select, update

from claudeops.domain.calls import VerdictKind
from claudeops.domain.memories import operator_changes
from claudeops.domain.memories.categories import spellings
from claudeops.domain.memories.confidence import FADES_AFTER, has_faded
from claudeops.domain.memories.learning import OnShelf, wanted
from claudeops.domain.memories.memory import (
    NO_EVIDENCE,
    OPERATORS_TIER,
    ChangeKind,
    Evidence,
    KnownMemory,
    MemoryChange,
    Trust,
)
from claudeops.domain.memories.operator_changes import Declined
from claudeops.domain.report.report import Report, ReportedMemory
from claudeops.domain.sessions import Session
from claudeops.store.database import Database
from claudeops.store.rows import TableRow
from claudeops.store.tables.base import each_value
from claudeops.store.tables.memories import memories, session_memories
from claudeops.store.tables.sessions import tool_calls
from claudeops.text import json_text

# Built once: every end of a session runs these.
_ADD: Final = insert(memories).returning(memories.c.id)
_CHANGE: Final = update(memories).where(memories.c.id == bindparam("memory"))
_IN_CATEGORIES: Final = memories.c.category.in_(bindparam("categories", expanding=True))
_KNOWN: Final = (
    select(memories)
    .where(
        or_(
            _IN_CATEGORIES,
            memories.c.id.in_(bindparam("ids", expanding=True)),
            memories.c.id.in_(select(memories.c.supersedes).where(_IN_CATEGORIES)),
        )
    )
    .order_by(memories.c.id)
)
_SHOWN: Final = select(session_memories.c.memory_id).where(session_memories.c.session_id == bindparam("session"))
_DENIALS: Final = (
    select(tool_calls.c.reason)
    .where(tool_calls.c.session_id == bindparam("session"), tool_calls.c.verdict == VerdictKind.DENY.value)
    .distinct()
    .order_by(tool_calls.c.reason)
)
_FADING: Final = select(memories).where(memories.c.active, memories.c.updated_at <= bindparam("since"))

Decided = tuple[MemoryChange, ...] | Declined


class Memories:
    """What operators see of memories and do to them; over SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def known(self, *, service: str | None = None, everything: bool = False) -> Sequence[KnownMemory]:
        """Return the memories that are in use or in quarantine, or with ``everything`` all; oldest first."""
        query = select(memories).order_by(memories.c.id)
        if not everything:
            query = query.where(memories.c.active)

        def find(connection: Connection) -> Sequence[KnownMemory]:
            wanted = query
            if service is not None:
                written = connection.execute(each_value(memories.c.service)).scalars()
                names = [name for name in written if name.lower() == service.strip().lower()]
                wanted = query.where(memories.c.service.in_(names))
            return tuple(map(to_known_memory, connection.execute(wanted)))

        return await self._database.read(find)

    async def add(self, memory: ReportedMemory, *, by: str, now: datetime) -> Sequence[KnownMemory] | Declined:
        """Write an operator's own memory; return it as it is then, and what it has put out of use."""

        def decide(connection: Connection) -> Decided:
            numbers = () if memory.supersedes is None else (memory.supersedes,)
            return operator_changes.add(_known(connection, spellings([memory.category]), numbers), memory)

        return await self._by_hand(decide, by=by, now=now)

    async def forget(self, number: int, *, by: str, now: datetime) -> Sequence[KnownMemory] | Declined:
        """Put a memory out of use, for sessions that say it again too, until it is restored."""
        return await self._of_one(number, lambda _, known: operator_changes.forget(known), by=by, now=now)

    async def restore(self, number: int, *, by: str, now: datetime) -> Sequence[KnownMemory] | Declined:
        """Bring a memory back that was forgotten, replaced or given up."""
        return await self._of_one(number, lambda _, known: operator_changes.restore(known, now), by=by, now=now)

    async def confirm(self, number: int, *, by: str, now: datetime) -> Sequence[KnownMemory] | Declined:
        """Bring a memory out of quarantine; return it, and those that it weakens or replaces."""

        def decide(connection: Connection, known: KnownMemory) -> Decided:
            return operator_changes.confirm(_known(connection, spellings([known.category]), ()), known, now)

        return await self._of_one(number, decide, by=by, now=now)

    async def _of_one(
        self, number: int, decide: Callable[[Connection, KnownMemory], Decided], *, by: str, now: datetime
    ) -> Sequence[KnownMemory] | Declined:
        def decided(connection: Connection) -> Decided:
            known = _one(connection, number)
            return Declined(sentence=f"There is no memory {number}.") if known is None else decide(connection, known)

        return await self._by_hand(decided, by=by, now=now)

    async def _by_hand(
        self, decide: Callable[[Connection], Decided], *, by: str, now: datetime
    ) -> Sequence[KnownMemory] | Declined:
        def change(connection: Connection) -> Sequence[KnownMemory] | Declined:
            changes = decide(connection)
            if isinstance(changes, Declined):
                return changes
            numbers = _write(connection, changes, at=now, tier=OPERATORS_TIER, by=by)
            return tuple(known for number in numbers if (known := _one(connection, number)) is not None)

        return await self._database.write(change)


# --- steps of other transactions ----------------------------------------------------------------------


def shelf(connection: Connection, session: Session, report: Report | None) -> OnShelf:
    """Return what is stored that matters for the memories of a session's report."""
    categories, numbers = wanted(report)
    if not categories:
        return OnShelf()
    of_session = {"session": session.id}
    return OnShelf(
        memories=_known(connection, categories, numbers),
        shown=frozenset(connection.execute(_SHOWN, of_session).scalars()),
        denials=tuple(connection.execute(_DENIALS, of_session).scalars()),
    )


def remember(connection: Connection, session: Session, changes: Iterable[MemoryChange], *, at: datetime) -> None:
    """Write the changes that a report makes to memories."""
    _write(connection, changes, at=at, tier=session.tier, session_id=session.id)


def give_up_faded(connection: Connection, now: datetime) -> None:
    """Set the memories inactive that nobody has confirmed for too long, so that the column tells the truth."""
    fading = map(to_known_memory, connection.execute(_FADING, {"since": now - FADES_AFTER}))
    faded = [known.id for known in fading if has_faded(known, now)]
    if faded:
        connection.execute(update(memories).where(memories.c.id.in_(faded)).values(active=False))


def to_known_memory(row: TableRow) -> KnownMemory:
    """Return a ``memories`` row as a value."""
    return KnownMemory(
        id=row.id,
        service=row.service,
        category=row.category,
        observation=row.observation,
        confidence=row.confidence,
        active=row.active,
        updated_at=row.updated_at,
        trust=Trust(row.trust),
        supersedes=row.supersedes,
        evidence=_to_evidence(row.evidence),
        forgotten_at=row.forgotten_at,
        created_at=row.created_at,
        session_id=row.session_id,
        tier=row.tier,
        changed_by=row.changed_by,
    )


_EVIDENCE: Final = msgspec.json.Decoder(Evidence)


def _to_evidence(text: str | None) -> Evidence:
    """Return stored evidence; text that cannot be decoded counts as none."""
    try:
        return NO_EVIDENCE if text is None else _EVIDENCE.decode(text)
    except msgspec.MsgspecError:
        return NO_EVIDENCE


def _known(connection: Connection, categories: Iterable[str], ids: Iterable[int]) -> tuple[KnownMemory, ...]:
    """Return every memory of some categories or with some ids, and what these supersede, active or not."""
    sought = {"categories": sorted(categories), "ids": sorted(ids)}
    return tuple(map(to_known_memory, connection.execute(_KNOWN, sought)))


def _one(connection: Connection, number: int) -> KnownMemory | None:
    row = connection.execute(select(memories).where(memories.c.id == number)).one_or_none()
    return None if row is None else to_known_memory(row)


def _write(
    connection: Connection,
    changes: Iterable[MemoryChange],
    *,
    at: datetime,
    tier: int,
    session_id: int | None = None,
    by: str | None = None,
) -> list[int]:
    """Write changes; return the ids of the rows, in the same order."""
    numbers = []
    for change in changes:
        values = _values(change, at=at) if by is None else {**_values(change, at=at), "changed_by": by}
        if change.id is not None:
            stated_now = {"tier": tier} if change.trust is Trust.OPERATOR else {}
            connection.execute(_CHANGE, {"memory": change.id, **values, **stated_now})
            numbers.append(change.id)
            continue
        row = {
            "service": change.service,
            "category": change.category,
            "observation": change.observation,
            "created_at": at,
            "session_id": session_id,
            "tier": tier,
            **values,
        }
        numbers.append(connection.execute(_ADD, row).scalar_one())
    return numbers


def _values(change: MemoryChange, *, at: datetime) -> dict[str, object]:
    """Return the columns that a change fills."""
    evidence = None if change.evidence == NO_EVIDENCE else json_text(msgspec.to_builtins(change.evidence))
    dated = {} if change.keeps_time else {"updated_at": at}
    return {
        "confidence": change.confidence,
        "active": change.active,
        "trust": change.trust.value,
        "supersedes": change.supersedes,
        "evidence": evidence,
        "forgotten_at": at if change.kind is ChangeKind.FORGOTTEN else None,
        **dated,
    }
