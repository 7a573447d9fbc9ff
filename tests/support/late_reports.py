"""Sessions that were lost, and what a replay of their logs yields."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from claudeops.domain.chains.backfill import Backfilled
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.report.report import Report, ReportedMemory, ServiceStatus
from claudeops.domain.sessions import Ending, Session, Trigger
from claudeops.store.store import Store
from claudeops.store.tables.all_tables import metadata
from support.store_values import (
    NOW,
    OTHER_OWNER,
    after,
    allow,
    check,
    ending,
    gone,
    recorded,
    report,
    restart,
    started,
    wanted,
)
from support.stores import Database

FAULT: Final = NewEvent(level=EventLevel.CRITICAL, message="web answers 502", service="web")
TIMING: Final = ReportedMemory(category="timing", observation="answers within 40 ms", service="web")
FULL: Final = report(check("web", ServiceStatus.DEGRADED), check("db"), events=(FAULT,), memories=(TIMING,))
WELL: Final = report(check("web"), memories=(TIMING,))
"""A report from which something may be learnt: nothing was unwell."""
SEEN: Final = report(check("db"), events=(FAULT,), memories=(TIMING,))
"""The same with the event of `FULL`."""


def all_rows(database: Database) -> dict[str, list[dict[str, object]]]:
    """Return every row of every table."""
    return {table: database.rows(table) for table in metadata.tables}


def read(session: Session, said: Report | None = FULL, **changes: object) -> Ending:
    """Return what a replay of the session's log yields."""
    values: dict[str, object] = {"cli_session_id": session.cli_session_id, "cost_usd": 0.25, "num_turns": 4, **changes}
    return ending(session, said, **values)


async def lost(store: Store, *, at: datetime = NOW, tier: int = 1, calls: bool = False) -> Session:
    """Start a session whose daemon dies; return its row."""
    session = await started(store, wanted(tier, trigger=Trigger.RECOVERY), at=at)
    if calls:
        await recorded(store, session, "toolu_1", allow(restart()), at=at)
        await recorded(store, session, "toolu_2", allow(restart("db")), at=at)
    (row,) = await gone(store, at=after(hours=1))
    await store.recovery.depart(OTHER_OWNER)
    return row


async def amended(store: Store, end: Ending) -> Backfilled:
    result = await store.recovery.backfill(end)
    assert isinstance(result, Backfilled)
    return result
