"""Tool calls in the store without a database: recorded, refused by the CLI, sealed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from claudeops.domain.model import CheckSource, Verdict, VerdictKind
from claudeops.store import grants, in_memory_approvals
from claudeops.store.audit import link, seal
from claudeops.store.in_memory_writes import ledger, raise_event

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from types import SimpleNamespace

    from claudeops.domain.approval import Approval
    from claudeops.domain.model import CliRefusal, EscalationRules, Session, ToolCall
    from claudeops.store.in_memory_tables import PlainTables


def record_call(
    tables: PlainTables,
    row: SimpleNamespace,
    session: Session,
    call: ToolCall,
    verdict: Verdict,
    *,
    shown_input: str,
    rules: EscalationRules,
    requested_at: datetime,
    now: datetime,
    shown_ran: str | None,
    approval: Approval | None,
) -> Verdict:
    """Write a call of the session at ``row`` with the verdict that counts; return that verdict."""
    granted = _granted(tables, session, verdict, approval, rules=rules, now=now)
    counts = granted.verdict
    written = link(
        row.audit_head,
        session_id=session.id,
        call=call,
        verdict=counts,
        shown_input=shown_input,
        shown_ran=shown_ran,
        requested_at=requested_at,
        decided_at=now,
    )
    tables.insert("tool_calls", {**asdict(written), "held_service": granted.held_service})
    tables.update("sessions", row, {"audit_head": written.hash})
    reserved = {"session_id": session.id, "tool_use_id": written.tool_use_id, "timestamp": now}
    for action in counts.actions if counts.kind is VerdictKind.ALLOW else ():
        what = {"service": action.service, "action_type": action.kind, "tier": session.tier}
        tables.insert("cooldown_actions", {**reserved, **what})
    if granted.event is not None:
        raise_event(tables, granted.event, session_id=session.id, at=now)
    return counts


def add_refusals(tables: PlainTables, row: SimpleNamespace, refusals: Iterable[CliRefusal]) -> None:
    """Append the calls that the CLI refused itself."""
    for refusal in refusals:
        written = link(
            row.audit_head,
            session_id=row.id,
            call=refusal.call,
            verdict=Verdict(kind=VerdictKind.DENY, reason=refusal.reason),
            shown_input=refusal.shown_input,
            requested_at=refusal.at,
            decided_at=refusal.at,
        )
        tables.insert("tool_calls", {**asdict(written), "ended_at": refusal.at, "is_error": True})
        tables.update("sessions", row, {"audit_head": written.hash})


def seal_results(tables: PlainTables, session_id: int) -> None:
    """Write what the results of a session's calls were."""
    rows = tables.rows("tool_calls", lambda call: call.session_id == session_id)
    tables.change("sessions", session_id, {"audit_results": seal(rows)})


def _granted(
    tables: PlainTables,
    session: Session,
    verdict: Verdict,
    approval: Approval | None,
    *,
    rules: EscalationRules,
    now: datetime,
) -> grants.Grant:
    if approval is not None and not in_memory_approvals.use(tables, approval, now):
        return grants.Grant(verdict=Verdict(kind=VerdictKind.DENY, reason=grants.NO_LONGER_APPROVED))
    if not verdict.actions:
        return grants.Grant(verdict=verdict)
    return grants.grant(
        verdict,
        session=session,
        findings=_findings(tables, session),
        ledger=ledger(tables, rules, now),
        rules=rules,
        now=now,
    )


def _findings(tables: PlainTables, session: Session) -> grants.Findings:
    chain = {row.id: row for row in tables.rows("sessions", lambda row: row.root_session_id == session.root_session_id)}
    earlier = chain.keys() - {session.id}
    checks = tables.rows("service_checks")
    probed = {row.service: row.status for row in checks if row.source == CheckSource.PROBE}
    return grants.findings(
        reported=[(row.service, row.status) for row in checks if row.session_id in earlier],
        probed=list(probed.items()),
        session=session,
        request=chain[session.root_session_id].prompt_text,
    )
