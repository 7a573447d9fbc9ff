"""Writes judged steps as text that contains nothing else.

bash is richer than any judge can model: it has builtins that evaluate their arguments, aliases, functions, and
variables that change what a name means. So the text that runs is not the one that was judged, but one made from what
was read of it: programs by absolute path (or behind ``/usr/bin/env --`` where the path is not ours to know), every word
in single quotes, and builtins only where no program does the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

import msgspec

from claudeops.policy.shell import parse
from claudeops.policy.shell.language import (
    Block,
    Branch,
    Chained,
    Given,
    Glob,
    Group,
    LastStatus,
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
    StreamFile,
    Subshell,
    Text,
    UnclearError,
    Word,
    shown,
)
from claudeops.policy.shell.lexical import LONGEST_COMMAND
from claudeops.text import regex

BUILTINS: Final = frozenset({"cd", "exit", "set", "type", "command", "wait", "jobs", "times", "umask", "ulimit", ":"})
"""Commands that no program can replace; their arguments are literal."""

_ENV: Final = ("/usr/bin/env", "--")  # finds a program by its name, and only a program
_PROGRAM: Final = regex.Pattern(r"/[\w./:+-]+")
_STORED: Final = "text_"  # in front of a variable's name, so that it means nothing to any program


def render(block: Block, commands: Mapping[int, SimpleCommand], *, bash: bool) -> str:
    """Return steps as text; ``commands`` are their simple commands as they run, by their numbers.

    ``bash``: False for a shell that only promises POSIX. Raises `UnclearError` for steps without such a text. The text
    is parsed again: if that yields other commands, it is refused as well.
    """
    writer = _Writer(commands=commands, bash=bash)
    text = "\n".join(map(writer.step, block)) or writer.nothing()
    if len(text) > LONGEST_COMMAND:
        raise UnclearError(f"written out the command has more than {LONGEST_COMMAND} characters: split it")
    again = parse(text)
    outlines = [_outline(command.argv) for command in again.commands if command.argv]
    if again.problem or again.refusal or sorted(outlines, key=repr) != sorted(writer.outlines, key=repr):
        raise UnclearError("written out the command reads differently: write it more plainly")
    return text


def _stored(name: str) -> str:
    """Return a variable's name as it is written; one that has been written so stays."""
    return name if name.startswith(_STORED) else f"{_STORED}{name}"


def quoted(text: str) -> str:
    """Return a word in single quotes. A newline in it stays one: nothing in single quotes has a special meaning."""
    return "'" + text.replace("'", "'\\''") + "'"


def _quoted_anywhere(text: str) -> str:
    """Return a word as fish reads it too, where a backslash escapes in single quotes: it stands outside of them."""
    return "'" + "".join(f"'\\{sign}'" if sign in "'\\" else sign for sign in text) + "'"


def _outline(argv: Iterable[Word]) -> tuple[str | None, ...]:
    """Return the words of a command, None for what is not literal."""
    return tuple(word.text if isinstance(word, Literal) else None for word in argv)


