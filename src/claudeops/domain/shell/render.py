"""Renders a judged tree as text that contains nothing else.

bash is richer than any judge can model: it has builtins that evaluate their arguments, aliases, functions, and
variables that change what a name means. So the text that runs is not the one that was judged, but one made from the
tree: programs by absolute path (or behind ``/usr/bin/env --`` where the path is not ours to know), every word in single
quotes, and builtins only where no program does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import astuple

from claudeops.domain.shell import parse
from claudeops.domain.shell.lexical import LONGEST_COMMAND
from claudeops.domain.shell.values import (
    Arithmetic,
    Array,
    Block,
    Branch,
    Case,
    Chained,
    Export,
    ForEach,
    Glob,
    Group,
    Literal,
    Loop,
    Negated,
    Part,
    Pipeline,
    ProcessSubstitution,
    Redirected,
    Redirection,
    Rounds,
    Run,
    SimpleCommand,
    Step,
    Subshell,
    Substitution,
    UnclearError,
    Variable,
    Word,
)
from claudeops.domain.text import regex

BUILTINS: Final = frozenset(
    {"cd", "read", "set", "exit", "break", "continue", "wait", "jobs", "times", "umask", "ulimit", "type", "command"}
)
"""Commands that no program can replace; their arguments are constant."""

_PROGRAM: Final = regex.Pattern(r"/[\w./:+-]+")
_LOOPS: Final = frozenset({"break", "continue"})
_ONCE: Final = "for claudeops_round in 1"  # a loop of one round, for ``break`` and ``continue``
_DESCRIPTOR: Final = regex.Pattern(r"\d-?")
_SUM: Final = regex.Pattern(r"[\d\s()+*/%<>=!&|^~?:,-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunText:
    """A command that runs as a text of its own, in a group: the argument of ``eval``."""

    text: str


def render(block: Block, commands: Mapping[int, SimpleCommand | RunText], *, bash: bool) -> str:
    """Return a tree as text; ``commands`` are its simple commands as they run, by their numbers.

    ``bash``: False for a shell that only promises POSIX. Raises `UnclearError` for a tree without such a text. The text
    is parsed again: if that yields other commands, it is refused as well.
    """
    writer = _Writer(commands=commands, bash=bash)
    text = writer.text(block) or writer.nothing()
    if len(text) > LONGEST_COMMAND:
        raise UnclearError(f"written out the command has more than {LONGEST_COMMAND} characters: split it")
    again = parse(text)
    if (
        again.problem
        or again.refusal
        or sorted(_outlines(again.commands), key=repr) != sorted(writer.outlines, key=repr)
    ):
        raise UnclearError("written out the command reads differently: write it more plainly")
    return text


def quoted(text: str) -> str:
    """Return a word in single quotes. A newline in it stays one: nothing in single quotes has a special meaning."""
    return "'" + text.replace("'", "'\\''") + "'"


def _outlines(commands: tuple[SimpleCommand, ...]) -> list[tuple[str | None, ...]]:
    return [_outline(command.argv) for command in commands if command.argv]


def _outline(argv: tuple[Word, ...]) -> tuple[str | None, ...]:
    """Return the words of a command, None for dynamic ones."""
    return tuple(word.text if word.constant and not word.parts else None for word in argv)


@dataclass(frozen=True, slots=True)
class _Level:
    """How many loops of the new text must be left in order to leave one of the original text."""

    to_break: int
    to_continue: int


@dataclass(kw_only=True, slots=True)
class _Writer:
    """Writes one text."""

    commands: Mapping[int, SimpleCommand | RunText]
    bash: bool
    outlines: list[tuple[str | None, ...]] = field(default_factory=list)  # of the commands, in their order
    _levels: tuple[_Level, ...] = ()  # the enclosing loops, innermost first

    def text(self, block: Block) -> str:
        """Return the whole text, one statement per line."""
        return "\n".join(self._step(step) for step in block)

    # --- steps ------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> str:
        return _WRITERS[type(step)](self, step)

    def _block(self, block: Block) -> str:
        return "; ".join(self._step(step) for step in block) or self.nothing()

    def nothing(self) -> str:
        """Write a command that does nothing."""
        self.outlines.append((":",))
        return ":"

    def _operand(self, step: Step) -> str:
        """Write an operand of an operator."""
        text = self._step(step)
        return f"{{ {text}; }}" if isinstance(step, Pipeline | Chained | Negated | Export) else text

    def _apart(self, write: Callable[[], str]) -> str:
        """Write a part that runs in a shell of its own, and so cannot leave the enclosing loops."""
        outer, self._levels = self._levels, ()
        try:
            return write()
        finally:
            self._levels = outer

    def _within(self, level: _Level, block: Block) -> str:
        outer, self._levels = self._levels, (level, *self._levels)
        try:
            return self._block(block)
        finally:
            self._levels = outer

    def run(self, step: Run) -> str:
        command = self.commands.get(step.command.number, step.command)
        if isinstance(command, RunText):
            self.outlines += _outlines(parse(command.text).commands)
            around = step.command
            return self._with_redirections(f"{{ {command.text}\n}}", around.redirections, around.stdin)
        words = [f"{name}={self._word(value)}" for name, value in command.assignments]
        words += self._argv(command.argv)
        if command.argv:
            self.outlines.append(self._outline(command.argv, words[len(command.assignments) :]))
        program = bool(command.argv) and command.argv[0].text not in BUILTINS
        return self._with_redirections(" ".join(words), command.redirections, command.stdin, program=program)

    def _with_redirections(
        self, text: str, redirections: tuple[Redirection, ...], stdin: Word | None, *, program: bool = False
    ) -> str:
        stdin = None if stdin is None or stdin.implied else stdin
        if stdin is None or self.bash:
            return _around(text, self._redirections(redirections, stdin))
        if not program or not stdin.constant:
            raise UnclearError("a here-document for this is not something that every shell has: run bash -c there")
        fed = stdin.text if stdin.document else f"{stdin.text}\n"
        self.outlines.append(("/usr/bin/env", "--", "printf", "%s", fed))
        return f"/usr/bin/env -- 'printf' '%s' {quoted(fed)} | {_around(text, self._redirections(redirections, None))}"

    def _outline(self, argv: tuple[Word, ...], words: list[str]) -> tuple[str | None, ...]:
        if argv[0].text in _LOOPS:
            return tuple(words)
        plain = argv[0].text in BUILTINS or argv[0].text.startswith("/")
        prefix: tuple[str | None, ...] = () if plain else ("/usr/bin/env", "--")
        visible = (Word(text=word.written) if word.written is not None else word for word in argv if not word.implied)
        return (*prefix, *_outline(tuple(visible)))

    def _argv(self, argv: tuple[Word, ...]) -> list[str]:
        if not argv:
            return []
        name, arguments = argv[0].text, argv[1:]
        if name in BUILTINS:
            return self._builtin(name, arguments)
        if not argv[0].constant:
            raise UnclearError(f"which command {name} is, is not known before it runs: write it out")
        program = name if _PROGRAM.fullmatch(name) else quoted(name)
        program = program if name.startswith("/") else f"/usr/bin/env -- {program}"
        return [program, *(self._word(word) for word in arguments if not word.implied)]

    def _builtin(self, name: str, arguments: tuple[Word, ...]) -> list[str]:
        if name in _LOOPS:
            return self._leave(name, arguments)
        last_status = len(arguments) == 1 and arguments[0].parts in {(Variable("?"),), (Variable("?", quoted=False),)}
        if not (name == "exit" and last_status) and not all(word.constant and not word.parts for word in arguments):
            raise UnclearError(f"what {name} is given is not known before it runs: write it out")
        return [name, *(self._word(word) for word in arguments)]

    def _leave(self, name: str, arguments: tuple[Word, ...]) -> list[str]:
        count = int(arguments[0].text) if arguments else 1
        if not 0 < count <= len(self._levels):
            raise UnclearError(f"{name} is in no loop that it could leave")
        *inner, last = self._levels[:count]
        loops = sum(level.to_break for level in inner) + (last.to_break if name == "break" else last.to_continue)
        return [name, str(loops)]

    def array(self, step: Array) -> str:
        self._needs_bash("an array")
        return f"{step.name}=( {' '.join(map(self._word, step.words))} )"

    def export(self, step: Export) -> str:
        return f"export {step.name}={self._word(step.value)}"

    def redirected(self, step: Redirected) -> str:
        if step.step is None:  # ``$(< path)``
            self._needs_bash("$(< file)")
            return self._redirections(step.redirections, None)
        inner = self._step(step.step)
        compound = isinstance(step.step, Group | Subshell | Branch | Loop | ForEach | Case)
        text = inner if compound else f"{{ {inner}; }}"
        if step.stdin is not None and not isinstance(step.step, Branch | Loop):
            text = f"if {self.nothing()}; then {text}; fi"  # the parser knows no here-string behind the others
        if step.stdin is not None and step.redirections:  # the parser accepts only one of them here
            text, stdin = f"{{ {self._with_redirections(text, (), step.stdin)}; }}", None
        else:
            stdin = step.stdin
        return self._with_redirections(text, step.redirections, stdin)

    def pipeline(self, step: Pipeline) -> str:
        return " | ".join(self._apart(partial(self._operand, each)) for each in step.steps)

    def chained(self, step: Chained) -> str:
        left = (
            self._step(step.left) if isinstance(step.left, Chained | Pipeline | Negated) else self._operand(step.left)
        )
        right = self._step(step.right) if isinstance(step.right, Pipeline | Negated) else self._operand(step.right)
        return f"{left} {step.operator} {right}"

    def negated(self, step: Negated) -> str:
        if isinstance(step.step, Pipeline | Run | Subshell):
            return f"! {self._step(step.step)}"
        return f"! ( {self._apart(partial(self._step, step.step))} )"  # the parser does not know ``! {``

    def subshell(self, step: Subshell) -> str:
        return f"( {self._apart(partial(self._block, step.block))} )"

    def group(self, step: Group) -> str:
        return f"{{ {self._block(step.block)}; }}"

    def branch(self, step: Branch) -> str:
        otherwise = f"; else {self._block(step.otherwise)}" if step.otherwise else ""
        return f"if {self._block(step.condition)}; then {self._block(step.then)}{otherwise}; fi"

    def loop(self, step: Loop) -> str:
        level, keyword = _Level(1, 1), "until" if step.until else "while"
        return f"{keyword} {self._within(level, step.condition)}; do {self._within(level, step.body)}; done"

    def for_each(self, step: ForEach) -> str:
        level = _Level(1 if step.alone else 2, 1)
        return f"for {step.name} in {' '.join(map(self._word, step.words))}; do {self._within(level, step.body)}; done"

    def rounds(self, step: Rounds) -> str:
        """Write all rounds; where one may be left, each is a loop of one round, within a loop of one round."""
        if not any(_leaves(block) for block in step.blocks):
            return f"{{ {'; '.join(self._block(block) for block in step.blocks) or self.nothing()}; }}"
        rounds = []
        for block in step.blocks:
            if isinstance(block[0], ForEach) and not block[0].alone:
                rounds.append(self.for_each(block[0]))
            else:
                rounds.append(f"{_ONCE}; do {self._within(_Level(2, 1), block)}; done")
        return f"{_ONCE}; do {'; '.join(rounds)}; done"

    def case(self, step: Case) -> str:
        items = [f"{'|'.join(map(self._word, patterns))}) {self._block(block)} ;;" for patterns, block in step.items]
        return f"case {self._word(step.subject)} in {' '.join(items)} esac"

    # --- words ------------------------------------------------------------------------------------------

    def _word(self, word: Word) -> str:
        if word.written is not None:
            return quoted(word.written)
        if word.parts:
            return "".join(map(self._part, word.parts))
        if not word.constant:
            raise UnclearError(f"{word.text[:80]!r} cannot be written down again in plain words: write it out")
        return quoted(word.text)

    def _part(self, part: Part) -> str:
        match part:
            case Literal(text):
                return quoted(text)
            case Glob(text):
                return text
            case Variable(expression, inside):
                return f'"${{{expression}}}"' if inside else f"${{{expression}}}"
            case Substitution(block, inside):
                text = f"$({self._apart(partial(self._block, block))})"
                return f'"{text}"' if inside else text
            case ProcessSubstitution(operator, block):
                self._needs_bash("a process substitution")
                return f"{operator}({self._apart(partial(self._block, block))})"
            case Arithmetic(text):
                if not _SUM.fullmatch(text):
                    raise UnclearError(f"the sum {text[:40]!r} is not plain: write the number out")
                return f'"$(({text}))"'

    def _redirections(self, redirections: tuple[Redirection, ...], stdin: Word | None) -> str:
        texts = [] if stdin is None else [self._input(stdin)]  # the parser wants it first
        for each in redirections:
            target = "" if each.target is None else self._target(each.operator, each.target)
            if each.operator in {"&>", "&>>"}:  # in a POSIX shell ``&`` would mean the background
                texts.append(f"{each.operator[1:]}{target} 2>&1")
            else:
                texts.append(f"{each.descriptor}{each.operator}{target}")
        return " ".join(texts)

    def _target(self, operator: str, target: Word) -> str:
        if operator in {"<&", ">&"}:
            if not _DESCRIPTOR.fullmatch(target.text):
                raise UnclearError(f"{operator}{target.text[:40]} is not plain: write > and 2>&1")
            return target.text
        blank = " " if target.parts and isinstance(target.parts[0], ProcessSubstitution) else ""  # ``>>(`` is ``>>``
        return blank + self._word(target)

    def _input(self, stdin: Word) -> str:
        """Write a here-document or here-string as a here-string, which adds a newline at the end."""
        if stdin.document and stdin.constant:
            return f"<<<{quoted(stdin.text[:-1])}" if stdin.text else "</dev/null"
        if not stdin.document or not stdin.parts:
            return f"<<<{self._word(stdin)}"
        *parts, last = stdin.parts
        if not isinstance(last, Literal) or not last.text.endswith("\n"):
            raise UnclearError("the here-document cannot be written down again in plain words: write it out")
        return f"<<<{''.join(map(self._part, (*parts, Literal(last.text[:-1]))))}"

    def _needs_bash(self, what: str) -> None:
        if not self.bash:
            raise UnclearError(f"{what} is not something that every shell has: write it plainly, or run bash -c there")


def _around(text: str, redirections: str) -> str:
    return f"{text} {redirections}" if text and redirections else text or redirections


def _leaves(part: object) -> bool:
    """Whether there is a ``break`` or ``continue`` anywhere in a tree, for any loop."""
    if isinstance(part, Run):
        return part.command.name in _LOOPS
    inner = astuple(part) if isinstance(part, Struct) else part
    return isinstance(inner, tuple) and any(map(_leaves, inner))


_WRITERS: Final[Mapping[type, Callable[[_Writer, Any], str]]] = {
    Run: _Writer.run,
    Array: _Writer.array,
    Export: _Writer.export,
    Redirected: _Writer.redirected,
    Pipeline: _Writer.pipeline,
    Chained: _Writer.chained,
    Negated: _Writer.negated,
    Subshell: _Writer.subshell,
    Group: _Writer.group,
    Branch: _Writer.branch,
    Loop: _Writer.loop,
    ForEach: _Writer.for_each,
    Rounds: _Writer.rounds,
    Case: _Writer.case,
}
