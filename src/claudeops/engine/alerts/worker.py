"""Alerts: puts bodies on record, and decides about them, in the order in which they came, and about what time changes.

Failures of probes wait in the same queue, before all bodies, and so are decided about by whoever decides about alerts.

A body is on record before its sender gets an answer. Bodies that come while some are written are written together in
the next transaction, because one of SQLite costs as much for one body as for a hundred. A transaction that fails fails
for those who wait for it, and their senders try again.

Reading a body and taking the secrets out of it costs time that a sender chooses: whatever is longer than a few
milliseconds' worth, or may be once it is unpacked, happens on a thread, one body at a time, because what runs sessions
shares this event loop.

A decision may wait: a storm is decided about in pieces, between which the database and the event loop belong to whoever
brings more, and to the verdicts of the gate. What a daemon had not decided about when it died the next one decides
about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from claudeops.clock import Clock
from claudeops.domain.alerts.alert import PROBES, Alert, SenderBody, Unparsed
from claudeops.domain.alerts.receipt import Receipt
from claudeops.domain.alerts.register import AlertResult, Backlog, NewChain, ReceivedBody
from claudeops.domain.alerts.rules import AlertSource, Rules
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.probes.dependencies import Dependencies
from claudeops.domain.probes.probe import PingVerb
from claudeops.engine.ports import UNCOUNTED, Counting
from claudeops.errors import DatabaseUnavailableError, StaleTermError, StoreError
from claudeops.formats.senders import read, storable
from claudeops.formats.senders.bodies import is_packed
from claudeops.formats.senders.common import digest
from claudeops.logs import LogEvent, Logger
from claudeops.store.alerts.alerts import Alerts
from claudeops.store.probes import Probes
from claudeops.structs import replace
from claudeops.tasks import DatabaseTrouble

TICK_SECONDS: Final = 2.0
"""Between two looks at what time has changed."""

QUIET_SECONDS: Final = 300.0
"""The same while time changes nothing; what comes in, and what other processes write, is looked at at once."""

BEHIND: Final = timedelta(seconds=10)
"""By which decisions may come late before the log says so."""

_MOST_AT_ONCE: Final = 100  # bodies of one transaction
_MOST_WAITING: Final = 5000  # bodies; a sender that gets an error comes again
_WAIT_SECONDS: Final = 10.0  # for a body to be on record
_WORTH_A_THREAD_BYTES: Final = 8 * 1024  # of a body; made as costly as can be, this many take about five milliseconds

UNREADABLE: Final = "unreadable"
"""What stands for the status of an alert where a body could not be read."""

_BETWEEN: Final = "\n<\1>\n"
"""Between texts that are redacted in one go: no visible text has it, and no shape of a secret runs across it."""

_REST_SECONDS: Final = 0.02  # after a piece, while bodies come in: they are answered by this process too


class _Waiting(msgspec.Struct):
    """A body that is to be put on record, and what came of it."""

    body: ReceivedBody
    done: anyio.Event = msgspec.field(default_factory=anyio.Event)
    repeats: bool | None = None  # None: it is not on record
    error: StoreError | None = None


class AlertWorker(msgspec.Struct, kw_only=True):
    """Takes bodies whose sender is authenticated, and decides about their alerts."""

    alerts: Alerts
    probes: Probes
    read_rules: Callable[[], Rules]
    escalation: Callable[[], EscalationRules]
    dependencies: Callable[[], Awaitable[Dependencies]]  # as this node's files declare them
    new_chain: NewChain
    redact: Callable[[str], str]
    announce: Callable[[], Awaitable[None]]  # to whoever waits for queued sessions
    clock: Clock
    log: Logger
    counts: Counting = UNCOUNTED
    tick_seconds: float = TICK_SECONDS
    _waiting: deque[_Waiting] = msgspec.field(default_factory=deque)
    _received: anyio.Event = msgspec.field(default_factory=anyio.Event)  # since the last transaction
    _limiter: anyio.CapacityLimiter = msgspec.field(default_factory=lambda: anyio.CapacityLimiter(1))
    _stored: anyio.Event = msgspec.field(default_factory=anyio.Event)  # since the last look at the queue
    _woken: bool = False  # another process has written something
    _most: int | None = None  # bodies of a round; 1 where one of several could not be decided about
    _is_behind: bool = False

    def rules(self) -> Rules:
        """Return who may send, by the file as it is now."""
        return self.read_rules()

    def wake(self) -> None:
        """Look at once at what has changed: a silence may be over, or an incident."""
        self._woken = True
        self._stored.set()

    def stir(self) -> None:
        """Look soon whether there is something to decide: this process has written something."""
        self._stored.set()

    async def take(
        self,
        source: str,
        body: bytes,
        headers: Mapping[str, str],  # noqa: ARG002 - what the listener hands on; no kind of sender needs it by now
        at: datetime,
        *,
        query: Mapping[str, str],
    ) -> Receipt:
        """Return once a body is on record; one that cannot be read is on record too.

        Raises `StoreError` when it could not be written, and within ten seconds `DatabaseUnavailableError` when it is
        not known whether it was.
        """
        if len(self._waiting) >= _MOST_WAITING:
            raise DatabaseUnavailableError(f"{_MOST_WAITING} bodies of alerts wait to be written: try again later.")
        began, sender = self.clock.monotonic(), self.read_rules().source(source)
        read_body = partial(self._read, sender, body, at, query)
        if not is_packed(body) and len(body) + sum(map(len, query.values())) < _WORTH_A_THREAD_BYTES:
            waiting = _Waiting(read_body())
        else:
            waiting = _Waiting(await anyio.to_thread.run_sync(read_body, limiter=self._limiter))
        self._waiting.append(waiting)
        self._received.set()
        with anyio.move_on_after(_WAIT_SECONDS):
            await waiting.done.wait()
        if waiting.error is not None:
            raise waiting.error
        if waiting.repeats is None:
            raise DatabaseUnavailableError(f"an alert was not written within {_WAIT_SECONDS:g} s: try again later.")
        self.counts.body_stored(self.clock.monotonic() - began)
        content = waiting.body.content  # what our own code fails to write is kept as one that could not be read
        count = len(content.alerts) if isinstance(content, SenderBody) else 0
        readable = isinstance(content, SenderBody)
        return Receipt(delivery=content.key, alerts=count, readable=readable, repeats=waiting.repeats)

    def forget(self) -> None:
        """Decide by what is on record: another daemon may have decided since."""
        self.alerts.forget()
        self._most, self._is_behind = None, False

    async def tick(self) -> None:
        """Decide about what time has changed. Raises `StoreError`."""
        await self._follow(await self.alerts.tick(await self._circumstances(), self.new_chain, now=self.clock.now()))

    async def decide(self) -> bool:
        """Decide about a piece of what waits; return whether more does. Raises `StoreError`."""
        now = self.clock.now()
        try:
            result = await self.alerts.decide(await self._circumstances(), self.new_chain, now=now, most=self._most)
        except (DatabaseUnavailableError, StaleTermError):
            raise
        except Exception as error:  # noqa: BLE001 - one body must not keep all that came after it waiting for ever
            await self._doubt(error)
            return True
        self._most = None
        if result is None:
            return False
        self._note_backlog(result.backlog)
        try:
            await self._follow(result)
        except StoreError as error:  # a heartbeat that could not be written counts as missed
            DatabaseTrouble(self.log, "heartbeats").failed(error)
        return result.backlog is not None

    # --- what comes in --------------------------------------------------------------------------------------

    async def keep_writing(self) -> None:
        """Put on record what comes in, until cancelled."""
        while True:
            self._received = anyio.Event()
            if self._waiting:
                await self._write([self._waiting.popleft() for _ in range(min(_MOST_AT_ONCE, len(self._waiting)))])
            else:
                await self._received.wait()

    async def _write(self, batch: Sequence[_Waiting]) -> None:
        try:
            repeats = await self.alerts.receive([each.body for each in batch], now=self.clock.now())
        except StoreError as error:
            _refuse(batch, error)
            return
        except Exception as error:  # noqa: BLE001 - one body must neither end the daemon nor keep others from being kept
            await self._isolate(batch, error)
            return
        for each, one in zip(batch, repeats, strict=True):
            each.repeats = one
            each.done.set()
            content = each.body.content
            if isinstance(content, Unparsed):
                self.log.warning(
                    LogEvent.ALERT_UNREADABLE, source=content.source, delivery=content.key, reason=content.why
                )
                self.counts.alert_received(content.source, UNREADABLE)
            else:
                for alert in content.alerts:
                    self.counts.alert_received(content.source, alert.state.value)
        self._stored.set()

    async def _isolate(self, batch: Sequence[_Waiting], error: Exception) -> None:
        """Find out which body it is that our own code fails to write, and keep its raw text alone."""
        if len(batch) > 1:
            for each in batch:
                await self._write([each])
            return
        content = batch[0].body.content
        if isinstance(content, Unparsed):  # not even its text
            _refuse(batch, StoreError(f"a body of {content.source} could not be written: our own code failed."))
            return
        why = f"{type(error).__name__}: our own code failed"
        self.log.critical(LogEvent.ALERT_UNDECIDED, delivery=content.key, error=f"{type(error).__name__}: {error}")
        batch[0].body = replace(batch[0].body, content=Unparsed(source=content.source, key=content.key, why=why))
        await self._write(batch)

    def _read(self, sender: AlertSource, body: bytes, at: datetime, query: Mapping[str, str]) -> ReceivedBody:
        """Return what is kept of a body: what it says, and its text, both without secrets. On any thread."""
        content = without_secrets(read(sender, body, received_at=at, query=query), self.redact)
        raw = self.redact(storable(sender, body or repr(sorted(query.items())).encode(errors="replace")))
        return ReceivedBody(content=content, received_at=at, raw=raw)

    # --- what is decided --------------------------------------------------------------------------------------

    async def keep_deciding(self) -> None:
        """Decide about what is on record, and about what time changes, until cancelled."""
        trouble = DatabaseTrouble(self.log, "alerts")
        ticked_at, is_quiet = self.clock.monotonic() - self.tick_seconds, False
        while True:
            self._stored, pause = anyio.Event(), 0.0
            try:
                more = await self.decide()
                if self._woken or self.clock.monotonic() - ticked_at >= self.tick_seconds:
                    self._woken = False
                    ticked_at = self.clock.monotonic()
                    is_quiet = await self.alerts.is_quiet()
                    if not is_quiet:
                        await self.tick()
            except StoreError as error:
                more, pause = False, trouble.failed(error)
            else:
                trouble.over()
            if more:
                await anyio.sleep(_REST_SECONDS if self._waiting or self._stored.is_set() else 0)
                continue
            longest = QUIET_SECONDS if is_quiet else self.tick_seconds
            with anyio.move_on_after(pause or max(0.0, ticked_at + longest - self.clock.monotonic())):
                await self._stored.wait()
            is_quiet = is_quiet and not self._stored.is_set()

    async def _doubt(self, error: Exception) -> None:
        """Find out which body it is that cannot be decided about, and decide about it no more.

        Raises what keeps everything from being decided about: that is not the body's fault.
        """
        if self._most != 1:
            self._most = 1
            return
        await self.tick()
        why = f"{type(error).__name__}: our own code failed"
        delivery = await self.alerts.set_aside(why, now=self.clock.now())
        self.log.critical(LogEvent.ALERT_UNDECIDED, delivery=delivery, error=f"{type(error).__name__}: {error}")

    def _note_backlog(self, backlog: Backlog | None) -> None:
        """Log when decisions come late, and when they no longer do."""
        late = backlog is not None and self.clock.now() - backlog.since > BEHIND
        if late and not self._is_behind and backlog is not None:
            self.log.warning(LogEvent.ALERTS_BEHIND, bodies=backlog.bodies, since=backlog.since.isoformat())
            self._is_behind = True
        elif backlog is None and self._is_behind:
            self.log.info(LogEvent.ALERTS_CAUGHT_UP)
            self._is_behind = False

    async def _follow(self, result: AlertResult) -> None:
        """Log and count what a round has written, and pass it on. Raises `StoreError`."""
        for ruling in result.rulings:
            self.counts.alert_decided(ruling.alert[0], ruling.decision)
        for incident in result.opened:
            self.log.warning(LogEvent.INCIDENT_OPENED, incident=incident.number, services=list(incident.services))
        for incident in result.resolved:
            self.log.info(LogEvent.INCIDENT_RESOLVED, incident=incident.number, services=list(incident.services))
        for session, start in result.started:
            about = {"incident": start.incident, "services": list(start.services)}
            if all(source == PROBES for source, _ in start.alerts):
                probes = [name for _, name in start.alerts]
                self.log.warning(LogEvent.PROBES_STARTED_CHAIN, session_id=session.id, **about, probes=probes)
            else:
                count = len(start.alerts)
                self.log.warning(LogEvent.ALERTS_STARTED_CHAIN, session_id=session.id, **about, alerts=count)
        if result.started:
            await self.announce()
        for name, at in result.pings.items():
            await self.probes.ping(name, PingVerb.SUCCESS, at=at)

    async def _circumstances(self) -> AlertFiles:
        needs = await self.dependencies()
        return AlertFiles(alerts=self.read_rules(), escalation=self.escalation(), dependencies=needs)


# --- secrets ----------------------------------------------------------------------------------------------


def without_secrets(body: SenderBody | Unparsed, redact: Callable[[str], str]) -> SenderBody | Unparsed:
    """Return what a sender says without secrets: it is kept, and goes to sessions and people.

    What identifies an alert or a group stays the same for the same one, and different for others.
    """
    if isinstance(body, Unparsed):
        return replace(body, why=redact(body.why))
    texts = [text for alert in body.alerts for text in _texts(alert)]
    clean = _redacted(texts, redact)
    found = iter(clean)
    return replace(
        body,
        alerts=body.alerts if clean == texts else tuple(_rewritten(alert, found) for alert in body.alerts),
        group_key=_identity(body.group_key, redact(body.group_key)),
        remark=redact(body.remark),
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
    """Return all texts of an alert; `_rewritten` takes it in this order."""
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
