"""What a walk through a text has found so far: its commands, the tree they stand in, and why it may be incomplete."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from claudeops.domain.shell.values import ForbiddenError, Run, SimpleCommand, TooMuchError, UnclearError

if TYPE_CHECKING:
    from collections.abc import Callable

    from claudeops.domain.shell.values import Block, Step

MOST_COMMANDS: Final = 256  # of one text, loops unrolled


class Recorder:
    """Keeps commands, doubts and where the walk stands."""

    def __init__(self) -> None:
        self.commands: list[SimpleCommand] = []
        self.problem: str | None = None  # the first thing that is unclear
        self.refusal: str | None = None  # the first thing that is clear and may not be done
        self._calls = 0  # of functions within each other
        self._unknown_rounds = 0  # loops around, of which nobody knows how often they run
        self._feeds: tuple[SimpleCommand, ...] | None = None  # what the pipeline's earlier commands are
        self._steps: list[Step] = []  # of the block that the walk is in

    def _note(self, command: SimpleCommand) -> SimpleCommand:
        """Keep a command for the judge, and return it as it was kept."""
        if len(self.commands) >= MOST_COMMANDS:
            raise TooMuchError(f"more than {MOST_COMMANDS} commands in one call: split it")
        piped, number = self._feeds is not None, len(self.commands)
        repeated = self._unknown_rounds > 0
        kept = replace(command, repeated=repeated, piped=piped, feeds=self._feeds or (), number=number)
        self.commands.append(kept)
        return kept

    def _emit(self, command: SimpleCommand) -> None:
        """Keep a command, and run it at this place of the tree."""
        self._steps.append(Run(self._note(command)))

    def _block(self, walk: Callable[[], None]) -> Block:
        """Return the steps of a walk, which do not become steps of the block around it."""
        outer, self._steps = self._steps, []
        try:
            walk()
            return tuple(self._steps)
        finally:
            self._steps = outer

    def _keep(self, error: UnclearError) -> None:
        if isinstance(error, ForbiddenError):
            self.refusal = self.refusal or str(error)
        else:
            self.problem = self.problem or str(error)

    def _attempt(self, step: Callable[[], None]) -> None:
        """Take a step; keep what is unclear about it, and stand where the step began."""
        before = self._feeds, self._unknown_rounds, self._calls
        try:
            step()
        except TooMuchError:
            raise
        except UnclearError as error:
            self._keep(error)
            self._feeds, self._unknown_rounds, self._calls = before
