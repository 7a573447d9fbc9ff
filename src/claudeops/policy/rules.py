"""Rules for commands: how one is written, how a command's words are read by it, and how they are written again.

A rule is plain text, as in the policy file (docs/reference/policy.md). What runs is never the text that was given, but
the one canonical form of what was read: options first, each in the first of its spellings, then ``--`` where the
program knows it, then the arguments. So a program that reads the given words in another way than we do cannot matter.

Several rules for one name are alternatives; the first that fits decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from claudeops.policy.shell.language import Literal, Text, Word, shown
from claudeops.text import regex

_NUMBER: Final = "-NUM"
_LETTER: Final = 2  # characters of a short option
_DIGITS: Final = regex.Pattern(r"-\d+")
_BUNDLE: Final = regex.Pattern(r"[A-Za-z]+")

READINGS: Final = ("getopt", "ordered", "single", "bundle", "words", "ps", "git")
"""How a program reads its words; described in docs/reference/policy.md."""


class RuleRefusedError(Exception):
    """A command does not fit a rule; ``str()`` is the reason, for the model to read."""


class IncompleteError(RuleRefusedError):
    """A command fits a rule, but something is missing at its end."""


class UnclearCommandError(RuleRefusedError):
    """It is not clear what a command would do; at a tier that may ask, a person decides."""


class CommandRule(msgspec.Struct, frozen=True, kw_only=True):
    """What one command may be given."""

    name: str  # with its subcommands: ``docker compose restart``
    tier: int = 1  # the lowest tier that may run it
    reading: str = "getopt"  # one of `READINGS`
    dashes: bool = True  # ``--`` stands between options and arguments; False: the program does not know it
    attached: bool = True  # a long option's value is written ``--name=value``; False: as the next word
    always: str = ""  # words that are written first, whether given or not
    options: str = ""
    arguments: str = ""
    first: str = ""  # the option whose value is the first argument where it is not given: ``-e``
    required: str = ""  # options that must be given; ``-l|-t`` = one of these
    action: str = ""  # what it changes: the kind of action, counted for each argument that names a service
    service: str = ""  # the service of an action whose arguments name none
    writes: bool = False  # it changes the session's own files
    deep: str = ""  # options with which it reads everything below its paths; ``*``: always
    check: str = ""  # a further check of all arguments, by its name in `claudeops.policy.matching`
    look: str = ""  # what no session can run; all but ``processes`` the daemon runs, in a cell
    filter: str = ""  # ``docker``, ``kubernetes``: the rule holds only where that filter masks what answers
    hint: str = ""  # what to write instead of a common attempt
    approvals: int | msgspec.UnsetType = msgspec.UNSET  # how many people must say yes first; unset: no rule about it


class CommandGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A command with subcommands."""

    name: str
    options: str = ""  # in front of the subcommand
    shared: bool = False  # the same options may also follow the subcommand


class Wrapper(msgspec.Struct, frozen=True, kw_only=True):
    """A command that runs another one."""

    name: str
    options: str = ""
    before: str = ""  # kinds of the arguments in front of the command
    always: str = ""  # words that are written first
    elsewhere: bool = False  # it runs the command on another host or in a container
    fresh: bool = False  # it runs the command as another user, in a new environment
    text: bool = False  # the rest is text for a shell, not arguments
    after_host: bool = False  # options may follow the first argument
    dashes: bool = False  # ``--`` must precede the command, and is written there; otherwise it precedes the arguments


class Option(msgspec.Struct, frozen=True):
    """One option as a rule allows it; it is written by the first of its names."""

    names: tuple[str, ...]
    kind: str | None  # None: a flag
    attached: bool = False  # takes its value only as ``--name=value``
    several: bool = False  # takes every word up to the next option

    def written(self, value: str | None, *, attached: bool = True) -> tuple[str, ...]:
        """Return its words, in its one spelling."""
        name = self.names[0]
        if value is None:
            return (name,)
        if self.attached or (attached and name.startswith("--")):
            return (f"{name}{value}" if len(name) == _LETTER else f"{name}={value}",)
        return (name, value) if name else (value,)


Given = tuple[tuple[Option, str | None], ...]
"""Options that were given, with their values."""


class Arguments(msgspec.Struct, frozen=True):
    """A command's options and arguments."""

    options: Given = ()
    positionals: tuple[Word, ...] = ()
    dashed: bool = False  # ``--`` was among them

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
        plain = kind.removeprefix("?")
        several = plain.endswith("+") and not plain.startswith("re:")
        plain = plain.removesuffix("+") if several else plain
        option = Option(names, plain if given else None, kind.startswith("?"), several)
        table |= dict.fromkeys(names, option)
    return table


