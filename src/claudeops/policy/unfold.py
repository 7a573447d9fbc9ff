"""Removes the wrappers from a command, so that what ``sudo ssh host 'a; b'`` finally runs can be judged.

What a wrapper runs is put back in its canonical form, behind the wrapper in its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

import msgspec

from claudeops.domain.estate.strangers import Stranger
from claudeops.policy.arguments import CheckContext, check, form
from claudeops.policy.programs.find import executed, read_find
from claudeops.policy.rule_book import DROPPED, FIND, SHELLS, XARGS, RuleMatch
from claudeops.policy.rules import (
    Arguments,
    IncompleteError,
    RuleRefusedError,
    UnclearCommandError,
    Wrapper,
    assign_kinds,
    beyond,
    read_arguments,
    written,
)
from claudeops.policy.shell import parse
from claudeops.policy.shell.language import Given, Literal, Parsed, SimpleCommand, Word, shown
from claudeops.policy.shell.render import BUILTINS, render
from claudeops.structs import replace
from claudeops.text import regex

Runs: TypeAlias = Mapping[int, SimpleCommand]
"""Commands as they run, by their numbers."""

_ASSIGNMENT: Final = regex.Pattern(r"([A-Za-z_]\w*)=((?s:.*))")
_ONE_LINE_EACH: Final = ("-r", "-d", "\\n", "-n", "1")
_SHELL_OPTIONS: Final = frozenset({"-e", "-u", "-o"})


class Unfolded(msgspec.Struct, frozen=True, kw_only=True):
    """What a wrapper runs, and how it is put together again."""

    parsed: Parsed
    rebuilt: Callable[[Runs], SimpleCommand]  # raises `UnclearError`, `RuleRefusedError`
    own: Arguments = msgspec.field(default_factory=Arguments)  # the wrapper's own
    strangers: tuple[Stranger, ...] = ()  # reasons that refuse it where nobody is asked about them


class _Wrapped(msgspec.Struct, frozen=True, kw_only=True):
    """A wrapper's command line, taken apart."""

    wrapper: Wrapper
    found: RuleMatch
    command: SimpleCommand
    own: Arguments
    rest: tuple[Word, ...]  # what it runs
    setting: CheckContext

    def before(self) -> tuple[Word, ...]:
        """Return the wrapper's own part in its canonical form, up to what it runs."""
        words: list[Word] = []
        for given, subcommand in self.found.steps:
            words += [*written(given), Literal(subcommand)]
        words += map(Literal, self.wrapper.always.split())
        words += written(
            (option, value if value is None or option.kind is None else form(option.kind, value, self.setting))
            for option, value in beyond(self.wrapper.always, self.own.options)
            if "--tty" not in option.names  # there is no terminal
        )
        words += self.own.positionals
        return (*words, Literal("--")) if self.wrapper.dashes else tuple(words)


def unfold(found: RuleMatch, wrapper: Wrapper, command: SimpleCommand, setting: CheckContext) -> Unfolded:
    """Return the commands that a wrapper runs. Raises `RuleRefusedError` when it may not be used like this."""
    if found.path == FIND:
        return _find(command, found.arguments, setting)
    own, rest = _split(wrapper, found)
    strangers = _check_values(wrapper, found, own, setting)
    wrapped = _Wrapped(wrapper=wrapper, found=found, command=command, own=own, rest=rest, setting=setting)
    if found.path in DROPPED:
        unfolded = _dropped(found.path, command, rest)
    elif found.path == XARGS:
        unfolded = _xargs(command, own, rest)
    else:
        unfolded = _text(wrapped) if wrapper.text else _program(wrapped)
    return replace(unfolded, own=own, strangers=strangers)


def _split(wrapper: Wrapper, found: RuleMatch) -> tuple[Arguments, tuple[Word, ...]]:
    """Separate a wrapper's own options and arguments from the command that follows them."""
    options, before = f"{wrapper.options} {found.shared}", wrapper.before.split()
    read = read_arguments(found.arguments, options, "ordered")
    given, own, rest = list(read.options), read.positionals[: len(before)], read.positionals[len(before) :]
    if wrapper.after_host and not read.dashed:
        again = read_arguments(rest, options, "ordered")
        given, rest = [*given, *again.options], again.positionals
    return Arguments(tuple(given), own), rest


