"""Tables of probes: how each stands, and how it was."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Float, Index, Integer, PrimaryKeyConstraint, Table

from claudeops.domain.probes.probe import ProbeState
from claudeops.store.tables.base import metadata, one_of, session_column
from claudeops.store.tables.columns import CleanText, Count, Name, UtcDateTime

probes: Final = Table(
    "probes",
    metadata,
    Column("name", Name, primary_key=True),
    Column("service", Name, nullable=False),
    Column("kind", Name, nullable=False),
    Column("state", Name, nullable=False),
    Column("since", UtcDateTime),
    Column("last_checked_at", UtcDateTime),
    Column("detail", CleanText, nullable=False),
    Column("latency_ms", Float),
    Column("failures", Count, nullable=False),
    Column("successes", Count, nullable=False),
    Column("owner", Name),
    Column("interval_seconds", Float, nullable=False),
    Column("explained_by", Name, nullable=False),
    Column("incident", Name, nullable=False),
    Column("counters", CleanText, nullable=False),
    Column("healthy_since", UtcDateTime),
    session_column(nullable=True),
    Column("chain_at", UtcDateTime),
    Column("ping_success_at", UtcDateTime),
    Column("ping_start_at", UtcDateTime),
    Column("ping_fail_at", UtcDateTime),
    Column("ping_text", CleanText),
    Column("ping_runs", CleanText),
    one_of("state", ProbeState),
    Index(None, "service"),
    Index(None, "session_id"),
)

probe_history: Final = Table(
    "probe_history",
    metadata,
    Column("probe", Name, nullable=False),  # no reference: its pictures outlive a declaration
    Column("resolution", Integer, nullable=False),  # seconds
    Column("bucket", UtcDateTime, nullable=False),
    Column("checks", Count, nullable=False),
    Column("failures", Count, nullable=False),
    Column("latency", CleanText, nullable=False),
    PrimaryKeyConstraint("probe", "resolution", "bucket"),
    Index(None, "resolution", "bucket"),
)
