"""Selection: which memories a prompt has room for, and in which order they stand in it."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from claudeops.domain.memories.confidence import best_first, is_active
from claudeops.domain.memories.memory import Memory, Trust
from claudeops.domain.report.evidence import KnownServices
from claudeops.structs import replace
from claudeops.text import clip

CHARACTERS_PER_TOKEN: Final = 4
OPERATORS_TOKENS: Final = 2000
"""What operators have said has room of its own, and leaves the budget to what sessions have learnt."""

LONGEST: Final = 500  # characters of a learnt observation in a prompt
LONGEST_STATED: Final = 1000  # of an operator's
MARK: Final = " [cut]"

_NO_NAMES: Final = KnownServices({}, clip)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The memories of one prompt."""

    chosen: tuple[Memory, ...] = ()  # grouped by service, each observation one line of bounded length
    total: int = 0  # how many are believed

    @property
    def left_out(self) -> int:
        """How many there was no room for."""
        return self.total - len(self.chosen)

    @property
    def counted(self) -> str:
        """How many of how many, for the prompt: ``12 of 40``."""
        return f"{len(self.chosen)} of {self.total}"


def line(memory: Memory) -> str:
    """Return the line that stands for a memory in a prompt; the budget counts it, with its line break."""
    key = memory.category if memory.service is None else f"{memory.service}/{memory.category}"
    certain = "an operator's" if memory.trust is Trust.OPERATOR else f"confidence {memory.confidence:.2f}"
    return f"- [m{memory.id} {_flat(key)}, {certain}] {memory.observation}"


def select(
    memories: Iterable[Memory], budget_tokens: int, *, first: Collection[str] = (), names: KnownServices = _NO_NAMES
) -> Selection:
    """Return what a prompt shows; a budget of 0 or less switches memories off.

    Services of ``first`` (those of the chain) come before what is about no service, and that before other services.
    Among equals, the most confidence for the fewest characters is taken first. What does not fit is skipped, so that
    one long text does not keep the others out. An operator's memories do not count against the budget.
    """
    if budget_tokens <= 0:
        return Selection()
    ours = {names.of(name): place for place, name in enumerate(first)}
    known = [_short(one) for one in memories if is_active(one.confidence) and one.trust is not Trust.QUARANTINED]

    def rank(memory: Memory) -> int:
        if memory.service is None:
            return 1
        return 0 if names.of(memory.service) in ours else 2

    def worth(memory: Memory) -> tuple[int, float]:
        return rank(memory), -memory.confidence / len(line(memory))

    def group(memory: Memory) -> tuple[int, int, str]:
        name = names.of(memory.service) if memory.service is not None else ""
        return rank(memory), ours.get(name, 0), name

    ordered = best_first(known)
    stated = [one for one in ordered if one.trust is Trust.OPERATOR]
    learnt = [one for one in ordered if one.trust is not Trust.OPERATOR]
    chosen = [
        *_fitting(sorted(stated, key=rank), OPERATORS_TOKENS),
        *_fitting(sorted(learnt, key=worth), budget_tokens),
    ]
    return Selection(chosen=tuple(sorted(best_first(chosen), key=group)), total=len(known))


def _fitting(memories: Iterable[Memory], tokens: int) -> list[Memory]:
    room = tokens * CHARACTERS_PER_TOKEN
    chosen = []
    for memory in memories:
        length = len(line(memory)) + 1
        if length <= room:
            chosen.append(memory)
            room -= length
    return chosen


def _short(memory: Memory) -> Memory:
    longest = LONGEST_STATED if memory.trust is Trust.OPERATOR else LONGEST
    return replace(memory, observation=_cut(_flat(memory.observation), longest))


def _flat(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str, longest: int) -> str:
    """Return at most ``longest`` characters, with a mark for what is missing, and no letter without its accent."""
    if len(text) <= longest:
        return text
    end = longest - len(MARK)
    while end > 0 and unicodedata.combining(text[end]):
        end -= 1
    return text[:end].rstrip() + MARK
