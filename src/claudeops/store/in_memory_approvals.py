"""Questions to people in the store without a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claudeops.domain.approval import ApprovalStatus
from claudeops.errors import StoreError
from claudeops.store.approvals import BY_RESTART, OPEN, asked_event, asked_values, event_name, to_approval
from claudeops.store.in_memory_writes import raise_event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from types import SimpleNamespace

    from claudeops.domain.approval import Answer, Approval, NewApproval
    from claudeops.store.in_memory_tables import PlainTables


class InMemoryApprovals:
    """The part of `InMemoryStore` that asks people."""

    tables: PlainTables
    _transaction: Callable[[], AbstractAsyncContextManager[None]]

    async def request_approval(self, new: NewApproval) -> Approval:
        """Write a question and the event that tells of it."""
        async with self._transaction():
            row = self.tables.insert("approvals", asked_values(new))
            event = asked_event(row.id, new)
            raise_event(self.tables, event, session_id=new.session.id, at=new.requested_at)
            return to_approval(row)

    async def approval(self, approval_id: int) -> Approval | None:
        """Return a question as it stands now."""
        async with self._transaction():
            row = self.tables.row("approvals", approval_id)
            return None if row is None else to_approval(row)

    async def close_approval(self, approval_id: int, *, now: datetime) -> Approval:
        """End a question that still waits."""
        async with self._transaction():
            row = self.tables.row("approvals", approval_id)
            if row is None:
                raise StoreError(f"approval {approval_id} does not exist.")
            if row.status == ApprovalStatus.PENDING:
                close(self.tables, row, {"status": ApprovalStatus.EXPIRED.value}, now)
            return to_approval(row)

    async def approvals(self, *, everything: bool = False, limit: int = 100) -> Sequence[Approval]:
        """Return questions, oldest first."""
        async with self._transaction():
            wanted = self.tables.rows("approvals", lambda row: everything or row.status == ApprovalStatus.PENDING)
            return tuple(map(to_approval, wanted[-limit:]))

    async def answer_approval(self, approval_id: int, said: Answer) -> bool:
        """Write a person's answer."""
        async with self._transaction():
            row = self.tables.row("approvals", approval_id)
            if row is None or row.status != ApprovalStatus.PENDING or row.expires_at <= said.decided_at:
                return False
            told = {"decided_by": said.decided_by, "decided_at": said.decided_at, "mac": said.mac}
            self.tables.update("approvals", row, {"status": said.status.value, **told})
            return True


def use(tables: PlainTables, asked: Approval, at: datetime) -> bool:
    """Use up an approved question; ``False``: it is not what it was when its proof was checked."""
    row = tables.row("approvals", asked.id)
    same = row is not None and row.status == ApprovalStatus.APPROVED
    if row is None or not same or row.call_hash != asked.call_hash or row.mac != asked.mac:
        return False
    tables.update("approvals", row, {"status": ApprovalStatus.USED.value})
    _tell_it_is_over(tables, row, at)
    return True


def close_of_session(tables: PlainTables, session_id: int, at: datetime) -> None:
    """End the questions of a session that has ended."""
    for row in tables.rows("approvals", lambda row: row.session_id == session_id and row.status in OPEN):
        close(tables, row, {"status": ApprovalStatus.EXPIRED.value}, at)


def deny_all(tables: PlainTables, at: datetime) -> None:
    """Deny every question that is open."""
    for row in tables.rows("approvals", lambda row: row.status in OPEN):
        close(tables, row, {"status": ApprovalStatus.DENIED.value, "decided_by": BY_RESTART}, at)


def close(tables: PlainTables, row: SimpleNamespace, values: dict[str, object], at: datetime) -> None:
    """End one question."""
    tables.update("approvals", row, {"decided_at": at, **values})
    _tell_it_is_over(tables, row, at)


def _tell_it_is_over(tables: PlainTables, row: SimpleNamespace, at: datetime) -> None:
    for event in tables.rows("events", lambda event: event.fingerprint == event_name(row.id)):
        if event.resolved_at is None:
            tables.update("events", event, {"resolved_at": at})
