"""One chain as a tree: its sessions, what each was allowed and refused, did, found and cost, and why it went on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Select, func, select

from claudeops.domain.calls import VerdictKind
from claudeops.domain.events import EventLevel
from claudeops.domain.report.report import ExtractionMethod, ServiceStatus
from claudeops.domain.sessions import DecisionReason, Outcome, Status
from claudeops.store.reading.services import ActionEntry, to_action
from claudeops.store.rows import TableRow, to_handover, to_warnings
from claudeops.store.tables.events import events
from claudeops.store.tables.sessions import cooldown_actions, service_checks, sessions, tool_calls

T = TypeVar("T")

_MOST_REFUSALS = 20  # refused calls that a session is shown with


class RefusedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that did not run as it was asked for."""

    tool_name: str
    input: str  # redacted JSON
    verdict: VerdictKind
    reason: str


class ReportedService(msgspec.Struct, frozen=True, kw_only=True):
    """What a session reported of a service."""

    service: str
    status: ServiceStatus
    detail: str | None


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a session raised."""

    event_id: int
    level: EventLevel
    service: str | None
    message: str
    resolved_at: datetime | None


class ChainSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a chain."""

    session_id: int
    parent_session_id: int | None
    tier: int
    trigger: str
    started_by: str | None  # the person or token; None: the daemon itself
    model: str
    harness: str
    status: Status
    outcome: Outcome | None
    decision_reason: DecisionReason | None
    extraction_method: ExtractionMethod | None
    reason: str | None  # why it was started, in the words of the session before
    prompt: str | None  # that a person or an alert gave
    summary: str | None
    error: str | None
    warnings: tuple[str, ...]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    duration_ms: int | None
    num_turns: int | None
    cost_usd: float | None
    log_path: str | None
    verdicts: Mapping[str, int]  # how many calls got which
    refused: tuple[RefusedCall, ...]
    actions: tuple[ActionEntry, ...]
    checks: tuple[ReportedService, ...]
    events: tuple[Raised, ...]


class ChainTree(msgspec.Struct, frozen=True, kw_only=True):
    """A chain: the answer of ``chain``."""

    chain: int  # the id of its first session
    found: bool = True  # always: what does not exist has an answer of its own
    sessions_count: int
    status: Status  # running while one of its sessions runs, ended once all have
    decision_reason: DecisionReason | None  # of its last session
    cost_usd: float | None  # what is known of it; None where nothing is
    sessions: tuple[ChainSession, ...]  # in the order in which they were queued
    followed_up_by: tuple[int, ...]  # chains that looked whether its repairs held
    follows_up: tuple[int, ...]  # chains whose repairs this one looks at


def chain_of(connection: Connection, session_id: int) -> int | None:
    """Return the chain that a session belongs to; None: there is no such session."""
    return connection.execute(
        select(sessions.c.root_session_id).where(sessions.c.id == session_id)
    ).scalar_one_or_none()


def tree(connection: Connection, chain: int) -> ChainTree:
    """Return a chain with everything on record about it; one without sessions has ended."""
    rows = connection.execute(select(sessions).where(sessions.c.root_session_id == chain).order_by(sessions.c.id)).all()
    of = _Details(
        verdicts=_verdicts(connection, chain),
        refused=_by_session(connection, _refusals(chain), _refused),
        actions=_by_session(connection, _of_chain(cooldown_actions, chain), to_action),
        checks=_by_session(connection, _of_chain(service_checks, chain), _seen),
        events=_by_session(connection, _of_chain(events, chain), _raised),
    )
    looked = {entry.follow_up_session_id for found in of.actions.values() for entry in found}
    shown = tuple(_session(row, of) for row in rows)
    known = [session.cost_usd for session in shown if session.cost_usd is not None]
    return ChainTree(
        chain=chain,
        sessions_count=len(shown),
        status=_status(shown),
        decision_reason=shown[-1].decision_reason if shown else None,
        cost_usd=sum(known) if known else None,
        sessions=shown,
        followed_up_by=tuple(sorted(number for number in looked if number is not None)),
        follows_up=tuple(row[0] for row in connection.execute(_looked_at(chain))),
    )


