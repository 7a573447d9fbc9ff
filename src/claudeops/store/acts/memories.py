"""Memories: stated, forgotten, restored and confirmed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from claudeops.domain.memories.memory import KnownMemory
from claudeops.domain.memories.operator_changes import Declined
from claudeops.domain.report.report import ReportedMemory
from claudeops.store.acts import Refusal, refused
from claudeops.store.knowledge.memories import Memories
from claudeops.store.reading.memories import MemoryEntry, to_entry


class MemoryVerb(StrEnum):
    """What is done to a memory."""

    FORGET = "forget"  # no session is shown it again, not even when one says it again
    RESTORE = "restore"  # it was forgotten, replaced or given up
    CONFIRM = "confirm"  # out of quarantine


class MemoryAct(msgspec.Struct, frozen=True, kw_only=True):
    """A memory after an act, and the others that it has changed."""

    memory_id: int
    handled: bool = True
    memory: MemoryEntry
    also_changed: tuple[MemoryEntry, ...]


async def add_memory(memories: Memories, memory: ReportedMemory, *, by: str, now: datetime) -> MemoryAct | Refusal:
    """State a fact that every session is shown; what contradicts it is put out of use."""
    return _after("", await memories.add(memory, by=by, now=now), now)


async def change_memory(
    memories: Memories, verb: MemoryVerb, number: int, *, by: str, now: datetime
) -> MemoryAct | Refusal:
    """Forget, restore or confirm a memory."""
    operation = {
        MemoryVerb.FORGET: memories.forget,
        MemoryVerb.RESTORE: memories.restore,
        MemoryVerb.CONFIRM: memories.confirm,
    }[verb]
    return _after(str(number), await operation(number, by=by, now=now), now)


def _after(name: str, changed: Sequence[KnownMemory] | Declined, now: datetime) -> MemoryAct | Refusal:
    if isinstance(changed, Declined):
        return refused("memory", name, changed.sentence)
    memory, *others = (to_entry(each, now) for each in changed)
    return MemoryAct(memory_id=memory.memory_id, memory=memory, also_changed=tuple(others))
