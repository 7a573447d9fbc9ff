"""Tables of probes: how each one stands, and what it saw."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Float, Index, Integer, PrimaryKeyConstraint, Table

from claudeops.domain.probes.probe import ProbeState
from claudeops.store.tables.base import metadata, one_of, session_column
from claudeops.store.tables.columns import CleanText, Count, Name, UtcDateTime

probes: Final = Table(
    "probes",
    metadata,
    Column("name", Name, primary_key=True, comment="the probe's name"),
    Column("service", Name, nullable=False, comment="the service that it looks at"),
    Column(
        "kind",
        Name,
        nullable=False,
        comment="how it looks: `http`, `tcp`, `tls`, `dns`, `icmp`, `postgres`, `mysql`, `redis`, `prometheus`, "
        "`docker`, `kubernetes`, `systemd`, `command`, `heartbeat`",
    ),
    Column("state", Name, nullable=False, comment="how it stands"),
    Column("since", UtcDateTime, comment="when it took that state; null: there was no look yet"),
    Column(
        "last_checked_at",
        UtcDateTime,
        comment="when the latest look ended, of several sites the oldest that their answer needs; null: there was none",
    ),
    Column("detail", CleanText, nullable=False, comment="what it saw, one line; of several sites, which see it so"),
    Column("latency_ms", Float, comment="of that look, in milliseconds; null: not measured"),
    Column(
        "failures",
        Count,
        nullable=False,
        comment="looks that saw it down since it last worked for several looks in a row",
    ),
    Column("successes", Count, nullable=False, comment="looks in a row that saw it work"),
    Column("owner", Name, comment="the daemon that looks, or has looked last, as in `instances`; null: none has yet"),
    Column(
        "site",
        Name,
        comment="where that daemon is; of several that look, one that sees the failure; null: its version does not say",
    ),
    Column("interval_seconds", Float, nullable=False, comment="seconds between two looks"),
    Column("explained_by", Name, nullable=False, comment="the service whose failure explains this one, or empty"),
    Column(
        "incident",
        Name,
        nullable=False,
        comment="names what the chain was started for that deals with its failure, or empty",
    ),
    Column("counters", CleanText, nullable=False, comment="JSON: what else the state machine counts"),
    Column("healthy_since", UtcDateTime, comment="since then every look has seen it up; null: the latest one has not"),
    session_column(
        "the chain that was last started because of it, by its first session; null: none, or it is removed",
        nullable=True,
    ),
    Column("chain_at", UtcDateTime, comment="when that was queued; null: never"),
    Column("handled_at", UtcDateTime, comment="when a failure was last left to a chain or a person; null: never"),
    Column("handled_state", Name, comment="its state then; null: not known"),
    Column("ping_success_at", UtcDateTime, comment="of a heartbeat: its latest ping of success; null: none came"),
    Column("ping_start_at", UtcDateTime, comment="of a heartbeat: its latest ping of a start; null: none came"),
    Column("ping_fail_at", UtcDateTime, comment="of a heartbeat: its latest ping of a failure; null: none came"),
    Column("ping_text", CleanText, comment="the latest line that came with a ping; null: none"),
    Column(
        "ping_runs", CleanText, comment="JSON: runs that have begun and not ended, `id` and `at` of each; null: none"
    ),
    one_of("state", ProbeState),
    Index(None, "service"),
    Index(None, "session_id"),
    comment="How each probe stands. A row is written at once when its state changes, else every few seconds; "
    "it goes when the probe is no longer declared.",
)

probe_views: Final = Table(
    "probe_views",
    metadata,
    Column("probe", Name, nullable=False, comment="its name"),
    Column("site", Name, nullable=False, comment="the site that looks"),
    Column("owner", Name, nullable=False, comment="the daemon that looks there; what a dead one saw does not count"),
    Column("state", Name, nullable=False, comment="how the probe stands by the looks of this site alone"),
    Column("since", UtcDateTime, comment="when it took that state; null: there was no look yet"),
    Column("last_checked_at", UtcDateTime, comment="when the latest look ended; null: there was none"),
    Column("detail", CleanText, nullable=False, comment="what it saw, one line"),
    Column("latency_ms", Float, comment="of that look, in milliseconds; null: not measured"),
    Column(
        "failures",
        Count,
        nullable=False,
        comment="looks that saw it down since it last worked for several looks in a row",
    ),
    Column("successes", Count, nullable=False, comment="looks in a row that saw it work"),
    Column("explained_by", Name, nullable=False, comment="the service whose failure explains this one, or empty"),
    Column("counters", CleanText, nullable=False, comment="JSON: what else the state machine counts"),
    Column("healthy_since", UtcDateTime, comment="since then every look has seen it up; null: the latest one has not"),
    PrimaryKeyConstraint("probe", "site"),
    one_of("state", ProbeState),
    comment="How a probe stands at each of the sites that it names; `probes` has what they make of it together.",
)

probe_history: Final = Table(
    "probe_history",
    metadata,
    # so no reference
    Column("probe", Name, nullable=False, comment="its name; the probe may be gone"),
    Column("resolution", Integer, nullable=False, comment="the length of the stretch in seconds: 300 or 3600"),
    Column("bucket", UtcDateTime, nullable=False, comment="when the stretch begins"),
    Column("checks", Count, nullable=False, comment="looks; one that could not look is not counted"),
    Column("failures", Count, nullable=False, comment="of these, looks that saw it down"),
    Column(
        "latency",
        CleanText,
        nullable=False,
        comment="a histogram of the others: `31:9,32:1` are nine looks in bin 31 and one in bin 32; bin n is about "
        "0.25 ms · 2^((n + 0.5) / 4)",
    ),
    PrimaryKeyConstraint("probe", "resolution", "bucket"),
    Index(None, "resolution", "bucket"),
    comment="What probes saw, for pictures.",
)
