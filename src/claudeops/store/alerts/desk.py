"""Alerts, as they are brought: on record and decided about in one transaction.

A desk keeps the alerts that fire in memory, because thousands of them may, and a delivery is about a few. It is handed
on from one transaction to the next only when that was committed and its caller was told so; else the next one reads all
it needs anew. What others may have changed (incidents, silences, chains, holds) is read in every transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Final

import anyio
from sqlalchemy import Connection, Select, bindparam, insert, or_, select, update

from claudeops.domain.alerts import brief
from claudeops.domain.alerts.decide import Desk
from claudeops.domain.alerts.incidents import News
from claudeops.domain.alerts.model import (
    PROBES,
    AlertState,
    AlertStatus,
    Decision,
    Delivery,
    Incident,
    IncidentStatus,
    Key,
    Silence,
    Unparsed,
)
from claudeops.domain.alerts.register import Done, Filed, NewChain, Outcome, Posted, Ruling, Start
from claudeops.domain.alerts.senders import of_probe
from claudeops.domain.alerts.situation import Circumstances
from claudeops.domain.model import Session
from claudeops.domain.notice.texts import About
from claudeops.domain.probe.machine import Change, Turn
from claudeops.domain.probe.model import State
from claudeops.domain.text import clip
from claudeops.store import queries
from claudeops.store.alerts import incidents as of_incidents
from claudeops.store.alerts import notices
from claudeops.store.alerts import silences as of_silences
from claudeops.store.alerts.deliveries import deliver
from claudeops.store.alerts.rows import state_values, to_incident, to_state
from claudeops.store.alerts.situation import situation
from claudeops.store.database import Database
from claudeops.store.probes import claim_untold
from claudeops.store.queue import queue_chain
from claudeops.store.rows import TableRow
from claudeops.store.tables import (
    alert_decisions,
    alerts,
    incidents,
    probes,
    silences,
)

_SERVES: Final = timedelta(minutes=5)  # a desk, before all is read anew
_AT_ONCE: Final = 400  # keys in one question

_KEPT: Final = select(alerts).where(
    or_(
        alerts.c.status == AlertStatus.FIRING.value,
        alerts.c.contested_at.is_not(None),
        alerts.c.due_at.is_not(None),
    )
)
_LATELY: Final = select(incidents).where(
    or_(incidents.c.status != IncidentStatus.RESOLVED.value, incidents.c.resolved_at >= bindparam("since"))
)
_IDENTITY: Final = (alerts.c.id, alerts.c.source, alerts.c.fingerprint)
_CHANGE: Final = update(alerts).where(alerts.c.id == bindparam("of_id"))
_ADD: Final = insert(alerts)
_ADD_DECISION: Final = insert(alert_decisions)
_HELD_BACK: Final = (
    update(silences)
    .where(silences.c.id == bindparam("silence"))
    .values(suppressed_count=silences.c.suppressed_count + bindparam("more"))
)
_TOLD: Final = update(probes).where(probes.c.name == bindparam("probe"))
_STATES: Final = select(probes.c.name, probes.c.service, probes.c.state, probes.c.since, probes.c.detail)


_BUT_HEARD: Final = attrgetter(*(each.name for each in fields(AlertState) if each.name not in {"count", "last_seen"}))


@dataclass(frozen=True, slots=True)
class _Written:
    """An alert as its row has it."""

    id: int
    state: AlertState

    def is_repeated_as(self, state: AlertState) -> bool:
        """Tell whether the alert was only heard of again: most of what is ever written says no more."""
        return _BUT_HEARD(self.state) == _BUT_HEARD(state)


@dataclass(kw_only=True, slots=True)
class _Kept:
    """A desk, since when it serves, and what is on record of the alerts that it knows."""

    desk: Desk
    written: dict[Key, _Written]
    about: Circumstances
    since: datetime
    case: object = None  # the situation that it faces


class SqlAlerts:
    """`claudeops.engine.ports.alerting.Alerts`, over SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: _Kept | None = None
        self._turn = anyio.Lock()

    async def take(self, posted: Sequence[Posted], about: Circumstances, new_chain: NewChain, *, now: datetime) -> Done:
        """Write some bodies and what follows from them, in one transaction."""

        def decide(round_: _Round) -> None:
            round_.recall(posted)
            for post in posted:
                round_.take(post)

        return await self._round(decide, about, new_chain, now)

    async def tick(self, about: Circumstances, new_chain: NewChain, *, now: datetime) -> Done:
        """Write what follows from the time that has passed, and from probes that see their services up."""

        def decide(round_: _Round) -> None:
            round_.tick()

        return await self._round(decide, about, new_chain, now)

    async def probes_failed(
        self, names: Sequence[str], incident: str, about: Circumstances, new_chain: NewChain, *, now: datetime
    ) -> Done:
        """Take the failures of some probes as one group of alerts, unless they belong to something already."""

        def decide(round_: _Round) -> None:
            round_.take_probes(claim_untold(round_.connection, names, incident, now=now), incident)

        return await self._round(decide, about, new_chain, now)

    async def acknowledge(self, number: int, *, by: str, now: datetime) -> Incident | None:
        """Note that a person is on an incident."""
        return await self._database.write(partial(of_incidents.acknowledge, number=number, by=by, at=now))

    async def resolve(self, number: int, *, by: str, now: datetime) -> Incident | None:
        """Note that a person says that an incident is over."""
        return await self._database.write(partial(of_incidents.resolve, number=number, by=by, at=now))

    async def silence(self, silence: Silence) -> Silence:
        """Write a silence."""
        return await self._database.write(partial(of_silences.add, silence=silence))

    async def end_silence(self, number: int, *, by: str, now: datetime) -> Silence | None:
        """End a silence before its time."""
        return await self._database.write(partial(of_silences.end, number=number, by=by, at=now))

    async def lately(self, since: datetime) -> Sequence[AlertState]:
        """Return the alerts that fire, or were heard of since."""
        known = select(alerts).where(or_(alerts.c.status == AlertStatus.FIRING.value, alerts.c.last_seen >= since))
        return await self._database.read(lambda connection: tuple(map(to_state, connection.execute(known))))

    async def _round(
        self, decide: Callable[[_Round], None], about: Circumstances, new_chain: NewChain, now: datetime
    ) -> Done:
        async with self._turn:

            def write(connection: Connection) -> tuple[Done, _Kept]:
                # Taken away before anything is decided: a round that fails, or whose caller is gone, leaves none.
                before, self._kept = self._kept, None
                kept = _ready(connection, before, about, now)
                round_ = _Round(connection, kept, about, new_chain, now)
                decide(round_)
                round_.write()
                return round_.done, kept

            done, kept = await self._database.write(write)
            self._kept = kept
            return done


