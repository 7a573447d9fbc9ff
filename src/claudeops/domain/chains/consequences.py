"""What the end of a session changes, as values: the store gathers the facts, asks here, and writes the answer.

Pure. The decision itself comes from ``domain.chains.escalation``, and changes to memories from ``domain.memories``.
Settled here:

- A ``healthy`` check without a look behind it is not recorded; the session's warnings say so. A service gets one
  check per report: the worst status in it.
- A healthy check stands for the end of an incident only with a look at that very service: a look around does not.
- A condition that is reported again raises its event's count, even in a report that calls the service healthy. The
  other open events of a healthy service are resolved; a ``healthy`` decision resolves those without a service.
- A service's cooldown counters clear at its second consecutive healthy check, or while its probes go on seeing it up
  (`claudeops.domain.probes.record.has_held`). Each of the two must come from our own probe after the last action, or
  from a session of a chain that started after it: never from the chain that acted, nor from one that began to look
  before. A failed or lost session does not count either: its report may have been written long after others had looked.
- A reserved action without a result counts as failed and as used: it may have run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from claudeops.domain.actions import NO_RESULT_SEEN, PastAction, Recheck
from claudeops.domain.calls import ToolEnd
from claudeops.domain.chains import escalation, follow_up
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.live import EventRaised
from claudeops.domain.memories.learning import OnShelf, learn
from claudeops.domain.memories.memory import MemoryChange
from claudeops.domain.probes.probe import ProbeSight
from claudeops.domain.report.evidence import NOTHING_BEFORE, Background, KnownServices, Proof, weigh
from claudeops.domain.report.report import Report, ServiceCheck, ServiceStatus
from claudeops.domain.sessions import (
    LOWEST_TIER,
    Decision,
    DecisionReason,
    Ending,
    NewSession,
    Outcome,
    Session,
    Trigger,
)
from claudeops.structs import replace
from claudeops.text import clean, clip, unique

_ENDED_WITH_AN_ERROR: Final = "the call ended with an error"

_ROUNDS: Final = frozenset({Trigger.SCHEDULED, Trigger.MANUAL, Trigger.API, Trigger.RETRY, Trigger.RECOVERY})
NO_WITNESSES: Final = frozenset({Outcome.ERROR, Outcome.LOST})
"""Outcomes of sessions whose healthy checks clear no cooldown counter."""

_WORST_FIRST: Final = (
    ServiceStatus.DOWN,
    ServiceStatus.UNREACHABLE,
    ServiceStatus.DEGRADED,
    ServiceStatus.HEALTHY,
)


class LastSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What is on record about a service from other sessions and probes."""

    status: ServiceStatus  # of the last check that counts
    looked_at: datetime | None  # when that look began: the start of its chain, or the time of the probe
    last_action_at: datetime | None  # of the actions that still count


class EndFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The stored facts that matter when a session ends."""

    session: Session
    ledger: Sequence[PastAction]
    shelf: OnShelf  # what is stored of memories
    reservations: Sequence[PastAction]  # every action of this session
    last_seen: Mapping[str, LastSeen]  # by service, for the services that the report calls healthy
    chain_started_at: datetime | None  # when the first session of the chain was started
    before: Background = NOTHING_BEFORE  # what earlier sessions of the chain left
    held_services: tuple[str, ...] = ()  # services whose limit refused an action to a session of this chain
    chain_usd: float = 0.0  # what the chain has spent, this session included
    changed: Sequence[PastAction] = ()  # what other chains changed within the last day
    followed: Sequence[
        PastAction
    ] = ()  # the actions after which this chain is the follow-up, and that have no answer yet
    probes: tuple[ProbeSight, ...] = ()  # how the daemon's own stand now


class Consequences(msgspec.Struct, frozen=True, kw_only=True):
    """Everything to write beside the session's own row and its tool ends."""

    decision: Decision
    warnings: tuple[str, ...]
    events: tuple[NewEvent, ...]  # each fingerprint once
    checks: tuple[ServiceCheck, ...]  # each service once
    memories: tuple[MemoryChange, ...]
    settlements: tuple[PastAction, ...]
    recovered: tuple[str, ...]  # services whose cooldown counters clear
    healthy_services: tuple[str, ...]  # services whose open events are resolved
    looked_at: tuple[str, ...]  # those of them that a look, or a probe, has shown to be healthy
    all_healthy: bool  # open events without a service are resolved too
    held: Mapping[int, Recheck]  # what is known now of actions of other chains, by their ids


