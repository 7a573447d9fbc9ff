"""Removes the wrappers from a command, so that what ``sudo ssh host 'a; b'`` finally runs can be judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from claudeops.domain.estate.strangers import Stranger
from claudeops.domain.policy.arguments import Setting, check
from claudeops.domain.policy.places import ANY_DEPTH
from claudeops.domain.policy.rule_book import EVAL, FIND, FIND_EXPRESSION, SHELLS, XARGS, Found
from claudeops.domain.policy.rules import (
    Arguments,
    IncompleteError,
    RefusedError,
    UnclearCommandError,
    Wrapper,
    assign_kinds,
    option_table,
    read_arguments,
)
from claudeops.domain.shell import parse
from claudeops.domain.shell.render import BUILTINS, RunText, render
from claudeops.domain.shell.values import Parsed, SimpleCommand, Word, WordKind, refuse_value, refuse_variable
from claudeops.domain.text import regex

_EXECUTES: Final = frozenset({"-exec", "-execdir"})
_MOST_EXECUTED: Final = 256  # commands of one find, times its directories
_CHANGING: Final = frozenset({"cd", "read", "set", "shift", "exit", "return", "break", "continue", "eval"})
"""Commands that change the shell that runs them; ``command`` and the like may precede them."""

_IN_THIS_SHELL: Final = frozenset({"command", "builtin"})

Runs: TypeAlias = SimpleCommand | RunText
"""A command as it runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unfolded:
    """What a wrapper runs, and how it is reassembled."""

    parsed: Parsed
    rebuilt: Callable[[Sequence[Runs]], Runs]
    """Reassembles the wrapper from the inner commands as they run, in order; raises `UnclearError`, `RefusedError`."""


def unfold(found: Found, wrapper: Wrapper, command: SimpleCommand, setting: Setting) -> Unfolded:
    """Return the commands that a wrapper runs. Raises `RefusedError` when it may not be used like this."""
    outer = command
    if wrapper.elsewhere:
        command = replace(command, cwd=None)
    if found.path == FIND:
        return _find(command, found.arguments, setting)
    arguments, rest = _split(wrapper, found, setting)
    values = _check_values(found, arguments, setting)
    own = command.argv[: len(command.argv) - len(rest)]
    if found.path == EVAL:
        parsed = _eval(command, rest)
        return Unfolded(parsed=parsed, rebuilt=partial(_evaluated, parsed, bash=setting.place.local))
    if wrapper.text:
        parsed = _shell(command, arguments, rest) if found.path in SHELLS else _text(command, rest)
        return Unfolded(
            parsed=parsed, rebuilt=partial(_with_text, parsed, outer, own, fed=not rest, bash=found.path == "bash")
        )
    if wrapper.assignments:
        rest = _without_assignments(rest)
        own = command.argv[: len(command.argv) - len(rest)]
    mark = values.get("-I") if found.path == XARGS else None
    if found.path == XARGS:
        alone = "1" in {values.get("-n"), values.get("-L")}
        rest = _with_input(rest or (Word(text="echo"),), mark, command, alone=alone)
        command = replace(command, repeated=True, piped=False, feeds=(), stdin=None)  # xargs gives it no input
    else:
        command = _fed(command)
    if not rest:
        raise RefusedError(f"{found.path} without a command is not allowed")
    parsed = Parsed(commands=(replace(command, argv=rest, assignments=(), redirections=()),))
    if found.path in _IN_THIS_SHELL:
        return Unfolded(parsed=parsed, rebuilt=partial(_in_this_shell, found.path, outer))
    return Unfolded(parsed=parsed, rebuilt=partial(_with_command, found.path, outer, own, mark=mark))


