"""What all sessions do, as frames for any number of readers: one subscription, one ring, each fact encoded once.

The publisher never waits: a fact goes into the subscription's queue, and a turn of the event loop later into
the ring, from which each reader takes at its own pace. A reader has no queue of its own, only a place in the ring.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import anyio
import msgspec

from claudeops.domain.calls import VerdictKind
from claudeops.domain.live import CallJudged, LinesLost, LiveFact
from claudeops.web.news import NewsFeed
from claudeops.web.ports import Live, LiveFacts
from claudeops.web.sse import HEARTBEAT, HEARTBEAT_SECONDS, Write, frame, number_after, opening

RING: Final = 4096
"""Facts that are kept for those who come back."""

WAITING: Final = 1000
"""Facts that may wait for a reader; beyond that it has lost the oldest, and reads how many."""

LINGER_SECONDS: Final = 30.0
"""For which the facts are kept when the last reader has gone: it may only have lost its connection."""

_AT_ONCE: Final = 200  # frames in one write


class Feed:
    """The facts since the first reader came. Everything happens on the event loop of the sessions."""

    def __init__(self, live: Live, boot: str, *, stir: Callable[[int], None]) -> None:
        """``boot`` names this daemon; ``stir`` is called with every session of which there is news."""
        self.boot = boot
        self.dropped = 0  # facts that some reader, or the ring, has missed
        self._live = live
        self._stir = stir
        self._ring: deque[_Kept] = deque(maxlen=RING)
        self._last = 0  # the number of the newest
        self._news = NewsFeed()
        self._readers = 0
        self._facts: LiveFacts | None = None
        self._subscription = ExitStack()
        self._is_due = False  # a turn of the loop that takes the facts was asked for
        self._end: asyncio.TimerHandle | None = None

    @property
    def place(self) -> str:
        """The id of the newest fact; whoever gives it later on gets what came after it, or `resync`."""
        return f"{self.boot}.{self._last}"

    @contextmanager
    def reader(self) -> Iterator[None]:
        """Have the facts come for the length of the block."""
        self._readers += 1
        if self._end is not None:
            self._end.cancel()
            self._end = None
        self._subscribe()
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._end = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._unsubscribe)

    def close(self) -> None:
        """Let go of the facts, however many read."""
        if self._end is not None:
            self._end.cancel()
        self._unsubscribe()

    async def send(
        self, write: Write, *, after: str, as_json: bool, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        """Write what comes after an id until cancelled; after an empty one, what comes from now on."""
        with self.reader():
            number = self._last if not after else number_after(self.boot, after)
            is_known = number is not None and self._first - 1 <= number <= self._last
            at = number if number is not None and is_known else self._last
            behind = self._last  # what was missed while away may be more than may wait
            await write(opening(f"{self.boot}.{at}"))
            if not is_known:
                await write(frame(self.place, "resync", "resync"))
            while True:
                at, content = self._after(at, behind, as_json=as_json)
                if content:
                    await write(content)
                    continue
                with anyio.move_on_after(heartbeat_seconds) as waiting:
                    await self._news.wait()
                if waiting.cancelled_caught:
                    await write(HEARTBEAT)

    @property
    def _first(self) -> int:
        return self._last - len(self._ring) + 1

    def _after(self, at: int, behind: int, *, as_json: bool) -> tuple[int, bytes]:
        """Return the next frames of a reader at a number, and the number of their last."""
        oldest = self._first if at < behind else max(self._first, self._last - WAITING + 1)
        frames = []
        if at + 1 < oldest:
            skipped = [self._ring[place] for place in range(max(0, at + 1 - self._first), oldest - self._first)]
            gone = max(0, self._first - 1 - at)  # out of the ring too
            self.dropped += gone + sum(not one.is_loss for one in skipped)
            at = oldest - 1
            frames.append(frame(f"{self.boot}.{at}", "lost", str(gone + sum(one.count for one in skipped))))
        begin = at + 1 - self._first
        kept = [self._ring[place] for place in range(begin, min(begin + _AT_ONCE, len(self._ring)))]
        frames += [one.frame(as_json=as_json) for one in kept]
        return at + len(kept), b"".join(frames)

    def _subscribe(self) -> None:
        if self._facts is None:
            # What was published without a reader is not here: no id from before leads on without a gap.
            self._last += 1
            self._ring.clear()
            self._facts = self._subscription.enter_context(self._live.subscribe(wake=self._wake))

    def _unsubscribe(self) -> None:
        self._end = None
        self._facts = None
        self._subscription.close()

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        """Put what was published into the ring."""
        self._is_due = False
        while self._facts is not None and (fact := self._facts.take()) is not None:
            if isinstance(fact, LinesLost):
                self.dropped += fact.count
            self._last += 1
            self._ring.append(_Kept(f"{self.boot}.{self._last}", fact))
            if (session_id := _session_of(fact)) is not None:
                self._stir(session_id)
        self._news.tell()


class _Kept:
    """A fact in the ring; each of its frames is encoded when it is first wanted."""

    __slots__ = ("_fact", "_frames", "_id")

    def __init__(self, frame_id: str, fact: LiveFact) -> None:
        self._id = frame_id
        self._fact = fact
        self._frames: dict[bool, bytes] = {}

    @property
    def is_loss(self) -> bool:
        """Whether it stands for facts that are not here."""
        return isinstance(self._fact, LinesLost)

    @property
    def count(self) -> int:
        """How many facts it stands for."""
        return self._fact.count if isinstance(self._fact, LinesLost) else 1

    def frame(self, *, as_json: bool) -> bytes:
        if (encoded := self._frames.get(as_json)) is None:
            encoded = self._frames[as_json] = self._encoded(as_json=as_json)
        return encoded

    def _encoded(self, *, as_json: bool) -> bytes:
        fact = self._fact
        kind = str(fact.__struct_config__.tag)
        if isinstance(fact, LinesLost):
            return frame(self._id, "lost", str(fact.count))
        if as_json:
            return frame(self._id, kind, msgspec.json.encode(fact).decode())
        is_question = isinstance(fact, CallJudged) and fact.verdict is VerdictKind.ASK
        return frame(self._id, "approval" if is_question else "changed", f"{kind} {_session_of(fact) or ''}".rstrip())


def _session_of(fact: LiveFact) -> int | None:
    return None if isinstance(fact, LinesLost) else fact.session_id
