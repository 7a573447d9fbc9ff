"""What sessions did and did not do: when they were queued, started and ended, and which of their calls did not run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Select, case, select, true

from claudeops.domain.calls import VerdictKind
from claudeops.domain.chains.escalation import handover_services
from claudeops.domain.gate.approval import ApprovalStatus
from claudeops.domain.sessions import DecisionReason, Outcome, Status
from claudeops.domain.why import Reason, WhyKind
from claudeops.store.reading.why.beside_sessions import LINGERS, MOST, OpenQuestion
from claudeops.store.rows import TableRow, to_handover, to_names
from claudeops.store.tables.alerting import incidents
from claudeops.store.tables.approvals import approvals
from claudeops.store.tables.daemon import instances
from claudeops.store.tables.sessions import cooldown_actions, service_checks, sessions, tool_calls
from claudeops.structs import replace
from claudeops.text import casefold_key
from claudeops.wording import why

_ROOT: Final = sessions.alias("root")
_COLUMNS: Final = (
    *(sessions.c.id, sessions.c.root_session_id.label("chain"), sessions.c.tier, sessions.c.trigger),
    *(sessions.c.outcome, sessions.c.decision_reason, sessions.c.error, sessions.c.context, sessions.c.incident_id),
    *(sessions.c.created_at, sessions.c.not_before, sessions.c.started_at, sessions.c.ended_at),
    case((sessions.c.status == Status.QUEUED.value, sessions.c.site)).label("waits_for_site"),
    case((sessions.c.status == Status.QUEUED.value, sessions.c.for_node)).label("waits_for_node"),
    *(_ROOT.c.services.label("asked_for"), incidents.c.services.label("alerted")),
)
_NODES: Final = select(instances.c.owner)
_OPEN: Final = (Status.QUEUED.value, Status.RUNNING.value)
_WITHOUT_YES: Final = (ApprovalStatus.PENDING.value, ApprovalStatus.EXPIRED.value, ApprovalStatus.DENIED.value)


class Sessions(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that were queued or ran in the time asked for, by their ids."""

    own: Mapping[int, TableRow]  # that concern the service; all of them, where none is named
    rounds: Mapping[int, TableRow]  # that were asked to look at everything, and say nothing of the service


def sessions_of(asked: OpenQuestion) -> Sessions:
    """Return the sessions that concern the service, and those that might have."""
    joined = (
        select(*_COLUMNS)
        .outerjoin(_ROOT, _ROOT.c.id == sessions.c.root_session_id)
        .outerjoin(incidents, incidents.c.number == sessions.c.incident_id)
        .where(sessions.c.created_at < asked.until)
    )
    over = joined.where(sessions.c.ended_at >= asked.since, sessions.c.ended_at < asked.until + LINGERS)
    under_way = joined.where(sessions.c.status.in_(_OPEN)).order_by(sessions.c.created_at.desc())
    rows = (*asked.rows(over.order_by(sessions.c.ended_at.desc()), most=MOST), *asked.rows(under_way, most=MOST))
    found = {row.id: row for row in rows}
    if asked.service is None:
        return Sessions(own=found, rounds={})
    touched = _touched(asked, list(found))
    own, rounds = {}, {}
    for number, row in found.items():
        names = _named_by(row)
        if number in touched or (names and asked.is_about(names)):
            own[number] = row
        elif not names:
            rounds[number] = row
    return Sessions(own=own, rounds=rounds)


def begun(asked: OpenQuestion, rows: Mapping[int, TableRow]) -> Iterator[Reason]:
    """Yield when sessions were queued, if they waited, and when they started."""
    for row in rows.values():
        name = why.session_name(row.id, row.tier, row.trigger)
        waited = None if row.started_at is None else row.started_at - row.created_at
        if asked.has(row.created_at) and (waited is None or why.is_long(waited)):
            yield _reason(row, row.created_at, why.session_queued(name, row.not_before))
        if (unserved := _unserved(asked, row, name)) is not None:
            yield _reason(row, row.created_at, unserved)
        if waited is not None and asked.has(row.started_at):
            yield _reason(row, row.started_at, why.session_started(name, waited))


def _unserved(asked: OpenQuestion, row: TableRow, name: str) -> why.Sentence | None:
    """Say what a session waits for that does not run; ``None``: it waits for nothing of the kind."""
    site, node = row.waits_for_site, row.waits_for_node
    if site is None and node is None:
        return None
    of_site = true() if site is None else instances.c.site == site
    of_node = true() if node is None else instances.c.node == node
    if asked.rows(_NODES.where(instances.c.is_alone | (of_site & of_node)), most=1):
        return None
    return why.session_unserved(name, site) if node is None else why.session_waits_for_node(name, node, row.id)


