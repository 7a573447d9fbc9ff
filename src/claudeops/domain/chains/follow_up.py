"""Follow-up looks: whether what was done to a service still holds a while later.

Settled here:

- A chain that changed something is followed by a look at exactly those services. Its own probes answer where each of
  them has some; a session of the lowest tier looks where one has none, or where the probes cannot tell.
- *Held* is a service that is up; *relapsed* is one that is down, unreachable or flapping; anything else is *unknown*.
- A relapse within a day escalates at once, to the tier above the one that acted, or to the highest there is: the lower
  ones have had their turn. That holds whoever finds it, the follow-up or another chain, and once for each action.
- A follow-up's request names services, and that alone makes none of them unwell: an action still needs a finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from claudeops.domain.actions import PastAction, Recheck
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.report.evidence import BROKEN, KnownServices
from claudeops.domain.report.report import ServiceCheck, ServiceStatus
from claudeops.domain.sessions import Handover, NewSession, Session
from claudeops.structs import replace
from claudeops.text import join_names, one_line, regex, unique

RELAPSE_WITHIN: Final = timedelta(days=1)
"""How long after an action its service's failure counts as a relapse."""

_PLAIN: Final = regex.Pattern(rf"[{regex.WORD}.:/@\[\]-]{{1,120}}")
_FELL_BACK: Final = frozenset({ProbeState.DOWN, ProbeState.FLAPPING})


NOT_LOOKED_AT: Final = timedelta(seconds=30)
"""How long a probe must be down until its relapse escalates by itself: a chain of its own would have begun by then."""


class ProbeStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How a probe stands, as far as it answers for an action."""

    service: str
    state: ProbeState
    last_checked_at: datetime | None
    since: datetime | None = None  # when it took its state
    is_told: bool = False  # a chain knows of its failure, another service's explains it, or nobody is to be asked


class FollowedUp(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the follow-ups that were due."""

    answers: Mapping[PastAction, Recheck] = msgspec.field(default_factory=dict)  # by probes
    queued: tuple[Session, ...] = ()  # what follows


def due_at(ended_at: datetime, delay_seconds: float) -> datetime:
    """Return when somebody looks again at what a chain has changed that ended at ``ended_at``."""
    return ended_at + timedelta(seconds=delay_seconds)


def follow_up_of(actions: Sequence[PastAction], new: NewSession, *, at: datetime) -> NewSession:
    """Return the session that looks again; ``new`` is one of the lowest tier, ``at`` is when it is due."""
    services = unique(action.service for action in actions)
    # What a session has called a service goes into an operator's words only where it can be nothing but a name.
    plain = [name for name in services if _PLAIN.fullmatch(name)]
    others = "" if len(plain) == len(services) else " Further ones are named in the escalation context."
    request = (
        f"Look again at exactly these services, and at no others: {', '.join(plain) or 'see below'}.{others} "
        "Each of them was changed a while ago. Find out whether it is still well, and report on each of them."
    )
    handover = Handover(
        reason=f"a look at what was done to {join_names(services)}, to see whether it holds",
        findings="\n".join(_told(action) for action in actions),
    )
    return replace(new, prompt_text=request, services=unique(map(one_line, services)), context=handover, not_before=at)


def by_probes(
    action: PastAction, probes: Iterable[ProbeStanding], *, due_at: datetime, names: KnownServices
) -> Recheck | None:
    """Return what the probes of an action's service say; ``None`` where they cannot tell.

    They must have looked in the second half of the time between the action and the follow-up at the latest: an older
    look may have seen the service before it fell back.
    """
    service = names.of(action.service)
    own = [probe for probe in probes if names.of(probe.service) == service]
    since = action.at + (due_at - action.at) / 2
    fresh = [probe for probe in own if probe.last_checked_at is not None and probe.last_checked_at >= since]
    if any(probe.state in _FELL_BACK for probe in fresh):
        return Recheck.RELAPSED
    is_up = bool(own) and len(fresh) == len(own) and all(probe.state is ProbeState.UP for probe in own)
    return Recheck.HELD if is_up else None


