"""What a chain did, read for whoever tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from claudeops.domain.chain_record import ChainRecord, KnownAction, KnownCall, KnownEvent
from claudeops.domain.model import Level, VerdictKind
from claudeops.store.tables import cooldown_actions, events, sessions, tool_calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Table

    from claudeops.store.rows import TableRow


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
                shown_input=row.input,
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
