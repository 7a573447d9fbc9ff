"""Calls of a policy's rules, drawn from a seed: what a rule lets through, what it must refuse, and what lies between.

A rule gets one call for each option in each spelling, and calls drawn at random: options before, between and behind the
arguments, bundled, abbreviated and attached, ``--`` or none, values good, odd and hostile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Final

from claudeops.policy.rules import CommandRule, Option, option_table
from claudeops.text import regex
from support.rule_values import TRAPS, value
from support.rule_world import TRAP

Words = tuple[str, ...]

_NUMERIC: Final = "-NUM"
_FREE: Final = frozenset({"text", "any", "glob", "word"})  # kinds of values that may begin with anything
_OTHERS: Final = 3
_PLAIN_TRAP: Final = f"{TRAP}/plain"
_NOT_ASKED_FOR: Final = (
    *("-o", "-f", "-x", "-e", "-i", "-w", "-I", "-F", "-T", "-C", "-K", "-R", "-Z", "-0", "-@", "-?", "-h", "-V"),
    *("--help", "--version", "--output", "--file", "--exec", "--config", "--to-command", "--files0-from", "--follow"),
)
"""Options that many programs have; a rule that does not name one refuses it."""

_FIND: Final = (
    *(
        ("-name", "*.md"),
        ("-name", "-exec"),
        ("-iname", "a*"),
        ("-type", "f"),
        ("-type", "d"),
        ("-maxdepth", "1"),
        ("-empty",),
    ),
    *(("-mtime", "-1"), ("-size", "+1k"), ("-print",), ("-ls",), ("-not", "-name", "x"), ("!", "-name", "y"), ("-o",)),
    *(
        ("-newer", "/srv/data/notes.md"),
        ("-path", "*/sub/*"),
        ("-printf", "%p\\n"),
        ("-print0",),
        ("-quit",),
        ("(",),
        (")",),
    ),
    *(("-delete",), ("-fprint", "/session/tmp/out"), ("-fls", "/session/tmp/out"), ("-ok", "id", ";"), ("-follow",)),
    *(
        ("-exec", "cat", "{}", "+"),
        ("-exec", "cat", "{}", ";"),
        ("-exec", "ls", "-l", "{}", "+"),
        ("-exec", "head", "-n", "2", "{}", "+"),
    ),
    *(
        ("-exec", "sh", "-c", "id", ";"),
        ("-execdir", "cat", "{}", ";"),
        ("-exec", "cat", "/srv/trap/plain", ";"),
        ("-files0-from", "/srv/trap/plain"),
    ),
    *(
        ("-exec", "rm", "{}", ";"),
        ("-exec", "stat", "{}", ";"),
        ("-exec", "wc", "-l", "{}", "+"),
        ("-exec", "du", "-sh", "{}", "+"),
        ("-L",),
        ("-D", "all"),
    ),
)
_PS: Final = (
    *("aux", "auxf", "-ef", "-e", "-A", "-eo", "pid,comm", "-o", "pid,ppid,user,cmd", "--sort=-rss", "--sort", "-pcpu"),
    *(
        "-p",
        "1",
        "--forest",
        "-C",
        "bash",
        "-L",
        "axo",
        "pid,args",
        "-u",
        "root",
        "e",
        "auxe",
        "-uxewww",
        "--no-headers",
    ),
    *(
        "-o",
        "environ",
        "axe",
        "-f",
        "-T",
        "--ppid",
        "1",
        "f",
        "ww",
        "-ww",
        "1",
        "o",
        "env",
        "-O",
        "rss",
        "E",
        "-E",
        "--",
        "l",
    ),
)


@dataclass(frozen=True, kw_only=True)
class CallMaker:
    """Draws calls of one rule for one of its names."""

    rule: CommandRule
    name: str  # one of the rule's, with its subcommands
    random: Random
    group: str = ""  # options that may stand in front of the last subcommand
    behind: tuple[Words, ...] = ()  # what it runs: one of these stands last

    def calls(self) -> Iterator[Words]:
        """Yield calls without end; each option in each spelling is among the first."""
        spelled = [*self.spelled(), *self.swallowed()]
        self.random.shuffle(spelled)
        for words in spelled:
            yield (*words, *self._behind())
            yield (*self.call(), *self._behind())
        while True:
            yield (*self.call(), *self._behind())

    def spelled(self) -> Iterator[Words]:
        """Yield the shortest call, and one for each option in each spelling."""
        yield (*self.name.split(), *self._required(), *self._arguments())
        for option in self._options():
            needed = set(option.names) & set(self.rule.required.replace("|", " ").split())
            for words in self._spellings(option):
                yield (*self.name.split(), *([] if needed else self._required()), *words, *self._arguments())

    def swallowed(self) -> Iterator[Words]:
        """Yield calls in which a flag stands before an option whose value may be anything, and is a trap.

        Where the program gives the flag a value, the option is that value, and the trap is a file.
        """
        flags = [option for option in self._options() if option.kind is None or option.attached]
        free = [option.names[0] for option in self._options() if option.kind in _FREE and not option.attached]
        for flag, name in product(flags, free):
            others = [self._spelled(other) for other in flags if other is not flag]
            for other in (
                [],
                *self.random.sample(others, min(len(others), _OTHERS)),
            ):  # some files are read only with it
                yield (*self.name.split(), *self._required(), *other, *self._spelled(flag), name, _PLAIN_TRAP)

    def call(self) -> Words:
        """Return one call."""
        if self._reading == "find":
            return self._find()
        if self._reading == "ps":
            return self._drawn_words(_PS)
        options = self._given()
        arguments = [(word,) for word in self._arguments(odd=True)]
        if self._chance(0.3):
            arguments.insert(0, ("--",))
        if self._chance(0.04):
            arguments.insert(self.random.randint(0, len(arguments)), ("--",))
        pieces = [*options, *arguments]
        if self._chance(0.25):  # between and behind the arguments
            for piece in options:
                pieces.remove(piece)
                pieces.insert(self.random.randint(0, len(pieces)), piece)
        words = [word for piece in pieces for word in piece]
        if self._reading == "bundle" and words and self._chance(0.4):
            words[0] = words[0].removeprefix("-")
        return (*self._named(), *words)

    def _behind(self) -> Words:
        return self.random.choice(self.behind) if self.behind else ()

    # --- names and options --------------------------------------------------------------------------------

    def _named(self) -> Words:
        """Return the program with its subcommands; at times with an option of the group before the last one."""
        words = self.name.split()
        group = list(option_table(self.group).values())
        if group and len(words) > 1 and self._chance(0.2):
            place = self.random.randint(1, len(words))
            words[place:place] = self._spelled(self.random.choice(group))
        return tuple(words)

    @property
    def _reading(self) -> str:
        return "find" if self.name == "find" else str(getattr(self.rule, "reading", "getopt"))

    def _options(self) -> list[Option]:
        return list(dict.fromkeys(option_table(f"{self.rule.options} {self.group}").values()))

    def _given(self) -> list[Words]:
        known = self._options()
        found = [tuple(self._required())] if self._chance(0.96) else []
        count = self.random.choices(range(6), (25, 30, 22, 12, 7, 4))[0] if known else 0
        found += [tuple(self._spelled(self.random.choice(known))) for _ in range(count)]
        if self._chance(0.05):
            found.append((self.random.choice((*_NOT_ASKED_FOR, *TRAPS)),))
        if self._chance(0.4):
            found = self._bundled(found)
        return [piece for piece in found if piece]

    def _required(self) -> list[str]:
        table, words = option_table(self.rule.options), []
        for alternatives in self.rule.required.split():
            option = table.get(self.random.choice(alternatives.split("|")))
            words += self._spelled(option) if option is not None else []
        return words

    def _spelled(self, option: Option) -> list[str]:
        return self.random.choice(self._spellings(option))

    def _spellings(self, option: Option) -> list[list[str]]:
        """Return an option in all ways that some program reads, and in a few that none does."""
        found: list[list[str]] = []
        for name in option.names:
            given = value(option.kind, self.random) if option.kind is not None else None
            if name == _NUMERIC:
                found.append([f"-{self.random.randint(0, 30)}"])
            elif given is None:
                found.append([name])
            else:
                short = len(name) == len("-x")
                found += [
                    [f"{name}{given}" if short else f"{name}={given}"],
                    [name] if option.attached else [name, given],
                ]
                found += [[f"{name}={given}"]] if short and self._chance(0.2) else []
            if name.startswith("--"):
                found += [[self._abbreviated(words[0]), *words[1:]] for words in found if words[0].startswith(name)]
                found += [[f"{name}="]] if self._chance(0.05) else []
        return found

    def _abbreviated(self, word: str) -> str:
        name, equals, given = word.partition("=")
        return name[: self.random.randint(min(len("--ab"), len(name)), len(name))] + equals + given

    def _bundled(self, pieces: list[Words]) -> list[Words]:
        """Join short options: ``-l -n 5`` becomes ``-ln 5``."""
        short = [piece for piece in pieces if piece and regex.fullmatch(r"-[^-=].*", piece[0])]
        flags = [piece for piece in short if piece[0][2:] == "" and len(piece) == 1]
        valued = [piece for piece in short if piece not in flags][:1]
        if len(flags) + len(valued) < 2:
            return pieces
        (first, *rest), *_ = valued or flags[-1:]
        letters = "".join(piece[0][1] for piece in (flags if valued else flags[:-1]))
        others = [piece for piece in pieces if piece not in flags and piece not in valued]
        return [*others, (f"-{letters}{first[1:]}", *rest)]

    # --- arguments ----------------------------------------------------------------------------------------

    def _arguments(self, *, odd: bool = False) -> list[str]:
        if self._reading in {"find", "ps"}:
            return []
        words: list[str] = []
        for kind in self.rule.arguments.split():
            repeat = kind[-1] if kind[-1] in "?*+" else ""
            least = 0 if repeat in {"?", "*"} else 1
            most = 3 if repeat in {"*", "+"} else 1
            words += [value(kind.removesuffix(repeat), self.random) for _ in range(self.random.randint(least, most))]
        if odd and self._chance(0.04):
            words.insert(self.random.randint(0, len(words)), self.random.choice(TRAPS))
        if odd and words and self._chance(0.02):
            words.pop()
        return words

    def _find(self) -> Words:
        roots = [value("directory", self.random) for _ in range(self.random.randint(1, 2))]
        tests = [word for _ in range(self.random.randint(0, 3)) for word in self.random.choice(_FIND)]
        return (self.name, *roots, *tests)

    def _drawn_words(self, words: Words) -> Words:
        return (self.name, *(self.random.choice(words) for _ in range(self.random.randint(0, 4))))

    def _chance(self, likely: float) -> bool:
        return self.random.random() < likely
