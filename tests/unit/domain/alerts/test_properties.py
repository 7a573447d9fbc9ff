"""The desk against a model that looks everything up in plain lists, and one alert against what is true of it.

The model is told what happens and says what must be decided; it knows one incident a service and nothing of indexes,
groups or desks. 100 000 random steps.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from claudeops.domain.actions import PastAction
from claudeops.domain.alerts import incidents
from claudeops.domain.alerts.alert import (
    HANDLED,
    TEMPORARY,
    Alert,
    AlertDecision,
    AlertState,
    AlertStatus,
    IncidentStatus,
    Key,
    ReportedState,
    SenderBody,
    Silence,
    Witness,
    WitnessKind,
)
from claudeops.domain.alerts.decide import AlertDecider
from claudeops.domain.alerts.machine import LATE, is_upheld, step, upheld
from claudeops.domain.alerts.matchers import read_matchers
from claudeops.domain.alerts.register import AlertChanges, Ruling
from claudeops.domain.alerts.rules import AlertSource, FlapRules, Grouping, Rules, StormRules
from claudeops.domain.alerts.situation import AlertContext, OpenChain
from claudeops.domain.alerts.suppression import BELIEVED
from claudeops.domain.events import EventLevel
from claudeops.domain.probes.dependencies import connected
from claudeops.structs import replace
from support.alerts import NOON, SOURCE, alert, minutes
from support.doses import drawn

D = AlertDecision
RUNS, STEPS = 20, 5_000
NEEDS = {"shop": ("db",), "cart": ("shop", "db"), "db": (), "mail": ()}
SERVICES = tuple(NEEDS)
NEVER = timedelta(days=366)
WEIGHT = {EventLevel.INFO: 0, EventLevel.WARNING: 1, EventLevel.CRITICAL: 2}
HOUR, QUIET = timedelta(hours=1), timedelta(minutes=15)
RULES = Rules(
    sources=(
        AlertSource(
            name=SOURCE, grouping=Grouping(wait=timedelta(0), interval=timedelta(0), repeat=NEVER), stale_after=None
        ),
    ),
    storm=StormRules(sessions=100, window=timedelta(0)),
)


@dataclass
class Trouble:
    """A service's incident, as the model sees it."""

    is_open: bool = True
    acked: bool = False
    chain: bool = False
    over_at: datetime | None = None
    severity: EventLevel = EventLevel.INFO  # the highest


@dataclass
class Known:
    """One alert, as the model sees it."""

    fires: bool = False
    began: datetime = NOON
    severity: EventLevel = EventLevel.CRITICAL
    changes: list[datetime] = field(default_factory=list)
    flapped_at: list[datetime] = field(default_factory=list)  # changes at which it was flapping
    decided: AlertDecision | None = None
    trouble: Trouble | None = None  # that has heard of it
    heard: datetime = NOON


