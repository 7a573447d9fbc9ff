"""One thread for everything that writes: transactions are run one after the other and never cut short."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from claudeops.errors import DatabaseUnavailableError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

T = TypeVar("T")

_URGENT: Final = 0
_USUAL: Final = 1
_LAST: Final = 2  # the order to stop: after everything that was handed in before


@dataclass(order=True, slots=True)
class _Job:
    """What the thread finds in its queue; ``run`` is ``None`` for the order to stop."""

    priority: int
    number: int  # order of arrival among equals
    run: Callable[[], None] | None = field(compare=False)


class _Delivery:
    """Hands whatever a job raises to the caller who waits for it; the thread lives on."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None:
            self._future.set_exception(error)
        return True


class Writer:
    """A thread that runs jobs by urgency, then in their order of arrival.

    A job that was begun is run to its end, whether or not its caller still waits. A job whose caller has
    gone before it was begun is not run at all.
    """

    def __init__(self, *, wait_seconds: float) -> None:
        self._wait_seconds = wait_seconds
        self._jobs: queue.PriorityQueue[_Job] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._closing = threading.Lock()  # no job may slip in behind the order to stop
        self._closed = False
        # A daemon thread: a disk that never answers must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[], T], *, urgent: bool = False) -> T:
        """Run ``job`` in the thread and return its result; urgent ones overtake those that wait.

        Raises what the job raises, `DatabaseUnavailableError` when it did not end in time, and `StoreError`
        after `close`.
        """
        future: Future[T] = Future()
        self._submit(future, job, _URGENT if urgent else _USUAL)
        with anyio.move_on_after(self._wait_seconds):
            # Cancelling this wait cancels the future, which withdraws a job that was not begun.
            return await asyncio.wrap_future(future)
        if future.cancel():
            raise DatabaseUnavailableError(f"the database was busy for {self._wait_seconds:g} s; nothing was written.")
        if future.done():  # it ended at the very moment the wait did
            return future.result()
        raise DatabaseUnavailableError(
            f"the database did not finish within {self._wait_seconds:g} s; the write may still arrive."
        )

    async def close(self) -> None:
        """Run what was handed in before, then end the thread; bounded, and safe to call twice."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._jobs.put(_Job(priority=_LAST, number=next(self._numbers), run=None))
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join, self._wait_seconds)

    def _submit(self, future: Future[T], job: Callable[[], T], priority: int) -> None:
        def run() -> None:
            if future.set_running_or_notify_cancel():
                with _Delivery(future):
                    future.set_result(job())

        with self._closing:
            if self._closed:
                raise StoreError("the database is closed: the daemon is shutting down.")
            self._jobs.put(_Job(priority=priority, number=next(self._numbers), run=run))

    def _work(self) -> None:
        while (run := self._jobs.get().run) is not None:
            run()
