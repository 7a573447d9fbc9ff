"""What is the case besides the alerts themselves, and what speaks against a chain for one of them.

The first reason that applies is the decision, in this order: too little severity, a silence, something else that
explains it, flapping, an action of ours, a chain or person that is on it, and last what holds back every
session. So a running chain gets an alert while the daemon is paused, and never one that an operator has silenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from claudeops.domain.actions import PastAction
from claudeops.domain.alerts.alert import AlertDecision, AlertState, Incident, IncidentStatus, Silence
from claudeops.domain.alerts.machine import flaps, recent_changes
from claudeops.domain.alerts.rules import NO_RULES, Rules, Treatment, rank
from claudeops.domain.alerts.suppression import Inhibitors, silence_of
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.probes.dependencies import NO_DEPENDENCIES, Dependencies
from claudeops.text import parts

WHY_INTERVAL: Final = timedelta(days=1)
"""Between two chains that find out why an alert flaps."""

_BEFORE_ACTION: Final = timedelta(minutes=1)  # a sender's clock may be behind by so much and still say what was later


class AlertFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon's files say; all else that is the case is on record."""

    alerts: Rules = NO_RULES
    escalation: EscalationRules
    dependencies: Dependencies = NO_DEPENDENCIES


class OpenChain(msgspec.Struct, frozen=True, kw_only=True):
    """A chain that runs or waits in the queue."""

    services: tuple[str, ...]  # that it is about
    incident: int | None = None
    root_session_id: int | None = None  # None: it is being started


class AlertContext(msgspec.Struct, frozen=True, kw_only=True):
    """What is the case."""

    rules: Rules = NO_RULES
    silences: tuple[Silence, ...] = ()
    chains: tuple[OpenChain, ...] = ()
    ledger: tuple[PastAction, ...] = ()  # what sessions did within `Rules.self_inflicted`
    paused: str = ""  # a clause that says who paused and why; empty: no pause
    spent: str = ""  # a clause that says which budget is spent; empty: none
    cooling: Mapping[str, datetime | None] = msgspec.field(
        default_factory=dict
    )  # service → when an action is possible again
    dependencies: Dependencies = NO_DEPENDENCIES
    broken: tuple[str, ...] = ()  # services that are down by the daemon's probes
    up: Mapping[str, datetime] = msgspec.field(
        default_factory=dict
    )  # key of a service that all its probes see up → since
    starts: tuple[datetime, ...] = ()  # of chains that alerts started, within `StormRules.window`


class Suppression(msgspec.Struct, frozen=True, kw_only=True):
    """Why no chain is started for an alert."""

    decision: AlertDecision
    because: str  # one sentence
    silence: int | None = None  # the silence that suppressed it
    chain: OpenChain | None = None  # the running one that it joins


