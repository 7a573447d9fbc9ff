"""Questions to people: asked, answered, used once, or over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, insert, select, update

from claudeops.domain.gate.approval import Answer, Approval, ApprovalStatus, NewApproval
from claudeops.domain.model import Level, NewEvent
from claudeops.errors import StoreError
from claudeops.store.events import raise_event
from claudeops.store.rows import TableRow
from claudeops.store.tables import approvals, events

_OPEN: Final = (ApprovalStatus.PENDING.value, ApprovalStatus.APPROVED.value)
"""An approved one that was not used yet is open too: nothing but its own call may close it."""

_ALL_OPEN: Final = select(approvals.c.id).where(approvals.c.status.in_(_OPEN))
_OPEN_OF_SESSION: Final = _ALL_OPEN.where(approvals.c.session_id == bindparam("session"))

_BY_RESTART: Final = "restart of the daemon"


def _to_approval(row: TableRow) -> Approval:
    """Return an ``approvals`` row as a value."""
    return Approval(
        id=row.id,
        session_id=row.session_id,
        tool_use_id=row.tool_use_id,
        call_hash=row.call_hash,
        status=ApprovalStatus(row.status),
        requested_at=row.requested_at,
        expires_at=row.expires_at,
        decided_at=row.decided_at,
        decided_by=row.decided_by,
        agent_id=row.agent_id,
        tool_name=row.tool_name,
        tier=row.tier,
        workdir=row.workdir,
        input=row.input,
        scripts=row.scripts,
        reason=row.reason,
        mac=row.mac,
    )


def _asked_values(new: NewApproval) -> dict[str, object]:
    """Return the columns of a new question."""
    return {
        "session_id": new.session.id,
        "tool_use_id": new.call.tool_use_id,
        "call_hash": new.call_hash,
        "status": ApprovalStatus.PENDING.value,
        "requested_at": new.requested_at,
        "expires_at": new.expires_at,
        "agent_id": new.call.agent_id,
        "tool_name": new.call.tool_name,
        "tier": new.session.tier,
        "workdir": new.workdir,
        "input": new.redacted_input,
        "scripts": msgspec.json.encode(new.scripts).decode(),
        "reason": new.reason,
    }


def _asked_event(approval_id: int, new: NewApproval) -> NewEvent:
    """Return the event that tells people of a question."""
    return NewEvent(
        level=Level.WARNING,
        message=(
            f"approval {approval_id} is needed until {new.expires_at:%H:%M:%S} UTC ({new.reason}): see "
            f"`claudeops list-approvals`, then `claudeops approve {approval_id}` or `claudeops deny {approval_id}`."
        ),
        fingerprint=_event_name(approval_id),
    )


def _event_name(approval_id: int) -> str:
    """Return the fingerprint of a question's event."""
    return f"approval:{approval_id}"


def request(connection: Connection, new: NewApproval) -> Approval:
    """Write a question and the event that tells of it."""
    key = connection.execute(insert(approvals).values(_asked_values(new))).inserted_primary_key
    if key is None:
        raise StoreError("the database gave a new approval no id.")
    raise_event(connection, _asked_event(key.id, new), session_id=new.session.id, at=new.requested_at)
    return _existing(connection, key.id)


def find(connection: Connection, approval_id: int) -> Approval | None:
    """Return one row."""
    row = connection.execute(select(approvals).where(approvals.c.id == approval_id)).one_or_none()
    return None if row is None else _to_approval(row)


def listed(connection: Connection, *, everything: bool, limit: int) -> tuple[Approval, ...]:
    """Return the newest questions, or those that wait, oldest first."""
    query = select(approvals).order_by(approvals.c.id.desc()).limit(limit)
    if not everything:
        query = query.where(approvals.c.status == ApprovalStatus.PENDING.value)
    return tuple(_to_approval(row) for row in reversed(connection.execute(query).all()))


def give_answer(connection: Connection, approval_id: int, said: Answer) -> bool:
    """Write a person's answer to a question that still waits; ``False``: it does not, nothing was written."""
    given = connection.execute(
        update(approvals)
        .where(
            approvals.c.id == approval_id,
            approvals.c.status == ApprovalStatus.PENDING.value,
            approvals.c.expires_at > said.decided_at,
        )
        .values(status=said.status.value, decided_by=said.decided_by, decided_at=said.decided_at, mac=said.mac)
    )
    return given.rowcount == 1


def use(connection: Connection, asked: Approval, *, at: datetime) -> bool:
    """Use up an approved question; ``False``: it is not what it was when its proof was checked."""
    used = connection.execute(
        update(approvals)
        .where(
            approvals.c.id == asked.id,
            approvals.c.status == ApprovalStatus.APPROVED.value,
            approvals.c.call_hash == asked.call_hash,
            approvals.c.mac == asked.mac,
        )
        .values(status=ApprovalStatus.USED.value)
    )
    _tell_it_is_over(connection, [asked.id], at=at)
    return used.rowcount == 1


def close(connection: Connection, approval_id: int, *, at: datetime) -> Approval:
    """End a question that waits in vain; return it as it is now, which may be answered after all."""
    connection.execute(
        update(approvals)
        .where(approvals.c.id == approval_id, approvals.c.status == ApprovalStatus.PENDING.value)
        .values(status=ApprovalStatus.EXPIRED.value, decided_at=at)
    )
    row = _existing(connection, approval_id)
    if row.status not in {ApprovalStatus.PENDING, ApprovalStatus.APPROVED}:
        _tell_it_is_over(connection, [approval_id], at=at)
    return row


def close_of_session(connection: Connection, session_id: int, *, at: datetime) -> None:
    """End the questions of a session that has ended."""
    found = connection.execute(_OPEN_OF_SESSION, {"session": session_id}).scalars().all()
    _close_all(connection, found, status=ApprovalStatus.EXPIRED, by=None, at=at)


def deny_all(connection: Connection, *, at: datetime) -> None:
    """Deny every question that is open: a daemon that has just started asked none of them."""
    found = connection.execute(_ALL_OPEN).scalars().all()
    _close_all(connection, found, status=ApprovalStatus.DENIED, by=_BY_RESTART, at=at)


def _close_all(
    connection: Connection, found: Sequence[int], *, status: ApprovalStatus, by: str | None, at: datetime
) -> None:
    if found:
        closed = (
            update(approvals).where(approvals.c.id.in_(found)).values(status=status.value, decided_by=by, decided_at=at)
        )
        connection.execute(closed)
        _tell_it_is_over(connection, found, at=at)


def _tell_it_is_over(connection: Connection, approval_ids: Sequence[int], *, at: datetime) -> None:
    names = [_event_name(approval_id) for approval_id in approval_ids]
    connection.execute(
        update(events).where(events.c.fingerprint.in_(names), events.c.resolved_at.is_(None)).values(resolved_at=at)
    )


def _existing(connection: Connection, approval_id: int) -> Approval:
    row = find(connection, approval_id)
    if row is None:
        raise StoreError(f"approval {approval_id} does not exist.")
    return row
