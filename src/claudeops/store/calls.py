"""Tool calls: written with their verdict before the answer goes out."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

from claudeops.domain.model import Status
from claudeops.errors import StaleAttemptError
from claudeops.store import queries
from claudeops.store.audit import link
from claudeops.store.consequences import within_limits
from claudeops.store.events import raise_event
from claudeops.store.tables import cooldown_actions, sessions, tool_calls

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from claudeops.domain.model import Action, EscalationRules, Session, ToolCall, Verdict


def record_call(
    connection: Connection,
    session: Session,
    call: ToolCall,
    verdict: Verdict,
    *,
    shown_input: str,
    rules: EscalationRules,
    requested_at: datetime,
    now: datetime,
) -> Verdict:
    """Write a call with the verdict that counts, and reserve its actions; return that verdict."""
    current = (
        sessions.c.id == session.id,
        sessions.c.attempt == session.attempt,
        sessions.c.status == Status.RUNNING.value,
    )
    head = connection.execute(select(sessions.c.audit_head).where(*current)).scalar_one_or_none()
    if head is None:
        raise StaleAttemptError(f"session {session.id} is no longer running as attempt {session.attempt}.")
    verdict, refused = within_limits(verdict, queries.ledger(connection, rules, now), rules=rules, now=now)
    row = link(
        head,
        session_id=session.id,
        call=call,
        verdict=verdict,
        shown_input=shown_input,
        requested_at=requested_at,
        decided_at=now,
    )
    connection.execute(insert(tool_calls).values(asdict(row)))
    connection.execute(update(sessions).where(*current).values(audit_head=row.hash))
    for action in verdict.actions:
        _reserve(connection, session, row.tool_use_id, action, now=now)
    if refused is not None:
        raise_event(connection, refused, session_id=session.id, at=now)
    return verdict


def _reserve(connection: Connection, session: Session, tool_use_id: str, action: Action, *, now: datetime) -> None:
    connection.execute(
        insert(cooldown_actions).values(
            session_id=session.id,
            tool_use_id=tool_use_id,
            service=action.service,
            action_type=action.kind,
            timestamp=now,
            tier=session.tier,
        )
    )
