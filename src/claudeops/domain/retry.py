"""Whether a failed session is tried once more."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from claudeops.domain.model import LOWEST_TIER, NewSession, Outcome, Trigger

if TYPE_CHECKING:
    from datetime import datetime

    from claudeops.domain.model import Ending, Session

RETRY_DELAY: Final = timedelta(seconds=5)
"""A moment, because what broke the session may be under repair: a binary that is replaced, a disk that is mounted."""

_MAY_PASS: Final = frozenset(
    {
        Outcome.ERROR,
        Outcome.TIMEOUT,
        Outcome.STARTUP_TIMEOUT,
        Outcome.STALLED,
        Outcome.NO_OUTPUT,
        Outcome.NO_RESULT,
        Outcome.OUT_OF_MEMORY,
        Outcome.OUT_OF_PROCESSES,
        Outcome.OUT_OF_DISK,
        Outcome.FILE_TOO_LARGE,
        Outcome.SPAWN_FAILED,
    }
)
"""Outcomes that another try may not have. A limit of the session's own, or our own stop, it would meet again."""


def has_retry(session: Session) -> bool:
    """Tell whether a session that fails may be tried again at all; it depends on how it fails, too."""
    return session.tier <= LOWEST_TIER and session.trigger is not Trigger.RETRY


def retry_of(session: Session, ending: Ending, now: datetime) -> NewSession | None:
    """Return the same session once more; ``None`` where it had its retry, would not profit, or can change things."""
    if not has_retry(session) or ending.outcome not in _MAY_PASS:
        return None
    return NewSession(
        tier=session.tier,
        trigger=Trigger.RETRY,
        model=session.model,
        harness=session.harness,
        prompt_text=session.prompt_text,
        context=session.context,
        parent_session_id=session.id,
        not_before=now + RETRY_DELAY,
    )
