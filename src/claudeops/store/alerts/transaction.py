"""One transaction of a decider: its questions, and what follows from the answers as rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final

import msgspec
from sqlalchemy import Connection, Select, bindparam, insert, select, update

from claudeops.domain.alerts.alert import PROBES, AlertDecision, AlertState, Incident, Key, SenderBody
from claudeops.domain.alerts.decide import AlertDecider
from claudeops.domain.alerts.incidents import IncidentNews
from claudeops.domain.alerts.register import AlertChanges, AlertResult, NewChain, ReceivedBody, Ruling, Start
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.notices.notice import Announcement
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.probes.state_machine import ProbeChange, ProbeChangeKind
from claudeops.domain.sessions import Session
from claudeops.formats.senders import of_probe
from claudeops.store.alerts import announcements
from claudeops.store.alerts import incidents as of_incidents
from claudeops.store.alerts.deliveries import deliver
from claudeops.store.alerts.rows import state_values, to_incident, to_state
from claudeops.store.alerts.situation import up_since
from claudeops.store.queue import queue_chain
from claudeops.store.rows import TableRow
from claudeops.store.tables.alerting import alert_decisions, alerts, incidents, silences
from claudeops.store.tables.probes import probes
from claudeops.structs import replace
from claudeops.text import NAME_LENGTH, clip, unique
from claudeops.wording import alert_brief

PIECE: Final = 200
"""Alerts that time has changed and that are written in one transaction; a storm's last chain is about thousands."""

_AT_ONCE: Final = 400  # keys in one question

_IDENTITY: Final = (alerts.c.id, alerts.c.source, alerts.c.fingerprint)
_CHANGE: Final = update(alerts).where(alerts.c.id == bindparam("of_id"))
_ADD: Final = insert(alerts)
_ADD_DECISION: Final = insert(alert_decisions)
_HELD_BACK: Final = (
    update(silences)
    .where(silences.c.id == bindparam("silence"))
    .values(suppressed_count=silences.c.suppressed_count + bindparam("more"))
)
_SITES: Final = select(probes.c.site).distinct().where(probes.c.name.in_(bindparam("names", expanding=True)))
_TOLD: Final = update(probes).where(probes.c.name == bindparam("probe"))
_STATES: Final = select(probes.c.name, probes.c.service, probes.c.state, probes.c.since, probes.c.detail)


_BUT_HEARD: Final = attrgetter(*(each for each in AlertState.__struct_fields__ if each not in {"count", "last_seen"}))


class Written(msgspec.Struct, frozen=True):
    """An alert as its row has it."""

    id: int
    state: AlertState

    def is_repeated_as(self, state: AlertState) -> bool:
        """Tell whether the alert was only heard of again: most of what is ever written says no more."""
        return _BUT_HEARD(self.state) == _BUT_HEARD(state)


def on_record(rows: Iterable[TableRow]) -> dict[Key, Written]:
    """Return alerts as their rows have them."""
    states = [Written(row.id, to_state(row)) for row in rows]
    return {each.state.key: each for each in states}


