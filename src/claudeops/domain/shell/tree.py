"""Small questions to a syntax tree that more than one place asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from claudeops.domain import regex
from claudeops.domain.shell.values import UnclearError, Word, WordKind

if TYPE_CHECKING:
    from tree_sitter import Node

WORKING_DIRECTORY: Final = "PWD"  # among assigned names: the working directory changes
_SEQ: Final = regex.Pattern(r"seq (?:(\d{1,4}) )?(\d{1,4})")
_MOST_ROUNDS: Final = 64  # of a loop over seq


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