def conclude(ending: Ending, facts: EndFacts, *, rules: EscalationRules) -> Consequences:
    """Return what follows from ``ending``."""
    proof = proof_of(
        ending,
        facts.reservations,
        _with_followed(facts),
        other_names=rules.other_names,
        expected=rules.expected if is_whole_round(facts.session) else (),
        probes=facts.probes,
        began_at=facts.session.started_at,
    )
    checks, unproven = recordable_checks(ending, proof)
    relapses = _relapses(ending, facts, checks, proof)
    decision = escalation.decide(
        session=facts.session,
        ending=ending,
        rules=rules,
        ledger=facts.ledger,
        now=ending.ended_at,
        proof=proof,
        held_services=facts.held_services,
        chain_usd=facts.chain_usd,
        relapses=relapses,
    )
    learnt = learn(facts.session, ending, facts.shelf, proof=proof, before=facts.before, at=ending.ended_at)
    healthy = tuple(check.service for check in checks if check.status is ServiceStatus.HEALTHY)
    witnessed = healthy if ending.outcome not in NO_WITNESSES else ()
    return Consequences(
        decision=decision,
        warnings=(*ending.extraction.warnings, *ending.warnings, *unproven, *learnt.warnings),
        events=stated_events(ending, (*learnt.events, *decision.events)),
        checks=checks,
        memories=learnt.changes,
        settlements=tuple(settle(facts.reservations, ending.tool_ends)),
        recovered=tuple(name for name in witnessed if _recovered(facts, name)),
        healthy_services=healthy,
        looked_at=tuple(name for name in healthy if proof.names.of(name) in proof.looked_at),
        all_healthy=decision.reason is DecisionReason.HEALTHY,
        held={**_followed(facts.followed, checks, decision, proof), **{each.id: Recheck.RELAPSED for each in relapses}},
    )


def _with_followed(facts: EndFacts) -> Background:
    """Return what was before a session; a follow-up is there for what others have changed, too."""
    followed = (action.service for action in facts.followed)
    return replace(facts.before, causes=unique((*facts.before.causes, *followed)))


def _relapses(ending: Ending, facts: EndFacts, checks: Sequence[ServiceCheck], proof: Proof) -> tuple[PastAction, ...]:
    """Return the actions of other chains that have not held, as far as that is asked: else they change nothing."""
    report = ending.extraction.report
    alarmed = facts.session.trigger is Trigger.ALERT  # a probe says the same: it needs no request of the report's
    if not (alarmed or facts.followed or (report is not None and report.escalation.needed)):
        return ()
    began = facts.session.started_at
    return follow_up.relapses(facts.changed, checks, proof.names, now=ending.ended_at, looked_from=began)


def _followed(
    actions: Sequence[PastAction], checks: Sequence[ServiceCheck], decision: Decision, proof: Proof
) -> Mapping[int, Recheck]:
    """Return what a follow-up session has found; nothing yet where the same look is made once more."""
    if decision.next is not None and decision.next.trigger is Trigger.RETRY:
        return {}
    return follow_up.by_report(actions, checks, proof.names)


def lost_event(lost: Session, following: NewSession | None) -> NewEvent:
    """Return the event of a session whose daemon is gone; it is critical when no session follows."""
    message = f"the tier {lost.tier} session {lost.id} was lost: its daemon ended, or was cut off, before it did"
    if following is None:
        name = escalation.fingerprint(Outcome.LOST.value, lost.tier, "given up")
        return NewEvent(
            level=EventLevel.CRITICAL,
            message=f"{message}, for the second time; it is not started again.",
            fingerprint=name,
        )
    what = "it is started once more" if lost.tier == following.tier else "a look at what it left follows"
    name = escalation.fingerprint(Outcome.LOST.value, lost.tier)
    return NewEvent(level=EventLevel.WARNING, message=f"{message}; {what}.", fingerprint=name)


def settle(reservations: Iterable[PastAction], ends: Iterable[ToolEnd]) -> Iterable[PastAction]:
    """Yield for every reserved action whether it succeeded; those denied after all are settled already."""
    failed = {clip(end.tool_use_id): end.is_error for end in ends}
    for reservation in (each for each in reservations if not each.is_denied):
        is_error = failed.get(reservation.tool_use_id)
        if is_error is None:
            yield replace(reservation, success=False, error=NO_RESULT_SEEN)
        else:
            yield replace(reservation, success=not is_error, error=_ENDED_WITH_AN_ERROR if is_error else None)


