"""Confidence: how it grows, how it fades, and from where on a memory is believed.

It is stored as of ``updated_at``. Fading is computed from that pair whenever the memory is read, and never written
back, so that frequent reading does not make it fade faster. What an operator has said does not fade.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from claudeops.domain.memories.memory import KnownMemory, Memory, Trust

NEW: Final = 0.7
CERTAIN: Final = 1.0
ACTIVE_FROM: Final = 0.3
REINFORCED_BY: Final = 0.1
CONTRADICTED_BY: Final = 0.2
FADED_BY: Final = 0.1
FADES_AFTER: Final = timedelta(days=30)
FADES_EVERY: Final = timedelta(days=7)


def faded(confidence: float, updated_at: datetime, now: datetime) -> float:
    """Return what is left of a confidence: 0.1 less for every full week after the first 30 days, never below 0."""
    overdue = now - updated_at - FADES_AFTER
    weeks = max(0, overdue // FADES_EVERY)
    return bounded(confidence - FADED_BY * weeks)


def standing(known: KnownMemory, now: datetime) -> float:
    """Return the confidence that a memory has now."""
    if known.trust is Trust.OPERATOR:
        return known.confidence
    return faded(known.confidence, known.updated_at, now)


def is_active(confidence: float) -> bool:
    """Tell whether a memory of this confidence is still believed."""
    return confidence >= ACTIVE_FROM


def is_believed(known: KnownMemory, now: datetime) -> bool:
    """Tell whether prompts may show a memory."""
    return known.active and known.trust is not Trust.QUARANTINED and is_active(standing(known, now))


def believed(known: Iterable[KnownMemory], now: datetime, limit: int) -> tuple[Memory, ...]:
    """Return at most ``limit`` believed memories with their present confidence, best first."""
    return tuple(best_first(_as_of(old, now) for old in known if is_believed(old, now))[:limit])


def has_faded(known: KnownMemory, now: datetime) -> bool:
    """Tell whether an active memory has been unconfirmed for so long that it is no longer active."""
    return known.active and not is_active(standing(known, now))


def best_first(memories: Iterable[Memory]) -> list[Memory]:
    """Return memories, those of operators first, then by confidence, the more recently confirmed first among equals."""
    return sorted(
        memories,
        key=lambda one: (one.trust is not Trust.OPERATOR, -one.confidence, -one.updated_at.timestamp(), one.id),
    )


def bounded(confidence: float) -> float:
    """Keep a confidence between 0 and 1, and round it: 0.7 - 4 * 0.1 must be 0.3, not a hair below."""
    return min(1.0, max(0.0, round(confidence, 4)))


def _as_of(known: KnownMemory, now: datetime) -> Memory:
    return Memory(
        id=known.id,
        service=known.service,
        category=known.category,
        observation=known.observation,
        confidence=standing(known, now),
        updated_at=known.updated_at,
        trust=known.trust,
    )