def _ready(connection: Connection, kept: _Kept | None, about: Circumstances, now: datetime) -> _Kept:
    """Return a desk that faces what is the case, with everything that may change without it."""
    case = situation(connection, about, now)
    since = now - about.alerts.reopen_within
    lately = [to_incident(row) for row in connection.execute(_LATELY, {"since": since})]
    number = of_incidents.next_number(connection)
    fresh = kept is not None and kept.since <= now < kept.since + _SERVES
    if kept is None or not fresh or kept.about.dependencies != about.dependencies:
        written = _on_record(connection.execute(_KEPT.order_by(alerts.c.id)))
        states = [each.state for each in written.values()]
        desk = Desk(case, states=states, known=lately, next_number=number)
        return _Kept(desk=desk, written=written, about=about, since=now, case=case)
    kept.desk.learn(known=[each for each in lately if kept.desk.incident(each.number) != each], next_number=number)
    if kept.case != case:
        kept.desk.face(case)
    return _Kept(desk=kept.desk, written=kept.written, about=about, since=kept.since, case=case)


def _on_record(rows: Iterable[TableRow]) -> dict[Key, _Written]:
    states = [_Written(row.id, to_state(row)) for row in rows]
    return {each.state.key: each for each in states}


class _Round:
    """One transaction of a desk."""

    def __init__(
        self, connection: Connection, kept: _Kept, about: Circumstances, new_chain: NewChain, now: datetime
    ) -> None:
        self.connection = connection
        self.done = Done()
        self._desk = kept.desk
        self._written = kept.written
        self._about = about
        self._new_chain = new_chain
        self._now = now
        self._states: dict[Key, AlertState] = {}
        self._before: dict[int, Incident | None] = {}  # incidents that are new or have changed, as they were
        self._after: dict[int, Incident] = {}
        self._rulings: list[tuple[int | None, Ruling]] = []  # with their deliveries
        self._starts: list[Start] = []
        self._suppressed: dict[int, int] = {}
        self._turns: dict[int, News] = {}  # by incident
        self._unstarted: dict[int, str] = {}  # why there is no chain, by incident

    # --- what is decided --------------------------------------------------------------------------------

    def take(self, post: Posted) -> None:
        """Write a body and decide about its alerts."""
        delivery_id = deliver(self.connection, post, now=self._now)
        said = post.said
        if isinstance(said, Unparsed):
            row = {"delivery_id": delivery_id, "at": self._now, "decision": Decision.UNPARSED.value}
            self.connection.execute(_ADD_DECISION, {**row, "because": f"the body could not be read: {said.why}"})
            self.done.filed.append(Filed(key=said.key, alerts=0, duplicates=0, why_unparsed=said.why))
            return
        said = replace(said, alerts=tuple(replace(alert, fingerprint=clip(alert.fingerprint)) for alert in said.alerts))
        own = {(said.source, alert.fingerprint) for alert in said.alerts}
        rulings = self._gather(lambda: self._desk.take(said, self._now), delivery_id, own)
        mine = tuple(ruling for ruling in rulings if ruling.alert in own)
        again = sum(ruling.decision is Decision.DUPLICATE for ruling in mine)
        self.done.filed.append(Filed(key=said.key, alerts=len(said.alerts), duplicates=again, rulings=mine))

    def take_probes(self, rows: Sequence[Change], incident: str) -> None:
        """Decide about probes that fail, as one group of alerts."""
        said = [delivery for change in rows if (delivery := of_probe(change)) is not None]
        if said:
            told = tuple(alert for delivery in said for alert in delivery.alerts)
            whole = Delivery(source=PROBES, key=said[0].key, alerts=told, group_key=incident)
            post = Posted(said=whole, received_at=self._now)
            self.recall([post])
            self.take(post)

    def tick(self) -> None:
        """Decide about what time has changed, and hear of the probes that see their services up."""
        self._hear_recoveries()
        self._witness_probes()
        self._gather(lambda: self._desk.tick(self._now), None, set())

    def _gather(self, ask: Callable[[], Outcome], delivery_id: int | None, own: set[Key]) -> Sequence[Ruling]:
        known = self._desk.incidents()
        out = ask()
        self._states.update(out.states)
        for number, incident in out.incidents.items():
            self._before.setdefault(number, known.get(number))
            self._after[number] = incident
        self._rulings += [(delivery_id if ruling.alert in own else None, ruling) for ruling in out.rulings]
        self._starts += out.starts
        self.done.pings += out.pings
        for silence, more in out.suppressed.items():
            self._suppressed[silence] = self._suppressed.get(silence, 0) + more
        return out.rulings

    def recall(self, posted: Iterable[Posted]) -> None:
        """Have the desk know what is on record of the alerts in some bodies."""
        keys = [
            (post.said.source, clip(alert.fingerprint))
            for post in posted
            if isinstance(post.said, Delivery)
            for alert in post.said.alerts
        ]
        unknown = [key for key in dict.fromkeys(keys) if self._desk.state(key) is None]
        rows = [row for query in _named(unknown) for row in self.connection.execute(query)]
        if rows:
            there = _on_record(rows)
            self._written.update(there)
            found = [each.state for each in there.values()]
            numbers = {state.incident for state in found if state.incident is not None}
            missing = [number for number in sorted(numbers) if self._desk.incident(number) is None]
            old = self.connection.execute(select(incidents).where(incidents.c.number.in_(missing))) if missing else ()
            self._desk.learn(found, map(to_incident, old))

    def _hear_recoveries(self) -> None:
        """Take the probes that see their services up, or are gone, and whose alerts still fire."""
        firing = [state for state in self._desk.of_probes() if state.fires]
        if not firing:
            return
        stands = {row.name: row for row in self.connection.execute(_STATES)}
        for state in firing:
            row = stands.get(state.fingerprint)
            if row is not None and row.state != State.UP.value:
                continue
            since = self._now if row is None or row.since is None else row.since
            if state.said_at is not None and since <= state.said_at:  # the clock was set back
                since = state.said_at + timedelta(microseconds=1)
            change = Change(
                probe=state.fingerprint,
                service=state.service,
                before=State.DOWN,
                after=State.UP,
                turn=Turn.BETTER,
                at=since,
                detail="it is no longer declared" if row is None else row.detail,
            )
            if (said := of_probe(change)) is not None:
                self.take(Posted(said=said, received_at=self._now))

    def _witness_probes(self) -> None:
        """Have the probes say which services are up: since when all of a service's have seen it so."""
        open_ones = [incident for incident in self._desk.incidents().values() if incident.is_open]
        if not open_ones:
            return
        key = self._about.dependencies.key
        up: dict[str, datetime | None] = {}
        for sight in queries.sights(self.connection):
            name = key(sight.service)
            seen = sight.began_at if sight.state is State.UP and not sight.failed else None
            before = up.get(name, seen)
            up[name] = None if seen is None or before is None else min(before, seen)
        seen_up = {name: at for name, at in up.items() if at is not None}
        for incident in open_ones:
            after = of_incidents.seen_up(incident, seen_up, key=key)
            if after != incident:
                self._before.setdefault(incident.number, incident)
                self._after[incident.number] = after
                self._desk.learn(known=[after])

    # --- what is written --------------------------------------------------------------------------------

    def write(self) -> None:
        """Write all that was decided."""
        firing: defaultdict[int, list[AlertState]] = defaultdict(list)
        for state in self._states.values():
            if state.fires and state.incident is not None:
                firing[state.incident].append(state)
        self._write_incidents(firing)
        self._write_states()
        roots = {start.incident: root for start in self._starts if (root := self._start(start)) is not None}
        self._write_rulings(roots)
        self._tell(firing)
        for silence, more in self._suppressed.items():
            self.connection.execute(_HELD_BACK, {"silence": silence, "more": more})

    def _write_incidents(self, firing: Mapping[int, Sequence[AlertState]]) -> None:
        for number, incident in sorted(self._after.items()):
            before = self._before[number]
            if before == incident:
                continue
            by_probes = notices.stand_ins(firing.get(number, ()))
            turn = of_incidents.write(self.connection, incident, before=before, at=self._now, stand_ins=by_probes)
            if turn is not None:
                self._turns[number] = turn
            if before is None or (incident.is_open and not before.is_open):
                self.done.opened.append(incident)
            elif before.is_open and not incident.is_open:
                self.done.resolved.append(incident)

    def _tell(self, firing: Mapping[int, Sequence[AlertState]]) -> None:
        """Tell people of the incidents that have begun, have come back or are worse."""
        because = {ruling.incident: ruling.because for _, ruling in reversed(self._rulings)}  # the first one's
        for number, turn in sorted(self._turns.items()):
            start = next((start for start in self._starts if start.incident == number), None)
            follows = because.get(number, "")
            if start is not None:
                follows = self._unstarted.get(number) or f"tier {start.tier} looks into it"
            sentence = brief.headline(firing.get(number, ()), follows)
            notices.begun(self.connection, self._after[number], turn, sentence, at=self._now)

    def _write_states(self) -> None:
        new, heard, changed = [], [], []
        for key, state in self._states.items():
            before = self._written.get(key)
            if before is None:
                new.append(state_values(state))
            elif before.is_repeated_as(state):
                heard.append({"of_id": before.id, "count": state.count, "last_seen": state.last_seen})
            else:
                changed.append({"of_id": before.id, **state_values(state)})
        for statement, rows in ((_ADD, new), (_CHANGE, heard), (_CHANGE, changed)):
            if rows:
                self.connection.execute(statement, rows)
        ids = self._ids(key for key in self._states if key not in self._written) if new else {}
        for key, state in self._states.items():
            self._written[key] = _Written(ids[key] if key in ids else self._written[key].id, state)

    def _ids(self, keys: Iterable[Key]) -> Mapping[Key, int]:
        return {
            (row.source, row.fingerprint): row.id
            for query in _named(keys)
            for row in self.connection.execute(query.with_only_columns(*_IDENTITY))
        }

    def _start(self, start: Start) -> int | None:
        """Queue a chain; one whose tier is forbidden begins at the lowest. ``None``: that is forbidden too."""
        incident = self._after[start.incident]
        states = {key: state for key in start.alerts if (state := self._desk.state(key)) is not None}
        told = brief.handover(start, states, incident=incident, now=self._now)
        rules = self._about.escalation
        for tier in dict.fromkeys((start.tier, rules.lowest.number)):
            new = self._new_chain(tier, told)
            queued = queue_chain(self.connection, new, rules=rules, now=self._now, about=About(quiet=True))
            if isinstance(queued, Session):
                self._note_start(start, queued)
                self._unstarted.pop(start.incident, None)
                return queued.id
            self._unstarted[start.incident] = queued.message
        return None

    def _note_start(self, start: Start, queued: Session) -> None:
        of_incidents.belongs(self.connection, queued.id, start.incident)
        self._after[start.incident] = replace(self._after[start.incident], root_session_id=queued.id)
        number = incidents.c.number == start.incident
        self.connection.execute(update(incidents).where(number).values(root_session_id=queued.id))
        mine = [key[1] for key in start.alerts if key[0] == PROBES]
        for name in mine:
            self.connection.execute(_TOLD, {"probe": name, "session_id": queued.id, "chain_at": self._now})
        self.done.started.append((queued, start))

    def _write_rulings(self, roots: Mapping[int, int]) -> None:
        if not self._rulings:
            return
        rows = []
        for delivery_id, ruling in self._rulings:
            root = ruling.root_session_id
            if root is None and ruling.decision is Decision.STARTED and ruling.incident is not None:
                root = roots.get(ruling.incident)
            if root is not None and ruling.incident is not None:
                of_incidents.belongs(self.connection, root, ruling.incident)
            rows.append(
                {
                    "alert_id": self._written[ruling.alert].id,
                    "delivery_id": delivery_id,
                    "at": self._now,
                    "decision": ruling.decision.value,
                    "because": ruling.because,
                    "incident_id": ruling.incident,
                    "session_id": root,
                }
            )
        self.connection.execute(_ADD_DECISION, rows)


def _named(keys: Iterable[Key]) -> Iterator[Select[tuple[object, ...]]]:
    """Yield the questions for some alerts; for an IN over pairs SQLite would read the whole table."""
    by_source: defaultdict[str, list[str]] = defaultdict(list)
    for source, fingerprint in keys:
        by_source[source].append(fingerprint)
    for source, fingerprints in by_source.items():
        for first in range(0, len(fingerprints), _AT_ONCE):
            some = alerts.c.fingerprint.in_(fingerprints[first : first + _AT_ONCE])
            yield select(alerts).where(alerts.c.source == source, some)
