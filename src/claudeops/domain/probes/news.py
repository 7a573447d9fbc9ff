"""When changes of probes become a chain: the news of a settling time, told once.

What there is to tell is read off the standings each time, so nothing is lost or told twice when the daemon ends in
between: a failure for which a chain was started carries its fingerprint (`Standing.incident`), in the same transaction
that queues the chain, until the probe is up again or worse than before.

- A failure is told when for a settling time no other has come, and at the latest after the longest wait.
- What it depends on is looked at first: a database that fails with its shop may be found a moment later. Then it
  stands for the shop.
- What recovers before it is told starts nothing; `note_of` says so.
- A service of which a failure is being dealt with starts no second chain; unless it was only degraded and is down now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from claudeops.domain.chains.escalation import fingerprint
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.probes.dependencies import Dependencies, broken_services, is_broken
from claudeops.domain.probes.probe import Probe, ProbeState, Standing
from claudeops.domain.probes.record import FAILING, Telling, fingerprint_of
from claudeops.domain.probes.state_machine import ProbeChange, ProbeChangeKind, ProbeStep, wavers
from claudeops.text import casefold_key, unique

_LEVELS: Final = {ProbeState.DOWN: EventLevel.CRITICAL}
_LOOK_AGAIN: Final = timedelta(seconds=1)  # at dependencies, until they have answered


class SettlingRules(msgspec.Struct, frozen=True, kw_only=True):
    """How long changes are collected."""

    settling: timedelta = timedelta(seconds=3)  # without another change
    longest: timedelta = timedelta(seconds=20)  # after the first change, whatever else comes


SETTLING: Final = SettlingRules()


class ChainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A chain to be started."""

    fingerprint: str  # of its services: the incident's name, and `Standing.incident` of the probes
    services: tuple[str, ...]  # that fail by themselves
    probes: tuple[str, ...]  # whose failures are new