@dataclass
class Model:
    """What must be decided."""

    now: datetime = NOON
    paused: bool = False
    silenced: set[str] = field(default_factory=set)
    actions: list[tuple[str, datetime]] = field(default_factory=list)
    alerts: dict[tuple[str, str], Known] = field(default_factory=dict)
    troubles: dict[str, Trouble] = field(default_factory=dict)
    numbers: int = 0  # incidents that were opened
    starts: int = 0

    def fire(self, name: str, service: str, severity: EventLevel) -> AlertDecision:
        known = self.alerts.setdefault((name, service), Known())
        known.severity, known.heard = severity, self.now
        if known.fires and self.is_dealt_with(known):
            return D.DUPLICATE
        if not known.fires:
            self.change(known)
            known.fires, known.began, known.decided = True, self.now, None
        return self.judge(known, service)

    def resolve(self, name: str, service: str) -> AlertDecision:
        key = (name, service)
        if key not in self.alerts:
            self.alerts[key] = Known()
            return D.RESOLVED_FIRST
        known = self.alerts[key]
        if not known.fires:
            return D.DUPLICATE
        self.change(known)
        known.fires = False
        if known.decided in {D.STARTED, D.JOINED, D.GROUPED}:
            return D.JOINED
        return D.RESOLVED_FIRST

    def tick(self) -> list[AlertDecision]:
        made: list[AlertDecision] = []
        passing: dict[str, list[Known]] = {}
        for (_, service), known in sorted(self.alerts.items()):
            temporary = {D.SILENCED, D.INHIBITED, D.FLAPPING, D.PAUSED, D.SELF_INFLICTED}
            if not known.fires or known.decided not in temporary:
                continue
            found = self.objection(known, service)
            if found is D.JOINED:
                made.append(self.judge(known, service))
            elif found is None:
                passing.setdefault(service, []).append(known)
        for service, several in passing.items():
            made += [D.STARTED] + [D.GROUPED] * (len(several) - 1)
            self.start(service, *several)
            for known in several:
                known.decided, known.trouble = D.GROUPED, self.troubles[service]
        return made

    def judge(self, known: Known, service: str) -> AlertDecision:
        found = self.objection(known, service)
        if found is None:
            self.start(service, known)
        elif found in {D.JOINED, D.PAUSED}:
            self.hear(service, known)
        if found in {None, D.JOINED, D.PAUSED}:
            known.trouble = self.troubles[service]
        known.decided = found or D.STARTED
        return known.decided

    def objection(self, known: Known, service: str) -> AlertDecision | None:
        trouble = self.troubles.get(service, Trouble(is_open=False))
        affected = [at for acted, at in self.actions if acted == service or acted in self.ancestors(service)]
        window = timedelta(minutes=2)
        reasons = [
            (D.BELOW_SEVERITY, known.severity is EventLevel.INFO),
            (D.SILENCED, service in self.silenced),
            (D.INHIBITED, any(self.is_down(parent) for parent in self.ancestors(service))),
            (D.FLAPPING, any(self.now - at < QUIET for at in known.flapped_at if at == known.changes[-1])),
            (D.SELF_INFLICTED, any(at <= known.began and self.now < at + window for at in affected)),
            (D.JOINED, trouble.chain or (trouble.is_open and trouble.acked)),
            (D.PAUSED, self.paused),
        ]
        return next((decision for decision, holds in reasons if holds), None)

    def ancestors(self, service: str) -> set[str]:
        found: set[str] = set()
        for parent in NEEDS[service]:
            found |= {parent, *self.ancestors(parent)}
        return found

    def is_down(self, service: str) -> bool:
        return any(
            known.fires and known.severity is EventLevel.CRITICAL and self.is_believed(known)
            for (_, own), known in self.alerts.items()
            if own == service
        )

    def is_believed(self, known: Known) -> bool:
        trouble = known.trouble
        is_over = trouble is not None and trouble.over_at is not None and known.heard <= trouble.over_at
        return not is_over and self.now - known.heard <= BELIEVED

    def change(self, known: Known) -> None:
        was_flapping = bool(known.changes) and known.changes[-1] in known.flapped_at
        still = was_flapping and self.now - known.changes[-1] < QUIET
        known.changes.append(self.now)
        recent = [at for at in known.changes[-4:] if self.now - at < HOUR]
        if len(recent) >= 4 or still:
            known.flapped_at.append(self.now)

    def is_dealt_with(self, known: Known) -> bool:
        is_told = known.decided in {D.STARTED, D.JOINED, D.GROUPED}
        if not is_told or known.trouble is None or not known.trouble.is_open:
            return False
        return WEIGHT[known.severity] <= WEIGHT[known.trouble.severity]

    def hear(self, service: str, *heard: Known) -> Trouble:
        trouble = self.troubles.get(service)
        lately = trouble is not None and trouble.over_at is not None and self.now - trouble.over_at < HOUR
        if trouble is None or not (trouble.is_open or trouble.chain or lately):
            self.numbers += 1
            trouble = self.troubles[service] = Trouble()
        elif not trouble.is_open:
            trouble.is_open, trouble.acked, trouble.over_at = True, False, None
        trouble.severity = max(trouble.severity, *(known.severity for known in heard), key=lambda one: WEIGHT[one])
        return trouble

    def start(self, service: str, *told: Known) -> None:
        self.hear(service, *told).chain = True
        self.starts += 1


