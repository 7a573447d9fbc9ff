"""The library: short texts that say how to check, mend and read the things that services run on.

A text is Markdown below a small TOML front matter between two lines ``+++``. It has all the headings of its kind, in
their order. Built-in texts come with claudeops, others from the repositories' ``.claude-ops``: those are data by
other authors. They never replace a built-in text, and never lower the tier that one of their kind is for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.domain.estate.estate import Fault, Service, StatementSource
from claudeops.structs import replace
from claudeops.text import regex
from claudeops.text.toml_file import NotTomlError
from claudeops.text.toml_file import parse as parse_toml

BUILT_IN: Final = "built-in"
"""The origin of the texts that come with claudeops."""

MOST_BYTES: Final = 4 * 1024
"""How long a text may be, its front matter included."""

ANY: Final = "any"
"""The word in ``about`` for a text that every estate needs."""

_MOST_WORDS: Final = 32
_CHARACTERS_PER_TOKEN: Final = 4
_LISTING_CHARACTERS: Final = 2_000
_SHOWN_CHARACTERS: Final = 40  # of a value, in the sentence of a fault

_FENCE: Final = "+++"
_CODE: Final = "```"
_KEYS: Final = ("name", "tier", "about")
_NAME: Final = regex.Pattern(r"[a-z0-9][a-z0-9-]{0,47}")
_WORD: Final = regex.Pattern(r"[a-z0-9][a-z0-9._:/-]{0,63}")
_REPOSITORY: Final = regex.Pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


class LibraryKind(StrEnum):
    """What a text is for; the value is the name of its directory."""

    CHECK = "checks"  # how to find out whether something is healthy
    PLAYBOOK = "playbooks"  # how to mend something
    SKILL = "skills"  # how to read something well


HEADINGS: Final[Mapping[LibraryKind, tuple[str, ...]]] = {
    LibraryKind.CHECK: ("When", "Look", "Healthy when", "Otherwise"),
    LibraryKind.PLAYBOOK: ("When", "Before", "Steps", "Proof", "Stop when"),
    LibraryKind.SKILL: ("When", "How"),
}

LOWEST_TIER: Final[Mapping[LibraryKind, int]] = {LibraryKind.CHECK: 1, LibraryKind.PLAYBOOK: 2, LibraryKind.SKILL: 1}
"""The lowest tier that may use a text of a kind, whatever the text says: playbooks act."""


class LibraryText(msgspec.Struct, frozen=True, kw_only=True):
    """One text."""

    kind: LibraryKind
    name: str  # one of its kind has it; ``REPOSITORY/name`` if it is not built in
    tier: int  # the lowest tier that may use it
    about: tuple[str, ...]  # words that select it: what services run as, schemes of addresses, names of services
    origin: str  # ``built-in``, or the repository's name
    text: str  # the body, without the front matter
    digest: str  # SHA-256 of the whole file with plain line ends, in hexadecimal digits

    @property
    def tokens(self) -> int:
        """What it takes of a prompt, estimated."""
        return -(-(len(self.name) + len(self.text)) // _CHARACTERS_PER_TOKEN)


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """Texts, and what could not be used."""

    texts: tuple[LibraryText, ...] = ()
    faults: tuple[Fault, ...] = ()


NO_LIBRARY: Final = Library()


def origin_fault(repository: str) -> str | None:
    """Return why a repository's texts cannot be labelled with its name, in one sentence, or None."""
    if repository.casefold() == BUILT_IN:
        return f"a repository called {BUILT_IN} would be taken for claudeops itself: rename its directory"
    if not _REPOSITORY.fullmatch(repository):
        return "the repository's name has other characters than letters, digits, '.', '_' and '-': rename its directory"
    return None


# --- one text -----------------------------------------------------------------------------------------


