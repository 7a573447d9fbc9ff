"""Memories: what the agents believe, and what they do not any more."""

from __future__ import annotations

from datetime import datetime

import msgspec
from sqlalchemy import Connection, func, select

from claudeops.domain.listing import Listing, Page
from claudeops.domain.memory.confidence import is_believed, standing
from claudeops.domain.memory.model import KnownMemory
from claudeops.domain.model import Trust
from claudeops.store.knowledge.memories import to_known_memory
from claudeops.store.reading import page
from claudeops.store.tables import memories


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


def listed(connection: Connection, wanted: Listing, *, now: datetime, everything: bool = False) -> Page[MemoryEntry]:
    """Return the memories that are believed or in quarantine, or all of them, newest first.

    What has faded is seen by its age alone, so a page may hold fewer than its limit although there are more.
    """
    query = select(memories)
    if not everything:
        query = query.where(memories.c.active)
    if wanted.service is not None:
        query = query.where(func.lower(memories.c.service) == wanted.service.strip().lower())
    found = page(connection, query, memories.c.id, wanted, to_known_memory)
    shown = tuple(to_entry(known, now) for known in found.items if everything or is_shown(known, now))
    return Page(items=shown, before=found.before)


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
