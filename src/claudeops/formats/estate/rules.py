"""What forbids, by its form: which words do, in which cells, fields and items, and which services a rule names.

Within a cell, field or item of one service the words below forbid every action on it; nothing else of the sentence has
any effect. A rule of a list forbids every action on the services that it names. In doubt more is forbidden: a name
without a description is kept as written. What stands in no such form is prose, and forbids nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from claudeops.domain.estate import words
from claudeops.domain.estate.estate import Service
from claudeops.domain.estate.words import Facet, word_set
from claudeops.formats.estate.vocabulary import (
    ACTIONS,
    ANYTHING,
    BARS,
    CALLED,
    CLOSING,
    COMPOUNDS,
    CROSSES,
    DAYS,
    ENDS,
    EXCEPTIONS,
    FILLING,
    FORBIDDING,
    IT,
    JOINS,
    NOUNS,
    PAIRS,
    PHRASES,
    REASONS,
    REFUSALS,
    SIGNS,
    SOME,
    SORT_OF,
    THAT_IS,
    VERBS_AND_NOUNS,
    WHATEVER,
    WITH_AN_ACTION,
)
from claudeops.text import casefold_key, regex

EVERY_SERVICE: Final = "*"

# --- sentences ---------------------------------------------------------------------------------------

_SIGN: Final = "".join(sorted(SIGNS))
_URL: Final = regex.Pattern(r"\S+://\S+")
_CODE: Final = regex.Pattern(r"`([^`]*)`")
_BRACKETS: Final = regex.Pattern(r"\([^()]*\)")
_TOKEN: Final = regex.Pattern(
    rf"-*[{regex.WORD}][{regex.WORD}.@:/+'\x{{2019}}-]*|[,;.!?():/&]|\x{{2014}}|\x{{2013}}|-|[{_SIGN}]"
)
_HINTS: Final = "|".join(sorted(FORBIDDING | WITH_AN_ACTION | CLOSING | word_set("hands off away ask asking alone")))
_BORDER: Final = r"[^\p{L}\p{N}]"  # "\b" would take "_" for a letter
_HINT: Final = regex.Pattern(
    rf"(?i)(?:^|{_BORDER})(?:{_HINTS})(?:$|{_BORDER})|n['\x{{2019}}]t(?:$|{_BORDER})|[{_SIGN}]"
)
"""A text without this forbids nothing; most have none, and need no closer look."""

_STOPS: Final = word_set(". ; ! ? ( ) - — –")  # noqa: RUF001 - dashes as people type them
_LONGEST_PHRASE: Final = 4  # words of a name


def _sentences(text: str, names: ManifestNames | None = None) -> Iterator[list[str]]:
    """Yield the words of each sentence, lower case, without addresses and without code that is a command.

    ``names``: what is no word of several, ``no-stop`` as the name of a service.
    """
    plain = _URL.sub(" ", _CODE.sub(lambda found: found[1] if _is_spoken(found[1]) else " ", text))
    sentence: list[str] = []
    for found in _TOKEN.finditer(words.plain(plain)):
        word = found[0].casefold().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").strip("_")
        ends = len(word) > 1 and word.endswith((".", "!", "?"))
        word = word.rstrip(".:!?'") if len(word) > 1 else word
        if word in _STOPS:
            yield from [sentence] if sentence else []
            sentence = []
        elif word and word != ":":
            sentence += [word] if names is not None and names.exact(word) else _parts(word)
            if ends:
                yield sentence
                sentence = []
    if sentence:
        yield sentence


def _may_forbid(text: str) -> bool:
    return _HINT.search(text) is not None or _HINT.search(words.plain(text)) is not None  # "**N**o"


def _is_spoken(code: str) -> bool:
    """Whether code is a word or sentence in the marks of code: a name, or a prohibition; not a command."""
    first = code.partition(" ")[0].casefold()
    return " " not in code.strip() or first in FORBIDDING or first in {"do", "don't", "ask", "hands"}


def _parts(word: str) -> list[str]:
    """Return a word, or those of ``do-not-restart`` and ``stop/restart``; ``--no-deps`` and ``no-reply`` stay whole."""
    if word.startswith("-"):
        return [word]
    pieces = [piece for piece in word.replace("/", "-").split("-") if piece]
    if len(pieces) > 1 and any(piece in ACTIONS for piece in pieces):
        return pieces
    pieces = [piece for piece in word.replace("/", "-").replace("_", "-").split("-") if piece]
    negated = not FORBIDDING.isdisjoint(pieces) and not ACTIONS.isdisjoint(pieces)
    return pieces if negated or " ".join(pieces[:2]) in COMPOUNDS else [word]


def _negations(sentence: Sequence[str]) -> list[int]:
    """Return where a sentence has a word that forbids; "not everything" is none."""
    return [
        place
        for place, word in enumerate(sentence)
        if (word in FORBIDDING or word.endswith("n't"))
        and not (word == "not" and sentence[place + 1 : place + 2] and sentence[place + 1] in SOME)
    ]


def _acts(sentence: Sequence[str], *, loose: bool = True) -> bool:
    """Whether a sentence names an action; in "it never restarts" a service does something by itself."""
    known = VERBS_AND_NOUNS if loose else ACTIONS
    for before, word in itertools.pairwise(("", *sentence)):
        if f"{before} {word}" in PAIRS or (word in known and not (before == "never" and word in NOUNS)):
            return True
    return False


def _closes(sentence: Sequence[str]) -> bool:
    """Whether a sentence forbids by a phrase: "ask first", "hands off", "leave it alone"."""
    line = f" {' '.join(sentence)} "
    asks = not {"ask", "asking"}.isdisjoint(sentence) and not {"first", "before"}.isdisjoint(sentence)
    alone = "leave" in sentence and "alone" in sentence
    return asks or alone or not CLOSING.isdisjoint(sentence) or any(f" {phrase} " in line for phrase in PHRASES)


def forbids(text: str, *, by_signs: bool = True) -> bool:
    """Whether a text says that something is forbidden, where it is known what it is about."""
    return _may_forbid(text) and any(_forbids(sentence, by_signs=by_signs) for sentence in _sentences(text))


def _forbids(sentence: Sequence[str], *, by_signs: bool = True) -> bool:
    soft = not WITH_AN_ACTION.isdisjoint(sentence) and _acts(sentence)
    crossed = not CROSSES.isdisjoint(sentence) and (_acts(sentence) or SIGNS.issuperset(sentence))
    signed = by_signs and (crossed or not BARS.isdisjoint(sentence))
    return bool(_negations(sentence)) or _closes(sentence) or soft or signed


def reads_as_prohibition(text: str, names: ManifestNames | None = None) -> bool:
    """Whether a text of any kind seems to forbid: it says "never" of an action, or "ask first"."""
    if not _may_forbid(text):
        return False
    for sentence in _sentences(text):
        negated = bool(_negations(sentence)) or not (WITH_AN_ACTION | SIGNS).isdisjoint(sentence)
        named = names is None or bool(names.mentioned(sentence))
        if (negated and _acts(sentence, loose=named)) or _closes(sentence):
            return True
    pair = words.key_value(text)  # "Actions: not without a backup"
    return pair is not None and names_action(pair[0]) and (forbids(pair[1]) or cell_forbids(*pair))


_LEADS: Final = word_set(
    "what things services actions agents sessions you we please do must never ask hands off keep stay leave"
)


def heads_prohibitions(text: str) -> bool:
    """Whether a heading or the line above a list announces what must not be done: "Do not restart", "Ask first"."""
    sentence = [word for word in next(_sentences(text), []) if word not in SIGNS] or [""]
    negations = _negations(sentence)
    leads = negations[:1] == [0] or sentence[0] in _LEADS | CLOSING
    bare = set(sentence) <= FILLING | _LEADS
    says = _closes(sentence) or (bool(negations) and (bare or _acts(sentence) or "do" in sentence[negations[0] :]))
    return leads and says


def names_something(text: str) -> bool:
    """Whether a text has words that are perhaps names."""
    return any(word not in FILLING | JOINS | _LEADS for sentence in _sentences(text) for word in sentence)


# --- forms --------------------------------------------------------------------------------------------

_DATA: Final = frozenset(Facet) - {Facet.RULES, Facet.RESTART}
"""These are about something else than actions."""

_FOR_PEOPLE: Final = word_set(
    "note notes comment comments remark remarks description details info information warning warnings caution "
    "attention important hint hints todo about"
)
RULE_KEYS: Final = word_set("rule rules restrictions")
_PERMISSION: Final = word_set(
    "allowed permitted may permission permissions policy automation autonomous agent agents action actions "
    "intervention interventions remediation"
)
_GRANTS: Final = _PERMISSION - word_set("policy agent agents")
_GRANTED_NOTHING: Final = word_set("none nothing nil nobody")
_EMPTY: Final = word_set("- -- — – none n/a na nothing nil ? tbd") | {""}  # noqa: RUF001 - dashes as people type them
_AFFIRMED: Final = word_set("yes true ok ✓ ✅")
_REFUSED: Final = word_set("no false ✗ ❌")


@lru_cache(maxsize=512)
def _key(key: str) -> tuple[Facet | None, str, bool]:
    """Return what a key says, its form, and whether it reads like a prohibition itself: "Do not restart"."""
    part = words.part_of(key)
    unsigned = "".join(letter for letter in key if letter not in SIGNS)
    return part, words.key_form(key), part is None and reads_as_prohibition(unsigned.replace("_", " "))


def cell_forbids(key: str, text: str) -> bool:
    """Whether a cell or field of one service forbids every action on it; ``key`` is its column or key."""
    part, form, asks = _key(key)
    plain = words.plain(text).strip(" .!").casefold()
    if form == "no":  # of a row: "No. 7"
        return False
    if (part is Facet.RULES and form not in RULE_KEYS) or asks:
        return plain not in _REFUSED | _EMPTY
    if _grants(key) and next(iter(plain.split()), "").strip(",;:") in _GRANTED_NOTHING:
        return True
    if plain in _AFFIRMED | _EMPTY:
        return False
    if part is Facet.RESTART or names_action(key):
        shown = plain.replace("\ufe0f", "")
        return forbids(text) or not REFUSALS.isdisjoint((shown, *(word.strip(".,;:!?()") for word in shown.split())))
    bare = plain == "no" or plain.replace("\ufe0f", "") in CROSSES
    is_data = part in _DATA or (form not in _FOR_PEOPLE | RULE_KEYS and _is_denial(text)) or bare
    return reads_as_prohibition(text) if is_data else forbids(text)


@lru_cache(maxsize=512)
def names_action(key: str) -> bool:
    """Whether a column or key is called after an action, or after what is allowed."""
    return any(
        _acts(words_of) or not _PERMISSION.isdisjoint(words_of) for words_of in _sentences(key.replace("_", " "))
    )


@lru_cache(maxsize=512)
def _grants(key: str) -> bool:
    """Whether a column or key says what may be done: "Actions: none"."""
    return any(not _GRANTS.isdisjoint(words_of) for words_of in _sentences(key.replace("_", " ")))


def _is_denial(text: str) -> bool:
    """Whether a text begins with its "no" or "not", as an answer does."""
    first = next(_sentences(text), [])
    signed = bool(first) and first[0] in SIGNS
    return (signed and not forbids(text, by_signs=False)) or _negations(first)[:1] == [0]


# --- rules of lists -----------------------------------------------------------------------------------


class RuleReading(msgspec.Struct, frozen=True, kw_only=True):
    """What was understood of a rule."""

    services: tuple[str, ...] = ()  # on which it forbids every action
    fault: str | None = None  # what of it cannot be used, a sentence with the remedy


class ManifestNames:
    """The services of a manifest, by what rules may call them."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._exact: dict[str, str] = {}
        self._sorts: dict[str, list[str]] = {}
        self._hosts: dict[str, list[str]] = {}
        for service in services:
            for name in (service.name, *service.aliases):
                self._exact.setdefault(" ".join(casefold_key(name).split()), service.name)
            for sort in _sorts(service):
                self._sorts.setdefault(sort, []).append(service.name)
            if service.host:
                self._hosts.setdefault(service.host, []).append(service.name)

    def exact(self, name: str) -> str:
        """Return the name of the service that is called so, "" where none is."""
        return self._exact.get(" ".join(casefold_key(name).split()), "")

    def mentioned(self, sentence: Sequence[str]) -> tuple[str, ...]:
        """Return the services that some words name, by their names alone."""
        found: list[str] = []
        for start in range(len(sentence)):
            for length in range(_LONGEST_PHRASE, 0, -1):
                name = self._exact.get(" ".join(sentence[start : start + length]))
                found += [name] if name else []
            several = [self._exact.get(part, "") for part in sentence[start].split("/")]
            found += several if all(several) else []
        return tuple(dict.fromkeys(found))

    def meant(self, phrase: str) -> tuple[str, ...]:
        """Return the services of a sort or of a host."""
        return tuple(self._sorts.get(CALLED.get(phrase, ""), ())) or tuple(self._hosts.get(phrase, ()))