class _TextFault(Exception):  # noqa: N818 - it becomes a `Fault`
    """A text cannot be used."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line
        self.sentence = sentence


def parse(content: str, *, kind: LibraryKind, origin: str, path: str) -> Library:
    """Return the library of one file: its text, and the faults in it; ``path`` is where the faults are reported.

    A tier below that of the kind is a fault too, and the text counts from the kind's tier on.
    """
    try:
        return _parsed(content.replace("\r\n", "\n").removeprefix("\ufeff"), kind, origin, path)
    except _TextFault as fault:
        return Library(faults=(Fault(source=StatementSource(path=path, line=fault.line), sentence=fault.sentence),))


def _parsed(content: str, kind: LibraryKind, origin: str, path: str) -> Library:
    if len(content.encode(errors="replace")) > MOST_BYTES:
        raise _TextFault(1, f"it is longer than {MOST_BYTES} bytes: shorten it, or make it two")
    front, body, first = _split(content)
    values = _front_matter(front)
    name = values.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _at(front, "name", "needs a name of lower-case letters, digits and '-': name = \"http\"")
    tier, lowest = values.get("tier", LOWEST_TIER[kind]), LOWEST_TIER[kind]
    if not isinstance(tier, int) or isinstance(tier, bool) or tier < 1:
        raise _at(front, "tier", "has a tier that is no number of a tier: tier = 2")
    _check_body(body, kind, first)
    text = LibraryText(
        kind=kind,
        name=name if origin == BUILT_IN else f"{origin}/{name}",
        tier=max(tier, lowest),
        about=_about(values.get("about", [name]), front),
        origin=origin,
        text=body.strip(),
        digest=hashlib.sha256(content.encode(errors="replace")).hexdigest(),
    )
    if tier >= lowest:
        return Library(texts=(text,))
    sentence = f"{kind} are for tier {lowest} and above, not for tier {tier}: it counts from tier {lowest} on"
    source = StatementSource(path=path, line=_line(front, "tier"))
    return Library(texts=(text,), faults=(Fault(source=source, sentence=sentence),))


def _split(content: str) -> tuple[str, str, int]:
    """Return front matter, body, and the number of the body's first line."""
    opening, _, rest = content.partition("\n")
    if opening.rstrip() != _FENCE:
        raise _TextFault(1, f"it does not begin with a line {_FENCE}: put name, tier and about between two such lines")
    front: list[str] = []
    lines = rest.split("\n")
    for line in lines:
        if line.rstrip() == _FENCE:
            return "\n".join(front), "\n".join(lines[len(front) + 1 :]), len(front) + 3
        front.append(line)
    raise _TextFault(1, f"its front matter has no end: close it with a line {_FENCE}")


def _front_matter(front: str) -> Mapping[str, object]:
    try:
        values = parse_toml(front)
    except NotTomlError as error:
        line = front.count("\n") + 1 if error.line is None else error.line
        reason = error.reason[:_SHOWN_CHARACTERS]
        raise _TextFault(line + 1, f"its front matter is not TOML ({reason}): correct it") from None
    except (RecursionError, ValueError):  # also for a number of very many digits
        raise _TextFault(2, "its front matter cannot be read: name, tier and about are all it may hold") from None
    for key in values:
        if key not in _KEYS:
            raise _at(front, key, f"has {_shown(key)}: name, tier and about are all it may hold")
    return values


def _about(given: object, front: str) -> tuple[str, ...]:
    words = [given] if isinstance(given, str) else given
    if not isinstance(words, list) or not words or len(words) > _MOST_WORDS:
        raise _at(front, "about", f'needs 1 to {_MOST_WORDS} words that select it: about = ["http"]')
    for word in words:
        if not isinstance(word, str) or not _WORD.fullmatch(word.lower()):
            raise _at(front, "about", f"has {_shown(word)} in about, which is no plain word: name what services run as")
    return tuple(dict.fromkeys(word.lower() for word in words))


def _check_body(body: str, kind: LibraryKind, first: int) -> None:
    """Raise a fault unless the body has the kind's headings, each once and with a text below it."""
    wanted = HEADINGS[kind]
    found: list[tuple[str, int]] = []
    below = ""  # what stands below the last heading
    for number, line in _outside_code(body, first):
        if not line.startswith("#"):
            if line.strip() and not found:
                raise _TextFault(number, f"something stands before its first heading: begin with ## {wanted[0]}")
            below += line.strip()
            continue
        heading = line.lstrip("#").strip()
        _check_filled(found, below)
        if len(found) == len(wanted) or line != f"## {wanted[len(found)]}":
            expected = "no further heading" if len(found) == len(wanted) else f"## {wanted[len(found)]}"
            raise _TextFault(number, f"{_shown(heading)} is a heading where {expected} belongs: {_order(kind)}")
        found.append((heading, number))
        below = ""
    if len(found) < len(wanted):
        raise _TextFault(first, f"it has no heading ## {wanted[len(found)]}: {_order(kind)}")
    _check_filled(found, below)


