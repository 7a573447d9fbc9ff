"""The session that follows one whose daemon died before it ended.

A session of the lowest tier only looks, so it is started once more. One of a higher tier may have changed things,
and nobody knows how far it got: it is not repeated, but followed by a look that is told what was under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from claudeops.domain.calls import VerdictKind
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.sessions import LOWEST_TIER, Handover, NewSession, Session, Trigger

MOST_CALLS: Final = 40  # of a lost session that the next one is told about: the last ones
INPUT_CHARS: Final = 400  # of a call's input


class CallOnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as it was recorded before it could run."""

    tool_name: str
    redacted_input: str  # redacted JSON
    verdict: VerdictKind
    requested_at: datetime
    ended_at: datetime | None  # None: no result was seen
    is_error: bool | None


def recovery_of(lost: Session, calls: Sequence[CallOnRecord], rules: EscalationRules) -> NewSession | None:
    """Return the session that follows; ``None`` for a lost recovery, since a third try is not made."""
    if lost.tier > LOWEST_TIER:
        return _look_after(lost, calls, rules)
    if lost.trigger is Trigger.RECOVERY:
        return None
    return NewSession(
        tier=lost.tier,
        trigger=Trigger.RECOVERY,
        model=lost.model,
        harness=lost.harness,
        prompt_text=lost.prompt_text,
        services=lost.services,
        context=lost.context,
        parent_session_id=lost.id,
        budget_usd=lost.budget_usd,
        started_by=lost.started_by,
    )


def under_way(lost: Session, calls: Sequence[CallOnRecord]) -> str:
    """Return what a lost session was to do and which calls it made, for the next session to read."""
    lines = []
    if lost.context is not None:
        lines.append(f"It had been started because: {lost.context.reason}")
        lines.append(f"What was known before it: {lost.context.findings}")
    if lost.prompt_text is not None:
        lines.append(f"It had been asked: {lost.prompt_text}")
    lines.append(f"Its tool calls, {len(calls)} in all{', the last ones here' if len(calls) > MOST_CALLS else ''}:")
    lines += [_call_line(call) for call in calls[-MOST_CALLS:]] or ["none is on record"]
    return "\n".join(lines)


def _look_after(lost: Session, calls: Sequence[CallOnRecord], rules: EscalationRules) -> NewSession:
    lowest = rules.lowest
    before = lost.context
    return NewSession(
        tier=lowest.number,
        trigger=Trigger.RECOVERY,
        model=lowest.model,
        harness=lowest.harness,
        parent_session_id=lost.id,
        context=Handover(
            reason=(
                f"the tier {lost.tier} session {lost.id} was cut off when its daemon ended: "
                "find out in which state it left the services"
            ),
            findings=under_way(lost, calls),
            failed_checks=before.failed_checks if before else (),
            service_status=before.service_status if before else (),
        ),
    )


def _call_line(call: CallOnRecord) -> str:
    text = call.redacted_input
    text = text if len(text) <= INPUT_CHARS else f"{text[:INPUT_CHARS]} ..."
    return f"- {call.requested_at:%H:%M:%S} UTC {call.tool_name} {text}: {_call_result(call)}"


def _call_result(call: CallOnRecord) -> str:
    if call.verdict is not VerdictKind.ALLOW:
        return "not allowed, so it did not run"
    if call.ended_at is None:
        return "allowed; whether it ran, and with which result, is not known"
    return "ran and failed" if call.is_error else "ran"