def _sorts(service: Service) -> set[str]:
    pieces = [service.kind, service.name, *service.aliases]
    plain = {piece.rstrip("0123456789") for text in pieces for piece in regex.split(r"[^a-z0-9]+", text.casefold())}
    return {SORT_OF[piece] for piece in plain if piece in SORT_OF}


def mentioned(text: str, names: ManifestNames) -> tuple[str, ...]:
    """Return the services that a text names, by their names alone."""
    return tuple(dict.fromkeys(name for sentence in _sentences(text) for name in names.mentioned(sentence)))


def read_rule(text: str, names: ManifestNames, *, forbidden: bool = False, about: str = "") -> RuleReading:
    """Return on which services a rule of a list forbids every action.

    ``forbidden``: the rule stands where everything is forbidden, and needs no "never". ``about``: the service that the
    list belongs to.
    """
    text = text.replace("`", "")  # of a command, the service counts
    head, colon, _ = text.partition(": ")
    if forbidden and colon and (names_something(head) or not SIGNS.isdisjoint(head)):
        text = head  # a reason follows
    if not forbidden and not forbids(text):
        unclear = any("only" in sentence and _acts(sentence) for sentence in _sentences(text))
        return RuleReading(fault=_unbound(text)) if unclear else RuleReading()
    found, condition = ([about] if about else []), ""
    plain = _BRACKETS.sub(" ", text)
    for number, (sentence, parted) in enumerate(zip(_sentences(plain, names), _sentences(plain), strict=False)):
        first = next(iter(_negations(sentence)), 0)
        found += names.mentioned(sentence[:first]) if forbidden and not about else ()
        for clause in _clauses_in(sentence, forbidden=forbidden, binds=forbidden or _forbids(parted)):
            most = 1 if about else _LONGEST_PHRASE
            services, after = _of_clause(clause, names, most=most, forbidden=forbidden and not about and not number)
            excepts = after[:1] == ["except"]
            found += [each for each in services if not about or excepts or each != EVERY_SERVICE]
            condition = condition or " ".join(after)
            if excepts and EVERY_SERVICE in services:
                break  # what is excepted is one of them
    if not found:
        return RuleReading(fault=_unbound(text)) if forbidden or reads_as_prohibition(text, names) else RuleReading()
    fault = f"no gate can judge {condition[:80]!r}, so this is denied always: leave it out, or write it as advice"
    return RuleReading(services=tuple(dict.fromkeys(found)), fault=fault if condition else None)


