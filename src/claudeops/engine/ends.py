"""The ends of sessions on their way into the database: however long that is away, and whatever it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from claudeops.domain.model import Extraction, ExtractionMethod, Outcome, Trigger
from claudeops.errors import DatabaseUnavailableError, StaleAttemptError, StoreError
from claudeops.logs import LogEvent

if TYPE_CHECKING:
    from claudeops.domain.model import Ending, EscalationRules, Finished
    from claudeops.engine.ports import Store
    from claudeops.logs import Logger

RETRY_FIRST_SECONDS: Final = 0.25
RETRY_LONGEST_SECONDS: Final = 10.0


async def write_end(ending: Ending, *, store: Store, rules: EscalationRules, log: Logger) -> Finished | None:
    """Write the end of a session; while the database is away, the result waits for it.

    What the database refuses for good is left out: the row then says that, and the log still has everything.
    ``None``: the row belongs to somebody else by now, or not even that could be written.
    """
    try:
        return await _written(ending, store=store, rules=rules, log=log)
    except StaleAttemptError as error:
        log.error(LogEvent.STALE_ATTEMPT, error=str(error))
        return None
    except StoreError as error:
        log.critical(LogEvent.SESSION_END_REFUSED, error=str(error))
        refused = str(error)
    try:
        return await _written(_bare(ending, refused), store=store, rules=rules, log=log)
    except StoreError as error:
        log.critical(LogEvent.SESSION_END_REFUSED, error=str(error))
        return None


def tell_end(ending: Ending, finished: Finished, log: Logger) -> None:
    """Log how a session ended and what follows."""
    log.info(
        LogEvent.SESSION_ENDED,
        outcome=ending.outcome.value,
        error_category=ending.error_category,
        extraction_method=ending.extraction.method.value,
        duration_ms=ending.duration_ms,
        cost_usd=ending.cost_usd,
        calls_ran=ending.calls_ran,
        # Out of the database's reach: `claudeops audit verify --log` compares the two.
        audit_head=finished.audit_head,
        audit_results=finished.audit_results,
    )
    log.info(LogEvent.DECISION_MADE, reason=finished.decision.reason.value)
    if finished.decision.next is not None:
        escalated = finished.decision.next.trigger is Trigger.ESCALATION
        log.info(
            LogEvent.ESCALATION_QUEUED if escalated else LogEvent.RETRY_QUEUED,
            next_session_id=finished.next_session_id,
            next_tier=finished.decision.next.tier,
        )


async def _written(ending: Ending, *, store: Store, rules: EscalationRules, log: Logger) -> Finished:
    delay = RETRY_FIRST_SECONDS
    while True:
        try:
            finished = await store.finish(ending, rules=rules)
        except DatabaseUnavailableError as error:
            log.error(LogEvent.DATABASE_UNAVAILABLE, while_doing="finish", error=str(error))
        else:
            if delay > RETRY_FIRST_SECONDS:
                log.info(LogEvent.DATABASE_RECOVERED, while_doing="finish")
            return finished
        await anyio.sleep(delay)
        delay = min(delay * 2, RETRY_LONGEST_SECONDS)


def _bare(ending: Ending, refused: str) -> Ending:
    """Return the same end without what a model or a CLI wrote; only what it cost is kept."""
    return replace(
        ending,
        outcome=Outcome.ERROR,
        error=f"the end of this session could not be written as it was: {refused}",
        extraction=Extraction(method=ExtractionMethod.NONE, report=None),
        api_key_source=None,
        response=None,
        last_assistant_text=None,
        warnings=(),
        stderr_tail=None,
        tool_ends=(),
        events=(),
    )
