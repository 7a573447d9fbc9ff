"""Alerts, as they are brought: on record at once, and decided about afterwards.

A decider keeps the alerts that fire in memory, because thousands of them may, and a delivery is about a few. One
transaction hands it on to the next only when it was committed and its caller knows so; else the next one reads all it
needs anew. What others may have changed (incidents, silences, chains, holds) is read in every transaction.

Whoever brings a body, and whoever asks the gate, waits for one writer. So what is decided about a body is cut into
transactions that are bounded in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import anyio
import msgspec
from sqlalchemy import Connection, and_, bindparam, or_, select, union

from claudeops.domain.alerts.alert import PROBES, AlertStatus, IncidentStatus, Key
from claudeops.domain.alerts.decide import AlertDecider
from claudeops.domain.alerts.register import AlertResult, NewChain, ReceivedBody
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.errors import StaleTermError, StoreError
from claudeops.store.alerts import deliveries, failures
from claudeops.store.alerts import incidents as of_incidents
from claudeops.store.alerts import sources as of_sources
from claudeops.store.alerts.rows import to_incident
from claudeops.store.alerts.situation import situation
from claudeops.store.alerts.transaction import AlertTransaction, Piece, Written, on_record
from claudeops.store.database import Database, Fence, unfenced
from claudeops.store.tables.alerting import alerts, incidents, is_unresolved

DECIDING_SECONDS: Final = 0.008
"""For which bodies are decided about in one transaction."""

PIECE_SECONDS: Final = 0.016
"""What such a transaction is to take with all that follows and is written; it has as many bodies as fit."""

_SERVES: Final = timedelta(minutes=5)  # a decider, before all is read anew
_MOST_BODIES: Final = 64  # of one transaction
_LEAST: Final = 0.0001  # seconds of a transaction: a clock may not have moved

_ANY_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)  # for "not null" SQLite would read all alerts
_IS_KEPT: Final = (
    alerts.c.status == AlertStatus.FIRING.value,
    alerts.c.contested_at > _ANY_TIME,
    alerts.c.due_at > _ANY_TIME,
)
_KEPT: Final = select(alerts).where(alerts.c.id.in_(union(*(select(alerts.c.id).where(each) for each in _IS_KEPT))))
_OPEN: Final = select(incidents.c.number).where(is_unresolved)
_LATELY: Final = select(incidents).where(
    or_(
        is_unresolved,
        and_(incidents.c.status == IncidentStatus.RESOLVED.value, incidents.c.resolved_at >= bindparam("since")),
    )
)


class _Serving(msgspec.Struct, kw_only=True):
    """A decider, since when it serves, and what is on record of the alerts that it knows."""

    decider: AlertDecider
    written: dict[Key, Written]
    about: AlertFiles
    since: datetime
    case: object = None  # the situation that it faces


class Alerts:
    """Alerts on record, and the decisions about them.

    A body is on record before anything is decided about it, and waits in a queue of rows. Whatever a round decides is
    one transaction: alerts, decisions, incidents with their events, queued chains, and that the body waits no longer.
    Nothing of a round that fails is kept.
    """

    def __init__(
        self,
        database: Database,
        *,
        fence: Fence = unfenced,
        of_probes: Fence = unfenced,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._fence = fence
        self._of_probes = of_probes  # failures are queued by whoever looks, and decided about by another role
        self._monotonic = monotonic
        self._serving: _Serving | None = None
        self._turn = anyio.Lock()
        self._bodies = _MOST_BODIES  # about as many as the last transaction had time for

    async def receive(self, bodies: Sequence[ReceivedBody], *, now: datetime) -> Sequence[bool]:
        """Write some bodies before all else that waits for the database; return whether each repeats one on record.

        A body that was written within the last ten minutes is counted, not written again; its alerts are decided about
        all the same. What is dealt with is a `duplicate` then, and changes nothing: a sender that has no times, and
        means that it fires anew, is heard. The decision about a body that cannot be read is written with it.
        """
        return await self._database.write(partial(deliveries.receive, bodies=bodies, now=now), urgent=True)

    async def decide(
        self, about: AlertFiles, new_chain: NewChain, *, now: datetime, most: int | None = None
    ) -> AlertResult | None:
        """Decide about some of the bodies that have waited longest, in one transaction: at most ``most``.

        As many as a moment allows. ``None``: nothing waits.
        """
        decided: list[int] = []

        def decide(round_: AlertTransaction) -> None:
            waiting = deliveries.first(round_.connection, self._bodies if most is None else most)
            decided.extend(_decide(round_, list(map(deliveries.understood, waiting)), self._monotonic, now))
            deliveries.forget(round_.connection, decided)
            round_.result.backlog = deliveries.backlog(round_.connection)

        if await self._database.read(deliveries.backlog) is None:
            return None
        done, seconds = await self._round(decide, about, new_chain, now)
        if most is None:
            self._bodies = max(
                1, min(_MOST_BODIES, len(decided) + 2, int(len(decided) * PIECE_SECONDS / max(seconds, _LEAST)))
            )
        return done

    async def set_aside(self, why: str, *, now: datetime) -> str | None:
        """Have the first body wait no longer, with the reason as its decision; return its key."""

        def write(connection: Connection) -> str | None:
            self._fence(connection)
            return deliveries.set_aside(connection, why=why, now=now)

        return await self._database.write(write)

    def forget(self) -> None:
        """Keep no alert in memory: the next round reads all that it needs."""
        self._serving = None

    async def is_quiet(self) -> bool:
        """Return whether time alone changes nothing: no alert is kept, no incident is open, no source is unreadable."""
        return await self._database.read(
            lambda connection: (
                not of_sources.unread(connection)
                and all(connection.execute(query.limit(1)).first() is None for query in (_KEPT, _OPEN))
            )
        )

    async def tick(self, about: AlertFiles, new_chain: NewChain, *, now: datetime) -> AlertResult:
        """Write what follows from the time that has passed, and from probes that see their services up.

        That may be much at once: then it is several transactions, the first of which has all that others refer to.
        """

        def decide(round_: AlertTransaction) -> None:
            declared = {source.name for source in about.alerts.sources}
            if gone := [name for name in of_sources.unread(round_.connection) if name not in declared]:
                of_sources.forgive(round_.connection, gone, now=now)
            round_.tick()

        return (await self._round(decide, about, new_chain, now))[0]

    async def queue_failures(self, names: Sequence[str], incident: str, *, now: datetime) -> bool:
        """Put the failures of some probes into the queue, and note their incident at them; return whether any was new.

        None is, if all of them belong to an incident already, or to a chain that has not ended.
        """

        def write(connection: Connection) -> bool:
            self._of_probes(connection)
            return failures.queue(connection, names=names, incident=incident, now=now)

        return await self._database.write(write, urgent=True)

    async def _round(
        self, decide: Callable[[AlertTransaction], None], about: AlertFiles, new_chain: NewChain, now: datetime
    ) -> tuple[AlertResult, float]:
        """Return what was done, and how many seconds its first transaction took."""
        async with self._turn:

            def write(connection: Connection) -> tuple[AlertTransaction, _Serving, float]:
                self._fence(connection)
                began = self._monotonic()
                # Taken away before anything is decided: a round that fails, or whose caller is gone, leaves none.
                before, self._serving = self._serving, None
                serving = _ready(connection, before, about, now)
                round_ = AlertTransaction(
                    connection, serving.decider, serving.written, about=about, new_chain=new_chain, now=now
                )
                decide(round_)
                round_.write()
                return round_, serving, self._monotonic() - began

            round_, serving, seconds = await self._database.write(write)
            try:
                for piece in round_.pieces:
                    await self._database.write(partial(self._write_piece, piece))
            except (StoreError, StaleTermError):
                return round_.result, seconds  # no decider is left: the next one finds the rest still waiting
            self._serving = serving
            return round_.result, seconds

    def _write_piece(self, piece: Piece, connection: Connection) -> None:
        self._fence(connection)
        piece.write(connection)


def _decide(
    round_: AlertTransaction, bodies: Sequence[deliveries.Waiting], monotonic: Callable[[], float], now: datetime
) -> list[int]:
    """Decide about bodies until the time is over; return the ids of those that were decided about."""
    round_.recall(body.said for body in bodies)
    ends = monotonic() + DECIDING_SECONDS
    decided = []
    for body in bodies:
        if body.said.source == PROBES:
            _decide_failures(round_, body, now)
        else:
            round_.decide(body.said, body.delivery_id, at=body.received_at)
        decided.append(body.id)
        if monotonic() >= ends:
            break
    return decided


def _decide_failures(round_: AlertTransaction, body: deliveries.Waiting, now: datetime) -> None:
    """Decide about failures of probes as one group of alerts, unless they are over."""
    left = failures.still_failing(round_.connection, body, now=now)
    if left.alerts:
        rulings = round_.decide(left, body.delivery_id, at=body.received_at)
        failures.note_handled(round_.connection, left, {ruling.decision for ruling in rulings}, at=now)


def _ready(connection: Connection, before: _Serving | None, about: AlertFiles, now: datetime) -> _Serving:
    """Return a decider that faces what is the case, with everything that may change without it."""
    case = situation(connection, about, now)
    since = now - about.alerts.reopen_within
    lately = [to_incident(row) for row in connection.execute(_LATELY, {"since": since})]
    number = of_incidents.next_number(connection)
    fresh = before is not None and before.since <= now < before.since + _SERVES
    if before is None or not fresh or before.about.dependencies != about.dependencies:
        written = on_record(connection.execute(_KEPT.order_by(alerts.c.id)))
        states = [each.state for each in written.values()]
        decider = AlertDecider(case, states=states, known=lately, next_number=number)
        return _Serving(decider=decider, written=written, about=about, since=now, case=case)
    decider = before.decider
    decider.load(known=[each for each in lately if decider.incident(each.number) != each], next_number=number)
    if before.case != case:
        decider.set_context(case)
    return _Serving(decider=decider, written=before.written, about=about, since=before.since, case=case)
