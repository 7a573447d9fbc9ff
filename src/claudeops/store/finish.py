"""The end of a session: everything that is written in its transaction, in order.

A report that comes late, after a session was lost, shares some of the steps. The transaction is the caller's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, Integer, bindparam, exists, func, insert, select, update

from claudeops.domain.actions import PastAction
from claudeops.domain.calls import ToolEnd, VerdictKind
from claudeops.domain.chains.consequences import (
    Consequences,
    EndFacts,
    LastSeen,
    conclude,
    fingerprinted,
    healthy_services,
)
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.holds import REFUSALS, HoldKind, when_ended
from claudeops.domain.memories.confidence import FADES_AFTER
from claudeops.domain.notices.notice import Announcement
from claudeops.domain.probes.probe import ProbeSight
from claudeops.domain.report.evidence import BROKEN, KnownServices
from claudeops.domain.report.report import CheckSource, Report, ServiceCheck
from claudeops.domain.sessions import DecisionReason, Ending, Session, Status
from claudeops.domain.spending.budget import metered
from claudeops.domain.spending.prices import known_usd
from claudeops.errors import StaleAttemptError
from claudeops.policy.audit import seal
from claudeops.store import action_ledger, changes, holds, queries, spend
from claudeops.store.alerts.announcements import Noted, goes_on, left
from claudeops.store.alerts.incidents import note_end
from claudeops.store.approvals import close_approvals
from claudeops.store.calls import add_refusals, sealed
from claudeops.store.events import raise_event, resolve_events
from claudeops.store.knowledge.memories import give_up_faded, remember, shelf
from claudeops.store.rows import TableRow
from claudeops.store.session_columns import CHANGE_SESSION, ended_values
from claudeops.store.tables.alerting import is_unresolved
from claudeops.store.tables.approvals import approvals
from claudeops.store.tables.daemon import flags
from claudeops.store.tables.events import events
from claudeops.store.tables.memories import memories
from claudeops.store.tables.probes import probes
from claudeops.store.tables.sessions import (
    budget_entries,
    cooldown_actions,
    model_calls,
    service_checks,
    sessions,
    tool_calls,
)
from claudeops.text import clip

# Built once: every end of a session runs these.
_ADD_CHECK: Final = insert(service_checks)
_SETTLE_ACTION: Final = update(cooldown_actions).where(cooldown_actions.c.id == bindparam("action"))
_COUNTED: Final = select(cooldown_actions.c.id, cooldown_actions.c.service).where(
    cooldown_actions.c.cleared_at.is_(None)
)
_CLEAR_ACTIONS: Final = update(cooldown_actions).where(cooldown_actions.c.id.in_(bindparam("actions", expanding=True)))
_OF_SESSION: Final = bindparam("session", type_=Integer)
_OF_CHAIN: Final = bindparam("root", type_=Integer)
_CHAIN: Final = select(sessions.c.id).where(sessions.c.root_session_id == _OF_CHAIN)
_SELF: Final = sessions.c.id == _OF_SESSION
_ACTION: Final = cooldown_actions.c
_ENTRY: Final = budget_entries.c
_SPENT: Final = func.coalesce(func.sum(_ENTRY.amount_usd), 0.0)
_THERE: Final = select(
    select(sessions.c.started_at).where(sessions.c.id == _OF_CHAIN).scalar_subquery().label("chain_started_at"),
    select(sessions.c.incident_id).where(_SELF).scalar_subquery().label("incident_id"),
    select(sessions.c.audit_head).where(_SELF).scalar_subquery().label("audit_head"),
    select(_SPENT).where(_ENTRY.kind == "settled", _ENTRY.session_id.in_(_CHAIN)).scalar_subquery().label("chain_usd"),
    select(func.sum(_ENTRY.amount_usd))
    .where(_ENTRY.kind == "reserved", _ENTRY.session_id == _OF_SESSION)
    .scalar_subquery()
    .label("reserved_usd"),
    exists().where(model_calls.c.session_id == _OF_SESSION).label("model_calls"),
    exists().where(tool_calls.c.session_id == _OF_SESSION).label("tool_calls"),
    exists().where(tool_calls.c.session_id.in_(_CHAIN), tool_calls.c.held_service.is_not(None)).label("held_services"),
    exists().where(approvals.c.session_id == _OF_SESSION).label("approvals"),
    exists().where(_ACTION.cleared_at.is_(None)).label("counted_actions"),
    exists().where(_ACTION.session_id == _OF_SESSION).label("own_actions"),
    exists().where(_ACTION.session_id.in_(_CHAIN)).label("chain_actions"),
    exists().where(_ACTION.follow_up_id == _OF_CHAIN, _ACTION.held.is_(None)).label("followed_actions"),
    exists().where(probes.c.name.is_not(None)).label("probes"),
    exists().where(is_unresolved).label("open_incidents"),
    exists().where(events.c.resolved_at.is_(None)).label("open_events"),
    exists().where(memories.c.active, memories.c.updated_at <= bindparam("faded")).label("fading_memories"),
    exists().where(flags.c.name.is_not(None)).label("holds"),
)
"""What the end of a session may have to read: for most sessions it is not there, and one statement says so."""

_END_CALL: Final = update(tool_calls).where(
    tool_calls.c.session_id == bindparam("session"),
    tool_calls.c.tool_use_id == bindparam("call"),
    tool_calls.c.verdict != VerdictKind.ASK.value,  # the answer to a question has a row of its own
)


def write_end(
    connection: Connection, session: Session, ending: Ending, there: TableRow, *, rules: EscalationRules
) -> tuple[Consequences, str, str]:
    """Write a session's end and everything that follows from it, except the next session.

    ``there`` is what `what_is_there` has found in the same transaction. Returns the consequences, and the head and the
    seal of the session's calls.
    """
    at = ending.ended_at
    ending, spent = _booked(connection, ending, there)
    facts = end_facts(connection, session, ending, rules, spent=spent, there=there)
    outcome = conclude(ending, facts, rules=rules)
    _end_calls(connection, session.id, ending.tool_ends)
    head = add_refusals(connection, session.id, ending.refusals, head=there.audit_head)
    results = sealed(connection, session.id) if there.tool_calls or ending.refusals else seal(())
    _end(connection, session, ending, outcome, audit_head=head, audit_results=results)
    if there.approvals:
        close_approvals(connection, session.id, at=at)
    settle_actions(connection, outcome.settlements)
    spend.settle(connection, session.id, spent, reserved_usd=there.reserved_usd, at=at)
    record_checks(connection, session.id, outcome.checks, at=at)
    names = KnownServices(rules.other_names, clip)
    _clear_cooldowns(connection, outcome.recovered, names, at=at)
    remember(connection, session, outcome.memories, at=at)
    if there.fading_memories or outcome.memories:
        give_up_faded(connection, at)
    noted = note_end(connection, session, ending, outcome, names=names, there=there)
    _tell(connection, ending, outcome, facts, noted=noted, names=names, spent=spent)
    changes.write_held(connection, outcome.held, at=at)
    if there.open_events or outcome.events or noted.own is not None:
        healthy, all_healthy = outcome.healthy_services, outcome.all_healthy
        resolve_events(connection, session, healthy=healthy, all_healthy=all_healthy, names=names, at=at)
    standing = holds.standing(connection, at) if there.holds else ()
    holds.apply(connection, when_ended(standing, ending, at), now=at, session_id=session.id)
    return outcome, head, results


def what_is_there(connection: Connection, session: Session, *, at: datetime) -> TableRow:
    """Return which rows there are that matter for the end of a session: columns as in `_THERE`."""
    of_session = {"session": session.id, "root": session.root_session_id, "faded": at - FADES_AFTER}
    return connection.execute(_THERE, of_session).one()


def running(connection: Connection, ending: Ending) -> Session:
    """Return the session that ends; raises `StaleAttemptError` if it is not running as ``ending.attempt``."""
    session = queries.session(connection, ending.session_id)
    if session is None or session.status is not Status.RUNNING or session.attempt != ending.attempt:
        raise StaleAttemptError(f"session {ending.session_id} is no longer running as attempt {ending.attempt}.")
    return session


def _tell(
    connection: Connection,
    ending: Ending,
    outcome: Consequences,
    facts: EndFacts,
    *,
    noted: Noted,
    names: KnownServices,
    spent: float | None,
) -> None:
    """Raise the events of an end, and tell people of it: whether the next tier takes over, or nobody does."""
    session, at, decision = facts.session, ending.ended_at, outcome.decision
    succeeded = {settled.id for settled in outcome.settlements if settled.success}
    end = Announcement(
        tier=session.tier,
        cost_usd=facts.chain_usd,
        done=tuple(f"{each.kind} {each.service}" for each in facts.reservations if each.id in succeeded),
        denied=tuple(f"{each.kind} {each.service}" for each in facts.reservations if each.is_denied),
    )
    decided = {fingerprinted(event).fingerprint for event in decision.events}
    is_held = REFUSALS.get(ending.failure_kind) is HoldKind.BREAKER if ending.failure_kind else False
    for event in outcome.events:
        if event.fingerprint in decided and decision.next is None and not is_held:
            why = decision.reason
            left(connection, session, event, why, end, at=at, own=noted.own, is_new=noted.is_new)
            continue
        is_told = noted.tells(event, names) or (event.fingerprint in decided and is_held)  # the hold tells it
        about = Announcement(tier=session.tier, cost_usd=spent, quiet=is_told)
        raise_event(connection, event, session_id=session.id, at=at, about=about)
    if decision.next is not None and decision.reason is DecisionReason.ESCALATED:
        goes_on(connection, session, decision.next, noted, end, at=at)


def settle_actions(connection: Connection, settlements: Iterable[PastAction]) -> None:
    """Write what became of the reserved actions."""
    for settled in settlements:
        values = {"success": settled.success, "error": settled.error}
        connection.execute(_SETTLE_ACTION, {"action": settled.id, **values})


def book(connection: Connection, session_id: int, cost_usd: float | None, *, at: datetime) -> None:
    """Book what a session cost, if that is known."""
    amount = known_usd(cost_usd)
    if amount is None:
        return
    entry = {"kind": "settled", "amount_usd": amount, "created_at": at}
    connection.execute(insert(budget_entries).values(session_id=session_id, **entry))


def record_checks(connection: Connection, session_id: int, checks: Sequence[ServiceCheck], *, at: datetime) -> None:
    """Write the service checks of a report."""
    rows = [
        {
            "session_id": session_id,
            "service": check.service,
            "status": check.status.value,
            "detail": check.detail,
            "source": CheckSource.REPORT.value,
            "checked_at": at,
        }
        for check in checks
    ]
    if rows:
        connection.execute(_ADD_CHECK, rows)


def _booked(connection: Connection, ending: Ending, there: TableRow) -> tuple[Ending, float | None]:
    """Return the ending with the booked usage, and the amount that budgets count for it."""
    if not there.model_calls:
        return ending, ending.cost_usd
    for state in ending.unbooked:
        spend.book_call(connection, state)
    spend.close_calls(connection, ending.session_id, at=ending.ended_at, error=spend.NOT_SEEN_TO_END)
    calls = spend.booked_calls(connection, ending.session_id)
    return metered(ending, calls), calls.charged_usd if calls.count else ending.cost_usd


def end_facts(
    connection: Connection,
    session: Session,
    ending: Ending,
    rules: EscalationRules,
    *,
    spent: float | None,
    there: TableRow | None = None,
) -> EndFacts:
    """Return what is on record that matters for the end of a session; ``spent``: what it cost, in US dollars."""
    report = ending.extraction.report
    there = there or what_is_there(connection, session, at=ending.ended_at)
    chain, names = session.root_session_id, KnownServices(rules.other_names, clip)
    sights = queries.sights(connection) if there.probes else ()
    healthy = healthy_services(report) if there.counted_actions else ()  # else there is no counter to clear
    return EndFacts(
        session=session,
        ledger=action_ledger.counted(connection, rules, ending.ended_at) if there.counted_actions else (),
        shelf=shelf(connection, session, report),
        reservations=action_ledger.reservations(connection, session.id) if there.own_actions else (),
        last_seen=_last_seen(connection, session, healthy, names, sights),
        chain_started_at=there.chain_started_at,
        before=queries.background(connection, session, rules.other_names, there=there),
        held_services=queries.held_services(connection, chain) if there.held_services else (),
        probes=sights,
        chain_usd=float(there.chain_usd) + (spent or 0.0),
        changed=changes.of_others(connection, session, now=ending.ended_at) if _is_anything_broken(report) else (),
        followed=changes.followed(connection, chain) if there.followed_actions else (),
    )


def _is_anything_broken(report: Report | None) -> bool:
    return report is not None and any(check.status in BROKEN for check in report.services_checked)


def _end(
    connection: Connection,
    session: Session,
    ending: Ending,
    outcome: Consequences,
    **audit: str,
) -> None:
    values = ended_values(
        ending,
        cli_session_id=session.cli_session_id,
        reason=outcome.decision.reason,
        warnings=outcome.warnings,
    )
    connection.execute(CHANGE_SESSION, {"session": session.id, **values, **audit})


def _end_calls(connection: Connection, session_id: int, ends: Iterable[ToolEnd]) -> None:
    for end in ends:
        ended = {"ended_at": end.ended_at, "is_error": end.is_error}
        connection.execute(_END_CALL, {"session": session_id, "call": end.tool_use_id, **ended})


def _last_seen(
    connection: Connection,
    session: Session,
    services: Collection[str],
    names: KnownServices,
    sights: Sequence[ProbeSight],
) -> Mapping[str, LastSeen]:
    if not services:
        return {}
    known = queries.spellings(connection, names)
    seen = {}
    for name in services:
        own = [sight for sight in sights if names.of(sight.service) == names.of(name)]
        seen[name] = queries.last_seen(connection, known.get(names.of(name), ()), probes=own, besides=session.id)
    return {name: last for name, last in seen.items() if last is not None}


def _clear_cooldowns(connection: Connection, services: Sequence[str], names: KnownServices, *, at: datetime) -> None:
    if not services:
        return
    recovered = set(map(names.of, services))
    actions = [row.id for row in connection.execute(_COUNTED) if names.of(row.service) in recovered]
    if actions:
        connection.execute(_CLEAR_ACTIONS, {"actions": actions, "cleared_at": at})
