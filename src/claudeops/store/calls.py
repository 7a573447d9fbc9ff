"""The trail of a session's tool calls, beside the verdicts: refusals of the CLI, the seal, the tombstones.

Calls are only ever removed through `bury` (by retention, or with a deleted session), in the transaction that removes
the rest. A tombstone keeps the head of the calls, their number and the reason, so that `verify` can tell their removal
from tampering; tombstones form a hash chain of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from types import SimpleNamespace
from typing import Final

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from claudeops.domain.calls import CliRefusal, Verdict, VerdictKind
from claudeops.policy.audit import link, seal, tombstone_hash
from claudeops.store.database import ADD_CALL, CHANGE_SESSION
from claudeops.store.tables import audit_tombstones, sessions, tool_calls
from claudeops.text import clip

RETENTION: Final = "retention"

_OF_SESSION: Final = sessions.c.id == bindparam("session")
_HEAD: Final = select(sessions.c.audit_head).where(_OF_SESSION)
_MARKS: Final = select(sessions.c.audit_head, sessions.c.audit_results).where(_OF_SESSION)
_CALLS: Final = select(tool_calls).where(tool_calls.c.session_id == bindparam("session")).order_by(tool_calls.c.id)


def add_refusals(connection: Connection, session_id: int, refusals: Iterable[CliRefusal]) -> None:
    """Append the calls that the CLI refused itself; they become known only at the end of the session."""
    head = connection.execute(_HEAD, {"session": session_id}).scalar_one()
    for refusal in refusals:
        row = link(
            head,
            session_id=session_id,
            call=refusal.call,
            verdict=Verdict(kind=VerdictKind.DENY, reason=refusal.reason),
            redacted_input=refusal.redacted_input,
            requested_at=refusal.at,
            decided_at=refusal.at,
        )
        connection.execute(ADD_CALL, {**asdict(row), "ended_at": refusal.at, "is_error": True})
        head = row.hash
        connection.execute(CHANGE_SESSION, {"session": session_id, "audit_head": head})


def seal_results(connection: Connection, session_id: int) -> None:
    """Seal the results of a session's calls, so that a later change shows."""
    rows = connection.execute(_CALLS, {"session": session_id}).all()
    connection.execute(CHANGE_SESSION, {"session": session_id, "audit_results": seal(rows)})


def audit_marks(connection: Connection, session_id: int) -> tuple[str, str | None]:
    """Return a session's head and seal."""
    row = connection.execute(_MARKS, {"session": session_id}).one()
    return row.audit_head, row.audit_results


def bury(connection: Connection, session_ids: Iterable[int], *, reason: str, at: datetime) -> int:
    """Remove the tool calls of some ended sessions and leave a tombstone for each; return how many were buried.

    ``reason`` is one word, such as `RETENTION`. A session that has a tombstone already is skipped. The rows of the
    sessions themselves are up to the caller: they may stay, or go in the same transaction.
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
