"""Checks that a syntax tree says what bash would read.

tree-sitter-bash is written for editors: it guesses, and where its guess differs from bash a command could hide. So a
tree is accepted only when its leaves are whole tokens of bash's own lexical grammar (bash(1), "QUOTING", "SHELL
GRAMMAR", "REDIRECTION"), with nothing but blanks between them. Everything else is refused: the model can write it more
plainly.
"""

from __future__ import annotations

import unicodedata
from itertools import pairwise
from typing import Final

import msgspec
from tree_sitter import Node

from claudeops.policy.shell.language import UnclearError
from claudeops.text import regex

LONGEST_COMMAND: Final = 16_384  # characters
DEEPEST_TREE: Final = 60  # levels

_EXPANDED: Final = rb"$\w({\[@*#?!\-"  # within brackets: characters that begin an expansion after a dollar sign
_WORDS: Final = frozenset(
    {"word", "number", "string", "raw_string", "ansi_c_string", "concatenation", "simple_expansion", "expansion"}
    | {"command_substitution", "process_substitution", "arithmetic_expansion", "brace_expression", "command_name"}
    | {"translated_string", "$", "variable_assignment", "regex", "extglob_pattern", "test_operator"}
)
_AFTER_REDIRECTION: Final = frozenset({"file_redirect", "herestring_redirect"})
_ONE_LINE: Final = frozenset(
    {"command", "file_redirect", "herestring_redirect", "variable_assignments", "for_statement"}
)
_NO_GAP: Final = frozenset(
    {"concatenation", "simple_expansion", "expansion", "variable_assignment", "subscript", "brace_expression"}
)
_KEYWORDS: Final = frozenset(
    {"if", "then", "elif", "else", "fi", "case", "esac", "for", "while", "until", "do", "done", "in", "function"}
    | {"!", "{", "}", "[", "]", "[[", "]]"}
)
_CONTINUED: Final = b"\\\n"  # joins a line to the next one
_WORD_ENDS: Final = b" \t\n;&|()<>"
_DELIMITER: Final = regex.Pattern(rb"""'([\w.-]+)'|"([\w.-]+)"|(\\?)([\w.-]+)""")


class HereDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Where a here-document's text is in the source, in bytes."""

    start: int
    end: int
    quoted: bool  # the delimiter is quoted, so nothing in the text is expanded
    tabs_stripped: bool  # ``<<-``


def check_source(text: str) -> bytes:
    """Return the text as bytes for the parser; raises `UnclearError` for invisible characters and long texts."""
    if len(text) > LONGEST_COMMAND:
        raise UnclearError(f"the command is longer than {LONGEST_COMMAND} characters: split it")
    for character in text:
        if character not in " \n\t" and unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"}:
            raise UnclearError(f"the command holds the invisible character U+{ord(character):04X}: leave it out")
    return text.encode()


def end_lines(root: Node, source: bytes) -> bytes:
    """Return the text with a semicolon wherever the parser reads two lines as one command.

    It does so for ``a | b | c``, a newline and a command with redirections.
    """
    ends, nodes = {len(source)}, [root]
    while nodes:
        node = nodes.pop()
        nodes += node.children
        words = [child for child in node.children if child.type != "comment"] if node.type == "command" else []
        for before, after in pairwise(words):
            if b"\n" in source[before.end_byte : after.start_byte].replace(_CONTINUED, b""):
                ends.add(before.end_byte)
    return b";".join(source[start:end] for start, end in pairwise([0, *sorted(ends)]))


def check_tree(root: Node, source: bytes) -> None:
    """Raise `UnclearError` unless bash would read every token of the tree the same way."""
    if not _is_blank(source[: root.start_byte]) or not _is_blank(source[root.end_byte :]):
        raise UnclearError("the command cannot be parsed to its end: write it in plain bash")
    _check(root, source, 0, indented=False)


