"""The desk: has what monitoring systems say decided about, in the order in which it came, and looks at the clock.

What came is on record before (`AlertIntake`), so it may wait: a storm is decided about in pieces, between which the
database and the event loop belong to whoever brings more, and to the verdicts of the gate. What a daemon had not
decided about when it died the next one decides about.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import anyio

from claudeops.clock import Clock
from claudeops.domain.alerts.alert import PROBES
from claudeops.domain.alerts.receipt import Receipt
from claudeops.domain.alerts.register import Backlog, Done, NewChain
from claudeops.domain.alerts.rules import Rules
from claudeops.domain.alerts.situation import Circumstances
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.probes.dependencies import Dependencies
from claudeops.domain.probes.news import ChainRequest
from claudeops.domain.probes.probe import PingVerb
from claudeops.engine.alerts.intake import AlertIntake
from claudeops.engine.ports import UNCOUNTED, Counting
from claudeops.errors import DatabaseUnavailableError, StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.alerts.desk import Alerts
from claudeops.store.probes import Probes
from claudeops.tasks import DatabaseTrouble, open_tasks

TICK_SECONDS: Final = 2.0
"""Between two looks at what time has changed."""

BEHIND: Final = timedelta(seconds=10)
"""By which decisions may come late before the log tells of it."""

_REST_SECONDS: Final = 0.02  # after a piece, while bodies come in: they are answered by this process too


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
    counts: Counting = UNCOUNTED
    tick_seconds: float = TICK_SECONDS
    _intake: AlertIntake = field(init=False)
    _stored: anyio.Event = field(default_factory=anyio.Event)  # since the last look at the queue
    _most: int | None = None  # bodies of a round; 1 where one of several could not be decided about
    _is_behind: bool = False

    def __post_init__(self) -> None:
        self._intake = AlertIntake(
            alerts=self.alerts,
            read_rules=self.read_rules,
            redact=self.redact,
            stored=self._stir,
            clock=self.clock,
            log=self.log,
            counts=self.counts,
        )

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
        """Return once a body is on record (`AlertIntake.take`)."""
        return await self._intake.take(source, body, at, query=query)

    async def probes_failed(self, chain: ChainRequest) -> Done:
        """Take the failures of some probes. Raises `StoreError`."""
        now = self.clock.now()
        done = await self.alerts.probes_failed(
            chain.probes, chain.fingerprint, self._circumstances(), self.new_chain, now=now
        )
        await self._follow(done)
        return done

    async def run(self) -> None:
        """Write what comes in, decide about it and look at the clock, until cancelled."""
        async with open_tasks() as tasks:
            tasks.start_soon(self._intake.run)
            await self._keep_deciding()

    async def tick(self) -> None:
        """Decide about what time has changed. Raises `StoreError`."""
        await self._follow(await self.alerts.tick(self._circumstances(), self.new_chain, now=self.clock.now()))

    async def decide(self) -> bool:
        """Decide about a piece of what waits; tell whether more does. Raises `StoreError`."""
        now = self.clock.now()
        try:
            done = await self.alerts.decide(self._circumstances(), self.new_chain, now=now, most=self._most)
        except DatabaseUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - one body must not keep all that came after it waiting for ever
            await self._doubt(error)
            return True
        self._most = None
        if done is None:
            return False
        self._note_backlog(done.backlog)
        try:
            await self._follow(done)
        except StoreError as error:  # what could not be heard of a heartbeat is missed, and told as that
            DatabaseTrouble(self.log, "heartbeats").failed(error)
        return done.backlog is not None

    def _stir(self) -> None:
        self._stored.set()

    async def _keep_deciding(self) -> None:
        trouble = DatabaseTrouble(self.log, "alerts")
        ticked_at = self.clock.monotonic() - self.tick_seconds
        while True:
            self._stored, pause = anyio.Event(), 0.0
            try:
                more = await self.decide()
                if self.clock.monotonic() - ticked_at >= self.tick_seconds:
                    ticked_at = self.clock.monotonic()
                    await self.tick()
            except StoreError as error:
                more, pause = False, trouble.failed(error)
            else:
                trouble.over()
            if more:
                await anyio.sleep(_REST_SECONDS if self._intake.is_busy or self._stored.is_set() else 0)
                continue
            with anyio.move_on_after(pause or max(0.0, ticked_at + self.tick_seconds - self.clock.monotonic())):
                await self._stored.wait()

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
        """Tell the log when decisions come late, and when they no longer do."""
        late = backlog is not None and self.clock.now() - backlog.since > BEHIND
        if late and not self._is_behind and backlog is not None:
            self.log.warning(LogEvent.ALERTS_BEHIND, bodies=backlog.bodies, since=backlog.since.isoformat())
            self._is_behind = True
        elif backlog is None and self._is_behind:
            self.log.info(LogEvent.ALERTS_CAUGHT_UP)
            self._is_behind = False

    async def _follow(self, done: Done) -> None:
        """Tell of what a round has written; raises `StoreError`."""
        for ruling in done.rulings:
            self.counts.alert_decided(ruling.alert[0], ruling.decision)
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
        for name, at in done.pings.items():
            await self.probes.ping(name, PingVerb.SUCCESS, at=at)

    def _circumstances(self) -> Circumstances:
        return Circumstances(alerts=self.read_rules(), escalation=self.escalation(), dependencies=self.dependencies())
