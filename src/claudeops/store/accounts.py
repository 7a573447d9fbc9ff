"""What is on record about a session, for those who read its log beside it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from sqlalchemy import case, or_, select

from claudeops.domain.account import Account, Judged, Place
from claudeops.domain.live import EventRaised
from claudeops.domain.model import Level, Status, Verdict, VerdictKind
from claudeops.store.rows import to_session
from claudeops.store.tables import events, sessions, tool_calls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection

    from claudeops.domain.model import Session
    from claudeops.store.rows import TableRow


def account(connection: Connection, session_id: int) -> Account:
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


def under_way(connection: Connection, after: int) -> tuple[Place, ...]:
    """Return the sessions that have not ended, and all with a higher id than ``after``, oldest first."""
    found = connection.execute(
        select(sessions.c.id, sessions.c.root_session_id, sessions.c.status)
        # Both by an index: asked for again and again.
        .where(or_(sessions.c.status.in_((Status.QUEUED.value, Status.RUNNING.value)), sessions.c.id > after))
        .order_by(sessions.c.id)
    )
    return tuple(map(_place, found))


def _place(row: TableRow) -> Place:
    return Place(session_id=row.id, chain=row.root_session_id, status=Status(row.status))


def _account(session_id: int, calls: Iterable[TableRow], raised: Iterable[TableRow]) -> Account:
    verdicts: defaultdict[str, list[Judged]] = defaultdict(list)
    for row in calls:
        verdict = Verdict(kind=VerdictKind(row.verdict), reason=row.reason)
        verdicts[row.tool_use_id].append(Judged(verdict=verdict, at=row.decided_at))
    return Account(
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