def ended(asked: OpenQuestion, rows: Mapping[int, TableRow]) -> Iterator[Reason]:
    """Yield how sessions ended."""
    for row in rows.values():
        if row.outcome is not None and asked.has(row.ended_at):
            name = why.session_name(row.id, row.tier, row.trigger)
            decided = None if row.decision_reason is None else DecisionReason(row.decision_reason)
            yield _reason(row, row.ended_at, why.session_ended(name, Outcome(row.outcome), decided, row.error))


def refused(asked: OpenQuestion, found: Sessions) -> Iterator[Reason]:
    """Yield the calls that the gate let not run; of a round, those that name the service."""
    calls, of = tool_calls.c, {**found.rounds, **found.own}
    query = (
        select(tool_calls)
        .where(calls.session_id.in_(list(of)), calls.verdict != VerdictKind.ALLOW.value)
        .where(asked.within(calls.requested_at))
        .order_by(calls.requested_at.desc())
    )
    for row in asked.rows(query, most=MOST) if of else ():
        if row.session_id in found.rounds and not _mentions(asked, row):
            continue
        if row.held_service is not None:
            kind, said = WhyKind.COOLDOWN, why.limit_reached(row.session_id, row.reason)
        else:
            asks = row.verdict == VerdictKind.ASK.value
            said = why.call_refused(row.session_id, row.tool_name, row.input, row.reason, asks=asks)
            kind = WhyKind.CALL
        yield _reason(of[row.session_id], row.requested_at, said, kind=kind)


def unanswered(asked: OpenQuestion, found: Sessions) -> Iterator[Reason]:
    """Yield the questions to people that brought no yes."""
    of = approvals.c
    query = (
        select(approvals, sessions.c.root_session_id.label("chain"), sessions.c.incident_id)
        .join(sessions, sessions.c.id == of.session_id)
        # A question is closed before its time is over, never after.
        .where(of.status.in_(_WITHOUT_YES), of.expires_at >= asked.since, of.requested_at < asked.until)
        .order_by(of.expires_at.desc())
    )
    for row in asked.rows(query, most=MOST):
        if row.session_id not in found.own and not asked.is_about(to_names(row.services)):
            continue
        at = row.decided_at or row.requested_at
        if row.decided_at is None or asked.has(row.decided_at):
            reason = _reason(row, at, _question(row), kind=WhyKind.APPROVAL)
            yield replace(reason, session_id=row.session_id)


def _question(row: TableRow) -> why.Sentence:
    call = why.question_call(row.tool_name, row.input)
    match ApprovalStatus(row.status):
        case ApprovalStatus.PENDING:
            return why.question_waits(row.id, call, row.expires_at)
        case ApprovalStatus.DENIED:
            return why.question_denied(row.id, call, row.decided_by)
        case _:
            at = row.decided_at or row.expires_at
            return why.question_expired(row.id, call, in_time=row.expires_at, at=at)


def _touched(asked: OpenQuestion, numbers: Sequence[int]) -> frozenset[int]:
    """Return those of some sessions that have looked at the service, or acted on it."""
    if not numbers:
        return frozenset()
    found: set[int] = set()
    for table in (service_checks, cooldown_actions):
        query: Select[tuple[int, str]] = select(table.c.session_id, table.c.service)
        rows = asked.rows(query.where(table.c.session_id.in_(numbers)).distinct(), most=MOST * 10)
        found |= {row.session_id for row in rows if asked.is_about([row.service])}
    return frozenset(found)


def _named_by(row: TableRow) -> tuple[str, ...]:
    """Return the services that a session was started for; none: for a look at everything."""
    handover = to_handover(row.context)
    handed = () if handover is None else (*handover_services(handover), *handover.started_for)
    return (*to_names(row.asked_for), *to_names(row.alerted), *handed)


def _mentions(asked: OpenQuestion, row: TableRow) -> bool:
    if asked.service is None:
        return True
    return asked.is_about([row.held_service]) or casefold_key(asked.service) in row.input.casefold()


def _reason(row: TableRow, at: datetime, said: why.Sentence, *, kind: WhyKind = WhyKind.SESSION) -> Reason:
    text, level = said
    return Reason(
        at=at, kind=kind, text=text, level=level, session_id=row.id, chain=row.chain, incident=row.incident_id
    )
