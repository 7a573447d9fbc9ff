"""Generated command trees, and what a shell must run of them: the programs and arguments, in whatever order pipes give.

The programs are three: one succeeds, one fails, one prints its arguments. So a tree can be walked here just as a shell
would walk it, and what the shell really executed can be compared.
"""

# ruff: noqa: E501 - tables
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from claudeops.domain.shell.values import (
    Array,
    Block,
    Branch,
    Case,
    Chained,
    Export,
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
    Substitution,
    Variable,
    Word,
    WordKind,
)

NASTY = (
    *("", " ", "a b", "it's", "''", '"', "\\", "\\'", "$x", "${x}", "$(id)", "`id`", "!", "!!", "~", "~/a", "*", "?", "[a]"),
    *("{a,b}", "{1..3}", "a=b", "-n", "--", "-v", "a[$(id)]", "%n", "#", "a#b", ";", "&", "&&", "|", "<", ">", ">x", "2", "1"),
    *("if", "then", "done", "esac", "[[", "]]", "[", "]", "{", "}", "time", "function", "x\ny", "\n", "\t", "é", "日本", "(", ")"),
    *("<<E", "E", "$'a'", "\\n", "a\\", "^a^b", "in", "do", "=", "+", "/etc/passwd", "/dev/fd/63", "coproc"),
)  # fmt: skip
VALUES = ("a", "b2", "web-1", "x.y")
NAMES = ("one", "two", "three")


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Where the three programs are."""

    ok: str = "/usr/bin/ok"
    no: str = "/usr/bin/no"
    say: str = "/usr/bin/say"


class TreeMaker:
    """Makes trees in the form in which the reader would give them back.

    ``unrolled``: loops over known values as well, and here-strings for anything: the reader gives those back otherwise.
    """

    def __init__(self, seed: int, programs: Programs, *, unrolled: bool = False) -> None:
        self._unrolled = unrolled
        self._random = random.Random(seed)  # noqa: S311 - repeatable is what it is to be
        self._programs = programs
        self._set: list[str] = []
        self._piped = 0  # what prints into a pipe whose reader has gone fails, or does not

    def block(self) -> Block:
        """Return a new tree."""
        self._set = []
        return tuple(self._step(3) for _ in range(self._random.randint(1, 3)))

    def _step(self, depth: int) -> Step:
        if depth == 0 or self._random.random() < 0.3:
            return self._run()
        make: Callable[[int], Step] = self._random.choice(
            (
                *(self._pipeline, self._chained, self._negated, self._subshell, self._group, self._branch, self._loop),
                *(self._for_each, self._redirected, self._assign, self._assign, self._case),
                *((self._rounds,) if self._unrolled else ()),
            )
        )
        return make(depth - 1)

    def _block(self, depth: int) -> Block:
        """Make statements whose variables nothing behind them uses: they may not have run, or in another shell."""
        known = list(self._set)
        steps = tuple(self._step(depth) for _ in range(self._random.randint(1, 2)))
        self._set = known
        return steps

    def _operand(self, depth: int) -> Step:
        known = list(self._set)
        step = self._step(depth)
        self._set = known
        return Group((step,)) if isinstance(step, Pipeline | Chained | Negated) else step

    def _run(self, _depth: int = 0) -> Run:
        names = [self._programs.ok, self._programs.no, *([] if self._piped else [self._programs.say])]
        name = self._random.choice(names)
        words = [self._word() for _ in range(self._random.randint(0, 3))]
        return Run(SimpleCommand(argv=(Word(text=name), *words)))

    def _word(self) -> Word:
        kind = self._random.random()
        if kind < 0.7:
            return Word(text="".join(self._random.choice(NASTY) for _ in range(self._random.randint(1, 3))))
        if kind < 0.85 and self._set:
            return dynamic(Variable(self._random.choice(self._set)))
        return dynamic(Literal("x="), self._substitution())

    def _substitution(self) -> Substitution:
        values = tuple(Word(text=self._random.choice(VALUES)) for _ in range(self._random.randint(0, 3)))
        return Substitution((Run(SimpleCommand(argv=(Word(text=self._programs.say), *values))),))

    def _assign(self, _depth: int) -> Run:
        name = self._random.choice(NAMES)
        value = dynamic(self._substitution())
        self._set.append(name)
        return Run(SimpleCommand(argv=(), assignments=((name, value),)))

    def _pipeline(self, depth: int) -> Step:
        self._piped += 1
        left = self._operand(depth)
        self._piped -= 1
        return Pipeline((left, self._operand(depth)))

    def _chained(self, depth: int) -> Step:
        left = self._operand(depth)
        operators = [self._random.choice(["&&", "||"]) for _ in range(self._random.randint(1, 2))]
        for operator in operators:
            left = Chained(left, operator, self._operand(depth))
        return left

    def _negated(self, depth: int) -> Step:
        step = self._operand(depth)
        return Negated(step if isinstance(step, Run | Subshell) else Subshell((step,)))

    def _subshell(self, depth: int) -> Step:
        return Subshell(self._block(depth))

    def _group(self, depth: int) -> Step:
        return Group(self._block(depth))

    def _branch(self, depth: int) -> Step:
        otherwise = self._block(depth) if self._random.random() < 0.5 else ()
        return Branch(self._block(depth), self._block(depth), otherwise)

    def _loop(self, depth: int) -> Step:
        """Make a loop that is never entered, or left in its first round."""
        until = self._random.random() < 0.5
        end = Run(SimpleCommand(argv=(Word(text=self._programs.ok if until else self._programs.no),)))
        go_on = Run(SimpleCommand(argv=(Word(text=self._programs.no if until else self._programs.ok),)))
        if self._random.random() < 0.5:
            return Loop((self._run(), end), self._block(depth), until)
        leave = Run(SimpleCommand(argv=(Word(text="break"), Word(text="1"))))
        return Loop((go_on,), (*self._block(depth), leave), until)

    def _for_each(self, depth: int) -> Step:
        name = self._random.choice(NAMES)
        values = replace(self._substitution_word(), single=False)
        known = list(self._set)
        self._set.append(name)
        body = self._block(depth)
        self._set = known
        return ForEach(name, (values,), body)

    def _rounds(self, depth: int) -> Step:
        """Make a loop over known values, some of whose rounds are left or which is left in them."""
        return Rounds(tuple(self._round(depth) for _ in range(self._random.randint(1, 3))))

    def _round(self, depth: int) -> Block:
        value = Word(text=self._random.choice(VALUES))
        steps = (Run(SimpleCommand(argv=(), assignments=(("each", value),))), *self._block(depth))
        if self._random.random() < 0.6:
            leave = Run(SimpleCommand(argv=(Word(text=self._random.choice(["break", "continue"])),)))
            steps = (*steps, Chained(self._run(), self._random.choice(["&&", "||"]), leave), *self._block(depth))
        return steps

    def _substitution_word(self) -> Word:
        return dynamic(Substitution(self._substitution().block, quoted=False))

    def _redirected(self, depth: int) -> Step:
        output = (Redirection(operator=">", target=Word(text="/dev/null"), descriptor=self._random.choice(["", "2"])),)
        stdin = Word(text=self._random.choice(NASTY)) if self._random.random() < 0.5 else None
        outputs = output if stdin is None else ()
        kinds = [self._branch, self._loop]
        if stdin is None or self._unrolled:
            kinds += [self._for_each, self._case, self._subshell, self._group]
        inner = self._random.choice(kinds)(depth)
        return Redirected(inner, outputs, stdin)

    def _case(self, depth: int) -> Step:
        patterns = tuple(dynamic(Literal(value)) for value in self._random.sample(VALUES, 2))
        return Case(Word(text=self._random.choice(VALUES)), ((patterns, self._block(depth)),))


def dynamic(*parts: Literal | Variable | Substitution) -> Word:
    """Return a word of parts."""
    return Word(text="", kind=WordKind.DYNAMIC, parts=parts)


# --- what a shell does with them --------------------------------------------------------------------------


class _LeftError(Exception):
    """``break`` or ``continue``: ``str()`` is which."""


@dataclass(kw_only=True)
class Shell:
    """Walks a tree as a shell does, and notes what it executes."""

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

    def step(self, step: Step) -> tuple[int, str]:  # noqa: C901, PLR0911, PLR0912 - one case a kind of step
        """Run one statement."""
        match step:
            case Run(command):
                return self._command(command)
            case Pipeline(steps):
                results = [self._apart((each,)) for each in steps]
                return results[-1]
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
            case Redirected(step=inner, redirections=outputs):
                assert inner is not None
                status, printed = self.step(inner)
                return status, printed if not outputs or outputs[0].descriptor == "2" else ""
            case Branch(condition, then, otherwise):
                status, printed = self.block(condition)
                status, more = self.block(then if status == 0 else otherwise)
                return status, printed + more
            case Loop():
                return self._loop(step)
            case Rounds(blocks):
                return self._rounds(blocks)
            case ForEach(name, (values,), body):
                return self._for_each(name, values, body)
            case Case(subject, ((patterns, block),)):
                texts = {part.text for word in patterns for part in word.parts if isinstance(part, Literal)}
                return self.block(block) if subject.text in texts else (0, "")
        raise AssertionError(step)

    def _apart(self, block: Block) -> tuple[int, str]:
        before = dict(self.variables)
        result = self.block(block)
        self.variables = before
        return result

    def _command(self, command: SimpleCommand) -> tuple[int, str]:
        if not command.argv:
            ((name, value),) = command.assignments
            self.variables[name] = self._text(value)
            return 0, ""
        if command.name in {"break", "continue"}:
            raise _LeftError(command.name)
        argv = tuple(self._text(word) for word in command.argv)
        self.executed.append(argv)
        printed = " ".join(argv[1:]) + "\n" if argv[0] == self.programs.say else ""
        return int(argv[0] == self.programs.no), printed

    def _loop(self, loop: Loop) -> tuple[int, str]:
        status, printed = self.block(loop.condition)
        if (status == 0) is not loop.until:
            before = len(self.executed)
            try:
                _, more = self.block(loop.body)
            except _LeftError:
                more = self._printed_since(before)
            return 0, printed + more
        return 0, printed

    def _rounds(self, blocks: tuple[Block, ...]) -> tuple[int, str]:
        status, printed, before = 0, "", len(self.executed)
        for block in blocks:
            try:
                status, more = self.block(block)
                printed += more
            except _LeftError as left:
                status, printed = 0, self._printed_since(before)
                if str(left) == "break":
                    break
        return status, printed

    def _printed_since(self, start: int) -> str:
        """Return what a round printed that was left; only substitutions read it, and none holds a loop."""
        return "".join(" ".join(argv[1:]) + "\n" for argv in self.executed[start:] if argv[0] == self.programs.say)

    def _for_each(self, name: str, values: Word, body: Block) -> tuple[int, str]:
        status, printed = 0, ""
        for value in self._text(values).split():
            self.variables[name] = value
            status, more = self.block(body)
            printed += more
        return status, printed

    def _text(self, word: Word) -> str:
        return "".join(map(self._part, word.parts)) if word.parts else word.text

    def _part(self, part: object) -> str:
        match part:
            case Literal(text):
                return text
            case Variable(expression):
                return self.variables[expression]
            case Substitution(block):
                return self._apart(block)[1].rstrip("\n")
        raise AssertionError(part)


# --- comparing --------------------------------------------------------------------------------------------


def bare(tree: object) -> object:
    """Return a tree without what the reader notes beside it: texts of dynamic words, numbers, what feeds what."""
    match tree:
        case tuple():
            return tuple(map(bare, tree))
        case Run(command):
            assignments = tuple((name, bare(value)) for name, value in command.assignments)
            return ("run", bare(command.argv), assignments, bare(command.redirections), bare(command.stdin))
        case Redirection():
            return (tree.operator, tree.descriptor, bare(tree.target))
        case Word():
            return ("word", tree.text if not tree.parts else "", bare(tree.parts))
        case Array() | Export() | Rounds():
            raise AssertionError(tree)
        case _ if hasattr(tree, "__struct_fields__"):
            names = tree.__struct_fields__
            return (type(tree).__name__, *(bare(getattr(tree, name)) for name in names))
        case _:
            return tree
