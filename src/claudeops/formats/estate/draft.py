"""What is collected of one manifest, statement by statement, and what becomes of it at the end.

Statements come as they were written, each with its line. A service may be described in several places, a row of a
table and a section of its own for instance: what they add to each other counts together, what contradicts is a fault
and the first one stands.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from claudeops.domain.estate import hosts, words
from claudeops.domain.estate.estate import Fault, MaintenanceWindow, Manifest, Prohibition, Service, StatementSource
from claudeops.domain.estate.words import Facet
from claudeops.formats.estate import rules
from claudeops.formats.estate.windows import window_in_sentence, windows_in
from claudeops.structs import replace
from claudeops.text import casefold_key, regex, unique

MOST_SERVICES: Final = 300
MOST_RULES: Final = 200  # of lists, and of the advice to sessions
MOST_FAULTS: Final = 50
"""Of one repository; what comes after is only counted."""

_MOST_STATEMENTS: Final = 20  # of one kind about one service
_MOST_NAMES: Final = 40  # aliases or dependencies of one service
_MOST_HOSTS: Final = 1000
_MOST_PORTS: Final = 2000  # of all hosts together
_MOST_SENTENCES: Final = 10_000

_KINDS: Final = {
    "postgres": "postgres postgresql pg",
    "mysql": "mysql",
    "mariadb": "mariadb",
    "redis": "redis valkey",
    "mongodb": "mongodb mongo",
    "rabbitmq": "rabbitmq",
    "kubernetes": "kubernetes k8s k3s deployment statefulset daemonset pod",
    "systemd": "systemd systemctl unit",
    "container": "container docker podman compose docker-compose containers",
}
_KIND_OF: Final = {word: kind for kind, spellings in _KINDS.items() for word in spellings.split()}
_REPOSITORIES: Final = [
    "ansible",
    "compose",
    "docker-compose",
    "terraform",
    "kubernetes",
    "helm",
    "nixos",
    "puppet",
    "salt",
    "chef",
    "docker",
    "k8s",
]
_ANSWERS: Final = (
    "answers",
    "returns",
    "must",
    "should",
    "says",
    "expects",
    "is ",
    "responds",
    "->",
    "=>",
    "\u2192",
    "=",
    "gives",
)
_RESTARTED: Final = regex.Pattern(r"(?i)\b(?:is|are|can be|may be|gets) restarted (?:by|with|via|using|through) (.+)")
_LONGEST_KIND: Final = 40


class DraftText(msgspec.Struct, frozen=True):
    """A text and its line."""

    text: str
    line: int
    since: int = 0  # the line of the row, item or heading that it belongs to


class _Rule(msgspec.Struct, frozen=True):
    """A rule, or a statement about one service that forbids."""

    text: str  # as it is shown
    sentence: str  # as it is read; "": all of it is about its service
    line: int
    forbidden: bool = False  # it needs no "never"
    about: str = ""  # the service that it belongs to


class ServiceDraft(msgspec.Struct):
    """A service and the statements about it."""

    name: str
    line: int  # where it is named first
    since: int  # where it is named now
    statements: dict[Facet, list[DraftText]] = msgspec.field(default_factory=dict)

    def add(self, part: Facet, text: str, line: int) -> None:
        """Note a statement."""
        if part is Facet.ADDRESS and text.lstrip().startswith("`") and " " in text:
            part = Facet.CHECK  # a command in a column for addresses
        if len(self.statements.get(part, ())) < _MOST_STATEMENTS and not words.is_nothing(text):
            self.statements.setdefault(part, []).append(DraftText(text, line, self.since))


class Draft:
    """One manifest as far as it was read."""

    def __init__(self, repository: str, path: str) -> None:
        self.kind = ""
        self.capabilities: list[str] = []
        self._repository, self._path = repository, path
        self._services: dict[str, ServiceDraft] = {}
        self._rules: list[_Rule] = []  # of lists
        self._bound: dict[str, list[_Rule]] = {}  # of services
        self._prose: list[tuple[DraftText, str]] = []  # and the service in whose section it stands
        self._items: list[
            tuple[str, str, DraftText, str]
        ] = []  # what may be a service's name, a key, the text, all of it
        self._unused: dict[str, Fault] = {}  # columns
        self._hosts: list[str] = []
        self._ports: dict[tuple[str, int], None] = {}
        self._same: list[tuple[str, ...]] = []
        self._faults: list[Fault] = []

    # --- collecting

    def fault(self, line: int | None, sentence: str) -> None:
        """Note what cannot be used."""
        self._faults.append(Fault(source=StatementSource(path=self._path, line=line), sentence=sentence))

    def service(self, name: str, line: int) -> ServiceDraft | None:
        """Return the draft of a service, a new one when the name is new; None: it can be none."""
        refused = words.refuse_name(name)
        if refused is not None:
            self.fault(line, refused)
            return None
        key = casefold_key(name)
        if key not in self._services and len(self._services) >= MOST_SERVICES:
            if len(self._services) == MOST_SERVICES:
                self.fault(line, f"there are more than {MOST_SERVICES} services: divide them among repositories")
                self._services[key] = ServiceDraft(name=name, line=line, since=line)  # one fault; cut at the end
            return None
        found = self._services.setdefault(key, ServiceDraft(name=name, line=line, since=line))
        found.since = line
        return found

    def has(self, name: str) -> bool:
        """Whether a service of this name was described."""
        return casefold_key(name) in self._services

    def statement(self, service: ServiceDraft, key: str, text: str, line: int, *, binding: bool = False) -> None:
        """Note a cell or field of a service, and what it forbids; ``binding``: this alone."""
        part = words.part_of(key)
        if part is Facet.NAME:
            return
        if not self._forbids(service.name, key, text, line) and part is Facet.RULES and not words.is_nothing(text):
            self.rule(text, line)
        if part is not None and part is not Facet.RULES and not binding:
            service.add(part, text, line)

    def _forbids(self, name: str, key: str, text: str, line: int) -> bool:
        if not rules.cell_forbids(key, text):
            return False
        label = f"{name}: {words.plain(key)}: {words.plain(text)}"
        sentence = text[: words.LONGEST_TEXT] if words.part_of(key) is Facet.RULES else ""
        self._bind(name, _Rule(label, sentence, line, forbidden=True, about=name))
        return True

    def item(self, name: str, text: str, line: int) -> None:
        """Note an item of a service, which forbids every action on it if one of the words stands in it."""
        if rules.forbids(text):
            label = f"{name}: {words.plain(text)}"
            # A sign is about no other service.
            sentence = text[: words.LONGEST_TEXT] if rules.forbids(text, by_signs=False) else ""
            self._bind(name, _Rule(label, sentence, line, forbidden=True, about=name))

    def _bind(self, name: str, rule: _Rule) -> None:
        bound = self._bound.setdefault(casefold_key(name), [])
        if len(bound) < _MOST_STATEMENTS:
            bound.append(replace(rule, text=rule.text[: words.LONGEST_TEXT]))

    def loose_item(self, name: str, key: str, text: str, line: int, *, whole: str) -> None:
        """Note an item that begins like one about a service; if no service is called so, it is prose."""
        if len(self._items) < _MOST_SENTENCES:
            self._items.append((name, key, DraftText(text, line), whole))

    def rule(self, text: str, line: int, *, forbidden: bool = False, about: str = "") -> None:
        """Note a rule of a list; ``forbidden``: it needs no "never"."""
        plain = words.plain(text)
        if not plain or len(self._rules) > MOST_RULES:
            return
        if len(self._rules) == MOST_RULES:
            self.fault(line, f"there are more than {MOST_RULES} rules: keep those that matter")
        if len(plain) > words.LONGEST_TEXT:
            self.fault(line, f"this rule is longer than {words.LONGEST_TEXT} characters: say it in one sentence")
            return
        self._rules.append(_Rule(plain, text, line, forbidden=forbidden, about=about))

    def advice(self, text: str, line: int) -> None:
        """Note what sessions read and no gate enforces."""
        self._rules.append(_Rule(words.plain(text)[: words.LONGEST_TEXT], "", line))

    def prose(self, text: str, line: int, *, about: str = "") -> None:
        """Note a text that is perhaps only that."""
        if len(self._prose) < _MOST_SENTENCES:
            self._prose.append((DraftText(text, line), about))

    def unbound(self, text: str, line: int, mentioned: Sequence[str] = ()) -> None:
        """Name what reads like a prohibition and forbids nothing; sessions read it all the same."""
        self.advice(text, line)
        name = mentioned[0] if mentioned else "NAME"
        sentence = (
            f"{words.plain(text)[:80]!r} reads like a prohibition, but is prose and forbids nothing: write "
            f"'- {name}' in a list below '## Never', or 'Restart: never' where the service is described"
        )
        self._faults.append(Fault(source=StatementSource(path=self._path, line=line), sentence=sentence, unbound=True))

    def unused(self, column: str, line: int) -> None:
        """Note a column that says nothing to us, once."""
        sentence = f"the column {words.plain(column)[:40]!r} is not used, apart from what it forbids"
        fault = Fault(source=StatementSource(path=self._path, line=line), sentence=sentence)
        if words.key_form(column) and len(self._unused) < MOST_FAULTS:
            self._unused.setdefault(words.key_form(column), fault)

    def names_of_host(self, names: Iterable[str], line: int) -> None:
        """Note the names and addresses of one host."""
        if len(self._hosts) >= _MOST_HOSTS:
            return
        some = itertools.islice(names, _MOST_NAMES)
        found = [host for name in some for host in self._take(hosts.in_column(name[: words.LONGEST_TEXT]), line)]
        if len(set(found)) > 1:
            self._same.append(tuple(dict.fromkeys(found)))

    def hosts_in(self, text: str, line: int) -> None:
        """Note the hosts that a text is."""
        self._take(hosts.in_column(text), line)

    def kind_of(self, text: str) -> None:
        """Note what kind of repository this is."""
        if not self.kind:
            self.kind = repository_kind(text)

    def _take(self, found: hosts.FoundHosts, line: int) -> tuple[str, ...]:
        for sentence in found.faults:
            self.fault(line, sentence)
        if len(self._hosts) < _MOST_HOSTS:
            self._hosts += found.hosts
        if len(self._ports) < _MOST_PORTS:
            self._ports |= dict.fromkeys(found.ports)
        return found.hosts

    # --- the end

    def close(self, text: str) -> Manifest:
        """Return what was understood of a text."""
        drafts = list(self._services.values())[:MOST_SERVICES]
        services = [self._finished(service) for service in drafts]
        names = rules.ManifestNames(services)
        self._settle_items(names)
        services = self._with_prose(services, names)
        every = sorted((*self._rules[:MOST_RULES], *itertools.chain(*self._bound.values())), key=lambda rule: rule.line)
        return Manifest(
            repository=self._repository,
            kind=self.kind,
            hosts=unique(self._hosts),
            ports=tuple(self._ports),
            services=tuple(services),
            rules=tuple(dict.fromkeys(rule.text for rule in every))[:MOST_RULES],
            prohibitions=self._prohibitions(every, names),
            capabilities=tuple(dict.fromkeys(self.capabilities)),
            same_hosts=tuple(dict.fromkeys(self._same)),
            directories=hosts.directories_in(text),
            faults=listed(self._faults),
            unused=tuple(self._unused.values()),
        )

    def _finished(self, draft: ServiceDraft) -> Service:
        kind, address, check, healthy = self._one(draft, Facet.KIND), self._address(draft), "", ""
        check = hosts.without_user(words.plain(self._text(draft, Facet.CHECK)))
        healthy = self._text(draft, Facet.HEALTHY) or _behind_address(check)
        return Service(
            name=draft.name,
            aliases=self._names(draft, Facet.ALIASES),
            kind=_service_kind(" ".join([kind, *(one.text for one in draft.statements.get(Facet.HOST, ()))]), kind),
            host=self._host(draft),
            address=address,
            check=check if check != address else "",
            dependencies=self._names(draft, Facet.DEPENDENCIES),
            healthy=words.plain(healthy),
            restart=words.plain(self._text(draft, Facet.RESTART)),
            maintenance=self._windows(draft),
            source=StatementSource(path=self._path, line=draft.line),
        )

    def _one(self, draft: ServiceDraft, part: Facet) -> str:
        """Return the text of a part; in one place several add up where that makes sense, otherwise they are a fault."""
        statements = draft.statements.get(part, [])
        if not statements:
            return ""
        first, whole = statements[0], [statements[0].text]
        for other in statements[1:]:
            if casefold_key(words.plain(other.text)) == casefold_key(words.plain(first.text)):
                continue
            if other.since == first.since and part in {Facet.CHECK, Facet.HEALTHY, Facet.RESTART}:
                whole.append(other.text)
                continue
            self.fault(
                other.line,
                f"{draft.name} has a second {part.value}, {words.plain(other.text)[:60]!r} (line {first.line} says "
                f"{words.plain(first.text)[:60]!r}, which stands): give two services two names, or mend one of them",
            )
        return "; ".join(whole)

    def _text(self, draft: ServiceDraft, part: Facet) -> str:
        text = self._one(draft, part)
        if len(text) > words.LONGEST_TEXT:
            line = draft.statements[part][0].line
            self.fault(line, f"{part.value} of {draft.name} is longer than {words.LONGEST_TEXT} characters: shorten it")
            return ""
        return text

    def _address(self, draft: ServiceDraft) -> str:
        self._one(draft, Facet.ADDRESS)
        place = self._place(draft)
        found = ""
        for part in (Facet.ADDRESS, Facet.CHECK):
            for one in draft.statements.get(part, ()):
                text = words.linked(one.text)[: 2 * words.LONGEST_TEXT]
                taken = hosts.in_address(text)
                self._take(taken.seen_from(place), one.line)
                if taken.faults:
                    continue
                if (address := hosts.address_in(text)) != (bare := hosts.without_user(address)):
                    self.fault(one.line, f"the address of {draft.name} holds a user or password: take that out of it")
                found = found or bare
                if part is Facet.ADDRESS and not found:
                    found = self._bare_address(draft, one)
        port = draft.statements.get(Facet.PORT, ())
        for one in port:
            self._take(hosts.in_port_column(one.text, place or "localhost"), one.line)
        if not found and port and place and port[0].text.strip().isdecimal():
            found = f"{place}:{port[0].text.strip()}"
        if len(found) > words.LONGEST_TEXT:
            self.fault(draft.line, f"the address of {draft.name} is too long: name where it answers alone")
            return ""
        return found

    def _place(self, draft: ServiceDraft) -> str:
        """Return the host that a service runs on, as its first statement about that names it; "": this machine."""
        where = draft.statements.get(Facet.HOST, ())
        named = hosts.in_column(where[0].text).hosts if where else ()
        return named[0] if named else ""

    def _bare_address(self, draft: ServiceDraft, statement: DraftText) -> str:
        """Take ``shop.example.org/health``, which has no scheme."""
        word = words.plain(statement.text)
        taken = hosts.in_column(word.partition("/")[0]) if " " not in word else hosts.FoundHosts()
        if taken.hosts:
            self._take(taken, statement.line)
            return word
        self.fault(statement.line, f"{word[:60]!r} is no address of {draft.name}: write a URL or host:port")
        return ""

    def _host(self, draft: ServiceDraft) -> str:
        found: list[tuple[str, int]] = []
        for statement in draft.statements.get(Facet.HOST, ()):
            taken = self._take(hosts.in_column(statement.text), statement.line)
            if taken and found and found[0][0] != taken[0]:
                self.fault(
                    statement.line,
                    f"{draft.name} has a second host, {taken[0]} (line {found[0][1]}: {found[0][0]}, which stands): "
                    "give two services two names",
                )
            found += [(host, statement.line) for host in taken]
        return found[0][0] if found else ""

    def _names(self, draft: ServiceDraft, part: Facet) -> tuple[str, ...]:
        found: list[str] = []
        for statement in draft.statements.get(part, ()):
            for name in words.names_in(statement.text):
                refused = words.refuse_name(name)
                if refused is None and len(found) >= _MOST_NAMES:
                    refused = f"{draft.name} has more than {_MOST_NAMES} {part.value}: keep those that are used"
                if refused is not None:
                    self.fault(statement.line, refused)
                elif casefold_key(name) != casefold_key(draft.name):
                    found.append(name)
        return unique(found)

    def _windows(self, draft: ServiceDraft) -> tuple[MaintenanceWindow, ...]:
        found: list[MaintenanceWindow] = []
        for statement in draft.statements.get(Facet.MAINTENANCE, ()):
            text = words.plain(statement.text)[: words.LONGEST_TEXT]
            windows = windows_in(text)
            if windows is None:
                self.fault(
                    statement.line,
                    f"{text[:60]!r} is no weekly window: write 'Sun 03:00-05:00' or 'daily 02:00-02:20', in the "
                    "timezone of the daemon",
                )
            found += [window for window in windows or () if window not in found]
        return tuple(found)

    # --- sentences

    def _settle_items(self, names: rules.ManifestNames) -> None:
        for name, key, statement, whole in self._items:
            service = names.exact(name)
            if service and key:
                self._forbids(service, key, statement.text, statement.line)
            elif service and rules.reads_as_prohibition(statement.text):
                self.item(service, statement.text, statement.line)
            if whole:
                self.prose(whole, statement.line, about=service)

    def _with_prose(self, services: list[Service], names: rules.ManifestNames) -> list[Service]:
        """Return the services with what sentences add to them; what reads like a prohibition is a fault."""
        known = {service.name: service for service in services}
        bound = {rule.line for rule in itertools.chain(*self._bound.values())}
        for statement, about in self._prose:
            text = words.plain(statement.text)
            if rules.reads_as_prohibition(text, names):
                if statement.line not in bound:
                    self.unbound(text, statement.line, rules.mentioned(text, names) or ((about,) if about else ()))
                continue
            text = text[: words.LONGEST_TEXT]
            window = window_in_sentence(text)
            mentioned = rules.mentioned(text, names) or ((about,) if about else ())
            for name in mentioned if window else ():
                service = known[name]
                if window is not None and window not in service.maintenance:
                    known[name] = replace(service, maintenance=(*service.maintenance, window))
            restarted = _RESTARTED.search(text)
            if restarted and len(mentioned) == 1 and not known[mentioned[0]].restart:
                known[mentioned[0]] = replace(known[mentioned[0]], restart=restarted[1].partition(";")[0].strip(" ."))
        return list(known.values())

    def _prohibitions(self, every: Iterable[_Rule], names: rules.ManifestNames) -> tuple[Prohibition, ...]:
        found: dict[Prohibition, None] = {}
        for rule in every:
            reading = rules.RuleReading(services=(rule.about,) if rule.about else ())
            if rule.sentence:
                reading = rules.read_rule(rule.sentence, names, forbidden=rule.forbidden, about=rule.about)
            source = StatementSource(path=self._path, line=rule.line)
            if reading.fault is not None and not (rule.about and reading.services):
                self._faults.append(Fault(source=source, sentence=reading.fault, unbound=not reading.services))
            if reading.services:
                found[Prohibition(services=reading.services, text=rule.text, source=source)] = None
        return tuple(found)


def listed(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return faults in the order of their files and lines, each once, and no more than anybody reads."""
    every = sorted(set(faults), key=_place)
    if len(every) <= MOST_FAULTS:
        return tuple(every)
    more = f"{len(every) - MOST_FAULTS} more faults are not listed: mend these first"
    first = sorted(sorted(every, key=lambda fault: not fault.unbound)[:MOST_FAULTS], key=_place)
    return (*first, Fault(source=StatementSource(path=every[-1].source.path), sentence=more))


