"""Reads a Bash command as the plain language: what it runs is literal, or it is refused with a way to write it.

Values in, values out: `parse` runs nothing and looks at no file. Unfolding wrappers (``sudo``, ``ssh``, ``bash -c`` and
so on) is the business of `claudeops.policy`, which calls `parse` again for inner texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from claudeops.policy.shell.exit_status import with_certainty
from claudeops.policy.shell.language import Certainty, Parsed, Redirection, SimpleCommand, UnclearError, Word
from claudeops.policy.shell.lexical import check_source, check_tree, end_lines
from claudeops.policy.shell.reader import ShellReader
from claudeops.policy.shell.syntax import syntax_tree

__all__ = ["Certainty", "Parsed", "Redirection", "SimpleCommand", "Word", "parse"]

_MOST_ENDINGS: Final = 4  # times that a text is parsed again
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def parse(command: str, *, known: Mapping[str, str] = _NOTHING) -> Parsed:
    """Return what a text runs; ``known`` are variables of the environment whose values are known.

    With a ``problem`` (one sentence that says what to write instead) the commands may be incomplete, so the text must
    not run on the strength of them.
    """
    try:
        source = check_source(command)
        root = syntax_tree(source)
        for _ in range(_MOST_ENDINGS):
            ended = end_lines(root, source)
            if ended == source:
                break
            source, root = ended, syntax_tree(ended)
        check_tree(root, source)
    except UnclearError as error:
        return Parsed(refusal=str(error))  # nothing in it can be judged, and plainer spelling always helps
    reader = ShellReader(source)
    block = reader.program(root, known)
    return Parsed(
        block=block,
        commands=with_certainty(reader.commands, block),
        problem=reader.problem,
        refusal=reader.refusal,
    )
