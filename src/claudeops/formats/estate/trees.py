"""TOML and YAML of repositories as one kind of tree, whose every node knows its line.

Both are read within bounds: so many bytes, so deep, so many nodes. Every scalar is its text, so ``22:00`` is no number
and ``no`` no truth value; tags mean nothing, and nothing is ever constructed. Anchors and aliases are refused, or stand
for one and the same node where a format lives by them (compose files): a tree holds it often, and it is there once.

tomllib knows no lines. They are found by a look at the headers and keys, and at lists with one value on each line;
what stands in any other list has the line where that begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from claudeops.text import regex
from claudeops.text.toml_file import NotTomlError, parse

if TYPE_CHECKING:  # an estate without YAML does without it
    import yaml

MOST_CHARACTERS: Final = 256 * 1024
"""Of one file, and so of one TOML or YAML text."""

DEEPEST: Final = 12
_MOST_NODES: Final = 60_000
_MOST_DOTS: Final = 64  # in a line: tomllib's work grows with the square of a dotted key's parts
_HEADER: Final = regex.Pattern(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?")
_ENTRY: Final = regex.Pattern(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_OPENING: Final = regex.Pattern(r"\s*\[\s*(?:#.*)?")
_VALUE: Final = regex.Pattern(r"""\s*(?:"(?:[^"\\]|\\.)*"|'[^']*'|\{[^{}]*\}|[\w.+:-]+)\s*,?\s*(?:#.*)?""")
_PART: Final = regex.Pattern(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


class UnreadableError(ValueError):
    """A text is not TOML or YAML, or not within the bounds; ``str()`` says why."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line  # in the file


class Scalar(msgspec.Struct, frozen=True, kw_only=True):
    """A single value."""

    text: str
    line: int


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """A list."""

    nodes: tuple[Node, ...]
    line: int


class KeyedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A key with its value."""

    key: str
    node: Node
    line: int


class NodeTable(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping; a key may stand in it twice, as a text may say it."""

    entries: tuple[KeyedNode, ...]
    line: int

    def get(self, key: str) -> Node | None:
        """Return the first value of a key."""
        return next((entry.node for entry in self.entries if entry.key == key), None)


Node = Scalar | NodeList | NodeTable


def texts(node: Node | None) -> Iterator[Scalar]:
    """Yield the scalars of a list, or the one scalar that stands in its place."""
    if isinstance(node, Scalar):
        yield node
    elif isinstance(node, NodeList):
        yield from (inner for inner in node.nodes if isinstance(inner, Scalar))


# --- TOML ---------------------------------------------------------------------------------------------


def read_toml(text: str, *, first_line: int = 1) -> NodeTable:
    """Return the table that a text is; ``first_line`` is its place in the file. Raises `UnreadableError`."""
    _refuse_long(text, first_line)
    for number, line in enumerate(text.split("\n"), first_line):
        if line.count(".") > _MOST_DOTS:
            raise UnreadableError(f"a line has more than {_MOST_DOTS} dots", number)
    try:
        value = parse(text)
    except NotTomlError as error:
        raise UnreadableError(error.reason, first_line + (error.line or 1) - 1) from None
    except RecursionError:
        raise UnreadableError("it is nested too deeply", first_line) from None
    return _Plain(_toml_lines(text, first_line)).table(value, (), first_line)


_Path = tuple[str | int, ...]


class _Plain:
    """Makes a tree of plain values."""

    def __init__(self, lines: dict[_Path, int]) -> None:
        self._lines = lines
        self._count = 0

    def table(self, value: Mapping[str, object], path: _Path, line: int) -> NodeTable:
        entries = []
        for key, inner in value.items():
            node = self._node(inner, (*path, key), line)
            entries.append(KeyedNode(key=key, node=node, line=self._lines.get((*path, key), node.line)))
        return NodeTable(entries=tuple(entries), line=line)

    def _node(self, value: object, path: _Path, above: int) -> Node:
        line = self._lines.get(path, above)
        self._count += 1
        if self._count > _MOST_NODES or len(path) > DEEPEST:
            raise UnreadableError("it is nested too deeply or has too many values", line)
        if isinstance(value, dict):
            return self.table(value, path, line)
        if isinstance(value, list):
            nodes = tuple(self._node(inner, (*path, index), line) for index, inner in enumerate(value))
            return NodeList(nodes=nodes, line=line)
        return Scalar(text=str(value).lower() if isinstance(value, bool) else str(value), line=line)


def _toml_lines(text: str, first_line: int) -> dict[_Path, int]:
    """Return where keys and headers stand."""
    lines: dict[_Path, int] = {}
    counts: dict[_Path, int] = {}
    prefix: _Path = ()
    quote = ""  # of a string over several lines that is open
    listing: _Path | None = None  # the list over several lines that is open, each of its values on a line of its own
    index = 0
    for number, line in enumerate(text.split("\n"), first_line):
        if quote:
            quote = "" if quote in line else quote
            continue
        if listing is not None and _VALUE.fullmatch(line):
            lines[*listing, index] = number
            index += 1
            continue
        listing = listing if listing is not None and not line.split("#")[0].strip() else None
        header = _HEADER.fullmatch(line)
        if header is not None:
            prefix = _resolved(_parts(header[2]), counts)
            if header[1] == "[[":
                counts[prefix] = counts.get(prefix, -1) + 1
                lines.setdefault(prefix, number)
                prefix = (*prefix, counts[prefix])
            lines.setdefault(prefix, number)
            continue
        entry = _ENTRY.match(line)
        if entry is not None:
            path: _Path = (*prefix, *_parts(entry[1]))
            for end in range(len(prefix) + 1, len(path) + 1):
                lines.setdefault(path[:end], number)
            listing, index = (path, 0) if _OPENING.fullmatch(line[entry.end() :]) else (None, 0)
        quote = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")
    return lines


def _resolved(parts: _Path, counts: dict[_Path, int]) -> _Path:
    """Return the path of a header: within a list of tables it means the last one."""
    path: _Path = ()
    for index, part in enumerate(parts):
        path = (*path, part)
        if path in counts and index < len(parts) - 1:
            path = (*path, counts[path])
    return path


def _parts(key: str) -> _Path:
    return tuple(found[0].strip("\"'") for found in _PART.finditer(key))


# --- YAML ---------------------------------------------------------------------------------------------


class _Open(msgspec.Struct):
    """A list or mapping that is not complete yet."""

    line: int
    is_table: bool
    nodes: list[Node]
    key: Scalar | None
    entries: list[KeyedNode]
    anchor: str | None

    def take(self, node: Node) -> None:
        if not self.is_table:
            self.nodes.append(node)
        elif self.key is None:
            if not isinstance(node, Scalar):
                raise UnreadableError("a key is not a plain text", node.line)
            self.key = node
        else:
            self.entries.append(KeyedNode(key=self.key.text, node=node, line=self.key.line))
            self.key = None

    def close(self) -> Node:
        if self.is_table:
            return NodeTable(entries=tuple(self.entries), line=self.line)
        return NodeList(nodes=tuple(self.nodes), line=self.line)


def read_yaml(text: str, *, first_line: int = 1, lost: list[Scalar] | None = None) -> Node:
    """Return the first document of a text. Raises `UnreadableError`.

    ``lost``: anchors and aliases are read, and aliases without an anchor are put here; they stand for an empty text.
    """
    import yaml  # noqa: PLC0415 - a MiB, and 18 modules of a start: an estate without YAML does without it

    _refuse_long(text, first_line)
    try:
        return _first_document(text, first_line, lost)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark is not None else 0
        raise UnreadableError(error.problem or error.context or "it is not YAML", first_line + line) from None
    except yaml.YAMLError as error:
        raise UnreadableError(str(error).partition("\n")[0], first_line) from None


def _first_document(text: str, first_line: int, lost: list[Scalar] | None) -> Node:
    import yaml  # noqa: PLC0415 - see `read_yaml`

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # only its parser is used: events, no objects
    stack: list[_Open] = []
    anchors: dict[str, Node] = {}
    for count, event in enumerate(yaml.parse(text, Loader=loader)):
        line = first_line + (event.start_mark.line if event.start_mark is not None else 0)
        if count > _MOST_NODES or len(stack) > DEEPEST:
            raise UnreadableError("it is nested too deeply or has too many values", line)
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        if anchor is not None and lost is None:
            raise UnreadableError("anchors and aliases (&, *) are not read: write the value out", line)
        if isinstance(event, yaml.CollectionStartEvent):
            is_table = isinstance(event, yaml.MappingStartEvent)
            stack.append(_Open(line=line, is_table=is_table, nodes=[], key=None, entries=[], anchor=anchor))
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor = stack[-1].anchor
            node = stack.pop().close()
        elif isinstance(event, yaml.AliasEvent | yaml.ScalarEvent):
            node = _leaf(event, line, anchors, [] if lost is None else lost)
        else:
            continue
        if anchor is not None and not isinstance(event, yaml.AliasEvent):
            anchors[anchor] = node
        if not stack:
            return node
        stack[-1].take(node)
    return Scalar(text="", line=first_line)


def _leaf(
    event: yaml.AliasEvent | yaml.ScalarEvent, line: int, anchors: Mapping[str, Node], lost: list[Scalar]
) -> Node:
    import yaml  # noqa: PLC0415 - see `read_yaml`

    if isinstance(event, yaml.ScalarEvent):
        return Scalar(text=str(event.value), line=line)
    known = anchors.get(event.anchor or "")
    if known is None:
        lost.append(Scalar(text=str(event.anchor), line=line))
    return known or Scalar(text="", line=line)


def _refuse_long(text: str, line: int) -> None:
    if len(text) > MOST_CHARACTERS:
        raise UnreadableError(f"it is longer than {MOST_CHARACTERS // 1024} KiB", line)
