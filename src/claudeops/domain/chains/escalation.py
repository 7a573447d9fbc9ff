"""What may start, and what follows when a session ends.

Two questions, each answered by a value: `admit` (may a session start?) and `decide` (what now?). The same rules apply
to a direct start, to a row that waited in the queue while the rules changed, and to an escalation. Whether an action
may still run is the business of `claudeops.domain.chains.cooldown`.

Settled here:

- A wish to escalate counts however the process ended: a non-zero exit or a timeout does not discard a valid report.
  The limits are checked in the order maximum tier, dry run, cooldown, budget; the first that forbids gives the reason.
- *Healthy* needs evidence: a look that returned, a service that was checked, nothing reported down or unreachable,
  and for everything that was acted upon a later look (`claudeops.domain.report.evidence`). A report that calls a
  service down and does not ask for the next tier contradicts itself.
- A failed session of the lowest tier is tried once more, unless it would fail the same way again (a limit of its own,
  our own stop). A tier that can change things is never repeated.
- A model that refuses would refuse again: the next tier's model is asked instead, within the limits of every
  escalation, and gets what the refusing one was given.
- Levels: ``max_tier``, ``no_report``, ``session_failed``, ``cooldown`` and ``budget`` are critical, because something
  is or may be wrong and no session looks at it any more; ``dry_run`` and ``no_evidence`` are warnings. So is a failure
  that is tried once more, and one that opens the breaker, whose own event is the critical one.
- A chain ends as ``cooldown`` if its service is still unwell at the end and the cooldown refused an action on it.
- A fingerprint is made of reason, tier and services, never of free text, so that the same condition raises one count
  however the model words it.
- A cooldown never holds back a tier that grants no kinds of action.
- A finding about services that are all in their maintenance windows escalates to nobody, which is told, not warned of.
- A service that is broken again within a day of an action is a relapse, which escalates past the tier that acted; what
  a follow-up finds does so whether or not its report asks for it (`claudeops.domain.chains.follow_up`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

import msgspec

from claudeops.domain.actions import ActionLimit, PastAction
from claudeops.domain.chains.cooldown import used_up
from claudeops.domain.chains.failure import wish_after_refusal
from claudeops.domain.chains.follow_up import did_not_hold
from claudeops.domain.estate.estate import Estate, MaintenanceWindow, Service
from claudeops.domain.estate.maintenance import held_back
from claudeops.domain.estate.service_names import counted_by, counted_names
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.report.evidence import BROKEN, Proof
from claudeops.domain.report.report import Report, ServiceStatus
from claudeops.domain.sessions import (
    LOWEST_TIER,
    Decision,
    DecisionReason,
    Ending,
    FailureKind,
    Handover,
    NewSession,
    Outcome,
    Session,
    Suppressed,
    Trigger,
)
from claudeops.domain.spending import budget
from claudeops.domain.spending.budget import Budgets
from claudeops.structs import replace
from claudeops.text import casefold_key, join_names, one_line, regex, unique

NO_REASON_GIVEN: Final = "the report asks for the next tier and gives no reason"
_LEVELS: Final = {
    DecisionReason.MAX_TIER: EventLevel.CRITICAL,
    DecisionReason.NO_REPORT: EventLevel.CRITICAL,
    DecisionReason.SESSION_FAILED: EventLevel.CRITICAL,
    DecisionReason.COOLDOWN: EventLevel.CRITICAL,
    DecisionReason.BUDGET: EventLevel.CRITICAL,
    DecisionReason.MAINTENANCE: EventLevel.INFO,
}
_OPENS_BREAKER: Final = frozenset({FailureKind.AUTH, FailureKind.BILLING})
RETRY_DELAY: Final = timedelta(seconds=5)
"""A short wait, because what broke the session may be under repair: a binary being replaced, a disk being mounted."""


_RETRYABLE: Final = frozenset(
    {
        Outcome.ERROR,
        Outcome.TIMEOUT,
        Outcome.STARTUP_TIMEOUT,
        Outcome.STALLED,
        Outcome.NO_OUTPUT,
        Outcome.NO_RESULT,
        Outcome.OUT_OF_MEMORY,
        Outcome.OUT_OF_PROCESSES,
        Outcome.OUT_OF_DISK,
        Outcome.FILE_TOO_LARGE,
        Outcome.SPAWN_FAILED,
    }
)
"""Outcomes that another try may avoid. A limit of the session's own, or our own stop, it would meet again."""


class TierChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon needs to know about a tier to queue a session for it."""

    number: int
    model: str
    harness: str = "claude"
    action_kinds: tuple[str, ...] = ()  # that its policy grants
    max_budget_usd: float | None = None  # for one session; None: unlimited


class EscalationRules(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's limits on going further."""

    max_tier: int
    dry_run: bool
    tiers: tuple[TierChoice, ...]
    limits: Mapping[str, ActionLimit] = msgspec.field(default_factory=dict)  # by action kind
    other_names: Mapping[str, str] = msgspec.field(
        default_factory=dict
    )  # of services, to the name that actions are counted by
    expected: tuple[str, ...] = ()  # services that a whole round looks at
    budgets: Budgets | None = None  # that sessions share; None: unlimited
    timezone: str = "UTC"  # IANA name; of the maintenance windows
    holds_in_maintenance: bool = True  # False: the policy lets sessions act within maintenance windows
    with_windows: tuple[Service, ...] = ()  # the services that have maintenance windows
    most_of_site: int | None = None  # sessions at once on all nodes of a site; None: unlimited
    most_in_all: int | None = None  # likewise of all sites
    follow_up_seconds: float | None = None  # from an action to the next look at its service; None: nobody looks

    def within(self, estate: Estate) -> EscalationRules:
        """Return the rules with the names that an estate adds; the operator's own names for services come first."""
        return replace(
            self,
            other_names=counted_names(estate, self.other_names),
            expected=estate.expected,
            with_windows=tuple(service for service in estate.services if service.maintenance),
        )

    def each_once(self, services: Iterable[str]) -> tuple[str, ...]:
        """Return services by the names that they are counted by, each once."""
        return unique(map(counted_by(self.other_names), services))

    def maintenance_of(self, service: str, at: datetime) -> MaintenanceWindow | None:
        """Return the maintenance window in which a service is, if actions on it wait for its end; else ``None``."""
        if not self.holds_in_maintenance:
            return None
        return held_back(service, self.with_windows, at=at, timezone=self.timezone, other_names=self.other_names)

    def budget_of(self, tier: int) -> float | None:
        """Return what one session of a tier may spend; ``None``: unlimited, or no such tier."""
        return next((choice.max_budget_usd for choice in self.tiers if choice.number == tier), None)

    @property
    def lowest(self) -> TierChoice:
        """The tier that only looks."""
        return min(self.tiers, key=lambda choice: choice.number)


def fingerprint(*parts: object) -> str:
    """Return a short, stable name of a condition: the first part in clear, the rest as a digest.

    Its length is bounded whatever a model wrote into the parts, so that it can be indexed.
    """
    text = "\x1f".join(str(part) for part in parts)
    return f"{str(parts[0])[:40]}:{sha256(text.encode('utf-8', 'replace')).hexdigest()[:32]}"


