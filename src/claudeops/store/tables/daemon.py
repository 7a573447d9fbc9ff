"""Tables of the daemon itself: commands to it, flags, instances that run, and fires of schedules."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Float, Index, Integer, PrimaryKeyConstraint, Table

from claudeops.store.tables.base import metadata, session_column, table
from claudeops.store.tables.columns import CleanText, Name, Usd, UtcDateTime

commands: Final = table(
    "commands",
    Column("name", Name, nullable=False),
    Column("arguments", CleanText, nullable=False),
    Column("requested_by", Name),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("taken_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("result", CleanText),
    Column("error", CleanText),
    Index(None, "taken_at"),
)

flags: Final = Table(
    "flags",
    metadata,
    Column("name", Name, primary_key=True),
    Column("value", CleanText, nullable=False),
    Column("reason", CleanText),
    Column("until", UtcDateTime),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("updated_by", Name),
)

instances: Final = Table(
    "instances",
    metadata,
    Column("owner", Name, primary_key=True),
    Column("pid", Integer, nullable=False),
    Column("process_started_at", Float, nullable=False),  # seconds since the epoch
    Column("boot_id", Name, nullable=False),
    Column("heartbeat", UtcDateTime, nullable=False),
)

schedule_fires: Final = Table(
    "schedule_fires",
    metadata,
    Column("schedule", Name, nullable=False),
    Column("due_at", UtcDateTime, nullable=False),
    Column("fired_at", UtcDateTime, nullable=False),
    session_column(nullable=True),
    Column("skipped_reason", Name),
    Column("saved_usd", Usd),
    Column("after_chain", Integer),  # no reference: the chain may be gone
    PrimaryKeyConstraint("schedule", "due_at"),
    Index(None, "session_id"),
    Index(None, "fired_at"),
)
