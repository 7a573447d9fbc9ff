"""The words by which senders say that something fires or is over: of a status field, and of texts where none is sent.

A text says a state by a *mark*, a word that stands alone in brackets, at its beginning or beside a coloured sign
(``[RESOLVED] disk``, ``Recovered: disk``, ``[✅ Up]``), or by a *phrase* in a sentence (``shop is up``). Whatever says
both fires. Nothing that says neither is over: an alert that ends too late is seen, one that ends too early is not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from claudeops.domain.alerts.alert import ReportedState
from claudeops.domain.alerts.rules import AlertSource, SenderKind
from claudeops.text import casefold_key, regex

MOST_LOOKED_AT: Final = 1000  # characters of a text


class Words(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The words of one sender, in lower case."""

    firing: frozenset[str]
    over: frozenset[str]
    phrases: Mapping[str, ReportedState]  # that count wherever they stand in a text
    own: frozenset[str]  # those of them that the operator has written, of which none is doubted
    any_of_them: regex.Pattern[str]  # finds one in a text that has some; most have none, and are looked at no further


_FIRING: Final = frozenset(
    {"firing", "alerting", "triggered", "trigger", "active", "down", "critical", "problem", "failing", "failed"}
    | {"fail", "failure", "open", "warning", "error", "alarm", "offline", "unreachable", "unhealthy", "not ok", "ko"}
)
_OVER: Final = frozenset(
    {"resolved", "resolve", "ok", "okay", "up", "inactive", "recovered", "recovery", "normal", "closed", "success"}
    | {"cleared", "clear", "online", "healthy", "solved", "succeeded", "is up", "back to normal"}
)
_OF_KIND: Final[Mapping[SenderKind, tuple[frozenset[str], frozenset[str]]]] = {
    SenderKind.GRAFANA: (_FIRING | {"no_data", "nodata", "no data"}, _OVER),
    SenderKind.HEALTHCHECKS: (frozenset({"down"}), frozenset({"up"})),
}
"""Of kinds that have words of their own; the others share those above."""

_FIRES: Final = (
    *("firing", "is down", "are down", "went down", "is still down", "is offline", "is unreachable", "is not up"),
    *("is failing", "has failed", "not resolved", "not recovered", "is unhealthy", "is critical"),
)
_IS_OVER: Final = (
    *("resolved", "recovered", "is up", "are up", "up again", "is back", "are back", "back online", "back to normal"),
    *("returned to normal", "is ok", "is okay", "is healthy", "is online", "is normal", "reachable again", "all clear"),
    *("available again", "no longer firing", "no longer down", "alarm cleared", "alert cleared", "works again"),
    # Longer ones, so that nothing of them is left in the name.
    *(f"{verb} {what}" for verb in ("is", "was", "are", "has been", "have been") for what in ("resolved", "recovered")),
    *("has recovered", "have recovered", "is up again", "is back up", "came back up", "came back online", "came back"),
    *("is back online", "are back online", "is back to normal", "has returned to normal", "is reachable again"),
    *("is available again", "is no longer firing", "is no longer down"),
)
_PHRASES: Final[Mapping[str, ReportedState]] = {
    **dict.fromkeys(_FIRES, ReportedState.FIRING),
    **dict.fromkeys(_IS_OVER, ReportedState.RESOLVED),
}
_NEGATIONS: Final = frozenset(
    {"not", "never", "cannot", "can't", "couldn't", "isn't", "aren't", "hasn't", "haven't", "wasn't", "won't", "unable"}
    | {"failed", "fails", "no", "none", "nobody", "nothing", "neither", "nor", "without"}
)
_CONDITIONS: Final = frozenset(
    {"if", "when", "once", "until", "till", "unless", "will", "would", "should", "may", "might", "whether", "before"}
    | {"how", "why", "similar", "previous"}
)
_PARTLY: Final = frozenset({"only", "just", "some", "half", "few", "partly", "partially", "most", "one", "except"})
_BUT: Final = frozenset({"but", "however", "though", "although", "yet", "still"}) | _PARTLY | _NEGATIONS
_MEASURED: Final = frozenset(
    {"usage", "use", "load", "cpu", "memory", "ram", "traffic", "error", "errors", "latency", "temperature", "rate"}
    | {"count", "utilisation", "utilization", "requests", "cost", "costs", "queue", "lag", "failures", "time", "times"}
)
"""What is up when there is more of it."""

