"""The one path by which a person's answer is recorded, whether it comes from a shell, a chat or a page.

The answer is proved with the key that no session can read, and written. What it does to the question is decided in the
database, so that of several answers at once each counts once and one decides. A call that waits in this process is
woken at once; one that waits in another process finds the answer at its next look.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from claudeops.domain.gate.approval import Answered, Approval, ApprovalStatus, answer
from claudeops.domain.text import clip
from claudeops.store.verdicts import SqlVerdicts


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerResult:
    """What became of an answer, and the question as it stands after it."""

    answered: Answered
    approval: Approval | None = None  # None: there is no such question


async def answer_question(
    verdicts: SqlVerdicts,
    key: bytes,
    approval_id: int,
    *,
    status: ApprovalStatus,
    decided_by: str,
    at: datetime,
    call_hash: str | None = None,
    token: str | None = None,
) -> AnswerResult:
    """Record a person's yes or no, with its proof; whether this person may answer is the caller's to know.

    ``call_hash``, where given, is what the person was shown: a question about anything else is unknown. ``token`` is
    the digest of the button that was tapped. Raises `DatabaseUnavailableError`; then nothing is known of the answer,
    and the same call may be made again, with the same token.
    """
    asked = await verdicts.approval(approval_id)
    if asked is None or (call_hash is not None and call_hash != asked.call_hash):
        return AnswerResult(answered=Answered.UNKNOWN)
    # The proof is over the name as its column holds it.
    said = answer(key, asked, status=status, decided_by=clip(decided_by), at=at)
    answered = await verdicts.answer_approval(approval_id, said, token=token)
    return AnswerResult(answered=answered, approval=await verdicts.approval(approval_id) or asked)
