"""The parts of a parsed shell command: words, simple commands, and the tree around them.

The tree is what `claudeops.domain.shell.render` writes out again. A step is one statement, a block is a sequence of
statements. Loops over known values are unrolled, functions are inlined where they are called, and a word's known text
is its text: the tree holds nothing that a judge has not seen.

Besides: questions to a syntax tree that several modules ask, which variables a command may set (never one that changes
what other commands are or do), and the recorder of what a walk has found so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct
from tree_sitter import Node

from claudeops.domain.text import regex

WORKING_DIRECTORY: Final = "PWD"  # among assigned names, it means that the working directory changes
_SEQ: Final = regex.Pattern(r"seq (?:(\d{1,4}) )?(\d{1,4})")
_MOST_ROUNDS: Final = 64  # of a loop over seq

EXPORTABLE: Final = regex.Pattern(r"LANG|LANGUAGE|LC_[A-Z]+|TZ|COLUMNS|LINES|NO_COLOR|TERM|DEBIAN_FRONTEND")
"""Variables that may be assigned in front of a command."""

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
    """The text of a command does not show what it would do; ``str()`` is the reason, for the model to read."""


class ForbiddenError(UnclearError):
    """It is clear what a command would do, and nothing of the kind may run."""


class TooMuchError(UnclearError):
    """A text grows beyond all bounds when it is parsed; nothing more of it is looked at."""


class WordKind(StrEnum):
    """How much of a word is known before the shell runs."""

    CONSTANT = "constant"  # ``text`` is what the command gets
    PATTERN = "pattern"  # ``text`` is a glob: the command gets the paths that match, or the text itself
    DYNAMIC = "dynamic"  # known only when the shell runs


class Certainty(StrEnum):
    """What the status 0 of a text proves about one of its commands."""

    NOTHING = "nothing"  # it may have failed, or not have run
    RAN = "ran"  # it ran; whether it failed is not known
    WORKED = "worked"


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """One argument, after quote removal.

    In the ``text`` of a pattern quoted glob characters are in brackets; that of a dynamic word is its source text.
    """

    text: str
    kind: WordKind = WordKind.CONSTANT
    single: bool = True  # becomes exactly one argument; a pattern or an unquoted expansion may become any number
    blankless: bool = False  # dynamic: a loop took it from a list, so it holds no blank
    prefix: str = ""  # dynamic: the constant text at its beginning
    outputs: tuple[SimpleCommand, ...] = ()  # dynamic: the word is exactly what these commands print
    parts: tuple[Part, ...] = ()  # how to render it where ``text`` does not show it; () = it cannot be rendered
    written: str | None = None  # its placeholder in the text: the mark of ``xargs -I``, the ``{}`` of find
    document: bool = False  # a here-document's text, whose last line ends with a newline like all the others
    implied: bool = False  # it is not in the text: xargs adds it, or a shell inherits it as its input

    @property
    def constant(self) -> bool:
        """Whether the command gets exactly ``text``."""
        return self.kind is WordKind.CONSTANT


@dataclass(frozen=True, kw_only=True, slots=True)
class Redirection:
    """One redirection; here-documents and here-strings are in `SimpleCommand.stdin` instead."""

    operator: str  # ``<``, ``>``, ``>>``, ``>|``, ``&>``, ``&>>``, ``<&``, ``>&``, ``<&-``, ``>&-``
    target: Word | None  # None for the closing forms
    descriptor: str = ""  # the number in front of the operator


@dataclass(frozen=True, kw_only=True, slots=True)
class SimpleCommand:
    """One command with its arguments, wherever in the text it is.

    ``argv`` is empty for bare assignments, and for redirections of a group or loop.
    """

    argv: tuple[Word, ...]
    assignments: tuple[tuple[str, Word], ...] = ()
    redirections: tuple[Redirection, ...] = ()
    stdin: Word | None = None  # a here-document or here-string
    cwd: str | None = None  # its working directory, where a ``cd`` before it leaves no doubt
    feeds: tuple[SimpleCommand, ...] = ()  # the commands before it in its pipeline
    piped: bool = False  # reads what another command prints
    repeated: bool = False  # in a loop with an unknown number of rounds
    number: int = -1  # its place among the commands of its text
    certainty: Certainty = Certainty.NOTHING  # what the status 0 of the whole text proves about it

    @property
    def name(self) -> str:
        """The command as written, or "" without one."""
        return self.argv[0].text if self.argv else ""

    @property
    def line(self) -> str:
        """The command and its arguments, separated by one space, for people and for prefixes."""
        return " ".join(word.text for word in self.argv)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """Every simple command of a text; with a ``problem`` or a ``refusal`` the list need not be complete."""

    commands: tuple[SimpleCommand, ...] = ()
    problem: str | None = None  # why it is not clear what the text does
    refusal: str | None = None  # what it clearly does and may not do
    defines: bool = False  # it defines functions
    block: Block = ()  # the tree of the commands; complete where there is neither problem nor refusal


DYNAMIC_STDIN = Word(text="", kind=WordKind.DYNAMIC)


# --- parts of dynamic words -------------------------------------------------------------------------------


class Literal(Struct, frozen=True):
    """Text that stands for itself."""

    text: str


class Glob(Struct, frozen=True):
    """One wildcard: ``*``, ``?`` or a whole ``[…]``."""

    text: str


class Variable(Struct, frozen=True):
    """The value of a variable."""

    expression: str  # the text between the braces: a name, possibly with a trimming such as ``name%%.*``
    quoted: bool = True  # False: it is split at blanks, and its wildcards are expanded


class Substitution(Struct, frozen=True):
    """The output of commands."""

    block: Block
    quoted: bool = True


class ProcessSubstitution(Struct, frozen=True):
    """A file that commands write (``<``) or read (``>``)."""

    operator: str
    block: Block


class Arithmetic(Struct, frozen=True):
    """Arithmetic over literal numbers."""

    text: str


Part: TypeAlias = Literal | Glob | Variable | Substitution | ProcessSubstitution | Arithmetic


# --- steps ------------------------------------------------------------------------------------------------


class Run(Struct, frozen=True):
    """A simple command; without arguments, only its assignments and redirections."""

    command: SimpleCommand


class Array(Struct, frozen=True):
    """The assignment of an array."""

    name: str
    words: tuple[Word, ...]


class Export(Struct, frozen=True):
    """Sets a variable and exports it to the commands that follow."""

    name: str
    value: Word


class Redirected(Struct, frozen=True):
    """A compound command with redirections; ``step`` is None for the ``< path`` of ``$(< path)``."""

    step: Step | None
    redirections: tuple[Redirection, ...] = ()
    stdin: Word | None = None  # a here-string's text


class Pipeline(Struct, frozen=True):
    """Commands that each read what the one before them prints."""

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
    """A ``for`` loop over values that are known only at run time."""

    name: str
    words: tuple[Word, ...]
    body: Block
    alone: bool = True  # False: one of several rounds of a loop whose other values are known


class Rounds(Struct, frozen=True):
    """An unrolled loop over known values: each block is one round, which ``break`` and ``continue`` may leave."""

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


# --- questions to a tree --------------------------------------------------------------------------------


def one_step(block: Block) -> Step:
    """Return a block as one step."""
    return block[0] if len(block) == 1 else Group(block)


def source_text(node: Node | None, source: bytes) -> str:
    """Return a node's text without the leading blanks that the parser may include."""
    return "" if node is None else source[node.start_byte : node.end_byte].decode().lstrip(" \t")