_BECOMING: Final = frozenset({"be", "being"})
_SEVERITIES: Final = frozenset(
    {"critical", "warning", "error", "problem", "open", "active", "alarm", "failure", "fail"}
)
"""What fires as a status, and in a title often stands beside one: ``[RESOLVED] [critical] disk``."""

_SIGNS: Final[Mapping[str, ReportedState]] = {
    **dict.fromkeys("🔴❌🚨🔥⛔🛑🆘🟥💥", ReportedState.FIRING),
    **dict.fromkeys("✅🟢☑✔💚🟩", ReportedState.RESOLVED),
}
_INVISIBLE: Final = "\ufe0e\ufe0f\u200d"  # which choose how a sign is drawn
_AROUND: Final = f" \t*_{_INVISIBLE}{''.join(_SIGNS)}"
_BREAK: Final = regex.Pattern(
    r"\[[^\[\]()]{1,60}\]|\([^\[\]()]{1,60}\)|[\[\](){}|;,!?\r\n\t]|[:.](?:\s|$)|\s[-\x{2013}\x{2014}]\s"
)
_ENDS: Final = regex.Pattern(
    r"^(?:\s+(?:again|now|already|fine|here|for everyone))*\s*(?:$|[\[\](){}|;,!?\r\n\t*_]|[:.](?:\s|$)"
    r"|\s[-\x{2013}\x{2014}]\s|\s(?:after|since|following)\b)"
)
"""After an end its sentence ends: `shop is up but slow` and `CPU is up to 95 %` say something else."""

_SENTENCE: Final = regex.Pattern(r"[.!?](?:\s|$)|[\r\n]")
_SHARE: Final = regex.Pattern(r"[0-9]\s*(?:/|of)\s*[0-9]")  # `2 of 3 nodes`, also where it is all of them
_LASTED: Final = regex.Pattern(r"^(\S{1,20})\s(?:in|after|for)\s[0-9][0-9a-z:., ]{0,40}$")  # `resolved in 5m 0s`

_WITHIN: Final = frozenset("-_./@")  # of names
_BEFORE: Final = 100  # characters of a sentence that may turn what it says
_MOST_PIECES: Final = 40  # of one text
_MOST_TIMES: Final = 5  # that one phrase is looked at in one text

_Span: TypeAlias = tuple[int, int, ReportedState | None]


def words_of(source: AlertSource) -> Words:
    """Return a source's words: its kind's, and those of the operator, which go before them."""
    return _words(source.kind, source.firing_words, source.over_words)


@lru_cache(maxsize=256)
def _words(kind: SenderKind, firing_words: tuple[str, ...], over_words: tuple[str, ...]) -> Words:
    firing, over = _OF_KIND.get(kind, (_FIRING, _OVER))
    fires, ends = _spellings(firing_words), _spellings(over_words)
    own = fires | ends
    usual = "|".join(map(regex.escape, sorted({*firing, *over, *_PHRASES} - own)))
    loose = "|".join(map(regex.escape, sorted({*own, *_SIGNS})))
    return Words(
        firing=(firing - ends) | fires,
        over=(over - fires) | ends,
        phrases={
            **_PHRASES,
            **dict.fromkeys(ends, ReportedState.RESOLVED),
            **dict.fromkeys(fires, ReportedState.FIRING),
        },
        own=own,
        any_of_them=regex.Pattern(rf"(?i)(?:^|[^\pL\pN])(?:{usual})(?:$|[^\pL\pN])|{loose}"),
    )


