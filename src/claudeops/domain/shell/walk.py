"""Walks a syntax tree in the order in which bash would run it, and collects every simple command.

All branches are walked; loops over known values are unrolled, so that every round is seen with its values. A variable's
value counts as known only where no branch, loop or subshell leaves a doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from tree_sitter import Node

from claudeops.domain.shell.exit_status import Certainties
from claudeops.domain.shell.lexical import unclear
from claudeops.domain.shell.simple import SimpleWalker
from claudeops.domain.shell.values import (
    WORKING_DIRECTORY,
    Block,
    Branch,
    Case,
    Chained,
    ForEach,
    Group,
    Literal,
    Loop,
    Negated,
    Pipeline,
    Redirected,
    Redirection,
    Rounds,
    Run,
    SimpleCommand,
    Step,
    Subshell,
    TooMuchError,
    UnclearError,
    Variable,
    Word,
    WordKind,
    assigned_names,
    loop_values,
    one_step,
)
from claudeops.domain.shell.words import Bindings, Substituted
from claudeops.domain.text import regex

DEEPEST_CALL: Final = 4  # functions that call functions

_SEPARATORS: Final = frozenset({*";\n{}()`!", "comment", "$(", "do", "done", "<(", ">(", "else"})
_CERTAIN: Final = frozenset({"command", "variable_assignment", "variable_assignments"})
_ERRORS_TOO: Final = Redirection(operator=">&", target=Word(text="1"), descriptor="2")
_APART: Final = frozenset({"subshell", "pipeline"})  # their assignments end with them


class Walker(SimpleWalker):
    """Collects the commands of one parsed text.

    What is doubtful or forbidden is recorded as ``problem`` or ``refusal``, and the walk goes on: the rest of the text
    may be worse.
    """

    def __init__(self, source: bytes, certainties: Certainties) -> None:
        super().__init__(source, certainties)
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
        """Walk a whole text; ``known`` are variables that are already set."""
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
                self._note(SimpleCommand(argv=(), redirections=self._redirections.read([child], bindings).files))
                self._steps.append(Redirected(None, self.commands[-1].redirections))
            elif child.type not in _SEPARATORS:
                self._run(child, bindings)

    def _run(self, node: Node, bindings: Bindings) -> None:
        """Walk a statement; variables that only a part of it may have assigned are unknown afterwards."""
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
        redirects = self._pending.pop(node.id, None)
        if redirects is not None:
            self._attempt(partial(self._redirect, node, redirects, bindings, inside=True))
        elif walk is None:
            self._keep(self._refusal(node))
            self._look_inside(node, bindings)
        else:
            self._attempt(partial(walk, node, bindings))

    def _list(self, node: Node, bindings: Bindings) -> None:
        left, operator, right = (child for child in node.children if child.type not in {"comment", "\n"})
        before = bindings.copy()
        first = one_step(self._block(partial(self._statement, left, bindings)))
        if operator.type == "||":
            self._blur(bindings, assigned_names(left, self._source), before)
        elif operator.type != "&&":
            raise self._refusal(operator)
        second = one_step(self._block(partial(self._statement, right, bindings)))
        self._steps.append(Chained(first, operator.type, second))

    def _pipeline(self, node: Node, bindings: Bindings) -> None:
        outer, start = self._feeds, len(self.commands)
        steps: list[Step] = []
        for child in node.children:
            if child.type in {"|", "|&"}:
                self._feeds = (*(outer or ()), *self.commands[start:])
                if child.type == "|&":
                    steps[-1] = Redirected(steps[-1], (_ERRORS_TOO,))
            elif child.type not in {"comment", "\n"}:
                step = one_step(self._block(partial(self._statement, child, bindings.copy())))
                steps += step.steps if isinstance(step, Pipeline) else (step,)  # ``a | b >c | d`` is one pipeline
        self._feeds = outer
        if isinstance(steps[0], Negated):  # ``! a | b`` negates the whole pipeline
            self._steps.append(Negated(Pipeline((steps[0].step, *steps[1:]))))
        else:
            self._steps.append(Pipeline(tuple(steps)))

    def _negated(self, node: Node, bindings: Bindings) -> None:
        self._steps.append(Negated(one_step(self._block(partial(self._sequence, node, bindings)))))
        bindings.cwd = None

    def _apart(self, node: Node, bindings: Bindings) -> None:
        self._steps.append(Subshell(self._block(partial(self._sequence, node, bindings.copy()))))

    def _group(self, node: Node, bindings: Bindings) -> None:
        if node.children[0].type != "{":
            raise UnclearError("(( … )) is not allowed: use [ … ] with numbers written out")
        self._steps.append(Group(self._block(partial(self._sequence, node, bindings))))

    def _substituted(self, node: Node, bindings: Bindings) -> Substituted:
        text, quoted = self._text(node), node.parent is not None and node.parent.type == "string"
        if text.startswith("`") and ("\\" in text or (quoted and ('"' in text or "'" in text))):
            raise unclear(node, self._source)
        outer, start, self._feeds = self._feeds, len(self.commands), None
        block = self._block(partial(self._sequence, node, bindings.copy()))
        self._feeds = outer
        return Substituted(tuple(self.commands[start:]), block)

    # --- branches and loops -----------------------------------------------------------------------------

    def _branches(self, node: Node, bindings: Bindings) -> None:
        """Read ``if`` or ``elif``."""
        branch = bindings
        condition: list[Step] = []
        then: list[Step] = []
        steps = condition
        clauses: list[tuple[str, Block]] = []
        for child in node.children:
            if child.type == "then":
                branch, steps = bindings.copy(), then
            elif child.type in {"elif_clause", "else_clause"}:
                clauses.append((child.type, self._block(partial(self._statement, child, bindings.copy()))))
            elif child.type not in _SEPARATORS | {"if", "elif", "fi"}:
                steps += self._block(partial(self._run, child, branch))
        otherwise: Block = ()
        for kind, block in reversed(clauses):
            first = block[0] if block and kind == "elif_clause" else None
            otherwise = (Branch(first.condition, first.then, otherwise),) if isinstance(first, Branch) else block
        self._steps.append(Branch(tuple(condition), tuple(then), otherwise))

    def _case(self, node: Node, bindings: Bindings) -> None:
        subject = Word(text="")
        items: list[tuple[tuple[Word, ...], Block]] = []
        for child in node.children:
            if child.type == "case_item":
                items.append(self._case_item(child, bindings.copy()))
            elif child.type not in {"case", "in", "esac", ";", "\n", "comment"}:
                subject = self._words.value(child, bindings)
        self._steps.append(Case(subject, tuple(items)))

    def _case_item(self, node: Node, bindings: Bindings) -> tuple[tuple[Word, ...], Block]:
        values = {value.id for value in node.children_by_field_name("value")}
        patterns: list[Word] = []
        steps: list[Step] = []
        for part in node.children:
            if part.id in values:
                patterns.append(self._words.pattern(part, bindings))
            elif part.type not in _SEPARATORS | {"|", ";;"}:
                steps += self._block(partial(self._run, part, bindings))
        return tuple(patterns), tuple(steps)

    def _while(self, node: Node, bindings: Bindings) -> None:
        inner = bindings.copy()
        self._blur(inner, assigned_names(node, self._source), bindings)
        self._unknown_rounds += 1
        condition: list[Step] = []
        body: Block = ()
        for child in node.children:
            if child.type == "do_group":
                body = self._block(partial(self._sequence, child, inner))
            elif child.type not in _SEPARATORS | {"while", "until"}:
                condition += self._block(partial(self._run, child, inner))
        self._unknown_rounds -= 1
        self._steps.append(Loop(tuple(condition), body, until=node.children[0].type == "until"))

    def _for(self, node: Node, bindings: Bindings) -> None:
        variable, body = self._text(node.child_by_field_name("variable")), node.child_by_field_name("body")
        if body is None or node.children[0].type != "for" or not any(child.type == "in" for child in node.children):
            raise UnclearError("write the loop as: for name in value …; do …; done")
        values: list[Word] = []
        for child in node.children_by_field_name("value"):
            values += [known for word in self._words.words(child, bindings) for known in loop_values(word)]
        rounds = [self._round(variable, value, body, bindings, alone=len(values) == 1) for value in values]
        if len(rounds) == 1 and isinstance(rounds[0][0], ForEach):
            self._steps += rounds[0]
        else:
            self._steps.append(Rounds(tuple(rounds)))

    def _round(self, variable: str, value: Word, body: Node, bindings: Bindings, *, alone: bool) -> Block:
        """Walk a loop's body with one of its values; an unknown value may stand for any number of rounds."""
        inner = bindings.copy()
        self._blur(inner, assigned_names(body, self._source), bindings)
        assignment = self._note(SimpleCommand(argv=(), assignments=((variable, value),)))
        inner.names[variable] = (replace(value, single=True, blankless=not value.single),)
        self._unknown_rounds += value.kind is not WordKind.CONSTANT
        steps = self._block(partial(self._sequence, body, inner))
        self._unknown_rounds -= value.kind is not WordKind.CONSTANT
        if value.kind is WordKind.CONSTANT:
            return (Run(assignment), *steps)
        return (ForEach(variable, (value,), steps, alone=alone),)

    # --- functions and tests ----------------------------------------------------------------------------

    def _define(self, node: Node) -> None:
        name, body = self._text(node.child_by_field_name("name")), node.child_by_field_name("body")
        plain = regex.fullmatch(r"[A-Za-z_][\w-]*", name) and name != "command_not_found_handle"
        if not plain or body is None or name in self._functions or node.child_by_field_name("redirect") is not None:
            raise UnclearError(f"the function {name!r} is not plain: write its commands out")
        self._functions[name] = body

    def _call(self, command: SimpleCommand, bindings: Bindings) -> None:
        """Walk a function's body where it is called, with the arguments of this call."""
        arguments = command.argv[1:]
        if self._calls >= DEEPEST_CALL or command.assignments or any(not word.single for word in arguments):
            raise UnclearError(f"what the function {command.name} does here is not clear: write its commands out")
        if any(not self._repeatable(word) for word in arguments):
            raise UnclearError(f"what the function {command.name} is given must be written out: put it into a variable")
        opening = self._note(replace(command, argv=()))
        inner = bindings.copy()
        inner.names = {name: value for name, value in inner.names.items() if not name.isdigit()}
        inner.names |= {str(position): (word,) for position, word in enumerate(arguments, 1)}
        inner.names["@"] = arguments
        self._blur(inner, self._unsteady, bindings)
        self._calls += 1
        body = one_step(self._block(partial(self._run, self._functions[command.name], inner)))
        self._calls -= 1
        self._blur(bindings, self._unsteady, bindings)
        around = opening.redirections or opening.stdin
        self._steps.append(Redirected(body, opening.redirections, opening.stdin) if around else body)

    def _repeatable(self, word: Word) -> bool:
        """Whether a word means the same anywhere in a function: its text, or variables that no function assigns."""
        return word.constant or all(
            isinstance(part, Literal) or (isinstance(part, Variable) and part.expression not in self._unsteady)
            for part in word.parts
        )