def here_document(node: Node, source: bytes) -> HereDocument:
    """Return where the text of a ``heredoc_redirect`` is.

    Raises `UnclearError` unless the text begins on the next line and ends where bash ends it.
    """
    opening = next((child for child in node.children if child.type == "heredoc_start"), node)
    closing = node.children[-1]
    delimiter = _DELIMITER.fullmatch(source[opening.start_byte : opening.end_byte])
    newline = source.find(b"\n", opening.end_byte)
    if delimiter is None or closing.type != "heredoc_end" or newline < 0:
        raise unclear(node, source)
    strip = b"\t" if node.children[0].type == "<<-" else b""
    last = source.rfind(b"\n", 0, closing.end_byte) + 1
    lines = [line.lstrip(strip) if strip else line for line in source[newline + 1 :].split(b"\n")]
    word = delimiter[1] or delimiter[2] or delimiter[4]
    first = lines.index(word) if word in lines else -1
    if (
        first != source.count(b"\n", newline + 1, last)
        or source.count(b"<<", source.rfind(b"\n", 0, newline) + 1, newline) != 1
    ):
        raise unclear(node, source)
    return HereDocument(
        start=newline + 1, end=last, quoted=not delimiter[4] or bool(delimiter[3]), tabs_stripped=bool(strip)
    )


def literal_spans(node: Node, start: int, end: int, source: bytes) -> list[tuple[int, int]]:
    """Return the byte ranges between ``start`` and ``end`` that are outside of the node's expansions."""
    spans = []
    for child in expansions(node):
        text = source[child.start_byte : child.end_byte]
        spans.append((start, child.start_byte + len(text) - len(text.lstrip(b" \t\n"))))
        start = child.end_byte
    return [*spans, (start, end)]


def expansions(node: Node) -> list[Node]:
    """Return the expansions in a quoted text; the parser counts the blanks before an expansion as part of it."""
    return [
        child for child in node.children if child.is_named and child.type not in {"string_content", "heredoc_content"}
    ]


def unclear(node: Node, source: bytes) -> UnclearError:
    """Return the refusal of a piece of source that bash may read differently."""
    piece = source[node.start_byte : node.end_byte].decode(errors="replace").strip()[:40]
    return UnclearError(f"near {piece!r} the command can be read in two ways: quote it, or write it more plainly")


def _literal(plain: bytes, escaped: bytes, *, empty: bool = True) -> regex.Pattern[bytes]:
    """Return the expression for text without expansions.

    ``plain`` are the characters that it may hold only as ``escaped``; ``empty`` allows it to be empty.
    """
    one = rb"[^$" + plain + rb"]|" + escaped
    after_dollar = rb"[^" + _EXPANDED + plain + rb"]|" + escaped
    some = rb"(?:" + one + rb"|\$(?:" + after_dollar + rb"))"
    return regex.Pattern(some + rb"*\$?" if empty else rb"(?:" + some + rb"+\$?|\$)")


_IN_QUOTES: Final = _literal(rb"\"\\`", rb"\\(?s:.)")
_IN_HEREDOC: Final = _literal(rb"\\`", rb"\\[^\n]")
_TOKENS: Final = {
    "word": _literal(rb"\s\v\\'\"`|&;()<>", rb"\\[^\n]", empty=False),
    "number": regex.Pattern(rb"-?\w+"),
    "test_operator": regex.Pattern(rb"-[A-Za-z]+"),
    "variable_name": regex.Pattern(rb"[A-Za-z_]\w*|\d+"),
    "special_variable_name": regex.Pattern(rb"[?#$!@*0_-]"),
    "file_descriptor": regex.Pattern(rb"\d+"),
    "raw_string": regex.Pattern(rb"'[^']*'"),
    "ansi_c_string": regex.Pattern(rb"(?s)\$'(?:[^'\\]|\\.)*'"),
    "comment": regex.Pattern(rb"#[^\n]*"),
    "extglob_pattern": regex.Pattern(rb"[\w*?./:=,@%+\[\]-]+"),
    "regex": _literal(rb"\s\v\\'\"`;&<>", rb"\\[^\n]", empty=False),
}


def _check(node: Node, source: bytes, depth: int, *, indented: bool) -> None:
    if depth > DEEPEST_TREE:
        raise UnclearError("the command is nested too deeply: split it")
    if node.is_missing or (not indented and source[node.start_byte : node.start_byte + 1] in (b" ", b"\t")):
        raise unclear(node, source)
    if node.type == "string":
        _check_literals(node, (node.start_byte + 1, node.end_byte - 1), source, _IN_QUOTES)
        for child in expansions(node):
            _check(child, source, depth + 1, indented=True)
    elif node.type == "heredoc_redirect":
        _check_heredoc(node, source, depth)
    elif node.child_count == 0:
        _check_leaf(node, source)
    else:
        _check_children(node, source, depth, indented=indented)