def _spellings(words: Iterable[str]) -> frozenset[str]:
    """Return words as a status is compared with them, and as they are looked for in texts, whose length must stay."""
    return frozenset(spelling for word in words for spelling in (casefold_key(word), word.strip().lower()))


def status_of(value: object, words: Words) -> ReportedState | None:
    """Return what a status field says; ``None``: it says neither."""
    if isinstance(value, bool) or not isinstance(value, str):
        return None
    text = value[:MOST_LOOKED_AT]
    core, sign = _core(text)
    named = _named(core, words) or _named(casefold_key(text), words) or (None if core else sign)
    return named or state_in([text], words) or _first_word(core, words)


def _first_word(status: str, words: Words) -> ReportedState | None:
    """Return what a status of several words says: `up 3 hours (healthy)`."""
    found = [_named(word.strip(":;,.()[]"), words) for word in status.split()]
    return ReportedState.FIRING if ReportedState.FIRING in found else next(iter(found), None)


def state_in(texts: Iterable[str], words: Words) -> ReportedState | None:
    """Return what texts say; ``None``: they say neither."""
    found = {state for text in texts for _, _, state in _spans(text[:MOST_LOOKED_AT], words)}
    if ReportedState.FIRING in found:
        return ReportedState.FIRING
    return ReportedState.RESOLVED if ReportedState.RESOLVED in found else None


def without_state(text: str, words: Words) -> str:
    """Return what is left of a text without what says a state: the same for what fires and for its end."""
    spans = sorted((start, end) for start, end, _ in _spans(text[:MOST_LOOKED_AT], words))
    if not spans:
        return text
    left, at = [], 0
    for start, end in spans:
        left.append(text[at : max(at, start)])
        at = max(at, end)
    kept = " ".join((*left, text[at:])).split()
    return " ".join(word for word in kept if word == "%" or any(map(str.isalnum, word))).strip(" :;,.!")


# --- what says a state ------------------------------------------------------------------------------------


def _named(word: str, words: Words) -> ReportedState | None:
    if word in words.firing:
        return ReportedState.FIRING
    return ReportedState.RESOLVED if word in words.over else None


def _core(text: str) -> tuple[str, ReportedState | None]:
    """Return a text in lower case without the signs at its ends, and what these say."""
    core = text.strip(_AROUND)
    ends = text[: text.find(core)] + text[text.find(core) + len(core) :] if core else text
    states = {_SIGNS[sign] for sign in ends if sign in _SIGNS}
    return casefold_key(core), ReportedState.FIRING if ReportedState.FIRING in states else next(iter(states), None)


@lru_cache(maxsize=64)
def _spans(text: str, words: Words) -> Sequence[_Span]:
    """Return where a text says a state, and which; ``None``: it says a severity, as many titles do."""
    return tuple(_found(text, words)) if words.any_of_them.search(text) is not None else ()


def _found(text: str, words: Words) -> Iterator[_Span]:
    yield from (
        (at, at + 1, ReportedState.FIRING) for at, sign in enumerate(text) if _SIGNS.get(sign) is ReportedState.FIRING
    )
    pieces = list(islice(_pieces(text), _MOST_PIECES))
    for start, end, is_marked in pieces:
        yield from _of_piece(text, start, end, words, is_marked=is_marked)
    lower = text.lower()
    if len(lower) != len(text):  # a letter whose lower case has two characters
        lower = text
    starts = [start for start, _, _ in pieces]
    for phrase, state in words.phrases.items():
        at, times = lower.find(phrase), 0
        while at >= 0 and times < _MOST_TIMES:
            end, times = at + len(phrase), times + 1
            if _stands_alone(lower, at, end):
                since = starts[max(0, bisect_right(starts, at) - 1)]
                before, after = lower[max(since, at - _BEFORE) : at], lower[end : end + _BEFORE]
                meant = state if phrase in words.own else _meant(before, phrase, state, after)
                if meant is not None:
                    yield at, end, meant
            at = lower.find(phrase, end)


