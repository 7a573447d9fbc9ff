"""Alerts for tests, and a world that keeps what the desk decides, as the store does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from claudeops.domain.alerts.alert import Alert, AlertDecision, AlertState, Incident, Key, ReportedState, SenderBody
from claudeops.domain.alerts.decide import AlertDecider
from claudeops.domain.alerts.register import AlertChanges, AlertResult, NewChain, ReceivedBody, Ruling, Start
from claudeops.domain.alerts.rules import AlertSource, Grouping, Rules, SenderKind
from claudeops.domain.alerts.situation import AlertContext, AlertFiles, OpenChain
from claudeops.domain.events import EventLevel
from claudeops.store.alerts.alerts import Alerts
from claudeops.structs import replace

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOURCE: Final = "am"
AT_ONCE: Final = Grouping(wait=timedelta(0))


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def alert(name: str = "Down", service: str = "shop", **changes: object) -> Alert:
    """Return an alert that fires, without any times."""
    plain = Alert(
        fingerprint=f"{name}@{service}",
        state=ReportedState.FIRING,
        name=name,
        service=service,
        severity=EventLevel.CRITICAL,
        labels={"alertname": name, "service": service},
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # a test names its fields


def over(name: str = "Down", service: str = "shop", **changes: object) -> Alert:
    """Return an alert that is resolved."""
    return alert(name, service, **{"state": ReportedState.RESOLVED, **changes})


def rules_of(grouping: Grouping = AT_ONCE, **changes: object) -> Rules:
    """Return rules with one source whose groups do not wait."""
    plain = Rules(sources=(AlertSource(name=SOURCE, kind=SenderKind.ALERTMANAGER, grouping=grouping),))
    return replace(plain, **changes)  # type: ignore[arg-type]  # as above


async def bring(
    alerts: Alerts, posted: Sequence[ReceivedBody], about: AlertFiles, new_chain: NewChain, *, now: datetime
) -> AlertResult:
    """Bring bodies to a store, and have all that waits decided about."""
    await alerts.receive(posted, now=now)
    whole = AlertResult()
    while (done := await alerts.decide(about, new_chain, now=now)) is not None:
        whole.rulings += done.rulings
        whole.started += done.started
        whole.opened += done.opened
        whole.resolved += done.resolved
        whole.pings |= done.pings
    return whole


@dataclass
class World:
    """What is kept between two questions; every question goes to a new desk."""

    rules: Rules = field(default_factory=rules_of)
    now: datetime = NOON
    case: dict[str, object] = field(default_factory=dict)  # the rest of the situation
    states: dict[Key, AlertState] = field(default_factory=dict)
    incidents: dict[int, Incident] = field(default_factory=dict)
    running: dict[int, OpenChain] = field(default_factory=dict)  # by root session
    begun: list[datetime] = field(default_factory=list)
    rulings: list[Ruling] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    pings: list[str] = field(default_factory=list)
    suppressed: dict[int, int] = field(default_factory=dict)

    def desk(self) -> AlertDecider:
        situation = AlertContext(
            rules=self.rules,
            chains=tuple(self.running.values()),
            starts=tuple(self.begun),
            **self.case,  # type: ignore[arg-type]
        )
        return AlertDecider(situation, states=self.states.values(), known=self.incidents.values())

    def say(self, *alerts: Alert, group_key: str = "", source: str = SOURCE) -> list[Ruling]:
        """Deliver alerts in one body."""
        delivery = SenderBody(source=source, key="k", alerts=alerts, group_key=group_key)
        return self._keep(self.desk().take(delivery, self.now))

    def told(self, *alerts: Alert, group_key: str = "") -> list[AlertDecision]:
        """Deliver alerts in one body, and return what was decided."""
        return [ruling.decision for ruling in self.say(*alerts, group_key=group_key)]

    def tick(self, after: timedelta = timedelta(0)) -> list[Ruling]:
        """Let time pass, and look at the clock."""
        self.now += after
        return self._keep(self.desk().tick(self.now))

    def later(self, after: timedelta) -> None:
        self.now += after

    def end_chains(self) -> None:
        self.running.clear()

    def state(self, name: str = "Down", service: str = "shop") -> AlertState:
        return self.states[SOURCE, f"{name}@{service}"]

    def _keep(self, out: AlertChanges) -> list[Ruling]:
        self.states |= out.states
        self.incidents |= out.incidents
        self.pings += out.pings
        self.starts += out.starts
        for silence, count in out.suppressed.items():
            self.suppressed[silence] = self.suppressed.get(silence, 0) + count
        for start in out.starts:
            root = 100 + len(self.begun)
            self.begun.append(self.now)
            self.running[root] = OpenChain(services=start.services, incident=start.incident, root_session_id=root)
            incident = self.incidents[start.incident]
            self.incidents[start.incident] = replace(incident, root_session_id=root)
        self.rulings += out.rulings
        return out.rulings


def decisions(rulings: Iterable[Ruling]) -> list[AlertDecision]:
    return [ruling.decision for ruling in rulings]


def by_key(states: Iterable[AlertState]) -> Mapping[Key, AlertState]:
    return {state.key: state for state in states}
