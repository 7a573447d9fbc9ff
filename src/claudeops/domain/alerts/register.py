"""What is kept while it is decided: alerts, groups that wait, incidents and chains, each found by its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from claudeops.domain.alerts import incidents
from claudeops.domain.alerts.alert import PROBES, AlertDecision, AlertState, Incident, Key, SenderBody, Unparsed
from claudeops.domain.alerts.situation import OpenChain
from claudeops.domain.events import EventLevel
from claudeops.domain.probes.dependencies import Dependencies
from claudeops.domain.sessions import Handover, NewSession, Session
from claudeops.structs import replace

_Index = TypeVar("_Index", str, int)


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one alert: one row."""

    alert: Key
    decision: AlertDecision
    because: str  # one sentence
    incident: int | None = None
    root_session_id: int | None = None  # of the chain that it joins; a started one has none yet
    about: str = ""  # a clause: the service, and what names it

    @property
    def reason(self) -> str:
        """The whole of why, as it is recorded."""
        return f"{self.because}; it is about {self.about}" if self.about else self.because


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A chain to be queued."""

    incident: int
    group_key: str
    tier: int
    severity: EventLevel
    services: tuple[str, ...]
    alerts: tuple[Key, ...]  # the most severe first
    asks_why: bool = False  # why it flaps, is the question


class AlertGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts that wait for one chain."""

    key: str
    due_at: datetime
    alerts: tuple[Key, ...]


class AlertChanges(msgspec.Struct, kw_only=True):
    """What is to be written and done."""

    rulings: list[Ruling] = msgspec.field(default_factory=list)
    states: dict[Key, AlertState] = msgspec.field(default_factory=dict)  # that have changed
    incidents: dict[int, Incident] = msgspec.field(default_factory=dict)  # that are new or have changed
    starts: list[Start] = msgspec.field(default_factory=list)
    pings: list[str] = msgspec.field(default_factory=list)  # heartbeats that came
    suppressed: dict[int, int] = msgspec.field(default_factory=dict)  # silence → alerts that it has suppressed now


