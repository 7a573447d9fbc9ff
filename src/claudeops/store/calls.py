"""Tool calls: verdicts, refusals of the CLI, the seal, the tombstones.

A verdict is written before its answer goes out. Calls are only ever removed through `bury` (by retention, or with a
deleted session), in the transaction that removes the rest. A tombstone keeps the head of the calls, their number and
the reason, so that `verify` can tell their removal from tampering; tombstones form a hash chain of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from types import SimpleNamespace
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from claudeops.domain.actions import TOO_LATE, Action
from claudeops.domain.calls import CliRefusal, ToolCall, Verdict, VerdictKind
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.gate.approval import Approval
from claudeops.domain.sessions import Session, Status
from claudeops.errors import StaleAttemptError
from claudeops.policy.audit import link, seal, tombstone_hash
from claudeops.policy.grants import NO_LONGER_APPROVED, GrantedVerdict, grant, under_repair
from claudeops.store import action_ledger, queries
from claudeops.store.acts.services import in_other_hands, take_services
from claudeops.store.approvals import use_approval
from claudeops.store.database import Database
from claudeops.store.events import raise_event
from claudeops.store.session_columns import CHANGE_SESSION, CHANGE_SESSION_AS_SEEN
from claudeops.store.tables.sessions import audit_tombstones, cooldown_actions, sessions, tool_calls
from claudeops.text import clip

RETENTION: Final = "retention"

_ADD_CALL: Final = insert(tool_calls)
_ADD_ACTION: Final = insert(cooldown_actions)

_CALLS: Final = select(tool_calls).where(tool_calls.c.session_id == bindparam("session")).order_by(tool_calls.c.id)

_CURRENT_HEAD: Final = select(sessions.c.audit_head).where(
    sessions.c.id == bindparam("session"),
    sessions.c.attempt == bindparam("seen_attempt"),
    sessions.c.status == bindparam("seen_status"),
)


class Calls:
    """Tool calls with the gate's answers. Calls wait for these writes, so most overtake others queued."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record_call(
        self,
        session: Session,
        call: ToolCall,
        verdict: Verdict,
        *,
        redacted_input: str,
        rules: EscalationRules,
        requested_at: datetime,
        now: datetime,
        redacted_ran: str | None = None,
        approval: Approval | None = None,
    ) -> Verdict:
        """Write a tool call with its verdict before the answer goes out; return the verdict that counts.

        An allow or ask that carries actions is checked in the same transaction, against the chain's findings and the
        cooldown ledger: an action that is not granted makes it a deny (recorded as such; over a limit with a warning
        event). An allow takes the leases of the services that it changes, for the chain until that ends: where another
        chain has one, it is a deny. The actions of an allow are reserved (``success`` null until `Queue.finish` settles
        them).
        ``redacted_input`` is the redacted JSON to store, ``redacted_ran`` that of the input that runs instead, if it
        differs. With an ``approval``, whose proof the caller has checked, the allow uses it up; it becomes a deny if
        the row is no longer approved.
        """

        def record(connection: Connection) -> Verdict:
            current = {"session": session.id, "seen_attempt": session.attempt, "seen_status": Status.RUNNING.value}
            head = connection.execute(_CURRENT_HEAD, current).scalar_one_or_none()
            if head is None:
                raise StaleAttemptError(f"session {session.id} is no longer running as attempt {session.attempt}.")
            granted = _granted(connection, session, verdict, approval, rules=rules, now=now)
            row = link(
                head,
                session_id=session.id,
                call=call,
                verdict=granted.verdict,
                redacted_input=redacted_input,
                redacted_ran=redacted_ran,
                requested_at=requested_at,
                decided_at=now,
            )
            connection.execute(_ADD_CALL, {**msgspec.structs.asdict(row), "held_service": granted.held_service})
            connection.execute(CHANGE_SESSION_AS_SEEN, {**current, "audit_head": row.hash})
            if granted.verdict.kind is VerdictKind.ALLOW:
                for action in granted.verdict.actions:
                    _reserve(connection, session, row.tool_use_id, action, now=now)
            if granted.event is not None:
                raise_event(connection, granted.event, session_id=session.id, at=now)
            return granted.verdict

        def undo(connection: Connection, _verdict: Verdict) -> None:
            deny_late(connection, session, call, redacted_input=redacted_input, requested_at=requested_at, now=now)

        return await self._database.write(record, urgent=True, undo=undo)

    async def take_back(
        self, session: Session, call: ToolCall, *, redacted_input: str, requested_at: datetime, now: datetime
    ) -> None:
        """Put on record that a call was denied after all, because its yes had become too old to be given."""

        def deny(connection: Connection) -> None:
            deny_late(connection, session, call, redacted_input=redacted_input, requested_at=requested_at, now=now)

        await self._database.write(deny, urgent=True)

    async def allowed_calls(self, session_id: int) -> frozenset[str]:
        """Return the ``tool_use_id`` of every call of a session that the gate allowed."""
        calls = tool_calls.c
        of_session = select(calls.tool_use_id).where(calls.session_id == session_id)

        def find(connection: Connection) -> frozenset[str]:
            allowed = connection.execute(of_session.where(calls.verdict == VerdictKind.ALLOW.value)).scalars()
            late = connection.execute(of_session.where(calls.reason == TOO_LATE)).scalars()
            return frozenset(allowed) - frozenset(late)

        return await self._database.read(find)


