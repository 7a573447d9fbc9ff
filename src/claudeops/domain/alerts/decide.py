"""The decision about every alert, and the chains and incidents that follow.

An `AlertDecider` knows what is kept and what is the case. It takes deliveries, and looks at the clock when `tick` is
called: what waits in a group, what a silence held back, and what has not come again. Each answer is an `AlertChanges`:
rows to be written in one transaction. A decider whose changes could not be written is thrown away.

- All alerts of a delivery are taken note of before any is decided, so that a parent's outage explains its children
  whatever their order.
- Alerts of one group start one chain (`claudeops.domain.alerts.groups`). It waits for others, and for its own end: what
  is over by then starts nothing. A critical alert that its sender has grouped does not wait, unless its service depends
  on others: their alerts may be a moment behind.
- Before a group's chain starts, all suppressions are raised once more.
- When alerts have started nearly as many chains as `StormRules` allows, all that is left gets one.
- What a passing reason held back is decided anew when the reason is gone, for not every sender repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from claudeops.domain.alerts import incidents, machine, subject
from claudeops.domain.alerts.alert import (
    HANDLED,
    PROBES,
    STORM,
    TEMPORARY,
    Alert,
    AlertDecision,
    AlertState,
    AlertStatus,
    Incident,
    IncidentStatus,
    Key,
    SenderBody,
    Witness,
    WitnessKind,
    matchable,
)
from claudeops.domain.alerts.groups import Bundle, Room, bundles, group_key, weight
from claudeops.domain.alerts.machine import AlertStep, AlertTurn
from claudeops.domain.alerts.register import AlertChanges, AlertGroup, AlertIndex, Start
from claudeops.domain.alerts.rules import Grouping, Treatment, rank
from claudeops.domain.alerts.situation import AlertContext, OpenChain, Suppression, Suppressions, clock
from claudeops.domain.alerts.suppression import BELIEVED, Inhibitors
from claudeops.domain.events import EventLevel
from claudeops.structs import replace
from claudeops.text import unique

SETTLING: Final = timedelta(seconds=5)
"""For which an alert waits at least that its sender has grouped, and whose service depends on others."""

STORM_WAIT: Final = timedelta(seconds=30)
"""For which what comes at once is collected."""

LOOKS: Final = 1000
"""Alerts that are looked at again in one go. Of more than these each has its turn: so none waits for ten thousand."""

RELEASED: Final = 500
"""Alerts of one group about which a chain is started, or that join it, in one go. A storm may leave fifty thousand."""

_OPENS_INCIDENT: Final = frozenset(
    {AlertDecision.JOINED, AlertDecision.PAUSED, AlertDecision.COOLDOWN, AlertDecision.BUDGET}
)
_LATE: Final = {
    AlertStatus.FIRING: "it is older than what was heard before, and the alert still fires",
    AlertStatus.RESOLVED: "it had been resolved before",
    AlertStatus.STALE: "it is older than what was heard before",
}
_ALREADY: Final = {
    AlertDecision.STARTED: "a chain was started for it",
    AlertDecision.JOINED: "somebody is on it",
    AlertDecision.GROUPED: "its group has heard of it",
}


class _Received(msgspec.Struct, frozen=True):
    """One alert of a delivery, taken note of."""

    step: AlertStep
    treatment: Treatment
    waited: bool  # for its group's chain, when this came
    is_worse: bool  # than it was before


class AlertDecider:
    """Decides about alerts in the order in which they are brought."""

    def __init__(
        self,
        situation: AlertContext,
        *,
        states: Iterable[AlertState] = (),
        known: Iterable[Incident] = (),
        next_number: int = 1,
    ) -> None:
        """Take over what is kept: alerts that fire, are contested or delivered, incidents open or lately resolved."""
        self._index = AlertIndex(dependencies=situation.dependencies, known=known, next_number=next_number)
        self._case, self._dependencies = situation, situation.dependencies
        self._inhibitors = self._all_inhibitors(situation)
        self._looked = 0  # alerts up to which it was looked again
        for state in states:
            self._put(state)
        self.set_context(situation)

    def set_context(self, situation: AlertContext) -> None:
        """Take over what is the case now. With other dependencies a new decider is needed."""
        before, self._case = self._case, situation
        self._rules = situation.rules
        self._plain: dict[str, Treatment] = {}  # by source
        if (before.rules, before.broken) != (situation.rules, situation.broken):
            self._inhibitors = self._all_inhibitors(situation)
            for state in self._index.states.values():
                self._inhibitors.note(None, state)
        self._suppressions = Suppressions(situation, self._inhibitors)
        self._room = Room(situation.rules.storm, situation.starts)
        self._index.set_chains(situation.chains)
        self._index.begin()

    def _all_inhibitors(self, situation: AlertContext) -> Inhibitors:
        return Inhibitors(
            situation.rules.inhibit,
            dependencies=situation.dependencies,
            broken=situation.broken,
            follow_dependencies=situation.rules.follow_dependencies,
            believed=self._believed,
        )

    def _believed(self, key: Key, now: datetime) -> AlertState | None:
        """Return an alert if it may explain others: it came lately, and since its incident was called over."""
        state = self._index.states[key]
        incident = self._index.incidents.get(state.incident or 0)
        over_at = now - self._rules.reopen_within if incident is None else incident.resolved_at
        if state.incident is not None and over_at is not None and state.last_seen <= over_at:
            return None
        lately = max(self._rules.source(state.source).stale_after or BELIEVED, BELIEVED)
        return state if state.source == PROBES or now - state.last_seen <= lately else None

    def load(self, states: Iterable[AlertState] = (), known: Iterable[Incident] = (), *, next_number: int = 1) -> None:
        """Take over what is kept of further alerts, and incidents as others have left them."""
        self._index.expect(next_number)
        for state in states:
            self._put(state)
        for incident in known:
            self._index.note(incident)
        self._index.begin()

    # --- its answers --------------------------------------------------------------------------------------

    def take(self, delivery: SenderBody, now: datetime) -> AlertChanges:
        """Return what follows from a delivery: a ruling for each of its alerts, and for each group that starts."""
        out = self._begin(now)
        received = [self._receive(alert, delivery, now) for alert in delivery.alerts]
        for each in received:
            self._decide(each, now)
        self._release(now)
        return out

    def tick(self, now: datetime) -> AlertChanges:
        """Return what follows from the time that has passed."""
        out = self._begin(now)
        for state in self._due_alerts():
            self._look_again(state, now)
        self._look_at_repeats(now)
        self._release(now, at_tick=True)
        return out

    def groups(self) -> tuple[AlertGroup, ...]:
        """Return the groups that wait, the next one first."""
        return self._index.groups()

    def state(self, key: Key) -> AlertState | None:
        """Return what is kept of an alert."""
        return self._index.states.get(key)

    def incident(self, number: int) -> Incident | None:
        """Return an incident."""
        return self._index.incidents.get(number)

    def incidents(self) -> dict[int, Incident]:
        """Return the incidents that are known, by number."""
        return dict(self._index.incidents)

    def of_probes(self) -> tuple[AlertState, ...]:
        """Return what is kept of the alerts of the daemon's own probes."""
        return tuple(self._index.of_probes.values())

    # --- taking note --------------------------------------------------------------------------------------

    def _begin(self, now: datetime) -> AlertChanges:
        self._inhibitors.begin(now, self._case.up)
        return self._index.begin()

    def _receive(self, alert: Alert, delivery: SenderBody, now: datetime) -> _Received:
        if delivery.source != PROBES:
            own = self._rules.source(delivery.source).service_label
            alert = subject.settled(alert, own, self._dependencies.directory)
        treatment = self._treated(alert, delivery.source)
        kept = self._index.states.get((delivery.source, alert.fingerprint))
        step = machine.step(kept, alert, source=delivery.source, now=now, flapping=treatment.flapping)
        if step.state.sender_group != delivery.group_key:
            step = replace(step, state=replace(step.state, sender_group=delivery.group_key))
        self._put(step.state)
        is_worse = kept is not None and rank(step.state.severity) > rank(kept.severity)
        return _Received(step, treatment, kept is not None and kept.is_waiting, is_worse)

    def _put(self, state: AlertState) -> None:
        self._inhibitors.note(self._index.put(state), state)

    def _decide(self, received: _Received, now: datetime) -> None:
        state = self._index.states[received.step.state.key]
        beat = self._rules.heartbeat(matchable(state, state.source)) if self._rules.heartbeats else None
        turn = received.step.turn
        if beat is not None:
            self._feed(state, beat.name)
        elif turn is AlertTurn.LATE:
            self._index.rule(state.key, AlertDecision.DUPLICATE, _LATE[state.status], incident=state.incident)
        elif turn is AlertTurn.ENDS_UNSEEN:
            self._settle(state, AlertDecision.RESOLVED_FIRST, "it is resolved, and nobody had said that it fires")
        elif turn is AlertTurn.ENDS:
            self._end(state, now, waited=received.waited)
        elif not state.fires:
            self._index.rule(
                state.key, AlertDecision.RESOLVED_FIRST, "the same body says that it is over", incident=state.incident
            )
        elif state.is_waiting and received.waited and received.is_worse:  # it may wait no longer
            self._judge(state, received.treatment, now)
        elif turn is AlertTurn.REPEATS and self._is_dealt_with(state):
            self._still(state, now)
        elif state.is_waiting:  # twice in one delivery
            self._index.rule(state.key, AlertDecision.DUPLICATE, "it was said twice", incident=state.incident)
        else:
            self._judge(state, received.treatment, now)

    def _feed(self, state: AlertState, name: str) -> None:
        if state.fires:
            self._index.out.pings.append(name)
        because = f"it is the sign of life of the heartbeat {name}"
        self._settle(state, AlertDecision.WATCHDOG, because if state.fires else f"{because}, which it ends")

    def _is_dealt_with(self, state: AlertState) -> bool:
        """Return whether a firing alert waits for its chain, or its incident is open and has been as severe before."""
        incident = self._index.incidents.get(state.incident or 0)
        if state.is_waiting or incident is None or state.decision not in HANDLED:
            return state.is_waiting
        return incident.is_open and rank(state.severity) <= rank(incident.severity)

    def _still(self, state: AlertState, now: datetime) -> None:
        """Note that an alert fires on: what was seen before proves nothing about the end of its incident."""
        incident = self._index.incidents.get(state.incident or 0)
        if incident is not None and incident.is_open and not state.is_waiting:
            self._index.note(replace(incident, fired_at=max(incident.fired_at, now)))
        already = _ALREADY.get(state.decision or AlertDecision.GROUPED, "it is known")
        because = f"it fires since {clock(state.began)}, and {already}"
        self._index.rule(state.key, AlertDecision.DUPLICATE, because, incident=state.incident)

    # --- deciding -----------------------------------------------------------------------------------------

    def _judge(self, state: AlertState, treatment: Treatment, now: datetime) -> None:
        """Decide about an alert that fires and is not dealt with."""
        state = replace(state, group_key=group_key(state, treatment.grouping), due_at=None)
        suppression = self._suppression(state, treatment, now)
        if suppression is not None:
            self._suppress(state, suppression, now)
            return
        due_at = self._due(state, treatment.grouping, now)
        why_asked_at = now if machine.flaps(state, now, treatment.flapping) else state.why_asked_at
        self._put(replace(state, due_at=due_at, decision=AlertDecision.GROUPED, why_asked_at=why_asked_at))
        because = f"it waits until {clock(due_at)} for others of its group"
        self._index.rule(state.key, AlertDecision.GROUPED, because, incident=state.incident)

    def _suppression(self, state: AlertState, treatment: Treatment, now: datetime) -> Suppression | None:
        incident = self._incident_of(state, now)
        is_open = incident is not None and incident.is_open
        chain = self._index.chain_of(state, incident)
        return self._suppressions.of(state, treatment, now, incident=incident if is_open else None, chain=chain)

    def _incident_of(self, state: AlertState, now: datetime) -> Incident | None:
        return self._index.incident_of(state, now, self._rules.reopen_within)

    def _suppress(self, state: AlertState, suppression: Suppression, now: datetime) -> None:
        number, root = None, None
        if suppression.decision in _OPENS_INCIDENT:
            number = self._incident_with((state,), now, chain=suppression.chain, group_key=state.group_key).number
        if suppression.chain is not None:
            root = suppression.chain.root_session_id
        if suppression.silence is not None and state.decision is not AlertDecision.SILENCED:
            counts = self._index.out.suppressed
            counts[suppression.silence] = counts.get(suppression.silence, 0) + 1
        self._put(
            replace(
                state, decision=suppression.decision, due_at=None, incident=state.incident if number is None else number
            )
        )
        self._index.rule(state.key, suppression.decision, suppression.because, incident=number, root_session_id=root)

    def _incident_with(
        self, states: Sequence[AlertState], now: datetime, *, group_key: str, chain: OpenChain | None = None
    ) -> Incident:
        number = chain.incident if chain is not None else None
        incident = self._index.incidents.get(number) if number is not None else None
        for state in states:
            incident = incident or self._incident_of(state, now)
        return self._index.incident_with(states, now, incident, group_key=group_key)

    def _end(self, state: AlertState, now: datetime, *, waited: bool) -> None:
        """Decide about an alert that has been resolved."""
        incident = self._index.incidents.get(state.incident or 0)
        if incident is not None and incident.is_open and not self._index.firing(incident.number):
            incident = incidents.witnessed(incident, Witness(kind=WitnessKind.SOURCE, at=now, name=state.source))
            self._index.note(incident)
        if incident is None or waited or state.decision not in HANDLED:
            before = f"it was {state.decision}" if state.decision in TEMPORARY else "no session was started"
            self._settle(state, AlertDecision.RESOLVED_FIRST, f"it is resolved, and {before}")
            return
        chain = self._index.chain_of(state, incident)
        because = f"its source says that it is over; incident {incident.number} is {incident.status}"
        root = chain.root_session_id if chain is not None else None
        self._index.rule(state.key, AlertDecision.JOINED, because, incident=incident.number, root_session_id=root)

    def _settle(self, state: AlertState, decision: AlertDecision, because: str) -> None:
        self._put(replace(state, decision=decision, due_at=None))
        self._index.rule(state.key, decision, because, incident=state.incident)

    # --- groups -------------------------------------------------------------------------------------------

    def _due(self, state: AlertState, grouping: Grouping, now: datetime) -> datetime:
        """Return when the chain of an alert's group starts; whoever may wait least decides for all of it."""
        wait = grouping.wait
        if state.sender_group and not grouping.by:
            wait = timedelta(0) if state.severity is EventLevel.CRITICAL else wait
            wait = max(wait, SETTLING) if self._dependencies.needed_by((state.service,)) else wait
        due_at = now + wait
        incident = self._incident_of(state, now)
        if incident is not None and incident.started_at is not None and incident.started_at <= now:
            due_at = max(due_at, incident.started_at + grouping.interval)
        waiting = self._index.due_at(state.group_key)
        if waiting is not None and waiting <= due_at:
            return waiting
        if waiting is not None:
            self._index.hasten(state.group_key, due_at)
        return due_at

    def _release(self, now: datetime, *, at_tick: bool = False) -> None:
        """Start the chains of the groups whose time has come.

        What is left of a group joins its chain the next time; of a storm only at a tick, not with every body.
        """
        due = [group for group in self._index.groups(until=now) if group.key != STORM or at_tick]
        if not due:
            return
        room = self._room.left(now) - self._room.reserved
        for bundle in bundles(due, self._index.states.__getitem__, room=room, begun_at=self._begun_at):
            ready = [state for key in bundle.alerts[:RELEASED] if (state := self._still_wanted(key, now)) is not None]
            if bundle.is_whole:
                self._release_whole(bundle, ready, now)
            elif ready:
                self._start_or_merge(bundle.key, ready, now)

    def _release_whole(self, bundle: Bundle, ready: Sequence[AlertState], now: datetime) -> None:
        """Start the one chain about all that a sender has grouped, or join it; what has an incident stays its own."""
        chain = self._index.chain_of_group(bundle.key) if bundle.has_chain else None
        new = []
        for state in ready:
            if chain is not None:
                because = f"it came with all that the chain of incident {chain.incident} is on"
                self._suppress(state, Suppression(decision=AlertDecision.JOINED, because=because, chain=chain), now)
            elif self._incident_of(state, now) is None:
                new.append(state)
            else:
                self._start_or_merge(state.group_key, [state], now)
        if new:
            self._start_or_merge(bundle.key, new, now)

    def _begun_at(self, group: str) -> datetime | None:
        chain = self._index.chain_of_group(group)
        incident = self._index.incidents.get(chain.incident or 0) if chain is not None else None
        return None if incident is None else incident.started_at

    def _still_wanted(self, key: Key, now: datetime) -> AlertState | None:
        """Return an alert that still waits for a chain; what speaks against it now is ruled."""
        state = self._index.states[key]
        without_question = (
            replace(state, why_asked_at=None) if state.why_asked_at is not None else state
        )  # it waits for just that
        suppression = self._suppression(without_question, self._treatment(state), now)
        if suppression is not None:
            self._suppress(state, suppression, now)
            return None
        return state

    def _start_or_merge(self, group: str, ready: Sequence[AlertState], now: datetime) -> None:
        left = self._room.left(now)
        chain = self._index.chain_of_group(STORM)
        if left > (0 if group == STORM else self._room.reserved):
            self._start(group, ready, now)
        elif chain is not None:
            because = f"too much comes at once, and the chain of incident {chain.incident} is on all of it"
            for state in ready:
                self._suppress(state, Suppression(decision=AlertDecision.JOINED, because=because, chain=chain), now)
        elif left > 0:
            self._postpone(ready, self._index.due_at(STORM) or now + STORM_WAIT)
        else:
            self._postpone(ready, max(now + STORM_WAIT, self._room.free_at()))

    def _postpone(self, ready: Sequence[AlertState], due_at: datetime) -> None:
        """Put alerts into the group of all that comes at once."""
        because = f"too much comes at once: it waits until {clock(due_at)} for one chain about all of it"
        for state in ready:
            self._put(replace(state, group_key=STORM, due_at=due_at))
            self._index.rule(state.key, AlertDecision.GROUPED, because, incident=state.incident, only_revise=True)

    def _start(self, group: str, ready: Sequence[AlertState], now: datetime) -> None:
        ordered = sorted(ready, key=weight)
        tier = self._treatment(ordered[0]).tier
        incident = incidents.started(self._incident_with(ordered, now, group_key=group), now)
        self._index.note(incident)
        services = unique(state.service for state in ordered)
        self._room.take(now)
        self._index.run(OpenChain(services=services, incident=incident.number))
        self._index.out.starts.append(
            Start(
                incident=incident.number,
                group_key=group,
                tier=tier,
                severity=max((state.severity for state in ordered), key=rank),
                services=services,
                alerts=tuple(state.key for state in ordered),
                asks_why=any(machine.flaps(state, now, self._treatment(state).flapping) for state in ordered),
            )
        )
        with_it = "" if len(ordered) == 1 else f" about {len(ordered)} alerts"
        self._settle_with(ordered[0], AlertDecision.STARTED, f"a chain{with_it} starts at tier {tier}", incident)
        for state in ordered[1:]:
            self._settle_with(state, AlertDecision.GROUPED, "it is told in the chain of its group", incident)

    def _settle_with(self, state: AlertState, decision: AlertDecision, because: str, incident: Incident) -> None:
        self._put(replace(state, decision=decision, due_at=None, incident=incident.number))
        sentence = f"{because}: incident {incident.number}"
        revises = decision is not AlertDecision.STARTED
        self._index.rule(state.key, decision, sentence, incident=incident.number, only_revise=revises)

    # --- time ---------------------------------------------------------------------------------------------

    def _due_alerts(self) -> Sequence[AlertState]:
        states = list(self._index.states.values())
        if len(states) <= LOOKS:
            return states
        first = self._looked % len(states)
        self._looked = first + LOOKS
        chosen = states[first : first + LOOKS]
        return chosen + states[: LOOKS - len(chosen)]

    def _look_again(self, state: AlertState, now: datetime) -> None:
        """Decide anew about an alert for which time alone has changed something."""
        if machine.is_upheld(state, now):
            treatment = self._treatment(state)
            state = machine.upheld(state, now, treatment.flapping)
            self._put(state)
            self._judge(state, treatment, now)
        elif state.fires and machine.is_stale(state, now, self._rules.source(state.source).stale_after):
            minutes = (now - state.last_seen).total_seconds() / 60
            because = f"its source has not repeated it for {minutes:.0f} minutes"
            self._settle(machine.gone_stale(state, now), AlertDecision.STALE, because)
        elif state.fires and state.decision in TEMPORARY:
            treatment = self._treatment(state)
            suppression = self._suppression(state, treatment, now)
            if suppression is None or suppression.decision is AlertDecision.JOINED:
                self._judge(state, treatment, now)

    def _look_at_repeats(self, now: datetime) -> None:
        """Judge once more what still fires long after its chain has ended."""
        soonest = min(grouping.repeat for grouping in (Grouping(), *(each.grouping for each in self._rules.sources)))
        for incident in list(self._index.incidents.values()):
            is_left = incident.status is IncidentStatus.OPEN
            if not is_left or self._index.chain_of_incident(incident.number) is not None:
                continue
            since = incident.started_at or incident.opened_at
            if now - since < soonest:  # thousands of alerts may be of one incident
                continue
            for key in self._index.firing(incident.number):
                state = self._index.states[key]
                treatment = self._treatment(state)
                if state.decision in HANDLED and not state.is_waiting and now - since >= treatment.grouping.repeat:
                    self._judge(state, treatment, now)

    def _treatment(self, state: AlertState) -> Treatment:
        return self._treated(state, state.source)

    def _treated(self, alert: Alert | AlertState, source: str) -> Treatment:
        """Return how an alert is treated; where there are no rules, all of a source are treated alike."""
        if self._rules.rules:
            return self._rules.treatment(matchable(alert, source), source)
        if source not in self._plain:
            self._plain[source] = self._rules.treatment({}, source)
        return self._plain[source]
