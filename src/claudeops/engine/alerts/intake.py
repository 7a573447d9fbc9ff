"""The door for bodies of alerts: what comes is on record before its sender hears so, and nothing is decided here.

Bodies that come while some are written are written together in the next transaction, because one of SQLite costs as
much for one body as for a hundred. Each caller waits until his body is on record. A transaction that fails fails for
those who wait for it, and they say so to their senders, which try again.

Reading a body and taking the secrets out of it costs time that a sender chooses: whatever is longer than a few
milliseconds' worth, or may be once it is unpacked, happens on a thread, one body at a time, because what runs sessions
shares this event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from claudeops.clock import Clock
from claudeops.domain.alerts.alert import Alert, SenderBody, Unparsed
from claudeops.domain.alerts.receipt import Receipt
from claudeops.domain.alerts.register import Posted, StoredBody
from claudeops.domain.alerts.rules import AlertSource, Rules
from claudeops.engine.ports import UNCOUNTED, Counting
from claudeops.errors import DatabaseUnavailableError, StoreError
from claudeops.formats.senders import read, storable
from claudeops.formats.senders.bodies import is_packed
from claudeops.formats.senders.common import digest
from claudeops.logs import LogEvent, Logger
from claudeops.store.alerts.desk import Alerts

_MOST_AT_ONCE: Final = 100  # bodies of one transaction
_MOST_WAITING: Final = 5000  # bodies; a sender that is told to come again does
_WAIT_SECONDS: Final = 10.0  # for a body to be on record
_WORTH_A_THREAD_BYTES: Final = 8 * 1024  # of a body; made as costly as can be, this many take about five milliseconds

UNREADABLE: Final = "unreadable"
"""What stands for the status of an alert where a body could not be read."""

_BETWEEN: Final = "\n<\1>\n"
"""Between texts that are redacted in one go: no visible text has it, and no shape of a secret runs across it."""


@dataclass(slots=True)
class _Waiting:
    """A body, and who waits until it is on record."""

    posted: Posted
    done: anyio.Event = field(default_factory=anyio.Event)
    kept: StoredBody | None = None
    error: StoreError | None = None


@dataclass(kw_only=True, slots=True)
class AlertIntake:
    """Takes bodies whose sender has proven who he is."""

    alerts: Alerts
    read_rules: Callable[[], Rules]
    redact: Callable[[str], str]
    stored: Callable[[], None]  # is called when bodies are on record
    clock: Clock
    log: Logger
    counts: Counting = UNCOUNTED
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _stirred: anyio.Event = field(default_factory=anyio.Event)
    _limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits until his body is on record."""
        return bool(self._waiting)

    async def take(self, source: str, body: bytes, at: datetime, *, query: Mapping[str, str]) -> Receipt:
        """Return once a body is on record; one that cannot be read is on record too.

        Raises `StoreError` when it could not be written, and within ten seconds `DatabaseUnavailableError` when it is
        not known whether it was.
        """
        if len(self._waiting) >= _MOST_WAITING:
            raise DatabaseUnavailableError(f"{_MOST_WAITING} bodies of alerts wait to be written: try again later.")
        began, sender = self.clock.monotonic(), self.read_rules().source(source)
        posted = partial(self._posted, sender, body, at, query)
        if not is_packed(body) and len(body) + sum(map(len, query.values())) < _WORTH_A_THREAD_BYTES:
            waiting = _Waiting(posted())
        else:
            waiting = _Waiting(await anyio.to_thread.run_sync(posted, limiter=self._limiter))
        self._waiting.append(waiting)
        self._stirred.set()
        with anyio.move_on_after(_WAIT_SECONDS):
            await waiting.done.wait()
        if waiting.error is not None:
            raise waiting.error
        if waiting.kept is None:
            raise DatabaseUnavailableError(f"an alert was not written within {_WAIT_SECONDS:g} s: try again later.")
        self.counts.body_stored(self.clock.monotonic() - began)
        kept = waiting.posted.said  # what our own code fails to write is kept as one that could not be read
        count = len(kept.alerts) if isinstance(kept, SenderBody) else 0
        readable = isinstance(kept, SenderBody)
        return Receipt(delivery=kept.key, alerts=count, readable=readable, repeats=waiting.kept.repeats)

    async def run(self) -> None:
        """Write what comes in, until cancelled."""
        while True:
            self._stirred = anyio.Event()
            if self._waiting:
                await self._write([self._waiting.popleft() for _ in range(min(_MOST_AT_ONCE, len(self._waiting)))])
            else:
                await self._stirred.wait()

    async def _write(self, batch: Sequence[_Waiting]) -> None:
        try:
            kept = await self.alerts.receive([each.posted for each in batch], now=self.clock.now())
        except StoreError as error:
            _refuse(batch, error)
            return
        except Exception as error:  # noqa: BLE001 - one body must neither end the daemon nor keep others from being kept
            await self._doubt(batch, error)
            return
        for each, one in zip(batch, kept, strict=True):
            each.kept = one
            each.done.set()
            said = each.posted.said
            if isinstance(said, Unparsed):
                self.log.warning(LogEvent.ALERT_UNREADABLE, source=said.source, delivery=one.key, reason=said.why)
                self.counts.alert_received(said.source, UNREADABLE)
            else:
                for alert in said.alerts:
                    self.counts.alert_received(said.source, alert.said.value)
        self.stored()

    async def _doubt(self, batch: Sequence[_Waiting], error: Exception) -> None:
        """Find out which body it is that our own code fails to write, and keep its raw text alone."""
        if len(batch) > 1:
            for each in batch:
                await self._write([each])
            return
        said = batch[0].posted.said
        if isinstance(said, Unparsed):  # not even its text
            _refuse(batch, StoreError(f"a body of {said.source} could not be written: our own code failed."))
            return
        why = f"{type(error).__name__}: our own code failed"
        self.log.critical(LogEvent.ALERT_UNDECIDED, delivery=said.key, error=f"{type(error).__name__}: {error}")
        batch[0].posted = replace(batch[0].posted, said=Unparsed(source=said.source, key=said.key, why=why))
        await self._write(batch)

    def _posted(self, sender: AlertSource, body: bytes, at: datetime, query: Mapping[str, str]) -> Posted:
        """Return what is kept of a body: what it says, and its text, both without secrets. On any thread."""
        said = without_secrets(read(sender, body, received_at=at, query=query), self.redact)
        raw = self.redact(storable(sender, body or repr(sorted(query.items())).encode(errors="replace")))
        return Posted(said=said, received_at=at, raw=raw)


