"""What is read: each function takes an open connection and answers from one snapshot.

What is on record about a session, for those who read its log beside it.

What a chain did, read for whoever tells of it.

What the tables hold that bears on whether a report is believed, as values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Final

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, bindparam, case, false, func, not_, or_, select

from claudeops.domain import memory
from claudeops.domain.chain_record import (
    ChainRecord,
    Judged,
    KnownAction,
    KnownCall,
    KnownEvent,
    SessionPosition,
    SessionRecord,
)
from claudeops.domain.consequences import NO_RESULT_SEEN, NO_WITNESSES, LastSeen, Reservation
from claudeops.domain.escalation import EscalationRules
from claudeops.domain.gate import grants
from claudeops.domain.gate.audit import TOO_LATE
from claudeops.domain.live import EventRaised
from claudeops.domain.memory import KnownMemory
from claudeops.domain.model import (
    CheckSource,
    Level,
    Memory,
    PastAction,
    ServiceStatus,
    Session,
    Status,
    Verdict,
    VerdictKind,
)
from claudeops.domain.report import evidence
from claudeops.domain.report.evidence import Background, Names, PastCheck
from claudeops.domain.text import clip
from claudeops.store.rows import TableRow, to_handover, to_known_memory, to_past_action, to_session
from claudeops.store.tables import (
    cooldown_actions,
    events,
    memories,
    schedule_fires,
    service_checks,
    sessions,
    tool_calls,
)

# Statements that every claim and every end of a session needs are put together once: building and compiling one takes
# three times as long as running it.
_SESSION: Final = select(sessions).where(sessions.c.id == bindparam("session"))
_STARTED_AT: Final = select(sessions.c.started_at).where(sessions.c.id == bindparam("session"))
_KNOWN_MEMORIES: Final = (
    select(memories).where(memories.c.category.in_(bindparam("categories", expanding=True))).order_by(memories.c.id)
)
_FADING: Final = select(memories).where(memories.c.active, memories.c.updated_at <= bindparam("since"))
_LEDGER: Final = select(cooldown_actions).where(
    cooldown_actions.c.cleared_at.is_(None), cooldown_actions.c.timestamp > bindparam("since")
)
_HELD_SERVICES: Final = (
    select(tool_calls.c.held_service)
    .join(sessions, sessions.c.id == tool_calls.c.session_id)
    .where(sessions.c.root_session_id == bindparam("root"), tool_calls.c.held_service.is_not(None))
    .distinct()
    .order_by(tool_calls.c.held_service)
)
_ACTIONS: Final = select(cooldown_actions).where(cooldown_actions.c.session_id == bindparam("session"))
_BEFORE: Final = and_(sessions.c.root_session_id == bindparam("root"), sessions.c.id < bindparam("session"))
_EARLIER: Final = select(sessions.c.context, sessions.c.prompt_text).where(_BEFORE).order_by(sessions.c.id)
_EARLIER_CHECKS: Final = (
    select(service_checks)
    .join(sessions, sessions.c.id == service_checks.c.session_id)
    .where(_BEFORE)
    .order_by(service_checks.c.session_id, service_checks.c.id)
)
_EARLIER_ACTIONS: Final = (
    select(cooldown_actions)
    .join(sessions, sessions.c.id == cooldown_actions.c.session_id)
    .where(_BEFORE)
    .order_by(cooldown_actions.c.session_id, cooldown_actions.c.id)
)
_ROOT: Final = sessions.alias("root")
_LAST_CHECK: Final = (
    select(service_checks.c.status, service_checks.c.checked_at, service_checks.c.session_id, _ROOT.c.started_at)
    .outerjoin(sessions, sessions.c.id == service_checks.c.session_id)
    .outerjoin(_ROOT, _ROOT.c.id == sessions.c.root_session_id)
    .where(
        service_checks.c.service == bindparam("name"),
        service_checks.c.session_id.is_distinct_from(bindparam("besides")),
        not_(  # it vouches for nothing
            and_(
                service_checks.c.status == ServiceStatus.HEALTHY.value,
                func.coalesce(sessions.c.outcome.in_([outcome.value for outcome in NO_WITNESSES]), false()),
            )
        ),
    )
    .order_by(service_checks.c.id.desc())
    .limit(1)
)
_LAST_ACTION: Final = select(func.max(cooldown_actions.c.timestamp)).where(
    cooldown_actions.c.service == bindparam("name"), cooldown_actions.c.cleared_at.is_(None)
)
_UNHEALTHY: Final = (
    select(service_checks.c.service)
    .where(
        service_checks.c.id.in_(select(func.max(service_checks.c.id)).group_by(service_checks.c.service)),
        service_checks.c.status != ServiceStatus.HEALTHY.value,
    )
    .order_by(service_checks.c.service)
)


# --- sessions ---------------------------------------------------------------------------------------------


def session(connection: Connection, session_id: int) -> Session | None:
    """Return one row."""
    row = connection.execute(_SESSION, {"session": session_id}).one_or_none()
    return None if row is None else to_session(row)


def chain(connection: Connection, root_session_id: int) -> tuple[Session, ...]:
    """Return a chain's sessions, oldest first."""
    query = select(sessions).where(sessions.c.root_session_id == root_session_id).order_by(sessions.c.id)
    return tuple(to_session(row) for row in connection.execute(query))