def fell_back(
    actions: Iterable[PastAction], probes: Iterable[ProbeStanding], *, now: datetime, names: KnownServices
) -> tuple[PastAction, ...]:
    """Return the latest action on each service that has gone down since, and that nobody looks at.

    A probe that has started a chain starts no other for a while; a relapse does not wait for that, nor for the
    follow-up. ``actions``: those of the last day; a chain that has not ended has no follow-up yet, and is at work.
    """
    down: dict[str, datetime] = {}
    for probe in probes:
        if probe.state is ProbeState.DOWN and not probe.is_told and probe.since is not None:
            down[names.of(probe.service)] = probe.since
    latest = {names.of(action.service): action for action in sorted(actions, key=lambda action: action.at)}
    return tuple(
        action
        for service, action in latest.items()
        if action.held is not Recheck.RELAPSED
        and action.follow_up_at is not None
        and service in down
        and action.at < down[service] <= now - NOT_LOOKED_AT
        and now - action.at <= RELAPSE_WITHIN
    )


def by_report(
    actions: Iterable[PastAction], checks: Iterable[ServiceCheck], names: KnownServices
) -> Mapping[int, Recheck]:
    """Return what a report's checks say about actions, by their ids; of a healthy one there is proof."""
    seen = {names.of(check.service): check.status for check in checks}
    return {action.id: _answer(seen.get(names.of(action.service))) for action in actions}


def relapses(
    actions: Iterable[PastAction],
    checks: Iterable[ServiceCheck],
    names: KnownServices,
    *,
    now: datetime,
    looked_from: datetime | None = None,
) -> tuple[PastAction, ...]:
    """Return the latest action on each service that a report finds broken again, within a day of it.

    ``looked_from``: when the session of the report began; what was done later it may not have seen. An earlier action
    than the latest one is never a relapse: what was done since says more.
    """
    broken = {names.of(check.service) for check in checks if check.status in BROKEN}
    recent = [action for action in actions if now - action.at <= RELAPSE_WITHIN]
    latest = {names.of(action.service): action for action in sorted(recent, key=lambda action: action.at)}
    return tuple(
        action
        for service, action in latest.items()
        if service in broken
        and action.held is not Recheck.RELAPSED
        and (looked_from is None or action.at < looked_from)
    )


def did_not_hold(actions: Sequence[PastAction]) -> str:
    """Return the clause that tells the next tier of relapses."""
    kinds = unique(action.kind for action in actions)
    what = f"the {kinds[0]}" if len(kinds) == 1 else "what was done"
    return f"{what} did not hold: {'; '.join(_did(action) for action in actions)}"


def relapse_events(actions: Iterable[PastAction]) -> tuple[NewEvent, ...]:
    """Return an event for each service that has fallen back; a healthy look at it ends it."""
    return tuple(
        NewEvent(
            level=EventLevel.WARNING, service=action.service, message=f"{did_not_hold([action])}: it is down again."
        )
        for action in actions
    )


def relapse_handover(
    actions: Sequence[PastAction], probes: Iterable[ProbeStanding], *, names: KnownServices
) -> Handover:
    """Return what the session is told that repairs what has not held, as the daemon's own probes saw it."""
    services = {names.of(action.service): action.service for action in actions}
    own = [probe for probe in probes if names.of(probe.service) in services]
    seen = [f"- a probe of {one_line(probe.service)} says {probe.state}" for probe in own]
    return Handover(
        reason=did_not_hold(actions),
        findings="\n".join([*map(_told, actions), *seen]),
        service_status=tuple(
            ServiceCheck(service=service, status=ServiceStatus.DOWN, detail="found by the daemon's own probe")
            for service in services.values()
        ),
    )


def _answer(status: ServiceStatus | None) -> Recheck:
    if status is ServiceStatus.HEALTHY:
        return Recheck.HELD
    return Recheck.RELAPSED if status in BROKEN else Recheck.UNKNOWN


def _did(action: PastAction) -> str:
    return f"{one_line(action.service)} ({action.kind} at {action.at:%Y-%m-%d %H:%M} UTC by tier {action.tier})"


def _told(action: PastAction) -> str:
    result = "it succeeded" if action.success else "its result was not seen"
    return f"- {_did(action)}, session {action.session_id}: {result}"
