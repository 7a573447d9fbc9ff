"""What is on record, for readers that change nothing: sessions, chains, their verdicts and events, memories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from sqlalchemy import Connection, Table, func, or_, select, union

from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.domain.chains.chain_record import (
    ChainRecord,
    JudgedCall,
    SessionPosition,
    SessionRecord,
    TimedVerdict,
)
from claudeops.domain.events import EventLevel
from claudeops.domain.live import EventRaised
from claudeops.domain.memories.confidence import believed
from claudeops.domain.memories.memory import Memory
from claudeops.domain.sessions import Session, Status
from claudeops.store import queries
from claudeops.store.database import Database
from claudeops.store.knowledge.memories import to_known_memory
from claudeops.store.rows import TableRow, to_past_action, to_session
from claudeops.store.tables.events import events
from claudeops.store.tables.memories import memories
from claudeops.store.tables.sessions import cooldown_actions, is_under_way, sessions, tool_calls


class Records:
    """What is on record, read-only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def session(self, session_id: int) -> Session | None:
        """Return one session; ``None`` if there is none."""
        return await self._database.read(partial(queries.session, session_id=session_id))

    async def newest(self) -> Session | None:
        """Return the running session that was queued last, else the newest of all; ``None`` if there is none."""
        last = select(func.max(sessions.c.id))
        running = last.where(sessions.c.status == Status.RUNNING.value)
        query = select(sessions).where(
            sessions.c.id == func.coalesce(running.scalar_subquery(), last.scalar_subquery())
        )
        row = await self._database.read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else to_session(row)

    async def under_way(self, after: int) -> Sequence[SessionPosition]:
        """Return the sessions that have not ended and all sessions with an id above ``after``, oldest first."""
        place = select(sessions.c.id, sessions.c.root_session_id, sessions.c.status)
        # Two queries in one, each with its index: pollers look again and again.
        query = union(place.where(is_under_way), place.where(sessions.c.id > after)).order_by("id")
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return tuple(
            SessionPosition(session_id=row.id, chain=row.root_session_id, status=Status(row.status)) for row in rows
        )

    async def session_record(self, session_id: int) -> SessionRecord:
        """Return what is on record about a session besides its row: verdicts, events and actions."""
        calls = select(tool_calls).where(tool_calls.c.session_id == session_id).order_by(tool_calls.c.id)
        raised = (
            select(events)
            .where(or_(events.c.session_id == session_id, events.c.last_session_id == session_id))
            .order_by(events.c.id)
        )

        taken = (
            select(cooldown_actions).where(cooldown_actions.c.session_id == session_id).order_by(cooldown_actions.c.id)
        )

        def find(connection: Connection) -> SessionRecord:
            return _to_session_record(
                session_id,
                calls=connection.execute(calls),
                raised=connection.execute(raised),
                actions=connection.execute(taken),
            )

        return await self._database.read(find)

    async def chain(self, root_session_id: int) -> Sequence[Session]:
        """Return a chain's sessions, oldest first."""
        query = select(sessions).where(sessions.c.root_session_id == root_session_id).order_by(sessions.c.id)
        return await self._database.read(lambda connection: tuple(map(to_session, connection.execute(query))))

    async def chain_record(self, root_session_id: int) -> ChainRecord:
        """Return a chain's tool calls, its actions, and the events first written by its sessions."""

        def of(table: Table, connection: Connection) -> Sequence[TableRow]:
            query = select(table).join(sessions, sessions.c.id == table.c.session_id)
            query = query.where(sessions.c.root_session_id == root_session_id).order_by(table.c.id)
            return connection.execute(query).all()

        def find(connection: Connection) -> ChainRecord:
            return _to_chain_record(
                calls=of(tool_calls, connection),
                actions=of(cooldown_actions, connection),
                events=of(events, connection),
            )

        return await self._database.read(find)

    async def memories(self, limit: int = 500) -> Sequence[Memory]:
        """Return the memories that prompts may show, with the confidence left to them now, best first.

        They are active, not faded, and not in quarantine.
        """
        query = select(memories).where(memories.c.active)

        def find(connection: Connection) -> Sequence[Memory]:
            return believed(map(to_known_memory, connection.execute(query)), self._database.now(), limit)

        return await self._database.read(find)


def _to_session_record(
    session_id: int, *, calls: Iterable[TableRow], raised: Iterable[TableRow], actions: Iterable[TableRow]
) -> SessionRecord:
    verdicts: defaultdict[str, list[TimedVerdict]] = defaultdict(list)
    for row in calls:
        verdict = Verdict(kind=VerdictKind(row.verdict), reason=row.reason)
        verdicts[row.tool_use_id].append(TimedVerdict(verdict=verdict, at=row.decided_at))
    return SessionRecord(
        verdicts={tool_use_id: tuple(given) for tool_use_id, given in verdicts.items()},
        events=tuple(
            EventRaised(
                # When a later session counted the event up, `last_seen` is that session's time, not this one's.
                at=row.last_seen if row.last_session_id == session_id else row.first_seen,
                level=EventLevel(row.level),
                service=row.service,
                message=row.message,
                session_id=session_id,
            )
            for row in raised
        ),
        actions=tuple(map(to_past_action, actions)),
    )


def _to_chain_record(
    *, calls: Iterable[TableRow], actions: Iterable[TableRow], events: Iterable[TableRow]
) -> ChainRecord:
    """Turn rows, oldest first, into a record."""
    return ChainRecord(
        calls=tuple(
            JudgedCall(
                session_id=row.session_id,
                tool_name=row.tool_name,
                redacted_input=row.input,
                verdict=VerdictKind(row.verdict),
                reason=row.reason,
                is_error=row.is_error,
            )
            for row in calls
        ),
        actions=tuple(map(to_past_action, actions)),
        events=tuple(
            EventRaised(
                at=row.first_seen,
                level=EventLevel(row.level),
                service=row.service,
                message=row.message,
                session_id=row.session_id,
            )
            for row in events
        ),
    )
