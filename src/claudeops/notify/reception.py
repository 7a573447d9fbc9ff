"""Whether the answers that people give in chats arrive: what a bot cannot receive is an event with the remedy.

A bot whose updates go elsewhere still sends questions, with buttons that do nothing. Nothing else shows that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import anyio

from claudeops.domain.events import EventLevel, NewEvent, of_node, on_node
from claudeops.domain.notices.notice import DEAF
from claudeops.errors import StoreError
from claudeops.store.probes import Probes
from claudeops.text import clip, join_names, one_line
from claudeops.text.escapes import visible

MOST_FAILURES: Final = 3
"""After how many failures in a row the answers of a chat count as not received."""

LASTING_SECONDS: Final = 300.0
"""How long failures that may pass must last besides: a network that is away for a minute needs no person."""

_MOST_CHARACTERS: Final = 300  # of a server's answer


@dataclass(kw_only=True)
class AnswerReception:
    """Keeps the event that answers in some chats, which one connection brings, are not received."""

    targets: Collection[str]  # that are these chats
    events: Probes
    redact: Callable[[str], str]
    now: Callable[[], datetime]
    node: str = ""  # the machine that would receive them
    settle_seconds: float = 0.0  # for which answers are received again before the event ends
    is_broken: bool = False  # answers are not received now
    _failures: int = 0  # in a row
    _since: float = 0.0  # of the first of them, by the event loop's clock
    _well_since: float | None = None  # of the first success after them
    _written: str | None = None  # in the open event, "" without one; None: an earlier daemon may have left it
    _message: str = ""
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    @property
    def fingerprint(self) -> str:
        """The event's."""
        return on_node(self._name, self.node)

    @property
    def _name(self) -> str:
        return clip(DEAF + ",".join(sorted(self.targets)))

    async def failed(self, why: str, remedy: str) -> None:
        """Note a failure; ``remedy`` is empty where it may pass by itself."""
        if not self._failures:
            self._since = anyio.current_time()
        self._failures, self._well_since = self._failures + 1, None
        lasts = bool(remedy) or anyio.current_time() - self._since >= LASTING_SECONDS
        if self.is_broken or (self._failures >= MOST_FAILURES and lasts):
            self.is_broken, self._message = True, self._sentence(why, remedy)
            await self._write()

    async def succeeded(self) -> None:
        """Note that answers are received.

        Of two programs that poll one bot each gets its turn now and then, so one success does not always end it.
        """
        now = anyio.current_time()
        self._failures, self._well_since = 0, now if self._well_since is None else self._well_since
        if self.is_broken and now - self._well_since < self.settle_seconds:
            return
        self.is_broken = False
        await self._write()

    def _sentence(self, why: str, remedy: str) -> str:
        shown = visible(self.redact(one_line(why)))[:_MOST_CHARACTERS]
        return (
            f"answers in {join_names(sorted(self.targets))} are not received ({shown}): "
            f"{remedy or 'see that the server can be reached'}; until then answer with `claudeops approve N` or "
            "`claudeops deny N` (`claudeops list-approvals` has the numbers)."
        )

    async def _write(self) -> None:
        """Make the event stand, or not; what the database does not take now is written after the next try."""
        async with self._turn:
            message = self._message if self.is_broken else ""
            if self._written == message:
                return
            event = NewEvent(level=EventLevel.CRITICAL, message=message, fingerprint=self._name)
            with suppress(StoreError):
                await self.events.note(of_node(event, self.node), over=not message, now=self.now())
                self._written = message


def by_command(approval_id: int) -> str:
    """Return the line of a question whose buttons do nothing."""
    return (
        "What is pressed here does not arrive now: answer with "
        f"`claudeops approve {approval_id}` or `claudeops deny {approval_id}`."
    )