class Suppressions:
    """Finds what speaks against a chain."""

    def __init__(self, situation: AlertContext, inhibitors: Inhibitors) -> None:
        self._situation = situation
        self._inhibitors = inhibitors
        self._dependencies = situation.dependencies
        self._cooling = {key: at for name, at in situation.cooling.items() for key in self._keys(name)}
        self._acted: dict[str, list[PastAction]] = {}
        for past in situation.ledger:
            for key in self._keys(past.service):
                self._acted.setdefault(key, []).append(past)

    def _keys(self, acted_on: str) -> Iterable[str]:
        """Return the keys of what was acted on: ``namespace:shop/cart`` is what alerts call ``shop/cart``."""
        return {self._dependencies.key(name) for name in (acted_on, "/".join(parts(acted_on)))}

    def of(
        self,
        state: AlertState,
        treatment: Treatment,
        now: datetime,
        *,
        incident: Incident | None,
        chain: OpenChain | None,
    ) -> Suppression | None:
        """Return the first suppression; ``incident`` and ``chain``: the open one and the running one of its service."""
        return next(self._all(state, treatment, now, incident, chain), None)

    def _all(
        self, state: AlertState, treatment: Treatment, now: datetime, incident: Incident | None, chain: OpenChain | None
    ) -> Iterator[Suppression]:
        if rank(state.severity) < rank(treatment.min_severity):
            because = f"its severity {state.severity} is below {treatment.min_severity}"
            yield Suppression(decision=AlertDecision.BELOW_SEVERITY, because=because)
        if (silence := silence_of(state, self._situation.silences, now)) is not None:
            note = f": {silence.comment}" if silence.comment else ""
            because = f"{silence.created_by} has silenced it until {clock(silence.ends_at)}{note}"
            yield Suppression(decision=AlertDecision.SILENCED, because=because, silence=silence.id)
        if cause := self._inhibitors.of(state):
            yield Suppression(decision=AlertDecision.INHIBITED, because=cause)
        if flaps(state, now, treatment.flapping) and not may_ask_why(state, treatment, now):
            count = len(recent_changes(state, now, treatment.flapping))
            until = state.changes[-1] + treatment.flapping.quiet
            because = f"it has changed {count} times lately, and starts nothing before it is quiet until {clock(until)}"
            yield Suppression(decision=AlertDecision.FLAPPING, because=because)
        yield from self._of_ours(state, now)
        yield from self._in_hand(incident, chain)
        yield from self._held(state)

    def _of_ours(self, state: AlertState, now: datetime) -> Iterator[Suppression]:
        window = self._situation.rules.self_inflicted
        for past in self._actions_behind(state.service) if self._acted else ():
            is_older = state.starts_at is not None and state.starts_at < past.at - _BEFORE_ACTION
            if past.at <= state.began and past.at <= now < past.at + window and not is_older:
                seconds = (state.began - past.at).total_seconds()
                because = f"it began {seconds:.0f} s after our {past.kind} of {past.service}, which may have caused it"
                yield Suppression(decision=AlertDecision.SELF_INFLICTED, because=because)

    def _actions_behind(self, service: str) -> Iterable[PastAction]:
        """Return what was done to a service, and to all that it depends on."""
        for key in (self._dependencies.key(service), *self._dependencies.needed_by((service,))):
            yield from self._acted.get(key, ())

    def _in_hand(self, incident: Incident | None, chain: OpenChain | None) -> Iterator[Suppression]:
        if chain is not None:
            name = "that is being started" if chain.root_session_id is None else f"of session {chain.root_session_id}"
            yield Suppression(decision=AlertDecision.JOINED, because=f"the chain {name} is on it", chain=chain)
        if incident is not None and incident.status is IncidentStatus.ACKNOWLEDGED:
            because = f"{incident.acked_by} is on it: incident {incident.number} is acknowledged"
            yield Suppression(decision=AlertDecision.JOINED, because=because)

    def _held(self, state: AlertState) -> Iterator[Suppression]:
        if self._situation.paused:
            yield Suppression(decision=AlertDecision.PAUSED, because=f"no session starts: {self._situation.paused}")
        key = self._dependencies.key(state.service)
        if key in self._cooling:
            at = self._cooling[key]
            until = "" if at is None else f" until {clock(at)}"
            because = f"every action on {state.service} is used up{until}"
            yield Suppression(decision=AlertDecision.COOLDOWN, because=because)
        if self._situation.spent:
            yield Suppression(decision=AlertDecision.BUDGET, because=f"no session starts: {self._situation.spent}")


def may_ask_why(state: AlertState, treatment: Treatment, now: datetime) -> bool:
    """Return whether a chain may find out why an alert flaps: once a day, where the operator wants it."""
    if not treatment.flapping.ask_why:
        return False
    return state.why_asked_at is None or not timedelta(0) <= now - state.why_asked_at < WHY_INTERVAL


@lru_cache(maxsize=256)  # thousands of alerts of a storm began, or wait, at the same moments
def clock(at: datetime) -> str:
    """Return a moment for a sentence."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