def _unbound(text: str) -> str:
    return (
        f"this rule forbids nothing, for it is not plain on which services ({words.plain(text)[:60]!r}): "
        "write '- NAME' in a list below '## Never'"
    )


def _clauses_in(sentence: list[str], *, forbidden: bool, binds: bool) -> Iterator[list[str]]:
    """Yield the clauses of a sentence that forbids, first as an exception from everything where it is one."""
    excepting = _excepting(sentence)
    if excepting is not None and (forbidden or _forbids(excepting)):
        yield from _clauses(excepting)
    yield from _clauses(sentence) if binds else ()


def _excepting(sentence: Sequence[str]) -> list[str] | None:
    """Return "anything except db" for "anything that is not db" and the like, or None."""
    for start, word in enumerate(sentence):
        if word not in WHATEVER:
            continue
        place = start + 1
        while sentence[place : place + 1] and sentence[place] in THAT_IS:
            place += 1
        rest = sentence[place:]
        length = next((len(phrase) for phrase in EXCEPTIONS if tuple(rest[: len(phrase)]) == phrase), 0)
        length = length or (1 if rest and _negations(rest[:1]) else 0)
        if length and rest[length:]:
            every = [word] if word in ANYTHING else [word, "everything"]
            return [*sentence[:start], *every, "except", *rest[length:]]
    return None