@dataclass
class Real:
    """The desk, fed with the same; now and then a new one takes over what is kept."""

    now: datetime = NOON
    paused: bool = False
    silenced: set[str] = field(default_factory=set)
    actions: list[PastAction] = field(default_factory=list)
    chains: dict[str, OpenChain] = field(default_factory=dict)
    kept: AlertChanges = field(default_factory=AlertChanges)
    met: set[AlertDecision] = field(default_factory=set)
    starts: int = 0
    desk: AlertDecider | None = None

    def situation(self) -> AlertContext:
        silences = tuple(SILENCES[name] for name in sorted(self.silenced))
        return AlertContext(
            rules=RULES,
            silences=silences,
            chains=tuple(self.chains.values()),
            ledger=tuple(self.actions[-5:]),
            paused="alice has paused it" if self.paused else "",
            dependencies=DEPENDENCIES,
        )

    def faced(self, *, anew: bool) -> AlertDecider:
        if self.desk is None or anew:
            known = self.kept.incidents.values()
            self.desk = AlertDecider(self.situation(), states=self.kept.states.values(), known=known)
        else:
            self.desk.set_context(self.situation())
        return self.desk

    def say(self, message: Alert, *, anew: bool) -> Ruling:
        (ruling,) = self.keep(
            self.faced(anew=anew).take(SenderBody(source=SOURCE, key="", alerts=(message,)), self.now)
        )
        return ruling

    def tick(self, *, anew: bool) -> list[AlertDecision]:
        return [ruling.decision for ruling in self.keep(self.faced(anew=anew).tick(self.now))]

    def keep(self, out: AlertChanges) -> list[Ruling]:
        self.kept.states |= out.states
        self.kept.incidents |= out.incidents
        self.starts += len(out.starts)
        self.met |= {ruling.decision for ruling in out.rulings}
        for start in out.starts:
            (service,) = start.services
            self.chains[service] = OpenChain(
                services=start.services, incident=start.incident, root_session_id=self.starts
            )
        return out.rulings

    def trouble(self, service: str) -> int | None:
        numbers = [each.number for each in self.kept.incidents.values() if service in each.services]
        return max(numbers, default=None)


DEPENDENCIES = connected(NEEDS)
SILENCES = {
    name: Silence(
        id=at,
        matchers=read_matchers([f"service={name}"]),
        starts_at=NOON - NEVER,
        ends_at=NOON + 100 * NEVER,
        created_by="alice",
    )
    for at, name in enumerate(SERVICES)
}
BUSY = (1, 2, 5, 10, 20)  # seconds between two steps
CALM = (1, 5, 20, 60, 125, 600, 1000, 4000, 9000)


def message(draw: random.Random, said: ReportedState) -> Alert:
    service = draw.choice(SERVICES)
    severity = draw.choice((EventLevel.CRITICAL, EventLevel.CRITICAL, EventLevel.WARNING, EventLevel.INFO))
    return alert(draw.choice(("Down", "Slow")), service, state=said, severity=severity)


def one_step(draw: random.Random, model: Model, real: Real, gaps: tuple[int, ...]) -> None:
    """Let one thing happen to both."""
    anew = draw.random() < 0.1
    what = draw.choices(("fire", "resolve", "tick", "pause", "silence", "act", "end", "look", "ack"), WEIGHTS)[0]
    passed = timedelta(seconds=draw.choice(gaps))
    model.now = real.now = model.now + passed
    service = draw.choice(SERVICES)
    match what:
        case "fire":
            said = message(draw, ReportedState.FIRING)
            expected = model.fire(said.name, said.service, said.severity)
            assert real.say(said, anew=anew).decision is expected
        case "resolve":
            said = message(draw, ReportedState.RESOLVED)
            assert real.say(said, anew=anew).decision is model.resolve(said.name, said.service)
        case "tick":
            assert sorted(real.tick(anew=anew)) == sorted(model.tick())
        case "pause":
            model.paused = real.paused = not model.paused
        case "silence":
            model.silenced ^= {service}
            real.silenced ^= {service}
        case "act":
            model.actions = [*model.actions, (service, model.now)][-5:]
            real.actions.append(PastAction(kind="restart", service=service, at=real.now))
        case "end":
            real.chains.pop(service, None)
            if service in model.troubles:
                model.troubles[service].chain = False
        case _:
            conclude(what, service, model, real)


def conclude(what: str, service: str, model: Model, real: Real) -> None:
    number = real.trouble(service)
    assert (number is None) is (service not in model.troubles)
    if number is None:
        return
    incident, trouble = real.kept.incidents[number], model.troubles[service]
    if what == "ack":
        real.kept.incidents[number] = incidents.acknowledged(incident, by="alice", at=real.now)
        trouble.acked = trouble.acked or trouble.is_open
    else:
        operator = Witness(kind=WitnessKind.OPERATOR, at=real.now)
        real.kept.incidents[number] = incidents.witnessed(incident, operator)
        if trouble.is_open:
            trouble.is_open, trouble.over_at = False, real.now
    real.desk = None


MODELLED = TEMPORARY - {D.COOLDOWN, D.BUDGET} | HANDLED | {D.DUPLICATE, D.RESOLVED_FIRST, D.BELOW_SEVERITY}
WEIGHTS = (30, 22, 20, 3, 4, 4, 12, 6, 3)


