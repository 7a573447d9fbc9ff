"""Grants: whether the actions of an allowed call are permitted, by the chain's findings and by the ledger.

Pure. Settled here:

- From tier 2 up a session acts only on what somebody else found unwell: an earlier session of its chain in its report,
  an operator's words or the handover that started the chain, or our own latest probe; the request of a schedule or of
  a follow-up only says where to look. What the session itself has seen does not
  count: that is its own word, and a session that may act on its own word may act on anything. A session that finds
  something new reports it, and the next session may act on it.
- A service that another chain mends is left to it: one chain at a time has the lease of a service.
- A service in its maintenance window is left alone, unless the policy says otherwise.
- The actions of one call are counted together. Names are cut as their columns cut them, so that an overlong name is
  counted like any other.
- A call that needs approval is held to the same limits before a person is asked, and reserves nothing until it is
  allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.domain.actions import Action, PastAction, ServiceLease
from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.domain.chains import escalation
from claudeops.domain.chains.cooldown import over_limit
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.estate.service_names import container_of, counted_by, names_of_container, other_names_of
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.sessions import LOWEST_TIER, Session
from claudeops.structs import replace
from claudeops.text import WHERE_KINDS, clip, parts, regex

NO_LONGER_APPROVED: Final = "the approval is no longer valid: it was used before, or changed after it was given"

_SCOPES: Final = ("namespace:", "project:")
_MOST_NAMES: Final = 10  # in a sentence
_NEAR: Final = 16  # characters beside a name that show whether it goes on
_GOES_ON_BEFORE: Final = regex.Pattern(rf"(?:[{regex.WORD}.-]|[{regex.WORD}\]]/|\b(?:{'|'.join(WHERE_KINDS)}):)$")
_GOES_ON_AFTER: Final = regex.Pattern(rf"[{regex.WORD}-]|\.[{regex.WORD}]")
_GOES_ON_AFTER_OR_BELOW: Final = regex.Pattern(rf"[{regex.WORD}-]|[./][{regex.WORD}]")
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What a chain knows to be unwell from other sources than its running session."""

    unwell: frozenset[str] = frozenset()  # services, from earlier reports, handovers and our latest probes
    request: str = ""  # the words that started the chain


class GrantedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict that counts."""

    verdict: Verdict
    event: NewEvent | None = None  # set where a limit refused the call: an operator should know
    held_service: str | None = None  # the service whose limit refused the call


def grant(
    verdict: Verdict,
    *,
    session: Session,
    findings: Findings,
    ledger: Sequence[PastAction],
    rules: EscalationRules,
    now: datetime,
) -> GrantedVerdict:
    """Return the verdict that counts: without a grant for its actions an allow becomes a deny."""
    if verdict.kind is VerdictKind.DENY:
        return GrantedVerdict(verdict=replace(verdict, actions=()))
    counted = counted_by(rules.other_names)
    actions = tuple(Action(kind=clip(action.kind), service=clip(counted(action.service))) for action in verdict.actions)
    if session.tier > LOWEST_TIER:
        unfounded = next((action for action in actions if not found(action.service, findings, rules.other_names)), None)
        if unfounded is not None:
            return GrantedVerdict(verdict=Verdict(kind=VerdictKind.DENY, reason=_not_found(unfounded, findings)))
    if (held_back := _under_maintenance(actions, rules=rules, now=now)) is not None:
        return held_back
    return _within_limits(replace(verdict, actions=actions), ledger, rules=rules, now=now)


def under_repair(verdict: Verdict, held: Mapping[str, ServiceLease]) -> GrantedVerdict | None:
    """Refuse actions on services that another chain mends; ``None``: there is none among them."""
    for action in verdict.actions:
        lease = held.get(action.service)
        if lease is None:
            continue
        since = "" if lease.since is None else f" since {lease.since:%Y-%m-%d %H:%M} UTC"
        refusal = (
            f"{action.kind} of {action.service} refused: chain {lease.chain} has it under repair{since}, and one chain "
            "at a time changes a service; wait until that chain has ended, or escalate to people with what you see."
        )
        name = escalation.fingerprint("under_repair", action.service)
        event = NewEvent(level=EventLevel.INFO, service=action.service, message=refusal, fingerprint=name)
        return GrantedVerdict(verdict=Verdict(kind=VerdictKind.DENY, reason=refusal), event=event)
    return None


def found(service: str, findings: Findings, other_names: Mapping[str, str] = _NO_NAMES) -> bool:
    """Tell whether a service is known to be unwell, by any of its names in any case."""
    names = (service, *other_names_of(service, other_names))
    return any(_named(each.strip().casefold(), findings) for name in names for each in names_of_container(name))


def findings(
    *, reported: Iterable[tuple[str, str]], probed: Iterable[tuple[str, str]], session: Session, request: str | None
) -> Findings:
    """Return what is known; ``reported`` and ``probed`` are pairs of service and status."""
    handed_over = (
        (check.service, check.status.value) for check in (session.context.service_status if session.context else ())
    )
    known = (*reported, *probed, *handed_over)
    return Findings(
        unwell=frozenset(
            clip(name).strip().casefold()
            for service, status in known
            if status != ServiceStatus.HEALTHY.value
            for name in (service, container_of(service))
        ),
        request=request or "",
    )


def _named(name: str, findings: Findings) -> bool:
    if name in findings.unwell:
        return True
    # What monitors and reports call "shop/cart" is namespace:shop/cart, or project:shop/cart. In a request, where words
    # of people stand, it is the cart on a host called shop.
    if name.startswith(_SCOPES) and name.partition(":")[2] in findings.unwell:
        return True
    request = findings.request.casefold()
    # "web on web1 is down" names web1/web; "web" alone means the one on this machine.
    pieces = parts(name)
    return _mentions(request, name) or (len(pieces) > 1 and all(_mentions(request, piece) for piece in pieces))


def _mentions(request: str, name: str) -> bool:
    """Tell whether a text mentions a service by exactly this name.

    "web" is not mentioned by "webhook", "web-2" or "web.old", nor by "web1/web" or "project:web/db": those are
    other services. It is mentioned by "http://web/health".
    """
    at = request.find(name) if name else -1
    while at >= 0:
        end = at + len(name)
        before, after = request[max(0, at - _NEAR) : at], request[end : end + _NEAR]
        address = before.endswith("//")
        begins = address or not _GOES_ON_BEFORE.search(before)
        if begins and not (_GOES_ON_AFTER if address else _GOES_ON_AFTER_OR_BELOW).match(after):
            return True
        at = request.find(name, at + 1)
    return False


def _not_found(action: Action, findings: Findings) -> str:
    known = sorted(findings.unwell)[:_MOST_NAMES]
    others = f" (found unhealthy: {', '.join(known)})" if known else ""
    return (
        f"{action.kind} of {action.service} refused: neither an earlier session of this chain, nor a probe, nor the "
        f"request that started it found {action.service} unhealthy{others}; say in the report what you see: a later "
        "session may act on it."
    )


def _under_maintenance(actions: Sequence[Action], *, rules: EscalationRules, now: datetime) -> GrantedVerdict | None:
    """Refuse an action on a service that may be unwell on purpose; ``None``: there is none."""
    for action in actions:
        window = rules.maintenance_of(action.service, now)
        if window is not None:
            refusal = (
                f"{action.kind} of {action.service} refused: it is in its maintenance window ({window.text}) and "
                "may be unwell on purpose; say in the report what you see."
            )
            name = escalation.fingerprint("maintenance", action.kind, action.service)
            event = NewEvent(level=EventLevel.INFO, service=action.service, message=refusal, fingerprint=name)
            return GrantedVerdict(verdict=Verdict(kind=VerdictKind.DENY, reason=refusal), event=event)
    return None


def _within_limits(
    verdict: Verdict, ledger: Sequence[PastAction], *, rules: EscalationRules, now: datetime
) -> GrantedVerdict:
    used = list(ledger)
    for action in verdict.actions:
        refusal = over_limit(used, action, rules.limits, now)
        if refusal is not None:
            name = escalation.fingerprint("over_limit", action.kind, action.service)
            event = NewEvent(level=EventLevel.WARNING, service=action.service, message=refusal, fingerprint=name)
            denied = Verdict(kind=VerdictKind.DENY, reason=refusal)
            return GrantedVerdict(verdict=denied, event=event, held_service=action.service)
        used.append(PastAction(kind=action.kind, service=action.service, at=now))
    return GrantedVerdict(verdict=verdict)