def _place(fault: Fault) -> tuple[str, int, str]:
    return fault.source.path, fault.source.line or 0, fault.sentence


def repository_kind(text: str) -> str:
    """Return the kind of a repository in one word: ``ansible`` for "Ansible infrastructure"."""
    plain = words.plain(text).casefold().replace(",", " ").split()
    known = next((word for word in plain if word in _REPOSITORIES), plain[0] if plain else "")
    known = {"docker-compose": "compose", "k8s": "kubernetes"}.get(known, known)
    return "compose" if known == "docker" and "compose" in plain else known[:_LONGEST_KIND]


def _service_kind(everything: str, kind: str) -> str:
    """Return what a service is or runs as, in one word."""
    spoken = [word.strip("`*(),.:;") for word in everything.casefold().split()]
    known = next((_KIND_OF[word] for word in spoken if word in _KIND_OF), "")
    if known:
        return known
    plain = words.plain(kind).casefold().split()
    return "-".join(plain)[:_LONGEST_KIND] if len(plain) <= 3 else ""  # noqa: PLR2004 - more words are a description


def _behind_address(check: str) -> str:
    """Return what a check says behind its address: ``answers 200 and says: ok``."""
    address = hosts.address_in(check)
    head, found, rest = check.partition(address) if address else ("", "", "")
    expected = rest.strip(" `,;:")
    return expected if found and not head.strip("` ") and expected.casefold().startswith(_ANSWERS) else ""
