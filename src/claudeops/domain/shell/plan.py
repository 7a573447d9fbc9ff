"""The tree of a command text, as the walk understood it: what `claudeops.domain.shell.render` writes down again.

A step is one statement, a block is statements one after another. Loops over known values are unrolled, functions stand
where they are called, and what is known of a word is its text: the tree holds nothing that a judge has not seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from claudeops.domain.shell.values import Redirection, SimpleCommand, Word


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
