"""Tables of what the agents believe, and of what each session was shown: memories, and texts of the library."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, CheckConstraint, Column, Float, ForeignKey, Index, Integer, PrimaryKeyConstraint, Table

from claudeops.domain.briefing import TextKind
from claudeops.domain.memories.memory import Trust
from claudeops.store.tables.base import metadata, one_of, session_column, table
from claudeops.store.tables.columns import CleanText, Name, UtcDateTime

memories: Final = table(
    "memories",
    Column("service", Name),
    Column("category", Name, nullable=False),
    Column("observation", CleanText, nullable=False),
    Column("confidence", Float, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    session_column(nullable=True),
    Column("tier", Integer),
    Column("trust", Name, nullable=False, server_default=Trust.CONFIRMED.value),
    Column("supersedes", Integer, ForeignKey("memories.id")),
    Column("evidence", CleanText),
    Column("forgotten_at", UtcDateTime),
    Column("changed_by", Name),
    CheckConstraint("confidence >= 0 AND confidence <= 1", name="confidence"),
    one_of("trust", Trust),
    Index(None, "category", "service"),
    Index(None, "active", "updated_at"),
    Index(None, "active", "id"),
    Index(None, "service", "id"),
    Index(None, "session_id"),
    Index(None, "supersedes"),
)

session_memories: Final = Table(
    "session_memories",
    metadata,
    session_column(),
    Column("memory_id", Integer, ForeignKey("memories.id"), nullable=False),
    PrimaryKeyConstraint("session_id", "memory_id"),
    Index(None, "memory_id"),
)

session_texts: Final = table(
    "session_texts",
    session_column(),
    Column("kind", Name, nullable=False),
    Column("name", Name, nullable=False),
    Column("origin", Name, nullable=False),
    Column("digest", Name, nullable=False),
    one_of("kind", TextKind),
    Index(None, "session_id"),
)
