"""What a shell command consists of, once it is taken apart: words, simple commands, and the tree that they stand in.

The tree is what `claudeops.domain.shell.render` writes down again. A step is one statement, a block is statements one
after another. Loops over known values are unrolled, functions stand where they are called, and what is known of a word
is its text: the tree holds nothing that a judge has not seen.

Small questions to a syntax tree that more than one place asks.

Which variables a command may set: never one that changes what other commands are or do.

What a walk through a text has found so far: its commands, the tree they stand in, and why it may be incomplete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct
from tree_sitter import Node

from claudeops.domain.text import regex

WORKING_DIRECTORY: Final = "PWD"  # among assigned names: the working directory changes
_SEQ: Final = regex.Pattern(r"seq (?:(\d{1,4}) )?(\d{1,4})")
_MOST_ROUNDS: Final = 64  # of a loop over seq

EXPORTABLE: Final = regex.Pattern(r"LANG|LANGUAGE|LC_[A-Z]+|TZ|COLUMNS|LINES|NO_COLOR|TERM|DEBIAN_FRONTEND")
"""What may be handed to a command in front of it."""

_HARMLESS_VALUE: Final = regex.Pattern(r"[\w.,:@/+-]*")
_NAME: Final = regex.Pattern(r"[A-Za-z_]\w*")
_INFLUENTIAL: Final = regex.Pattern(
    r"PATH|HOME|IFS|ENV|PWD|OLDPWD|UID|EUID|OPT(?:IND|ARG|ERR)|REPLY|MAIL.*|CDPATH|GLOBIGNORE|FIGNORE|EXECIGNORE|FCEDIT|HIST.*"
    r"|(?:SHELL|BASH|FUNC|PS\d|PROMPT|LD_|DYLD_|TMP|TEMP|GIT|SSH|DOCKER|COMPOSE|PODMAN|BUILDKIT|KUBE|HELM|ANSIBLE|CLAUDE"
    r"|ANTHROPIC|PYTHON|PERL|RUBY|NODE|NPM|JAVA|LUA|AWK|GAWK|POSIX|LESS|MAN|CURL|WGET|SSL|OPENSSL|SYSTEMD|PG|MYSQL|REDIS"
    r"|AWS|GOOGLE|AZURE|XDG|GCONV|LOCPATH|NLS|MALLOC|GLIBC|RES_|RESOLV|HOSTALIASES|LOCALDOMAIN|TZDIR|SUDO|TAR_|GZIP|XZ_"
    r"|ZIP|UNZIP|GREP|JQ|RIPGREP|FIND|POSTGRES|VAULT|CONSUL|NOMAD|ETCD|DBUS|DISPLAY|EDITOR|VISUAL|BROWSER|LS_|TERMINFO"
    r"|IPROUTE|MTR|NMAP|LSOF|PROCPS|PS_|UNIX|CMD_ENV|COREDUMP|LIBVIRT|VIRSH|ZPOOL|ZFS|SMARTD|APT|DPKG|RPM).*"
    r"|.*_(?:PROXY|PAGER|EDITOR|RSH|CONFIG|ASKPASS|PRELOAD|LIBRARY_PATH)|PAGER|BC_.*|POSIXLY_CORRECT"
)

MOST_COMMANDS: Final = 256  # of one text, loops unrolled


class UnclearError(Exception):
    """What a command would do cannot be told from its text; ``str()`` is the reason, for the model to read."""


class ForbiddenError(UnclearError):
    """What a command would do is clear, and nothing of the kind may run."""


class TooMuchError(UnclearError):
    """A text that grows beyond all bounds when it is taken apart; nothing more of it is looked at."""


class WordKind(StrEnum):
    """How much of a word is known before the shell runs."""

    CONSTANT = "constant"  # ``text`` is what the command gets
    PATTERN = "pattern"  # ``text`` is a glob: the command gets the paths that match, or the text itself
    DYNAMIC = "dynamic"  # known only when it runs


class Certainty(StrEnum):
    """What the status 0 of a text says of one of its commands."""

    NOTHING = "nothing"  # it may have failed, or never have run
    RAN = "ran"  # it ran; whether it failed is lost
    WORKED = "worked"


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """One argument, after quote removal.

    ``text`` of a pattern has its quoted glob characters in brackets; of a dynamic word it is the source text.
    """

    text: str
    kind: WordKind = WordKind.CONSTANT
    single: bool = True  # becomes exactly one argument; a pattern, or what is unquoted, may become any number
    blankless: bool = False  # dynamic: what a loop took out of a list, so no blank is in it
    prefix: str = ""  # dynamic: the constant text that it begins with
    outputs: tuple[SimpleCommand, ...] = ()  # dynamic: the word is what these commands print, nothing else
    parts: tuple[Part, ...] = ()  # how to write it down again where ``text`` does not say so; () = it cannot be
    written: str | None = None  # what stands in its place: the mark of ``xargs -I``, the ``{}`` of find
    document: bool = False  # a here-document's text, whose last line ends with a newline like all the others
    implied: bool = False  # it is written nowhere: xargs adds it, or a shell inherits it as its input

    @property
    def constant(self) -> bool:
        """Whether the command gets exactly ``text``."""
        return self.kind is WordKind.CONSTANT


@dataclass(frozen=True, kw_only=True, slots=True)
class Redirection:
    """One redirection; here-documents and here-strings are in `SimpleCommand.stdin` instead."""

    operator: str  # ``<``, ``>``, ``>>``, ``>|``, ``&>``, ``&>>``, ``<&``, ``>&``, ``<&-``, ``>&-``
    target: Word | None  # None for the closing forms
    descriptor: str = ""  # the number in front of it


@dataclass(frozen=True, kw_only=True, slots=True)
class SimpleCommand:
    """One command with its arguments, wherever it was found.

    ``argv`` is empty for bare assignments, and for redirections of a group or loop.
    """

    argv: tuple[Word, ...]
    assignments: tuple[tuple[str, Word], ...] = ()
    redirections: tuple[Redirection, ...] = ()
    stdin: Word | None = None  # a here-document or here-string
    cwd: str | None = None  # the directory it runs in, where a ``cd`` before it leaves no doubt
    feeds: tuple[SimpleCommand, ...] = ()  # the commands before it in its pipeline
    piped: bool = False  # reads what another command prints
    repeated: bool = False  # in a loop whose number of rounds is not known
    number: int = -1  # its place among the commands of its text
    certainty: Certainty = Certainty.NOTHING  # of it, the status 0 of the whole text

    @property
    def name(self) -> str:
        """The command as written, or "" without one."""
        return self.argv[0].text if self.argv else ""

    @property
    def line(self) -> str:
        """The command and its arguments with one space between them, for people and for prefixes."""
        return " ".join(word.text for word in self.argv)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """Every simple command of a text; with a ``problem`` or a ``refusal`` the list need not be complete."""

    commands: tuple[SimpleCommand, ...] = ()
    problem: str | None = None  # why it cannot be told what the text does
    refusal: str | None = None  # what is clear and may not be done
    defines: bool = False  # it defines functions
    block: Block = ()  # the tree that the commands stand in; complete where there is neither problem nor refusal


DYNAMIC_STDIN = Word(text="", kind=WordKind.DYNAMIC)


# --- parts of a word that is not known before it runs -----------------------------------------------------


class Literal(Struct, frozen=True):
    """Text that stands for itself."""

    text: str


class Glob(Struct, frozen=True):
    """One wildcard: ``*``, ``?`` or a whole ``[…]``."""

    text: str


class Variable(Struct, frozen=True):
    """The value of a variable."""

    expression: str  # what stands between the braces: a name, perhaps with a trimming such as ``name%%.*``
    quoted: bool = True  # False: split at blanks, and its wildcards are alive


class Substitution(Struct, frozen=True):
    """What commands print."""

    block: Block
    quoted: bool = True


class ProcessSubstitution(Struct, frozen=True):
    """A file that commands write (``<``) or read (``>``)."""

    operator: str
    block: Block


class Arithmetic(Struct, frozen=True):
    """A sum of numbers that are written out."""

    text: str


Part: TypeAlias = Literal | Glob | Variable | Substitution | ProcessSubstitution | Arithmetic


# --- steps ------------------------------------------------------------------------------------------------


class Run(Struct, frozen=True):
    """A simple command; without arguments its assignments and redirections alone."""

    command: SimpleCommand


class Array(Struct, frozen=True):
    """The assignment of an array."""

    name: str
    words: tuple[Word, ...]


class Export(Struct, frozen=True):
    """Sets a variable, and hands it to the commands that follow."""

    name: str
    value: Word


class Redirected(Struct, frozen=True):
    """A compound command with redirections; ``step`` is None for the ``< path`` of ``$(< path)``."""

    step: Step | None
    redirections: tuple[Redirection, ...] = ()
    stdin: Word | None = None  # a here-string's text


class Pipeline(Struct, frozen=True):
    """Commands of which each reads what the one before it prints."""

    steps: tuple[Step, ...]


class Chained(Struct, frozen=True):
    """``left && right`` or ``left || right``."""

    left: Step
    operator: str
    right: Step


class Negated(Struct, frozen=True):
    """``! step``."""

    step: Step


class Subshell(Struct, frozen=True):
    """``( … )``."""

    block: Block


class Group(Struct, frozen=True):
    """``{ …; }``."""

    block: Block


class Branch(Struct, frozen=True):
    """``if``; an ``elif`` is a branch of its own in ``otherwise``."""

    condition: Block
    then: Block
    otherwise: Block = ()


class Loop(Struct, frozen=True):
    """``while``, or ``until``."""

    condition: Block
    body: Block
    until: bool = False


class ForEach(Struct, frozen=True):
    """A ``for`` loop over values that are known only when it runs."""

    name: str
    words: tuple[Word, ...]
    body: Block
    alone: bool = True  # False: one of several rounds of a loop whose other values are known


class Rounds(Struct, frozen=True):
    """A loop over known values, unrolled: each block is one round, which ``break`` and ``continue`` may leave."""

    blocks: tuple[Block, ...]


class Case(Struct, frozen=True):
    """``case``; the patterns of an item are words with wildcards."""

    subject: Word
    items: tuple[tuple[tuple[Word, ...], Block], ...]


Step: TypeAlias = (
    Run
    | Array
    | Export
    | Redirected
    | Pipeline
    | Chained
    | Negated
    | Subshell
    | Group
    | Branch
    | Loop
    | ForEach
    | Rounds
    | Case
)
Block: TypeAlias = tuple[Step, ...]


def one_step(block: Block) -> Step:
    """Return a block as one step."""
    return block[0] if len(block) == 1 else Group(block)


def source_text(node: Node | None, source: bytes) -> str:
    """Return a node's text without the blanks that the parser may count to it."""
    return "" if node is None else source[node.start_byte : node.end_byte].decode().lstrip(" \t")