def _outside_code(body: str, first: int) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; a ``#`` within fenced code begins no heading, so those lines are indented."""
    fenced = False
    for number, line in enumerate(body.split("\n"), first):
        if line.lstrip().startswith(_CODE):
            fenced = not fenced
        yield number, f" {line}" if fenced or line.lstrip().startswith(_CODE) else line.rstrip()


def _check_filled(found: Sequence[tuple[str, int]], below: str) -> None:
    if found and not below:
        heading, number = found[-1]
        raise _TextFault(number, f"nothing stands below ## {heading}: say it in a line or two")


def _order(kind: LibraryKind) -> str:
    return f"{kind} have {', '.join(HEADINGS[kind])}, in this order"


def _at(front: str, key: str, problem: str) -> _TextFault:
    return _TextFault(_line(front, key), f"its front matter {problem}")


def _line(front: str, key: str) -> int:
    """Return the number of the line in the file where a key of the front matter stands, else of its first line."""
    for number, line in enumerate(front.split("\n"), 2):
        if line.lstrip(" \t\"'").startswith(key):
            return number
    return 2


def _shown(value: object) -> str:
    return ascii(value)[:_SHOWN_CHARACTERS]


# --- all texts ----------------------------------------------------------------------------------------


def merge(libraries: Iterable[Library]) -> Library:
    """Return the texts of one origin as one library: of two texts of one kind and name the first counts."""
    texts: dict[tuple[LibraryKind, str], LibraryText] = {}
    faults: list[Fault] = []
    for library in libraries:
        faults += library.faults
        for text in library.texts:
            if (text.kind, text.name) in texts:
                sentence = f"two of its {text.kind} are called {text.name}: give one of them another name"
                faults.append(
                    Fault(source=StatementSource(path=f"{text.origin}/.claude-ops/{text.kind}"), sentence=sentence)
                )
            else:
                texts[text.kind, text.name] = text
    return Library(texts=tuple(texts.values()), faults=tuple(faults))


def combine(builtin: Library, repositories: Iterable[Library]) -> Library:
    """Return the built-in texts with those of repositories beside them, in a fixed order.

    The tier of a built-in text holds for every text of the same kind and name: who writes a repository cannot hand a
    tier what the built-in library keeps from it.
    """
    tiers = {(text.kind, text.name): text.tier for text in builtin.texts}
    texts = list(builtin.texts)
    faults = list(builtin.faults)
    for library in repositories:
        faults += library.faults
        for text in library.texts:
            least = tiers.get((text.kind, text.name.removeprefix(f"{text.origin}/")), text.tier)
            texts.append(replace(text, tier=max(text.tier, least)))
    return Library(texts=tuple(sorted(texts, key=_place)), faults=tuple(faults))


_KINDS: Final = tuple(LibraryKind)


def _place(text: LibraryText) -> tuple[int, bool, str]:
    return _KINDS.index(text.kind), text.origin == BUILT_IN, text.name


def listing(library: Library, tier: int) -> str:
    """Return the names of all texts that a tier may use, in one line."""
    groups = []
    for kind in LibraryKind:
        names = sorted(text.name for text in library.texts if text.kind is kind and text.tier <= tier)
        if names:
            groups.append(f"{kind}: {_within(names, _LISTING_CHARACTERS // len(LibraryKind))}")
    return "; ".join(groups)


def _within(names: Sequence[str], characters: int) -> str:
    shown: list[str] = []
    for name in names:
        characters -= len(name) + 2
        if characters < 0:
            return f"{', '.join(shown)} and {len(names) - len(shown)} more"
        shown.append(name)
    return ", ".join(shown)


# --- what an estate needs -----------------------------------------------------------------------------


