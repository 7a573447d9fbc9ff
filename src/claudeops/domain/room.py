"""How many queued sessions a claim may take at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from claudeops.domain.model import Session


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """How many sessions may start now."""

    sessions: int = 1  # in all
    above: int | None = None  # of them above the lowest tier; None: all of them

    @property
    def lowest_only(self) -> bool:
        """Whether nothing above the lowest tier may start."""
        return self.above is not None and self.above <= 0

    def beside(self, taken: Sequence[Session], *, lowest_tier: int) -> Room:
        """Return what is left of it."""
        above = sum(1 for session in taken if session.tier > lowest_tier)
        return Room(sessions=self.sessions - len(taken), above=None if self.above is None else self.above - above)


ONE: Final = Room()
"""One session of any tier."""