def _check_literals(node: Node, span: tuple[int, int], source: bytes, allowed: regex.Pattern[bytes]) -> None:
    for start, end in literal_spans(node, *span, source):
        if not allowed.fullmatch(source[start:end]):
            raise unclear(node, source)


def _check_heredoc(node: Node, source: bytes, depth: int) -> None:
    text = here_document(node, source)
    for child in node.children:
        if child.type == "heredoc_body" and not text.quoted:
            _check_literals(child, (text.start, text.end), source, _IN_HEREDOC)
            for expansion in expansions(child):
                _check(expansion, source, depth + 1, indented=True)
        elif child.type not in {"heredoc_body", "heredoc_start", "heredoc_end"}:
            if child.end_byte >= text.start:
                raise unclear(node, source)
            _check(child, source, depth + 1, indented=False)
    same_line = [child for child in node.children if child.end_byte < text.start]
    gaps = [source[before.end_byte : after.start_byte] for before, after in pairwise(same_line)]
    if not all(_is_blank(gap, b" \t") for gap in [*gaps, source[same_line[-1].end_byte : text.start - 1]]):
        raise unclear(node, source)


def _check_leaf(node: Node, source: bytes) -> None:
    text = source[node.start_byte : node.end_byte]
    token = _TOKENS.get(node.type)
    keyword = node.type in _KEYWORDS and node.parent is not None and node.parent.type not in _NO_GAP
    if keyword and not (_begins_word(node, source) and source[node.end_byte : node.end_byte + 1] in _WORD_ENDS):
        raise unclear(node, source)
    if token is None:  # operators and keywords name themselves
        translated = node.type == "$" and source[node.end_byte : node.end_byte + 1] in (b'"', b"'")  # ``$"…"``
        if node.is_named or translated or text.strip(b" \t").decode() not in (node.type, ""):
            raise unclear(node, source)
    elif not token.fullmatch(text) or not _stands_alone(node, text, source):
        raise unclear(node, source)


def _stands_alone(node: Node, text: bytes, source: bytes) -> bool:
    """Whether a comment, descriptor or number is one for bash as well, given what is next to it."""
    begins = _begins_word(node, source)
    if node.type == "comment":  # after the ``)`` of an array it would be part of the word
        return begins and source[node.start_byte - 1 : node.start_byte] not in (b"(", b")")
    if node.type == "file_descriptor":
        return begins
    if text.isdigit() and source[node.end_byte : node.end_byte + 1] in (b"<", b">"):
        return False
    return not (begins and text.startswith(b"#"))


def _begins_word(node: Node, source: bytes) -> bool:
    """Whether a bash token begins here: only there is ``#`` a comment and a number a file descriptor."""
    at = node.start_byte
    return at == 0 or (source[at - 1 : at] in _WORD_ENDS and source[max(at - 2, 0) : at - 1] != b"\\")


def _check_children(node: Node, source: bytes, depth: int, *, indented: bool) -> None:
    first, last = node.children[0], node.children[-1]
    edges = source[node.start_byte : first.start_byte], source[last.end_byte : node.end_byte]
    if not all(_is_blank(edge) for edge in edges):
        raise unclear(node, source)
    for index, child in enumerate(node.children):
        _check(child, source, depth + 1, indented=indented and index == 0)
    for before, after in pairwise(node.children):
        gap = source[before.end_byte : after.start_byte]
        if not gap and after.type in _AFTER_REDIRECTION and source[before.end_byte - 1 : before.end_byte] == b"}":
            raise unclear(after, source)  # ``{name}>path`` is not an argument: it stores the descriptor in a variable
        words = (before.type in _WORDS or before.type in _AFTER_REDIRECTION) and after.type in _WORDS
        if node.type in _NO_GAP:
            fits = not gap
        elif node.type in _ONE_LINE and after.type != "do_group":
            fits = _is_blank(gap, b" \t") and not (words and _is_joined(gap))
        else:
            fits = _is_blank(gap) and not (words and _is_joined(gap))
        if not fits:
            raise unclear(after, source)


def _is_blank(gap: bytes, blanks: bytes = b" \t\n") -> bool:
    """Whether there is nothing but blanks and continued lines between two tokens."""
    return not gap.replace(_CONTINUED, b"").strip(blanks)


def _is_joined(gap: bytes) -> bool:
    """Whether bash reads both sides of a gap as one word."""
    return not gap.replace(_CONTINUED, b"")
