"""The plain language: what a text is once it has been read, and nothing in it that its reader has not written down.

A word is a literal, exactly what a program gets, or it says by its type what else it is; so no check takes what is not
known for an empty text. A step is one statement, a block a sequence of them. Loops are unrolled, literal variables are
substituted, ``cd`` has become part of every command behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

MOST_COMMANDS: Final = 256  # of one text, loops unrolled


class UnclearError(Exception):
    """A text is not in the plain language; ``str()`` says why and how to write it instead, for the model to read."""


class ForbiddenError(UnclearError):
    """It is clear what a command would do, and nothing of the kind may run."""


class TooMuchError(Exception):
    """A text grows beyond all bounds when it is read; nothing more of it is looked at."""


class Certainty(StrEnum):
    """What the status 0 of a text proves about one of its commands."""

    NOTHING = "nothing"  # it may have failed, or not have run
    RAN = "ran"  # it ran; whether it failed is not known
    WORKED = "worked"


# --- words ------------------------------------------------------------------------------------------------


class Literal(Struct, frozen=True):
    """Exactly what a program gets."""

    text: str


class NamedPath(Literal, frozen=True):
    """A path that a pattern has found: one of several, of which some may be left out."""


class Output(Struct, frozen=True):
    """Within `Text`: what a look prints, ``$(…)``."""

    block: Block


class StoredVariable(Struct, frozen=True):
    """Within `Text`: what a look printed when `Set` stored it."""

    name: str


class LastStatus(Struct, frozen=True):
    """Within `Text`: ``$?``."""


class Text(Struct, frozen=True):
    """One argument that is known only when it runs: literal text with the output of looks, or a status, in it."""

    parts: tuple[str | Output | StoredVariable | LastStatus, ...]


class Glob(Struct, frozen=True):
    """A pattern for file names, as fnmatch reads it: wildcards that were quoted stand in brackets.

    The judge replaces it by the names that it finds; none is left in what runs.
    """

    pattern: str


class StreamFile(Struct, frozen=True):
    """A file that holds what a look prints: ``<(…)``."""

    block: Block


class Given(Struct, frozen=True):
    """One word of another look's output, each in a call of its own: what ``xargs`` adds."""

    commands: tuple[SimpleCommand, ...]  # the pipeline that prints it


Word: TypeAlias = Literal | Text | Glob | StreamFile | Given


def shown(word: Word) -> str:
    """Return a word for people; what is not known before it runs stands in angle brackets."""
    match word:
        case Literal(text):
            return text
        case Glob(pattern):
            return pattern
        case Text(parts):
            return "".join(part if isinstance(part, str) else "<output>" for part in parts)
        case StreamFile():
            return "<stream>"
        case Given():
            return "<input>"


# --- commands ---------------------------------------------------------------------------------------------


class Redirection(msgspec.Struct, frozen=True, kw_only=True):
    """One redirection; here-documents and here-strings are in `SimpleCommand.stdin` instead."""

    operator: str  # ``<``, ``>``, ``>>``, ``>&``
    target: Literal  # a path, or the number of a descriptor after ``>&``
    descriptor: str = ""  # the number in front of the operator


class SimpleCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command with its arguments, wherever in the text it is; without arguments, the redirections of a group."""

    argv: tuple[Word, ...]
    environment: tuple[tuple[str, str], ...] = ()  # variables set for this command alone: ``TZ=UTC date``
    redirections: tuple[Redirection, ...] = ()
    stdin: str | None = None  # the text of a here-document or here-string
    cwd: str | None = None  # the directory that ``cd`` at the head of its list goes to; None: that of the call
    feeds: tuple[SimpleCommand, ...] = ()  # the commands before it in its pipeline
    piped: bool = False  # reads what another command prints
    repeated: bool = False  # runs an unknown number of times: behind ``xargs``, or ``find -exec``
    number: int = -1  # its place among the commands of its text
    certainty: Certainty = Certainty.NOTHING  # what the status 0 of the whole text proves about it

    @property
    def name(self) -> str:
        """The command as written, or "" without one."""
        return shown(self.argv[0]) if self.argv else ""

    @property
    def line(self) -> str:
        """The command and its arguments, separated by one space, for people and for prefixes."""
        return " ".join(map(shown, self.argv))


# --- steps ------------------------------------------------------------------------------------------------


class Run(Struct, frozen=True):
    """A simple command."""

    command: SimpleCommand


class Set(Struct, frozen=True):
    """Stores what a look prints: ``name=$(…)``."""

    name: str
    value: Text


class Redirected(Struct, frozen=True):
    """A group, subshell or branch with redirections."""

    step: Step
    command: SimpleCommand  # without arguments: its redirections and its input


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
    """``{ …; }``; an unrolled loop is one too."""

    block: Block


class Branch(Struct, frozen=True):
    """``if``; an ``elif`` is a branch of its own in ``otherwise``."""

    condition: Block
    then: Block
    otherwise: Block = ()


Step: TypeAlias = Run | Set | Redirected | Pipeline | Chained | Negated | Subshell | Group | Branch
Block: TypeAlias = tuple[Step, ...]


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A text that has been read; with a ``problem`` or a ``refusal`` its commands may be incomplete."""

    block: Block = ()
    commands: tuple[SimpleCommand, ...] = ()  # every simple command, in the order of the text
    problem: str | None = None  # why it is not in the plain language
    refusal: str | None = None  # what it clearly does and may not do


def steps(block: Block) -> Iterator[Step]:
    """Yield every step in a block, from the outside in."""
    for step in block:
        yield step
        match step:
            case Redirected(inner) | Negated(inner):
                yield from steps((inner,))
            case Pipeline(inner) | Subshell(inner) | Group(inner):
                yield from steps(inner)
            case Chained(left, _, right):
                yield from steps((left, right))
            case Branch(condition, then, otherwise):
                yield from steps((*condition, *then, *otherwise))
            case Run() | Set():
                pass


def one_step(block: Block) -> Step:
    """Return a block as one step."""
    return block[0] if len(block) == 1 else Group(block)


def after_cd(block: Block) -> Block:
    """Make what follows ``cd`` depend on it, so that nothing runs in another directory than it was judged for."""
    for place, step in enumerate(block):
        cd, rest = without_cd(step)
        if cd is not None:
            left = (*(() if rest is None else (rest,)), *block[place + 1 :])
            return (*block[:place], Chained(cd, "&&", one_step(left)) if left else cd)
    return block


def without_cd(step: Step) -> tuple[Step | None, Step | None]:
    """Return the ``cd`` at the beginning of a step, and what follows it."""
    match step:
        case Chained(left, operator, right):
            cd, rest = without_cd(left)
            return (None, step) if cd is None else (cd, right if rest is None else Chained(rest, operator, right))
        case Run(command) if command.name == "cd":
            return step, None
    return None, step