def assigned_names(node: Node, source: bytes) -> frozenset[str]:
    """Return the variables that a piece of the tree assigns, wherever in it."""
    names: set[str] = set()
    if node.type in {"variable_assignment", "for_statement"}:
        names.add(source_text(node.child_by_field_name("name") or node.child_by_field_name("variable"), source))
    elif node.type == "command":
        words = [regex.sub(r"[\\'\"]", "", source_text(child, source)) for child in node.children]
        if "cd" in words:
            names.add(WORKING_DIRECTORY)
        if "read" in words:
            names.update(words)
    for child in node.children:
        names |= assigned_names(child, source)
    return frozenset(names)


def loop_values(word: Word) -> list[Word]:
    """Return the values that a word of a ``for`` loop gives; ``$(seq 3)`` and ``$(seq 2 5)`` are counted out."""
    if word.kind is not WordKind.DYNAMIC or word.single or len(word.outputs) != 1:
        return [word]
    counted = _SEQ.fullmatch(word.outputs[0].line)
    if counted is None:
        return [word]
    numbers = range(int(counted[1] or 1), int(counted[2]) + 1)
    if len(numbers) > _MOST_ROUNDS:
        raise UnclearError(f"the loop has more than {_MOST_ROUNDS} rounds: write fewer")
    return [Word(text=str(number)) for number in numbers]


