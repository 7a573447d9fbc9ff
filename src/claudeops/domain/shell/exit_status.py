"""Which commands of a text its exit status speaks for.

A call of the Bash tool tells whether it failed by one number, the exit status of its text. That number says that a
command worked only where its failure could not have been hidden. Behind ``;``, in a pipe and in a loop over what is
known, every command runs, and the status is that of the last one. Of what stands beside ``||``, behind ``!``, in a
branch or in any other loop, nothing is known; nor of any command of a text that may leave before its end by ``exit``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tree_sitter import Node

from claudeops.domain.shell.values import Certainty, SimpleCommand

_NO_STATEMENTS: Final = frozenset({"comment", "function_definition"})
_PLAIN: Final = frozenset({"file_redirect", "herestring_redirect"})
_LEAVING: Final = frozenset({"exit", "return", "logout", "break", "continue"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Certainties:
    """What is said of the simple commands of a tree, by the byte at which each begins."""

    by_start: dict[int, Certainty]

    def of(self, node: Node) -> Certainty:
        """Return what the text's status 0 says of a simple command."""
        return self.by_start.get(node.start_byte, Certainty.NOTHING)


def certainties(root: Node) -> Certainties:
    """Return what the status 0 of a text certainty of its commands."""
    return Certainties(by_start={node.start_byte: certainty for node, certainty in _outcomes(root, Certainty.WORKED)})


def unless_it_exits(commands: Iterable[SimpleCommand]) -> tuple[SimpleCommand, ...]:
    """Return the commands of a text; nothing is said of them where one may leave before the others.

    Asked of the words as they turned out, for ``exit`` has many spellings.
    """
    found = tuple(commands)
    if not any(_LEAVING & set(word.text.split()) for command in found for word in command.argv):
        return found
    return tuple(replace(command, certainty=Certainty.NOTHING) for command in found)


def _outcomes(node: Node, certainty: Certainty) -> Iterator[tuple[Node, Certainty]]:
    match node.type:
        case "command":
            yield node, certainty
        case "program" | "subshell" | "compound_statement" | "pipeline" | "do_group":
            yield from _of_sequence(node, certainty)
        case "for_statement":  # a loop over what is known is unrolled, so each of its rounds is seen
            body = node.child_by_field_name("body")
            yield from () if body is None else _of_sequence(body, Certainty.RAN)
        case "list":
            yield from _of_list(node, certainty)
        case "redirected_statement":
            # What follows a here-document on its line hangs below it in the tree: of such a text nothing is said.
            body = node.child_by_field_name("body")
            if body is not None and all(child.type in _PLAIN for child in node.children_by_field_name("redirect")):
                yield from _outcomes(body, certainty)
        case _:
            return


def _of_sequence(node: Node, certainty: Certainty) -> Iterator[tuple[Node, Certainty]]:
    """Yield what stands one behind the other, by lines, ``;`` or pipes: the status is that of the last."""
    parts = [child for child in node.named_children if child.type not in _NO_STATEMENTS]
    if any(child.type in {"&", "(("} for child in node.children):
        return
    for number, part in enumerate(parts, 1):
        yield from _outcomes(part, certainty if number == len(parts) else Certainty.RAN)


def _of_list(node: Node, certainty: Certainty) -> Iterator[tuple[Node, Certainty]]:
    sides = [child for child in node.children if child.type not in {"comment", "\n"}]
    if [side.type for side in sides[1:-1]] != ["&&"]:
        return
    yield from _outcomes(sides[0], certainty)
    if certainty is Certainty.WORKED:  # else the left side may have failed, and this never have run
        yield from _outcomes(sides[-1], certainty)