def assigned_names(node: Node, source: bytes) -> frozenset[str]:
    """Return the variables that are assigned anywhere in a piece of the tree."""
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
    """Return the values that a word of a ``for`` loop yields; ``$(seq 3)`` and ``$(seq 2 5)`` are expanded."""
    if word.kind is not WordKind.DYNAMIC or word.single or len(word.outputs) != 1:
        return [word]
    counted = _SEQ.fullmatch(word.outputs[0].line)
    if counted is None:
        return [word]
    numbers = range(int(counted[1] or 1), int(counted[2]) + 1)
    if len(numbers) > _MOST_ROUNDS:
        raise UnclearError(f"the loop has more than {_MOST_ROUNDS} rounds: write fewer")
    return [Word(text=str(number)) for number in numbers]


# --- variables that a command may set -------------------------------------------------------------------


def refuse_variable(name: str, *, exported: bool) -> str | None:
    """Return why a variable may not be set, or None; ``exported``: a command will see it."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is not a plain name for a variable"
    if exported and not EXPORTABLE.fullmatch(name):
        return f"setting {name} for a command is not allowed: run the command without it"
    if not exported and _INFLUENTIAL.fullmatch(name.upper()):
        return f"setting {name} could change what other commands do: use another name, in lower case"
    return None


def refuse_value(name: str, value: str) -> str | None:
    """Return why a value may not be passed to a command in a variable, or None."""
    if _HARMLESS_VALUE.fullmatch(value) and "/" not in value.removeprefix(":")[:1]:
        return None
    return f"{name}={value[:40]!r} is not a plain value"


# --- the recorder of a walk -----------------------------------------------------------------------------


class Recorder:
    """Records commands, problems and the state of a walk."""

    def __init__(self) -> None:
        self.commands: list[SimpleCommand] = []
        self.problem: str | None = None  # the first thing that is unclear
        self.refusal: str | None = None  # the first thing that is clear and forbidden
        self._calls = 0  # depth of nested function calls
        self._unknown_rounds = 0  # enclosing loops with an unknown number of rounds
        self._feeds: tuple[SimpleCommand, ...] | None = None  # the pipeline's earlier commands
        self._steps: list[Step] = []  # of the block that the walk is in

    def _note(self, command: SimpleCommand) -> SimpleCommand:
        """Record a command for the judge, and return it as recorded."""
        if len(self.commands) >= MOST_COMMANDS:
            raise TooMuchError(f"more than {MOST_COMMANDS} commands in one call: split it")
        piped, number = self._feeds is not None, len(self.commands)
        repeated = self._unknown_rounds > 0
        kept = replace(command, repeated=repeated, piped=piped, feeds=self._feeds or (), number=number)
        self.commands.append(kept)
        return kept

    def _emit(self, command: SimpleCommand) -> None:
        """Record a command, and add it to the tree as a step."""
        self._steps.append(Run(self._note(command)))

    def _block(self, walk: Callable[[], None]) -> Block:
        """Return the steps of a walk as a block of their own."""
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
        """Take a step; if it is unclear, record that and restore the state from before it."""
        before = self._feeds, self._unknown_rounds, self._calls
        try:
            step()
        except TooMuchError:
            raise
        except UnclearError as error:
            self._keep(error)
            self._feeds, self._unknown_rounds, self._calls = before