@cache
def due(*, of_chain: bool, of_tiers: bool) -> ColumnElement[bool]:
    """Return the condition of a session that may be claimed: ``now``, of a ``chain``, of some ``tiers``."""
    condition = (sessions.c.status == Status.QUEUED.value) & or_(
        sessions.c.not_before.is_(None), sessions.c.not_before <= bindparam("now")
    )
    if of_chain:
        condition &= sessions.c.root_session_id == bindparam("chain")
    if of_tiers:
        condition &= sessions.c.tier.in_(bindparam("tiers", expanding=True))
    return condition


@cache
def _anything_due(*, of_chain: bool, of_tiers: bool) -> Select[tuple[int]]:
    return select(sessions.c.id).where(due(of_chain=of_chain, of_tiers=of_tiers)).limit(1)


def anything_due(connection: Connection, now: datetime, *, chain: int | None, tiers: Sequence[int] | None) -> bool:
    """Tell whether a claim could find something."""
    query = _anything_due(of_chain=chain is not None, of_tiers=tiers is not None)
    return connection.execute(query, {"now": now, "chain": chain, "tiers": tiers}).first() is not None


def last_fire(connection: Connection, schedule: str) -> datetime | None:
    """Return the latest due time that was recorded for a schedule."""
    query = select(func.max(schedule_fires.c.due_at)).where(schedule_fires.c.schedule == schedule)
    return connection.execute(query).scalar_one_or_none()


def chain_unfinished(connection: Connection, schedule: str) -> bool:
    """Tell whether a chain that this schedule started has a session that has not ended."""
    query = (
        select(sessions.c.id)
        .join(schedule_fires, schedule_fires.c.session_id == sessions.c.root_session_id)
        .where(schedule_fires.c.schedule == schedule, sessions.c.status != Status.ENDED.value)
        .limit(1)
    )
    return connection.execute(query).first() is not None


# --- memories ---------------------------------------------------------------------------------------------


def believed(connection: Connection, now: datetime, limit: int) -> tuple[Memory, ...]:
    """Return the memories that are active now, with the confidence they have now, best first."""
    rows = connection.execute(select(memories).where(memories.c.active))
    return memory.believed(map(to_known_memory, rows), now, limit)


def known_memories(connection: Connection, categories: Iterable[str]) -> tuple[KnownMemory, ...]:
    """Return every memory of some categories, given up or not."""
    wanted = {"categories": sorted(set(categories))}
    return tuple(to_known_memory(row) for row in connection.execute(_KNOWN_MEMORIES, wanted))


def fading_memories(connection: Connection, now: datetime) -> tuple[KnownMemory, ...]:
    """Return active memories that have begun to fade."""
    return tuple(map(to_known_memory, connection.execute(_FADING, {"since": now - memory.FADES_AFTER})))


# --- tool calls -------------------------------------------------------------------------------------------


def allowed_calls(connection: Connection, session_id: int) -> frozenset[str]:
    """Return the ids of a session's calls that the gate allowed."""
    calls = tool_calls.c
    of_session = select(calls.tool_use_id).where(calls.session_id == session_id)
    allowed = connection.execute(of_session.where(calls.verdict == VerdictKind.ALLOW.value)).scalars()
    late = connection.execute(of_session.where(calls.reason == TOO_LATE)).scalars()
    return frozenset(allowed) - frozenset(late)


