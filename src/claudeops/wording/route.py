"""Who would take a text: scores tiers, library texts and probes by the words they share with it, without a model.

A word counts the more, the fewer of the candidates know it, and the closer it stands to a candidate's name. A score is
between 0 and 1: the part of the text's weight that a candidate accounts for. A tier also earns what the best text
written for it earns, and the lowest tier takes whatever no other candidate knows, because it is the one that looks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.domain.probes.probe import Probe, kind_of, target_of
from claudeops.formats.library import LibraryKind, LibraryText, same_word
from claudeops.structs import replace

NAME: Final = 1.0
ABOUT: Final = 0.9
WHEN: Final = 0.5
BODY: Final = 0.25
ACTION: Final = 0.8

_INHERITED: Final = 0.9  # of a text's score goes to its tier
_FLOOR: Final = 0.2  # of the lowest tier; the one above has half of it, and so on
_MOST_CHARACTERS: Final = 20_000  # of a text that is routed
_SHORTEST: Final = 2
_STEM: Final = 4  # the letters that stay of a word at least
_ENDINGS: Final = ("ies", "ing", "ed", "es", "s", "y", "e")
_FILLERS: Final = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "can",
        "do",
        "does",
        "for",
        "from",
        "has",
        "have",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "no",
        "not",
        "of",
        "on",
        "or",
        "our",
        "out",
        "say",
        "so",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "up",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "will",
        "with",
        "you",
        "your",
    ]
)


class What(StrEnum):
    """What a candidate is."""

    TIER = "tier"
    CHECK = "check"
    PLAYBOOK = "playbook"
    SKILL = "skill"
    PROBE = "probe"


_WHAT: Final = {LibraryKind.CHECK: What.CHECK, LibraryKind.PLAYBOOK: What.PLAYBOOK, LibraryKind.SKILL: What.SKILL}


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What may take a text: a tier, a probe, or a text of the library."""

    what: What
    name: str
    source_hint: str  # where it is written down
    tier: int | None = None  # its number; of a text the lowest tier that may use it; None: of a probe
    words: Mapping[str, float] = msgspec.field(default_factory=dict)  # each with its weight, 0 to 1


class RoutedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its score."""

    candidate: Candidate
    score: float  # above 0, at most 1


def route(text: str, candidates: Sequence[Candidate], limit: int) -> tuple[RoutedCandidate, ...]:
    """Return the best candidates for a text, the best first; equal ones by kind and name."""
    wanted = stems(text[:_MOST_CHARACTERS])
    rarity = _rarity(wanted, candidates)
    matches = [RoutedCandidate(candidate=one, score=_score(one, rarity)) for one in candidates]
    found = [match for match in _with_tiers(matches) if match.score > 0]
    kinds = list(What)
    found.sort(key=lambda match: (-match.score, kinds.index(match.candidate.what), match.candidate.name))
    return tuple(found[:limit])


def of_tier(number: int, name: str, source_hint: str, action_kinds: Iterable[str]) -> Candidate:
    """Return a tier as a candidate."""
    words = _weighted((name, NAME), (f"tier{number} tier {number}", NAME), (" ".join(action_kinds), ACTION))
    return Candidate(what=What.TIER, name=f"tier{number}", source_hint=source_hint, tier=number, words=words)


def of_text(text: LibraryText, source_hint: str) -> Candidate:
    """Return a text of the library as a candidate; what stands below its first heading says when it is needed."""
    when, _, rest = text.text.partition("\n\n")
    words = _weighted((text.name, NAME), (" ".join(text.about), ABOUT), (when, WHEN), (rest, BODY))
    return Candidate(what=_WHAT[text.kind], name=text.name, source_hint=source_hint, tier=text.tier, words=words)


def of_probe(probe: Probe) -> Candidate:
    """Return a declared probe as a candidate."""
    words = _weighted(
        (probe.name, NAME), (probe.service, NAME), (f"{kind_of(probe.look)} {target_of(probe.look)}", WHEN)
    )
    return Candidate(what=What.PROBE, name=probe.name, source_hint=probe.origin, words=words)


def stems(text: str) -> tuple[str, ...]:
    """Return the words of a text that say something, each once, without their endings."""
    spaced = "".join(letter if letter.isalnum() else " " for letter in text.casefold())
    words = (word for word in spaced.split() if len(word) >= _SHORTEST and word not in _FILLERS)
    return tuple(dict.fromkeys(map(_stem, words)))


def _stem(word: str) -> str:
    word = same_word(same_word(word).removesuffix("s"))
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM:
            return word.removesuffix(ending)
    return word


def _weighted(*parts: tuple[str, float]) -> Mapping[str, float]:
    words: dict[str, float] = {}
    for text, weight in parts:
        for stem in stems(text):
            words[stem] = max(weight, words.get(stem, 0.0))
    return words


def _rarity(wanted: Sequence[str], candidates: Sequence[Candidate]) -> Mapping[str, float]:
    """Return what each wanted word is worth: little where everybody knows it; together 1."""
    known = Counter(word for one in candidates for word in one.words)
    worth = {word: math.log(1.0 + (len(candidates) + 1) / (known[word] or 1)) for word in wanted}
    total = sum(worth.values())
    return {word: value / total for word, value in worth.items()}


def _score(candidate: Candidate, rarity: Mapping[str, float]) -> float:
    score = sum(worth * candidate.words.get(word, 0.0) for word, worth in rarity.items())
    return round(min(1.0, score), 4)


def _with_tiers(matches: Sequence[RoutedCandidate]) -> Iterable[RoutedCandidate]:
    lowest = min((one.candidate.tier or 0 for one in matches if one.candidate.what is What.TIER), default=0)
    for match in matches:
        if match.candidate.what is not What.TIER or match.candidate.tier is None:
            yield match
            continue
        number = match.candidate.tier
        inherited = max((one.score for one in matches if _is_for(one.candidate, number)), default=0.0) * _INHERITED
        floor = _FLOOR / 2 ** (number - lowest)
        yield replace(match, score=round(max(match.score, inherited, floor), 4))


def _is_for(candidate: Candidate, tier: int) -> bool:
    """Return whether a text is what a tier exists for: skills are for all."""
    return candidate.tier == tier and candidate.what in {What.CHECK, What.PLAYBOOK}
