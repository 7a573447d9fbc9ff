"""Walk of a syntax tree in the order in which bash would run it, collecting every simple command on the way.

Branches are all taken; loops over known values are unrolled, so that every round is seen with its values. What a
variable holds counts as known only where no branch, loop or subshell leaves a doubt.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from claudeops.domain.shell.conditions import read_test
from claudeops.domain.shell.lexical import unclear
from claudeops.domain.shell.redirections import Redirected, RedirectionReader
from claudeops.domain.shell.tree import WORKING_DIRECTORY, assigned_names, loop_values, source_text
from claudeops.domain.shell.values import SimpleCommand, UnclearError, Word, WordKind
from claudeops.domain.shell.words import Bindings, WordReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tree_sitter import Node

MOST_COMMANDS: Final = 256  # of one text, loops unrolled
DEEPEST_CALL: Final = 4  # functions that call functions

_UNKNOWN: Final = (Word(text="", kind=WordKind.DYNAMIC),)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_SEPARATORS: Final = frozenset({*";\n{}()`!", "comment", "$(", "do", "done", "<(", ">(", "else"})
_CERTAIN: Final = frozenset({"command", "variable_assignment", "variable_assignments"})
_APART: Final = frozenset({"subshell", "pipeline"})  # what they assign ends with them
_RESERVED: Final = frozenset(
    {"if", "then", "elif", "else", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in"}
    | {"function", "{", "}", "!", "[[", "]]", "coproc"}
)
_REFUSED: Final = {
    "&": "a command in the background is not allowed: run it in the foreground with timeout",
    "declaration_command": "export, declare and local are not allowed: put the value into the command itself",
    "unset_command": "unset is not allowed: leave the variable as it is",
    "c_style_for_statement": "write the loop as: for i in 1 2 3; do …; done",
    "function_definition": "define functions on the top level only, or better write their commands out",
}


class Walker:
    """Collects the commands of one parsed text; raises `UnclearError` where the text leaves a doubt."""

    def __init__(self, source: bytes) -> None:
        self.commands: list[SimpleCommand] = []
        self._source = source
        self._words = WordReader(source, self._substituted)
        self._redirections = RedirectionReader(source, self._words)
        self._functions: dict[str, Node] = {}
        self._unsteady: frozenset[str] = frozenset()  # names that some function assigns
        self._calls = 0
        self._unknown_rounds = 0
        self._feeds: tuple[SimpleCommand, ...] | None = None  # what the pipeline's earlier commands are
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
        }

    def program(self, root: Node) -> None:
        """Walk a whole text."""
        for node in root.children:
            if node.type == "function_definition":
                self._unsteady |= assigned_names(node, self._source)
        bindings = Bindings()
        for node in root.children:
            if node.type == "function_definition":
                self._define(node)
            elif node.type not in _SEPARATORS:
                self._run(node, bindings)

    def _text(self, node: Node | None) -> str:
        return source_text(node, self._source)

    def _emit(self, command: SimpleCommand) -> None:
        if len(self.commands) >= MOST_COMMANDS:
            raise UnclearError(f"more than {MOST_COMMANDS} commands in one call: split it")
        piped = self._feeds is not None
        self.commands.append(replace(command, repeated=self._unknown_rounds > 0, piped=piped, feeds=self._feeds or ()))

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
            raise self._refusal(node)
        walk(node, bindings)

    def _refusal(self, node: Node) -> UnclearError:
        reason = _REFUSED.get(node.type)
        return UnclearError(reason) if reason else unclear(node, self._source)

    def _blur(self, bindings: Bindings, names: Iterable[str], before: Bindings) -> None:
        """Forget values. An upper-case name that was not set before may still be the environment's: unset."""
        for name in names:
            if name == WORKING_DIRECTORY:
                bindings.cwd = None
            elif name in before.names or name.islower():
                bindings.names[name] = _UNKNOWN
            else:
                bindings.names.pop(name, None)

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
                argv += self._words.words(child, bindings)
        own = self._redirections.read(inside, bindings)
        command = SimpleCommand(
            argv=(*argv, *own.arguments, *outside.arguments),
            assignments=tuple(assignments),
            redirections=(*own.files, *outside.files),
            stdin=outside.stdin or own.stdin,
            cwd=bindings.cwd,
        )
        if self._functions and command.name in {"time", "command"}:
            raise UnclearError(f"{command.name} beside functions is not clear: write their commands out")
        if command.name in self._functions and command.argv[0].constant:
            self._call(command, bindings)
        else:
            self._emit(command)
            self._take_effect(command, bindings)

    def _take_effect(self, command: SimpleCommand, bindings: Bindings) -> None:
        """Keep what the command changes in the shell that runs it: its directory, and the variables of read."""
        words = [word.text for word in command.argv]
        if words[:1] == ["read"]:
            bindings.names |= dict.fromkeys([word for word in words[1:] if not word.startswith("-")], _UNKNOWN)
        elif words[:1] == ["cd"] and len(words) == 2 and command.argv[1].constant and words[1] != "-":  # noqa: PLR2004 - cd DIRECTORY
            bindings.cwd = posixpath.join(bindings.cwd or "", words[1])
            bindings.cwd = bindings.cwd if bindings.cwd.startswith("/") else None
        elif "cd" in words:
            bindings.cwd = None

    def _redirected(self, node: Node, bindings: Bindings) -> None:
        body = node.child_by_field_name("body")
        outside = self._redirections.read(node.children_by_field_name("redirect"), bindings)
        start = len(self.commands)
        if body is not None and body.type == "command":
            self._simple(body, bindings, outside)
        elif outside.arguments:
            raise unclear(node, self._source)
        else:
            self._emit(SimpleCommand(argv=(), redirections=outside.files))
            if body is not None:
                self._statement(body, bindings)
        outer, self._feeds = self._feeds, (*(self._feeds or ()), *self.commands[start:])
        for piped in outside.piped:
            self._statement(piped, bindings.copy())
        self._feeds = outer
        for following in outside.following:
            self._blur(bindings, {WORKING_DIRECTORY}, bindings)
            self._statement(following, bindings.copy())

    def _assignment(self, node: Node, bindings: Bindings) -> tuple[str, Word]:
        name, value = self._text(node.child_by_field_name("name")), node.child_by_field_name("value")
        if not _NAME.fullmatch(name) or not any(child.type == "=" for child in node.children):
            raise unclear(node, self._source)
        if value is not None and value.type == "array":
            raise UnclearError(f"the array {name} cannot stand before a command")
        return name, self._words.value(value, bindings)

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
        self._emit(
            SimpleCommand(argv=(), assignments=tuple((name, word) for word in words) or ((name, Word(text="")),))
        )
        bindings.names[name] = _UNKNOWN if name in self._unsteady else words

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

    def _test(self, node: Node, bindings: Bindings) -> None:
        words = read_test(node, self._source, self._words, bindings)
        if words:
            self._emit(SimpleCommand(argv=words))