class _LimitReached(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that forbids going on: the reason and the clause that explains it."""

    reason: DecisionReason
    clause: str


# --- what may start ---------------------------------------------------------------------------------------


def admit(
    *,
    tier: int,
    rules: EscalationRules,
    ledger: Sequence[PastAction],
    unhealthy_services: Sequence[str],
    now: datetime,
) -> Suppressed | None:
    """Return why a session of ``tier`` may not start now, or ``None`` when it may.

    ``unhealthy_services`` are the services known to be unwell; without any there is no cooldown to respect.
    """
    reached = _limit_reached(tier, services=unhealthy_services, rules=rules, ledger=ledger, now=now)
    if reached is None:
        return None
    return Suppressed(reason=reached.reason, message=f"a session of tier {tier} was not started: {reached.clause}.")


def is_limited(tier: int, rules: EscalationRules) -> bool:
    """Tell whether any limit of `admit` applies to a session of ``tier``: the lowest one only looks."""
    return tier > min(LOWEST_TIER, rules.max_tier)


def suppression_event(suppressed: Suppressed, *, tier: int, services: Sequence[str]) -> NewEvent:
    """Return the event that reports a suppressed start."""
    return _event(suppressed.reason, suppressed.message, tier=tier, services=services, kind="start")


def _limit_reached(
    tier: int, *, services: Sequence[str], rules: EscalationRules, ledger: Sequence[PastAction], now: datetime
) -> _LimitReached | None:
    """Check the limits in their order: maximum tier, dry run, cooldown."""
    if tier > rules.max_tier:
        return _LimitReached(reason=DecisionReason.MAX_TIER, clause=f"the highest tier allowed is {rules.max_tier}")
    if tier <= LOWEST_TIER:
        return None
    if rules.dry_run:
        return _LimitReached(reason=DecisionReason.DRY_RUN, clause="dry run is switched on")
    services = rules.each_once(services)
    if used_up(services, _kinds_from(tier, rules), limits=rules.limits, ledger=ledger, now=now):
        clause = f"every action that is granted for {join_names(services)} is used up until its cooldown ends"
        return _LimitReached(reason=DecisionReason.COOLDOWN, clause=clause)
    return None


def _chain_budget_spent(following: TierChoice, rules: EscalationRules, chain_usd: float) -> _LimitReached | None:
    """Check the last limit: a chain needs money to go on. For the day's money a session waits in the queue."""
    if rules.budgets is None or budget.chain_can_pay(following.max_budget_usd, rules.budgets, chain_usd):
        return None
    return _LimitReached(reason=DecisionReason.BUDGET, clause=budget.chain_clause(rules.budgets, chain_usd))


def _kinds_from(tier: int, rules: EscalationRules) -> tuple[str, ...]:
    """Return every action kind that ``tier`` or a higher allowed tier grants."""
    granted = (choice.action_kinds for choice in rules.tiers if tier <= choice.number <= rules.max_tier)
    return tuple(sorted({kind for kinds in granted for kind in kinds}))


# --- what follows from an end -----------------------------------------------------------------------------


def decide(
    *,
    session: Session,
    ending: Ending,
    rules: EscalationRules,
    ledger: Sequence[PastAction],
    now: datetime,
    proof: Proof,
    held_services: Sequence[str] = (),
    chain_usd: float = 0.0,
    relapses: Sequence[PastAction] = (),
) -> Decision:
    """Return what the daemon does next; every reason but ``healthy`` and ``escalated`` brings one event.

    ``proof`` says how far the report can be believed; ``held_services`` are those whose cooldown refused an action
    to this chain; ``chain_usd`` is what the chain has spent, this session included, in US dollars; ``relapses`` are
    actions of other chains that have not held.
    """
    report = ending.extraction.report
    if is_refused(ending) and (report is None or not report.escalation.needed):
        report = wish_after_refusal(session, ending.error)
    needed = report is not None and (report.escalation.needed or bool(relapses))
    if ending.stopped_for is not None and not needed:
        why = one_line(ending.error) if ending.error else ending.stopped_for.value
        message = f"the tier {session.tier} session was stopped before it had ended ({why})."
        return _stop(ending.stopped_for, message, tier=session.tier)
    if report is None:
        return _without_report(session, ending, now)
    if needed:
        return _escalate(
            session,
            report,
            rules=rules,
            ledger=ledger,
            now=now,
            held_services=held_services,
            chain_usd=chain_usd,
            relapses=relapses,
            causes=proof.causes,
        )
    if ending.outcome is not Outcome.SUCCESS:
        return _failed(session, ending, now)
    cooled_down = _cooled_down(session, report, rules, held_services)
    return cooled_down or _conclude(session, report, ending, proof)


def is_refused(ending: Ending) -> bool:
    """Tell whether a session failed because its model declined; our own stop says nothing of that."""
    return ending.failure_kind is FailureKind.REFUSAL and ending.outcome in _RETRYABLE


def _without_report(session: Session, ending: Ending, now: datetime) -> Decision:
    if ending.outcome is not Outcome.SUCCESS:
        return _failed(session, ending, now)
    message = f"the tier {session.tier} session ended without a report, so nothing is known about the services."
    return _stop(DecisionReason.NO_REPORT, message, tier=session.tier)


def _failed(session: Session, ending: Ending, now: datetime) -> Decision:
    detail = f": {one_line(ending.error)}" if ending.error else ""
    message = f"the tier {session.tier} session failed ({ending.outcome.value}){detail}"
    if ending.outcome is Outcome.BUDGET_EXCEEDED:  # it would spend it again
        return _stop(DecisionReason.BUDGET, message, tier=session.tier)
    again = retry_of(session, ending, now)
    if again is None and ending.failure_kind not in _OPENS_BREAKER:
        return _stop(DecisionReason.SESSION_FAILED, message, tier=session.tier)
    sentence = f"{message}; it is tried once more" if again else message
    event = _event(DecisionReason.SESSION_FAILED, sentence, tier=session.tier, services=(), kind="warned")
    return Decision(
        reason=DecisionReason.SESSION_FAILED, next=again, events=(replace(event, level=EventLevel.WARNING),)
    )


def _escalate(
    session: Session,
    report: Report,
    *,
    rules: EscalationRules,
    ledger: Sequence[PastAction],
    now: datetime,
    held_services: Sequence[str],
    chain_usd: float,
    relapses: Sequence[PastAction],
    causes: Sequence[str],
) -> Decision:
    """Hand over to the next tier, or say which limit forbids it."""
    reason = _reason(report, relapses)
    services = rules.each_once(affected_services(report))
    if (stopped := _under_maintenance(session, services, rules=rules, now=now)) is not None:
        return stopped
    following = tier_after(session.tier, relapses, rules)
    if following is None:
        if (stopped := _cooled_down(session, report, rules, held_services)) is not None:
            return stopped
        message = f"tier {session.tier} is the last one allowed and asks for more: {reason}"
        return _stop(DecisionReason.MAX_TIER, message, tier=session.tier, services=services)
    reached = _limit_reached(following.number, services=services, rules=rules, ledger=ledger, now=now)
    reached = reached or _chain_budget_spent(following, rules, chain_usd)
    if reached is None:
        return Decision(reason=DecisionReason.ESCALATED, next=_next_session(session, report, following, reason, causes))
    if reached.reason is DecisionReason.DRY_RUN:
        message = f"dry run: would escalate to tier {following.number}: {reason}"
    else:
        message = f"no escalation to tier {following.number}, {reached.clause}: {reason}"
    return _stop(reached.reason, message, tier=session.tier, services=services)


def _reason(report: Report, relapses: Sequence[PastAction]) -> str:
    """Return why the next tier is asked, in one line."""
    given = one_line(report.escalation.reason)
    if not relapses:
        return given or NO_REASON_GIVEN
    return f"{did_not_hold(relapses)}; {given or one_line(report.summary)}"


def _under_maintenance(
    session: Session, services: Sequence[str], *, rules: EscalationRules, now: datetime
) -> Decision | None:
    """Decide for a finding about services that may be unwell on purpose; ``None``: at least one of them may not."""
    windows = [rules.maintenance_of(service, now) for service in services]
    named = unique(window.text for window in windows if window is not None)
    if not windows or None in windows:
        return None
    message = f"{join_names(services)}: unwell within the maintenance window ({'; '.join(named)}), nobody is asked."
    return _stop(DecisionReason.MAINTENANCE, message, tier=session.tier, services=services)


def _cooled_down(
    session: Session, report: Report, rules: EscalationRules, held_services: Sequence[str]
) -> Decision | None:
    """Decide for a service that is still unwell and whose cooldown refused an action; ``None``: there is none."""
    held = {casefold_key(service) for service in rules.each_once(held_services)}
    left = tuple(service for service in rules.each_once(affected_services(report)) if casefold_key(service) in held)
    if not left:
        return None
    reason = f": {one_line(report.escalation.reason)}" if report.escalation.reason else "."
    message = f"{join_names(left)} is still unwell, and an action was refused because of its cooldown{reason}"
    return _stop(DecisionReason.COOLDOWN, message, tier=session.tier, services=left)


def _next_tier(tier: int, rules: EscalationRules) -> TierChoice | None:
    """Return the next higher tier that is configured and allowed."""
    higher = [choice for choice in rules.tiers if tier < choice.number <= rules.max_tier]
    return min(higher, key=lambda choice: choice.number, default=None)


def tier_after(tier: int, relapses: Sequence[PastAction], rules: EscalationRules) -> TierChoice | None:
    """Return the tier to ask: the next one, or after a relapse the one above who acted, as far as there is one."""
    following = _next_tier(tier, rules)
    acted = max((action.tier for action in relapses), default=tier)
    if following is None or acted <= tier:
        return following
    highest = max((choice for choice in rules.tiers if choice.number <= rules.max_tier), key=lambda each: each.number)
    return _next_tier(acted, rules) or highest


def _next_session(
    session: Session, report: Report, following: TierChoice, reason: str, causes: Sequence[str]
) -> NewSession:
    handover = Handover(
        reason=reason,
        findings=report.escalation.context or report.summary,
        failed_checks=report.escalation.failed_checks,
        service_status=report.services_checked,
        started_for=tuple(causes),
    )
    return NewSession(
        tier=following.number,
        trigger=Trigger.ESCALATION,
        model=following.model,
        harness=following.harness,
        context=handover,
        parent_session_id=session.id,
    )


def _conclude(session: Session, report: Report, ending: Ending, proof: Proof) -> Decision:
    """Decide on a report that asks for nothing more: believe it if there is evidence for it."""
    broken = tuple(check.service for check in report.services_checked if check.status in BROKEN)
    lacks = []
    if ending.calls_ran < 1:
        lacks.append("no tool call ran")
    elif not proof.looked:
        lacks.append("no call looked at anything and came back without an error")
    if not report.services_checked:
        lacks.append("no service was checked")
    if broken:
        lacks.append(f"{join_names(broken)} is reported down or unreachable, yet the report does not escalate")
    lacks += proof.lacks
    if not lacks:
        return Decision(reason=DecisionReason.HEALTHY)
    message = f"the tier {session.tier} report is no proof of health: {'; '.join(lacks)}."
    return _stop(DecisionReason.NO_EVIDENCE, message, tier=session.tier, services=unique((*broken, *proof.services)))


# --- services, sentences, events --------------------------------------------------------------------------


def affected_services(report: Report) -> tuple[str, ...]:
    """Return the services that a report worries about: not healthy, or named by a failed check.

    A failed check that names a service of the report counts for that service; any other text counts as a service
    that the report did not list.
    """
    names = {casefold_key(check.service): check.service for check in report.services_checked}
    affected = [check.service for check in report.services_checked if check.status is not ServiceStatus.HEALTHY]
    for failed in report.escalation.failed_checks:
        words = {
            casefold_key(failed),
            casefold_key(failed.partition(":")[0]),
            *regex.split(rf"[{regex.SPACE}:,;()]+", casefold_key(failed)),
        }
        affected += [names[word] for word in sorted(words) if word in names] or [failed.strip()]
    return unique(affected)


def handover_services(handover: Handover) -> tuple[str, ...]:
    """Return the services that a handover is about."""
    return unique(check.service for check in handover.service_status if check.status is not ServiceStatus.HEALTHY)


def _stop(reason: DecisionReason, message: str, *, tier: int, services: Sequence[str] = ()) -> Decision:
    return Decision(reason=reason, events=(_event(reason, message, tier=tier, services=services),))


def _event(reason: DecisionReason, message: str, *, tier: int, services: Sequence[str], kind: str = "end") -> NewEvent:
    """Return an event; it belongs to a service when it is about exactly one."""
    return NewEvent(
        level=_LEVELS.get(reason, EventLevel.WARNING),
        message=message,
        service=services[0] if len(services) == 1 else None,
        fingerprint=fingerprint(reason.value, kind, tier, *sorted(map(casefold_key, services))),
    )


# --- one more try -------------------------------------------------------------------------------------


def has_retry(session: Session) -> bool:
    """Tell whether a session may be tried again if it fails; how it fails decides as well."""
    return session.tier <= LOWEST_TIER and session.trigger is not Trigger.RETRY


def retry_of(session: Session, ending: Ending, now: datetime) -> NewSession | None:
    """Return the same session once more; ``None`` if it was a retry itself, would fail again, or can change things."""
    if not has_retry(session) or ending.outcome not in _RETRYABLE or is_refused(ending):
        return None
    return NewSession(
        tier=session.tier,
        trigger=Trigger.RETRY,
        model=session.model,
        harness=session.harness,
        prompt_text=session.prompt_text,
        services=session.services,
        context=session.context,
        parent_session_id=session.id,
        not_before=now + RETRY_DELAY,
        budget_usd=session.budget_usd,
        started_by=session.started_by,
    )
