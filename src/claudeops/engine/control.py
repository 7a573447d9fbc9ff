"""How a running session is asked to stop, and the clocks that may ask."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from claudeops.domain.outcome import StopCause

if TYPE_CHECKING:
    from collections.abc import Callable


class Control:
    """The stop request of one session. The first cause wins: it is what the outcome will say."""

    def __init__(self) -> None:
        self.cause: StopCause | None = None
        self._asked = anyio.Event()

    def stop(self, cause: StopCause) -> None:
        """Ask the session to stop; later causes are ignored."""
        if self.cause is None:
            self.cause = cause
            self._asked.set()

    async def asked(self) -> None:
        """Return once somebody has asked. The waiter's task group bounds the wait."""
        await self._asked.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The clocks of a session, in seconds."""

    session: float  # wall clock, from spawn to exit
    startup: float  # until the first frame
    silence: float  # between frames while no tool is open
    result_grace: float  # between the result line and the exit
    stop_grace: float  # the whole stop ladder


@dataclass(slots=True, kw_only=True)
class Clocks:
    """Which clock of a running session is due next.

    An open tool call suspends the silence clock: a tool may say nothing for as long as the wall clock allows.
    """

    limits: Timeouts
    monotonic: Callable[[], float]
    _started: float = field(init=False)
    _last_frame: float | None = field(init=False, default=None)
    _result: float | None = field(init=False, default=None)
    _open_tools: set[str] = field(init=False, default_factory=set)
    _changed: anyio.Event = field(init=False, default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self._started = self.monotonic()

    def frame(self) -> None:
        """Note that a frame has arrived."""
        first = self._last_frame is None
        self._last_frame = self.monotonic()
        if first:
            self._wake()

    def tool_opened(self, tool_use_id: str) -> None:
        """Note that a tool call stands open."""
        self._open_tools.add(tool_use_id)

    def tool_closed(self, tool_use_id: str) -> None:
        """Note that a tool call has its result."""
        self._open_tools.discard(tool_use_id)
        if not self._open_tools:
            self._wake()

    def result(self) -> None:
        """Start the grace period after a result line."""
        self._result = self.monotonic()
        self._wake()

    def resume(self) -> None:
        """Forget the result line: the session was asked for one more turn."""
        self._result = None
        self._wake()

    def _wake(self) -> None:
        """Have the watch look again: a deadline may have come that is earlier than the one it waits for."""
        self._changed.set()

    def next_due(self) -> tuple[float, StopCause]:
        """Return the earliest deadline (monotonic seconds) and what it would mean."""
        candidates = [(self._started + self.limits.session, StopCause.TIMEOUT)]
        if self._last_frame is None:
            candidates.append((self._started + self.limits.startup, StopCause.STARTUP_TIMEOUT))
        elif self._result is not None:
            candidates.append((self._result + self.limits.result_grace, StopCause.RESULT_GRACE))
        elif not self._open_tools:
            candidates.append((self._last_frame + self.limits.silence, StopCause.STALLED))
        return min(candidates)

    async def watch(self, control: Control) -> None:
        """Stop the session when a clock runs out. Ends then, or with its task group."""
        while True:
            deadline, cause = self.next_due()
            remaining = deadline - self.monotonic()
            if remaining <= 0:
                control.stop(cause)
                return
            self._changed = anyio.Event()
            with anyio.move_on_after(remaining):
                await self._changed.wait()
