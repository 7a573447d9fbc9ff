"""Sessions for people: a page of them, and one with everything that is on record about it.

Not called ``sessions``: the package has a table of that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final

import msgspec
from sqlalchemy import CompoundSelect, Connection, Select, Table, func, or_, select, union_all

from claudeops.domain.listing import Listing, Page, levels_from
from claudeops.domain.owner import SESSION_LEASE
from claudeops.domain.sessions import DecisionReason, Outcome, Status
from claudeops.store.reading import named, page, within
from claudeops.store.rows import TableRow, to_names, to_warnings
from claudeops.store.tables.approvals import approvals
from claudeops.store.tables.events import events
from claudeops.store.tables.memories import memories, session_memories, session_texts
from claudeops.store.tables.sessions import (
    cooldown_actions,
    is_under_way,
    model_calls,
    service_checks,
    sessions,
    tool_calls,
)

Row = Mapping[str, object]
"""A row by the names of its columns, which are documented in `docs/reference/database.md`."""

_CALLS_SO_FAR: Final = (
    select(func.count()).select_from(model_calls).where(model_calls.c.session_id == sessions.c.id).scalar_subquery()
)
_LISTED: Final = (
    *(sessions.c.id, sessions.c.root_session_id, sessions.c.parent_session_id, sessions.c.tier, sessions.c.harness),
    *(sessions.c.model, sessions.c.trigger, sessions.c.status, sessions.c.outcome, sessions.c.decision_reason),
    *(sessions.c.error_category, sessions.c.error, sessions.c.summary, sessions.c.cost_usd, sessions.c.duration_ms),
    *(sessions.c.created_at, sessions.c.started_at, sessions.c.ended_at, sessions.c.lease_expires_at),
    *(sessions.c.cli_session_id, sessions.c.log_path, sessions.c.started_by, sessions.c.site),
    func.coalesce(sessions.c.num_turns, _CALLS_SO_FAR).label("prompts"),
)
_FEW: Final = 1000  # sessions of a kind, which are looked at one by one
_UNTOLD: Final = frozenset({"previous_hash", "hash", "mac"})  # links of the audit chains: `claudeops audit verify`


class ListedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a list: the five keys of the contract with claw-code, then ours."""

    session_id: str  # `id` as a text
    created_at: datetime
    last_modified: datetime  # when it last began, showed a sign of life, or ended
    prompt_count: int  # turns; of a running session, the model calls so far
    stopped: bool  # nothing more will come of it
    id: int
    chain: int | None
    parent_session_id: int | None
    tier: int
    harness: str
    model: str
    trigger: str
    started_by: str | None  # the person or token; None: the daemon itself
    site: str | None  # whose nodes alone may run it; None: any node may
    status: Status
    outcome: Outcome | None
    error_category: str | None
    error: str | None
    summary: str | None
    cost_usd: float | None
    duration_ms: int | None
    started_at: datetime | None
    ended_at: datetime | None
    cli_session_id: str | None  # by which its CLI knows it
    decision: DecisionReason | None  # why its chain went on or ended
    path: str  # of its log; empty: it has none