class _Writer(msgspec.Struct, kw_only=True):
    """Writes one text."""

    commands: Mapping[int, SimpleCommand]
    bash: bool
    outlines: list[tuple[str | None, ...]] = msgspec.field(default_factory=list)  # of the commands, in their order

    # --- steps ------------------------------------------------------------------------------------------

    def step(self, step: Step) -> str:  # noqa: PLR0911 - one case a kind of step
        """Write one statement."""
        match step:
            case Run(command):
                return self._run(self.commands.get(command.number, command))
            case Set(name, value):
                return f"{_stored(name)}={self._word(value)}"
            case Redirected(inner, command):
                return self._redirected(inner, self.commands.get(command.number, command))
            case Pipeline(steps):
                return " | ".join(map(self._operand, steps))
            case Chained(left, operator, right):
                first = self.step(left) if isinstance(left, Chained | Pipeline | Negated) else self._operand(left)
                second = self.step(right) if isinstance(right, Pipeline | Negated) else self._operand(right)
                return f"{first} {operator} {second}"
            case Negated(inner):
                plain = isinstance(inner, Pipeline | Run | Subshell)
                return f"! {self.step(inner)}" if plain else f"! ( {self.step(inner)} )"  # the parser knows no ``! {``
            case Subshell(block):
                return f"( {self._block(block)} )"
            case Group(block):
                return f"{{ {self._block(block)}; }}"
            case Branch():
                return f"if {self._branch(step)}; fi"
        assert_never(step)

    def _branch(self, branch: Branch) -> str:
        text = f"{self._block(branch.condition)}; then {self._block(branch.then)}"
        match branch.otherwise:
            case ():
                return text
            case (Branch() as other,):
                return f"{text}; elif {self._branch(other)}"
        return f"{text}; else {self._block(branch.otherwise)}"

    def nothing(self) -> str:
        """Write a command that does nothing."""
        self.outlines.append((":",))
        return ":"

    def _block(self, block: Block) -> str:
        return "; ".join(map(self.step, block)) or self.nothing()

    def _operand(self, step: Step) -> str:
        text = self.step(step)
        return f"{{ {text}; }}" if isinstance(step, Pipeline | Chained | Negated) else text

    def _redirected(self, inner: Step, command: SimpleCommand) -> str:
        text = self.step(inner)
        if not isinstance(inner, Group | Subshell | Branch):
            text = f"{{ {text}; }}"
        if command.stdin is not None and not isinstance(inner, Branch):
            text = f"if {self.nothing()}; then {text}; fi"  # the parser knows no here-string behind the others
        if command.stdin is not None and command.redirections:  # the parser accepts only one of them here
            text, stdin = f"{{ {self._with_input(text, (), command.stdin, program=False)}; }}", None
        else:
            stdin = command.stdin
        return self._with_input(text, command.redirections, stdin, program=False)

    # --- commands ---------------------------------------------------------------------------------------

    def _run(self, command: SimpleCommand) -> str:
        if not command.argv or not isinstance(command.argv[0], Literal):
            raise UnclearError(f"which command {command.name} is, is not known before it runs: write it out")
        name, arguments = command.argv[0].text, command.argv[1:]
        builtin = name in BUILTINS
        prefix: tuple[str, ...] = ()
        if builtin:
            last_status = name == "exit" and arguments == (Text((LastStatus(),)),)
            if command.environment or not (last_status or all(isinstance(word, Literal) for word in arguments)):
                raise UnclearError(f"{name} takes literal words: write them out")
            if name == "command" and arguments[:1] not in {(Literal("-v"),), (Literal("-V"),)}:
                raise UnclearError("command runs what follows it: write that without command")
            program = name
        elif name.startswith("/"):
            program = name if _PROGRAM.fullmatch(name) else self._quoted(name)
        elif not name or "=" in name:  # env would set a variable
            raise UnclearError(f"{name!r} is not the name of a program")
        else:
            program, prefix = f"{' '.join(_ENV)} {self._quoted(name)}", _ENV
        words = [f"{variable}={self._quoted(value)}" for variable, value in command.environment]
        words += [program, *map(self._word, arguments)]
        self.outlines.append((*prefix, *_outline(command.argv)))
        return self._with_input(" ".join(words), command.redirections, command.stdin, program=not builtin)

    def _with_input(self, text: str, redirections: tuple[Redirection, ...], stdin: str | None, *, program: bool) -> str:
        """Write redirections, the input first: that is where the parser wants it."""
        targets = [
            f"{each.descriptor}{each.operator}{target if each.operator == '>&' else self._quoted(target)}"
            for each, target in ((each, each.target.text) for each in redirections)
        ]
        if stdin is None:
            return " ".join([text, *targets])
        if not stdin:
            return " ".join([text, "<'/dev/null'", *targets])
        if self.bash and stdin.endswith("\n"):
            return " ".join([text, f"<<<{self._quoted(stdin[:-1])}", *targets])
        if not program:
            raise UnclearError("a here-document for this is not something that every shell has: run bash -c there")
        self.outlines.append((*_ENV, "printf", "%s", stdin))
        return f"{' '.join(_ENV)} 'printf' '%s' {self._quoted(stdin)} | {' '.join([text, *targets])}"

    # --- words ------------------------------------------------------------------------------------------

    def _quoted(self, text: str) -> str:
        return quoted(text) if self.bash else _quoted_anywhere(text)

    def _word(self, word: Word) -> str:
        match word:
            case Literal(text):
                return self._quoted(text)
            case Text(parts):
                return "".join(map(self._part, parts))
            case StreamFile(block) if self.bash:
                return f"<({self._block(block)})"
            case StreamFile():
                raise UnclearError("<(…) is not something that every shell has: use a pipe, or run bash -c there")
            case Glob() | Given():
                raise UnclearError(f"{shown(word)[:60]!r} cannot be written as literal words: write the names out")
        assert_never(word)

    def _part(self, part: str | Output | StoredVariable | LastStatus) -> str:
        match part:
            case str():
                return self._quoted(part)
            case Output(block):
                return f'"$({self._block(block)})"'
            case StoredVariable(name):
                return f'"${{{_stored(name)}}}"'
            case LastStatus():
                return '"$?"'
        assert_never(part)