def _check_values(wrapper: Wrapper, found: RuleMatch, own: Arguments, setting: CheckContext) -> tuple[Stranger, ...]:
    """Check a wrapper's own values; return the reasons that a person may be asked about."""
    values: list[tuple[str | None, Word, str]] = [
        (option.kind, Literal(value), option.names[0]) for option, value in (*found.given, *own.options) if value
    ]
    values += [(kind, word, "") for kind, word in assign_kinds(wrapper.before, own.positionals)]
    strangers = []
    for kind, word, name in values:
        reason = None if kind is None else check(kind, word, setting)
        if isinstance(reason, Stranger):
            strangers.append(reason)
        elif reason:
            raise RuleRefusedError(f"{found.path} {name}: {reason}" if name else f"{found.path}: {reason}")
    return tuple(strangers)


# --- programs -------------------------------------------------------------------------------------------


def _program(wrapped: _Wrapped) -> Unfolded:
    path, command = wrapped.found.path, wrapped.command
    if not wrapped.rest:
        raise RuleRefusedError(f"{path} without a command is not allowed")
    if _ASSIGNMENT.fullmatch(shown(wrapped.rest[0])):
        raise RuleRefusedError(f"{path}: set no variable for what it runs")
    words = (command.argv[0], *wrapped.before())
    return Unfolded(parsed=_alone(command, wrapped.rest), rebuilt=partial(_behind, path, command, words))


def _alone(command: SimpleCommand, argv: tuple[Word, ...]) -> Parsed:
    """Return one command that a wrapper starts with its own input."""
    return Parsed(commands=(replace(_fed(command), argv=argv, environment=(), redirections=(), number=0),))


def _behind(wrapper: str, outer: SimpleCommand, words: tuple[Word, ...], inner: Runs) -> SimpleCommand:
    return replace(outer, argv=(*words, *_started(wrapper, inner[0])))


def _started(wrapper: str, runs: SimpleCommand) -> tuple[Word, ...]:
    """Return the words of a command that a program can start; raises `UnclearCommandError` for shell builtins."""
    if runs.name in BUILTINS:
        raise UnclearCommandError(
            f"{wrapper} cannot run {runs.name}, which only a shell has: write it without {wrapper}"
        )
    if runs.environment:
        raise UnclearCommandError(f"{wrapper}: set no variable for what it runs")
    return runs.argv


def _dropped(path: str, command: SimpleCommand, rest: tuple[Word, ...]) -> Unfolded:
    """Leave a wrapper out; what ``env`` sets is set for the command alone."""
    environment = list(command.environment)
    while path == "env" and rest and (found := _ASSIGNMENT.fullmatch(shown(rest[0]))) and isinstance(rest[0], Literal):
        environment.append((found[1], found[2]))
        rest = rest[1:]
    if not rest:
        raise RuleRefusedError(f"{path} without a command is not allowed: it would show the environment")
    if shown(rest[0]) in BUILTINS:  # ``command cd`` would move the shell, and nobody would follow
        raise RuleRefusedError(f"write {shown(rest[0])} without {path}")
    inner = replace(command, argv=rest, environment=tuple(environment), number=0)
    return Unfolded(parsed=Parsed(commands=(inner,)), rebuilt=lambda runs: replace(runs[0], number=command.number))


def _xargs(command: SimpleCommand, own: Arguments, rest: tuple[Word, ...]) -> Unfolded:
    """Read ``xargs``, which adds one line of its input to each call, as the last argument."""
    if not rest:
        raise RuleRefusedError("xargs without a command is not allowed")
    values = {option.names[0]: value for option, value in own.options}
    mark = values.get("-I")
    given = Given(command.feeds)
    if mark is not None and (rest[-1] != Literal(mark) or any(mark in shown(word) for word in rest[:-1])):
        raise RuleRefusedError(f"xargs -I {mark}: {mark} must stand alone, as the last word")
    if values.get("-d", "\\n") not in {"\\n", "\n"}:
        raise RuleRefusedError("xargs takes one word a line: leave -d out")
    argv = (*rest[:-1], given) if mark is not None else (*rest, given)
    inner = replace(command, argv=argv, environment=(), redirections=(), stdin=None, piped=False, feeds=(), number=0)
    words = (command.argv[0], *map(Literal, _ONE_LINE_EACH))
    return Unfolded(
        parsed=Parsed(commands=(replace(inner, repeated=True),)), rebuilt=partial(_behind, XARGS, command, words)
    )


