"""What keeps an alert from starting anything because of other alerts or of an operator: inhibition and silences.

Inhibition is looked up, not searched for: what fires is indexed by the values that must be equal, so ten thousand
alerts cost ten thousand look-ups.

What fires explains others only as long as it is believed: a message that it is over may be lost, and a sender may claim
what a probe of the daemon does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from claudeops.domain.alerts.alert import AlertState, Key, Silence, matchable
from claudeops.domain.alerts.matchers import all_hold
from claudeops.domain.alerts.rules import InhibitRule, rank
from claudeops.domain.events import EventLevel
from claudeops.domain.probes.dependencies import Dependencies
from claudeops.text import one_line

BELIEVED: Final = timedelta(hours=24)
"""For which an alert explains others without coming again, at least."""


_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class Inhibitors:
    """What fires, and which other alerts it explains."""

    def __init__(
        self,
        rules: Sequence[InhibitRule],
        *,
        dependencies: Dependencies,
        broken: Iterable[str] = (),
        follow_dependencies: bool = True,
        believed: Callable[[Key, datetime], AlertState | None],
    ) -> None:
        """Begin with nothing that fires; ``believed`` returns an alert as it is now, if it may explain others."""
        self._rules = rules
        self._believed = believed
        self._now: datetime = _NEVER  # of the round for which the answers below hold
        self._causes: dict[tuple[int, tuple[str, ...]], AlertState | None] = {}  # by rule and values
        self._up: Mapping[str, datetime] = {}
        self._firing: list[dict[tuple[str, ...], dict[Key, AlertState]]] = [{} for _ in rules]
        self._dependencies = dependencies
        self._probed = tuple(broken)  # services that are down by the daemon's probes
        self._critical: dict[str, dict[Key, AlertState]] = {}  # by the service's key
        self._follow = follow_dependencies
        self._explained: Mapping[str, str] | None = None  # service's key → service that explains it; None: not known

    def note(self, before: AlertState | None, after: AlertState) -> None:
        """Take note of how an alert stands now."""
        if before is not None and _is_alike(before, after):
            return
        self._causes = {}
        if before is not None and before.fires:
            self._forget(before)
        if after.fires:
            self._remember(after)

    def begin(self, now: datetime, up: Mapping[str, datetime]) -> None:
        """Begin a round; ``up``: services that all of their probes see up, by key, and since when these looks began."""
        self._now, self._up = now, up
        self._causes, self._explained = {}, None

    def of(self, state: AlertState) -> str:
        """Return a clause that says what explains an alert; empty: nothing does."""
        labels = matchable(state, state.source) if self._rules else {}
        for at, (rule, firing) in enumerate(zip(self._rules, self._firing, strict=True)):
            if not firing or not all_hold(rule.target, labels):
                continue
            other = self._by_rule(at, _values(rule, labels), is_both=all_hold(rule.source, labels))
            if other is not None:
                return f"the alert {other.name} of {other.service} fires, which explains it by a rule"
        return self._by_dependency(state)

    def _by_rule(self, at: int, values: tuple[str, ...], *, is_both: bool) -> AlertState | None:
        rule, known = self._rules[at], self._firing[at].get(values, {})
        if not is_both:
            if (at, values) not in self._causes:
                self._causes[at, values] = next((each for key, each in known.items() if self._is_believed(key)), None)
            return self._causes[at, values]
        for key, other in known.items():
            # Two alerts that are both sources and targets do not explain each other, so none explains itself.
            if not all_hold(rule.target, matchable(other, other.source)) and self._is_believed(key):
                return other
        return None

    def _by_dependency(self, state: AlertState) -> str:
        if not self._follow or not self._dependencies.edges:
            return ""
        if self._explained is None:
            alerting = (
                next(iter(states.values())).service
                for service, states in self._critical.items()
                if any(self._is_outage(key, service) for key in states)
            )
            self._explained = self._dependencies.explanations((*self._probed, *alerting))
        cause = self._explained.get(self._dependencies.key(state.service), "")
        return f"{cause} is down, and {state.service} depends on it" if cause else ""

    def _is_believed(self, key: Key) -> bool:
        return self._believed(key, self._now) is not None

    def _is_outage(self, key: Key, service: str) -> bool:
        """Return whether an alert is believed, and no look that began after it has seen its service up."""
        state, seen_up = self._believed(key, self._now), self._up.get(service)
        return state is not None and (seen_up is None or seen_up <= state.began)

    def _remember(self, state: AlertState) -> None:
        labels = matchable(state, state.source) if self._rules else {}
        for rule, firing in zip(self._rules, self._firing, strict=True):
            if all_hold(rule.source, labels):
                firing.setdefault(_values(rule, labels), {})[state.key] = state
        if means_outage(state):
            service = self._dependencies.key(state.service)
            if service not in self._critical:
                self._explained = None
            self._critical.setdefault(service, {})[state.key] = state

    def _forget(self, state: AlertState) -> None:
        labels = matchable(state, state.source) if self._rules else {}
        for rule, firing in zip(self._rules, self._firing, strict=True):
            firing.get(_values(rule, labels), {}).pop(state.key, None)
        service = self._dependencies.key(state.service)
        if self._critical.get(service, {}).pop(state.key, None) is not None and not self._critical[service]:
            del self._critical[service]
            self._explained = None


def _is_alike(before: AlertState, after: AlertState) -> bool:
    """Return whether two states of an alert explain the same; most changes are of another kind."""
    if before.fires is not after.fires:
        return False
    known = (before.service, before.severity, before.name, before.labels)
    return not after.fires or known == (after.service, after.severity, after.name, after.labels)


def means_outage(state: AlertState) -> bool:
    """Return whether an alert says that its service is down, so that it explains what depends on it."""
    return state.fires and rank(state.severity) >= rank(EventLevel.CRITICAL)


def _values(rule: InhibitRule, labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in rule.equal)


# --- silences ---------------------------------------------------------------------------------------------


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a silence would do."""

    now: tuple[Key, ...]  # alerts that fire and would be silenced
    before: tuple[Key, ...]  # alerts that do not fire now, and came within the days looked back on


def silence_of(state: AlertState, silences: Iterable[Silence], now: datetime) -> Silence | None:
    """Return the silence that covers an alert; of several the one that ends last."""
    standing = tuple(silences)
    if not standing:
        return None
    labels = matchable(state, state.source)
    covering = [silence for silence in standing if silence.covers(labels, now)]
    return max(covering, key=lambda silence: silence.ends_at, default=None)


def preview(silence: Silence, states: Iterable[AlertState], *, since: datetime) -> Preview:
    """Return what a silence would cover of the alerts that are kept."""
    covered = list(_covered(silence, states))
    return Preview(
        now=tuple(state.key for state in covered if state.fires),
        before=tuple(state.key for state in covered if not state.fires and state.last_seen >= since),
    )


def _covered(silence: Silence, states: Iterable[AlertState]) -> Iterator[AlertState]:
    return (state for state in states if all_hold(silence.matchers, matchable(state, state.source)))


def silenced_by(silence: Silence) -> str:
    """Return what a person has done, as one sentence."""
    matchers = ", ".join(map(str, silence.matchers))
    why = f": {one_line(silence.comment)}" if silence.comment else ""
    until = f"{silence.ends_at:%Y-%m-%d %H:%M} UTC"
    return f"{silence.created_by} has silenced {matchers} until {until} (silence {silence.id}){why}"
