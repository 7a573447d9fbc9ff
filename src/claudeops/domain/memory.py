"""What is remembered between sessions: confidence arithmetic, merging, and selection for a prompt.

A memory's confidence is stored as of its ``updated_at``. Fading is computed from that pair whenever the memory
is read, and never written back, so that frequent reading does not make it fade faster.

Two observations are the same when their words are, whatever their case, spacing and punctuation. They contradict
each other when they differ only in numbers or a negation ("takes 30 s", "takes 60 s"). Anything else about the same
service and category is another fact, and both may be true. A contradiction counts against the older memory once,
when the newer one appears, and not again whenever the newer one is confirmed: two facts that only look alike do not
wear each other down.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from claudeops.domain.model import Memory, ReportedMemory
from claudeops.domain.text import regex

NEW: Final = 0.7
ACTIVE_FROM: Final = 0.3
REINFORCED_BY: Final = 0.1
CONTRADICTED_BY: Final = 0.2
FADED_BY: Final = 0.1
FADES_AFTER: Final = timedelta(days=30)
FADES_EVERY: Final = timedelta(days=7)
CHARACTERS_PER_TOKEN: Final = 4

_WORDS: Final = regex.Pattern(rf"[{regex.WORD}]+(?:['\x{{2019}}][{regex.WORD}]+)*")
_NEGATIONS: Final = frozenset({"not", "no", "never"})
_LINE_OVERHEAD: Final = len("- [/, confidence 0.70] \n")  # what a line of the prompt has beside the memory's texts


class ChangeKind(StrEnum):
    """What a report does to a memory."""

    ADDED = "added"
    REINFORCED = "reinforced"
    REVIVED = "revived"  # reinforced after it had become inactive
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownMemory:
    """A stored memory, active or not; ``confidence`` as of ``updated_at``."""

    id: int
    service: str | None
    category: str
    observation: str
    confidence: float  # 0 to 1
    active: bool
    updated_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryChange:
    """One row to insert (``id`` is ``None``) or to update."""

    kind: ChangeKind
    id: int | None
    service: str | None
    category: str
    observation: str
    confidence: float
    active: bool


def faded(confidence: float, updated_at: datetime, now: datetime) -> float:
    """Return what is left of a confidence: 0.1 less for every full week after the first 30 days, never below 0."""
    overdue = now - updated_at - FADES_AFTER
    weeks = max(0, overdue // FADES_EVERY)
    return _bounded(confidence - FADED_BY * weeks)


def is_active(confidence: float) -> bool:
    """Tell whether a memory of this confidence is still believed."""
    return confidence >= ACTIVE_FROM


def believed(known: Iterable[KnownMemory], now: datetime, limit: int) -> tuple[Memory, ...]:
    """Return at most ``limit`` active memories with their present confidence, best first."""
    present = (_as_of(old, now) for old in known if old.active)
    return tuple(best_first(item for item in present if is_active(item.confidence))[:limit])


def has_faded(known: KnownMemory, now: datetime) -> bool:
    """Tell whether an active memory has been unconfirmed for so long that it is no longer active."""
    return known.active and not is_active(faded(known.confidence, known.updated_at, now))


def merge(
    existing: Sequence[KnownMemory], reported: Iterable[ReportedMemory], *, now: datetime
) -> tuple[MemoryChange, ...]:
    """Return what a report's memories change; blank and repeated observations change nothing.

    A report does not contradict a memory that it confirms.
    """
    changes: list[MemoryChange] = []
    settled: set[int] = set()  # rows already confirmed by this report
    appeared: list[ReportedMemory] = []
    for memory in _distinct(reported):
        known = next((old for old in existing if _key(old) == _key(memory)), None)
        if known is None:
            changes.append(_added(memory))
            appeared.append(memory)
            continue
        settled.add(known.id)
        change = _reinforced(known, now)
        changes.append(change)
        if change.kind is ChangeKind.REVIVED:
            appeared.append(memory)
    doubted = (old for old in existing if old.active and old.id not in settled)
    changes += [_contradicted(old, now) for old in doubted if any(_contradicts(memory, old) for memory in appeared)]
    return tuple(changes)


def select(memories: Iterable[Memory], budget_tokens: int) -> tuple[Memory, ...]:
    """Return the believed memories that a prompt has room for, best first; a budget of 0 or less selects none.

    A memory that does not fit is skipped, so that one long text does not keep the others out.
    """
    room = budget_tokens * CHARACTERS_PER_TOKEN
    chosen = []
    for memory in best_first(memories):
        length = _LINE_OVERHEAD + len(memory.service or "") + len(memory.category) + len(memory.observation)
        if is_active(memory.confidence) and length <= room:
            chosen.append(memory)
            room -= length
    return tuple(chosen)


def best_first(memories: Iterable[Memory]) -> list[Memory]:
    """Return memories by confidence, the more recently confirmed first among equals."""
    return sorted(memories, key=lambda memory: (-memory.confidence, -memory.updated_at.timestamp(), memory.id))


def _as_of(known: KnownMemory, now: datetime) -> Memory:
    return Memory(
        id=known.id,
        service=known.service,
        category=known.category,
        observation=known.observation,
        confidence=faded(known.confidence, known.updated_at, now),
        updated_at=known.updated_at,
    )


def _added(memory: ReportedMemory) -> MemoryChange:
    return MemoryChange(
        kind=ChangeKind.ADDED,
        id=None,
        service=memory.service,
        category=memory.category,
        observation=memory.observation.strip(),
        confidence=NEW,
        active=True,
    )


def _reinforced(known: KnownMemory, now: datetime) -> MemoryChange:
    """Strengthen a memory; an inactive one becomes active again, with the least confidence that is."""
    standing = faded(known.confidence, known.updated_at, now)
    believed = known.active and is_active(standing)
    confidence = max(_bounded(standing + REINFORCED_BY), ACTIVE_FROM)
    return _adjusted(known, ChangeKind.REINFORCED if believed else ChangeKind.REVIVED, confidence)


def _contradicted(known: KnownMemory, now: datetime) -> MemoryChange:
    confidence = _bounded(faded(known.confidence, known.updated_at, now) - CONTRADICTED_BY)
    return _adjusted(known, ChangeKind.CONTRADICTED, confidence)


def _adjusted(known: KnownMemory, kind: ChangeKind, confidence: float) -> MemoryChange:
    return MemoryChange(
        kind=kind,
        id=known.id,
        service=known.service,
        category=known.category,
        observation=known.observation,
        confidence=confidence,
        active=is_active(confidence),
    )


def _distinct(reported: Iterable[ReportedMemory]) -> list[ReportedMemory]:
    first: dict[tuple[str | None, str, tuple[str, ...]], ReportedMemory] = {}
    for memory in reported:
        if memory.observation.strip():
            first.setdefault(_key(memory), memory)
    return list(first.values())


def _contradicts(memory: ReportedMemory, old: KnownMemory) -> bool:
    """Tell whether two different observations of one key differ only in numbers or a negation."""
    if (memory.service, memory.category) != (old.service, old.category):
        return False
    return _shape(_words(memory.observation)) == _shape(_words(old.observation))


def _key(memory: ReportedMemory | KnownMemory) -> tuple[str | None, str, tuple[str, ...]]:
    return memory.service, memory.category, _words(memory.observation)


def _words(observation: str) -> tuple[str, ...]:
    """Return the words of an observation; one without words stands for itself."""
    text = unicodedata.normalize("NFKC", observation).casefold()
    return tuple(word[0] for word in _WORDS.finditer(text)) or (text.strip(),)


def _shape(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words without negations and with every number alike."""
    stems = (regex.sub(r"n['\x{2019}]t$", "", word) for word in words if word not in _NEGATIONS)
    return tuple(regex.sub(r"\p{Nd}+", "#", stem) for stem in stems)


def _bounded(confidence: float) -> float:
    """Keep a confidence between 0 and 1, and round it: 0.7 - 4 * 0.1 must be 0.3, not a hair below."""
    return min(1.0, max(0.0, round(confidence, 4)))