class WholeSession(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is on record about a session; rows as they are, oldest first."""

    columns: Row  # every column of its own row
    chain: Sequence[ListedSession]  # itself included
    warnings: Sequence[str]
    services: Sequence[str]  # that its request is about
    events: Sequence[Row]  # that it raised, or counted up last
    memories: Sequence[Row]  # that it made
    told: Sequence[int]  # ids of the memories that its prompt held
    texts: Sequence[Row]  # what else its prompt was made of
    checks: Sequence[Row]  # how it found services
    actions: Sequence[Row]
    calls: Sequence[Row]  # of tools, with the verdicts
    approvals: Sequence[Row]
    model_calls: Sequence[Row]


def listed(connection: Connection, wanted: Listing) -> Page[ListedSession]:
    """Return a page of sessions, newest first; ``service`` asks for those that checked it."""
    query = _filtered(wanted)
    if wanted.service is None:
        return page(connection, query, sessions.c.id, wanted, _to_listed)
    names = named(connection, service_checks.c.service, wanted.service)
    if not names:
        return Page(items=())
    checking = _checking(query, names, wanted)
    if wanted.tier is not None or wanted.outcome is not None:
        few = connection.execute(query.with_only_columns(sessions.c.id).limit(_FEW + 1)).scalars().all()
        if len(few) <= _FEW:
            checks = service_checks.c
            query = query.where(sessions.c.id.in_(few))
            checking = select(checks.session_id).where(checks.session_id.in_(few), checks.service.in_(names))
    return page(connection, query.where(sessions.c.id.in_(checking)), sessions.c.id, wanted, _to_listed)


def one(connection: Connection, session_id: int) -> ListedSession | None:
    """Return a session as lists show it."""
    row = connection.execute(select(*_LISTED).where(sessions.c.id == session_id)).one_or_none()
    return None if row is None else _to_listed(row)


def is_busy(connection: Connection) -> bool:
    """Return whether a session runs, or waits to begin."""
    unended = select(sessions.c.id).where(is_under_way).limit(1)
    return connection.execute(unended).first() is not None


def whole(connection: Connection, session_id: int) -> WholeSession | None:
    """Return everything about one session, if it exists."""
    row = connection.execute(select(sessions).where(sessions.c.id == session_id)).one_or_none()
    if row is None:
        return None
    chain = select(*_LISTED).where(sessions.c.root_session_id == row.root_session_id).order_by(sessions.c.id)
    raised = select(events).where(or_(events.c.session_id == session_id, events.c.last_session_id == session_id))
    told = select(session_memories.c.memory_id).where(session_memories.c.session_id == session_id)
    return WholeSession(
        columns=_row(row),
        chain=[_to_listed(one) for one in connection.execute(chain)],
        warnings=to_warnings(row.warnings),
        services=to_names(row.services),
        events=[_row(one) for one in connection.execute(raised.order_by(events.c.id))],
        memories=_of(connection, memories, session_id),
        told=connection.execute(told.order_by(session_memories.c.memory_id)).scalars().all(),
        texts=_of(connection, session_texts, session_id),
        checks=_of(connection, service_checks, session_id),
        actions=_of(connection, cooldown_actions, session_id),
        calls=_of(connection, tool_calls, session_id),
        approvals=_of(connection, approvals, session_id),
        model_calls=_of(connection, model_calls, session_id),
    )


def _filtered(wanted: Listing) -> Select[Any]:
    query = within(select(*_LISTED), sessions.c.created_at, wanted)
    if wanted.tier is not None:
        query = query.where(sessions.c.tier == wanted.tier)
    if wanted.outcome is not None:
        query = query.where(sessions.c.outcome == wanted.outcome.value)
    if wanted.level is not None:
        grave = select(events.c.session_id).where(events.c.level.in_([one.value for one in levels_from(wanted.level)]))
        query = query.where(sessions.c.id.in_(grave))
    return query


def _checking(query: Select[Any], names: Sequence[str], wanted: Listing) -> Select[Any] | CompoundSelect[Any]:
    """Return the first sessions of a page that checked a service, each spelling by itself."""
    checks = service_checks.c
    found = []
    for name in names:
        of_it = query.with_only_columns(checks.session_id).select_from(
            service_checks.join(sessions, sessions.c.id == checks.session_id)
        )
        if wanted.before is not None:
            of_it = of_it.where(checks.session_id < wanted.before)
        if wanted.after is not None:
            of_it = of_it.where(checks.session_id > wanted.after)
        oldest = wanted.after is not None and wanted.before is None
        order = checks.session_id.asc() if oldest else checks.session_id.desc()
        of_it = of_it.where(checks.service == name).distinct().order_by(order)
        found.append(select(of_it.limit(wanted.limit + 1).subquery().c.session_id))
    return union_all(*found)


def _of(connection: Connection, table: Table, session_id: int) -> Sequence[Row]:
    query = select(table).where(table.c.session_id == session_id).order_by(table.c.id)
    return [_row(one) for one in connection.execute(query)]


def _row(row: TableRow) -> Row:
    columns = vars(row) if isinstance(row, SimpleNamespace) else row._asdict()
    return {name: value for name, value in columns.items() if name not in _UNTOLD}


def _to_listed(row: TableRow) -> ListedSession:
    alive_at = None if row.lease_expires_at is None else row.lease_expires_at - SESSION_LEASE
    known = [at for at in (row.created_at, row.started_at, row.ended_at or alive_at) if at is not None]
    return ListedSession(
        session_id=str(row.id),
        created_at=row.created_at,
        last_modified=max(known),
        prompt_count=row.prompts,
        stopped=row.status == Status.ENDED.value,
        id=row.id,
        chain=row.root_session_id,
        parent_session_id=row.parent_session_id,
        tier=row.tier,
        harness=row.harness,
        model=row.model,
        trigger=row.trigger,
        started_by=row.started_by,
        site=row.site,
        status=Status(row.status),
        outcome=None if row.outcome is None else Outcome(row.outcome),
        error_category=row.error_category,
        error=row.error,
        summary=row.summary,
        cost_usd=row.cost_usd,
        duration_ms=row.duration_ms,
        started_at=row.started_at,
        ended_at=row.ended_at,
        cli_session_id=row.cli_session_id,
        decision=None if row.decision_reason is None else DecisionReason(row.decision_reason),
        path=row.log_path or "",
    )
