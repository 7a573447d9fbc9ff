"""Walk of a syntax tree in the order in which bash would run it, collecting every simple command on the way.

Branches are all taken; loops over known values are unrolled, so that every round is seen with its values. What a
variable holds counts as known only where no branch, loop or subshell leaves a doubt.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from claudeops.domain.shell.lexical import unclear
from claudeops.domain.shell.simple import SimpleWalker
from claudeops.domain.shell.tree import WORKING_DIRECTORY, assigned_names, loop_values
from claudeops.domain.shell.values import SimpleCommand, TooMuchError, UnclearError, Word, WordKind
from claudeops.domain.shell.words import Bindings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tree_sitter import Node

    from claudeops.domain.shell.deciding import Deciding

DEEPEST_CALL: Final = 4  # functions that call functions

_SEPARATORS: Final = frozenset({*";\n{}()`!", "comment", "$(", "do", "done", "<(", ">(", "else"})
_CERTAIN: Final = frozenset({"command", "variable_assignment", "variable_assignments"})
_APART: Final = frozenset({"subshell", "pipeline"})  # what they assign ends with them


class Walker(SimpleWalker):
    """Collects the commands of one parsed text.

    Where the text leaves a doubt that is kept as ``problem`` or ``refusal``, and the walk goes on: what else the text
    holds may be worse.
    """

    def __init__(self, source: bytes, deciding: Deciding) -> None:
        super().__init__(source, deciding)
        self._statements: dict[str, Callable[[Node, Bindings], None]] = {
            "command": self._command,
            "list": self._list,
            "pipeline": self._pipeline,
            "redirected_statement": self._redirected,
            "subshell": self._apart,
            "compound_statement": self._group,
            "do_group": self._sequence,
            "else_clause": self._sequence,
            "negated_command": self._negated,
            "if_statement": self._branches,
            "elif_clause": self._branches,
            "case_statement": self._case,
            "while_statement": self._while,
            "for_statement": self._for,
            "test_command": self._test,
            "variable_assignment": self._assign,
            "variable_assignments": self._sequence,
            "declaration_command": self._declare,
        }

    def program(self, root: Node, known: Mapping[str, Word]) -> None:
        """Walk a whole text; ``known`` are variables that it finds set."""
        for node in root.children:
            if node.type == "function_definition":
                self._unsteady |= assigned_names(node, self._source)
        bindings = Bindings(names={name: (word,) for name, word in known.items()})
        try:
            for node in root.children:
                if node.type == "function_definition":
                    self._attempt(partial(self._define, node))
                elif node.type not in _SEPARATORS:
                    self._run(node, bindings)
        except TooMuchError as error:
            self._keep(error)

    # --- one statement after another --------------------------------------------------------------------

    def _sequence(self, node: Node, bindings: Bindings) -> None:
        for child in node.children:
            if child.type == "file_redirect":  # ``$(<path)``
                self._emit(SimpleCommand(argv=(), redirections=self._redirections.read([child], bindings).files))
            elif child.type not in _SEPARATORS:
                self._run(child, bindings)

    def _run(self, node: Node, bindings: Bindings) -> None:
        """Run a statement; what only a part of it may have assigned is no longer known afterwards."""
        before = bindings.copy()
        self._statement(node, bindings)
        changed = assigned_names(node, self._source)
        body = node.child_by_field_name("body") if node.type == "redirected_statement" else node
        if body is None or body.type in _CERTAIN:
            changed &= {WORKING_DIRECTORY}
        elif body.type in _APART:
            changed = frozenset()
        self._blur(bindings, changed, before)

    def _statement(self, node: Node, bindings: Bindings) -> None:
        walk = self._statements.get(node.type)
        if walk is None:
            self._keep(self._refusal(node))
            self._look_inside(node, bindings)
        else:
            self._attempt(partial(walk, node, bindings))

    def _list(self, node: Node, bindings: Bindings) -> None:
        left, operator, right = (child for child in node.children if child.type not in {"comment", "\n"})
        before = bindings.copy()
        self._statement(left, bindings)
        if operator.type == "||":
            self._blur(bindings, assigned_names(left, self._source), before)
        elif operator.type != "&&":
            raise self._refusal(operator)
        self._statement(right, bindings)

    def _pipeline(self, node: Node, bindings: Bindings) -> None:
        outer, start = self._feeds, len(self.commands)
        for child in node.children:
            if child.type in {"|", "|&"}:
                self._feeds = (*(outer or ()), *self.commands[start:])
            elif child.type not in {"comment", "\n"}:
                self._statement(child, bindings.copy())
        self._feeds = outer

    def _negated(self, node: Node, bindings: Bindings) -> None:
        self._sequence(node, bindings)
        bindings.cwd = None

    def _apart(self, node: Node, bindings: Bindings) -> None:
        self._sequence(node, bindings.copy())

    def _group(self, node: Node, bindings: Bindings) -> None:
        if node.children[0].type != "{":
            raise UnclearError("(( … )) is not allowed: use [ … ] with numbers written out")
        self._sequence(node, bindings)

    def _substituted(self, node: Node, bindings: Bindings) -> tuple[SimpleCommand, ...]:
        text, quoted = self._text(node), node.parent is not None and node.parent.type == "string"
        if text.startswith("`") and ("\\" in text or (quoted and ('"' in text or "'" in text))):
            raise unclear(node, self._source)
        outer, start, self._feeds = self._feeds, len(self.commands), None
        self._sequence(node, bindings.copy())
        self._feeds = outer
        return tuple(self.commands[start:])

    # --- branches and loops -----------------------------------------------------------------------------

    def _branches(self, node: Node, bindings: Bindings) -> None:
        branch = bindings
        for child in node.children:
            if child.type == "then":
                branch = bindings.copy()
            elif child.type in {"elif_clause", "else_clause"}:
                self._statement(child, bindings.copy())
            elif child.type not in _SEPARATORS | {"if", "elif", "fi"}:
                self._run(child, branch)

    def _case(self, node: Node, bindings: Bindings) -> None:
        for child in node.children:
            if child.type == "case_item":
                inner = bindings.copy()
                values = {value.id for value in child.children_by_field_name("value")}
                for part in child.children:
                    if part.id in values:
                        self._words.value(part, inner)
                    elif part.type not in _SEPARATORS | {"|", ";;"}:
                        self._run(part, inner)
            elif child.type not in {"case", "in", "esac", ";", "\n", "comment"}:
                self._words.value(child, bindings)

    def _while(self, node: Node, bindings: Bindings) -> None:
        inner = bindings.copy()
        self._blur(inner, assigned_names(node, self._source), bindings)
        self._unknown_rounds += 1
        for child in node.children:
            if child.type not in _SEPARATORS | {"while", "until"}:
                self._run(child, inner)
        self._unknown_rounds -= 1

    def _for(self, node: Node, bindings: Bindings) -> None:
        variable, body = self._text(node.child_by_field_name("variable")), node.child_by_field_name("body")
        if body is None or node.children[0].type != "for" or not any(child.type == "in" for child in node.children):
            raise UnclearError("write the loop as: for name in value …; do …; done")
        values: list[Word] = []
        for child in node.children_by_field_name("value"):
            values += [known for word in self._words.words(child, bindings) for known in loop_values(word)]
        for value in values:
            inner = bindings.copy()
            self._blur(inner, assigned_names(body, self._source), bindings)
            self._emit(SimpleCommand(argv=(), assignments=((variable, value),)))
            inner.names[variable] = (replace(value, single=True, blankless=not value.single),)
            self._unknown_rounds += value.kind is not WordKind.CONSTANT
            self._sequence(body, inner)
            self._unknown_rounds -= value.kind is not WordKind.CONSTANT

    # --- functions and tests ----------------------------------------------------------------------------

    def _define(self, node: Node) -> None:
        name, body = self._text(node.child_by_field_name("name")), node.child_by_field_name("body")
        plain = re.fullmatch(r"[A-Za-z_][\w-]*", name) and name != "command_not_found_handle"
        if not plain or body is None or name in self._functions or node.child_by_field_name("redirect") is not None:
            raise UnclearError(f"the function {name!r} is not plain: write its commands out")
        self._functions[name] = body

    def _call(self, command: SimpleCommand, bindings: Bindings) -> None:
        """Walk a function's body where it is called, with the arguments of this call."""
        arguments = command.argv[1:]
        if self._calls >= DEEPEST_CALL or command.assignments or any(not word.single for word in arguments):
            raise UnclearError(f"what the function {command.name} does here is not clear: write its commands out")
        self._emit(replace(command, argv=()))
        inner = bindings.copy()
        inner.names = {name: value for name, value in inner.names.items() if not name.isdigit()}
        inner.names |= {str(position): (word,) for position, word in enumerate(arguments, 1)}
        inner.names["@"] = arguments
        self._blur(inner, self._unsteady, bindings)
        self._calls += 1
        self._run(self._functions[command.name], inner)
        self._calls -= 1
        self._blur(bindings, self._unsteady, bindings)