def _clauses(sentence: list[str]) -> Iterator[list[str]]:
    """Yield what follows each "never" of a sentence; what stands before the first one where nothing is named there."""
    starts = _negations(sentence)
    if not starts:
        yield sentence
        return
    for start, end in zip(starts, [*starts[1:], len(sentence)], strict=True):
        after = sentence[start + 1 : end]
        is_named_before = start == starts[0] and not _left(after)
        yield [*sentence[:start], *after] if is_named_before else after


def _left(clause: Sequence[str]) -> list[str]:
    return [word for word in _until(clause) if word not in FILLING | JOINS or word in ANYTHING]


def _until(clause: Sequence[str]) -> list[str]:
    """Return the words before a reason or condition."""
    for place, word in enumerate(clause):
        weekday = word == "on" and clause[place + 1 : place + 2] and clause[place + 1] in DAYS
        if place and (weekday or (word in ENDS and list(clause[place : place + 2]) != ["at", "all"])):
            return list(clause[:place])
    return list(clause)


def _of_clause(clause: list[str], names: ManifestNames, *, most: int, forbidden: bool) -> tuple[list[str], list[str]]:
    """Return the services that a clause names, and its condition; ``most``: words of a name without a description."""
    wanted = _until(clause)
    most = most if forbidden or _acts(clause, loose=False) else 0
    condition = clause[len(wanted) :]
    found: list[str] = []
    for number, piece in enumerate(_pieces(wanted)):
        if number and piece[0] in IT:
            break  # "…, it takes an hour to recover"
        found += _of_piece(piece, names, most=min(most, 1) if number else most)
    bare = not found and not any(word not in FILLING | JOINS or word in IT for word in wanted)
    if bare and (_acts(wanted) or not ANYTHING.isdisjoint(wanted)):
        found = [EVERY_SERVICE]
    return found, condition if found and condition[:1] and condition[0] not in REASONS else []


def _pieces(clause: Sequence[str]) -> Iterator[list[str]]:
    for is_join, piece in itertools.groupby(clause, lambda word: word in JOINS):
        if not is_join:
            yield list(piece)


def _of_piece(piece: list[str], names: ManifestNames, *, most: int) -> tuple[str, ...]:
    """Return the services that a part of a list names, a name without a description as it is written."""
    quiet = [word for word in piece if word not in VERBS_AND_NOUNS]  # a service may be called "restart"
    if exact := names.mentioned(quiet if any(word not in FILLING for word in quiet) else piece):
        return exact
    place = piece.index("on") if "on" in piece else len(piece)
    left = [word for word in piece[:place] if word not in FILLING]
    where = [word for word in piece[place + 1 :] if word not in FILLING]
    if not left:
        if where and names.meant(" ".join(where)):
            return names.meant(" ".join(where))
        left = [word for word in piece if word in CALLED]
        return names.meant(left[0]) if left else ()
    phrase = " ".join(left)
    if known := names.meant(phrase):
        return known
    return (phrase,) if len(left) <= most and words.refuse_name(phrase) is None else ()
