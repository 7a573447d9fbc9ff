"""The shell's own tests: ``[ … ]`` as words, ``[[ … ]]`` as calls of ``test``.

Only operators that look at values and files are taken; the others evaluate what they are given as code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from claudeops.domain.shell.lexical import unclear
from claudeops.domain.shell.tree import source_text
from claudeops.domain.shell.values import (
    Case,
    Chained,
    Glob,
    Negated,
    Run,
    SimpleCommand,
    Subshell,
    UnclearError,
    Word,
    WordKind,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tree_sitter import Node

    from claudeops.domain.shell.values import Step
    from claudeops.domain.shell.words import Bindings, WordReader

UNARY_TESTS: Final = frozenset(f"-{letter}" for letter in "nzefdrwxsLhbcpSugkOGNt")
BINARY_TESTS: Final = frozenset({"=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"})

_ARITHMETIC: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_SINGLE: Final = UNARY_TESTS | BINARY_TESTS | {"[", "]", "!", "-a", "-o"}
_FAILS: Final = Negated(Subshell(()))
_ANYTHING: Final = Word(text="*", kind=WordKind.DYNAMIC, parts=(Glob("*"),))
_EXPRESSIONS: Final = frozenset({"binary_expression", "unary_expression", "parenthesized_expression"})
_OPERANDS: Final = frozenset(
    {"word", "number", "string", "raw_string", "ansi_c_string", "concatenation", "simple_expansion", "expansion"}
    | {"command_substitution", "arithmetic_expansion", "regex", "extglob_pattern"}
)


def read_test(node: Node, source: bytes, reader: WordReader, bindings: Bindings) -> tuple[Word, ...]:
    """Return the words of a ``[ … ]``. Raises `UnclearError` for operators that it does not have."""
    parts = list(_parts(node))
    if not {source_text(part, source) for part in parts if part.type not in _OPERANDS} <= _SINGLE:
        raise unclear(node, source)
    words: list[Word] = []
    for part in parts:
        if part.type in _OPERANDS:
            words += reader.words(part, bindings)
        else:
            words.append(Word(text=source_text(part, source)))
    return tuple(words)


@dataclass(kw_only=True, slots=True)
class DoubleBracketReader:
    """Turns ``[[ … ]]`` into steps without it: calls of ``test``, joined as they were, and ``case`` for patterns.

    So nothing is left that bash would evaluate. Regular expressions and comparisons of order have no such form.
    """

    source: bytes
    words: WordReader
    bindings: Bindings
    note: Callable[[SimpleCommand], SimpleCommand]  # keeps a command for the judge

    def step(self, node: Node) -> Step:
        """Return the step of a node. Raises `UnclearError` for what is not taken."""
        children = [child for child in node.children if child.type not in {"[[", "]]", "(", ")"}]
        if node.type in {"test_command", "parenthesized_expression"} and len(children) == 1:
            return self.step(children[0])
        if node.type == "unary_expression" and len(children) == 2:  # noqa: PLR2004 - operator, operand
            return self._unary(node, *children)
        if node.type == "binary_expression" and len(children) == 3:  # noqa: PLR2004 - operand, operator, operand
            return self._binary(*children)
        if node.type in _OPERANDS:
            return self._test(Word(text="-n"), self.words.value(node, self.bindings))
        raise unclear(node, self.source)

    def _unary(self, node: Node, operator: Node, operand: Node) -> Step:
        name = source_text(operator, self.source)
        if name == "!":
            return Negated(self.step(operand))
        if name not in UNARY_TESTS or operand.type not in _OPERANDS:
            raise unclear(node, self.source)
        return self._test(Word(text=name), self.words.value(operand, self.bindings))

    def _binary(self, left: Node, operator: Node, right: Node) -> Step:
        name = source_text(operator, self.source)
        if name in {"&&", "||"}:
            return Chained(self.step(left), name, self.step(right))
        if name not in BINARY_TESTS or {left.type, right.type} - _OPERANDS:
            raise UnclearError(f"[[ … ]] with {name} is not taken: use [ … ], or grep -Eq for regular expressions")
        value = self.words.value(left, self.bindings)
        if name in {"=", "==", "!="}:
            pattern = self.words.pattern(right, self.bindings)
            if any(isinstance(part, Glob) for part in pattern.parts) or not pattern.parts:
                matches = Case(value, (((pattern,), ()), ((_ANYTHING,), (_FAILS,))))
                return Negated(Subshell((matches,))) if name == "!=" else matches
        other = self.words.value(right, self.bindings)
        if name in _ARITHMETIC and not (value.constant and other.constant):
            raise UnclearError("[[ … ]] with -eq, -lt and the like evaluates its values as code: use [ … ]")
        return self._test(value, Word(text="=" if name == "==" else name), other)

    def _test(self, *words: Word) -> Step:
        return Run(self.note(SimpleCommand(argv=(Word(text="test"), *words), cwd=self.bindings.cwd)))


def _parts(node: Node) -> Iterator[Node]:
    for child in node.children:
        if child.type in _EXPRESSIONS:
            yield from _parts(child)
        else:
            yield child
