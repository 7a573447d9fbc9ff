"""Redirections, here-documents and here-strings, and what the parser puts below them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from tree_sitter import Node

from claudeops.policy.shell.language import Literal, Redirection, UnclearError, Word
from claudeops.policy.shell.lexical import here_document, unclear
from claudeops.policy.shell.words import ReaderScope, WordReader

REDIRECTS: Final = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
_DOCUMENT: Final = frozenset({"<<", "<<-", "heredoc_start", "heredoc_body", "heredoc_end", "file_redirect"})
_DESCRIPTORS: Final = ("", *"0123456789")
_ERRORS: Final = Redirection(operator=">&", target=Literal("1"), descriptor="2")


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """What stands behind a statement and belongs to its last command, with the variables that this one sees."""

    redirects: tuple[Node, ...] = ()
    errors_too: bool = False  # ``|&``
    piped: tuple[tuple[Node, Behind], ...] = ()  # ``cat <<EOF | …``, the rest of the pipeline


NOTHING: Final = Behind()


class Redirects(msgspec.Struct, frozen=True, kw_only=True):
    """Redirections as they have been read."""

    files: tuple[Redirection, ...] = ()
    arguments: tuple[Word, ...] = ()  # words after a redirection, which are still the command's
    stdin: str | None = None

    @property
    def feeds(self) -> bool:
        """Whether the command reads this instead of what another one prints."""
        return self.stdin is not None or any(each.operator == "<" for each in self.files)

    def then(self, other: Redirects) -> Redirects:
        """Return both, the other one last."""
        if self.feeds and other.feeds:
            raise UnclearError("a command has one input: leave out the other")
        stdin = other.stdin if self.stdin is None else self.stdin
        files, arguments = (*self.files, *other.files), (*self.arguments, *other.arguments)
        return Redirects(files=files, arguments=arguments, stdin=stdin)


class RedirectionReader:
    """Reads redirection nodes; ``keep`` records what is not in the language."""

    def __init__(self, source: bytes, words: WordReader, keep: Callable[[UnclearError], None]) -> None:
        self._source = source
        self._words = words
        self._keep = keep

    def read(self, nodes: Iterable[Node], scope: ReaderScope, *, errors_too: bool = False) -> Redirects:
        """Return the redirections among nodes."""
        found = Redirects()
        for node in nodes:
            try:
                found = found.then(self._redirection(node, scope) if node.type in REDIRECTS else Redirects())
            except UnclearError as error:
                self._keep(error)
        return found.then(Redirects(files=(_ERRORS,) if errors_too else ()))

    def rest(self, nodes: Iterable[Node]) -> tuple[list[tuple[Node, Behind]], list[tuple[str, Node]]]:
        """Return what the parser puts below a here-document: the rest of its pipeline, and of its list."""
        piped: list[tuple[Node, Behind]] = []
        following: list[tuple[str, Node]] = []
        operator = ""
        for child in (child for node in nodes if node.type == "heredoc_redirect" for child in node.children):
            if child.type in {"&&", "||"}:
                operator = child.type
            elif child.type == "pipeline" and child.children[0].type == "|":
                *parts, last = (part for part in child.children if part.type != "|")
                (_, last), *following = operands(last)  # what && appends counts as part of the last command
                parts += [part for part in last.children if part.type != "|"] if last.type == "pipeline" else [last]
                piped += [(part, NOTHING) for part in parts]
            elif operator and child.type not in _DOCUMENT:
                following += operands(child, operator)
            elif child.type not in _DOCUMENT:
                raise unclear(child, self._source)
        return piped, following

    def _redirection(self, node: Node, scope: ReaderScope) -> Redirects:
        match node.type:
            case "file_redirect":
                return self._file(node, scope)
            case "herestring_redirect":
                text = self._words.value(node.children[-1], scope)
                if not isinstance(text, Literal):
                    raise UnclearError("a here-string must be literal: write its text out, or pipe the look into it")
                return Redirects(stdin=f"{text.text}\n")
        here = here_document(node, self._source)
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        found = Redirects(stdin=self._words.document(body, here, scope))
        for child in node.children:
            found = found.then(self._file(child, scope) if child.type == "file_redirect" else Redirects())
        return found

    def _file(self, node: Node, scope: ReaderScope) -> Redirects:
        parts = [child for child in node.children if child.type != "file_descriptor"]
        descriptor = "".join(self._words.shown(child) for child in node.children if child not in parts)
        operator = self._words.shown(parts[0])
        words = [self._words.words(target, scope) for target in parts[1:]]
        target = words[0][0] if words and len(words[0]) == 1 else None
        files: tuple[Redirection, ...] = ()
        if isinstance(target, Literal):
            match operator:
                case "&>" | "&>>" | ">&" if not descriptor and not target.text.isdecimal():
                    files = (Redirection(operator=operator.strip("&"), target=target), _ERRORS)
                case ">&" if target.text in _DESCRIPTORS and descriptor in _DESCRIPTORS:
                    files = (Redirection(operator=operator, target=target, descriptor=descriptor),)
                case ">" | ">>" | ">|" if descriptor in _DESCRIPTORS:
                    files = (Redirection(operator=operator.strip("|"), target=target, descriptor=descriptor),)
                case "<" if descriptor in {"", "0"}:
                    files = (Redirection(operator=operator, target=target, descriptor=descriptor),)
        if not files:
            shown = self._words.shown(node)[:60]
            raise UnclearError(f"{shown!r} is not taken: write < FILE, > FILE, 2>&1 or 2>/dev/null")
        return Redirects(files=files, arguments=tuple(word for more in words[1:] for word in more))


def operands(node: Node, operator: str = "") -> list[tuple[str, Node]]:
    """Return the statements of a list, each with the operator in front of it."""
    if node.type != "list":
        return [(operator, node)]
    left, sign, right = (child for child in node.children if child.type not in {"comment", "\n"})
    return [*operands(left, operator), *operands(right, sign.type)]
