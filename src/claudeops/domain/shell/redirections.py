"""Redirections, here-documents and here-strings of one command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from tree_sitter import Node

from claudeops.domain.shell.lexical import here_document, unclear
from claudeops.domain.shell.values import DYNAMIC_STDIN, Redirection, Word, source_text
from claudeops.domain.shell.words import Bindings, WordReader
from claudeops.domain.text import regex

_OPERATORS: Final = frozenset({"<", ">", ">>", ">|", "&>", "&>>", "<&", ">&", "<&-", ">&-"})


@dataclass(slots=True)
class Redirected:
    """A command's redirections, and what the parser puts below them."""

    files: tuple[Redirection, ...] = ()
    arguments: tuple[Word, ...] = ()  # words after a redirection, which are still the command's
    stdin: Word | None = None
    piped: list[Node] = field(default_factory=list)  # ``cat <<EOF | …``
    following: list[tuple[str, Node]] = field(default_factory=list)  # ``cat <<EOF && …``, by its operator


class RedirectionReader:
    """Reads redirection nodes of one source text."""

    def __init__(self, source: bytes, words: WordReader) -> None:
        self._source = source
        self._words = words

    def read(self, nodes: Iterable[Node], bindings: Bindings) -> Redirected:
        """Return the redirections of all nodes; raises `UnclearError` where bash may read something else."""
        found = Redirected()
        for node in nodes:
            match node.type:
                case "file_redirect":
                    self._file(node, bindings, found)
                case "herestring_redirect":
                    found.stdin = self._words.value(node.children[-1], bindings)
                case "heredoc_redirect":
                    self._document(node, bindings, found)
                case _:
                    raise unclear(node, self._source)
        return found

    def _file(self, node: Node, bindings: Bindings, found: Redirected) -> None:
        parts = [child for child in node.children if child.type != "file_descriptor"]
        descriptor = "".join(source_text(child, self._source) for child in node.children if child not in parts)
        operator = self._source[parts[0].start_byte : parts[0].end_byte].decode().strip()
        targets = parts[1:]
        if operator not in _OPERATORS or bool(targets) == operator.endswith("-"):
            raise unclear(node, self._source)
        words = [self._words.words(target, bindings) for target in targets[:1]]
        if any(len(word) != 1 for word in words):
            raise unclear(node, self._source)
        target = words[0][0] if words else None
        found.files = (*found.files, Redirection(operator=operator, target=target, descriptor=descriptor))
        found.arguments = (
            *found.arguments,
            *(word for target in targets[1:] for word in self._words.words(target, bindings)),
        )

    def _document(self, node: Node, bindings: Bindings, found: Redirected) -> None:
        text = here_document(node, self._source)
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        raw = self._source[text.start : text.end].decode()
        if text.quoted:
            found.stdin = Word(text=regex.sub(r"(?m)^\t+", "", raw) if text.tabs_stripped else raw)
        else:
            found.stdin = self._words.document(body, text.start, text.end, bindings)
            if text.tabs_stripped:
                found.stdin = DYNAMIC_STDIN
        found.stdin = replace(found.stdin, document=True)
        operator = ""
        for child in node.children:
            match child.type:
                case "<<" | "<<-" | "heredoc_start" | "heredoc_body" | "heredoc_end":
                    continue
                case "&&" | "||":
                    operator = child.type
                case "file_redirect":
                    self._file(child, bindings, found)
                case "pipeline" if child.children[0].type == "|":
                    self._piped(child, found)
                case "command" | "list" | "pipeline" | "redirected_statement" | "test_command" | "compound_statement":
                    found.following.append((operator, child))
                case _:
                    raise unclear(child, self._source)

    def _piped(self, node: Node, found: Redirected) -> None:
        """Take the rest of a pipeline; the parser counts what ``&&`` appends as part of its last command."""
        *parts, last = (child for child in node.children if child.type != "|")
        while last.type == "list":
            last, operator, right = (child for child in last.children if child.type not in {"comment", "\n"})
            found.following.insert(0, (operator.type, right))
        if any(part.type == "|&" for part in node.children):
            raise unclear(node, self._source)
        found.piped += [*parts, last]
