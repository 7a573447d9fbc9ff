"""TOML and YAML in a manifest: front matter, and blocks of code that describe services.

Keys are those of the columns of tables. In front matter a key that is not known is a fault; a block of code without
``services``, ``hosts``, ``rules`` or ``never`` is an example of something, and none of the estate's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from claudeops.domain.estate import words
from claudeops.domain.estate.words import Facet, word_set
from claudeops.formats.estate import rules, trees
from claudeops.formats.estate.draft import Draft, ServiceDraft
from claudeops.formats.estate.trees import KeyedNode, Node, NodeList, NodeTable, Scalar, UnreadableError, texts
from claudeops.text import regex

LANGUAGES: Final = frozenset({"toml", "yaml", "yml", "json"})
"""Of blocks of code that are read."""

_UNUSED: Final = word_set(
    "title name description version author authors owner owners team contact date updated tags draft "
    "layout id notes note comment repository url homepage estate timezone",
)
"""Keys that front matter has for other readers."""

_UNUSED_OF_SERVICE: Final = word_set(
    "description notes note comment owner owners team contact runbook docs documentation tags priority "
    "criticality importance version image interval severity tier critical",
)
_COMPOSE: Final = frozenset(
    {"image", "build", "ports", "volumes", "environment", "restart_policy", "deploy", "networks"}
)
_FORBIDDEN: Final = frozenset({"never", "do not", "forbidden", "prohibited"})
_MEANT: Final = regex.Pattern(r"(?m)^\s*(?:\[\[?\s*|\{\s*)?[\"']?(?:services|hosts|rules|never)\b")
_NAMES: Final = frozenset(
    {"name", "service", "host", "address", "ip", "addresses", "hostname", "fqdn", "aliases", "alias"}
)


def read_document(
    draft: Draft, text: str, language: str, *, first_line: int, front: bool, forbidden: bool = False
) -> None:
    """Take what a text in TOML, YAML or JSON says.

    ``front``: it is the front matter, all of which is meant for us; ``forbidden``: what it lists is forbidden.
    """
    try:
        if language == "toml":
            root: Node = trees.read_toml(text, first_line=first_line)
        else:  # JSON is YAML, but for tabs
            plain = text.replace("\t", " ") if language == "json" else text
            root = trees.read_yaml(plain, first_line=first_line)
    except UnreadableError as error:
        if front or forbidden or _MEANT.search(text):
            draft.fault(error.line, f"this {language.upper()} cannot be read ({error}): correct it")
        return
    if forbidden and not _describes(root):
        _rules(draft, root, forbidden=True)
        return
    if not isinstance(root, NodeTable):
        if front and not (isinstance(root, Scalar) and not root.text.strip()):
            draft.fault(first_line, "the front matter is no table of keys: write 'services:' and the like")
        return
    if front or (_describes(root) and not _is_compose(root)):
        for entry in root.entries:
            _top(draft, entry, front=front)


def _describes(root: Node) -> bool:
    keys = {words.key_form(entry.key) for entry in root.entries} if isinstance(root, NodeTable) else set()
    return not keys.isdisjoint({"services", "hosts", "rules", *_FORBIDDEN})


def _is_compose(root: NodeTable) -> bool:
    services = root.get("services")
    inner = [entry.node for entry in services.entries] if isinstance(services, NodeTable) else []
    return any(isinstance(node, NodeTable) and {entry.key for entry in node.entries} & _COMPOSE for node in inner)


def _top(draft: Draft, entry: KeyedNode, *, front: bool) -> None:
    form = words.key_form(entry.key)
    if form in {"services", "service"}:
        _services(draft, entry.node)
    elif form in {"hosts", "host", "machines", "servers"}:
        _hosts(draft, entry.node)
    elif form in {"rules", "rule"}:
        _rules(draft, entry.node, forbidden=False)
    elif form in _FORBIDDEN or rules.reads_as_prohibition(form):
        _rules(draft, entry.node, forbidden=True)
    elif form in {"kind", "type"}:
        draft.kind_of(next((scalar.text for scalar in texts(entry.node)), ""))
    elif form in {"capabilities", "capability"}:
        draft.capabilities += [scalar.text[: words.LONGEST_TEXT] for scalar in texts(entry.node) if scalar.text.strip()]
    elif form in {"maintenance", "maintenance windows", "windows"} and isinstance(entry.node, NodeTable):
        _maintenance(draft, entry.node)
    elif front and form not in _UNUSED:
        draft.fault(
            entry.line, f"the key {entry.key[:40]!r} is not known: write kind, hosts, services, rules or capabilities"
        )


def _services(draft: Draft, node: Node) -> None:
    if isinstance(node, NodeTable):
        for entry in node.entries:
            service = draft.service(words.name_in(entry.key), entry.line)
            if service is not None:
                _describe(draft, service, entry.node)
        return
    for inner in node.nodes if isinstance(node, NodeList) else (node,):
        _listed(draft, inner)


def _listed(draft: Draft, node: Node) -> None:
    """Take one service of a list: a table with its name, or the name alone."""
    if isinstance(node, Scalar):
        if not words.is_nothing(node.text):
            draft.service(words.name_in(node.text), node.line)
        return
    if not isinstance(node, NodeTable):
        draft.fault(node.line, "a service is a table of keys, or a name: write 'name:' and the like")
        return
    named = next((entry for entry in node.entries if words.key_form(entry.key) in {"name", "service"}), None)
    if named is None and len(node.entries) == 1 and isinstance(node.entries[0].node, NodeTable):
        named_by_key = node.entries[0]  # "- shop: {host: web1}"
        service = draft.service(words.name_in(named_by_key.key), named_by_key.line)
        if service is not None:
            _describe(draft, service, named_by_key.node)
        return
    name = named.node.text if named is not None and isinstance(named.node, Scalar) else ""
    if words.is_nothing(name):
        draft.fault(node.line, "this service has no name: write 'name' with one")
        return
    service = draft.service(words.name_in(name), node.line)
    if service is not None:
        _describe(draft, service, node)


def _describe(draft: Draft, service: ServiceDraft, node: Node) -> None:
    if isinstance(node, Scalar):
        service.add(Facet.CHECK, node.text, node.line)
        draft.item(service.name, node.text, node.line)
        return
    if not isinstance(node, NodeTable):
        draft.fault(node.line, f"{service.name} is described by a list: write keys such as 'host' and 'check'")
        return
    for entry in node.entries:
        part = words.part_of(entry.key)
        if part is None:
            for key, scalar in _texts_below(entry):
                draft.statement(service, key, scalar.text, scalar.line)
            if words.key_form(entry.key) not in _UNUSED_OF_SERVICE and not rules.names_action(entry.key):
                meant = words.meant(entry.key) or "host, check, normal, aliases, depends_on, restart or maintenance"
                draft.fault(entry.line, f"the key {entry.key[:40]!r} of {service.name} is not known: write {meant}")
            continue
        _facet(draft, service, part, entry)


def _facet(draft: Draft, service: ServiceDraft, part: Facet, entry: KeyedNode) -> None:
    if isinstance(entry.node, NodeTable):
        draft.fault(entry.line, f"{entry.key!r} of {service.name} is a table: write one text, or a list of texts")
        for key, one in _texts_below(entry):
            draft.statement(service, key, one.text, one.line, binding=True)
        return
    scalars = list(texts(entry.node))
    if part in {Facet.RULES, Facet.ALIASES, Facet.DEPENDENCIES, Facet.MAINTENANCE, Facet.HOST}:
        for one in scalars:
            draft.statement(service, entry.key, one.text, one.line)
    elif scalars:
        draft.statement(service, entry.key, "; ".join(one.text for one in scalars), scalars[0].line)


def _texts_below(entry: KeyedNode) -> Iterator[tuple[str, Scalar]]:
    """Yield the texts below a key that is not known, each with its keys."""
    if isinstance(entry.node, NodeTable):
        for inner in entry.node.entries:
            yield from ((f"{entry.key} {inner.key}", scalar) for scalar in texts(inner.node))
    elif entry.node == NodeList(nodes=(), line=entry.node.line):
        yield entry.key, Scalar(text="none", line=entry.node.line)  # "actions: []"
    else:
        yield from ((entry.key, scalar) for scalar in texts(entry.node))


def _hosts(draft: Draft, node: Node) -> None:
    if isinstance(node, NodeTable):
        for entry in node.entries:
            draft.names_of_host([entry.key, *_names(entry.node)], entry.line)
        return
    for inner in node.nodes if isinstance(node, NodeList) else (node,):
        if isinstance(inner, Scalar):
            for name in words.names_in(inner.text):
                draft.hosts_in(name, inner.line)
        else:
            draft.names_of_host(_names(inner), inner.line)


def _names(node: Node) -> Iterator[str]:
    """Yield the names and addresses of one host."""
    if isinstance(node, NodeTable):
        for entry in node.entries:
            if words.key_form(entry.key) in _NAMES:
                yield from (scalar.text for scalar in texts(entry.node))
        return
    yield from (scalar.text for scalar in texts(node) if words.looks_like_host(scalar.text))


def _rules(draft: Draft, node: Node, *, forbidden: bool) -> None:
    if isinstance(node, NodeTable):
        for entry in node.entries:
            if forbidden:
                sentence = " ".join(scalar.text for scalar in texts(entry.node))
                draft.rule(f"{entry.key} {sentence}", entry.line, forbidden=True)
            else:
                draft.fault(entry.line, "rules are sentences: write a list of them")
        return
    for scalar in texts(node):
        for number, line in enumerate(scalar.text.split("\n")):
            if line.strip(" -*"):
                draft.rule(line.strip(" -*"), scalar.line + number, forbidden=forbidden)


def _maintenance(draft: Draft, node: NodeTable) -> None:
    for entry in node.entries:
        if not draft.has(words.name_in(entry.key)):
            draft.fault(entry.line, f"{entry.key[:60]!r} is no service described above: name one")
            continue
        service = draft.service(words.name_in(entry.key), entry.line)
        for scalar in texts(entry.node):
            if service is not None:
                service.add(Facet.MAINTENANCE, scalar.text, scalar.line)
