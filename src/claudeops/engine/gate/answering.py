"""The one path by which a person's answer is recorded, whether it comes from a shell or from a chat.

The answer is proved with the key that no session can read, and written. What it does to the question is decided in the
database, so that of several answers at once each counts once and one decides. A call that waits in this process is
woken at once; one that waits in another process finds the answer at its next look.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import anyio

from claudeops.domain.gate.approval import Answered, Approval, ApprovalStatus, answer
from claudeops.domain.text import clip
from claudeops.engine.ports import Verdicts

__all__ = ["AnswerResult", "AnswerWaker", "Answered", "Listening", "answer_question"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerResult:
    """What became of an answer, and the question as it stands after it."""

    answered: Answered
    approval: Approval | None = None  # None: there is no such question


async def answer_question(
    verdicts: Verdicts,
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


@dataclass(kw_only=True, slots=True)
class Listening:
    """A call that waits for news of its question."""

    _news: anyio.Event = field(default_factory=anyio.Event)

    def tell(self) -> None:
        """Say that there is news."""
        self._news.set()

    async def pause(self, seconds: float) -> None:
        """Return after some seconds, or at once when there is news, also if it came before this was called."""
        with anyio.move_on_after(seconds):
            await self._news.wait()
        self._news = anyio.Event()


@dataclass(kw_only=True, slots=True)
class AnswerWaker:
    """Wakes the calls of this process that wait for an answer; for one event loop."""

    _waiting: dict[int, Listening] = field(default_factory=dict)

    @contextmanager
    def listening(self, approval_id: int) -> Iterator[Listening]:
        """Listen for news of a question while the block runs."""
        self._waiting[approval_id] = listening = Listening()
        try:
            yield listening
        finally:
            self._waiting.pop(approval_id, None)

    def wake(self, approval_id: int) -> None:
        """Wake whoever waits for an answer to this question, if anybody does."""
        if (listening := self._waiting.get(approval_id)) is not None:
            listening.tell()
