"""Briefings in the database: what each session was given to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import Connection, delete, insert, select

from claudeops.domain.briefing import BriefingText
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.sessions import Session
from claudeops.errors import StaleAttemptError
from claudeops.store.database import Database
from claudeops.store.knowledge.history import on_record
from claudeops.store.tables.memories import memories, session_memories, session_texts
from claudeops.store.tables.sessions import runs_as
from claudeops.wording.prompt.knowledge import KnownFacts

_ADD_TEXT: Final = insert(session_texts)


class Briefings:
    """What sessions are given to read."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(
        self, session_id: int, *, attempt: int, memory_ids: Iterable[int], texts: Sequence[BriefingText]
    ) -> None:
        """Write which memories and texts a session is given, in one transaction, before it starts.

        An earlier record of the same session is replaced. Ids of no memory are left out.
        """
        shown = sorted(set(memory_ids))

        def write(connection: Connection) -> None:
            if connection.execute(runs_as, {"session": session_id, "attempt": attempt}).first() is None:
                raise StaleAttemptError(f"session {session_id} is no longer running as attempt {attempt}.")
            for table in (session_memories, session_texts):
                connection.execute(delete(table).where(table.c.session_id == session_id))
            known = select(memories.c.id).where(memories.c.id.in_(shown))
            existing = connection.execute(known).scalars().all() if shown else ()
            if existing:
                rows = [{"session_id": session_id, "memory_id": number} for number in existing]
                connection.execute(insert(session_memories), rows)
            given = [
                {
                    "session_id": session_id,
                    "kind": text.kind.value,
                    "name": text.name,
                    "origin": text.origin,
                    "digest": text.digest,
                }
                for text in texts
            ]
            if given:
                connection.execute(_ADD_TEXT, given)

        await self._database.write(write)

    async def on_record(
        self, session: Session, *, about: Sequence[str], kinds: Iterable[str], rules: EscalationRules, now: datetime
    ) -> KnownFacts:
        """Return what a session that is about to start should know of the past.

        ``about`` are the services of its chain; without any, cases are told of those that are unwell or were acted upon
        lately. ``kinds`` are the kinds of action that its tier grants. All of it is from one snapshot.
        """
        return await self._database.read(
            partial(on_record, session=session, about=about, kinds=kinds, rules=rules, now=now)
        )
