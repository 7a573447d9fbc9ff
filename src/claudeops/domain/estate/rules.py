"""What rules forbid: "never restart the database", "no redeploys of shop", "payroll must not be touched".

A sentence is held against the verbs of the policy's kinds of action and against the names of the manifest's services;
nothing else in it has any effect, and all it can do is to forbid. In doubt it forbids more: a name that nobody knows
is kept as written, and a rule with a condition that no gate can judge ("without asking") is taken without it, which
the operator is told. What forbids no action of these kinds stays a rule that prompts tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from claudeops.domain.estate import phrases, words
from claudeops.domain.estate.model import Service
from claudeops.domain.text import casefold_key, regex

EVERY_SERVICE: Final = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ban:
    """What a sentence forbids."""

    services: tuple[str, ...]
    kinds: tuple[str, ...]  # empty: every kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What was understood of a rule."""

    bans: tuple[Ban, ...] = ()
    unclear: str | None = None  # what of it the gate cannot do, a sentence with the remedy


class Names:
    """The services of a manifest, by what rules may call them."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._exact: dict[str, str] = {}
        self._sorts: dict[str, list[str]] = {}
        self._hosts: dict[str, list[str]] = {}
        for service in services:
            for name in (service.name, *service.aliases):
                self._exact.setdefault(casefold_key(name), service.name)
            for sort in _sorts(service):
                self._sorts.setdefault(sort, []).append(service.name)
            if service.host:
                self._hosts.setdefault(service.host, []).append(service.name)

    @property
    def every(self) -> tuple[str, ...]:
        """All services."""
        return tuple(dict.fromkeys(self._exact.values()))

    def known(self, phrase: str) -> tuple[str, ...]:
        """Return the services that some words mean, none when they mean no service."""
        if phrase in self._exact:
            return (self._exact[phrase],)
        return tuple(self._sorts.get(phrases.CALLED.get(phrase, ""), ()))

    def on(self, host: str) -> tuple[str, ...]:
        """Return the services of a host."""
        return tuple(self._hosts.get(host.casefold(), ()))

    def mentioned(self, text: str) -> tuple[str, ...]:
        """Return the services that a sentence of prose names, by their names alone."""
        said = (found[0].casefold().rstrip(".:") for found in phrases.TOKEN.finditer(text))
        return tuple(dict.fromkeys(self._exact[word] for word in said if word in self._exact))


def _sorts(service: Service) -> set[str]:
    pieces = [service.kind, service.name, *service.aliases]
    plain = {piece.rstrip("0123456789") for text in pieces for piece in regex.split(r"[^a-z0-9]+", text.casefold())}
    return {phrases.SORT_OF[piece] for piece in plain if piece in phrases.SORT_OF}


def read_rule(text: str, names: Names, *, forbidden: bool = False, about: str = "") -> Reading:
    """Return what a rule forbids.

    ``forbidden``: the rule stands where everything is forbidden, and needs no "never". ``about``: the service in whose
    section it stands.
    """
    reader = _Rule(names, about)
    for number, sentence in enumerate(phrases.sentences(words.plain(text))):
        reader.read(["never", *sentence] if forbidden and number == 0 and not phrases.negations(sentence) else sentence)
    return Reading(bans=tuple(reader.bans), unclear=reader.unclear)


_OPENINGS: Final = (
    ("never",),
    ("don't",),
    ("dont",),
    ("do", "not"),
    ("hands", "off"),
    ("must", "not"),
    ("must", "never"),
)
_PAIRS: Final = frozenset(itertools.product(("must", "may"), ("not", "never"))) | {("should", "never")}
_ADDRESSED: Final = frozenset({"please", "agents", "sessions", "you", "we", ","})


def forbids(text: str) -> bool:
    """Whether a sentence of prose is plainly a rule: it begins with its "never", or says "must not"."""
    for sentence in phrases.sentences(words.plain(text)):
        plain = [word for word in sentence if word not in _ADDRESSED]
        if any(tuple(plain[: len(opening)]) == opening for opening in _OPENINGS):
            return True
        if plain[:1] == ["no"] and plain[1:2] and plain[1] in phrases.NOUNS:
            return True
        if not _PAIRS.isdisjoint(itertools.pairwise(plain)):
            return True
    return False


@dataclass(slots=True)
class _Rule:
    """Reads one sentence after the other."""

    names: Names
    about: str
    bans: list[Ban] = field(default_factory=list)
    unclear: str | None = None
    _soft: bool = False  # the verb of this sentence may be about something else than services

    def read(self, tokens: list[str]) -> None:
        starts = phrases.negations(tokens)
        if not starts:
            self._without_negation(tokens)
        for place, (start, end) in enumerate(starts):
            stop = starts[place + 1][0] if place + 1 < len(starts) else len(tokens)
            before = tokens[: start if place == 0 else 0]
            self._negated(tokens[start], before, phrases.until(tokens[end:stop], phrases.ENDS))

    def _negated(self, negation: str, before: Sequence[str], clause: list[str]) -> None:
        rest = list(clause)
        passive = negation in {"is", "are", "isn't", "aren't"}
        while rest and (rest[0] in phrases.LEADS or rest[0] == "allowed"):
            passive = passive or rest[0] in {"be", "been"}
            if rest[0] == "allowed":
                self._subject_is_action(before)
                return
            rest.pop(0)
        if rest and rest[0] in {"permitted", "ok", "okay", "acceptable", "wanted"}:
            self._subject_is_action(before)
            return
        if negation in phrases.WHOLE_SUBJECTS:
            rest = phrases.after_verbs_of_being(rest)
            kinds, rest = phrases.take_kinds(rest)
            self._ban_all(kinds)
            return
        kinds, rest = phrases.take_kinds(rest, nouns=negation == "no")
        if not kinds:
            if any(
                token in phrases.KIND_OF.keys() - phrases.SOFT or (negation == "no" and token in phrases.NOUNS)
                for token in clause
            ):
                self._say_unclear(clause)
            return
        self._soft = set(clause[: len(clause) - len(rest)]) & phrases.KIND_OF.keys() <= phrases.SOFT
        participle = bool(clause) and any(token.endswith("ed") for token in clause[: len(clause) - len(rest)])
        subject = phrases.subject(before)
        if (passive or participle) and subject:
            self._objects(kinds, subject, rest)
        else:
            self._objects(kinds, rest or subject, rest)

    def _without_negation(self, tokens: list[str]) -> None:
        """Read "hands off X", "leave X alone", "X is off limits", "restarting X is forbidden"."""
        line = " ".join(tokens)
        for mark in ("hands off", "keep away from", "stay away from"):
            if mark in line:
                before, _, after = line.partition(mark)
                objects = after.split() or phrases.subject(before.split())
                self._objects((phrases.ALL_KINDS,), objects, [])
                return
        if tokens[:1] == ["leave"] and "alone" in tokens:
            self._objects((phrases.ALL_KINDS,), tokens[1 : tokens.index("alone")], tokens)
            return
        for mark in ("off limits", "off-limits", "read-only", "read only", "look only", "observe only", "look-only"):
            before, found, _ = line.partition(mark)
            subject = phrases.subject(before.split())
            if found and subject and self._known_piece(phrases.trimmed(subject)):
                self._objects((phrases.ALL_KINDS,), subject, [])
                return
        for mark in ("forbidden", "prohibited", "verboten", "banned"):
            if mark in tokens:
                self._subject_is_action(tokens[: tokens.index(mark)])
                return
        if "only" in tokens and any(token in phrases.KIND_OF for token in tokens):
            self._say_unclear(tokens)

    def _subject_is_action(self, before: Sequence[str]) -> None:
        """Take "restarts of db" or "restarting db", of which a sentence said that it is not allowed."""
        kinds, rest = phrases.take_kinds(list(before))
        if kinds:
            self._objects(kinds, phrases.subject(rest), [])

    def _ban_all(self, kinds: tuple[str, ...]) -> None:
        if kinds:
            self.bans.append(Ban(services=(EVERY_SERVICE,), kinds=phrases.plain_kinds(kinds)))

    def _objects(self, kinds: tuple[str, ...], objects: Sequence[str], clause: Sequence[str]) -> None:
        """Take what a verb is about, a condition included."""
        if phrases.LIMITS & set(clause):
            self._say_unclear(clause)
            return
        wanted = list(phrases.until(objects, phrases.CONDITIONS))
        condition = phrases.condition(clause)
        if condition[:1] == ["except"]:
            self._all_but(kinds, condition[1:])
            return
        services = self._services(wanted)
        if services is None:
            if not self._soft:
                self._say_unclear(objects)
            return
        self.bans.append(Ban(services=services, kinds=phrases.plain_kinds(kinds)))
        if condition:
            said = " ".join(condition)[:80]
            self.unclear = (
                f"no gate can judge {said!r}, so this is denied always: leave the condition out, or write it as advice"
            )

    def _all_but(self, kinds: tuple[str, ...], excepted: Sequence[str]) -> None:
        kept = self._services(list(excepted)) or ()
        named = tuple(dict.fromkeys(name for name in self.names.every if name not in kept))
        if named:
            self.bans.append(Ban(services=named, kinds=phrases.plain_kinds(kinds)))

    def _services(self, tokens: list[str]) -> tuple[str, ...] | None:
        """Return the services that a list such as ``db, the cache or queue`` names; None: it cannot be told."""
        if not phrases.trimmed(tokens):
            return (self.about or EVERY_SERVICE,)
        found: list[str] = []
        for piece in filter(phrases.trimmed, phrases.split(tokens)):
            names = self._piece(piece, alone=not found)
            if names is None:
                return tuple(found) or None
            found += names
        return tuple(dict.fromkeys(found)) or None

    def _piece(self, piece: list[str], *, alone: bool) -> tuple[str, ...] | None:
        plain = phrases.trimmed(piece)
        known = self._known_piece(plain)
        if known is not None:
            return known
        if not plain or len(plain) > phrases.LONGEST_PHRASE or (not alone and len(plain) > 1):
            return None
        phrase = " ".join(plain)
        if self._soft:
            return ()
        return (phrase,) if words.refuse_name(phrase) is None and plain[0] not in words.NOT_NAMES else None

    def _known_piece(self, plain: list[str]) -> tuple[str, ...] | None:
        phrase = " ".join(plain)
        if phrase in phrases.IT:
            return (self.about,) if self.about else None
        if (exact := self.names.known(phrase)) or phrase in phrases.WHATEVER or not phrase:
            return exact or (self.about or EVERY_SERVICE,)
        if "on" in plain[1:]:
            place = plain.index("on", 1)
            on_host = self.names.on(" ".join(plain[place + 1 :]))
            if plain[:place] in (["anything"], ["everything"], ["services"]):
                return on_host or None
            return self._known_piece(plain[:place]) or (tuple(plain[:place]) if place == 1 else None)
        if len(plain) > 1 and plain[-1] in phrases.GENERIC:
            return self._known_piece(plain[:-1])
        return self.names.on(phrase) or None

    def _say_unclear(self, tokens: Sequence[str]) -> None:
        said = " ".join(tokens)[:80]
        self.unclear = (
            f"this rule is told to sessions, but the gate does not enforce it ({said!r} is not plain): "
            "write 'never restart NAME' or 'never redeploy NAME'"
        )