def refuse_variable(name: str, *, exported: bool) -> str | None:
    """Return why a variable may not be set, or None; ``exported``: a command is to see it."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is not a plain name for a variable"
    if exported and not EXPORTABLE.fullmatch(name):
        return f"setting {name} for a command is not allowed: run the command without it"
    if not exported and _INFLUENTIAL.fullmatch(name.upper()):
        return f"setting {name} could change what other commands do: use another name, in lower case"
    return None


def refuse_value(name: str, value: str) -> str | None:
    """Return why a value may not be handed to a command in a variable, or None."""
    if _HARMLESS_VALUE.fullmatch(value) and "/" not in value.removeprefix(":")[:1]:
        return None
    return f"{name}={value[:40]!r} is not a plain value"


class Recorder:
    """Keeps commands, doubts and where the walk stands."""

    def __init__(self) -> None:
        self.commands: list[SimpleCommand] = []
        self.problem: str | None = None  # the first thing that is unclear
        self.refusal: str | None = None  # the first thing that is clear and may not be done
        self._calls = 0  # of functions within each other
        self._unknown_rounds = 0  # loops around, of which nobody knows how often they run
        self._feeds: tuple[SimpleCommand, ...] | None = None  # what the pipeline's earlier commands are
        self._steps: list[Step] = []  # of the block that the walk is in

    def _note(self, command: SimpleCommand) -> SimpleCommand:
        """Keep a command for the judge, and return it as it was kept."""
        if len(self.commands) >= MOST_COMMANDS:
            raise TooMuchError(f"more than {MOST_COMMANDS} commands in one call: split it")
        piped, number = self._feeds is not None, len(self.commands)
        repeated = self._unknown_rounds > 0
        kept = replace(command, repeated=repeated, piped=piped, feeds=self._feeds or (), number=number)
        self.commands.append(kept)
        return kept

    def _emit(self, command: SimpleCommand) -> None:
        """Keep a command, and run it at this place of the tree."""
        self._steps.append(Run(self._note(command)))

    def _block(self, walk: Callable[[], None]) -> Block:
        """Return the steps of a walk, which do not become steps of the block around it."""
        outer, self._steps = self._steps, []
        try:
            walk()
            return tuple(self._steps)
        finally:
            self._steps = outer

    def _keep(self, error: UnclearError) -> None:
        if isinstance(error, ForbiddenError):
            self.refusal = self.refusal or str(error)
        else:
            self.problem = self.problem or str(error)

    def _attempt(self, step: Callable[[], None]) -> None:
        """Take a step; keep what is unclear about it, and stand where the step began."""
        before = self._feeds, self._unknown_rounds, self._calls
        try:
            step()
        except TooMuchError:
            raise
        except UnclearError as error:
            self._keep(error)
            self._feeds, self._unknown_rounds, self._calls = before
