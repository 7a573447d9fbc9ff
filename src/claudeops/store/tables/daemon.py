"""Tables of the daemon itself: commands to it, flags, instances that run, their leases, and fires of schedules."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, Column, Float, Index, Integer, PrimaryKeyConstraint, Table

from claudeops.store.tables.base import metadata, session_column, table
from claudeops.store.tables.columns import CleanText, Name, Usd, UtcDateTime

commands: Final = table(
    "commands",
    Column(
        "name",
        Name,
        nullable=False,
        comment="what is wanted; also `migrate_from`, on record alone: a database of Claude Ops was taken over",
    ),
    Column(
        "arguments",
        CleanText,
        nullable=False,
        comment='JSON; of `stop`: `{"session_id": 12}` or `{"chain": 12}`; of `migrate_from`: `origin`, `path`',
    ),
    Column("requested_by", Name, comment="the user who wants it; null: not known"),
    Column("requested_at", UtcDateTime, nullable=False, comment="when it was requested"),
    Column(
        "for_owner",
        Name,
        comment="the daemon that it is for, as in `instances`; another one takes it when that is dead; null: any",
    ),
    Column(
        "taken_by",
        Name,
        comment="the daemon that took it, as in `instances`; when that is dead, another takes it again; null: none has",
    ),
    Column(
        "taken_at",
        UtcDateTime,
        comment="when a daemon took it, at most a second later; null and ended: withdrawn, because none took it up",
    ),
    Column("ended_at", UtcDateTime, comment="when it was over; null: it waits, or is under way"),
    Column("result", CleanText, comment="what came of it; null: nothing yet, or `error` says why not"),
    Column("error", CleanText, comment="why nothing came of it; null: something did, or it is not over"),
    Index(None, "taken_at"),
    Index(None, "ended_at", "id"),
    comment="What operators want of the running daemon.",
)

flags: Final = Table(
    "flags",
    metadata,
    Column("name", Name, primary_key=True, comment="the kind of the hold; a disk's with ` on node <name>`"),
    Column(
        "value",
        CleanText,
        nullable=False,
        comment="JSON: `since`; `failures`, refusals in a row; `probe`, the trial session",
    ),
    Column("reason", CleanText, comment="one sentence for the operator; null: none was given"),
    Column(
        "until",
        UtcDateTime,
        comment="paused, budget: the hold ends then; breaker, parked: one trial session may start from then on; "
        "null: until released",
    ),
    Column("updated_at", UtcDateTime, nullable=False, comment="when the row was last written"),
    Column("updated_by", Name, comment="the operator who wants it; null: the daemon itself"),
    comment="Holds, which keep sessions in the queue. A hold that has lapsed may stay here until the next claim.",
)

instances: Final = Table(
    "instances",
    metadata,
    Column("owner", Name, primary_key=True, comment="as in `sessions.owner`; new at every start"),
    Column("pid", Integer, nullable=False, comment="the daemon's process id"),
    Column(
        "process_started_at",
        Float,
        nullable=False,
        comment="seconds since the epoch: tells it from a later process with the same pid",
    ),
    Column("boot_id", Name, nullable=False, comment="the machine's"),
    Column("pid_namespace", Name, comment="in which `pid` means something; null: not known, or of an earlier version"),
    Column(
        "heartbeat",
        UtcDateTime,
        nullable=False,
        comment="its last sign of life: every five seconds while it runs and the database takes writes; with "
        "PostgreSQL on the server's clock. An owner elsewhere is dead a minute later",
    ),
    Column("node", Name, comment="the machine's name, `CLAUDEOPS_NODE`; null: its version does not say"),
    Column("site", Name, comment="where that is, `CLAUDEOPS_SITE`; null: its version does not say"),
    Column("max_tier", Integer, comment="the highest tier that it runs; null: its version does not say"),
    Column(
        "is_alone",
        Boolean,
        comment="no other daemon can work on the database, so it runs the sessions of every site; null: its version "
        "does not say",
    ),
    Column("version", Name, comment="of claudeops; null: it does not say"),
    Column("revision", Name, comment="of the tables, which this version needs; null: it does not say"),
    Column(
        "digests",
        CleanText,
        comment="JSON: by its name a digest of each thing by which it decides, as it is now; null: it does not say",
    ),
    comment="The daemons that run.",
)

leases: Final = Table(
    "leases",
    metadata,
    Column(
        "name",
        Name,
        primary_key=True,
        comment="what one owner does at a time: `alerts`, `notices`, `probes:<site>`, `schedules`, `upkeep`; "
        "`service:<name>`",
    ),
    Column(
        "owner",
        Name,
        comment="the daemon that does it, as in `instances`; of a service: the chain, by its first session; null: none",
    ),
    Column("term", Integer, nullable=False, comment="one more with each new owner: an older term writes no more"),
    Column(
        "ends_at",
        UtcDateTime,
        nullable=False,
        comment="from when another owner may take it; a daemon that is the only one keeps it without renewing it",
    ),
    comment="Leases: what one daemon, or one chain, does at a time. A row stays for its term when it has no owner.",
)

schedule_fires: Final = Table(
    "schedule_fires",
    metadata,
    Column("schedule", Name, nullable=False, comment="the schedule's name"),
    Column("due_at", UtcDateTime, nullable=False, comment="when a chain was due, before jitter"),
    Column("fired_at", UtcDateTime, nullable=False, comment="when the daemon decided about it"),
    session_column("the chain that it started, by its first session; null: none, or it is removed", nullable=True),
    Column("skipped_reason", Name, comment="why it started no chain; null: it started one"),
    Column("saved_usd", Usd, comment="with `unchanged`: what the schedule's chains cost on average; null: not known"),
    # no reference: the chain may be gone
    Column(
        "after_chain",
        Integer,
        comment="the chain for whose end this one waits, by its first session; null: it waits for none",
    ),
    PrimaryKeyConstraint("schedule", "due_at"),
    Index(None, "session_id"),
    Index(None, "fired_at"),
    comment="Each due time of each schedule, once.",
)
