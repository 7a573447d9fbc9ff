"""The syntax tree of a text, in bounded work.

tree-sitter reads some texts in time that grows with the square of their length: 16 KiB of ``)`` take two seconds, and
as long no other thread of the process runs. So the work is counted as it goes on, in what the parser asks for (a short
piece of the text at a time, again whenever it looks far ahead) and in its own steps; a parse that is not nearly done by
then is given up, and so is one that met an error, which nobody would believe anyway. What nests or repeats without
asking for anything more (it joins its trees at the end of the text) is bounded by how often its signs may occur.
"""

from __future__ import annotations

from typing import Final

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Point

from claudeops.domain.shell.values import UnclearError

MOST_SIGNS: Final = {
    **dict.fromkeys(b"|&;<>\n", 1024),
    **dict.fromkeys(b"()", 512),
    ord("`"): 128,
}
"""How often a sign may stand in a text, quoted or not; 256 commands of one text are judged."""

_PIECE: Final = 256  # bytes
_MOST_PIECES: Final = 8192  # the longest text has 64, and usual ones are read twice
_MOST_STEPS: Final = 4096  # of a hundred operations; the longest usual text takes 500
_LANGUAGE: Final = Language(tree_sitter_bash.language())


def syntax_tree(source: bytes) -> Node:
    """Return the root of a text's syntax tree. Raises `UnclearError` for a text that is none, or takes too long."""
    for sign, most in MOST_SIGNS.items():
        if source.count(sign) > most:
            raise UnclearError(f"the command holds more than {most} times {chr(sign)!r}: split it")
    work = _Work(source)
    try:
        root = Parser(_LANGUAGE).parse(work.piece, progress_callback=work.is_too_much).root_node
    except ValueError:  # given up
        root = None
    if root is None or root.has_error:
        raise UnclearError("the command cannot be parsed: write it in plain bash, one step a call")
    return root


class _Work:
    """Counts what the parser does with a text."""

    __slots__ = ("_pieces", "_source", "_steps")

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._pieces = 0
        self._steps = 0

    def piece(self, start: int, _point: Point | None) -> bytes:
        """Return the text from a byte on. The same at all times: the parser crashes on a text that changes."""
        self._pieces += 1
        return self._source[start : start + _PIECE]

    def is_too_much(self, _offset: int, has_error: bool) -> bool:  # noqa: FBT001 - as tree-sitter calls it
        """Whether the parser is to give up."""
        self._steps += 1
        return has_error or self._pieces > _MOST_PIECES or self._steps > _MOST_STEPS
