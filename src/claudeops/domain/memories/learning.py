"""Learning: what becomes of the memories in a report, from the words to the rows.

First each one is clipped, refused or given a category of the list. Then it is decided whether the session is clean, and
the rest is merged with what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.memories.categories import category_of, spellings
from claudeops.domain.memories.memory import KnownMemory, Learner, MemoryChange, Trust
from claudeops.domain.memories.merge import merge
from claudeops.domain.memories.refusal import MemoryRefusal, refusal_of
from claudeops.domain.memories.trust import doubts
from claudeops.domain.report.evidence import Background, Proof
from claudeops.domain.report.report import Report, ReportedMemory
from claudeops.domain.sessions import Ending, Session
from claudeops.structs import replace
from claudeops.text import clean, clip, join_names

_MOST_EVENTS: Final = 10  # about memories that were refused, of one session


class OnShelf(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored that matters for the memories of a report."""

    memories: Sequence[KnownMemory] = ()  # those that `wanted` names, active or not
    shown: frozenset[int] = frozenset()  # ids of the memories in the session's prompt
    denials: Sequence[str] = ()  # the reasons of its denied calls


class LearningResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is written of a report's memories."""

    changes: tuple[MemoryChange, ...] = ()
    events: tuple[NewEvent, ...] = ()
    warnings: tuple[str, ...] = ()


def reported_memories(report: Report | None) -> tuple[ReportedMemory, ...]:
    """Return a report's memories, clipped to their columns."""
    return tuple(
        replace(
            item,
            service=clip(item.service) if item.service else None,
            category=clip(item.category),
            observation=clean(item.observation),
        )
        for item in (report.memories if report else ())
    )


def wanted(report: Report | None) -> tuple[frozenset[str], frozenset[int]]:
    """Return the categories, in every spelling, and the ids of the memories that a report may change."""
    reported = reported_memories(report)
    numbers = {item.supersedes for item in reported if item.supersedes is not None}
    return spellings({item.category for item in reported}), frozenset(numbers)


def learn(
    session: Session,
    ending: Ending,
    shelf: OnShelf,
    *,
    proof: Proof,
    before: Background,
    at: datetime,
) -> LearningResult:
    """Return what a session's report changes about the memories."""
    reported = reported_memories(ending.extraction.report)
    if not reported:
        return LearningResult()
    judged = [(item, refusal_of(item.service or "", item.category, item.observation)) for item in reported]
    refused = [(item, refusal) for item, refusal in judged if refusal is not None]
    kept = [item for item, refusal in judged if refusal is None]
    why = doubts(session, ending, proof=proof, before=before, refused=len(refused), denials=shelf.denials)
    learner = Learner(
        chain=session.root_session_id,
        trust=Trust.QUARANTINED if why else Trust.CONFIRMED,
        doubts=why,
        shown=shelf.shown,
        looks=ending.looks,
        before=before,
        names=proof.names,
    )
    merged = merge(shelf.memories, [_categorised(item) for item in kept], now=at, by=learner)
    return LearningResult(
        changes=merged.changes,
        events=tuple(_event(item, refusal) for item, refusal in refused[:_MOST_EVENTS]),
        warnings=(*_about_categories(kept), *merged.notes, *_about_refusals(refused)),
    )


def _categorised(item: ReportedMemory) -> ReportedMemory:
    return replace(item, category=category_of(item.category).value)


def _about_categories(kept: Sequence[ReportedMemory]) -> list[str]:
    taken: Mapping[str, str] = {item.category: category_of(item.category).value for item in kept}
    return [f"memory-category: {given[:40]!r} is taken as {meant}" for given, meant in taken.items() if given != meant]


def _about_refusals(refused: Sequence[tuple[ReportedMemory, MemoryRefusal]]) -> list[str]:
    if not refused:
        return []
    kinds = join_names(list(dict.fromkeys(refusal.reason.value for _, refusal in refused)))
    return [f"memory-refused: not stored, {len(refused)} of the report's memories ({kinds})"]


def _event(item: ReportedMemory, refusal: MemoryRefusal) -> NewEvent:
    return NewEvent(
        level=EventLevel.WARNING,
        service=item.service,
        message=f'A memory in the report was refused, because it {refusal.sentence}: "{refusal.quote}"',
        fingerprint=clip(f"memory_refused:{refusal.reason.value}:{item.service or ''}"),
    )
