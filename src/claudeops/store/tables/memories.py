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
    Column("service", Name, comment="the service that it concerns; null: no single one"),
    Column("category", Name, nullable=False, comment="what it is about; in rows from before revision 0008 any word"),
    Column("observation", CleanText, nullable=False, comment="what was learnt, in words"),
    Column(
        "confidence",
        Float,
        nullable=False,
        comment="0 to 1, as of `updated_at`; 30 days after that it fades by 0.1 a week, which is computed when it "
        "is read",
    ),
    Column(
        "active",
        Boolean,
        nullable=False,
        comment="whether it is in use; false below 0.3, when it is forgotten, and when another one stands in its place",
    ),
    Column("created_at", UtcDateTime, nullable=False, comment="when it was first reported"),
    Column("updated_at", UtcDateTime, nullable=False, comment="when its confidence last changed"),
    session_column("the session that reported it first; null: an operator added it, or it is removed", nullable=True),
    Column("tier", Integer, comment="of that session; 0: an operator; null: not known"),
    Column(
        "trust",
        Name,
        nullable=False,
        server_default=Trust.CONFIRMED.value,
        comment="whose word it is; prompts show `operator` and `confirmed`",
    ),
    Column(
        "supersedes",
        Integer,
        ForeignKey("memories.id"),
        comment="the memory in whose place it stands, or will stand once it is confirmed; null: none",
    ),
    Column(
        "evidence",
        CleanText,
        comment="JSON: `root_session_id` (the chain that reported it first), `tool_use_ids` and `looked_at` of the "
        "looks behind it, `chains` (that have reported it: the first and the latest), `doubts` (why its session "
        "was not clean); null: from before revision 0008, or an operator's",
    ),
    Column(
        "forgotten_at",
        UtcDateTime,
        comment="when an operator had it forgotten; sessions that report it again do not bring it back; null: not "
        "forgotten",
    ),
    Column("changed_by", Name, comment="the operator who last added, forgot, restored or confirmed it; null: none has"),
    CheckConstraint("confidence >= 0 AND confidence <= 1", name="confidence"),
    one_of("trust", Trust),
    Index(None, "category", "service"),
    Index(None, "active", "updated_at"),
    Index(None, "active", "id"),
    Index(None, "service", "id"),
    Index(None, "session_id"),
    Index(None, "supersedes"),
    Index(None, "created_at"),
    Index(None, "forgotten_at"),
    comment="What was learnt, with a confidence that grows when it is seen again and fades when it is not. No "
    "row is ever deleted: what is out of use can be brought back.",
)

session_memories: Final = Table(
    "session_memories",
    metadata,
    session_column("the session"),
    Column(
        "memory_id", Integer, ForeignKey("memories.id"), nullable=False, comment="the memory that its prompt showed"
    ),
    PrimaryKeyConstraint("session_id", "memory_id"),
    Index(None, "memory_id"),
    comment="Which memories stood in a session's prompt.",
)

session_texts: Final = table(
    "session_texts",
    session_column("the session that was given the text"),
    Column("kind", Name, nullable=False, comment="what the text is"),
    Column("name", Name, nullable=False, comment="of the text, in its kind"),
    Column("origin", Name, nullable=False, comment="the file it comes from, or that it is built in"),
    Column("digest", Name, nullable=False, comment="SHA-256 (hex) of the text as it was given"),
    one_of("kind", TextKind),
    Index(None, "session_id"),
    comment="Which texts a session was given besides: the prompt file, manifests, and what came from the library.",
)
