"""The words of rules: verbs of actions by their kind, negations, conditions; and the sentences that they stand in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from claudeops.domain.estate.words import word_set
from claudeops.domain.text import regex

RESTART: Final = "restart"
REDEPLOYMENT: Final = "redeployment"
ALL_KINDS: Final = "every kind"

_VERBS: Final = {
    RESTART: "restart reboot bounce recycle stop kill reload shutdown halt terminate cycle",
    REDEPLOYMENT: "redeploy deploy rollout rollback upgrade update recreate reinstall rebuild scale downgrade release",
    ALL_KINDS: "touch change modify alter remediate repair fix intervene disturb",
}
NOUNS: Final = {
    **dict.fromkeys(("restart", "restarts", "reboot", "reboots", "stops"), RESTART),
    **dict.fromkeys(("redeployment", "redeployments", "deployment", "deployments", "deploys", "deploy"), REDEPLOYMENT),
    **dict.fromkeys(("redeploy", "redeploys", "rollouts", "rollout", "rollbacks", "rollback"), REDEPLOYMENT),
    **dict.fromkeys(("upgrades", "upgrade", "updates", "update", "releases"), REDEPLOYMENT),
    **dict.fromkeys(("changes", "change", "actions", "action", "remediation", "interventions"), ALL_KINDS),
}
_TWO_WORDS: Final = {
    ("roll", "out"): "rollout",
    ("rolled", "out"): "rollout",
    ("rolling", "out"): "rollout",
    ("roll", "back"): "rollback",
    ("rolled", "back"): "rollback",
    ("rolling", "back"): "rollback",
    ("shut", "down"): "shutdown",
    ("take", "down"): "stop",
    ("taken", "down"): "stop",
    ("bring", "down"): "stop",
    ("act", "on"): "touch",
    ("mess", "with"): "touch",
    ("interfere", "with"): "touch",
    ("tamper", "with"): "touch",
    ("anything", "to"): "touch",
    ("anything", "with"): "touch",
    ("anything", "about"): "touch",
    ("changes", "to"): "touch",
    ("re", "deploy"): "redeploy",
    ("re", "start"): "restart",
}
LEADS: Final = word_set(
    "do make perform run try to ever please also just simply any be been get ever again ,",
)
_ASKED: Final = word_set(
    "do must may should shall can is are to be will does could would",
)
_WHOLE_NEGATIONS: Final = word_set(
    "never don't dont mustn't shouldn't can't cannot won't avoid isn't aren't",
)
WHOLE_SUBJECTS: Final = frozenset({"nothing", "none", "nobody"})
"""What begins a sentence that forbids something everywhere: "nothing here may be restarted"."""

CONDITIONS: Final = word_set(
    "unless without except before after during while when whenever if until outside between only from at",
)
_DAYS: Final = word_set(
    "mondays tuesdays wednesdays thursdays fridays saturdays sundays monday tuesday wednesday thursday "
    "friday saturday sunday weekends weekend weekdays holidays",
)
LIMITS: Final = word_set(
    "more twice once both together simultaneously often several parallel",
)
ENDS: Final = word_set(
    "but because since as so although though which who however instead just",
)
_JOINS: Final = frozenset({",", "or", "and", "nor", "/", "&", "neither"})
_TRAILING: Final = word_set(
    "here ever again please manually automatically yourself itself directly anymore now today alone",
)
GENERIC: Final = word_set(
    "service services server servers container containers app application database unit pod instance "
    "cluster node deployment stack itself systems",
)
_ARTICLES: Final = word_set(
    "the our any a an all every each of for on to in this that these those its",
)
WHATEVER: Final = frozenset(
    {"anything", "everything", "something", "services", "service", "them all", "anything at all"}
)
IT: Final = frozenset({"it", "this", "this service", "them", "itself"})
_SORTS: Final = {
    "database": "postgres postgresql pg mysql mariadb mongo mongodb db database sql mssql oracle cockroach cockroachdb"
    " cassandra timescale timescaledb",
    "cache": "redis memcached cache varnish valkey keydb",
    "queue": "rabbitmq kafka nats queue mq activemq broker",
    "proxy": "traefik nginx haproxy caddy envoy proxy",
}
SORT_OF: Final = {word: sort for sort, spellings in _SORTS.items() for word in spellings.split()}
CALLED: Final = {
    word: sort
    for sort, plural in (("database", "databases"), ("cache", "caches"), ("queue", "queues"), ("proxy", "proxies"))
    for word in (sort, plural)
} | {"db": "database", "dbs": "database"}

SOFT: Final = word_set(
    "change modify alter fix repair update release scale changed modified updated changing",
)
"""Verbs of many other things too: "never change the DNS" is about no service, unless it names one."""

TOKEN: Final = regex.Pattern(rf"[{regex.WORD}][{regex.WORD}.@:/+'\x{{2019}}-]*|[,;.!?():/&]|\x{{2014}}|\x{{2013}}|-")
_MOST_TOKENS: Final = 200
LONGEST_PHRASE: Final = 4  # words of a name that nobody knows


def _forms() -> Iterator[tuple[str, str]]:
    for kind, verbs in _VERBS.items():
        for verb in verbs.split():
            stem = verb.removesuffix("e")
            doubled = stem + stem[-1] if verb == "stop" else stem
            yield from ((form, kind) for form in (verb, f"{doubled}ed", f"{doubled}ing"))
    yield from (("modified", ALL_KINDS), ("modifying", ALL_KINDS))


KIND_OF: Final = dict(_forms())


def sentences(text: str) -> Iterator[list[str]]:
    """Yield the words of each sentence, lower case; what stands in brackets is left out."""
    sentence: list[str] = []
    depth = 0
    for count, found in enumerate(TOKEN.finditer(text)):
        word = found[0].casefold().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        ends = word.endswith((".", "!", "?")) and len(word) > 1
        word = word.rstrip(".:!?'") if len(word) > 1 else word
        if count > _MOST_TOKENS:
            break
        if word in {"(", ")"}:
            depth = max(0, depth + (1 if word == "(" else -1))
        elif depth:
            continue
        elif word in {".", ";", "!", "?", "\N{EM DASH}", "\N{EN DASH}", "-"}:
            if sentence:
                yield sentence
            sentence = []
        elif word != ":":
            sentence.append(word)
        if ends and sentence and not depth:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def negations(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Return where negations begin, and where what is negated does."""
    found: list[tuple[int, int]] = []
    for place, word in enumerate(tokens):
        before = tokens[place - 1] if place else ""
        if word in _WHOLE_NEGATIONS or (word in WHOLE_SUBJECTS and place == 0):
            if not (found and found[-1][1] == place):
                found.append((place, place + 1))
        elif word == "not" and before in _ASKED:
            found.append((place - 1, place + 1))
        elif word == "no" and place + 1 < len(tokens) and (tokens[place + 1] in NOUNS or tokens[place + 1] == "more"):
            found.append((place, place + 1))
    return found