def deny_late(
    connection: Connection,
    session: Session,
    call: ToolCall,
    *,
    redacted_input: str,
    requested_at: datetime,
    now: datetime,
) -> None:
    """Take back a verdict that came too late: the call was denied meanwhile, so its actions never happened.

    The first row stays, as the trail only grows; a second row says what became of the call.
    """
    row = connection.execute(select(sessions).where(sessions.c.id == session.id)).one()
    denied = link(
        row.audit_head,
        session_id=session.id,
        call=call,
        verdict=Verdict(kind=VerdictKind.DENY, reason=TOO_LATE),
        redacted_input=redacted_input,
        requested_at=requested_at,
        decided_at=now,
    )
    connection.execute(_ADD_CALL, msgspec.structs.asdict(denied))
    connection.execute(CHANGE_SESSION, {"session": session.id, "audit_head": denied.hash})
    if row.status == Status.ENDED.value:
        seal_results(connection, session.id)
    actions = cooldown_actions.c
    connection.execute(
        update(cooldown_actions)
        .where(actions.session_id == session.id, actions.tool_use_id == denied.tool_use_id, actions.success.is_(None))
        .values(success=False, error=TOO_LATE, cleared_at=now)
    )


def _granted(
    connection: Connection,
    session: Session,
    verdict: Verdict,
    approval: Approval | None,
    *,
    rules: EscalationRules,
    now: datetime,
) -> GrantedVerdict:
    if approval is not None and not use_approval(connection, approval, at=now):
        return GrantedVerdict(verdict=Verdict(kind=VerdictKind.DENY, reason=NO_LONGER_APPROVED))
    if not verdict.actions:
        return GrantedVerdict(verdict=verdict)
    granted = grant(
        verdict,
        session=session,
        findings=queries.findings(connection, session),
        ledger=action_ledger.counted(connection, rules, now),
        rules=rules,
        now=now,
    )
    changed = {action.service for action in granted.verdict.actions}
    if not changed or rules.dry_run:
        return granted
    # A question to people takes nothing yet: it may wait for long.
    look = take_services if granted.verdict.kind is VerdictKind.ALLOW else in_other_hands
    held = look(connection, changed, session.root_session_id, now=now)
    return under_repair(granted.verdict, held) or granted


def _reserve(connection: Connection, session: Session, tool_use_id: str, action: Action, *, now: datetime) -> None:
    reserved = {
        "session_id": session.id,
        "tool_use_id": tool_use_id,
        "service": action.service,
        "action_type": action.kind,
        "timestamp": now,
        "tier": session.tier,
    }
    connection.execute(_ADD_ACTION, reserved)


def add_refusals(connection: Connection, session_id: int, refusals: Iterable[CliRefusal], *, head: str) -> str:
    """Append the calls that the CLI refused itself; they become known only at the end of the session.

    ``head`` is that of the session's calls so far; returns the new one, which the caller writes.
    """
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
        connection.execute(_ADD_CALL, {**msgspec.structs.asdict(row), "ended_at": refusal.at, "is_error": True})
        head = row.hash
    return head


def seal_results(connection: Connection, session_id: int) -> None:
    """Seal the results of a session's calls, so that a later change shows."""
    connection.execute(CHANGE_SESSION, {"session": session_id, "audit_results": sealed(connection, session_id)})


def sealed(connection: Connection, session_id: int) -> str:
    """Return the seal of the results of a session's calls as they are now."""
    return seal(connection.execute(_CALLS, {"session": session_id}).all())


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
