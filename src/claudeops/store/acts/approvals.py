"""Approvals: a person's yes or no to a call that waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from claudeops.domain.gate.approval import Answered, Approval, ApprovalStatus
from claudeops.store.acts import Refusal, missing, refused
from claudeops.store.approvals import answer_question
from claudeops.store.store import SqlStore


class AnswerAct(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that counts."""

    approval_id: int
    handled: bool = True
    status: ApprovalStatus  # pending: other people must say yes, too
    session_id: int
    decided_by: str
    answers: int  # how many people have said yes
    needed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Unseen:
    """A yes that was not given: parts of the call are hidden, and it was not said that they may be anything."""

    approval: Approval


async def answer_approval(
    store: SqlStore,
    key: bytes,
    approval_id: int,
    *,
    status: ApprovalStatus,
    by: str,
    now: datetime,
    unseen: bool = False,
    call_hash: str | None = None,
) -> AnswerAct | Unseen | Refusal:
    """Approve or deny a call; ``call_hash``, where given, is of the call that the person was shown.

    ``unseen``: approve it though parts of it are hidden. Whether this person may answer is the caller's to know.
    """
    asked = await store.verdicts.approval(approval_id)
    if asked is not None and status is ApprovalStatus.APPROVED and not unseen and _is_hidden(asked, now):
        return Unseen(approval=asked)
    result = await answer_question(
        store.verdicts, key, approval_id, status=status, decided_by=by, at=now, call_hash=call_hash
    )
    approval = result.approval
    if approval is None:
        return missing("approval", approval_id, f"There is no approval {approval_id}.")
    if result.answered not in {Answered.DECIDED, Answered.COUNTED}:
        return refused("approval", approval_id, _not_taken(approval, result.answered))
    return AnswerAct(
        approval_id=approval_id,
        # The call may have used the answer by now: this is what the answer did.
        status=ApprovalStatus.PENDING if result.answered is Answered.COUNTED else status,
        session_id=approval.session_id,
        decided_by=by,
        answers=len(approval.agreed),
        needed=approval.needed,
    )


def _is_hidden(asked: Approval, at: datetime) -> bool:
    return asked.hidden and asked.status is ApprovalStatus.PENDING and asked.expires_at > at


def _not_taken(approval: Approval, answered: Answered) -> str:
    """Return why an answer counts for nothing."""
    if answered is Answered.SAME_PERSON:
        return (
            f"Approval {approval.id} has a yes of yours already ({len(approval.agreed)} of {approval.needed}): "
            "somebody else must say yes too."
        )
    why = "it has expired" if approval.status is ApprovalStatus.PENDING else f"it is {approval.status.value} already"
    return f"Approval {approval.id} no longer takes an answer: {why}."