# --- cooldown ---------------------------------------------------------------------------------------------


def ledger(connection: Connection, rules: EscalationRules, now: datetime) -> tuple[PastAction, ...]:
    """Return the actions that any limit may still count."""
    longest = max((limit.window_seconds for limit in rules.limits.values()), default=0.0)
    return tuple(map(to_past_action, connection.execute(_LEDGER, {"since": now - timedelta(seconds=longest)})))


def findings(connection: Connection, session: Session) -> grants.Findings:
    """Return what is known to be unwell to a running session's chain, by somebody else than itself."""
    checks = service_checks.c
    reported = connection.execute(
        select(checks.service, checks.status)
        .join(sessions, sessions.c.id == checks.session_id)
        .where(sessions.c.root_session_id == session.root_session_id, sessions.c.id != session.id)
    )
    latest = select(func.max(checks.id)).where(checks.source == CheckSource.PROBE.value).group_by(checks.service)
    probed = connection.execute(select(checks.service, checks.status).where(checks.id.in_(latest)))
    request = select(sessions.c.prompt_text).where(sessions.c.id == session.root_session_id)
    return grants.findings(
        reported=[(row.service, row.status) for row in reported],
        probed=[(row.service, row.status) for row in probed],
        session=session,
        request=connection.execute(request).scalar_one_or_none(),
    )


def held_services(connection: Connection, root_session_id: int) -> tuple[str, ...]:
    """Return the services whose limit refused an action to a session of a chain."""
    return tuple(connection.execute(_HELD_SERVICES, {"root": root_session_id}).scalars())


def chain_started_at(connection: Connection, root_session_id: int) -> datetime | None:
    """Return when the first session of a chain was started."""
    return connection.execute(_STARTED_AT, {"session": root_session_id}).scalar_one_or_none()


def reservations(connection: Connection, session_id: int) -> tuple[Reservation, ...]:
    """Return a session's actions."""
    return tuple(map(to_reservation, connection.execute(_ACTIONS, {"session": session_id})))


def unseen_ends(connection: Connection, session_id: int) -> tuple[Reservation, ...]:
    """Return the actions of a session that were settled as never seen to end."""
    query = select(cooldown_actions).where(
        cooldown_actions.c.session_id == session_id, cooldown_actions.c.error == NO_RESULT_SEEN
    )
    return tuple(map(to_reservation, connection.execute(query)))


def background(connection: Connection, session: Session, other_names: Mapping[str, str]) -> Background:
    """Return what the earlier sessions of a chain have left before this one."""
    of_chain = {"root": session.root_session_id, "session": session.id}
    follows = session.id != session.root_session_id  # most sessions are the first of their chains, and ask nothing
    return to_background(
        session,
        earlier=connection.execute(_EARLIER, of_chain).all() if follows else (),
        checks=connection.execute(_EARLIER_CHECKS, of_chain) if follows else (),
        actions=connection.execute(_EARLIER_ACTIONS, of_chain) if follows else (),
        other_names=other_names,
    )


def unhealthy_services(connection: Connection) -> tuple[str, ...]:
    """Return the services whose latest check was not a healthy one."""
    return tuple(connection.execute(_UNHEALTHY).scalars())


def standing(connection: Connection, service: str, *, besides: int) -> LastSeen | None:
    """Return what sessions other than ``besides`` left about a service; ``None``: never checked."""
    last = connection.execute(_LAST_CHECK, {"name": service, "besides": besides}).one_or_none()
    if last is None:
        return None
    return LastSeen(
        status=ServiceStatus(last.status),
        looked_at=last.checked_at if last.session_id is None else last.started_at,
        last_action_at=connection.execute(_LAST_ACTION, {"name": service}).scalar_one_or_none(),
    )


def account(connection: Connection, session_id: int) -> SessionRecord:
    """Return the verdicts and events of a session."""
    calls = connection.execute(
        select(tool_calls).where(tool_calls.c.session_id == session_id).order_by(tool_calls.c.id)
    )
    raised = connection.execute(
        select(events)
        .where(or_(events.c.session_id == session_id, events.c.last_session_id == session_id))
        .order_by(events.c.id)
    )
    return _account(session_id, calls, raised)


