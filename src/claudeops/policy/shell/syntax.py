"""The syntax tree of a text, in bounded work.

For some texts tree-sitter takes time that grows with the square of their length: 16 KiB of ``)`` take two seconds,
during which no other thread of the process runs. So the work is counted as the parse proceeds, in pieces of text that
the parser requests (one short piece at a time, again whenever it looks far ahead) and in its own steps. A parse that is
not nearly done by the limit is abandoned, and so is one that met an error, since its tree would not be trusted anyway.
Signs that nest or repeat without more requests (the parser joins their trees at the end of the text) are bounded by the
number of times that they may occur.
"""

from __future__ import annotations

from typing import Final

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Point

from claudeops.policy.shell.language import UnclearError

MOST_SIGNS: Final = {
    **dict.fromkeys(b"|&;<>\n", 1024),
    **dict.fromkeys(b"()", 512),
    ord("`"): 128,
}
"""How often a sign may occur in a text, quoted or not; 256 commands of one text are judged."""

_PIECE: Final = 256  # bytes
_MOST_PIECES: Final = 8192  # the longest text has 64, and usual texts are read twice
_MOST_STEPS: Final = 4096  # of a hundred operations each; the longest usual text takes 500
_LANGUAGE: Final = Language(tree_sitter_bash.language())


def syntax_tree(source: bytes) -> Node:
    """Return the root of a text's syntax tree. Raises `UnclearError` for a text that is invalid or takes too long."""
    for sign, most in MOST_SIGNS.items():
        if source.count(sign) > most:
            raise UnclearError(f"the command holds more than {most} times {chr(sign)!r}: split it")
    work = _Work(source)
    try:
        root = Parser(_LANGUAGE).parse(work.piece, progress_callback=work.is_too_much).root_node
    except ValueError:  # abandoned
        root = None
    if root is None or root.has_error:
        raise UnclearError("the command cannot be parsed: write it in plain bash, one step a call")
    return root


class _Work:
    """Counts the parser's work on a text."""

    __slots__ = ("_pieces", "_source", "_steps")

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._pieces = 0
        self._steps = 0

    def piece(self, start: int, _point: Point | None) -> bytes:
        """Return the text from a byte on, always the same: the parser crashes on a text that changes."""
        self._pieces += 1
        return self._source[start : start + _PIECE]

    def is_too_much(self, _offset: int, has_error: bool) -> bool:  # noqa: FBT001 - as tree-sitter calls it
        """Whether the parser must give up."""
        self._steps += 1
        return has_error or self._pieces > _MOST_PIECES or self._steps > _MOST_STEPS