def _find(command: SimpleCommand, words: tuple[Word, ...], setting: CheckContext) -> Unfolded:
    search = read_find(words, setting)
    inner = tuple(
        replace(_fed(command), argv=argv, environment=(), redirections=(), repeated=True, number=number)
        for number, argv in enumerate(executed(search))
    )

    def rebuilt(runs: Runs) -> SimpleCommand:
        program = _started(FIND, runs[0]) if inner else ()
        return replace(command, argv=(command.argv[0], *search.written(program)))

    return Unfolded(parsed=Parsed(commands=inner), rebuilt=rebuilt)


# --- texts for another shell ----------------------------------------------------------------------------


def _text(wrapped: _Wrapped) -> Unfolded:
    found, command, own = wrapped.found, wrapped.command, wrapped.own
    shell = found.path in SHELLS
    if shell:
        text, fed = _shell(command, own, wrapped.rest), not wrapped.rest
        kept = [pair for pair in own.options if pair[0].names[0] in _SHELL_OPTIONS]
        words: tuple[Word, ...] = (command.argv[0], *written(kept), Literal("-c"))
    else:
        text, fed = (" ".join(_literals(wrapped.rest)), False) if wrapped.rest else (_stdin(command), True)
        reads = command.piped or (command.stdin is not None and not fed)
        alone = () if reads and "-n" not in own.names() else (Literal("-n"),)
        options = tuple(pair for pair in own.options if pair[0].names[0] != "-n")
        words = (command.argv[0], *alone, *replace(wrapped, own=replace(own, options=options)).before())
    outer = replace(command, stdin=None) if fed else command
    read = parse(text, known=wrapped.setting.place.variables if shell else {})
    inherits = {each.number for each in read.commands if each.stdin is None}  # the outer command writes that input

    def rebuilt(runs: Runs) -> SimpleCommand:
        plain = {number: replace(run, stdin=None) if number in inherits else run for number, run in runs.items()}
        return replace(outer, argv=(*words, Literal(render(read.block, plain, bash=found.path == "bash"))))

    return Unfolded(parsed=_within(read, outer if shell else replace(outer, cwd=None)), rebuilt=rebuilt)


def _literals(words: tuple[Word, ...]) -> tuple[str, ...]:
    if not all(isinstance(word, Literal) for word in words):
        raise UnclearCommandError("what it runs is not known before it runs: write it out, in single quotes")
    texts = tuple(map(shown, words))
    if len(texts) > 1 and any(" " in text and not {"'", '"'} & set(text) for text in texts):
        raise RuleRefusedError(
            "ssh joins its words into one text: put the whole command in quotes, ssh HOST 'COMMAND …'"
        )
    return texts


def _shell(command: SimpleCommand, own: Arguments, words: tuple[Word, ...]) -> str:
    """Return the text that a shell is given: behind ``-c``, or as its input."""
    if "-c" not in own.names():
        if words:
            raise UnclearCommandError("scripts are not judged: write their commands out")
        return _stdin(command)
    if len(words) != 1:
        raise UnclearCommandError("after -c write the whole text in single quotes, and nothing behind it")
    return _literals(words)[0]


def _stdin(command: SimpleCommand) -> str:
    if command.stdin is not None:
        return command.stdin
    if command.piped or command.redirections:
        raise UnclearCommandError(
            "a shell without known commands is not allowed: write them after -c, in single quotes"
        )
    raise IncompleteError("there is no terminal here: name the command that is to run")


def _within(parsed: Parsed, command: SimpleCommand) -> Parsed:
    """Return a text's commands with the input and the directory of the shell that runs them."""
    fed = _fed(command)
    inside = tuple(
        replace(
            inner,
            stdin=fed.stdin if inner.stdin is None else inner.stdin,
            piped=inner.piped or fed.piped,
            feeds=(*fed.feeds, *inner.feeds),
            repeated=inner.repeated or fed.repeated,
            cwd=fed.cwd if inner.cwd is None else inner.cwd,
        )
        for inner in parsed.commands
    )
    return replace(parsed, commands=inside)


def _fed(command: SimpleCommand) -> SimpleCommand:
    """Return a wrapper with its redirected input added to its feeds, because the inner command reads that as well."""
    inputs = tuple(each for each in command.redirections if each.operator == "<")
    if not inputs:
        return command
    return replace(command, feeds=(SimpleCommand(argv=(), redirections=inputs),), piped=True)
