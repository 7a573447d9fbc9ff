"""Rules for commands: how one is written, and how a command's arguments are read by it.

A rule is plain text, as in the policy file:

``options``
    what may be given, separated by blanks: ``-q|--quiet`` (a flag with two names), ``-n|--lines=int:1000`` (a value
    of a kind), ``--color=?word`` (a value only when attached), ``-NUM`` (``-20``). What is not listed is refused.
``arguments``
    the kinds of the positional arguments, the last one with ``?``, ``*`` or ``+`` where it is optional or repeated.
    Kinds are defined in `claudeops.domain.policy.arguments`.
``tokens``, ``line``
    instead of both: a regular expression for each of the arguments, or for all of them joined by one space.
    ``excludes`` beside them must match nowhere in it. All are google-re2's, which have no look-around.

Several rules for one name are alternatives; the first that fits decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from claudeops.domain.shell.values import Word, WordKind
from claudeops.domain.text import regex

_NUMERIC_OPTION: Final = "-NUM"
_VALUE_PATTERN: Final = regex.Pattern(r"--[\w-]+=")


class RefusedError(Exception):
    """A command does not fit a rule; ``str()`` is the reason, for the model to read."""


class IncompleteError(RefusedError):
    """A command fits a rule, but something is missing at its end."""


class UnclearCommandError(RefusedError):
    """It is not clear what a command would do; at a tier that may ask, a person decides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandRule:
    """What one command may be given."""

    name: str  # with its subcommands: ``docker compose restart``
    tier: int = 1  # the lowest tier that may run it
    options: str = ""
    arguments: str = ""
    tokens: str = ""
    line: str | None = None  # "" = no arguments at all
    excludes: str = ""  # with either of them: a regular expression that no part of the joined arguments may match
    required: str = ""  # options that must be given; ``-l|-t`` = one of these
    action: str = ""  # what it changes: the kind of action, counted for each argument that names a service
    service: str = ""  # the service of an action whose arguments name none
    writes: bool = False  # it changes the session's own files
    output: str = ""  # ``names``: it prints names, which cannot be options
    deep: str = ""  # options with which it reads everything below its paths
    long_options: bool = False  # ``-name value``, as with find and openssl
    ordered: bool = False  # options come before the arguments, or are not options
    inert: bool = False  # it has no options that matter: it prints or compares its arguments, whatever they are
    check: str = ""  # a further check of all arguments, by its name in `claudeops.domain.policy.matching`
    hint: str = ""  # what to write instead of a common attempt
    approvals: int | msgspec.UnsetType = msgspec.UNSET  # how many people must say yes first; unset: no rule about it


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandGroup:
    """A command with subcommands."""

    name: str
    options: str = ""  # in front of the subcommand
    shared: bool = False  # the same options may also follow the subcommand


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapper:
    """A command that runs another one."""

    name: str
    options: str = ""
    before: str = ""  # kinds of the positional arguments in front of the command
    assignments: bool = False  # NAME=value may precede the command
    elsewhere: bool = False  # it runs the command on another host or in a container
    fresh: bool = False  # it runs the command in a new environment
    text: bool = False  # the rest is text for a shell, not arguments
    after_host: bool = False  # options may follow the first positional argument
    dashes: bool = False  # ``--`` must precede the command
    long_options: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """One option as a rule allows it."""

    names: tuple[str, ...]
    kind: str | None  # None: a flag
    attached: bool = False  # takes its value only as ``--name=value``


@dataclass(frozen=True, slots=True)
class Arguments:
    """A command's options and positional arguments."""

    options: tuple[tuple[Option, Word | None], ...]
    positionals: tuple[Word, ...]
    dashed: bool = False  # ``--`` was among them
    late: tuple[Word, ...] = ()  # option values after the first positional; some getopts take them for positional

    def names(self) -> frozenset[str]:
        """Return every name of every option given."""
        return frozenset(name for option, _ in self.options for name in option.names)


@lru_cache(maxsize=1024)
def option_table(options: str) -> Mapping[str, Option]:
    """Return the options of a rule, by each of their names."""
    table: dict[str, Option] = {}
    for token in options.split():
        spelled, given, kind = token.partition("=")
        names = tuple(spelled.split("|"))
        option = Option(names, kind.removeprefix("?") if given else None, kind.startswith("?"))
        table |= dict.fromkeys(names, option)
    return table


