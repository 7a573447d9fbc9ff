"""Memories: what the agents believe, and what they do not any more."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Connection, select

from claudeops.domain.listing import Listing, Page
from claudeops.domain.memories.confidence import is_believed, standing
from claudeops.domain.memories.memory import KnownMemory, Trust
from claudeops.store.knowledge.memories import to_known_memory
from claudeops.store.reading import named, page
from claudeops.store.tables.memories import memories, session_memories

_MOST: Final = 20  # sessions, and memories in its place, that the story of a memory names


class MemoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A memory."""

    memory_id: int
    service: str | None  # None: it is of no service
    category: str
    observation: str
    confidence: float  # now: it fades
    trust: Trust
    active: bool
    believed: bool  # prompts may show it
    session_id: int | None
    tier: int | None
    chain: int | None  # that said it first
    said_by_chains: tuple[int, ...]
    looked_at: tuple[str, ...]  # what its session had looked at
    doubts: tuple[str, ...]  # why it is in quarantine
    supersedes: int | None
    created_at: datetime | None
    updated_at: datetime
    forgotten_at: datetime | None
    changed_by: str | None  # who has changed it by hand


class MemoryStory(MemoryEntry, frozen=True, kw_only=True):
    """A memory, the one that it stands in place of, those in its place, and who was shown it."""

    in_place_of: MemoryEntry | None
    replaced_by: tuple[MemoryEntry, ...]  # newest first, at most 20; one in quarantine replaces it once confirmed
    shown_to: tuple[int, ...]  # sessions in whose prompt it was, newest first, at most 20


def listed(connection: Connection, wanted: Listing, *, now: datetime, everything: bool = False) -> Page[MemoryEntry]:
    """Return the memories that are believed or in quarantine, or all of them, newest first.

    What has faded is seen by its age alone, so a page may hold fewer than its limit although there are more.
    """
    query = select(memories)
    if not everything:
        query = query.where(memories.c.active)
    either = None
    if wanted.service is not None:
        either = [memories.c.service == name for name in named(connection, memories.c.service, wanted.service)]
    found = page(connection, query, memories.c.id, wanted, to_known_memory, either=either)
    shown = tuple(to_entry(known, now) for known in found.items if everything or is_shown(known, now))
    return Page(items=shown, before=found.before, newest=found.newest)


def story(connection: Connection, memory_id: int, *, now: datetime) -> MemoryStory | None:
    """Return a memory with what it has to do with others; None: there is none of this id."""
    row = connection.execute(select(memories).where(memories.c.id == memory_id)).one_or_none()
    if row is None:
        return None
    entry = to_entry(to_known_memory(row), now)
    before = select(memories).where(memories.c.id == entry.supersedes)
    after = select(memories).where(memories.c.supersedes == memory_id).order_by(memories.c.id.desc()).limit(_MOST)
    shown = select(session_memories.c.session_id).where(session_memories.c.memory_id == memory_id)
    replaced = None if entry.supersedes is None else connection.execute(before).one_or_none()
    return MemoryStory(
        **{name: getattr(entry, name) for name in entry.__struct_fields__},
        in_place_of=None if replaced is None else to_entry(to_known_memory(replaced), now),
        replaced_by=tuple(to_entry(to_known_memory(one), now) for one in connection.execute(after)),
        shown_to=tuple(connection.execute(shown.order_by(session_memories.c.session_id.desc()).limit(_MOST)).scalars()),
    )


def state_of(memory: MemoryEntry) -> str:
    """Return in words whether prompts show a memory, and if not, why."""
    if memory.forgotten_at is not None:
        return f"forgotten by {memory.changed_by or 'an operator'}"
    if not memory.active:
        return "out of use"
    if memory.trust is Trust.QUARANTINED:
        return "not shown to sessions" + (f", because {memory.doubts[0]}" if memory.doubts else "")
    return "in use" if memory.believed else "faded"


def is_shown(known: KnownMemory, now: datetime) -> bool:
    """Return whether a list shows a memory that is not asked for all."""
    return known.trust is Trust.QUARANTINED or is_believed(known, now)


def to_entry(known: KnownMemory, now: datetime) -> MemoryEntry:
    """Return a memory as an entry."""
    return MemoryEntry(
        memory_id=known.id,
        service=known.service,
        category=known.category,
        observation=known.observation,
        confidence=standing(known, now),
        trust=known.trust,
        active=known.active,
        believed=is_believed(known, now),
        session_id=known.session_id,
        tier=known.tier,
        chain=known.evidence.root_session_id,
        said_by_chains=tuple(known.evidence.chains),
        looked_at=tuple(known.evidence.looked_at),
        doubts=tuple(known.evidence.doubts),
        supersedes=known.supersedes,
        created_at=known.created_at,
        updated_at=known.updated_at,
        forgotten_at=known.forgotten_at,
        changed_by=known.changed_by,
    )
