"""The shell's own tests, ``[ … ]`` and ``[[ … ]]``, as words.

Only operators that look at values and files are taken; the others evaluate what they are given as code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from claudeops.domain.shell.lexical import unclear
from claudeops.domain.shell.tree import source_text
from claudeops.domain.shell.values import UnclearError, Word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

    from claudeops.domain.shell.words import Bindings, WordReader

UNARY_TESTS: Final = frozenset(f"-{letter}" for letter in "nzefdrwxsLhbcpSugkOGNt")
BINARY_TESTS: Final = frozenset({"=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"})

_ARITHMETIC: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_SINGLE: Final = UNARY_TESTS | BINARY_TESTS | {"[", "]", "!", "-a", "-o"}
_DOUBLE: Final = UNARY_TESTS | BINARY_TESTS | {"[[", "]]", "!", "&&", "||", "<", ">", "(", ")", "=~"}
_EXPRESSIONS: Final = frozenset({"binary_expression", "unary_expression", "parenthesized_expression"})
_OPERANDS: Final = frozenset(
    {"word", "number", "string", "raw_string", "ansi_c_string", "concatenation", "simple_expansion", "expansion"}
    | {"command_substitution", "arithmetic_expansion", "regex", "extglob_pattern"}
)


def read_test(node: Node, source: bytes, reader: WordReader, bindings: Bindings) -> tuple[Word, ...]:
    """Return the words of a ``[ … ]``, or () for a ``[[ … ]]``, in which no word can do harm.

    Raises `UnclearError` for operators and values that bash would evaluate.
    """
    parts = list(_parts(node))
    double = parts[0].type == "[["
    operators = {source_text(part, source) for part in parts if part.type not in _OPERANDS}
    if not operators <= (_DOUBLE if double else _SINGLE):
        raise unclear(node, source)
    words: list[Word] = []
    for part in parts:
        if part.type not in _OPERANDS:
            words.append(Word(text=source_text(part, source)))
        elif double:
            words.append(reader.value(part, bindings))
        else:
            words += reader.words(part, bindings)
    if double and operators & _ARITHMETIC and not all(word.constant for word in words):
        raise UnclearError("[[ … ]] with -eq, -lt and the like evaluates its values as code: use [ … ]")
    return () if double else tuple(words)


def _parts(node: Node) -> Iterator[Node]:
    for child in node.children:
        if child.type in _EXPRESSIONS:
            yield from _parts(child)
        else:
            yield child