def own_arguments(wrapper: Wrapper, found: Found, setting: Setting) -> Arguments:
    """Return a wrapper's own arguments, without the command that it runs. Raises `RefusedError`."""
    return _split(wrapper, found, setting)[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Executed:
    """A command after ``-exec``."""

    at: int  # where it begins among the words of find
    words: tuple[str, ...]


def _evaluated(parsed: Parsed, inner: Sequence[Runs], *, bash: bool) -> Runs:
    return RunText(text=render(parsed.block, dict(enumerate(inner)), bash=bash))


def _with_text(
    parsed: Parsed, outer: SimpleCommand, own: tuple[Word, ...], inner: Sequence[Runs], *, fed: bool, bash: bool
) -> Runs:
    """Put the text for another shell in its place: after the wrapper's own words, or into its standard input."""
    text = Word(text=render(parsed.block, dict(enumerate(inner)), bash=bash))
    if fed:
        return replace(outer, argv=own, stdin=text)
    return replace(outer, argv=(*own, text))


def _in_this_shell(wrapper: str, outer: SimpleCommand, inner: Sequence[Runs]) -> Runs:
    """Omit ``command`` and ``builtin``: which program or builtin runs has already been decided."""
    (runs,) = inner
    if isinstance(runs, RunText):
        raise UnclearCommandError(f"{wrapper} before eval is not clear: leave it out")
    return replace(runs, assignments=outer.assignments, redirections=outer.redirections, stdin=outer.stdin)


def _with_command(
    wrapper: str, outer: SimpleCommand, own: tuple[Word, ...], inner: Sequence[Runs], *, mark: str | None
) -> Runs:
    """Put the program that a wrapper starts after the wrapper's own words."""
    argv = _program_of(wrapper, inner[0])
    if mark is not None and any(mark in word.text for word in argv if word.written is None):
        raise UnclearCommandError(f"xargs -I {mark}: take a mark that is in no other word, such as {{}}")
    return replace(outer, argv=(*own, *argv))


def _program_of(wrapper: str, runs: Runs) -> tuple[Word, ...]:
    """Return the words of a command that a program can start; raises `UnclearCommandError` for shell builtins."""
    if isinstance(runs, RunText) or runs.name in BUILTINS:
        name = "eval" if isinstance(runs, RunText) else runs.name
        raise UnclearCommandError(f"{wrapper} cannot run {name}, which only a shell has: write it without {wrapper}")
    return runs.argv


def strangers_of(wrapper: Wrapper, found: Found, setting: Setting) -> list[Stranger]:
    """Return the reasons that refuse a wrapper where nobody is asked about them. Raises `RefusedError`."""
    arguments = own_arguments(wrapper, found, setting)
    values = [(option.kind, value) for option, value in (*found.given, *arguments.options)]
    values += zip(wrapper.before.split(), arguments.positionals, strict=False)
    reasons = (check(kind, value, setting) for kind, value in values if kind is not None and value is not None)
    return [reason for reason in reasons if isinstance(reason, Stranger)]


def _check_values(found: Found, arguments: Arguments, setting: Setting) -> dict[str, str]:
    """Check the values of a wrapper's own options, and return them by name."""
    values = {}
    for option, value in (*found.given, *arguments.options):
        if option.kind is not None and value is not None:
            reason = check(option.kind, value, setting)
            if reason and not isinstance(reason, Stranger):
                raise RefusedError(f"{found.path} {option.names[0]}: {reason}")
            values[option.names[0]] = value.text
    return values


def _split(wrapper: Wrapper, found: Found, setting: Setting) -> tuple[Arguments, tuple[Word, ...]]:
    """Separate a wrapper's own options and arguments from the command that follows them."""
    words, options, before = found.arguments, f"{wrapper.options} {found.shared}", wrapper.before.split()
    read = read_arguments(words, options, harmless=setting.names_only, mixed=False)
    given, own, rest = list(read.options), read.positionals[: len(before)], read.positionals[len(before) :]
    for kind, word in assign_kinds(wrapper.before, own, harmless=setting.names_only):
        reason = check(kind, word, setting)
        if reason and not isinstance(reason, Stranger):
            raise RefusedError(f"{found.path}: {reason}")
    if wrapper.after_host and not read.dashed:
        again = read_arguments(rest, options, harmless=setting.names_only, mixed=False)
        given, rest = [*given, *again.options], again.positionals
        if wrapper.dashes and not again.dashed:
            raise RefusedError(f"{found.path}: write -- in front of the command")
    return Arguments(tuple(given), own), rest


def _text(command: SimpleCommand, words: tuple[Word, ...]) -> Parsed:
    """Read the words as one text for another shell, or its standard input where there are none."""
    if not words:
        return _stdin(command)
    if not all(word.constant for word in words):
        raise UnclearCommandError("what it runs is not known before it runs: write it out, in single quotes")
    return _parsed(" ".join(word.text for word in words), command)


def _shell(command: SimpleCommand, arguments: Arguments, words: tuple[Word, ...]) -> Parsed:
    if "-c" not in arguments.names():
        if words:
            raise UnclearCommandError("scripts are not judged: write their commands out")
        return _stdin(command)
    if len(words) != 1 or not words[0].constant:
        raise UnclearCommandError("after -c write the whole text in single quotes, and nothing behind it")
    return _parsed(words[0].text, command)


def _stdin(command: SimpleCommand) -> Parsed:
    if command.stdin is None and not command.piped and not command.redirections:
        raise IncompleteError("there is no terminal here: name the command that is to run")
    if command.stdin is None or not command.stdin.constant:
        raise UnclearCommandError(
            "a shell without known commands is not allowed: write them after -c, in single quotes"
        )
    return _parsed(command.stdin.text, replace(command, stdin=None))


def _eval(command: SimpleCommand, words: tuple[Word, ...]) -> Parsed:
    """Read the words as one text for the same shell: its commands may not change anything for later ones."""
    parsed = _text(command, words or (Word(text=""),))
    for inner in parsed.commands:
        changes = inner.assignments and not inner.argv
        if changes or any(word.text in _CHANGING for word in inner.argv):
            raise UnclearCommandError("eval may not change the shell around it: write its commands out")
    if parsed.defines:
        raise UnclearCommandError("eval may not change the shell around it: write its commands out")
    return parsed


def _parsed(text: str, command: SimpleCommand) -> Parsed:
    parsed, command = parse(text), _fed(command)
    moves = any(word.text == "cd" for inner in parsed.commands for word in inner.argv)
    inherited = None if command.stdin is None else replace(command.stdin, implied=True)
    inside = tuple(
        replace(
            inner,
            stdin=inner.stdin or inherited,
            piped=inner.piped or command.piped,
            feeds=(*command.feeds, *inner.feeds),
            repeated=inner.repeated or command.repeated,
            cwd=inner.cwd or (None if moves else command.cwd),
        )
        for inner in parsed.commands
    )
    return replace(parsed, commands=inside)


def _fed(command: SimpleCommand) -> SimpleCommand:
    """Return a wrapper with its redirected input added to its feeds, because the inner command reads that as well."""
    inputs = tuple(each for each in command.redirections if each.operator in {"<", "<&"})
    if not inputs:
        return command
    return replace(command, feeds=(SimpleCommand(argv=(), redirections=inputs),), piped=True)


def _without_assignments(words: tuple[Word, ...]) -> tuple[Word, ...]:
    while words and regex.match(r"\w+=", words[0].text):
        name, _, value = words[0].text.partition("=")
        reason = refuse_variable(name, exported=True) or refuse_value(name, value)
        if reason or not words[0].constant:
            raise RefusedError(reason or f"{name} is not known before it runs: write it out")
        words = words[1:]
    return words


def _with_input(words: tuple[Word, ...], mark: str | None, command: SimpleCommand, *, alone: bool) -> tuple[Word, ...]:
    """Insert what xargs adds: words from its standard input, known only by the commands that produce them.

    ``alone``: one word at a time.
    """
    unknown = Word(text="(input)", kind=WordKind.DYNAMIC, single=alone, outputs=command.feeds)
    if mark is None:
        return (*words, replace(unknown, implied=True))
    taken = []
    for word in words:
        if word.text == mark:
            taken.append(replace(unknown, single=True, written=mark))
        elif mark in word.text:
            prefix = word.text.split(mark, maxsplit=1)[0]
            taken.append(Word(text=word.text, kind=WordKind.DYNAMIC, prefix=prefix, written=word.text))
        else:
            taken.append(word)
    return tuple(taken)


def _find(command: SimpleCommand, words: tuple[Word, ...], setting: Setting) -> Unfolded:
    """Check a find expression, and return the commands after ``-exec`` with patterns for the files found."""
    if not all(word.constant for word in words):
        raise UnclearCommandError("find: quote its patterns, and write everything out")
    texts = [word.text for word in words]
    follows = bool(texts) and texts[0] in {"-L", "-H", "-P"} and texts.pop(0) == "-L"
    start = next((i for i, text in enumerate(texts) if text.startswith(("-", "(", "!", ")", ","))), len(texts))
    roots = texts[:start] or ["."]
    for root in roots:
        reason = check("listing", Word(text=root), setting)
        if reason:
            raise RefusedError(f"find: {reason}")
    names, executed = _expression(texts[start:], setting, words=len(command.argv))
    if executed and follows:
        raise RefusedError("find -L with -exec is not allowed: it could follow a link to anywhere")
    patterns = [f"{root.rstrip('/')}/{ANY_DEPTH}/{name}" for root in roots for name in names]
    if len(executed) * len(patterns) > _MOST_EXECUTED:
        raise RefusedError(f"find -exec: more than {_MOST_EXECUTED} commands and directories: split the call")
    inner = [
        replace(
            _fed(command),
            argv=tuple(_found(text, pattern) for text in run.words),
            assignments=(),
            redirections=(),
            repeated=True,
            cwd=None,
        )
        for run in executed
        for pattern in patterns
    ]
    return Unfolded(
        parsed=Parsed(commands=tuple(inner)),
        rebuilt=partial(_finding, command, executed, names=len(patterns)),
    )


def _finding(command: SimpleCommand, executed: list[_Executed], inner: Sequence[Runs], *, names: int) -> Runs:
    """Put the programs after ``-exec`` in their places; they are the same for all patterns of files found."""
    argv: list[Word] = []
    done = 0
    for number, run in enumerate(executed):
        program = _program_of("find", inner[number * names])
        if any("{}" in word.text for word in program if word.written is None):
            raise UnclearCommandError("find -exec: {} must stand alone")
        argv += [*command.argv[done : run.at], *program]
        done = run.at + len(run.words)
    return replace(command, argv=(*argv, *command.argv[done:]))


def _found(text: str, pattern: str) -> Word:
    if text == "{}":
        return Word(text=pattern, kind=WordKind.PATTERN, single=False, written="{}")
    if "{}" in text:
        raise RefusedError("find -exec: {} must stand alone")
    return Word(text=text)


def _expression(texts: list[str], setting: Setting, *, words: int) -> tuple[list[str], list[_Executed]]:
    """Return the file names that can be found, as patterns, and the commands that run on them.

    ``words`` is the number of words in the whole command, which ends with the expression.
    """
    names, executed, rest = ["*"], [], list(texts)
    plain = not {"-o", "-or", "!", "-not", ",", "("} & set(texts)
    while rest:
        token = rest.pop(0)
        if token in _EXECUTES:
            ends = (i for i, text in enumerate(rest) if text == ";" or (text == "+" and rest[i - 1 : i] == ["{}"]))
            end = next(ends, 0)
            if not end:
                raise RefusedError("find -exec needs a command and a closing \\;")
            executed.append(_Executed(at=words - len(rest), words=tuple(rest[:end])))
            rest = rest[end + 1 :]
            continue
        option = option_table(FIND_EXPRESSION).get(token)
        if option is None or (option.kind and not rest):
            raise RefusedError(f"find {token} is not allowed: find may only look")
        value = rest.pop(0) if option.kind else ""
        reason = check(option.kind, Word(text=value), setting) if option.kind else None
        if reason:
            raise RefusedError(f"find {token}: {reason}")
        if token == "-name" and plain:  # noqa: S105 - an option of find
            names = [value]
    return names, executed