# --- secrets ----------------------------------------------------------------------------------------------


def without_secrets(said: SenderBody | Unparsed, redact: Callable[[str], str]) -> SenderBody | Unparsed:
    """Return what a sender says without secrets: it is kept, and told to sessions and people.

    What identifies an alert or a group stays the same for the same one, and different for others.
    """
    if isinstance(said, Unparsed):
        return replace(said, why=redact(said.why))
    texts = [text for alert in said.alerts for text in _texts(alert)]
    clean = _redacted(texts, redact)
    found = iter(clean)
    return replace(
        said,
        alerts=said.alerts if clean == texts else tuple(_rewritten(alert, found) for alert in said.alerts),
        group_key=_identity(said.group_key, redact(said.group_key)),
        remark=redact(said.remark),
    )


def _redacted(texts: Sequence[str], redact: Callable[[str], str]) -> list[str]:
    """Return texts without secrets, redacted in one go: one by one costs thirty times as much.

    A text that is made to be redacted for ever leaves nothing of all; then each half is redacted by itself.
    """
    if not texts:
        return []
    whole = redact(_BETWEEN.join(texts))
    parts = whole.split(_BETWEEN)
    if len(parts) == len(texts):
        return parts
    middle = len(texts) // 2
    return [whole] if middle == 0 else _redacted(texts[:middle], redact) + _redacted(texts[middle:], redact)


def _texts(alert: Alert) -> tuple[str, ...]:
    """Return all that a sender has said in words; `_rewritten` takes it in this order."""
    named = (*alert.labels.items(), *alert.annotations.items())
    return (alert.fingerprint, alert.name, alert.service, alert.url, *(text for pair in named for text in pair))


def _rewritten(alert: Alert, texts: Iterator[str]) -> Alert:
    """Return an alert with as many of these texts as it has."""
    return replace(
        alert,
        fingerprint=_identity(alert.fingerprint, next(texts)),
        name=next(texts),
        service=next(texts),
        url=next(texts),
        labels={next(texts): next(texts) for _ in alert.labels},
        annotations={next(texts): next(texts) for _ in alert.annotations},
    )


def _identity(given: str, redacted: str) -> str:
    """Return what identifies something: as it was given, or made of it where that holds a secret."""
    return given if redacted == given else digest(given)


def _refuse(batch: Sequence[_Waiting], error: StoreError) -> None:
    for each in batch:
        each.error = error
        each.done.set()