class AlertIndex:
    """All that is kept; what changes is noted in ``out``, which begins anew with every round."""

    def __init__(self, *, dependencies: Dependencies, known: Iterable[Incident], next_number: int) -> None:
        self.out = AlertChanges()
        self.states: dict[Key, AlertState] = {}
        self.of_probes: dict[Key, AlertState] = {}  # of these
        self.incidents: dict[int, Incident] = {}
        self._dependencies = dependencies
        self._waiting: dict[str, dict[Key, None]] = {}  # by group
        self._firing: dict[int, dict[Key, None]] = {}  # by incident
        self._by_group: dict[str, int] = {}
        self._by_service: dict[str, int] = {}
        self._chains: list[OpenChain] = []
        self._chain_by_incident: dict[int, OpenChain] = {}
        self._chain_by_service: dict[str, OpenChain] = {}
        self._next_number = next_number
        self._grouped: dict[Key, int] = {}  # alerts that were ruled to wait in this round → place of the ruling
        for incident in sorted(known, key=lambda each: each.number):
            self.note(incident)

    def begin(self) -> AlertChanges:
        """Begin a round: return what it will have changed."""
        self._grouped = {}
        self.out = AlertChanges()
        return self.out

    def put(self, state: AlertState) -> AlertState | None:
        """Keep an alert as it is now; return how it was."""
        before = self.states.get(state.key)
        self.states[state.key] = self.out.states[state.key] = state
        if state.source == PROBES:
            self.of_probes[state.key] = state
        old_group = before.group_key if before is not None and before.is_waiting else None
        _move(self._waiting, state.key, old_group, state.group_key if state.is_waiting else None)
        old_incident = before.incident if before is not None and before.fires else None
        _move(self._firing, state.key, old_incident, state.incident if state.fires else None)
        return before

    def rule(
        self,
        alert: Key,
        decision: AlertDecision,
        because: str,
        *,
        incident: int | None = None,
        root_session_id: int | None = None,
        only_revise: bool = False,
    ) -> None:
        """Rule; in place of the ruling that it waits, where that was made in this round.

        ``only_revise``: no other ruling is made.
        """
        state = self.states[alert]
        ruling = Ruling(
            alert=alert,
            decision=decision,
            because=because,
            incident=incident,
            root_session_id=root_session_id,
            about=f"{state.service} by {state.service_by}" if state.service_by else "",
        )
        place = self._grouped.pop(alert, None)
        if decision is AlertDecision.DUPLICATE and place is not None:
            self._grouped[alert] = place  # it goes on waiting
            place = None
        if place is not None:
            self.out.rulings[place] = ruling
        elif not only_revise:
            if decision is AlertDecision.GROUPED:
                self._grouped[alert] = len(self.out.rulings)
            self.out.rulings.append(ruling)

    def groups(self, until: datetime | None = None) -> tuple[AlertGroup, ...]:
        """Return the groups that wait, or those that wait no longer than ``until``; the next one first."""
        found = []
        for key, waiting in self._waiting.items():
            due_at = self.due_at(key)
            if due_at is not None and (until is None or due_at <= until):
                found.append(AlertGroup(key=key, due_at=due_at, alerts=tuple(waiting)))
        return tuple(sorted(found, key=lambda group: (group.due_at, group.key)))

    def due_at(self, group_key: str) -> datetime | None:
        """Return when a group's chain starts: all of it waits for one moment; None: nothing waits in it."""
        first = next(iter(self._waiting.get(group_key, ())), None)
        return None if first is None else self.states[first].due_at

    def hasten(self, group_key: str, due_at: datetime) -> None:
        """Let all of a group wait no longer than until a moment."""
        for key in tuple(self._waiting.get(group_key, ())):
            self.put(replace(self.states[key], due_at=due_at))

    def firing(self, incident: int) -> tuple[Key, ...]:
        """Return the alerts of an incident that still fire."""
        return tuple(self._firing.get(incident, ()))

    def expect(self, next_number: int) -> None:
        """Give a new incident this number at least."""
        self._next_number = max(self._next_number, next_number)

    # --- incidents ----------------------------------------------------------------------------------------

    def note(self, incident: Incident) -> None:
        """Keep an incident as it is now."""
        self._next_number = max(self._next_number, incident.number + 1)
        before = self.incidents.get(incident.number)
        self.incidents[incident.number] = self.out.incidents[incident.number] = incident
        if before is not None and (before.services, before.is_open) == (incident.services, incident.is_open):
            return  # it is found by the same names
        self._name(self._by_group, incident.group_key, incident)
        for service in incident.services:
            self._name(self._by_service, self._dependencies.key(service), incident)

    def _name(self, names: dict[str, int], name: str, incident: Incident) -> None:
        """Let an incident be found by a name, unless an open one is found by it."""
        other = self.incidents.get(names.get(name, 0))
        if incident.is_open or other is None or not other.is_open:
            names[name] = incident.number

    def incident_of(self, state: AlertState, now: datetime, within: timedelta) -> Incident | None:
        """Return the incident that an alert belongs to: an open one, or one that ended so lately that it may reopen."""
        numbers = (
            state.incident,
            self._by_group.get(state.group_key),
            self._by_service.get(self._dependencies.key(state.service)),
        )
        found = [self.incidents[number] for number in numbers if number is not None and number in self.incidents]
        for incident in found:
            if incident.is_open:
                return incident
        return next((incident for incident in found if incidents.may_reopen(incident, now, within)), None)

    def incident_with(
        self, states: Sequence[AlertState], now: datetime, incident: Incident | None, *, group_key: str
    ) -> Incident:
        """Return the incident of some alerts with these added; a new one where there is none."""
        if incident is None:
            incident = incidents.opened(
                self._next_number,
                group_key=group_key,
                services=(states[0].service,),
                severity=states[0].severity,
                at=now,
            )
            self._next_number += 1
        for state in states:
            incident = incidents.with_alert(incident, state, now)
        self.note(incident)
        return incident

    # --- chains -------------------------------------------------------------------------------------------

    def set_chains(self, chains: Iterable[OpenChain]) -> None:
        """Take over which chains run."""
        self._chains, self._chain_by_incident, self._chain_by_service = [], {}, {}
        for chain in chains:
            self.run(chain)

    def run(self, chain: OpenChain) -> None:
        """Keep a chain that runs."""
        self._chains.append(chain)
        if chain.incident is not None:
            self._chain_by_incident.setdefault(chain.incident, chain)
        for service in chain.services:
            self._chain_by_service.setdefault(self._dependencies.key(service), chain)

    def chain_of(self, state: AlertState, incident: Incident | None) -> OpenChain | None:
        """Return the running chain of an incident, else of a service."""
        if incident is not None and (chain := self._chain_by_incident.get(incident.number)) is not None:
            return chain
        return self._chain_by_service.get(self._dependencies.key(state.service))

    def chain_of_incident(self, number: int) -> OpenChain | None:
        """Return the running chain of an incident."""
        return self._chain_by_incident.get(number)

    def chain_of_group(self, group_key: str) -> OpenChain | None:
        """Return the running chain about a group as a whole, such as all that came at once."""
        number = self._by_group.get(group_key)
        return None if number is None else self._chain_by_incident.get(number)


def _move(index: dict[_Index, dict[Key, None]], key: Key, old: _Index | None, new: _Index | None) -> None:
    if old is not None and old != new:
        held = index.get(old, {})
        held.pop(key, None)
        if not held:
            index.pop(old, None)
    if new is not None:
        index.setdefault(new, {})[key] = None


# --- bodies -----------------------------------------------------------------------------------------------


class ReceivedBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body of an authenticated sender, read as far as it can be."""

    content: SenderBody | Unparsed
    received_at: datetime
    raw: str | None = None  # as it is kept: without secrets; None: there is nothing to keep


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Bodies that are on record and not decided about."""

    bodies: int
    since: datetime  # when the first of these came


NewChain = Callable[[int, Handover], NewSession]
"""Makes the first session of a chain, by its tier and its handover."""


class AlertResult(msgspec.Struct, kw_only=True):
    """What a round has written."""

    rulings: list[Ruling] = msgspec.field(default_factory=list)  # about the alerts of bodies
    started: list[tuple[Session, Start]] = msgspec.field(default_factory=list)
    opened: list[Incident] = msgspec.field(default_factory=list)
    resolved: list[Incident] = msgspec.field(default_factory=list)
    pings: dict[str, datetime] = msgspec.field(default_factory=dict)  # heartbeats, and when they came
    backlog: Backlog | None = None  # what is left to be decided
