"""What operators do to memories by hand: they add, forget, restore and confirm. Nothing is deleted.

An operator's own memory is certain, never fades, and puts out of use what contradicts it. What an operator had
forgotten does not come back when a session says it again; anything else that is out of use does.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from claudeops.domain.memories.confidence import ACTIVE_FROM, CERTAIN, is_active, standing
from claudeops.domain.memories.memory import ChangeKind, KnownMemory, MemoryChange, Trust
from claudeops.domain.memories.merge import adjusted, contradicted, contradicts, same_as, superseded
from claudeops.domain.memories.refusal import RefusalReason, refusal_of
from claudeops.domain.report.evidence import KnownServices
from claudeops.domain.report.report import ReportedMemory
from claudeops.structs import replace
from claudeops.text import clip

LONGEST: Final = 1000  # characters of what an operator states; prompts show no more of it
_NAMES: Final = KnownServices({}, clip)


class Declined(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is changed."""

    sentence: str


def add(existing: Sequence[KnownMemory], memory: ReportedMemory) -> tuple[MemoryChange, ...] | Declined:
    """Return the changes of an operator's statement; the first is the memory itself."""
    text = memory.observation.strip()
    if not text:
        return Declined(sentence="Nothing was stated.")
    if len(text) > LONGEST:
        return Declined(sentence=f"A memory has at most {LONGEST} characters, not {len(text)}: state one fact.")
    refusal = refusal_of(text)
    if refusal is not None and refusal.reason is RefusalReason.SECRET:
        return Declined(sentence="This seems to hold a secret, and every session would read it.")
    old = next((each for each in existing if each.id == memory.supersedes), None)
    if memory.supersedes is not None and old is None:
        return Declined(sentence=f"There is no memory {memory.supersedes}.")
    same = same_as(existing, memory, _NAMES)
    if same is not None and same.trust is Trust.OPERATOR and same.active:
        return Declined(sentence=f"Memory {same.id} says so already.")
    replaced = [each for each in existing if each.active and each is not same and contradicts(memory, each, _NAMES)]
    if old is not None and old.active and old is not same and old not in replaced:
        replaced.insert(0, old)
    stated = MemoryChange(
        kind=ChangeKind.ADDED if same is None else ChangeKind.CONFIRMED,
        id=None if same is None else same.id,
        service=memory.service,
        category=memory.category,
        observation=text,
        confidence=CERTAIN,
        active=True,
        trust=Trust.OPERATOR,
        supersedes=memory.supersedes or (replaced[0].id if replaced else None),
    )
    return (stated if same is None else replace(stated, evidence=same.evidence), *map(superseded, replaced))


def forget(known: KnownMemory) -> tuple[MemoryChange, ...] | Declined:
    """Return the change that puts a memory out of use until it is restored."""
    if known.forgotten_at is not None:
        return Declined(sentence=f"Memory {known.id} is forgotten already.")
    change = adjusted(known, ChangeKind.FORGOTTEN, known.confidence)
    return (replace(change, active=False, keeps_time=True),)


def restore(known: KnownMemory, now: datetime) -> tuple[MemoryChange, ...] | Declined:
    """Return the change that brings a memory back, as it was; one that has faded is just active again."""
    if known.active and is_active(standing(known, now)):
        return Declined(sentence=f"Memory {known.id} is in use.")
    if is_active(standing(known, now)):
        return (replace(adjusted(known, ChangeKind.RESTORED, known.confidence), active=True, keeps_time=True),)
    return (adjusted(known, ChangeKind.RESTORED, ACTIVE_FROM),)


def confirm(existing: Sequence[KnownMemory], known: KnownMemory, now: datetime) -> tuple[MemoryChange, ...] | Declined:
    """Return the changes that bring a memory out of quarantine; only now does it contradict and replace others."""
    if known.trust is not Trust.QUARANTINED:
        return Declined(sentence=f"Memory {known.id} is not in quarantine.")
    change = adjusted(known, ChangeKind.CONFIRMED, max(standing(known, now), ACTIVE_FROM))
    memory = ReportedMemory(category=known.category, observation=known.observation, service=known.service)
    others = [each for each in existing if each.active and each.id != known.id and each.trust is not Trust.OPERATOR]
    gone = [each for each in others if each.id == known.supersedes]
    doubted = [each for each in others if each not in gone and contradicts(memory, each, _NAMES)]
    return (
        replace(change, trust=Trust.CONFIRMED),
        *map(superseded, gone),
        *(contradicted(each, now) for each in doubted),
    )
