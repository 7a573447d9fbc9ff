"""Merging: what the memories of a report change about those that are stored.

Two observations are the same when their words are, whatever their case, spacing and punctuation. They contradict
each other when they differ only in numbers or a negation ("takes 30 s", "takes 60 s"). Anything else about the same
service and category is another fact, and both may be true. A contradiction counts against the older memory once,
when the newer one appears, and not again whenever the newer one is confirmed: two facts that only look alike do not
wear each other down.

An echo changes nothing. A session that was shown a memory confirms it only by a look of its own that bears on its
service, and a chain counts once for a memory, however many of its sessions repeat it.

What is in quarantine does nothing to others. Another chain, whose session is clean and has looked, brings it out; only
then does it contradict and replace. An operator's memory is changed by no report at all, and what contradicts one stays
in quarantine.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from claudeops.domain.memories.categories import category_of
from claudeops.domain.memories.confidence import (
    ACTIVE_FROM,
    CONTRADICTED_BY,
    NEW,
    REINFORCED_BY,
    bounded,
    is_active,
    standing,
)
from claudeops.domain.memories.memory import ChangeKind, KnownMemory, Learner, MemoryChange, Trust
from claudeops.domain.report.evidence import KnownServices
from claudeops.domain.report.report import ReportedMemory
from claudeops.structs import replace
from claudeops.text import regex

_WORDS: Final = regex.Pattern(rf"[{regex.WORD}]+(?:['\x{{2019}}][{regex.WORD}]+)*")
_NEGATIONS: Final = frozenset({"not", "no", "never"})
_APPEARS: Final = frozenset({ChangeKind.ADDED, ChangeKind.REVIVED, ChangeKind.CONFIRMED})

Key = tuple[str | None, str, tuple[str, ...]]


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What a report's memories change, and what the session is told about the rest."""

    changes: tuple[MemoryChange, ...]  # each stored memory at most once
    notes: tuple[str, ...] = ()  # sentences for the session's warnings


def merge(existing: Sequence[KnownMemory], reported: Iterable[ReportedMemory], *, now: datetime, by: Learner) -> Merged:
    """Return what a report's memories change; blank and repeated observations change nothing.

    A report does not contradict or replace a memory that it confirms.
    """
    merging = _Merging(existing=existing, now=now, by=by)
    for memory in _distinct(reported, by.names):
        merging.take(memory)
    return merging.merged()


def same_as(existing: Iterable[KnownMemory], memory: ReportedMemory, names: KnownServices) -> KnownMemory | None:
    """Return the stored memory that says the same, an operator's and an active one before others."""
    wanted = _key(memory, names)
    same = [old for old in existing if _key(old, names) == wanted]
    return min(same, key=lambda old: (old.trust is not Trust.OPERATOR, not old.active, old.id), default=None)


def contradicts(memory: ReportedMemory, old: KnownMemory, names: KnownServices) -> bool:
    """Tell whether two different observations of one key differ only in numbers or a negation."""
    said, known = _key(memory, names), _key(old, names)
    return said[:2] == known[:2] and said[2] != known[2] and _shape(said[2]) == _shape(known[2])


def adjusted(known: KnownMemory, kind: ChangeKind, confidence: float) -> MemoryChange:
    """Return the change that leaves a memory as it is but for its confidence."""
    return MemoryChange(
        kind=kind,
        id=known.id,
        service=known.service,
        category=known.category,
        observation=known.observation,
        confidence=confidence,
        active=is_active(confidence),
        trust=known.trust,
        supersedes=known.supersedes,
        evidence=known.evidence,
    )


def contradicted(known: KnownMemory, now: datetime) -> MemoryChange:
    """Return the change that a contradiction makes."""
    return adjusted(known, ChangeKind.CONTRADICTED, bounded(standing(known, now) - CONTRADICTED_BY))


def superseded(known: KnownMemory) -> MemoryChange:
    """Return the change that puts a memory out of use because another one stands in its place."""
    return replace(adjusted(known, ChangeKind.SUPERSEDED, known.confidence), active=False, keeps_time=True)


