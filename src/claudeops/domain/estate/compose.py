"""What a compose file adds to a repository's manifest: hosts, and the other names of the services that it describes.

Read are names (services, containers, host names, network aliases), labels (``Host(`…`)`` rules and URLs) and addresses
of published ports; never the environment, where secrets stand. A value that is filled in later (``${DOMAIN}``) is left
out.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from claudeops.domain.estate import hosts, structured, words
from claudeops.domain.estate.draft import listed
from claudeops.domain.estate.model import Fault, Manifest, Source
from claudeops.domain.estate.structured import Entry, Node, Table, UnreadableError, texts
from claudeops.domain.text import casefold_key, regex, unique

_RULE: Final = regex.Pattern(r"Host(?:SNI|Header)?\(([^()]*)\)")
_QUOTED: Final = regex.Pattern(r"[`'\"]([^`'\"\s]+)[`'\"]")
_URL: Final = regex.Pattern(r"(?i)https?://[^\s`'\"<>,]+")
_PUBLISHED: Final = regex.Pattern(r"(\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-fA-F:]+\]):\d{1,5}(?:-\d+)?:\d.*")
_OWN: Final = frozenset({"0.0.0.0", "127.0.0.1", "::", "::1"})  # noqa: S104 - compared, nothing listens
_MOST_HOSTS: Final = 500  # of one file
_MOST_SERVICES: Final = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposeService:
    """A service of a compose file."""

    name: str
    container: str  # "" where compose makes the name up


@dataclass(frozen=True, kw_only=True, slots=True)
class Compose:
    """What one compose file says."""

    project: str  # as compose would call it
    services: tuple[ComposeService, ...] = ()
    hosts: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()


def parse_compose(text: str, *, path: str) -> Compose:
    """Return what a compose file says; whatever the text is, it never raises. ``path``: below the repositories."""
    project = _project(posixpath.basename(posixpath.dirname(path)))
    try:
        root = structured.read_yaml(words.readable(text), empty_aliases=True)
    except UnreadableError as error:
        sentence = f"this compose file cannot be read ({error}): correct it"
        return Compose(project=project, faults=(Fault(source=Source(path=path, line=error.line), sentence=sentence),))
    services = root.get("services") if isinstance(root, Table) else None
    if not isinstance(root, Table) or not isinstance(services, Table):
        return Compose(project=project)
    named = next((told.text for told in texts(root.get("name"))), "")
    taken = _Taken(path)
    entries = [entry for entry in services.entries if words.refuse_name(entry.key) is None][:_MOST_SERVICES]
    return Compose(
        project=_project(named) if named and "$" not in named else project,
        services=tuple(taken.service(entry) for entry in entries),
        hosts=unique(taken.hosts[:_MOST_HOSTS]),
        faults=listed(taken.faults),
    )


def with_compose(manifest: Manifest, files: Iterable[Compose]) -> Manifest:
    """Return a manifest with what the compose files of its repository add."""
    known = {casefold_key(service.name): service for service in manifest.services}
    addresses = list(manifest.addresses)
    faults = list(manifest.faults)
    projects: dict[str, tuple[str, ...]] = dict(manifest.projects)
    for file in files:
        addresses += file.hosts
        faults += file.faults
        for inner in file.services:
            service = known.get(casefold_key(inner.name))
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
        faults=listed(faults),
        projects=projects,
    )


class _Taken:
    """Collects what services say."""

    def __init__(self, path: str) -> None:
        self.hosts: list[str] = []
        self.faults: list[Fault] = []
        self._path = path

    def service(self, entry: Entry) -> ComposeService:
        container = ""
        self._host(entry.key, entry.line, named=True)
        for inner in entry.node.entries if isinstance(entry.node, Table) else ():
            if inner.key == "container_name":
                container = next((told.text for told in texts(inner.node) if words.refuse_name(told.text) is None), "")
                container = "" if "$" in container else container
            self._of_key(inner)
        return ComposeService(name=entry.key, container=container)

    def _of_key(self, entry: Entry) -> None:
        if entry.key in {"container_name", "hostname", "domainname"}:
            self._named(entry.node)
        elif entry.key == "labels":
            for text, line in _labels(entry.node):
                self._label(text, line)
        elif (
            entry.key == "deploy" and isinstance(entry.node, Table) and (labels := entry.node.get("labels")) is not None
        ):
            self._of_key(Entry(key="labels", node=labels, line=entry.line))
        elif entry.key == "ports":
            self._published(entry.node)
        elif entry.key == "networks" and isinstance(entry.node, Table):
            for network in entry.node.entries:
                self._named(network.node.get("aliases") if isinstance(network.node, Table) else None)

    def _named(self, node: Node | None) -> None:
        for told in texts(node):
            self._host(told.text, told.line, named=True)

    def _published(self, node: Node) -> None:
        for told in texts(node):
            published = _PUBLISHED.fullmatch(told.text.strip())
            if published is not None and published[1].strip("[]") not in _OWN:
                self._host(published[1], told.line)

    def _label(self, text: str, line: int) -> None:
        for rule in _RULE.finditer(text):
            for quoted in _QUOTED.finditer(rule[1]):
                self._host(quoted[1], line)
        for url in _URL.finditer(text):
            if "$" not in url[0] and "{" not in url[0]:
                self._take(hosts.in_address(url[0]), line)

    def _host(self, written: str, line: int, *, named: bool = False) -> None:
        """Take a host. A mere name that is none (``my_app!``) is no fault: nobody asks it."""
        if "$" in written or "{" in written or written == "*" or not written.strip():
            return
        taken = hosts.host(written.strip())
        if not (named and taken.faults):
            self._take(taken, line)

    def _take(self, taken: hosts.Found, line: int) -> None:
        self.hosts += taken.hosts
        self.faults += [Fault(source=Source(path=self._path, line=line), sentence=text) for text in taken.faults]


def _labels(node: Node) -> Iterator[tuple[str, int]]:
    if isinstance(node, Table):
        for entry in node.entries:
            yield from ((told.text, told.line) for told in texts(entry.node))
    else:
        yield from ((told.text.partition("=")[2], told.line) for told in texts(node))


def _project(name: str) -> str:
    """Return a project's name as compose makes it of a directory's: lower case, letters, digits, ``-`` and ``_``."""
    kept: Sequence[str] = [
        letter for letter in name.lower() if letter.isascii() and (letter.isalnum() or letter in "-_")
    ]
    return "".join(kept).lstrip("-_")
