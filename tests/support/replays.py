"""Sessions whose daemon died, databases that were restored, and what the tables hold before and after a replay."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from claudeops.clock import Clock
from claudeops.domain.chains.backfill import BackfillPart, BackfillRejected
from claudeops.domain.sessions import Ending, Session
from claudeops.engine.control import StopControl
from claudeops.engine.recovery.replay import read_log
from claudeops.engine.session.context import SessionContext
from claudeops.engine.session.runner import SessionRunner
from claudeops.store.connection.engines import parse_url
from claudeops.store.tables.all_tables import metadata
from claudeops.structs import replace
from support.estate import Estate

Tables = dict[str, list[dict[str, object]]]

NOW: Final = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LOST_AT: Final = NOW + timedelta(days=1)


class StillClock(Clock):
    """A wall clock that stands still, or goes on by a step each time somebody looks; the other one is real."""

    def __init__(self, step: timedelta = timedelta(0)) -> None:
        self._now = NOW
        self._step = step

    def now(self) -> datetime:
        self._now += self._step
        return self._now

    def monotonic(self) -> float:
        return time.monotonic()


def tables(estate: Estate) -> Tables:
    """Return every row of every table."""
    return {name: [dict(row) for row in estate.rows(f"SELECT * FROM {name}")] for name in metadata.tables}  # noqa: S608 - our own names


def database_file(estate: Estate) -> Path:
    return Path(str(parse_url(estate.url).database))


def copy_database(estate: Estate, target: Path) -> Path:
    """Copy the database as a backup does, while it is open."""
    with closing(sqlite3.connect(database_file(estate))) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
    return target


def restore_database(estate: Estate, backup: Path) -> None:
    with closing(sqlite3.connect(backup)) as source, closing(sqlite3.connect(database_file(estate))) as target:
        source.backup(target)


async def ran(estate: Estate, *steps: Mapping[str, object], tier: int = 1, request: str | None = None) -> Ending:
    """Run one session of the stand-in; its end is not written yet."""
    estate.script(*steps)
    await estate.queue(tier, request)
    return await SessionRunner(context=estate.context).run(await estate.claim(), StopControl())


async def mark_lost(estate: Estate) -> Session:
    """End the running session as one whose daemon is gone; return its row."""
    somebody = replace(estate.owner, name="the next daemon")
    (orphan,) = (await estate.store.recovery.reconcile(somebody, now=LOST_AT, alive=lambda _: False)).sessions
    session = await estate.store.recovery.mark_lost(orphan, rules=estate.context.rules, now=LOST_AT)
    await estate.store.recovery.depart(somebody)
    return session


async def lost_with_log(estate: Estate, *lines: object, harness: str = "claude") -> Session:
    """Queue, claim and lose a session; its log holds ``lines``: frames get the session's id, bytes stay as they are."""
    await estate.queue(harness=harness)
    session = await estate.claim()
    path = Path(session.log_path or "")
    path.write_bytes(b"".join(line_of(line, session) for line in lines))
    return await mark_lost(estate)


def line_of(line: object, session: Session) -> bytes:
    if isinstance(line, bytes):
        return line
    assert isinstance(line, dict)
    return json.dumps({"session_id": session.cli_session_id, **line}).encode() + b"\n"


def result_line(document: Mapping[str, object], **overrides: object) -> dict[str, object]:
    """Return a result frame that delivers a report."""
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": 2,
        "total_cost_usd": 0.01,
        "usage": {"input_tokens": 100, "output_tokens": 20},
        "structured_output": document,
        **overrides,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """A log that the database holds everything of by now."""

    session: Session  # as it stands now
    path: str
    frames: int
    parts: frozenset[BackfillPart]  # what was missing and is written now
    ending: Ending  # as read from the log; its outcome is not the row's


async def replay(session_id: int, context: SessionContext) -> Replayed | BackfillRejected:
    """Read a session's log again, as recovery does, and write what the database lacks; what is refused is returned."""
    session = await context.store.records.session(session_id)
    assert session is not None
    read = await read_log(session, context)
    if isinstance(read, BackfillRejected):
        return read
    amended = await context.store.recovery.backfill(read.ending)
    if isinstance(amended, BackfillRejected):
        return amended
    return Replayed(
        session=amended.session,
        path=session.log_path or "",
        frames=read.frames,
        parts=amended.parts,
        ending=read.ending,
    )


async def replayed(estate: Estate, session_id: int = 1) -> Replayed:
    result = await replay(session_id, estate.context)
    assert isinstance(result, Replayed), result
    return result
