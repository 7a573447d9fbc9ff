"""Approvals: a person's yes or no to a call that waits for it.

The answer is proved with the key that no session can read, and written. What it does to the question is decided in the
database, so that of several answers at once each counts once and one decides. A call that waits in this process is
woken at once; one that waits in another process finds the answer at its next look.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from claudeops.domain.gate.approval import Answered, Approval, ApprovalStatus, answer
from claudeops.domain.gate.passkey import YES, Assertion
from claudeops.store.acts import Refusal, missing, refused
from claudeops.store.approvals import Approvals
from claudeops.text import clip


class AnswerAct(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that counts."""

    approval_id: int
    handled: bool = True
    status: ApprovalStatus  # pending: other people must say yes, too
    session_id: int
    decided_by: str
    answers: int  # how many people have said yes
    needed: int


class Unseen(msgspec.Struct, frozen=True, kw_only=True):
    """A yes that was not given: parts of the call are hidden, and it was not said that they may be anything."""

    approval: Approval


async def answer_approval(
    approvals: Approvals,
    key: bytes,
    approval_id: int,
    *,
    status: ApprovalStatus,
    by: str,
    now: datetime,
    unseen: bool = False,
    call_hash: str | None = None,
    assertion: Assertion | None = None,
) -> AnswerAct | Unseen | Refusal:
    """Approve or deny a call; ``call_hash``, where given, is of the call that the person was shown.

    ``unseen``: approve it though parts of it are hidden; ``assertion`` is a passkey's signature under a yes, checked by
    the caller. Whether this person may answer is the caller's to know.
    """
    asked = await approvals.approval(approval_id)
    # A yes that lacks its passkey is refused for that: to say it once more for what is hidden would not help.
    is_yes = status is ApprovalStatus.APPROVED and (assertion is not None or asked is None or not asked.passkey)
    if asked is not None and is_yes and not unseen and _is_hidden(asked, now):
        return Unseen(approval=asked)
    result = await answer_question(
        approvals,
        key,
        approval_id,
        status=status,
        decided_by=by,
        at=now,
        call_hash=call_hash,
        assertion=assertion,
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


class AnswerResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an answer, and the question as it stands after it."""

    answered: Answered
    approval: Approval | None = None  # None: there is no such question


async def answer_question(
    approvals: Approvals,
    key: bytes,
    approval_id: int,
    *,
    status: ApprovalStatus,
    decided_by: str,
    at: datetime,
    call_hash: str | None = None,
    token: str | None = None,
    assertion: Assertion | None = None,
) -> AnswerResult:
    """Record a person's yes or no, with its proof; whether this person may answer is the caller's to know.

    ``call_hash``, where given, is what the person was shown: a question about anything else is unknown. ``token`` is
    the digest of the button that was tapped. ``assertion`` is a passkey's signature, which the caller has checked: a
    question that demands one takes a yes with it alone, and it is good for the call that it is under. Raises
    `DatabaseUnavailableError`; then nothing is known of the answer, and the same call may be made again, with the same
    token.
    """
    asked = await approvals.approval(approval_id)
    if asked is None or (call_hash is not None and call_hash != asked.call_hash):
        return AnswerResult(answered=Answered.UNKNOWN)
    if assertion is not None and not _is_signed(asked, status, assertion):
        return AnswerResult(answered=Answered.NEEDS_PASSKEY, approval=asked)
    # The proof is over the name as its column holds it.
    digest = "" if assertion is None else assertion.digest
    said = answer(key, asked, status=status, decided_by=clip(decided_by), at=at, assertion=digest)
    answered = await approvals.answer_approval(approval_id, said, token=token, assertion=assertion)
    return AnswerResult(answered=answered, approval=await approvals.approval(approval_id) or asked)


def _is_signed(asked: Approval, status: ApprovalStatus, made: Assertion) -> bool:
    """Return whether a signature is under a yes to this very question."""
    signed = made.challenge
    is_yes = status is ApprovalStatus.APPROVED and signed.answer == YES
    return is_yes and (signed.approval_id, signed.call_hash) == (asked.id, asked.call_hash)


def _is_hidden(asked: Approval, at: datetime) -> bool:
    return asked.hidden and asked.status is ApprovalStatus.PENDING and asked.expires_at > at


def _not_taken(approval: Approval, answered: Answered) -> str:
    """Return why an answer counts for nothing."""
    if answered is Answered.SAME_PERSON:
        return (
            f"Approval {approval.id} has a yes of yours already ({len(approval.agreed)} of {approval.needed}): "
            "somebody else must say yes too."
        )
    if answered is Answered.NEEDS_PASSKEY:
        return (
            f"Approval {approval.id} takes a yes with a passkey alone: log in to the pages, open "
            f"/approvals/{approval.id}, and say yes there."
        )
    if answered is Answered.SIGNED_BEFORE:
        return f"Approval {approval.id} was not given: the passkey is gone, or it has signed something since."
    why = "it has expired" if approval.status is ApprovalStatus.PENDING else f"it is {approval.status.value} already"
    return f"Approval {approval.id} no longer takes an answer: {why}."
