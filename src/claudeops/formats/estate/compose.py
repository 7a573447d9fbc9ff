"""What a compose file adds to a repository's manifest: hosts, and the other names of the services that it describes.

Read are names (services, containers, host names, network aliases), labels (``Host(`…`)`` rules and URLs) and addresses
of published ports; never the environment, where secrets stand. What a service takes over by a merge (``<<:``) or from
another service of the file (``extends``) counts as its own, unless it says something else. A value that is filled in
later (``${DOMAIN}``) is left out.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from claudeops.domain.estate import hosts, words
from claudeops.domain.estate.estate import Fault, Manifest, StatementSource
from claudeops.formats.estate import trees
from claudeops.formats.estate.draft import listed
from claudeops.formats.estate.trees import KeyedNode, Node, NodeList, NodeTable, Scalar, UnreadableError, texts
from claudeops.structs import replace
from claudeops.text import casefold_key, regex, unique

_RULE: Final = regex.Pattern(r"Host(?:SNI|Header)?\(([^()]*)\)")
_QUOTED: Final = regex.Pattern(r"[`'\"]([^`'\"\s]+)[`'\"]")
_URL: Final = regex.Pattern(r"(?i)https?://[^\s`'\"<>,]+")
_PUBLISHED: Final = regex.Pattern(
    r"(?i)(?:(\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-f:]+\]):)?(\d{1,5})(?:-(\d{1,5}))?:\d[^/]*(?:/(\w+))?"
)
_MOST_PUBLISHED: Final = 64  # ports of one range, and of one service
_OWN: Final = frozenset({"0.0.0.0", "127.0.0.1", "::", "::1"})  # noqa: S104 - compared, nothing listens
_LARGEST_PORT: Final = 65535
_MOST_HOSTS: Final = 500  # of one file
_MOST_SERVICES: Final = 300
_MOST_MERGED: Final = 20_000  # entries of all services of one file, with those taken over
_DEEPEST: Final = 8  # merges within merges
_TEMPLATE: Final = regex.Pattern(r"\{\{|\{%")


class ComposeService(msgspec.Struct, frozen=True, kw_only=True):
    """A service of a compose file."""

    name: str
    container: str  # "" where compose makes the name up
    ports: tuple[int, ...] = ()  # TCP, published at all addresses of the machine that it runs on, or at loopback


class Compose(msgspec.Struct, frozen=True, kw_only=True):
    """What one compose file says."""

    project: str  # as compose would call it
    services: tuple[ComposeService, ...] = ()
    hosts: tuple[str, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()  # hosts, each with a TCP port that is named for it
    faults: tuple[Fault, ...] = ()
    others: tuple[
        tuple[str, Fault], ...
    ] = ()  # files that it includes or extends; a fault unless they are read as well


def parse_compose(text: str, *, path: str) -> Compose:
    """Return what a compose file says; whatever the text is, it never raises. ``path``: below the repositories."""
    project = _project(posixpath.basename(posixpath.dirname(path)))
    lost: list[trees.Scalar] = []
    try:
        root = trees.read_yaml(words.readable(text), lost=lost)
    except UnreadableError as error:
        sentence = _why_unread(error, text)
        return Compose(
            project=project, faults=(Fault(source=StatementSource(path=path, line=error.line), sentence=sentence),)
        )
    if not isinstance(root, NodeTable):
        return Compose(project=project)
    root = _merged(root)
    services = root.get("services")
    reader = _Reader(path, _merged(services) if isinstance(services, NodeTable) else NodeTable(entries=(), line=1))
    for alias in lost:
        reader.fault(
            alias.line, f"the alias *{alias.text[:40]} has no anchor in this file, so what it stands for is left out"
        )
    reader.includes(root.get("include"))
    named = next((scalar.text for scalar in texts(root.get("name"))), "")
    return Compose(
        project=_project(named) if named and "$" not in named else project,
        services=tuple(reader.all_services()),
        hosts=unique(reader.hosts[:_MOST_HOSTS]),
        ports=tuple(dict.fromkeys(reader.ports[:_MOST_HOSTS])),
        faults=listed(reader.faults),
        others=tuple(reader.others),
    )


def _merged(table: NodeTable) -> NodeTable:
    """Return a table of names with those that it takes over by ``<<:``; no table is taken twice, whoever merges it."""
    entries: list[KeyedNode] = []
    known: set[str] = set()
    waiting: list[Node] = [table]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, NodeList):
            waiting += reversed(node.nodes)
        elif isinstance(node, NodeTable):
            entries += [entry for entry in node.entries if entry.key not in known and entry.key != "<<"]
            known.update(entry.key for entry in node.entries)
            waiting += [entry.node for entry in reversed(node.entries) if entry.key == "<<"]
    return NodeTable(entries=tuple(entries), line=table.line)


def _why_unread(error: UnreadableError, text: str) -> str:
    if _TEMPLATE.search(text):
        return "this compose file is a template and no YAML, so it is not read: describe its services in the manifest"
    line = next(itertools.islice(text.splitlines(), error.line - 1, None), "")
    remedy = "correct it"
    if line.startswith("\t"):
        remedy = "indent with blanks, for YAML knows no tabs"
    elif ": !" in line:
        remedy = "put a value that begins with '!' in quotes, or it is a tag"
    return f"this compose file cannot be read ({error}): {remedy}"


def with_compose(manifest: Manifest, files: Iterable[Compose]) -> Manifest:
    """Return a manifest with what the compose files of its repository add."""
    known = {casefold_key(service.name): service for service in manifest.services}
    addresses = list(manifest.addresses)
    ports = list(manifest.ports)
    faults = list(manifest.faults)
    projects: dict[str, tuple[str, ...]] = dict(manifest.projects)
    for file in files:
        addresses += file.hosts
        ports += file.ports
        faults += file.faults
        for inner in file.services:
            service = known.get(casefold_key(inner.name))
            # Where nothing names a host, the file is one of this machine.
            ports += [((service.host if service else "") or "localhost", port) for port in inner.ports]
            if service is None:
                continue
            made = tuple(f"{file.project}{joint}{inner.name}{joint}1" for joint in "-_") if not inner.container else ()
            containers = [inner.container] if inner.container else list(made[:1])
            aliases = [name for name in containers if casefold_key(name) != casefold_key(service.name)]
            known[casefold_key(inner.name)] = replace(service, aliases=unique((*service.aliases, *aliases)))
            more = (f"project:{file.project}/{inner.name}", *made[1:]) if file.project else made[1:]
            projects[service.name] = unique((*projects.get(service.name, ()), *more))
    return replace(
        manifest,
        services=tuple(known.values()),
        addresses=unique(addresses),
        ports=tuple(dict.fromkeys(ports)),
        faults=listed(faults),
        projects=projects,
    )


class _Reader:
    """Collects what services say."""

    def __init__(self, path: str, services: NodeTable) -> None:
        self.hosts: list[str] = []
        self.ports: list[tuple[str, int]] = []
        self.faults: list[Fault] = []
        self.others: list[tuple[str, Fault]] = []
        self._path = path
        self._services = services
        self._merged = 0
        self._own: dict[int, list[int]] = {}  # ports of the machine itself, by the node that publishes them
        self._read: set[tuple[str, int]] = set()  # keys with nodes, which many services may share

    def fault(self, line: int, sentence: str) -> None:
        self.faults.append(Fault(source=StatementSource(path=self._path, line=line), sentence=sentence))

    def includes(self, node: Node | None) -> None:
        """Note the files that this one includes."""
        for inner in node.nodes if isinstance(node, NodeList) else ():
            for scalar in texts(inner.get("path") if isinstance(inner, NodeTable) else inner):
                self._other(scalar.text, scalar.line)

    def _other(self, written: str, line: int) -> None:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self._path), written))
        sentence = f"{written[:80]!r} is not read: describe in the manifest what it adds, or call it a compose file"
        self.others.append((path, Fault(source=StatementSource(path=self._path, line=line), sentence=sentence)))

    def all_services(self) -> Iterator[ComposeService]:
        """Yield the services, with what they take over."""
        named = [entry for entry in self._services.entries if words.refuse_name(entry.key) is None]
        if len(named) > _MOST_SERVICES:
            self.fault(named[_MOST_SERVICES].line, f"only {_MOST_SERVICES} services of a file are read: divide it")
        for entry in named[:_MOST_SERVICES]:
            yield self._service(entry)

    def _service(self, entry: KeyedNode) -> ComposeService:
        self._host(entry.key, entry.line, named=True)
        entries: dict[str, KeyedNode] = {}
        self._take_over(entry.node, entries, _DEEPEST)
        for inner in entries.values():
            if (inner.key, id(inner.node)) not in self._read:
                self._read.add((inner.key, id(inner.node)))
                self._of_key(inner)
        named = entries.get("container_name")
        container = next((scalar.text for scalar in texts(named.node if named else None)), "")
        known = words.refuse_name(container) is None and "$" not in container
        published = entries.get("ports")
        ports = tuple(self._own.get(id(published.node), ())) if published else ()
        return ComposeService(name=entry.key, container=container if known else "", ports=ports)

    def _take_over(self, node: Node | None, entries: dict[str, KeyedNode], depth: int) -> None:
        """Add what a service says, and what it takes over where it says nothing itself."""
        if not isinstance(node, NodeTable) or not depth:
            return
        self._merged += len(node.entries)
        if self._merged > _MOST_MERGED:
            if not self.faults or "merges" not in self.faults[-1].sentence:
                self.fault(node.line, "the merges of this file make too many entries, and are not all read: shorten it")
            return
        own = [entry for entry in node.entries if entry.key != "<<"]
        for entry in own:
            entries.setdefault(entry.key, entry)
        for entry in node.entries:
            if entry.key == "<<":
                for merged in entry.node.nodes if isinstance(entry.node, NodeList) else (entry.node,):
                    self._take_over(merged, entries, depth - 1)
            elif entry.key == "extends":
                self._extends(entry, entries, depth - 1)

    def _extends(self, entry: KeyedNode, entries: dict[str, KeyedNode], depth: int) -> None:
        of = entry.node.get("service") if isinstance(entry.node, NodeTable) else entry.node
        file = entry.node.get("file") if isinstance(entry.node, NodeTable) else None
        for scalar in texts(file):
            self._other(scalar.text, scalar.line)
        if file is None:
            for scalar in texts(of):
                self._take_over(self._services.get(scalar.text), entries, depth)

    def _of_key(self, entry: KeyedNode) -> None:
        if entry.key in {"container_name", "hostname", "domainname"}:
            self._named(entry.node)
        elif entry.key == "labels":
            for text, line in _labels(entry.node):
                self._label(text, line)
        elif (
            entry.key == "deploy"
            and isinstance(entry.node, NodeTable)
            and (labels := entry.node.get("labels")) is not None
        ):
            self._of_key(KeyedNode(key="labels", node=labels, line=entry.line))
        elif entry.key == "ports":
            self._published(entry.node)
        elif entry.key == "networks" and isinstance(entry.node, NodeTable):
            for network in entry.node.entries:
                self._named(network.node.get("aliases") if isinstance(network.node, NodeTable) else None)

    def _named(self, node: Node | None) -> None:
        for scalar in texts(node):
            self._host(scalar.text, scalar.line, named=True)

    def _published(self, node: Node) -> None:
        for address, ports, line in _publications(node):
            if address in _OWN:
                own = self._own.setdefault(id(node), [])
                own += ports[: _MOST_PUBLISHED - len(own)]
            else:
                self._host(address, line)
                self.ports += [(hosts.plain_host(address), port) for port in ports]

    def _label(self, text: str, line: int) -> None:
        for rule in _RULE.finditer(text):
            for quoted in _QUOTED.finditer(rule[1]):
                self._host(quoted[1], line)
        for url in _URL.finditer(text):
            if "$" not in url[0] and "{" not in url[0]:
                self._take(hosts.in_address(url[0]), line)

    def _host(self, written: str, line: int, *, named: bool = False) -> None:
        """Take a host. A mere name that is none (``my_app!``) is no fault: no probe asks it."""
        if "$" in written or "{" in written or written == "*" or not written.strip():
            return
        taken = hosts.host(written.strip())
        if not (named and taken.faults):
            self._take(taken, line)

    def _take(self, taken: hosts.FoundHosts, line: int) -> None:
        self.hosts += taken.hosts
        self.ports += taken.ports
        self.faults += [
            Fault(source=StatementSource(path=self._path, line=line), sentence=text) for text in taken.faults
        ]


def _labels(node: Node) -> Iterator[tuple[str, int]]:
    if isinstance(node, NodeTable):
        for entry in node.entries:
            yield from ((scalar.text, scalar.line) for scalar in texts(entry.node))
    else:
        yield from ((scalar.text.partition("=")[2], scalar.line) for scalar in texts(node))


def _publications(node: Node) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield address, TCP ports and line of what is published, in the short and in the long form."""
    for inner in node.nodes if isinstance(node, NodeList) else (node,):
        if isinstance(inner, Scalar):
            text = inner.text.strip()
        elif isinstance(inner, NodeTable):
            value = {entry.key: entry.node.text for entry in inner.entries if isinstance(entry.node, Scalar)}
            address = value.get("host_ip", "")
            address = f"[{address}]:" if ":" in address else f"{address}:" if address else ""
            text = f"{address}{value.get('published', '')}:{value.get('target', '')}/{value.get('protocol', 'tcp')}"
        else:
            continue
        found = _PUBLISHED.fullmatch(text)
        if found is not None:
            first, last = int(found[2]), int(found[3] or found[2])
            ports = range(first, min(last, first + _MOST_PUBLISHED - 1, _LARGEST_PORT) + 1)
            tcp = (found[4] or "tcp").lower() == "tcp"
            yield (found[1] or "0.0.0.0").strip("[]"), tuple(ports) if tcp else (), inner.line  # noqa: S104 - compose's default


def _project(name: str) -> str:
    """Return a project's name as compose makes it of a directory's: lower case, letters, digits, ``-`` and ``_``."""
    kept: Sequence[str] = [
        letter for letter in name.lower() if letter.isascii() and (letter.isalnum() or letter in "-_")
    ]
    return "".join(kept).lstrip("-_")
