"""What the exit status of a text proves about each of its commands.

A call of the Bash tool reports success or failure by one number, the exit status of its text. That number proves that a
command worked only where its failure could not have been hidden. Behind ``;``, in a pipe and in an unrolled loop every
command runs, and the status is that of the last one. About commands beside ``||``, behind ``!`` or in a branch, nothing
is known; nor about any command of a text that may leave by ``exit`` before its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from claudeops.policy.shell.language import (
    Block,
    Certainty,
    Chained,
    Group,
    Pipeline,
    Redirected,
    Run,
    SimpleCommand,
    Step,
    Subshell,
    shown,
)
from claudeops.structs import replace

_LEAVING: Final = frozenset({"exit", "return", "logout"})


def with_certainty(commands: Iterable[SimpleCommand], block: Block) -> tuple[SimpleCommand, ...]:
    """Return the commands of a text with what its status 0 proves about them."""
    found = tuple(commands)
    if any(_LEAVING & set(shown(word).split()) for command in found for word in command.argv):
        return found
    proved = dict(_of_sequence(block, Certainty.WORKED))
    return tuple(replace(each, certainty=proved.get(each.number, Certainty.NOTHING)) for each in found)


def _proved(step: Step, certainty: Certainty) -> Iterator[tuple[int, Certainty]]:
    match step:
        case Run(command):
            yield command.number, certainty
        case Redirected(inner):
            yield from _proved(inner, certainty)
        case Pipeline(block) | Subshell(block) | Group(block):
            yield from _of_sequence(block, certainty)
        case Chained(left, "&&", right):
            yield from _proved(left, certainty)
            if certainty is Certainty.WORKED:  # otherwise the left side may have failed, and this side not have run
                yield from _proved(right, certainty)
        case _:
            return


def _of_sequence(block: Block, certainty: Certainty) -> Iterator[tuple[int, Certainty]]:
    """Yield the commands of a sequence, by lines, ``;`` or pipes: the status is that of the last one."""
    for number, step in enumerate(block, 1):
        yield from _proved(step, certainty if number == len(block) else Certainty.RAN)
