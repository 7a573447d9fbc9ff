"""What probes see is written here, and their failures are put into the queue of alerts.

A change is written at once, everything else a few seconds later and many probes together, because a transaction of
SQLite costs as much for one row as for a hundred. While the database is away everything waits in memory, in its order
and within bounds. A write that was cut off, or that got no answer, may be done all the same and is repeated: the store
writes no telling twice (`Telling.number`), and forgets no chain that it has queued.

A failure is put into the queue only after it is on record: a daemon that dies in between finds it there at its next
start, and queues it then. From the queue on its decision needs nothing of this process, and what came of it is read
from the probe's row when that changes.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import anyio
import msgspec

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.owner import Owner
from claudeops.domain.probes.news import ChainRequest, ProbeNews, collect
from claudeops.domain.probes.record import FAILING, StoredProbe
from claudeops.engine.probes.watched import WatchedProbe, WatchedProbes
from claudeops.errors import StaleTermError, StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.alerts.alerts import Alerts
from claudeops.store.probes import Probes
from claudeops.structs import replace
from claudeops.tasks import DatabaseTrouble

FLUSH_SECONDS: Final = 5.0
"""How far the rows of probes that have not changed may be behind."""

_BATCH: Final = 250  # rows of one transaction
_LAST_SECONDS: Final = 2.0  # for the last write of a daemon that stops
_LONGEST_TROUBLE: Final = 5.0  # between two tries while the database is away: somebody's shop may be down meanwhile

_LOOK_AGAIN: Final = 1.0  # seconds between two looks at a failure that is about to be told
_MOST_LOOKED_AT: Final = 50  # of such failures

Pause = Callable[[anyio.Event, float], Awaitable[None]]
"""Waits for an event, or for so many seconds."""


async def pause(stirred: anyio.Event, seconds: float) -> None:
    """Wait for an event, or for so many seconds."""
    with anyio.move_on_after(seconds):
        await stirred.wait()


class ProbeWriter(msgspec.Struct, kw_only=True):
    """The one writer of a node's probes."""

    watched: WatchedProbes
    database: Probes
    alerts: Alerts
    owner: Owner
    clock: Clock
    rules: Callable[[], EscalationRules]
    queued: Callable[[], None]  # wakes whoever decides about alerts in this process
    look_now: Callable[[Sequence[str]], None]  # at some probes, by name
    log: Logger
    pause: Pause = pause
    _stirred: anyio.Event = msgspec.field(default_factory=anyio.Event)
    _busy: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    _flushed_at: float = 0.0
    _news_at: float | None = 0.0  # when to ask for news again; None: at the next change

    def stir(self) -> None:
        """Take notice that a probe has changed."""
        self._news_at = 0.0
        self._stirred.set()

    async def run(self) -> None:
        """Write what there is to be written until cancelled, and then what is left, for a moment."""
        trouble = DatabaseTrouble(self.log, "probes", longest_seconds=_LONGEST_TROUBLE)
        try:
            while True:
                self._stirred = anyio.Event()
                try:
                    await self.settle()
                except StoreError as error:
                    await self.pause(anyio.Event(), trouble.failed(error))
                    continue
                trouble.over()
                await self.pause(self._stirred, self._wait())
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_SECONDS):
                await self._leave()

    async def settle(self) -> None:
        """Write what has changed, then what is behind for long enough, and queue the failures that are due.

        Raises `StoreError`; what was not written then waits for the next time.
        """
        async with self._busy:
            await self.write_changes()
            if self.clock.monotonic() - self._flushed_at >= FLUSH_SECONDS:
                await self._write([each for each in self.watched if each.dirty])
                await self._follow()
                self._flushed_at = self.clock.monotonic()
                await self._write_history()
            if self._news_at is not None and self.clock.monotonic() >= self._news_at:
                await self._tell_news()

    async def write_changes(self) -> None:
        """Write the probes that have changed. Raises `StoreError`."""
        await self._write([each for each in self.watched if each.is_urgent])
        if self.watched.dropped:
            self.log.error(LogEvent.PROBE_CHANGES_DROPPED, count=self.watched.dropped)
            self.watched.dropped = 0

    def _wait(self) -> float:
        now = self.clock.monotonic()
        nothing = not self.watched.by_name and not self.watched.stretches
        flush = math.inf if nothing else self._flushed_at + FLUSH_SECONDS - now
        return max(0.0, flush if self._news_at is None else min(flush, self._news_at - now))

    async def _write(self, behind: Sequence[WatchedProbe]) -> None:
        for first in range(0, len(behind), _BATCH):
            # What is declared may have changed since the batch before: another probe has the name, or none.
            part = list(self._still_watched(behind[first : first + _BATCH]))
            batch = [each.observed() for each in part]
            now, rules = self.clock.now(), self.rules()
            before = await self.database.observed(batch, owner=self.owner, rules=rules, now=now)
            for each, written in zip(part, batch, strict=True):
                each.written(written)
                if (kept := before.get(each.probe.name)) is not None:
                    self._recall(each, kept)

    async def _follow(self) -> None:
        """Learn how the probes stand about which the looks of other sites decide as well."""
        shared = [each.probe.name for each in self.watched if each.probe.sites]
        if not shared:
            return
        for name, kept in (await self.database.kept(shared)).items():
            if (each := self.watched.by_name.get(name)) is not None and each.probe.sites:
                self._recall(each, kept)

    def _recall(self, each: WatchedProbe, kept: StoredProbe) -> None:
        each.recall(kept)
        if not each.probe.sites:
            return
        before, after = each.standing.state, kept.standing.state
        self.watched.agreed(each, kept.standing)
        if before is not after:
            self._news_at = 0.0
            name, service = each.probe.name, each.probe.service
            self.log.info(LogEvent.PROBE_CHANGED, probe=name, service=service, before=before, after=after)

    def _still_watched(self, behind: Iterable[WatchedProbe]) -> Iterable[WatchedProbe]:
        return (each for each in behind if self.watched.by_name.get(each.probe.name) is each)

    async def _write_history(self) -> None:
        while self.watched.stretches:
            part = self.watched.stretches[:_BATCH]
            del self.watched.stretches[: len(part)]  # before: who is cut off here must not count it once more
            try:
                await self.database.add_history(part)
            except StoreError:
                self.watched.stretches[:0] = part
                raise

    async def _leave(self) -> None:
        """Write what is left; what cannot be written is seen again after the next start."""
        for each in self.watched:
            self.watched.close_stretch(each)
        try:
            await self._write([each for each in self.watched if each.dirty or each.tellings])
            await self._write_history()
        except StaleTermError:
            pass  # another daemon sees for itself
        except StoreError as error:
            DatabaseTrouble(self.log, "probes").failed(error)

    # --- chains -----------------------------------------------------------------------------------------

    async def _tell_news(self) -> None:
        now = self.clock.now()
        news, wait = self._news(now)
        if news.joined:
            await self.database.join(news.joined)
            for name, incident in news.joined.items():
                self.watched.joined(name, incident)
        if news.chain is not None:
            await self._queue(news.chain)
            news, wait = self._news(now)
        if news.wait_seconds is not None:  # it may be over before anybody is told, if somebody looks
            self.look_now([*news.look_now, *self._untold()])
        asked = None if news.wait_seconds is None else min(news.wait_seconds, _LOOK_AGAIN)
        waits = [seconds for seconds in (asked, wait) if seconds is not None]
        self._news_at = self.clock.monotonic() + min(waits) if waits else None

    def _untold(self) -> list[str]:
        """Return failing probes of which no chain knows yet."""
        failing = (each for each in self.watched if each.standing.state in FAILING and not each.standing.incident)
        return [each.probe.name for each in failing if each.probe.starts_chain][:_MOST_LOOKED_AT]

    def _news(self, now: datetime) -> tuple[ProbeNews, float | None]:
        """Return the news, and in how many seconds a probe that must wait now may start a chain."""
        probes, until = [], list[datetime]()
        for each in self.watched:
            paused = each.pauses_until()
            if paused is None or paused <= now or each.handled_at is None or each.handled_at > now:
                probes.append(each.probe)
                continue
            probes.append(replace(each.probe, starts_chain=False))
            if each.probe.starts_chain and each.standing.state in FAILING and not each.standing.incident:
                until.append(paused)
        news = collect(probes, self.watched.standings, now=now, dependencies=self.watched.dependencies)
        left = max(timedelta(), min(until) - now).total_seconds() if until else None
        return news, left

    async def _queue(self, chain: ChainRequest) -> None:
        await self.write_changes()  # the failures, if a look has added one since
        await self.alerts.queue_failures(chain.probes, chain.fingerprint, now=self.clock.now())
        for name in chain.probes:
            self.watched.joined(name, chain.fingerprint)
        self.queued()
