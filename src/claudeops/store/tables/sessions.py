"""Tables of sessions and of what they did: calls, actions, checks, calls of a model, and money."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    bindparam,
    select,
)

from claudeops.domain.actions import Recheck
from claudeops.domain.calls import VerdictKind
from claudeops.domain.report.report import CheckSource, ExtractionMethod, ServiceStatus
from claudeops.domain.sessions import DecisionReason, Outcome, Status
from claudeops.store.tables.base import metadata, one_of, session_column, table
from claudeops.store.tables.columns import CleanText, Count, Name, Usd, UsdSum, UtcDateTime

sessions: Final = table(
    "sessions",
    Column(
        "root_session_id",
        Integer,
        ForeignKey("sessions.id"),
        comment="the chain: its first session, which names itself; null only until its own insert is done",
    ),
    Column(
        "parent_session_id",
        Integer,
        ForeignKey("sessions.id"),
        comment="the session that led to this one; null: it is the first of its chain",
    ),
    Column("tier", Integer, nullable=False, comment="1 observe, 2 investigate, 3 remediate"),
    Column("ordinal", Integer, nullable=False, comment="tells retries of one parent apart"),
    Column("harness", Name, nullable=False, comment="the kind of CLI: `claude`, `codex` or `caliban`"),
    Column("model", Name, nullable=False, comment="as the tier's setting names it"),
    Column("trigger", Name, nullable=False, comment="why the session exists"),
    Column(
        "prompt_text",
        CleanText,
        comment="an ad-hoc request, only on the first session of a chain; null: none, or it was removed for its age",
    ),
    Column(
        "context",
        CleanText,
        comment="what the tier before hands over: JSON with `reason`, `findings`, `failed_checks`, "
        "`service_status`, `started_for`; null: none, or it was removed for its age",
    ),
    Column("status", Name, nullable=False, comment="where the session stands; it only moves forward"),
    Column("outcome", Name, comment="how it ended; null until then"),
    Column("error_category", Name, comment="what kind of error the stream reported; null: none"),
    Column("failure_kind", Name, comment="what the daemon does about the failure; null: it did not fail"),
    Column("error", CleanText, comment="the error in words; null: none"),
    Column("extraction_method", Name, comment="how the report was obtained; null: it has not run to an end"),
    Column("decision_reason", Name, comment="what the daemon concluded; null until the session has ended"),
    Column(
        "cli_session_id",
        Name,
        comment="chosen before the spawn, or the CLI's own as soon as it names it (codex, caliban); null: not "
        "known yet",
    ),
    Column("api_key_source", Name, comment="a label that the CLI gives, no secret; null: it gave none"),
    Column("created_at", UtcDateTime, nullable=False, comment="when it was queued"),
    Column("not_before", UtcDateTime, comment="it is not claimed earlier; null: at once"),
    Column("started_at", UtcDateTime, comment="when it was claimed; null: not yet"),
    Column("ended_at", UtcDateTime, comment="when it ended; null: not yet"),
    Column("duration_ms", Count, comment="milliseconds, by a clock that does not jump; null: not known"),
    Column(
        "exit_code",
        Count,
        comment="of the CLI; negative: a signal (which the CLI of a namespace may show as 128 and its number); "
        "null: never started, or its end was not seen",
    ),
    Column("num_turns", Count, comment="turns of the model; null: the stream does not report them"),
    Column("input_tokens", Count, comment="input tokens of all turns; null: the stream does not report them"),
    Column("output_tokens", Count, comment="output tokens of all turns; null: the stream does not report them"),
    Column("cost_usd", Usd, comment="what it has cost; null when unknown, never 0 for that"),
    Column("summary", CleanText, comment="the report's summary; null: there is none"),
    Column(
        "response",
        CleanText,
        comment="the assistant's joined text, of a long one both ends; null: none, or it was removed for its age",
    ),
    Column("tool_calls_seen", Count, comment="tool calls in the stream; null: it has not run to an end"),
    Column(
        "calls_ran",
        Count,
        comment="calls that the gate allowed and whose end was seen; not all of them are evidence for `healthy`; "
        "null: it has not run to an end",
    ),
    Column(
        "malformed_lines", Count, comment="lines of the stream that could not be read; null: it has not run to an end"
    ),
    Column("permission_mode", Name, comment="as in the init line; null: none was seen"),
    Column("stop_reason", Name, comment="the last one in the stream; null: none was seen"),
    Column("cli_duration_ms", Count, comment="milliseconds, as the CLI counts them; null: it does not report them"),
    Column(
        "cached_input_tokens",
        Count,
        comment="input tokens that came from a cache; null: the stream does not report them",
    ),
    Column(
        "reasoning_output_tokens", Count, comment="output tokens of reasoning; null: the stream does not report them"
    ),
    Column("tool_errors", Count, comment="calls whose result is an error; null: it has not run to an end"),
    Column(
        "api_retries",
        Count,
        comment="retries of the model API that the CLI announced; null: it has not run to an end",
    ),
    Column("unknown_frames", Count, comment="frames of unknown types; null: it has not run to an end"),
    Column(
        "last_assistant_text",
        CleanText,
        comment="the assistant's last message with text, of a long one both ends; null: none, or removed for its age",
    ),
    Column("warnings", CleanText, comment="what was unusual: a JSON list of sentences; null: nothing"),
    Column(
        "stderr_tail",
        CleanText,
        comment="the end of what the CLI wrote to standard error; null: nothing, or it was removed for its age",
    ),
    Column(
        "log_path",
        CleanText,
        comment="the log, written before the spawn: `session-<id>.ndjson`, with `.2` and so on before the suffix "
        "where a restored database meets a log of that id; null: never claimed",
    ),
    Column("log_node", Name, comment="the machine that writes the log, as in `instances.node`; null: not known"),
    Column(
        "attempt",
        Integer,
        nullable=False,
        comment="raised by every claim, and when another daemon takes a running session over; writes of another "
        "attempt are refused",
    ),
    Column("owner", Name, comment="the daemon that claimed it, as in `instances`; null: never claimed"),
    Column(
        "lease_expires_at",
        UtcDateTime,
        comment="an hour after the owner's last sign of life, for readers: nothing acts on it alone; "
        "null: never claimed",
    ),
    Column("audit_head", Name, nullable=False, comment="the `hash` of its last tool call, or empty"),
    Column(
        "audit_results",
        Name,
        comment="a hash over the results of its tool calls, written when it has ended; null until then",
    ),
    Column("isolation", Name, comment="what it was locked into; null: not started by this version, or never started"),
    Column(
        "budget_usd",
        Usd,
        comment="its own budget, where its schedule has one; the smaller of it and its tier's counts; null: its "
        "tier's alone",
    ),
    # no reference: an incident is written with what leads to it
    Column("incident_id", Integer, comment="the number of the incident that it belongs to; null: none"),
    Column(
        "services",
        CleanText,
        comment="the services that its request is about, a JSON list; its report leaves none of them out; null: "
        "the request names none",
    ),
    Column(
        "started_by",
        Name,
        comment="at whose wish it was queued: the user at the shell, the person on a page, or the token (`token 3 "
        "(homepage)`); null: the daemon queued it itself, or from before revision 0029",
    ),
    Column(
        "site",
        Name,
        comment="whose machines alone may run it, as in `instances.site`; null: any may, or from before revision 0036",
    ),
    Column(
        "for_node",
        Name,
        comment="the machine that alone may run it, as in `instances.node`, because it goes on with a conversation "
        "whose log is there; null: any machine of its site may",
    ),
    Column(
        "ranked_at",
        UtcDateTime,
        comment="by which the queue is ordered: when it is due, and later for a trigger of less haste; null: from "
        "before revision 0037",
    ),
    UniqueConstraint("parent_session_id", "tier", "trigger", "ordinal"),
    one_of("status", Status),
    one_of("outcome", Outcome),
    one_of("extraction_method", ExtractionMethod),
    one_of("decision_reason", DecisionReason),
    CheckConstraint("(status = 'ended') = (outcome IS NOT NULL)", name="ended_has_outcome"),
    Index(None, "status", "ranked_at", "id", "not_before"),
    Index(None, "root_session_id"),
    Index(None, "parent_session_id"),
    Index(None, "ended_at"),
    Index(None, "incident_id"),
    Index(None, "created_at"),
    Index(None, "tier", "outcome", "id"),
    Index(None, "tier", "id"),
    Index(None, "outcome", "id"),
    Index(None, "cli_session_id"),
    comment="One CLI process at one tier. A row is queued, spawned once, and ends; a retry is a new row.",
)

other_sessions: Final = sessions.alias("other")
"""The same rows for statements that compare two of them; one for all such statements, because it holds 140 KiB."""

is_under_way: Final = sessions.c.status.in_((Status.QUEUED.value, Status.RUNNING.value))
"""The condition that a session has not ended: unlike an inequality, both databases find such rows by an index."""

is_attempt: Final = select(sessions.c.id).where(
    sessions.c.id == bindparam("session"), sessions.c.attempt == bindparam("attempt")
)
"""Finds a session if ``attempt`` is still the one that has it, or was at its end."""

runs_as: Final = is_attempt.where(sessions.c.status == Status.RUNNING.value)
"""Finds a session if it still runs as ``attempt``."""

tool_calls: Final = table(
    "tool_calls",
    session_column("the session that requested it"),
    Column("tool_use_id", Name, nullable=False, comment="the CLI's id of the call"),
    Column("agent_id", Name, comment="the subagent that requested it; null: the session itself"),
    Column("tool_name", Name, nullable=False, comment="the tool"),
    Column("input", CleanText, nullable=False, comment="redacted JSON, as it was requested"),
    Column("verdict", Name, nullable=False, comment="the gate's answer"),
    Column("reason", CleanText, nullable=False, comment="the sentence that the model read"),
    Column("requested_at", UtcDateTime, nullable=False, comment="when it was requested"),
    Column("decided_at", UtcDateTime, nullable=False, comment="when the verdict was written"),
    Column("ended_at", UtcDateTime, comment="when its result was seen; null: never"),
    Column("is_error", Boolean, comment="whether that result is an error; null: none was seen"),
    Column(
        "previous_hash", Name, nullable=False, comment="the `hash` of the session's call before; empty for the first"
    ),
    Column("hash", Name, nullable=False, comment="of this row, also in `sessions.audit_head` for the last"),
    Column(
        "held_service",
        Name,
        comment="the service whose cooldown refused the call, not part of the hash; null: no cooldown did",
    ),
    Column(
        "ran", CleanText, comment="redacted JSON: the input that runs instead; null: `input` itself, or nothing, runs"
    ),
    one_of("verdict", VerdictKind),
    Index(None, "session_id", "tool_use_id"),
    Index(None, "session_id", "id"),
    comment="Every tool call that was requested, written with its verdict before the answer goes out.",
    many=True,
)

audit_tombstones: Final = table(
    "audit_tombstones",
    # so no reference
    Column("session_id", Integer, nullable=False, comment="whose calls they were; its row may be gone too"),
    Column("calls", Count, nullable=False, comment="how many rows were removed"),
    Column("audit_head", Name, nullable=False, comment="the `hash` of the last of them"),
    Column("audit_results", Name, comment="as in `sessions`; null: the session had not ended"),
    Column("reason", Name, nullable=False, comment="why they were removed: `retention` or `deleted`"),
    Column("buried_at", UtcDateTime, nullable=False, comment="when they were removed"),
    Column("previous_hash", Name, nullable=False, comment="the `hash` of the tombstone before; empty for the first"),
    Column("hash", Name, nullable=False, comment="of this row"),
    Index(None, "session_id"),
    comment="What remains of the tool calls of a session that were removed on purpose.",
)

cooldown_actions: Final = table(
    "cooldown_actions",
    session_column("the session that acted"),
    Column("tool_use_id", Name, nullable=False, comment="the call that carried it"),
    Column("service", Name, nullable=False, comment="the service that it changes"),
    Column("action_type", Name, nullable=False, comment="`restart` or `redeployment`"),
    Column("timestamp", UtcDateTime, nullable=False, comment="when it was reserved"),
    Column("success", Boolean, comment="whether its call succeeded; null until its session ends"),
    Column("tier", Integer, nullable=False, comment="of that session"),
    Column("error", CleanText, comment="why it failed; null: it did not"),
    Column(
        "cleared_at",
        UtcDateTime,
        comment="when two healthy checks in a row, or probes that have seen the service up for ten minutes, "
        "removed it from the count; null: it counts",
    ),
    Column("held", Name, comment="whether it helped, by a later look; null: not looked at yet"),
    Column("held_checked_at", UtcDateTime, comment="when that was looked at; null: not yet"),
    Column("follow_up_at", UtcDateTime, comment="when a look whether it holds is due; null: there is no such look"),
    # no reference: the session's row may be gone
    Column("follow_up_id", Integer, comment="the session that looks; null: probes answer"),
    one_of("held", Recheck),
    Index(None, "cleared_at", "timestamp"),
    Index(None, "cleared_at", "service", "timestamp"),
    Index(None, "session_id"),
    Index(None, "held_checked_at", "timestamp"),
    Index(None, "held", "follow_up_at"),
    Index(None, "follow_up_id"),
    Index(None, "service", "id"),
    Index(None, "tier", "id"),
    Index(None, "timestamp"),
    comment="The ledger: actions that change the world, reserved before they are allowed.",
)

service_checks: Final = table(
    "service_checks",
    session_column("the session that looked; null: a probe of the daemon did, or it is removed", nullable=True),
    Column("service", Name, nullable=False, comment="the service's name"),
    Column("status", Name, nullable=False, comment="its state"),
    Column("detail", CleanText, comment="what was seen, in words; null: nothing more"),
    Column("source", Name, nullable=False, comment="who looked"),
    Column("checked_at", UtcDateTime, nullable=False, comment="when it was looked at"),
    one_of("status", ServiceStatus),
    one_of("source", CheckSource),
    Index(None, "service", "id"),
    Index(None, "service", "session_id"),
    Index(None, "session_id"),
    Index(None, "checked_at"),
    comment="The state of a service when it was looked at.",
    many=True,
)

model_calls: Final = table(
    "model_calls",
    session_column("the session whose call it is"),
    Column("model", Name, nullable=False, comment="the model that was called"),
    Column("input_tokens", Count, comment="tokens that came from no cache; null: not known"),
    Column("output_tokens", Count, comment="tokens that the model wrote; null: not known"),
    Column("cache_read_tokens", Count, comment="tokens that came from a cache; null: not known"),
    Column("cache_write_tokens", Count, comment="all that were written to a cache; null: not known"),
    Column("cache_write_1h_tokens", Count, comment="the part of them that is kept for an hour; null: not known"),
    Column("cost_usd", Usd, comment="by the prices; null when unknown"),
    Column(
        "charged_usd",
        Usd,
        comment="what budgets count: while the call is open, the most that it can cost; null when unknown",
    ),
    Column("http_status", Integer, comment="of the answer; null: none came"),
    Column("error", CleanText, comment="the type of error that the API named, or what cut the call off; null: none"),
    Column("started_at", UtcDateTime, nullable=False, comment="when the call began"),
    Column("ended_at", UtcDateTime, comment="when it ended; null: it is still open, or its daemon died"),
    Index(None, "session_id", "id"),
    Index(None, "started_at"),
    comment="Calls to the model API: each row is written before the call starts and completed when it ends.",
    many=True,
)

budget_entries: Final = table(
    "budget_entries",
    session_column("the session whose money it is; null: it is removed", nullable=True),
    Column("kind", Name, nullable=False, comment="`reserved`, `settled` or `released`"),
    Column("amount_usd", Usd, nullable=False, comment="how much"),
    Column("created_at", UtcDateTime, nullable=False, comment="when it was booked"),
    CheckConstraint("kind IN ('reserved', 'settled', 'released')", name="kind"),
    Index(None, "session_id"),
    Index(None, "created_at"),
    comment="Money: a session's allowance is `reserved` at the claim; at its end it is `released`, and what "
    "was spent is `settled`.",
    many=True,
)

settled_sums: Final = Table(
    "settled_sums",
    metadata,
    Column("bucket", UtcDateTime, nullable=False, comment="when the quarter of an hour begins"),
    Column("amount_usd", UsdSum, nullable=False, comment="the sum of the entries that were settled in it"),
    PrimaryKeyConstraint("bucket"),
    comment="What was settled in each quarter of an hour, so that a day's sum is read by key. A trigger of the "
    "database adds each entry, whoever writes it: also a daemon of an older version.",
)