class _Merging(msgspec.Struct, kw_only=True):
    """The changes of one report, as they come together."""

    existing: Sequence[KnownMemory]
    now: datetime
    by: Learner
    changes: list[MemoryChange] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    settled: set[int] = msgspec.field(default_factory=set)  # rows that this report has said again
    appeared: list[ReportedMemory] = msgspec.field(default_factory=list)
    replaced: list[int] = msgspec.field(default_factory=list)  # ids of memories in whose place another one stands

    def take(self, memory: ReportedMemory) -> None:
        known = same_as(self.existing, memory, self.by.names)
        old = self._replaced_by(memory, known)
        change = self._added(memory, old) if known is None else self._seen_again(known)
        if known is not None:
            self.settled.add(known.id)
        if change is None:
            return
        if old is not None and change.supersedes is None:
            change = replace(change, supersedes=old.id)
        self.changes.append(change)
        if change.trust is Trust.QUARANTINED:
            return
        if change.kind in _APPEARS:
            self.appeared.append(memory)
        if change.supersedes is not None and (old is not None or change.kind is ChangeKind.CONFIRMED):
            self.replaced.append(change.supersedes)

    def merged(self) -> Merged:
        gone = {number for number in self.replaced if number not in self.settled}
        others = [old for old in self.existing if old.active and old.id not in self.settled]
        changes = [superseded(old) for old in others if old.id in gone and old.trust is not Trust.OPERATOR]
        changes += [
            contradicted(old, self.now)
            for old in others
            if old.id not in gone and old.trust is not Trust.OPERATOR and self._is_contradicted(old)
        ]
        return Merged(changes=(*self.changes, *changes), notes=tuple(dict.fromkeys(self.notes)))

    def _is_contradicted(self, old: KnownMemory) -> bool:
        return any(contradicts(memory, old, self.by.names) for memory in self.appeared)

    def _added(self, memory: ReportedMemory, old: KnownMemory | None) -> MemoryChange:
        trust = Trust.QUARANTINED if (disputed := self._disputed(memory)) else self.by.trust
        if disputed is not None:
            self.notes.append(
                f"memory-disputed: what was reported contradicts m{disputed.id}, which an operator has said; it is kept"
                " in quarantine"
            )
        return MemoryChange(
            kind=ChangeKind.ADDED,
            id=None,
            service=memory.service,
            category=memory.category,
            observation=memory.observation.strip(),
            confidence=NEW,
            active=True,
            trust=trust,
            supersedes=None if old is None else old.id,
            evidence=self.by.evidence(memory.service),
        )

    def _seen_again(self, known: KnownMemory) -> MemoryChange | None:
        """Strengthen a memory, or return None: it stands as it is. One that comes back is just active again."""
        if known.trust is Trust.OPERATOR or self.by.chain in known.evidence.chains:
            return None
        if known.forgotten_at is not None:
            self.notes.append(f"memory-forgotten: an operator had m{known.id} forgotten; `memories restore` undoes it")
            return None
        looked = bool(self.by.looks_at(known.service))
        clean = self.by.trust is not Trust.QUARANTINED
        left = standing(known, self.now)
        if known.trust is Trust.QUARANTINED:
            kind, counts = ChangeKind.CONFIRMED, clean and looked and self._disputed(known) is None
        elif known.active and is_active(left):
            kind, counts = ChangeKind.REINFORCED, looked or known.id not in self.by.shown
        else:
            kind, counts = ChangeKind.REVIVED, clean and (looked or known.id not in self.by.shown)
        if not counts:
            return None
        confidence = max(bounded(left + REINFORCED_BY), ACTIVE_FROM)
        return replace(
            adjusted(known, kind, confidence),
            trust=Trust.CONFIRMED,
            evidence=known.evidence.said_by(self.by.chain),
        )

    def _disputed(self, memory: ReportedMemory | KnownMemory) -> KnownMemory | None:
        """Return the operator's memory that says otherwise."""
        said = ReportedMemory(category=memory.category, observation=memory.observation, service=memory.service)
        for old in self.existing:
            if old.trust is Trust.OPERATOR and old.active and contradicts(said, old, self.by.names):
                return old
        return None

    def _replaced_by(self, memory: ReportedMemory, known: KnownMemory | None) -> KnownMemory | None:
        """Return the memory that a report may put another one in the place of; a refusal leaves a note."""
        number = memory.supersedes
        if number is None or (known is not None and known.id == number):
            return None
        old = next((each for each in self.existing if each.id == number), None)
        if old is None or number not in self.by.shown:
            why = "this session was not shown it"
        elif old.trust is Trust.OPERATOR:
            why = "an operator has said it"
        elif old.service is not None and not self._same_service(old, memory):
            why = "it is about another service"
        else:
            return old
        self.notes.append(f"memory-supersedes: m{number} was not replaced, because {why}")
        return None

    def _same_service(self, old: KnownMemory, memory: ReportedMemory) -> bool:
        return _service(old.service, self.by.names) == _service(memory.service, self.by.names)


def _distinct(reported: Iterable[ReportedMemory], names: KnownServices) -> list[ReportedMemory]:
    first: dict[Key, ReportedMemory] = {}
    for memory in reported:
        if not memory.observation.strip():
            continue
        kept = first.setdefault(_key(memory, names), memory)
        if kept.supersedes is None and memory.supersedes is not None:
            first[_key(memory, names)] = replace(kept, supersedes=memory.supersedes)
    return list(first.values())


def _key(memory: ReportedMemory | KnownMemory, names: KnownServices) -> Key:
    return _service(memory.service, names), category_of(memory.category).value, _words(memory.observation)


def _service(service: str | None, names: KnownServices) -> str | None:
    return None if service is None else names.of(service)


def _words(observation: str) -> tuple[str, ...]:
    """Return the words of an observation; one without words stands for itself."""
    text = unicodedata.normalize("NFKC", observation).casefold()
    return tuple(word[0] for word in _WORDS.finditer(text)) or (text.strip(),)


def _shape(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words without negations and with every number alike."""
    stems = (regex.sub(r"n['\x{2019}]t$", "", word) for word in words if word not in _NEGATIONS)
    return tuple(regex.sub(r"\p{Nd}+", "#", stem) for stem in stems)