def read_arguments(
    words: tuple[Word, ...],
    options: str,
    *,
    harmless: Callable[[Word], bool],
    mixed: bool = True,
    long_options: bool = False,
) -> Arguments:
    """Separate options from positional arguments.

    ``harmless`` says whether a dynamic word counts as a positional argument, whatever it turns out to be. Without
    ``mixed`` everything from the first positional argument on is positional. Raises `RefusedError`.
    """
    reader = _Reader(words, option_table(options), long_options=long_options)
    while reader.rest:
        word = reader.take()
        if reader.dashed or not _is_option(word, harmless):
            reader.positionals.append(word)
            if not mixed:
                reader.positionals += reader.rest
                reader.rest = []
        elif word.text == "--":
            reader.dashed = True
            if not mixed:
                reader.positionals += reader.rest
                reader.rest = []
        else:
            reader.option(word)
    return Arguments(tuple(reader.options), tuple(reader.positionals), reader.dashed, tuple(reader.late))


def assign_kinds(
    arguments: str, positionals: tuple[Word, ...], *, harmless: Callable[[Word], bool]
) -> list[tuple[str, Word]]:
    """Pair positional arguments with the kinds of a rule. Raises `RefusedError` for too many or too few of them."""
    kinds = arguments.split()
    last, repeat = (kinds[-1][:-1], kinds[-1][-1]) if kinds and kinds[-1][-1] in "?*+" else ("", "")
    fixed = kinds[:-1] if repeat else kinds
    extra = positionals[len(fixed) :]
    if len(positionals) < len(fixed) or (repeat == "+" and not extra):
        raise IncompleteError("an argument is missing: name what it is about")
    if extra and (not repeat or (repeat == "?" and len(extra) > 1)):
        raise RefusedError(f"the argument {extra[0].text!r} is not allowed")
    alone = positionals if repeat not in {"*", "+"} else positionals[: len(fixed)]
    if any(not word.single and not (word.blankless and harmless(word)) for word in alone):
        raise RefusedError("an argument may turn out to be several: quote it or write it out")
    return [*zip(fixed, positionals, strict=False), *((last, word) for word in extra)]


def _is_option(word: Word, harmless: Callable[[Word], bool]) -> bool:
    if word.kind is WordKind.CONSTANT:
        return word.text.startswith("-") and word.text != "-"
    if word.kind is WordKind.PATTERN:
        if word.text[0] in "*?[" and not regex.match(r"\[\w\]", word.text):
            raise RefusedError(f"{word.text}: a file name that it finds could be an option: write ./{word.text}")
        if word.text[0] == "-" and not _VALUE_PATTERN.match(word.text):
            raise RefusedError(f"{word.text} is a pattern for file names: quote it")
        return word.text[0] == "-"
    if harmless(word) or (word.prefix and not word.prefix.startswith("-")):
        return False
    if word.single and _VALUE_PATTERN.match(word.prefix):
        return True
    raise UnclearCommandError(f"{word.text} is not known before it runs: write the value out")


class _Reader:
    """Reads one argument list from left to right."""

    def __init__(self, words: tuple[Word, ...], table: Mapping[str, Option], *, long_options: bool) -> None:
        self.rest = list(words)
        self.options: list[tuple[Option, Word | None]] = []
        self.positionals: list[Word] = []
        self.late: list[Word] = []
        self.dashed = False
        self._table = table
        self._long_options = long_options

    def take(self) -> Word:
        return self.rest.pop(0)

    def option(self, word: Word) -> None:
        text = word.prefix if word.kind is WordKind.DYNAMIC else word.text
        if _NUMERIC_OPTION in self._table and regex.fullmatch(r"-\d+", text):
            self.options.append((self._table[_NUMERIC_OPTION], None))
        elif text.startswith("--") or self._long_options:
            name, attached, value = text.partition("=")
            self._add(name, self._attached(word, value) if attached else None)
        else:
            self._cluster(text)

    def _attached(self, word: Word, value: str) -> Word:
        if word.kind is WordKind.DYNAMIC:
            return Word(text=word.text, kind=word.kind, single=word.single, prefix=value)
        return Word(text=value, kind=word.kind)

    def _cluster(self, text: str) -> None:
        """Read ``-xeu nginx`` and ``-n5``: combined flags, of which the last one may have a value."""
        letters = text[1:]
        while letters:
            letter, letters = "-" + letters[0], letters[1:]
            option = self._table.get(letter)
            if option is None or option.kind is None or not letters:
                self._add(letter, None)
            else:
                self._add(letter, Word(text=letters.removeprefix("=")))
                letters = ""

    def _add(self, name: str, value: Word | None) -> None:
        option = self._table.get(name)
        if option is None:
            raise RefusedError(f"the option {name} is not allowed")
        if option.kind is None and value is not None:
            raise RefusedError(f"the option {name} takes no value")
        if option.kind is not None and value is None and not option.attached:
            if not self.rest or not self.rest[0].single:
                kind = UnclearCommandError if self.rest else RefusedError
                raise kind(f"the value of {name} is not known before it runs: write it out")
            value = self.take()
            self.late += [value] if self.positionals else []
        self.options.append((option, value))
