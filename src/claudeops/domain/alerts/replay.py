"""Recorded bodies, decided about again by today's rules: how many chains they would start, and what becomes of each.

Nothing is written and nothing is started. A chain counts as running for a while; what holds back sessions otherwise
(pauses, budgets, silences, actions) is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from claudeops.domain.alerts.alert import AlertDecision, SenderBody, Unparsed
from claudeops.domain.alerts.decide import AlertDecider
from claudeops.domain.alerts.register import AlertChanges, Ruling, Start
from claudeops.domain.alerts.rules import Rules
from claudeops.domain.alerts.situation import AlertContext, OpenChain
from claudeops.domain.probes.dependencies import NO_DEPENDENCIES, Dependencies

STEP: Final = timedelta(seconds=5)
"""Between two looks at the clock."""

_MOST_LOOKS: Final = 1000  # between two bodies; a longer silence is crossed in larger steps


class Replayed(msgspec.Struct, kw_only=True):
    """What became of recorded bodies."""

    deliveries: int = 0
    unread: list[tuple[datetime, Unparsed]] = msgspec.field(default_factory=list)
    rulings: list[tuple[datetime, Ruling]] = msgspec.field(default_factory=list)
    starts: list[tuple[datetime, Start]] = msgspec.field(default_factory=list)

    @property
    def unparsed(self) -> int:
        """How many of them cannot be read."""
        return len(self.unread)

    def counts(self) -> dict[str, int]:
        """Return how many decisions of each kind there were, of those that there were."""
        found = dict.fromkeys((decision.value for decision in AlertDecision), 0)
        for _, ruling in self.rulings:
            found[ruling.decision] += 1
        found[AlertDecision.UNPARSED.value] += self.unparsed
        return {name: count for name, count in found.items() if count}


def replay(
    bodies: Sequence[tuple[datetime, SenderBody | Unparsed]],
    rules: Rules,
    *,
    runs_for: timedelta,
    dependencies: Dependencies = NO_DEPENDENCIES,
) -> Replayed:
    """Return what becomes of bodies, oldest first; ``runs_for``: how long a chain counts as running."""
    done = Replayed()
    decider = AlertDecider(AlertContext(rules=rules, dependencies=dependencies))
    running: list[tuple[datetime, OpenChain]] = []

    def keep(out: AlertChanges, now: datetime) -> None:
        done.rulings += [(now, ruling) for ruling in out.rulings]
        for start in out.starts:
            done.starts.append((now, start))
            chain = OpenChain(services=start.services, incident=start.incident, root_session_id=len(done.starts))
            running.append((now, chain))

    def face(now: datetime) -> None:
        chains = tuple(chain for at, chain in running if now < at + runs_for)
        starts = tuple(at for at, _ in done.starts)
        decider.set_context(AlertContext(rules=rules, dependencies=dependencies, chains=chains, starts=starts))

    def wait(since: datetime, until: datetime) -> None:
        step = max(STEP, (until - since) / _MOST_LOOKS)
        at = since + step
        while at < until and decider.groups():
            face(at)
            keep(decider.tick(at), at)
            at += step

    latest: datetime | None = None
    for at, body in bodies:
        now = at if latest is None else max(at, latest)
        if latest is not None:
            wait(latest, now)
        face(now)
        done.deliveries += 1
        if isinstance(body, Unparsed):
            done.unread.append((now, body))
        else:
            keep(decider.take(body, now), now)
        latest = now
    if latest is not None:
        wait(latest, latest + rules.storm.window + runs_for)
    return done
