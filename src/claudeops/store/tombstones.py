"""What is left of tool calls that were removed on purpose, so that `verify` can tell that from tampering.

Whoever removes calls (retention, a deleted session) does it through `bury`, in the transaction that removes the rest.
A tombstone says which head the calls had, how many they were and why they went; tombstones are a chain of their own.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, func, insert, select

from claudeops.store.audit import tombstone_hash
from claudeops.store.tables import audit_tombstones, sessions, tool_calls
from claudeops.store.types import clip

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sqlalchemy import Connection

RETENTION: Final = "retention"


def bury(connection: Connection, session_ids: Iterable[int], *, reason: str, at: datetime) -> int:
    """Remove the tool calls of some ended sessions and leave a tombstone for each; return how many were buried.

    ``reason`` is one word, such as `RETENTION`. A session that was buried before is left as it is. The sessions' own
    rows are the caller's: they may stay, or go in the same transaction.
    """
    wanted = sorted(set(session_ids))
    known = set(
        connection.execute(
            select(audit_tombstones.c.session_id).where(audit_tombstones.c.session_id.in_(wanted))
        ).scalars()
    )
    head = connection.execute(
        select(audit_tombstones.c.hash).order_by(audit_tombstones.c.id.desc()).limit(1)
    ).scalar_one_or_none()
    buried = 0
    for session_id in (wanted_id for wanted_id in wanted if wanted_id not in known):
        row = connection.execute(
            select(sessions.c.audit_head, sessions.c.audit_results).where(sessions.c.id == session_id)
        ).one_or_none()
        if row is None:
            continue
        calls = connection.execute(
            select(func.count()).select_from(tool_calls).where(tool_calls.c.session_id == session_id)
        ).scalar_one()
        values = _tombstone(
            head or "",
            session_id=session_id,
            calls=calls,
            audit_head=row.audit_head,
            audit_results=row.audit_results,
            reason=reason,
            at=at,
        )
        connection.execute(insert(audit_tombstones).values(values))
        connection.execute(delete(tool_calls).where(tool_calls.c.session_id == session_id))
        head = str(values["hash"])
        buried += 1
    return buried


def _tombstone(
    previous_hash: str,
    *,
    session_id: int,
    calls: int,
    audit_head: str,
    audit_results: str | None,
    reason: str,
    at: datetime,
) -> dict[str, object]:
    """Return the columns of a tombstone."""
    row = SimpleNamespace(
        previous_hash=previous_hash,
        session_id=session_id,
        calls=calls,
        audit_head=audit_head,
        audit_results=audit_results,
        reason=clip(reason),
        buried_at=at,
    )
    return {**vars(row), "hash": tombstone_hash(row)}