class AlertTransaction:
    """One transaction of a decider."""

    def __init__(
        self,
        connection: Connection,
        decider: AlertDecider,
        written: dict[Key, Written],
        *,
        about: AlertFiles,
        new_chain: NewChain,
        now: datetime,
    ) -> None:
        self.connection = connection
        self.result = AlertResult()
        self.pieces: list[Piece] = []  # that are left to be written, each in a transaction of its own
        self._decider = decider
        self._written = written
        self._about = about
        self._new_chain = new_chain
        self._now = now
        self._states: dict[Key, AlertState] = {}
        self._before: dict[int, Incident | None] = {}  # incidents that are new or have changed, as they were
        self._after: dict[int, Incident] = {}
        self._rulings: list[tuple[int | None, Ruling]] = []  # with their deliveries
        self._starts: list[Start] = []
        self._suppressed: dict[int, int] = {}
        self._turns: dict[int, IncidentNews] = {}  # by incident
        self._unstarted: dict[int, str] = {}  # why there is no chain, by incident
        self._is_whole = True  # all of it belongs into one transaction

    # --- what is decided --------------------------------------------------------------------------------

    def decide(self, said: SenderBody, delivery_id: int, *, at: datetime) -> Sequence[Ruling]:
        """Decide about the alerts of a body that is on record, and return the decisions; ``at``: when it came."""
        said = _clipped(said)
        own = {(said.source, alert.fingerprint) for alert in said.alerts}
        rulings = self._gather(lambda: self._decider.take(said, self._now), delivery_id, own, at)
        of_body = [ruling for ruling in rulings if ruling.alert in own]
        self.result.rulings += of_body
        return of_body

    def tick(self) -> None:
        """Decide about what time has changed, and hear of the probes that see their services up."""
        # Not of a body, which is decided about whole or not at all. An alert that time has changed still waits, if it
        # is not written, for the next decider, which finds the incident and its chain: it joins it then.
        self._is_whole = False
        self._hear_recoveries()
        self._witness_probes()
        self._gather(lambda: self._decider.tick(self._now), None, set(), self._now)

    def _take(self, said: SenderBody) -> None:
        """Write what probes say, and decide about it."""
        delivery_id, _ = deliver(self.connection, ReceivedBody(content=said, received_at=self._now), now=self._now)
        self.decide(said, delivery_id, at=self._now)

    def _gather(
        self, ask: Callable[[], AlertChanges], delivery_id: int | None, own: set[Key], at: datetime
    ) -> Sequence[Ruling]:
        known = self._decider.incidents()
        out = ask()
        self._states.update(out.states)
        for number, incident in out.incidents.items():
            self._before.setdefault(number, known.get(number))
            self._after[number] = incident
        self._rulings += [(delivery_id if ruling.alert in own else None, ruling) for ruling in out.rulings]
        self._starts += out.starts
        for name in out.pings:
            self.result.pings[name] = max(at, self.result.pings.get(name, at))
        for silence, more in out.suppressed.items():
            self._suppressed[silence] = self._suppressed.get(silence, 0) + more
        return out.rulings

    def recall(self, bodies: Iterable[SenderBody]) -> None:
        """Have the decider know what is on record of the alerts in some bodies."""
        keys = [(said.source, alert.fingerprint) for said in map(_clipped, bodies) for alert in said.alerts]
        unknown = [key for key in dict.fromkeys(keys) if self._decider.state(key) is None]
        rows = [row for query in _named(unknown) for row in self.connection.execute(query)]
        if rows:
            there = on_record(rows)
            self._written.update(there)
            found = [each.state for each in there.values()]
            numbers = {state.incident for state in found if state.incident is not None}
            missing = [number for number in sorted(numbers) if self._decider.incident(number) is None]
            old = self.connection.execute(select(incidents).where(incidents.c.number.in_(missing))) if missing else ()
            self._decider.load(found, map(to_incident, old))

    def _hear_recoveries(self) -> None:
        """Take the probes that see their services up, or are gone, and whose alerts still fire."""
        firing = [state for state in self._decider.of_probes() if state.fires]
        if not firing:
            return
        stands = {row.name: row for row in self.connection.execute(_STATES)}
        for state in firing:
            row = stands.get(state.fingerprint)
            if row is not None and row.state != ProbeState.UP.value:
                continue
            since = self._now if row is None or row.since is None else row.since
            if state.reported_at is not None and since <= state.reported_at:  # the clock was set back
                since = state.reported_at + timedelta(microseconds=1)
            change = ProbeChange(
                probe=state.fingerprint,
                service=state.service,
                before=ProbeState.DOWN,
                after=ProbeState.UP,
                turn=ProbeChangeKind.BETTER,
                at=since,
                detail="it is no longer declared" if row is None else row.detail,
            )
            if (said := of_probe(change)) is not None:
                self._take(said)

    def _witness_probes(self) -> None:
        """Have the probes say which services are up: since when all of a service's have seen it so."""
        open_ones = [incident for incident in self._decider.incidents().values() if incident.is_open]
        if not open_ones:
            return
        key = self._about.dependencies.key
        seen_up = up_since(self.connection, key)
        for incident in open_ones:
            after = of_incidents.seen_up(incident, seen_up, key=key)
            if after != incident:
                self._before.setdefault(incident.number, incident)
                self._after[incident.number] = after
                self._decider.load(known=[after])

    # --- what is written --------------------------------------------------------------------------------

    def write(self) -> None:
        """Write all that was decided."""
        firing: defaultdict[int, list[AlertState]] = defaultdict(list)
        for state in self._states.values():
            if state.fires and state.incident is not None:
                firing[state.incident].append(state)
        self._write_incidents(firing)
        first, *later = self._cut()
        first.write(self.connection)
        self._join_starts()
        roots = {start.incident: root for start in self._starts if (root := self._start(start)) is not None}
        of_alert: dict[Key, list[dict[str, object]]] = {}
        for key, row in self._ruling_rows(roots):
            of_alert.setdefault(key, []).append(row)
        for piece in later:
            piece.rulings = [row for key in piece.states for row in of_alert.pop(key, ())]
            self.pieces.append(piece)
        if of_alert:
            self.connection.execute(_ADD_DECISION, [row for rows in of_alert.values() for row in rows])
        self._tell(firing)
        for silence, more in self._suppressed.items():
            self.connection.execute(_HELD_BACK, {"silence": silence, "more": more})

    def _cut(self) -> list[Piece]:
        """Return the alerts in pieces; the first has all that are new, to which the decisions refer."""
        known = [key for key in self._states if key in self._written]
        if self._is_whole or len(known) <= PIECE:
            return [Piece(self._states, self._written)]
        new = [key for key in self._states if key not in self._written]
        cuts = [known[begin : begin + PIECE] for begin in range(0, len(known), PIECE)]
        cuts[0] += new
        return [Piece({key: self._states[key] for key in cut}, self._written) for cut in cuts]

    def _write_incidents(self, firing: Mapping[int, Sequence[AlertState]]) -> None:
        for number, incident in sorted(self._after.items()):
            before = self._before[number]
            if before == incident:
                continue
            by_probes = announcements.stand_ins(firing.get(number, ()))
            turn = of_incidents.write(self.connection, incident, before=before, at=self._now, stand_ins=by_probes)
            if turn is not None:
                self._turns[number] = turn
            if before is None or (incident.is_open and not before.is_open):
                self.result.opened.append(incident)
            elif before.is_open and not incident.is_open:
                self.result.resolved.append(incident)

    def _tell(self, firing: Mapping[int, Sequence[AlertState]]) -> None:
        """Tell people of the incidents that have begun, have come back or are worse."""
        because = {ruling.incident: ruling.because for _, ruling in reversed(self._rulings)}  # the first one's
        for number, turn in sorted(self._turns.items()):
            start = next((start for start in self._starts if start.incident == number), None)
            follows = because.get(number, "")
            if start is not None:
                follows = self._unstarted.get(number) or f"tier {start.tier} looks into it"
            sentence = alert_brief.headline(firing.get(number, ()), follows)
            announcements.begun(self.connection, self._after[number], turn, sentence, at=self._now)

    def _join_starts(self) -> None:
        """Have the chains of this round hear of what has joined them since they were decided on."""
        joined: defaultdict[int, dict[Key, None]] = defaultdict(dict)
        for _, ruling in self._rulings:
            if _joins_start(ruling) and ruling.incident is not None:
                joined[ruling.incident][ruling.alert] = None
        for at, start in enumerate(self._starts):
            more = [key for key in joined.get(start.incident, ()) if key not in start.alerts]
            if more:
                known = (*start.services, *(self._states[key].service for key in more))
                self._starts[at] = replace(start, alerts=(*start.alerts, *more), services=unique(known))

    def _start(self, start: Start) -> int | None:
        """Queue a chain; one whose tier is forbidden begins at the lowest. ``None``: that is forbidden too."""
        incident = self._after[start.incident]
        states = {key: state for key in start.alerts if (state := self._decider.state(key)) is not None}
        told = alert_brief.handover(start, states, incident=incident, now=self._now)
        rules = self._about.escalation
        for tier in dict.fromkeys((start.tier, rules.lowest.number)):
            new = replace(self._new_chain(tier, told), site=self._site_of(start))
            queued = queue_chain(self.connection, new, rules=rules, now=self._now, about=Announcement(quiet=True))
            if isinstance(queued, Session):
                self._note_start(start, queued)
                self._unstarted.pop(start.incident, None)
                return queued.id
            self._unstarted[start.incident] = queued.message
        return None

    def _site_of(self, start: Start) -> str | None:
        """Return the site whose probes have failed; ``None``: none has, or those of several sites."""
        failed = [key[1] for key in start.alerts if key[0] == PROBES]
        found = self.connection.execute(_SITES, {"names": failed}).scalars().all() if failed else ()
        return found[0] if len(found) == 1 else None

    def _note_start(self, start: Start, queued: Session) -> None:
        of_incidents.belongs(self.connection, queued.id, start.incident)
        self._after[start.incident] = replace(self._after[start.incident], root_session_id=queued.id)
        number = incidents.c.number == start.incident
        self.connection.execute(update(incidents).where(number).values(root_session_id=queued.id))
        mine = [key[1] for key in start.alerts if key[0] == PROBES]
        for name in mine:
            self.connection.execute(_TOLD, {"probe": name, "session_id": queued.id, "chain_at": self._now})
        self.result.started.append((queued, start))

    def _ruling_rows(self, roots: Mapping[int, int]) -> Iterator[tuple[Key, dict[str, object]]]:
        noted: set[tuple[int, int]] = set()
        for delivery_id, ruling in self._rulings:
            root = ruling.root_session_id
            is_of_start = ruling.decision is AlertDecision.STARTED or _joins_start(ruling)
            if root is None and is_of_start and ruling.incident is not None:
                root = roots.get(ruling.incident)
            if root is not None and ruling.incident is not None and (root, ruling.incident) not in noted:
                noted.add((root, ruling.incident))
                of_incidents.belongs(self.connection, root, ruling.incident)
            yield (
                ruling.alert,
                {
                    "alert_id": self._written[ruling.alert].id,
                    "delivery_id": delivery_id,
                    "at": self._now,
                    "decision": ruling.decision.value,
                    "because": ruling.reason,
                    "incident_id": ruling.incident,
                    "session_id": root,
                },
            )


