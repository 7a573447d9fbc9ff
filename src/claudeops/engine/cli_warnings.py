"""Events about what a CLI itself warns of, each kind once a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from claudeops.domain.model import Level, NewEvent

if TYPE_CHECKING:
    from claudeops.domain.stream import CliWarned

MOST_KINDS: Final = 10
"""Kinds of warnings of one session that leave an event; more of them would be a flood, not news."""

MESSAGE_CHARACTERS: Final = 500


class CliWarnings:
    """Makes events of one session's warning frames, live and when its log is read again."""

    def __init__(self, cli: str) -> None:
        self._cli = cli
        self._kinds: set[str] = set()

    def event(self, warned: CliWarned) -> NewEvent | None:
        """Return the event for a warning of a new kind. It is no failure: another model than asked for, say."""
        kind = warned.subtype or "warning"
        if kind in self._kinds or len(self._kinds) >= MOST_KINDS:
            return None
        self._kinds.add(kind)
        message = f"The {self._cli} CLI warned: {kind}: {warned.message[:MESSAGE_CHARACTERS]}"
        return NewEvent(level=Level.WARNING, message=message, fingerprint=f"cli_warning:{kind}")