def fingerprinted(event: NewEvent) -> NewEvent:
    """Return the event with the fingerprint that its row carries, and with a service that fits its column."""
    service = clip(event.service) if event.service else None
    words = " ".join(event.message.casefold().split())
    name = event.fingerprint or escalation.fingerprint(event.level.value, service or "", words)
    return replace(event, fingerprint=clip(name), service=service, message=clean(event.message))


def raised(event: NewEvent, *, session_id: int | None, at: datetime) -> EventRaised:
    """Return an event that was written as a live fact."""
    return EventRaised(at=at, level=event.level, service=event.service, message=event.message, session_id=session_id)


def healthy_services(report: Report | None) -> tuple[str, ...]:
    """Return the services that a report calls healthy, clipped to their columns."""
    checks = report.services_checked if report else ()
    return tuple({clip(check.service) for check in checks if check.status is ServiceStatus.HEALTHY})


def proof_of(
    ending: Ending,
    reservations: Iterable[PastAction],
    before: Background,
    *,
    other_names: Mapping[str, str],
    expected: Iterable[str] = (),
    probes: Sequence[ProbeSight] = (),
    began_at: datetime | None = None,
) -> Proof:
    """Return how far a session's report can be believed, by what the session looked at and what it did."""
    names = KnownServices(other_names, clip)
    report = ending.extraction.report
    if report is None:
        return Proof(looked=bool(ending.looks), names=names)
    return weigh(
        report,
        looks=ending.looks,
        ends=[replace(end, tool_use_id=clip(end.tool_use_id)) for end in ending.tool_ends],
        actions=[reserved for reserved in reservations if not reserved.is_denied],
        before=before,
        names=names,
        expected=expected,
        probes=probes,
        began_at=began_at,
    )


def is_whole_round(session: Session) -> bool:
    """Whether a session looks at everything: the lowest tier, asked for nothing in particular and told of nothing.

    A repetition of such a session is one as well.
    """
    return (
        session.tier <= LOWEST_TIER
        and session.trigger in _ROUNDS
        and not (session.prompt_text or "").strip()
        and session.context is None
    )


def recordable_checks(ending: Ending, proof: Proof) -> tuple[tuple[ServiceCheck, ...], tuple[str, ...]]:
    """Return the checks to record, and a warning about those without a look behind them."""
    report = ending.extraction.report
    worst: dict[str, ServiceCheck] = {}
    for check in report.services_checked if report else ():
        known_as = proof.names.of(check.service)
        if known_as not in worst or _severity(check) < _severity(worst[known_as]):
            worst[known_as] = replace(check, service=clip(check.service))
    proven = ending.calls_ran > 0 and proof.looked
    kept = tuple(
        check
        for check in worst.values()
        if check.status is not ServiceStatus.HEALTHY or (proven and not proof.doubts(check.service))
    )
    unproven = len(worst) - len(kept)
    if not unproven:
        return kept, ()
    return kept, (f"unproven-health: {unproven} healthy checks were not recorded, because no look stands behind them",)


def stated_events(ending: Ending, decided: Iterable[NewEvent] = ()) -> tuple[NewEvent, ...]:
    """Return the events of the engine, the report and the decision, each condition once."""
    events = ending.extraction.report.events if ending.extraction.report else ()
    reported = (NewEvent(level=event.level, message=event.message, service=event.service) for event in events)
    distinct: dict[str, NewEvent] = {}
    for event in map(fingerprinted, (*ending.events, *reported, *decided)):
        distinct.setdefault(event.fingerprint, event)
    return tuple(distinct.values())


def _severity(check: ServiceCheck) -> int:
    return _WORST_FIRST.index(check.status)


def _recovered(facts: EndFacts, service: str) -> bool:
    """Tell whether this is the second consecutive healthy check by a look that began after the last action."""
    before = facts.last_seen.get(service)
    if before is None or before.status is not ServiceStatus.HEALTHY:
        return False
    return _later(before.looked_at, before.last_action_at) and _later(facts.chain_started_at, before.last_action_at)


def _later(looked_at: datetime | None, last_action_at: datetime | None) -> bool:
    return last_action_at is None or (looked_at is not None and looked_at > last_action_at)