_SAME: Final[Mapping[str, str]] = {
    **dict.fromkeys(("docker", "compose", "podman", "containers", "swarm"), "container"),
    **dict.fromkeys(("postgresql", "pg", "timescaledb"), "postgres"),
    **dict.fromkeys(("mariadb", "percona"), "mysql"),
    **dict.fromkeys(("valkey", "keydb", "rediss"), "redis"),
    **dict.fromkeys(("k8s", "k3s", "deployment", "statefulset", "pod", "helm", "cluster"), "kubernetes"),
    **dict.fromkeys(("unit", "service", "daemon"), "systemd"),
    **dict.fromkeys(("web", "website", "site", "api", "app"), "http"),
    **dict.fromkeys(("tls", "certificates", "cert"), "certificate"),
    **dict.fromkeys(("vm", "server", "machine", "node"), "host"),
    **dict.fromkeys(("rabbitmq", "amqp", "amqps", "kafka", "nats"), "queue"),
    **dict.fromkeys(("backups", "restic", "borg"), "backup"),
    **dict.fromkeys(("pipeline", "runner", "jenkins", "actions"), "ci"),
    **dict.fromkeys(("nameserver", "bind", "unbound", "coredns"), "dns"),
}
"""Other words for the words in ``about``."""


def same_word(word: str) -> str:
    """Return the word that ``about`` has for a word."""
    return _SAME.get(word, word)


_PORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "80": ("http",),
    "443": ("http", "https", "certificate"),
    "8080": ("http",),
    "8443": ("http", "https", "certificate"),
    "3306": ("mysql",),
    "5432": ("postgres",),
    "6379": ("redis",),
    "5672": ("queue",),
    "53": ("dns",),
    "6443": ("kubernetes",),
}
_SCHEME: Final = regex.Pattern(r"^([a-z][a-z0-9+.-]*)://")
_PORT: Final = regex.Pattern(r"^(?:[a-z][a-z0-9+.-]*://)?[^/?#]*:(\d{1,5})(?:[/?#]|$)")
_NAMED_HOST: Final = regex.Pattern(r"^(?:[a-z][a-z0-9+.-]*://)?[^/?#:]*[a-z]")
_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def words_of(service: Service) -> frozenset[str]:
    """Return the words that select texts for a service."""
    kind, address, host = service.kind.lower(), service.address.lower(), service.host.lower()
    found = {kind, _SAME.get(kind, kind)}
    if (scheme := _SCHEME.match(address)) is not None:
        found |= {scheme[1], _SAME.get(scheme[1], scheme[1])}
        found |= {"http", "certificate"} if scheme[1] == "https" else set()
    if (port := _PORT.match(address)) is not None:
        found |= set(_PORTS.get(port[1], ()))
    if address and _NAMED_HOST.match(address):
        found.add("dns")
    if host:
        found |= {"host"} if host in _HERE else {"host", "ssh"}
    return frozenset(found - {""})


def choose(
    library: Library,
    *,
    tier: int,
    services: Sequence[Service],
    budget_tokens: int,
    chain: Collection[str] = (),
) -> tuple[LibraryText, ...]:
    """Return the texts that the estate needs, most wanted first, within the budget.

    Those come first that are about the services of the ``chain`` (by name), then those for every estate, then those
    about the other services in their order. For one service, what is about it by name comes before what is about its
    kind, and a repository's text before a built-in one. A text that has no room is left out whole.
    """
    wanted = {name.casefold() for name in chain}
    in_chain = [service for service in services if not wanted or wanted & _names(service)]
    others = [service for service in services if wanted and not wanted & _names(service)]
    places: dict[str, tuple[int, int, int]] = {ANY: (1 if wanted else 3, 0, 0)}
    for group, ranked in ((0, in_chain), (2, others)):
        for index, service in enumerate(ranked):
            for name in _names(service):
                places.setdefault(name, (group, index, 0))
            for word in words_of(service):
                places.setdefault(word, (group, index, 1))
    ranks = [
        (min(places[word] for word in text.about if word in places), *_place(text), text)
        for text in library.texts
        if text.tier <= tier and any(word in places for word in text.about)
    ]
    chosen, room = [], budget_tokens
    for *_, text in sorted(ranks, key=lambda rank: rank[:-1]):
        if text.tokens <= room:
            chosen.append(text)
            room -= text.tokens
    return tuple(chosen)


def _names(service: Service) -> frozenset[str]:
    return frozenset(name.casefold() for name in (service.name, *service.aliases))
