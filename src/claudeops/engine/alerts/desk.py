"""The desk: takes what monitoring systems say, has it decided about, and looks at the clock.

Bodies that come while one round is written are written together in the next one, because a transaction of SQLite costs
as much for one as for a hundred. Each caller waits until his body is on record. A round that fails fails for those who
wait for it, and they say so to their senders, which try again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import anyio

from claudeops.domain.alerts.model import PROBES, Alert, Decision, Delivery, Unparsed
from claudeops.domain.alerts.receipt import Receipt, Told
from claudeops.domain.alerts.register import Done, Filed, NewChain, Posted
from claudeops.domain.alerts.rules import Rules
from claudeops.domain.alerts.senders import read, storable
from claudeops.domain.alerts.situation import Circumstances
from claudeops.domain.escalation import EscalationRules
from claudeops.domain.probe.dependencies import Dependencies
from claudeops.domain.probe.model import Verb
from claudeops.domain.probe.news import Chain
from claudeops.engine.ports import Clock
from claudeops.engine.ports.alerting import Alerts
from claudeops.engine.ports.watching import Probes
from claudeops.errors import DatabaseUnavailableError, StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import DatabaseTrouble

TICK_SECONDS: Final = 2.0
"""Between two looks at what time has changed."""

_MOST_AT_ONCE: Final = 100  # bodies of one transaction
_MOST_WAITING: Final = 5000  # bodies; a sender that is told to come again does
_WAIT_SECONDS: Final = 10.0  # for a body to be on record


@dataclass(slots=True)
class _Waiting:
    """A body, and who waits until it is on record."""

    posted: Posted
    done: anyio.Event = field(default_factory=anyio.Event)
    filed: Filed | None = None
    error: StoreError | None = None


@dataclass(kw_only=True, slots=True)
class AlertDesk:
    """The door for bodies whose sender has proven who he is, and the rounds behind it."""

    alerts: Alerts
    probes: Probes
    read_rules: Callable[[], Rules]
    escalation: Callable[[], EscalationRules]
    dependencies: Callable[[], Dependencies]
    new_chain: NewChain
    redact: Callable[[str], str]
    announce: Callable[[], Awaitable[None]]  # to whoever waits for queued sessions
    clock: Clock
    log: Logger
    tick_seconds: float = TICK_SECONDS
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _stirred: anyio.Event = field(default_factory=anyio.Event)

    def rules(self) -> Rules:
        """Return who may send, by the file as it is now."""
        return self.read_rules()

    async def take(
        self,
        source: str,
        body: bytes,
        headers: Mapping[str, str],  # noqa: ARG002 - what the listener hands on; no kind of sender needs it by now
        at: datetime,
        *,
        query: Mapping[str, str],
    ) -> Receipt:
        """Return what became of a body once it is on record; one that cannot be read is on record too.

        Raises `StoreError` when it could not be written, and within ten seconds `DatabaseUnavailableError` when it is
        not known whether it was.
        """
        sender = self.rules().source(source)
        said = read(sender, body, received_at=at, query=query)
        raw = self.redact(storable(sender, body or repr(sorted(query.items())).encode(errors="replace")))
        if len(self._waiting) >= _MOST_WAITING:
            raise DatabaseUnavailableError(f"{_MOST_WAITING} bodies of alerts wait to be written: try again later.")
        waiting = _Waiting(Posted(said=self._redacted(said), received_at=at, raw=raw))
        self._waiting.append(waiting)
        self._stirred.set()
        with anyio.move_on_after(_WAIT_SECONDS):
            await waiting.done.wait()
        if waiting.error is not None:
            raise waiting.error
        if waiting.filed is None:
            raise DatabaseUnavailableError(f"an alert was not written within {_WAIT_SECONDS:g} s: try again later.")
        return _receipt(waiting.filed)

    async def probes_failed(self, chain: Chain) -> Done:
        """Take the failures of some probes. Raises `StoreError`."""
        now = self.clock.now()
        done = await self.alerts.probes_failed(
            chain.probes, chain.fingerprint, self._circumstances(), self.new_chain, now=now
        )
        await self._follow(done)
        return done

    async def run(self) -> None:
        """Write what comes in and look at the clock, until cancelled."""
        trouble = DatabaseTrouble(self.log, "alerts")
        ticked_at = self.clock.monotonic() - self.tick_seconds
        while True:
            self._stirred = anyio.Event()
            if self._waiting:
                await self._write([self._waiting.popleft() for _ in range(min(_MOST_AT_ONCE, len(self._waiting)))])
            if self.clock.monotonic() - ticked_at >= self.tick_seconds:
                ticked_at = self.clock.monotonic()
                try:
                    await self.tick()
                except StoreError as error:
                    ticked_at += trouble.failed(error)
                else:
                    trouble.over()
            if not self._waiting:
                with anyio.move_on_after(max(0.0, ticked_at + self.tick_seconds - self.clock.monotonic())):
                    await self._stirred.wait()

    async def tick(self) -> None:
        """Decide about what time has changed. Raises `StoreError`."""
        await self._follow(await self.alerts.tick(self._circumstances(), self.new_chain, now=self.clock.now()))

    async def _write(self, batch: Sequence[_Waiting]) -> None:
        try:
            posted = [each.posted for each in batch]
            done = await self.alerts.take(posted, self._circumstances(), self.new_chain, now=self.clock.now())
        except StoreError as error:
            for each in batch:
                each.error = error
                each.done.set()
            return
        for each, filed in zip(batch, done.filed, strict=True):
            each.filed = filed
            each.done.set()
            if filed.why_unparsed:
                source = each.posted.said.source
                self.log.warning(LogEvent.ALERT_UNREADABLE, source=source, delivery=filed.key)
        try:
            await self._follow(done)
        except StoreError as error:  # what could not be heard of a heartbeat is missed, and told as that
            DatabaseTrouble(self.log, "heartbeats").failed(error)

    async def _follow(self, done: Done) -> None:
        """Tell of what a round has written; raises `StoreError`."""
        for incident in done.opened:
            self.log.warning(LogEvent.INCIDENT_OPENED, incident=incident.number, services=list(incident.services))
        for incident in done.resolved:
            self.log.info(LogEvent.INCIDENT_RESOLVED, incident=incident.number, services=list(incident.services))
        for session, start in done.started:
            about = {"incident": start.incident, "services": list(start.services)}
            if all(source == PROBES for source, _ in start.alerts):
                probes = [name for _, name in start.alerts]
                self.log.warning(LogEvent.PROBES_STARTED_CHAIN, session_id=session.id, **about, probes=probes)
            else:
                count = len(start.alerts)
                self.log.warning(LogEvent.ALERTS_STARTED_CHAIN, session_id=session.id, **about, alerts=count)
        if done.started:
            await self.announce()
        for name in dict.fromkeys(done.pings):
            await self.probes.ping(name, Verb.SUCCESS, at=self.clock.now())

    def _circumstances(self) -> Circumstances:
        return Circumstances(alerts=self.rules(), escalation=self.escalation(), dependencies=self.dependencies())

    def _redacted(self, said: Delivery | Unparsed) -> Delivery | Unparsed:
        """Return what a sender says without secrets: it is kept, and told to sessions and people."""
        if isinstance(said, Unparsed):
            return said
        # In one go: where all of it together holds no secret, none of it does.
        whole = "\n".join(text for alert in said.alerts for text in _texts(alert))
        if self.redact(whole) == whole:
            return said
        return replace(said, alerts=tuple(map(self._without_secrets, said.alerts)))

    def _without_secrets(self, alert: Alert) -> Alert:
        clean = self.redact
        return replace(
            alert,
            name=clean(alert.name),
            service=clean(alert.service),
            labels={name: clean(value) for name, value in alert.labels.items()},
            annotations={name: clean(value) for name, value in alert.annotations.items()},
            url=clean(alert.url),
        )


def _texts(alert: Alert) -> tuple[str, ...]:
    """Return all that a sender has said in words."""
    return (alert.name, alert.service, alert.url, *alert.labels.values(), *alert.annotations.values())


def _receipt(filed: Filed) -> Receipt:
    """Return what the sender is told."""
    told = [
        Told(fingerprint=ruling.alert[1], decision=ruling.decision, incident=ruling.incident)
        for ruling in filed.rulings
    ]
    if filed.why_unparsed:
        told = [Told(fingerprint="", decision=Decision.UNPARSED)]
    return Receipt(delivery=filed.key, alerts=filed.alerts, duplicates=filed.duplicates, decisions=tuple(told))
