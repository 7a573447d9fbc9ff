"""What the exit status of a text proves about each of its commands.

A call of the Bash tool reports success or failure by one number, the exit status of its text. That number proves that a
command worked only where its failure could not have been hidden. Behind ``;``, in a pipe and in a loop over known
values every command runs, and the status is that of the last one. About commands beside ``||``, behind ``!``, in a
branch or in any other loop, nothing is known; nor about any command of a text that may leave by ``exit`` before its
end.
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
    """What a text's status 0 proves about its simple commands, by the byte at which each begins."""

    by_start: dict[int, Certainty]

    def of(self, node: Node) -> Certainty:
        """Return what the text's status 0 proves about a simple command."""
        return self.by_start.get(node.start_byte, Certainty.NOTHING)


def certainties(root: Node) -> Certainties:
    """Return what the status 0 of a text proves about its commands."""
    return Certainties(by_start={node.start_byte: certainty for node, certainty in _proved(root, Certainty.WORKED)})


def unless_it_exits(commands: Iterable[SimpleCommand]) -> tuple[SimpleCommand, ...]:
    """Return the commands of a text, with nothing proved about them where one may leave before the others.

    The words are checked after expansion, because ``exit`` has many spellings.
    """
    found = tuple(commands)
    if not any(_LEAVING & set(word.text.split()) for command in found for word in command.argv):
        return found
    return tuple(replace(command, certainty=Certainty.NOTHING) for command in found)


def _proved(node: Node, certainty: Certainty) -> Iterator[tuple[Node, Certainty]]:
    match node.type:
        case "command":
            yield node, certainty
        case "program" | "subshell" | "compound_statement" | "pipeline" | "do_group":
            yield from _of_sequence(node, certainty)
        case "for_statement":  # a loop over known values is unrolled, so every round is seen
            body = node.child_by_field_name("body")
            yield from () if body is None else _of_sequence(body, Certainty.RAN)
        case "list":
            yield from _of_list(node, certainty)
        case "redirected_statement":
            # What follows a here-document on its line is below it in the tree: nothing is proved about such a text.
            body = node.child_by_field_name("body")
            if body is not None and all(child.type in _PLAIN for child in node.children_by_field_name("redirect")):
                yield from _proved(body, certainty)
        case _:
            return


def _of_sequence(node: Node, certainty: Certainty) -> Iterator[tuple[Node, Certainty]]:
    """Yield the commands of a sequence, by lines, ``;`` or pipes: the status is that of the last one."""
    parts = [child for child in node.named_children if child.type not in _NO_STATEMENTS]
    if any(child.type in {"&", "(("} for child in node.children):
        return
    for number, part in enumerate(parts, 1):
        yield from _proved(part, certainty if number == len(parts) else Certainty.RAN)


def _of_list(node: Node, certainty: Certainty) -> Iterator[tuple[Node, Certainty]]:
    sides = [child for child in node.children if child.type not in {"comment", "\n"}]
    if [side.type for side in sides[1:-1]] != ["&&"]:
        return
    yield from _proved(sides[0], certainty)
    if certainty is Certainty.WORKED:  # otherwise the left side may have failed, and this side not have run
        yield from _proved(sides[-1], certainty)
