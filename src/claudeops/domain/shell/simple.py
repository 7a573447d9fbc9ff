"""Simple commands and what surrounds them: words, assignments, redirections, and the shell's own tests.

``[ … ]`` is read as words, ``[[ … ]]`` becomes calls of ``test``. Only operators that look at values and files are
accepted; the others evaluate their operands as code.
"""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from tree_sitter import Node

from claudeops.domain.shell.exit_status import Certainties
from claudeops.domain.shell.lexical import unclear
from claudeops.domain.shell.redirections import Redirected, RedirectionReader
from claudeops.domain.shell.values import (
    EXPORTABLE,
    WORKING_DIRECTORY,
    Array,
    Block,
    Case,
    Chained,
    Export,
    ForbiddenError,
    Glob,
    Negated,
    Pipeline,
    Recorder,
    Run,
    SimpleCommand,
    Step,
    Subshell,
    TooMuchError,
    UnclearError,
    Word,
    WordKind,
    one_step,
    source_text,
)
from claudeops.domain.shell.values import Redirected as RedirectedStep
from claudeops.domain.shell.words import Bindings, Substituted, WordReader
from claudeops.domain.text import regex

_UNKNOWN: Final = (Word(text="", kind=WordKind.DYNAMIC),)
_NAME: Final = regex.Pattern(r"[A-Za-z_]\w*")
_RESERVED: Final = frozenset(
    {"if", "then", "elif", "else", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in"}
    | {"function", "{", "}", "!", "[[", "]]", "coproc"}
)
_BACKGROUND: Final = "a command in the background is not allowed: run it in the foreground with timeout"
_SHOWN: Final = "export, declare and local without a value would show the environment"
_DECLARED: Final = "export, declare and local may only set values here: put the value into the command itself"
_REDIRECTS: Final = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
_LAST_COMMAND_ONLY: Final = frozenset({"list", "pipeline", "negated_command"})
_REFUSED: Final = {
    "unset_command": "unset is not allowed: leave the variable as it is",
    "c_style_for_statement": "write the loop as: for i in 1 2 3; do …; done",
    "function_definition": "define functions on the top level only, or better write their commands out",
}

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


class SimpleWalker(Recorder, ABC):
    """Reads simple commands; compound ones are the business of `claudeops.domain.shell.walk.Walker`."""

    def __init__(self, source: bytes, certainties: Certainties) -> None:
        super().__init__()
        self._source = source
        self._certainties = certainties
        self._words = WordReader(source, self._substituted)
        self._redirections = RedirectionReader(source, self._words)
        self._functions: dict[str, Node] = {}
        self._unsteady: frozenset[str] = frozenset()  # names that some function assigns
        self._pending: dict[int, list[Node]] = {}  # redirections of a command deeper in the tree, by its node

    @property
    def block(self) -> Block:
        """The tree so far."""
        return tuple(self._steps)

    @property
    def defines(self) -> bool:
        """Whether the text defines functions."""
        return bool(self._functions)

    @abstractmethod
    def _statement(self, node: Node, bindings: Bindings) -> None:
        """Read a statement of any kind."""

    @abstractmethod
    def _call(self, command: SimpleCommand, bindings: Bindings) -> None:
        """Read the body of the function that ``command`` calls."""

    @abstractmethod
    def _substituted(self, node: Node, bindings: Bindings) -> Substituted:
        """Read the commands of a substitution, and return them."""

    def _text(self, node: Node | None) -> str:
        return source_text(node, self._source)

    def _blur(self, bindings: Bindings, names: Iterable[str], before: Bindings) -> None:
        """Forget values. An upper-case name that was not set before may be the environment's, so it counts as unset."""
        for name in names:
            if name == WORKING_DIRECTORY:
                bindings.cwd = None
            elif name in before.names or name.islower():
                bindings.names[name] = _UNKNOWN
            else:
                bindings.names.pop(name, None)

    def _refusal(self, node: Node) -> UnclearError:
        if node.type == "&":
            return ForbiddenError(_BACKGROUND)
        reason = _REFUSED.get(node.type)
        return UnclearError(reason) if reason else unclear(node, self._source)

    # --- simple commands --------------------------------------------------------------------------------

    def _command(self, node: Node, bindings: Bindings) -> None:
        self._simple(node, bindings, Redirected())

    def _simple(self, node: Node, bindings: Bindings, outside: Redirected) -> None:
        argv: list[Word] = []
        assignments: list[tuple[str, Word]] = []
        inside: list[Node] = []
        for child in node.children:
            if child.type == "variable_assignment":
                assignments.append(self._assignment(child, bindings))
            elif child.type in {"file_redirect", "herestring_redirect"}:
                inside.append(child)
            elif child.type == "command_name" and self._text(child) in _RESERVED:
                raise unclear(child, self._source)
            else:
                argv += self._argument(child, bindings)
        own = self._redirected_by(inside, bindings)
        command = SimpleCommand(
            argv=(*argv, *own.arguments, *outside.arguments),
            assignments=tuple(assignments),
            redirections=(*own.files, *outside.files),
            stdin=outside.stdin or own.stdin,
            cwd=bindings.cwd,
            certainty=self._certainties.of(node),
        )
        if self._functions and command.name in {"time", "command", "eval"}:
            raise UnclearError(f"{command.name} beside functions is not clear: write their commands out")
        if command.name in self._functions and command.argv[0].constant:
            self._call(command, bindings)
        else:
            self._emit(command)
            self._take_effect(command, bindings)

    def _redirected_by(self, nodes: Iterable[Node], bindings: Bindings) -> Redirected:
        found = Redirected()

        def read() -> None:
            nonlocal found
            found = self._redirections.read(nodes, bindings)

        self._attempt(read)
        return found

    def _argument(self, node: Node, bindings: Bindings) -> list[Word]:
        """Read one word; an unreadable one becomes a dynamic word, so that the command around it is still judged."""
        try:
            return self._words.words(node, bindings)
        except TooMuchError:
            raise
        except UnclearError as error:
            self._keep(error)
            self._look_inside(node, bindings)
            return [Word(text=self._text(node), kind=WordKind.DYNAMIC, single=False)]

    def _look_inside(self, node: Node, bindings: Bindings) -> None:
        """Find the commands in the substitutions of something that is not understood: they may be worse."""
        for child in node.children:
            if child.type in {"command_substitution", "process_substitution"}:
                self._attempt(partial(self._walk_substitution, child, bindings))
            else:
                self._look_inside(child, bindings)

    def _walk_substitution(self, node: Node, bindings: Bindings) -> None:
        self._substituted(node, bindings)

    def _take_effect(self, command: SimpleCommand, bindings: Bindings) -> None:
        """Track what the command changes in its own shell: the working directory, and the variables of read."""
        words = [word.text for word in command.argv]
        if words[:1] == ["read"]:
            bindings.names |= dict.fromkeys([word for word in words[1:] if not word.startswith("-")], _UNKNOWN)
        elif "read" in words:  # behind ``command``, ``builtin`` or ``time``
            bindings.names |= {name: _UNKNOWN for name in words if name in bindings.names}
        elif words[:1] == ["cd"] and len(words) == 2 and command.argv[1].constant and words[1] != "-":  # noqa: PLR2004 - cd DIRECTORY
            bindings.cwd = posixpath.join(bindings.cwd or "", words[1])
            bindings.cwd = bindings.cwd if bindings.cwd.startswith("/") else None
        elif "cd" in words:
            bindings.cwd = None

    def _redirected(self, node: Node, bindings: Bindings) -> None:
        """Read a redirected statement: of a list or a pipeline only the last command is redirected."""
        body, last = node.child_by_field_name("body"), node.child_by_field_name("body")
        while last is not None and last.type in _LAST_COMMAND_ONLY:
            last = last.children[-1]
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        if body is None or last is None or last.id == body.id:
            self._redirect(body, redirects, bindings)
        else:
            self._pending[last.id] = redirects
            self._statement(body, bindings)

    def _redirect(self, body: Node | None, nodes: Iterable[Node], bindings: Bindings, *, inside: bool = False) -> None:
        outside = self._redirected_by(nodes, bindings)
        if inside and outside.following:
            raise UnclearError("what follows a here-document is not clear: put { … } around what it is for")
        start = len(self.commands)
        steps = [one_step(self._block(partial(self._redirected_body, body, outside, bindings)))]
        outer, self._feeds = self._feeds, (*(self._feeds or ()), *self.commands[start:])
        readers = (partial(self._statement, piped, bindings.copy()) for piped in outside.piped)
        steps += [one_step(self._block(reader)) for reader in readers]
        self._feeds = outer
        step: Step = Pipeline(tuple(steps)) if outside.piped else steps[0]
        for operator, following in outside.following:
            self._blur(bindings, {WORKING_DIRECTORY}, bindings)
            right = one_step(self._block(partial(self._statement, following, bindings.copy())))
            step = Chained(step, operator, right)
        self._steps.append(step)

    def _redirected_body(self, body: Node | None, outside: Redirected, bindings: Bindings) -> None:
        if body is not None and body.type == "command":
            self._simple(body, bindings, outside)
            return
        if outside.arguments:
            raise UnclearError("words after the redirection of a group are not clear: leave them out")
        opening = self._note(SimpleCommand(argv=(), redirections=outside.files, stdin=outside.stdin))
        if body is None:
            self._steps.append(Run(opening))
            return
        outer = self._feeds
        if opening.stdin is not None or any(each.operator == "<" for each in opening.redirections):
            self._feeds = (*(outer or ()), opening)
        inner = self._block(partial(self._statement, body, bindings))
        self._feeds = outer
        self._steps.append(RedirectedStep(one_step(inner), opening.redirections, opening.stdin))

    def _assignment(self, node: Node, bindings: Bindings) -> tuple[str, Word]:
        name, value = self._text(node.child_by_field_name("name")), node.child_by_field_name("value")
        if not _NAME.fullmatch(name) or not any(child.type == "=" for child in node.children):
            raise unclear(node, self._source)
        if value is not None and value.type == "array":
            raise UnclearError(f"the array {name} cannot be set in front of a command")
        return name, self._words.value(value, bindings)

    def _declare(self, node: Node, bindings: Bindings) -> None:
        """Read ``local x=1`` and the like as assignments; only harmless names may be exported."""
        assigned = [child for child in node.children[1:] if child.type == "variable_assignment"]
        exported = self._text(node.children[0]) == "export"
        for child in assigned:
            name = self._text(child.child_by_field_name("name"))
            if exported and not EXPORTABLE.fullmatch(name):
                self._keep(UnclearError(f"exporting {name} could change what other commands do: leave it out"))
            self._attempt(partial(self._assign, child, bindings))
            set_here = self._steps.pop() if exported and self._steps else None
            if isinstance(set_here, Run) and len(set_here.command.assignments) == 1:
                self._steps.append(Export(*set_here.command.assignments[0]))
            elif set_here is not None:
                self._keep(UnclearError(f"exporting the array {name} is not allowed"))
        if not assigned:
            raise ForbiddenError(_SHOWN)
        if len(assigned) != len(node.children) - 1:
            self._look_inside(node, bindings)
            raise UnclearError(_DECLARED)

    def _assign(self, node: Node, bindings: Bindings) -> None:
        value = node.child_by_field_name("value")
        if value is not None and value.type == "array" and any(child.type == "=" for child in node.children):
            name = self._text(node.child_by_field_name("name"))
            items = [child for child in value.children if child.type not in {"(", ")", "\n", "comment"}]
            words = tuple(word for item in items for word in self._words.words(item, bindings))
        else:
            name, word = self._assignment(node, bindings)
            words = (word,)
        if not _NAME.fullmatch(name):
            raise unclear(node, self._source)
        assignments = tuple((name, word) for word in words) or ((name, Word(text="")),)
        command = self._note(SimpleCommand(argv=(), assignments=assignments))
        self._steps.append(Array(name, words) if value is not None and value.type == "array" else Run(command))
        bindings.names[name] = _UNKNOWN if name in self._unsteady else words

    def _test(self, node: Node, bindings: Bindings) -> None:
        if node.children[0].type == "[":
            self._emit(SimpleCommand(argv=read_test(node, self._source, self._words, bindings), cwd=bindings.cwd))
        else:
            test = DoubleBracketReader(source=self._source, words=self._words, bindings=bindings, note=self._note)
            self._steps.append(test.step(node))


def read_test(node: Node, source: bytes, reader: WordReader, bindings: Bindings) -> tuple[Word, ...]:
    """Return the words of a ``[ … ]``. Raises `UnclearError` for operators that are not accepted."""
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
    """Turns ``[[ … ]]`` into other steps: calls of ``test``, joined as before, and ``case`` for patterns.

    So nothing is left that bash would evaluate. Regular expressions and comparisons of order have no such form.
    """

    source: bytes
    words: WordReader
    bindings: Bindings
    note: Callable[[SimpleCommand], SimpleCommand]  # records a command for the judge

    def step(self, node: Node) -> Step:
        """Return the step of a node. Raises `UnclearError` for what is not accepted."""
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