def take_kinds(tokens: list[str], *, nouns: bool = True) -> tuple[tuple[str, ...], list[str]]:
    """Return the kinds of the verbs or nouns that a list of words begins with, and the words after them."""
    kinds: list[str] = []
    place = 0
    while place < len(tokens):
        pair = _TWO_WORDS.get((tokens[place], tokens[place + 1])) if place + 1 < len(tokens) else None
        word = pair or tokens[place]
        kind = KIND_OF.get(word) or (NOUNS.get(word) if nouns else None)
        if kind is not None:
            kinds.append(kind)
            place += 2 if pair else 1
        elif (kinds and word in _JOINS and _more_verbs(tokens[place + 1 :])) or (
            not kinds and word in LEADS | {"the", "of"}
        ):
            place += 1
        else:
            break
    return tuple(dict.fromkeys(kinds)), tokens[place:] if kinds else tokens


def _more_verbs(tokens: list[str]) -> bool:
    following = next((word for word in tokens if word not in _JOINS | LEADS), "")
    return following in KIND_OF or following in NOUNS or tuple(tokens[:2]) in _TWO_WORDS


def after_verbs_of_being(tokens: list[str]) -> list[str]:
    """Return the words from the first verb of an action on."""
    kept = list(tokens)
    while kept and kept[0] not in KIND_OF and (kept[0] in _ASKED | LEADS | _ARTICLES | _TRAILING | GENERIC):
        kept.pop(0)
    return kept


def subject(tokens: Sequence[str]) -> list[str]:
    """Return the words in front of a negation that say what it is about, none when they say who is spoken to."""
    kept = list(tokens)
    while kept and kept[-1] in _ASKED | {",", "be", "please"}:
        kept.pop()
    return [] if kept and kept[-1] in {"you", "we", "agents", "sessions", "please", "it's"} else kept


def trimmed(tokens: Sequence[str]) -> list[str]:
    """Return the words of a name without articles in front and adverbs behind."""
    kept = list(tokens)
    for phrase in (
        ["under", "any", "circumstances"],
        ["in", "this", "repository"],
        ["in", "this", "estate"],
        ["at", "all"],
        ["by", "hand"],
        ["on", "your", "own"],
    ):
        if kept[-len(phrase) :] == phrase:
            kept = kept[: -len(phrase)]
    while kept and kept[-1] in _TRAILING:
        kept.pop()
    while kept and kept[0] in _ARTICLES and kept != ["this"]:
        kept.pop(0)
    return kept


def split(tokens: Sequence[str]) -> Iterator[list[str]]:
    """Yield the parts of a list."""
    piece: list[str] = []
    for word in [*tokens, ","]:
        if word in _JOINS:
            if piece:
                yield piece
            piece = []
        else:
            piece.append(word)


def until(tokens: Sequence[str], ends: frozenset[str]) -> list[str]:
    """Return the words before the first that ends them; a word of the calendar after "on" ends them too."""
    for place, word in enumerate(tokens):
        calendar = ends is CONDITIONS and word == "on" and place + 1 < len(tokens) and tokens[place + 1] in _DAYS
        if calendar or (word in ends and not (word == "at" and tokens[place + 1 : place + 2] == ["all"])):
            return list(tokens[:place])
    return list(tokens)


def condition(clause: Sequence[str]) -> list[str]:
    """Return the words that make a rule conditional, none when it always holds."""
    return list(clause[len(until(clause, CONDITIONS)) :])


def plain_kinds(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Return kinds of actions as the model has them: none for every kind."""
    return () if ALL_KINDS in kinds else kinds