def newest(connection: Connection) -> Session | None:
    """Return the running session that was claimed last, else the newest of all."""
    running_first = case((sessions.c.status == Status.RUNNING.value, 0), else_=1)
    row = connection.execute(select(sessions).order_by(running_first, sessions.c.id.desc()).limit(1)).one_or_none()
    return None if row is None else to_session(row)


def under_way(connection: Connection, after: int) -> tuple[SessionPosition, ...]:
    """Return the sessions that have not ended, and all with a higher id than ``after``, oldest first."""
    found = connection.execute(
        select(sessions.c.id, sessions.c.root_session_id, sessions.c.status)
        # Both by an index: asked for again and again.
        .where(or_(sessions.c.status.in_((Status.QUEUED.value, Status.RUNNING.value)), sessions.c.id > after))
        .order_by(sessions.c.id)
    )
    return tuple(map(_place, found))


def _place(row: TableRow) -> SessionPosition:
    return SessionPosition(session_id=row.id, chain=row.root_session_id, status=Status(row.status))


def _account(session_id: int, calls: Iterable[TableRow], raised: Iterable[TableRow]) -> SessionRecord:
    verdicts: defaultdict[str, list[Judged]] = defaultdict(list)
    for row in calls:
        verdict = Verdict(kind=VerdictKind(row.verdict), reason=row.reason)
        verdicts[row.tool_use_id].append(Judged(verdict=verdict, at=row.decided_at))
    return SessionRecord(
        verdicts={tool_use_id: tuple(given) for tool_use_id, given in verdicts.items()},
        events=tuple(
            EventRaised(
                # Counted up by a later session, its last sight is not this one's.
                at=row.last_seen if row.last_session_id == session_id else row.first_seen,
                level=Level(row.level),
                service=row.service,
                message=row.message,
                session_id=session_id,
            )
            for row in raised
        ),
    )


def chain_record(connection: Connection, root_session_id: int) -> ChainRecord:
    """Return a chain's tool calls, actions and events."""

    def of(table: Table) -> Sequence[TableRow]:
        query = select(table).join(sessions, sessions.c.id == table.c.session_id)
        return connection.execute(query.where(sessions.c.root_session_id == root_session_id).order_by(table.c.id)).all()

    return to_chain_record(calls=of(tool_calls), actions=of(cooldown_actions), events=of(events))


def to_chain_record(
    *, calls: Iterable[TableRow], actions: Iterable[TableRow], events: Iterable[TableRow]
) -> ChainRecord:
    """Return rows, oldest first, as a record."""
    return ChainRecord(
        calls=tuple(
            KnownCall(
                session_id=row.session_id,
                tool_name=row.tool_name,
                redacted_input=row.input,
                verdict=VerdictKind(row.verdict),
                reason=row.reason,
                is_error=row.is_error,
            )
            for row in calls
        ),
        actions=tuple(
            KnownAction(session_id=row.session_id, kind=row.action_type, service=row.service, success=row.success)
            for row in actions
        ),
        events=tuple(
            KnownEvent(session_id=row.session_id, level=Level(row.level), service=row.service, message=row.message)
            for row in events
        ),
    )


def to_reservation(row: TableRow) -> Reservation:
    """Return a ``cooldown_actions`` row as what waits for a result."""
    return Reservation(
        id=row.id,
        tool_use_id=row.tool_use_id,
        kind=row.action_type,
        service=row.service,
        denied=row.error == TOO_LATE,
    )


def to_background(
    session: Session,
    *,
    earlier: Sequence[TableRow],
    checks: Iterable[TableRow],
    actions: Iterable[TableRow],
    other_names: Mapping[str, str],
) -> Background:
    """Return what the ``earlier`` sessions of a chain have left, oldest first, by their rows of each table."""
    own = () if session.context is None else (session.context,)
    handed = [context for row in earlier if (context := to_handover(row.context)) is not None]
    return evidence.background(
        checks=[
            PastCheck(
                session_id=row.session_id, service=row.service, status=ServiceStatus(row.status), detail=row.detail
            )
            for row in checks
        ],
        actions=[(row.session_id, row.service) for row in actions if row.error != TOO_LATE],
        handovers=(*handed, *own),
        request=earlier[0].prompt_text if earlier else session.prompt_text,
        names=Names(other_names, clip),
    )
