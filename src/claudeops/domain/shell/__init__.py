"""Parses a Bash command into the simple commands in it.

Values in, values out: `parse` runs nothing and looks at no file. Unfolding wrappers (``sudo``, ``ssh``, ``bash -c`` and
so on) is the business of `claudeops.domain.policy.unfold`, which calls `parse` again for inner texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from claudeops.domain.shell.exit_status import certainties, unless_it_exits
from claudeops.domain.shell.lexical import check_source, check_tree
from claudeops.domain.shell.syntax import syntax_tree
from claudeops.domain.shell.values import Certainty, Parsed, Redirection, SimpleCommand, UnclearError, Word, WordKind
from claudeops.domain.shell.walk import Walker

__all__ = ["Certainty", "Parsed", "Redirection", "SimpleCommand", "Word", "WordKind", "parse"]

_NOTHING: Final[Mapping[str, Word]] = MappingProxyType({})


def parse(command: str, *, known: Mapping[str, Word] = _NOTHING) -> Parsed:
    """Return every simple command in ``command``, in the order of the text.

    Commands are found in pipes, lists, subshells, groups, branches, loops, functions (where they are called),
    substitutions of every kind and here-documents that are expanded. Loops over known values are unrolled. ``known``
    are variables of the environment whose values may be used. With a ``problem`` (one sentence that says what to write
    instead) the list of commands may be incomplete, so the text must not run on the strength of it.
    """
    try:
        source = check_source(command)
        root = syntax_tree(source)
        check_tree(root, source)
    except UnclearError as error:
        return Parsed(problem=str(error))
    walker = Walker(source, certainties(root))
    walker.program(root, known)
    return Parsed(
        commands=unless_it_exits(walker.commands),
        problem=walker.problem,
        refusal=walker.refusal,
        defines=walker.defines,
        block=walker.block,
    )