class ProbeNews(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done now."""

    chain: ChainRequest | None = None
    joined: Mapping[str, str] = msgspec.field(default_factory=dict)  # probe → incident that its failure belongs to
    look_now: tuple[str, ...] = ()  # probes of dependencies, whose answer is waited for
    wait_seconds: float | None = None  # after which to ask again; None: at the next change


class _Failure(msgspec.Struct, frozen=True):
    probe: Probe
    standing: Standing


def collect(
    probes: Sequence[Probe],
    standings: Mapping[str, Standing],
    *,
    now: datetime,
    dependencies: Dependencies,
    rules: SettlingRules = SETTLING,
) -> ProbeNews:
    """Return the chain that the standings (by probe) ask for, or how long to wait for the rest of the story."""
    failing = [
        _Failure(probe, standing)
        for probe in probes
        if (standing := standings.get(probe.name)) is not None and standing.state in FAILING
    ]
    if not failing:
        return ProbeNews()
    explained = dependencies.explanations(broken_services(probes, standings))
    causes = {
        each.probe.name: explained.get(dependencies.key(each.probe.service), "") or each.standing.explained_by
        for each in failing
    }
    unjoined = [
        each
        for each in failing
        if each.probe.starts_chain and not each.standing.incident and not causes[each.probe.name]
    ]
    joined = _joined(unjoined, failing, dependencies)
    fresh = [each for each in unjoined if each.probe.name not in joined]
    if not fresh:
        return ProbeNews(joined=joined)
    unsettled = _unsettled(fresh, probes, standings, dependencies)
    wait = _wait(fresh, now=now, rules=rules, looks_again=bool(unsettled))
    if wait > 0:
        return ProbeNews(joined=joined, look_now=unsettled, wait_seconds=wait)
    return ProbeNews(joined=joined, chain=_request(fresh))


def note_of(change: ProbeChange) -> str | None:
    """Return the sentence for a failure that was over before a chain was started; None where there is none to tell."""
    if (
        change.turn is not ProbeChangeKind.BETTER
        or change.before not in FAILING
        or change.incident
        or change.explained_by
    ):
        return None
    lasted = "" if change.lasted_seconds is None else f" for {change.lasted_seconds:.0f} s"
    return f"{change.service} was {change.before}{lasted} and recovered by itself; no session was started"


def effects_of(before: Standing, following: ProbeStep, probe: Probe) -> Telling | None:
    """Return what a step writes: a failure is one event until it is over, or is another one. A silence ends it."""
    change, name = following.change, fingerprint_of(probe.name)
    if change is None:
        state, at = following.standing.state, following.standing.last_checked_at
        begins = state is ProbeState.SILENCED and before.state is not state
        return Telling(at=at, over=(name,), is_state=False) if begins and at is not None else None
    note = note_of(change)
    notes = (
        ()
        if note is None
        else (NewEvent(level=EventLevel.INFO, message=note, service=change.service, fingerprint=f"{name}:note"),)
    )
    failed = change.turn is not ProbeChangeKind.BETTER or change.after is not ProbeState.UP
    return Telling(
        at=change.at,
        detail=change.detail,
        over=(name,),
        events=(_event(change, name),) if failed else (),
        notes=notes,
        is_state=change.turn is not ProbeChangeKind.BLIND,
        is_explained=bool(change.explained_by) and change.turn is not ProbeChangeKind.BLIND,
    )


def _event(change: ProbeChange, name: str) -> NewEvent:
    if change.turn is ProbeChangeKind.BLIND:
        message = f"nothing is known of {change.service} any more, by its probe {change.probe}: {change.detail}"
        return NewEvent(level=EventLevel.WARNING, message=message, service=change.service, fingerprint=name)
    why = f", which {change.explained_by} explains" if change.explained_by else ""
    message = f"{change.service} is {change.after}{why}, by its probe {change.probe}: {change.detail}"
    level = EventLevel.WARNING if change.explained_by else _LEVELS.get(change.after, EventLevel.WARNING)
    return NewEvent(level=level, message=message, service=change.service, fingerprint=name)


def _joined(unjoined: Iterable[_Failure], failing: Iterable[_Failure], dependencies: Dependencies) -> dict[str, str]:
    """Return by probe the incident that another probe of its service belongs to, if that is as bad as this failure."""
    of_any: dict[str, str] = {}
    of_broken: dict[str, str] = {}
    for each in failing:
        if each.standing.incident:
            key = dependencies.key(each.probe.service)
            of_any.setdefault(key, each.standing.incident)
            if is_broken(each.standing):
                of_broken.setdefault(key, each.standing.incident)
    found = {}
    for each in unjoined:
        incidents = of_broken if is_broken(each.standing) else of_any
        if incident := incidents.get(dependencies.key(each.probe.service)):
            found[each.probe.name] = incident
    return found


def _unsettled(
    fresh: Iterable[_Failure],
    probes: Iterable[Probe],
    standings: Mapping[str, Standing],
    dependencies: Dependencies,
) -> tuple[str, ...]:
    """Return the probes of dependencies that may be down too: in doubt, or not looked at since the failures."""
    needed = set(dependencies.needed_by(each.probe.service for each in fresh))
    failed_at = max((each.standing.since for each in fresh if each.standing.since is not None), default=None)
    if not needed or failed_at is None:
        return ()
    return tuple(
        probe.name
        for probe in probes
        if dependencies.key(probe.service) in needed
        and (standing := standings.get(probe.name)) is not None
        and standing.last_checked_at is not None
        and not is_broken(standing)
        and (wavers(standing, probe) or standing.last_checked_at < failed_at)
    )


def _wait(fresh: Iterable[_Failure], *, now: datetime, rules: SettlingRules, looks_again: bool) -> float:
    """Return for how many seconds to wait.

    A failure of the future was seen by a clock that has been set back: it counts as old.
    """
    ages = [
        now - each.standing.since if each.standing.since is not None and each.standing.since <= now else rules.longest
        for each in fresh
    ]
    until_settled = _LOOK_AGAIN if looks_again else rules.settling - min(ages)
    return min(rules.longest - max(ages), until_settled).total_seconds()


def _request(fresh: Sequence[_Failure]) -> ChainRequest:
    services = unique(each.probe.service for each in fresh)
    return ChainRequest(
        fingerprint=fingerprint("probe", *sorted(map(casefold_key, services))),
        services=services,
        probes=tuple(each.probe.name for each in fresh),
    )