class Piece(msgspec.Struct):
    """Some alerts as they are now, with the decisions about them."""

    states: Mapping[Key, AlertState]
    written: dict[Key, Written]  # what is on record; it is brought up to date
    rulings: Sequence[Mapping[str, object]] = ()

    def write(self, connection: Connection) -> None:
        """Write all of it."""
        self._write_states(connection)
        if self.rulings:
            connection.execute(_ADD_DECISION, self.rulings)

    def _write_states(self, connection: Connection) -> None:
        new, heard, changed = [], [], []
        for key, state in self.states.items():
            before = self.written.get(key)
            if before is None:
                new.append(state_values(state))
            elif before.is_repeated_as(state):
                heard.append({"of_id": before.id, "count": state.count, "last_seen": state.last_seen})
            else:
                changed.append({"of_id": before.id, **state_values(state)})
        for statement, rows in ((_ADD, new), (_CHANGE, heard), (_CHANGE, changed)):
            if rows:
                connection.execute(statement, rows)
        ids = _ids(connection, (key for key in self.states if key not in self.written)) if new else {}
        for key, state in self.states.items():
            self.written[key] = Written(ids[key] if key in ids else self.written[key].id, state)


def _ids(connection: Connection, keys: Iterable[Key]) -> Mapping[Key, int]:
    return {
        (row.source, row.fingerprint): row.id
        for query in _named(keys)
        for row in connection.execute(query.with_only_columns(*_IDENTITY))
    }


def _named(keys: Iterable[Key]) -> Iterator[Select[tuple[object, ...]]]:
    """Yield the questions for some alerts; for an IN over pairs SQLite would read the whole table."""
    by_source: defaultdict[str, list[str]] = defaultdict(list)
    for source, fingerprint in keys:
        by_source[source].append(fingerprint)
    for source, fingerprints in by_source.items():
        for first in range(0, len(fingerprints), _AT_ONCE):
            some = alerts.c.fingerprint.in_(fingerprints[first : first + _AT_ONCE])
            yield select(alerts).where(alerts.c.source == source, some)


def _joins_start(ruling: Ruling) -> bool:
    """Tell whether an alert has joined a chain that has no session yet."""
    return ruling.decision is AlertDecision.JOINED and ruling.root_session_id is None


def _clipped(said: SenderBody) -> SenderBody:
    """Return a body whose fingerprints are as columns hold them."""
    if all(len(alert.fingerprint) <= NAME_LENGTH and alert.fingerprint.isprintable() for alert in said.alerts):
        return said
    return replace(said, alerts=tuple(replace(alert, fingerprint=clip(alert.fingerprint)) for alert in said.alerts))