def read_arguments(words: tuple[Word, ...], options: str, reading: str = "getopt", first: str = "") -> Arguments:
    """Separate options from arguments. Raises `RuleRefusedError`, also for an option that the rule spells otherwise."""
    if reading == "words":
        return Arguments(positionals=words)
    if reading == "bundle" and words and isinstance(words[0], Literal) and _BUNDLE.fullmatch(words[0].text):
        words = (Literal(f"-{words[0].text}"), *words[1:])
    reader = _Reader(words, option_table(options), single=reading == "single")
    while reader.rest:
        word = reader.rest.pop(0)
        if not _is_option(word):
            reader.positionals.append(word)
        elif isinstance(word, Literal) and word.text != "--":
            reader.option(word.text)
            continue
        else:
            reader.dashed = True
        if reader.dashed or reading == "ordered":
            reader.positionals += reader.rest
            break
    if first and not any(first in option.names for option, _ in reader.options):
        if not reader.positionals:
            raise IncompleteError("an argument is missing: name what it is about")
        reader.rest, reader.positionals = reader.positionals[:1], reader.positionals[1:]
        reader.option(first)
    return Arguments(tuple(reader.options), tuple(reader.positionals), reader.dashed)


def assign_kinds(arguments: str, positionals: tuple[Word, ...]) -> list[tuple[str, Word]]:
    """Pair arguments with the kinds of a rule. Raises `RuleRefusedError` for too many or too few of them."""
    kinds = arguments.split()
    last, repeat = (kinds[-1][:-1], kinds[-1][-1]) if kinds and kinds[-1][-1] in "?*+" else ("", "")
    fixed = kinds[:-1] if repeat else kinds
    extra = positionals[len(fixed) :]
    if len(positionals) < len(fixed) or (repeat == "+" and not extra):
        raise IncompleteError("an argument is missing: name what it is about")
    if extra and (not repeat or (repeat == "?" and len(extra) > 1)):
        raise RuleRefusedError(f"the argument {shown(extra[0])!r} is not allowed")
    return [*zip(fixed, positionals, strict=False), *((last, word) for word in extra)]


def written(given: Iterable[tuple[Option, str | None]], *, attached: bool = True) -> tuple[Word, ...]:
    """Return options as they are written."""
    return tuple(Literal(text) for option, value in given for text in option.written(value, attached=attached))


def beyond(always: str, given: Iterable[tuple[Option, str | None]]) -> Given:
    """Return the options that do not stand among the words that are always written."""
    fixed = f" {always} "
    return tuple(pair for pair in given if f" {' '.join(pair[0].written(pair[1]))} " not in fixed)


def _is_option(word: Word) -> bool:
    match word:
        case Literal(text):
            return text.startswith("-") and text != "-"
        case Text():
            raise UnclearCommandError(f"{shown(word)} is not known before it runs: write the value out")
        case _:
            return False


class _Reader:
    """Reads one argument list from left to right."""

    def __init__(self, words: tuple[Word, ...], table: Mapping[str, Option], *, single: bool) -> None:
        self.rest = list(words)
        self.options: list[tuple[Option, str | None]] = []
        self.positionals: list[Word] = []
        self.dashed = False
        self._table = table
        self._single = single

    def option(self, text: str) -> None:
        if _NUMBER in self._table and _DIGITS.fullmatch(text):
            self.options.append((self._table[_NUMBER], text[1:]))
        elif text.startswith("--") or self._single:
            name, attached, value = text.partition("=")
            self._add(name, value if attached else None)
        else:
            self._cluster(text)

    def _cluster(self, text: str) -> None:
        """Read ``-xeu nginx`` and ``-n5``: combined flags, of which the last one may have a value."""
        letters = text[1:]
        while letters:
            letter, letters = "-" + letters[0], letters[1:]
            option = self._table.get(letter)
            if option is None or option.kind is None or not letters:
                self._add(letter, None, within=text)
            else:
                # Go's flags read ``-n=5`` as 5, getopt as ``=5``: as the canonical form says 5, both do.
                plain = option.kind == "text" or len(letters) == 1
                self.options.append((option, letters if plain else letters.removeprefix("=")))
                letters = ""

    def _add(self, name: str, value: str | None, *, within: str = "") -> None:
        option = self._table.get(name)
        if option is None:
            where = f" (in {within})" if len(within) > len(name) else ""
            raise RuleRefusedError(f"the option {name}{where} is not allowed")
        if option.kind is None and value is not None:
            raise RuleRefusedError(f"the option {name} takes no value")
        if option.kind is not None and value is None and not option.attached:
            value = self._value(name)
        self.options.append((option, value))
        while option.several and self.rest and not _is_option(self.rest[0]):
            self.options.append((Option(("",), option.kind), self._value(name)))

    def _value(self, name: str) -> str:
        if not self.rest:
            raise RuleRefusedError(f"the value of {name} is missing")
        word = self.rest.pop(0)
        if not isinstance(word, Literal):
            raise UnclearCommandError(f"the value of {name} is not known before it runs: write it out")
        return word.text