def agree(model: Model, real: Real) -> None:
    """Compare all that both keep."""
    assert real.starts == model.starts
    assert len(real.kept.incidents) == model.numbers
    for (name, service), known in model.alerts.items():
        state = real.kept.states[SOURCE, f"{name}@{service}"]
        assert state.fires is known.fires
        assert state.flips == len(known.changes)
        assert not state.is_waiting
    for service, trouble in model.troubles.items():
        number = real.trouble(service)
        assert number is not None
        incident = real.kept.incidents[number]
        assert incident.is_open is trouble.is_open
        assert (incident.status is IncidentStatus.ACKNOWLEDGED) is (trouble.is_open and trouble.acked)


@pytest.mark.parametrize("seed", drawn(range(RUNS), count=RUNS // 3))
def test_the_desk_decides_what_a_model_without_indexes_says(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    model, real = Model(), Real()
    for at in range(STEPS):
        one_step(draw, model, real, BUSY if at // 500 % 2 else CALM)
        if at % 50 == 0:
            agree(model, real)
    agree(model, real)
    assert real.starts > 20
    assert real.met >= MODELLED


# --- one alert, and what is true of it ---------------------------------------------------------------------


@dataclass(frozen=True)
class Post:
    """A message on its way."""

    arrives: datetime
    alert: Alert


def truth(draw: random.Random) -> tuple[list[Post], bool]:
    """Return what the nodes of a cluster send about one alert, shuffled by delays, and whether it fires in the end."""
    skew = minutes(draw.choice((-10, 0, 0, 10)))
    posts: list[Post] = []
    at, fires = NOON, False
    starts: datetime = NOON
    for _ in range(draw.randint(1, 12)):
        at += minutes(draw.choice((3, 5, 8, 30)))
        fires = not fires
        starts = at if fires else starts
        plain = alert(starts_at=starts + skew, state=ReportedState.FIRING if fires else ReportedState.RESOLVED)
        said = plain if fires else replace(plain, ends_at=at + skew)
        for _ in range(draw.randint(1, 4)):
            delay = timedelta(seconds=draw.choice((0, 1, 20, 60, 150)))
            jitter = timedelta(seconds=draw.choice((0, 0, 15, 45)))
            differing = replace(said, starts_at=(said.starts_at or at) + jitter)
            posts.append(Post(at + delay, differing))
        if fires:  # nodes repeat it
            posts += [Post(at + minutes(draw.uniform(0, 3)), said) for _ in range(draw.randint(0, 3))]
    return sorted(posts, key=lambda post: post.arrives), fires


@pytest.mark.parametrize("seed", range(10))
def test_whatever_the_order_of_arrival_an_alert_ends_as_it_truly_is(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - as above
    rules = FlapRules()
    for _ in range(300):
        posts, fires = truth(draw)
        kept: AlertState | None = None
        for post in posts:
            if kept is not None and is_upheld(kept, post.arrives):
                kept = upheld(kept, post.arrives, rules)
            before = kept
            kept = step(kept, post.alert, source="am", now=post.arrives, flapping=rules).state
            assert before is None or kept.count == before.count + 1
            assert kept.flips >= (0 if before is None else before.flips)
            assert len(kept.changes) <= rules.changes
        assert kept is not None
        end = posts[-1].arrives + LATE
        kept = upheld(kept, end, rules) if is_upheld(kept, end) else kept
        assert (kept.status is AlertStatus.FIRING) is fires, posts


def test_the_same_messages_in_any_number_of_bodies_start_as_many_chains() -> None:
    draw = random.Random(1)  # noqa: S311 - as above
    messages = [alert(f"A{n % 7}", f"s{n % 3}", starts_at=NOON) for n in range(60)]
    rules = Rules(sources=(AlertSource(name=SOURCE, grouping=Grouping()),))
    seen: set[tuple[Key, ...]] = set()
    for _ in range(30):
        draw.shuffle(messages)
        desk, left = AlertDecider(AlertContext(rules=rules)), list(messages)
        while left:
            some = draw.randint(1, 9)
            desk.take(SenderBody(source=SOURCE, key="", alerts=tuple(left[:some])), NOON)
            left = left[some:]
        starts = desk.tick(NOON + minutes(1)).starts
        seen.add(tuple(sorted(key for start in starts for key in start.alerts)))
        assert len(starts) == 3
    assert len(seen) == 1