class _Details(msgspec.Struct, frozen=True, kw_only=True):
    """What other tables hold, by session."""

    verdicts: Mapping[int, Mapping[str, int]]
    refused: Mapping[int, Sequence[RefusedCall]]
    actions: Mapping[int, Sequence[ActionEntry]]
    checks: Mapping[int, Sequence[ReportedService]]
    events: Mapping[int, Sequence[Raised]]


def _status(shown: Sequence[ChainSession]) -> Status:
    left = [session.status for session in shown if session.status is not Status.ENDED]
    return Status.RUNNING if Status.RUNNING in left else left[0] if left else Status.ENDED


def _of_chain(table: Any, chain: int) -> Select[Any]:
    query = select(table, sessions.c.root_session_id).join(sessions, sessions.c.id == table.c.session_id)
    return query.where(sessions.c.root_session_id == chain).order_by(table.c.id)


def _refusals(chain: int) -> Select[Any]:
    return _of_chain(tool_calls, chain).where(tool_calls.c.verdict != VerdictKind.ALLOW.value)


def _looked_at(chain: int) -> Select[Any]:
    """Return the question for the chains whose repairs a chain looks at."""
    acted = sessions.alias("acted")
    looks = cooldown_actions.join(acted, acted.c.id == cooldown_actions.c.session_id)
    query = select(acted.c.root_session_id).select_from(looks).where(cooldown_actions.c.follow_up_id == chain)
    return query.distinct().order_by(acted.c.root_session_id)


def _by_session(connection: Connection, query: Select[Any], read: Callable[[TableRow], T]) -> Mapping[int, Sequence[T]]:
    found: defaultdict[int, list[T]] = defaultdict(list)
    for row in connection.execute(query):
        found[row.session_id].append(read(row))
    return found


def _verdicts(connection: Connection, chain: int) -> Mapping[int, Mapping[str, int]]:
    query = (
        select(tool_calls.c.session_id, tool_calls.c.verdict, func.count())
        .join(sessions, sessions.c.id == tool_calls.c.session_id)
        .where(sessions.c.root_session_id == chain)
        .group_by(tool_calls.c.session_id, tool_calls.c.verdict)
    )
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for session_id, verdict, count in connection.execute(query):
        found[session_id][verdict] = count
    return found


def _session(row: TableRow, of: _Details) -> ChainSession:
    handover = to_handover(row.context)
    return ChainSession(
        session_id=row.id,
        parent_session_id=row.parent_session_id,
        tier=row.tier,
        trigger=row.trigger,
        started_by=row.started_by,
        model=row.model,
        harness=row.harness,
        status=Status(row.status),
        outcome=None if row.outcome is None else Outcome(row.outcome),
        decision_reason=None if row.decision_reason is None else DecisionReason(row.decision_reason),
        extraction_method=None if row.extraction_method is None else ExtractionMethod(row.extraction_method),
        reason=None if handover is None else handover.reason,
        prompt=row.prompt_text,
        summary=row.summary,
        error=row.error,
        warnings=to_warnings(row.warnings),
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        duration_ms=row.duration_ms,
        num_turns=row.num_turns,
        cost_usd=row.cost_usd,
        log_path=row.log_path,
        verdicts=_counts(of.verdicts.get(row.id, {})),
        refused=tuple(of.refused.get(row.id, ()))[:_MOST_REFUSALS],
        actions=tuple(of.actions.get(row.id, ())),
        checks=tuple(of.checks.get(row.id, ())),
        events=tuple(of.events.get(row.id, ())),
    )


def _counts(found: Mapping[str, int]) -> Mapping[str, int]:
    kinds: Iterable[VerdictKind] = VerdictKind
    return {kind.value: found.get(kind.value, 0) for kind in kinds}


def _refused(row: TableRow) -> RefusedCall:
    return RefusedCall(tool_name=row.tool_name, input=row.input, verdict=VerdictKind(row.verdict), reason=row.reason)


def _seen(row: TableRow) -> ReportedService:
    return ReportedService(service=row.service, status=ServiceStatus(row.status), detail=row.detail)


def _raised(row: TableRow) -> Raised:
    return Raised(
        event_id=row.id,
        level=EventLevel(row.level),
        service=row.service,
        message=row.message,
        resolved_at=row.resolved_at,
    )