def _of_piece(text: str, start: int, end: int, words: Words, *, is_marked: bool) -> Iterator[_Span]:
    """Yield what a piece says that is nothing but a word and its sign."""
    piece = text[start:end]
    is_enclosed = piece[:1] in ("[", "(")
    core, sign = _core(piece[1:-1] if is_enclosed else piece)
    word = core.partition(":")[0].strip() if is_enclosed else core  # `[FIRING:2]`: the number of its alerts
    lasted = _LASTED.search(word)
    word = word if lasted is None else str(lasted[1])
    state = _named(word, words)
    if state is ReportedState.RESOLVED and _takes_back(text[end : end + _BEFORE]):
        state = None
    is_weak = word in _SEVERITIES and word not in words.own and sign is None
    if state is not None and (is_marked or sign is not None or (state is ReportedState.FIRING and not is_weak)):
        yield start, end, None if is_weak else state
    elif sign is not None and is_marked:
        left = len(piece) - len(piece.lstrip(_AROUND))
        yield start, start + left if core and not is_enclosed else end, sign


def _takes_back(after: str) -> bool:
    """Return whether what follows a mark says that it holds for a part: `OK: 2 of 3 replicas`, `OK: but …`."""
    words = after.lower().strip(" :-*_]").split()[:1]
    return not {"but", "only", "except"}.isdisjoint(words) or _SHARE.search(after.lower()[:20]) is not None


def _meant(before: str, phrase: str, state: ReportedState, after: str) -> ReportedState | None:
    """Return what a phrase means between what stands around it in its sentence; ``None``: nothing is known by it."""
    words = before.replace("\u2019", "'").split()
    if _CONDITIONS.intersection(words) or (words and words[-1] in _BECOMING):
        return None
    if _NEGATIONS.intersection(words):
        return ReportedState.FIRING if state is ReportedState.RESOLVED else None
    return state if state is ReportedState.FIRING or _is_an_end(words, phrase, after) else None


def _is_an_end(before: Sequence[str], phrase: str, after: str) -> bool:
    """Return whether a phrase says of a whole thing that all is well; "2 of 3 nodes are up" does not."""
    grows = phrase in {"is up", "are up", "is back", "are back"} and not _MEASURED.isdisjoint(before[-1:])
    partly = not _PARTLY.isdisjoint(before) or _SHARE.search(" ".join(before)) is not None
    return not grows and not partly and _ENDS.search(after) is not None and not _is_doubted(after)


def _is_doubted(after: str) -> bool:
    """Return whether the rest of a sentence takes back what stands before it."""
    found = _SENTENCE.search(after)
    rest = after if found is None else after[: found.start()]
    words = rest.replace("\u2019", "'").replace(",", " ").replace(";", " ").split()
    return not _BUT.isdisjoint(words)


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Return whether no letter that has a case, or digit, goes on before or behind; other scripts have no gaps.

    Nor behind a sign within a name: ``systemd-resolved.service``.
    """
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    before = before[:1] if before[-1:] in _WITHIN else before[-1:]
    after = after[1:] if after[:1] in _WITHIN else after[:1]
    return not (_joins(before, text[start]) or _joins(text[end - 1], after))


def _joins(left: str, right: str) -> bool:
    return bool(left and right) and all(sign.isdigit() or sign.lower() != sign.upper() for sign in (left, right))


def _pieces(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield the parts of a text between brackets, line ends, colons and the like; whether a word in it is a mark."""
    at, is_first = 0, True
    for found in _BREAK.finditer(text):
        start, end = found.span()
        if text[at:start].strip():
            yield at, start, is_first
            is_first = False
        if text[start] in "[(" and end - start > 1:
            yield start, end, True
            is_first = False
        at = end
    if text[at:].strip():
        yield at, len(text), is_first
