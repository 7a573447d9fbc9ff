"""Reads a syntax tree into steps, in the order in which bash would run it.

What is not in the language is recorded as ``problem`` or ``refusal``, and the reading goes on: the rest of the text may
be worse. So a command with a word that cannot be read is still among the commands.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from tree_sitter import Node

from claudeops.policy.shell.language import (
    MOST_COMMANDS,
    Block,
    Branch,
    Chained,
    ForbiddenError,
    Group,
    Literal,
    Negated,
    Pipeline,
    Redirected,
    Run,
    Set,
    SimpleCommand,
    Step,
    StoredVariable,
    Subshell,
    Text,
    TooMuchError,
    UnclearError,
    Word,
    after_cd,
    one_step,
    shown,
    without_cd,
)
from claudeops.policy.shell.lexical import unclear
from claudeops.policy.shell.redirections import NOTHING, REDIRECTS, Behind, RedirectionReader, Redirects, operands
from claudeops.policy.shell.refusals import INSTEAD, INSTEAD_OF_COMMANDS, is_left_out, refuse_name
from claudeops.policy.shell.words import ReaderScope, WordReader
from claudeops.structs import replace
from claudeops.text import regex

MOST_ROUNDS: Final = 64  # of all loops around one command
MOST_STATEMENTS: Final = 2048  # of any kind, also those that leave nothing to run

_SEPARATORS: Final = frozenset(
    {*";\n{}()`!", "comment", "$(", "<(", ">(", "do", "done", "if", "then", "elif", "else", "fi", "[", "]"}
)
_EXPRESSIONS: Final = frozenset({"binary_expression", "unary_expression", "parenthesized_expression"})
_TESTS: Final = frozenset({"=", "==", "!=", "!"})
_XARGS: Final = tuple(map(Literal, ("xargs", "-n", "1")))
_INTEGER: Final = regex.Pattern(r"-?\d{1,9}")
_NO_COMMAND: Final = "a redirection without a command is not taken: write the command"
_CD: Final = "the directory changes only at the beginning: put cd first, cd DIR && …, or into ( cd DIR && … )"
_CLAUSES: Final = frozenset({"elif_clause", "else_clause"})

_Handing: TypeAlias = Callable[[Node, ReaderScope, Behind], Step | None]


class ShellReader:
    """Reads one text."""

    def __init__(self, source: bytes) -> None:
        self.commands: list[SimpleCommand] = []
        self.problem: str | None = None  # the first thing that is not in the language
        self.refusal: str | None = None  # the first thing that is clear and forbidden
        self._source = source
        self._words = WordReader(source, self._substituted)
        self._redirections = RedirectionReader(source, self._words, self._keep)
        self._read: set[int] = set()  # the nodes of statements that have been read
        self._statements = 0  # read so far, loops unrolled
        self._handing: dict[str, _Handing] = {  # they hand on what is behind them to their last command
            "command": self._command,
            "test_command": self._test,
            "list": self._list,
            "pipeline": self._pipeline,
            "negated_command": self._negated,
            "redirected_statement": self._redirected,
        }
        self._whole: dict[str, Callable[[Node, ReaderScope], Step | None]] = {
            "subshell": self._subshell,
            "compound_statement": self._group,
            "if_statement": self._if,
            "for_statement": self._for,
            "variable_assignment": self._assign,
            "variable_assignments": self._assignments,
        }

    def program(self, root: Node, known: Mapping[str, str]) -> Block:
        """Read a whole text; ``known`` are variables that are already set."""
        try:
            return self._sequence(root.children, ReaderScope(values=dict(known)))
        except TooMuchError as error:
            self._keep(error)
            return ()

    # --- statements -------------------------------------------------------------------------------------

    def _sequence(self, nodes: Iterable[Node], scope: ReaderScope) -> Block:
        read = (self._statement(node, scope) for node in nodes if node.type not in _SEPARATORS)
        return after_cd(tuple(step for step in read if step is not None))

    def _statement(self, node: Node, scope: ReaderScope, behind: Behind = NOTHING) -> Step | None:
        """Read a statement; None: it leaves nothing to run, or a problem has been recorded."""
        self._read.add(node.id)
        self._statements += 1
        if self._statements > MOST_STATEMENTS:
            raise TooMuchError("the command has too many steps: split it")
        try:
            if node.type in self._handing:
                step = self._handing[node.type](node, scope, behind)
            elif node.type in self._whole:
                step = self._around(node, scope, behind)
            else:
                raise self._refusal(node)
        except UnclearError as error:
            self._keep(error)
            self._look_inside(node, scope)
            step = None
        if node.type not in {"command", "list", "redirected_statement", "variable_assignment", "variable_assignments"}:
            scope.head = False
        return step

    def _keep(self, error: Exception) -> None:
        if isinstance(error, ForbiddenError):
            self.refusal = self.refusal or str(error)
        else:
            self.problem = self.problem or str(error)

    def _look_inside(self, node: Node, scope: ReaderScope) -> None:
        """Find the commands in something that is not understood: they may be worse."""
        scope = replace(scope.apart(), head=True, repeated=scope.repeated or node.type == "while_statement")
        for child in node.children:
            if (child.type in self._handing or child.type in self._whole) and child.id not in self._read:
                self._statement(child, scope.apart())
            else:
                self._look_inside(child, scope)

    def _refusal(self, node: Node) -> UnclearError:
        if node.type == "&":
            return ForbiddenError(INSTEAD["&"])
        if node.type == "declaration_command" and all(each.type != "variable_assignment" for each in node.children):
            return ForbiddenError("export, declare and local without a value would show the environment")
        if node.type == "declaration_command":
            for each in node.children:
                if each.type == "variable_assignment":
                    refuse_name(self._words.shown(each.children[0]))
        reason = INSTEAD.get(node.type)
        return UnclearError(reason) if reason else unclear(node, self._source)

    def _note(self, command: SimpleCommand, scope: ReaderScope) -> SimpleCommand:
        """Record a command for the judge, and return it as recorded."""
        if len(self.commands) >= MOST_COMMANDS:
            raise TooMuchError(f"more than {MOST_COMMANDS} commands in one call: split it")
        if scope.moved:
            self._keep(UnclearError(_CD))
        piped, number = scope.feeds is not None, len(self.commands)
        around = replace(command, cwd=scope.cwd, repeated=scope.repeated, number=number)
        kept = replace(around, piped=piped, feeds=scope.feeds or ())
        self.commands.append(kept)
        return kept

    # --- lists and pipelines ----------------------------------------------------------------------------

    def _list(self, node: Node, scope: ReaderScope, behind: Behind) -> Step | None:
        (_, first), *rest = operands(node)
        step = self._statement(first, scope)
        return self._chained(step, rest, scope, behind)

    def _chained(
        self, step: Step | None, rest: Sequence[tuple[str, Node]], scope: ReaderScope, behind: Behind
    ) -> Step | None:
        """Read what follows a step: what is set there holds until ``||`` or the end, for it may not have run."""
        certain = dict(scope.values)
        for place, (operator, node) in enumerate(rest, 1):
            inner, before = scope, dict(scope.values)
            if operator == "||":
                scope.doubt(certain)
                before = dict(scope.values)
                scope.head = False
                inner = replace(scope, unassignable="behind ||")
                if step is None or without_cd(step) == (step, None):
                    self._keep(UnclearError("what is in front of || must be a command, and not cd: write cd DIR && …"))
            right = self._statement(node, inner, behind if place == len(rest) else NOTHING)
            if operator == "||":
                scope.doubt(before)
            step = Chained(step, operator, right) if step is not None and right is not None else step or right
        scope.doubt(certain)
        return step

    def _pipeline(self, node: Node, scope: ReaderScope, behind: Behind) -> Step | None:
        parts = [child for child in node.children if child.type not in {"comment", "\n"}]
        elements = [(part, NOTHING) for part in parts[::2]]
        for place, sign in enumerate(parts[1::2]):
            if sign.type == "|&":
                elements[place] = parts[2 * place], Behind(errors_too=True)
        elements[-1] = parts[-1], behind
        (first, own), *rest = elements
        body = first.child_by_field_name("body") if first.type == "redirected_statement" else first
        if body is not None and body.type in {"list", "pipeline", "negated_command"}:
            # In ``a && b 2>&1 | c`` and ``! a | b`` the parser takes too much for the first element.
            return self._statement(first, scope, replace(own, piped=tuple(rest)))
        return self._piped((), elements, scope)

    def _piped(
        self, steps: tuple[Step, ...], elements: Iterable[tuple[Node, Behind]], scope: ReaderScope
    ) -> Step | None:
        """Read the elements of a pipeline behind its first steps."""
        feeds = scope.feeds
        for node, behind in elements:
            start = len(self.commands)
            unassignable = "in a pipeline" if node.type.startswith("variable_assignment") else ""
            inner = replace(scope.apart(), feeds=feeds, head=False, unassignable=unassignable)
            step = self._statement(node, inner, behind)
            if steps and isinstance(step, Negated):
                self._keep(UnclearError("! stands in front of a whole pipeline, and not within it"))
            if step is not None:  # ``a | b >c | d`` is one pipeline
                steps = (*steps, *(step.steps if isinstance(step, Pipeline) else (step,)))
            feeds = (*(feeds or ()), *self.commands[start:])
        return Pipeline(steps) if steps else None

    def _negated(self, node: Node, scope: ReaderScope, behind: Behind) -> Step | None:
        (operand,) = (child for child in node.children if child.type not in _SEPARATORS)
        inner = replace(scope, head=False, unassignable="behind !")
        step = self._statement(operand, inner, behind)
        return None if step is None else Negated(step)

    # --- groups, branches and loops ---------------------------------------------------------------------

    def _around(self, node: Node, scope: ReaderScope, behind: Behind) -> Step | None:
        """Read a statement that has redirections as a whole."""
        own = self._redirections.read(behind.redirects, scope, errors_too=behind.errors_too)
        if own.arguments:
            raise UnclearError("words after the redirection of a group are not clear: leave them out")
        start, inner, opening, before = len(self.commands), scope, None, dict(scope.values)
        if own != Redirects():
            opening = self._note(SimpleCommand(argv=(), redirections=own.files, stdin=own.stdin), scope)
            if own.feeds:
                inner = replace(scope, feeds=(*(scope.feeds or ()), opening))
        step = self._whole[node.type](node, inner)
        scope.moved = inner.moved
        if step is not None and opening is not None:
            step = Redirected(step, opening)
        if any(each.operator != ">&" and each.target.text != "/dev/null" for each in own.files):
            scope.doubt(before)  # without the file nothing of it runs
        return self._before_pipe(step, start, scope, behind)

    def _before_pipe(self, step: Step | None, start: int, scope: ReaderScope, behind: Behind) -> Step | None:
        """Read the rest of the pipeline that the parser puts below a here-document."""
        if not behind.piped or step is None:
            return step
        feeds = (*(scope.feeds or ()), *self.commands[start:])
        return self._piped((step,), behind.piped, replace(scope, feeds=feeds))

    def _subshell(self, node: Node, scope: ReaderScope) -> Step:
        return Subshell(self._sequence(node.children, replace(scope.apart(), head=True)))

    def _group(self, node: Node, scope: ReaderScope) -> Step:
        if node.children[0].type != "{":
            raise UnclearError("(( … )) is not taken: use [ … ] with numbers written out")
        inner = replace(scope)
        block = self._sequence(node.children, inner)
        scope.moved = inner.moved or inner.cwd != scope.cwd
        return Group(block)

    def _substituted(self, node: Node, scope: ReaderScope) -> Block:
        text, quoted = self._words.shown(node), node.parent is not None and node.parent.type == "string"
        if text.startswith("`") and ("\\" in text or (quoted and ('"' in text or "'" in text))):
            raise unclear(node, self._source)
        inner = replace(scope.apart(), feeds=None, head=True)
        files = self._redirections.read(node.children, inner).files
        if not files:
            return self._sequence(node.children, inner)
        return (self._run(SimpleCommand(argv=(Literal("cat"),), redirections=files), inner),)  # ``$(< file)``

    def _if(self, node: Node, scope: ReaderScope) -> Step:
        clauses = [node, *(child for child in node.children if child.type in _CLAUSES)]
        inner = replace(scope.apart(), head=False, unassignable="in a branch")
        read: list[tuple[Block, Block]] = []
        for clause in clauses:
            own = [child for child in clause.children if child.type not in _CLAUSES]
            then = next((place for place, child in enumerate(own) if child.type == "then"), 0)
            condition, taken = self._sequence(own[:then], inner), replace(inner, values=dict(inner.values))
            read.append((condition, self._sequence(own[then:], taken)))
            scope.doubt(taken.values)
        otherwise = read.pop()[1] if clauses[-1].type == "else_clause" else ()
        for condition, then_block in reversed(read):
            otherwise = (Branch(condition, then_block, otherwise),)
        return otherwise[0]

    def _for(self, node: Node, scope: ReaderScope) -> Step:
        """Unroll a loop."""
        name, body = self._words.shown(node.children[1]), node.child_by_field_name("body")
        if body is None or node.children[0].type != "for" or not any(child.type == "in" for child in node.children):
            raise UnclearError("write the loop as: for name in VALUE …; do …; done")
        refuse_name(name)
        nodes = node.children_by_field_name("value")
        values = [each for value in nodes for each in self._loop_values(value, scope)]
        if len(nodes) == 1 and nodes[0].type == "command_substitution" and not values:
            return self._each(name, nodes[0], body, scope)
        rounds = scope.rounds * len(values)
        if rounds > MOST_ROUNDS:
            raise UnclearError(f"the loop has more than {MOST_ROUNDS} rounds: write fewer")
        inner = replace(scope, head=False, rounds=rounds)
        steps: list[Step] = []
        for value in values:
            inner.values[name] = value
            steps += self._sequence(body.children, inner)
        return Group(tuple(steps))

    def _loop_values(self, node: Node, scope: ReaderScope) -> list[str]:
        """Return the values of one word of a loop, and none for the output of a look."""
        if node.type == "command_substitution":
            return self._counted(node, scope)
        words = self._words.words(node, scope)
        if not all(isinstance(word, Literal) for word in words):
            raise UnclearError(f"{self._words.shown(node)[:60]!r} is not a name: write the names out")
        return [word.text for word in words if isinstance(word, Literal)]

    def _counted(self, node: Node, scope: ReaderScope) -> list[str]:
        """Return the numbers of ``$(seq FIRST LAST)``."""
        inside = [child for child in node.children if child.type not in _SEPARATORS]
        if len(inside) != 1 or inside[0].type != "command" or self._words.shown(inside[0].children[0]) != "seq":
            return []
        words = [word for child in inside[0].children[1:] for word in self._words.words(child, scope)]
        numbers = [int(word.text) for word in words if isinstance(word, Literal) and _INTEGER.fullmatch(word.text)]
        if len(numbers) != len(words) or not 1 <= len(numbers) <= 3 or numbers[1:-1] == [0]:  # noqa: PLR2004 - FIRST STEP LAST
            raise UnclearError("in a loop write $(seq LAST), $(seq FIRST LAST) or $(seq FIRST STEP LAST)")
        first, step = numbers[0] if len(numbers) > 1 else 1, (numbers[1:-1] or [1])[0]
        counted = range(first, numbers[-1] + (1 if step > 0 else -1), step)
        return [str(number) for number in counted[: MOST_ROUNDS + 1]]

    def _each(self, name: str, look: Node, body: Node, scope: ReaderScope) -> Step:
        """Read ``for name in $(look); do command "$name"; done`` as ``look | xargs -n 1 command``."""
        command, *more = (child for child in body.children if child.type not in _SEPARATORS)
        redirects: list[Node] = []
        if command.type == "redirected_statement":
            command, *redirects = command.children
        *words, last = command.children
        given = self._words.shown(last).strip('"') in {f"${name}", f"${{{name}}}"} and last.type != "command_name"
        used = more or command.type != "command" or any(self._mentions(word, name) for word in words)
        own = self._redirections.read(redirects, scope)
        if not given or used or own != Redirects(files=own.files) or own.feeds:
            shown = self._words.shown(look)[2:-1][:60]
            error = UnclearError(f"run {shown} first, then write the names out: for {name} in NAME NAME; do …")
            self._keep(error)
            self._look_inside(body, replace(scope, repeated=True))
            raise error
        start = len(self.commands)
        printed = one_step(self._substituted(look, scope))
        inner = replace(scope.apart(), feeds=(*(scope.feeds or ()), *self.commands[start:]))
        run = self._simple(words, inner, Behind(redirects=tuple(redirects)), _XARGS)
        self._read.add(command.id)
        return Pipeline((*(printed.steps if isinstance(printed, Pipeline) else (printed,)), run))

    def _mentions(self, node: Node, name: str) -> bool:
        named = node.type == "variable_name" and self._words.shown(node) == name
        return named or any(self._mentions(child, name) for child in node.children)

    # --- simple commands --------------------------------------------------------------------------------

    def _assignments(self, node: Node, scope: ReaderScope) -> Step | None:
        steps = tuple(step for child in node.children if (step := self._assign(child, scope)) is not None)
        return one_step(steps) if steps else None

    def _assign(self, node: Node, scope: ReaderScope) -> Step | None:
        name, value = self._named(node, scope)
        if is_left_out(name):
            return None
        refuse_name(name)
        if scope.unassignable:
            raise UnclearError(f"{name} is set {scope.unassignable}: set it before, or write its value out")
        if isinstance(value, Literal):
            scope.values[name] = value.text
            return None
        scope.values[name] = StoredVariable(name)
        return Set(name, value)

    def _named(self, node: Node, scope: ReaderScope) -> tuple[str, Literal | Text]:
        name, value = self._words.shown(node.children[0]), node.child_by_field_name("value")
        if value is not None and value.type == "array":
            raise UnclearError(f"the array {name} is not taken: write its words out, for NAME in WORD WORD; do …")
        if not name.isidentifier() or node.children[1].type != "=":
            raise unclear(node, self._source)
        return name, self._words.value(value, scope)

    def _command(self, node: Node, scope: ReaderScope, behind: Behind) -> Step | None:
        start = len(self.commands)
        return self._before_pipe(self._simple(node.children, scope, behind), start, scope, behind)

    def _simple(self, nodes: Iterable[Node], scope: ReaderScope, behind: Behind, argv: tuple[Word, ...] = ()) -> Run:
        environment: list[tuple[str, str]] = []
        inside: list[Node] = []
        for child in nodes:
            if child.type == "variable_assignment":
                environment += self._environment(child, scope)
            elif child.type in REDIRECTS:
                inside.append(child)
            else:
                argv += self._argument(child, scope)
        own = self._redirections.read((*inside, *behind.redirects), scope, errors_too=behind.errors_too)
        return self._run(
            SimpleCommand(
                argv=(*argv, *own.arguments),
                environment=tuple(environment),
                redirections=own.files,
                stdin=own.stdin,
            ),
            scope,
        )

    def _run(self, command: SimpleCommand, scope: ReaderScope) -> Run:
        noted = self._note(command, scope)
        if not command.argv or not isinstance(command.argv[0], Literal):
            raise UnclearError(f"which command {command.name} is, is not known before it runs: write it out")
        if command.name in INSTEAD_OF_COMMANDS:
            raise UnclearError(INSTEAD_OF_COMMANDS[command.name])
        if command.name == "cd":
            noted = self.commands[-1] = self._cd(noted, scope)
        scope.head = scope.head and command.name == "set"
        return Run(noted)

    def _cd(self, command: SimpleCommand, scope: ReaderScope) -> SimpleCommand:
        _, *words = command.argv
        words = words[1:] if words[:1] == [Literal("--")] else words
        if not scope.head or len(words) != 1 or not isinstance(words[0], Literal) or words[0].text[:1] in ("-", ""):
            scope.cwd = ""  # nowhere that is known: what follows is still judged
            raise UnclearError(_CD)
        scope.cwd = posixpath.join(scope.cwd or "", words[0].text)
        scope.values.pop("PWD", None)
        scope.values.pop("OLDPWD", None)
        return replace(command, argv=(Literal("cd"), words[0]))

    def _argument(self, node: Node, scope: ReaderScope) -> tuple[Word, ...]:
        """Read one word; one that cannot be read stays as written, so that the command around it is still judged."""
        try:
            return tuple(self._words.words(node, scope))
        except UnclearError as error:
            self._keep(error)
            self._look_inside(node, scope)
            return (Text((self._words.shown(node),)),)

    def _environment(self, node: Node, scope: ReaderScope) -> list[tuple[str, str]]:
        try:
            name, value = self._named(node, scope)
        except UnclearError as error:
            self._keep(error)
            return []
        if not isinstance(value, Literal):
            self._keep(UnclearError(f"the value of {name} is not known before it runs: write it out"))
        return [(name, shown(value))]

    def _test(self, node: Node, scope: ReaderScope, behind: Behind) -> Step | None:
        """Read ``[ … ]`` as words; its operators look at values and files, and evaluate nothing."""
        own = self._redirections.read(behind.redirects, scope, errors_too=behind.errors_too)
        if node.children[0].type != "[" or own.arguments:
            raise UnclearError(INSTEAD["[["])
        argv: list[Word] = []
        for part in _parts(node):
            if part.is_named and part.type != "test_operator":
                argv += self._argument(part, scope)
                continue
            argv.append(Literal(self._words.shown(part)))
            if part.type not in _TESTS | {"[", "]", "test_operator"}:
                raise unclear(node, self._source)
        start = len(self.commands)
        command = SimpleCommand(argv=tuple(argv), redirections=own.files, stdin=own.stdin)
        return self._before_pipe(self._run(command, scope), start, scope, behind)

    def _redirected(self, node: Node, scope: ReaderScope, behind: Behind) -> Step | None:
        """Read a redirected statement: of a list or a pipeline only the last command is redirected."""
        body = node.child_by_field_name("body")
        redirects = [child for child in node.children if child.type in REDIRECTS]
        if body is None:
            files = self._redirections.read(redirects, scope).files
            if any(each.target.text.startswith(("/dev/tcp/", "/dev/udp/")) for each in files):
                raise ForbiddenError("whether a port answers, nc says: nc -z -w 3 HOST PORT")
            self._note(SimpleCommand(argv=(), redirections=files), scope)
            raise UnclearError(_NO_COMMAND)
        piped, following = self._redirections.rest(redirects)
        inner = replace(behind, redirects=(*redirects, *behind.redirects), piped=(*piped, *behind.piped))
        return self._chained(self._statement(body, scope, inner), following, scope, NOTHING)


def _parts(node: Node) -> Iterable[Node]:
    for child in node.children:
        if child.type in _EXPRESSIONS:
            yield from _parts(child)
        else:
            yield child
