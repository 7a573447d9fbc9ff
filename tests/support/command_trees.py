"""Generated steps, and what a shell must run of them: the programs and arguments, in whatever order pipes give.

The programs are three: one succeeds, one fails, one prints its arguments. So steps can be walked here just as a shell
would walk them, and what the shell really executed can be compared.
"""

# ruff: noqa: E501 - tables
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from claudeops.policy.shell.language import (
    Block,
    Branch,
    Chained,
    Group,
    Literal,
    Negated,
    Output,
    Pipeline,
    Redirected,
    Redirection,
    Run,
    Set,
    SimpleCommand,
    Step,
    StoredVariable,
    Subshell,
    Text,
    Word,
)

NASTY = (
    *("", " ", "a b", "it's", "''", '"', "\\", "\\'", "$x", "${x}", "$(id)", "`id`", "!", "!!", "~", "~/a", "*", "?", "[a]"),
    *("{a,b}", "{1..3}", "a=b", "-n", "--", "-v", "a[$(id)]", "%n", "#", "a#b", ";", "&", "&&", "|", "<", ">", ">x", "2", "1"),
    *("if", "then", "done", "esac", "[[", "]]", "[", "]", "{", "}", "time", "function", "x\ny", "\n", "\t", "é", "日本", "(", ")"),
    *("<<E", "E", "$'a'", "\\n", "a\\", "^a^b", "in", "do", "=", "+", "/etc/passwd", "/dev/fd/63", "coproc"),
)  # fmt: skip
VALUES = ("a", "b2", "web-1", "x.y")
NAMES = ("one", "two", "three")
STORED = "text_"  # in front of a variable's name where it is written


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Where the three programs are."""

    ok: str = "/usr/bin/ok"
    no: str = "/usr/bin/no"
    say: str = "/usr/bin/say"


class TreeMaker:
    """Makes steps in the form in which the reader would give them back."""

    def __init__(self, seed: int, programs: Programs) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable is what it is to be
        self._programs = programs
        self._set: list[str] = []
        self._assignable = True
        self._piped = 0  # what prints into a pipe whose reader has gone fails, or does not

    def block(self) -> Block:
        """Return new steps."""
        self._set, self._assignable = [], True
        return tuple(self._step(3) for _ in range(self._random.randint(1, 3)))

    def _step(self, depth: int) -> Step:
        if depth == 0 or self._random.random() < 0.3:
            return self._run()
        make: Callable[[int], Step] = self._random.choice(
            (
                *(self._pipeline, self._chained, self._negated, self._subshell, self._group, self._branch),
                *(self._redirected, self._store, self._store),
            )
        )
        return make(depth - 1)

    def _block(self, depth: int, *, assignable: bool | None = None) -> Block:
        """Make statements whose variables nothing behind them uses: they may not have run, or in another shell."""
        known, outside = list(self._set), self._assignable
        self._assignable = outside if assignable is None else assignable
        steps = tuple(self._step(depth) for _ in range(self._random.randint(1, 2)))
        self._set, self._assignable = known, outside
        return steps

    def _operand(self, depth: int, *, assignable: bool) -> Step:
        (step,) = self._block(depth, assignable=assignable)[:1]
        return Group((step,)) if isinstance(step, Pipeline | Chained | Negated) else step

    def _run(self, _depth: int = 0) -> Run:
        names = [self._programs.ok, self._programs.no, *([] if self._piped else [self._programs.say])]
        words = [self._word() for _ in range(self._random.randint(0, 3))]
        stdin = self._random.choice(NASTY) + "\n" if self._random.random() < 0.1 else None
        return Run(SimpleCommand(argv=(Literal(self._random.choice(names)), *words), stdin=stdin))

    def _word(self) -> Word:
        kind = self._random.random()
        if kind < 0.7:
            return Literal("".join(self._random.choice(NASTY) for _ in range(self._random.randint(1, 3))))
        if kind < 0.85 and self._set:
            return Text((StoredVariable(self._random.choice(self._set)),))
        return Text(("x=", self._output()))

    def _output(self) -> Output:
        values = tuple(Literal(self._random.choice(VALUES)) for _ in range(self._random.randint(0, 3)))
        return Output((Run(SimpleCommand(argv=(Literal(self._programs.say), *values))),))

    def _store(self, _depth: int) -> Step:
        if not self._assignable:
            return self._run()
        name = self._random.choice(NAMES)
        self._set.append(name)
        return Set(name, Text((self._output(),)))

    def _pipeline(self, depth: int) -> Step:
        self._piped += 1
        left = self._operand(depth, assignable=False)
        self._piped -= 1
        return Pipeline((left, self._operand(depth, assignable=False)))

    def _chained(self, depth: int) -> Step:
        left = self._operand(depth, assignable=False)
        for operator in [self._random.choice(["&&", "||"]) for _ in range(self._random.randint(1, 2))]:
            left = Chained(left, operator, self._operand(depth, assignable=False))
        return left

    def _negated(self, depth: int) -> Step:
        step = self._operand(depth, assignable=False)
        return Negated(step if isinstance(step, Run | Subshell) else Subshell((step,)))

    def _subshell(self, depth: int) -> Step:
        return Subshell(self._block(depth, assignable=True))

    def _group(self, depth: int) -> Step:
        return Group(self._block(depth))

    def _branch(self, depth: int) -> Step:
        otherwise = self._block(depth, assignable=False) if self._random.random() < 0.5 else ()
        return Branch(self._block(depth, assignable=False), self._block(depth, assignable=False), otherwise)

    def _redirected(self, depth: int) -> Step:
        output = Redirection(operator=">", target=Literal("/dev/null"), descriptor=self._random.choice(["", "2"]))
        inner = self._random.choice([self._branch, self._subshell, self._group])(depth)
        return Redirected(inner, SimpleCommand(argv=(), redirections=(output,)))


# --- what a shell does with them --------------------------------------------------------------------------


@dataclass(kw_only=True)
class Shell:
    """Walks steps as a shell does, and notes what it executes."""

    programs: Programs
    executed: list[tuple[str, ...]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)

    def block(self, block: Block) -> tuple[int, str]:
        """Run statements; return the last one's status and everything that was printed."""
        status, printed = 0, ""
        for step in block:
            status, more = self.step(step)
            printed += more
        return status, printed

    def step(self, step: Step) -> tuple[int, str]:  # noqa: C901, PLR0911 - one case a kind of step
        """Run one statement."""
        match step:
            case Run(command):
                return self._command(command)
            case Set(name, value):
                self.variables[name] = self._text(value)
                return 0, ""
            case Pipeline(steps):
                return [self._apart((each,)) for each in steps][-1]
            case Chained(left, operator, right):
                status, printed = self.step(left)
                if (status == 0) is (operator == "&&"):
                    status, more = self.step(right)
                    printed += more
                return status, printed
            case Negated(inner):
                status, printed = self.step(inner)
                return int(status == 0), printed
            case Subshell(block):
                return self._apart(block)
            case Group(block):
                return self.block(block)
            case Redirected(inner, command):
                status, printed = self.step(inner)
                hidden = [each for each in command.redirections if each.descriptor != "2"]
                return status, "" if hidden else printed
            case Branch(condition, then, otherwise):
                status, printed = self.block(condition)
                status, more = self.block(then if status == 0 else otherwise)
                return status, printed + more

    def _apart(self, block: Block) -> tuple[int, str]:
        before = dict(self.variables)
        result = self.block(block)
        self.variables = before
        return result

    def _command(self, command: SimpleCommand) -> tuple[int, str]:
        argv = tuple(self._text(word) for word in command.argv)
        self.executed.append(argv)
        printed = " ".join(argv[1:]) + "\n" if argv[0] == self.programs.say else ""
        return int(argv[0] == self.programs.no), printed

    def _text(self, word: Word) -> str:
        if isinstance(word, Literal):
            return word.text
        assert isinstance(word, Text)
        return "".join(map(self._part, word.parts))

    def _part(self, part: object) -> str:
        match part:
            case str():
                return part
            case StoredVariable(name):
                return self.variables[name]
            case Output(block):
                return self._apart(block)[1].rstrip("\n")
        raise AssertionError(part)


# --- comparing --------------------------------------------------------------------------------------------


def bare(tree: object) -> object:  # noqa: PLR0911 - one case a kind of value
    """Return steps without what the reader notes beside them: numbers, what feeds what."""
    match tree:
        case tuple():
            return tuple(map(bare, tree))
        case StoredVariable(name):
            return ("variable", name.removeprefix(STORED))
        case Set(name, value):
            return ("set", name.removeprefix(STORED), bare(value))
        case SimpleCommand():
            return ("command", bare(tree.argv), bare(tree.redirections), tree.stdin)
        case Redirection():
            return (tree.operator, tree.descriptor, bare(tree.target))
        case _ if hasattr(tree, "__struct_fields__"):
            names = tree.__struct_fields__
            return (type(tree).__name__, *(bare(getattr(tree, name)) for name in names))
        case _:
            return tree
