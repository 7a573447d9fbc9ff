"""Work that may never end, beside the event loop: waited for a while, and given up then.

`anyio.to_thread` gives a limiter's place back when its caller stops waiting, whether or not the thread has ended, and
the process cannot end before its threads have. Here a thread that was given up is counted until it ends, no new one is
started beyond a number, and the process ends without them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

AT_ONCE: Final = 4
"""Threads that are waited for; one more waits for its turn, and its time runs."""

MOST_GIVEN_UP: Final = 8
"""Threads that nobody waits for any more; while there are so many, nothing new is begun."""


class NotDoneError(Exception):
    """The work was not done in time; ``str()`` says so."""


@dataclass(kw_only=True, slots=True)
class BoundedThreads:
    """Threads for work that may hang; to be used from one event loop."""

    seconds: float  # each work is waited for
    _places: anyio.CapacityLimiter = field(init=False, default_factory=lambda: anyio.CapacityLimiter(AT_ONCE))
    _given_up: int = field(init=False, default=0)

    @property
    def given_up(self) -> int:
        """How many threads still run of which nobody waits for the end."""
        return self._given_up

    async def run(self, work: Callable[[], Result]) -> Result:
        """Return what ``work`` returns, or raise what it raises.

        Raises `NotDoneError` when it takes longer than ``seconds``, the wait for a place among them, or cannot begin.
        """
        if self._given_up >= MOST_GIVEN_UP:
            raise NotDoneError(f"{self._given_up} others were given up and still run")
        job = _Job(work, self._ended)
        with anyio.move_on_after(self.seconds):
            async with self._places:
                job.start()
                try:
                    await job.done.wait()
                finally:
                    if not job.done.is_set():
                        job.given_up = True
                        self._given_up += 1
        if not job.done.is_set():
            raise NotDoneError(f"it took longer than {self.seconds:g} seconds")
        return job.result()

    def _ended(self, job: _Job[Result]) -> None:
        if job.given_up:
            self._given_up -= 1


class _Job(Generic[Result]):
    """One piece of work in a thread of its own."""

    __slots__ = ("_ended", "_failure", "_loop", "_results", "_work", "done", "given_up")

    def __init__(self, work: Callable[[], Result], ended: Callable[[_Job[Result]], None]) -> None:
        self._work = work
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._results: list[Result] = []
        self._failure: Exception | None = None
        self.done = anyio.Event()
        self.given_up = False

    def start(self) -> None:
        """Start the thread. Raises `NotDoneError` when the machine has none left."""
        try:
            threading.Thread(target=self._run, name="bounded", daemon=True).start()
        except RuntimeError as error:
            raise NotDoneError(f"no thread could be started: {error}") from None

    def result(self) -> Result:
        """Return the result of work that is done, or raise what it raised."""
        if self._failure is not None:
            raise self._failure
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            self._failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self.done.set()
        self._ended(self)
