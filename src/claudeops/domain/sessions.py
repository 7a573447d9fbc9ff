"""Sessions as values: how one is queued, how it stands, how it ended, and what was decided then.

Here as in the whole domain times are timezone-aware UTC ``datetime``; money is ``float`` US dollars, ``None`` where
unknown (never 0 for unknown); durations carry their unit in the name.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from claudeops.domain.calls import CliRefusal, ToolEnd
from claudeops.domain.events import NewEvent
from claudeops.domain.looks import EvidenceLook
from claudeops.domain.report.report import Extraction, ExtractionMethod, ServiceCheck
from claudeops.domain.spending.tokens import CallState

LOWEST_TIER: Final = 1
"""The tier that only looks: always allowed. Dry run and cooldowns hold back those above, which are never repeated."""


class Trigger(StrEnum):
    """Why a session exists."""

    SCHEDULED = "scheduled"
    MANUAL = "manual"
    API = "api"
    ALERT = "alert"
    ESCALATION = "escalation"
    FOLLOW_UP = "follow_up"
    RETRY = "retry"
    RECOVERY = "recovery"


class Status(StrEnum):
    """Where a session row stands; it only ever moves forward."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


class Outcome(StrEnum):
    """How a session ended."""

    SUCCESS = "success"
    ERROR = "error"
    MAX_TURNS = "max_turns"
    BUDGET_EXCEEDED = "budget_exceeded"
    MAX_TOKENS = "max_tokens"
    TIMEOUT = "timeout"  # the wall clock ran out
    STARTUP_TIMEOUT = "startup_timeout"  # no first frame in time
    STALLED = "stalled"  # frames stopped coming
    CANCELLED = "cancelled"  # the daemon or an operator stopped it
    BLOCKED = "blocked"  # a rule stopped it before its first turn
    NO_OUTPUT = "no_output"  # the process ended without one line
    NO_RESULT = "no_result"  # lines, but no result line
    OUT_OF_MEMORY = "out_of_memory"
    OUT_OF_PROCESSES = "out_of_processes"  # it reached the processes that it may have
    OUT_OF_DISK = "out_of_disk"  # it outgrew the disk that it may use, or the machine's disk is nearly full
    FILE_TOO_LARGE = "file_too_large"  # one of its files reached the size that a file may have
    SPAWN_FAILED = "spawn_failed"
    UNGATED_CALL = "ungated_call"  # a tool ran without the gate's yes
    LOST = "lost"  # its daemon died and its log holds no result


class ErrorCategory(StrEnum):
    """What kind of error a session's stream reported; the first match in this order counts."""

    RATE_LIMIT = "rate_limit"
    AUTH = "auth"
    API = "api"
    INTERACTIVE = "interactive"
    BACKGROUND_TASK = "background-task"
    SUBPROCESS = "subprocess"
    TIMEOUT = "timeout"


class FailureKind(StrEnum):
    """What a supervisor should do about a failure: park, back off, stop all, ask another model, or nothing special."""

    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    AUTH = "auth"
    BILLING = "billing"
    REFUSAL = "refusal"  # the model declined; the same words to it again would be declined again
    OTHER = "other"


class DecisionReason(StrEnum):
    """What the daemon concluded when a session ended, and why it did or did not go on."""

    HEALTHY = "healthy"
    ESCALATED = "escalated"
    MAX_TIER = "max_tier"
    DRY_RUN = "dry_run"
    COOLDOWN = "cooldown"
    BUDGET = "budget"
    NO_REPORT = "no_report"
    NO_EVIDENCE = "no_evidence"
    SESSION_FAILED = "session_failed"
    PAUSED = "paused"
    MAINTENANCE = "maintenance"


# --- what a report says -------------------------------------------------------------------------------


# --- sessions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """What the next tier is told; stored as JSON in ``sessions.context``."""

    reason: str
    findings: str
    failed_checks: tuple[str, ...] = ()
    service_status: tuple[ServiceCheck, ...] = ()
    started_for: tuple[str, ...] = ()  # services that the chain must still report on


@dataclass(frozen=True, kw_only=True, slots=True)
class NewSession:
    """A session to be queued: one row."""

    tier: int
    trigger: Trigger
    model: str
    harness: str = "claude"
    prompt_text: str | None = None  # ad-hoc request; belongs to the first session of its chain
    services: tuple[str, ...] = ()  # that the request is about, likewise; empty: it names none
    context: Handover | None = None
    parent_session_id: int | None = None
    ordinal: int = 0  # tells retries of one parent apart
    not_before: datetime | None = None
    budget_usd: float | None = None  # where it is less than the tier's; None: the tier's
    started_by: str | None = None  # the person or token at whose wish it is queued; None: the daemon queues it itself


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A session row as the engine sees it. ``root_session_id`` names the chain; a root names itself."""

    id: int
    root_session_id: int
    parent_session_id: int | None
    tier: int
    ordinal: int
    harness: str
    model: str
    trigger: Trigger
    prompt_text: str | None
    context: Handover | None
    status: Status
    attempt: int  # raised by every claim; every later write of the session carries it
    created_at: datetime
    cli_session_id: str | None = None  # chosen before the spawn
    log_path: str | None = None  # written before the spawn
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    decision_reason: DecisionReason | None = None
    extraction_method: ExtractionMethod | None = None
    error: str | None = None
    error_category: ErrorCategory | None = None
    exit_code: int | None = None  # of its CLI; negative: a signal; None: never started, or not known
    summary: str | None = None
    cost_usd: float | None = None
    num_turns: int | None = None
    budget_usd: float | None = None  # where it is less than the tier's; None: the tier's
    services: tuple[str, ...] = ()  # that its request is about
    started_by: str | None = None  # as in `NewSession`
    allowance_usd: float | None = None  # what was reserved for it; set by its claim alone. None: nothing limits it

    @property
    def resumes(self) -> int | None:
        """The id of the session with whose conversation this one goes on; ``None``: it begins its own.

        A person's request that has a parent is one: nothing else hangs a session of that trigger below another.
        """
        return self.parent_session_id if self.trigger is Trigger.MANUAL else None


# --- the gate -----------------------------------------------------------------------------------------


# --- endings and decisions ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """Everything known about a session once its process is gone; ``store.finish`` writes all of it."""

    session_id: int
    attempt: int
    outcome: Outcome
    extraction: Extraction
    ended_at: datetime
    duration_ms: int
    calls_ran: int  # calls that the gate allowed (where the harness has one) and that returned a result
    looks: tuple[EvidenceLook, ...] = ()  # those of these calls that looked at something and did not fail: the evidence
    exit_code: int | None = None  # negative: a signal; None: never started
    error_category: ErrorCategory | None = None
    failure_kind: FailureKind | None = None
    error: str | None = None
    limit_resets_at: datetime | None = None  # UTC; when the model API's limit is over, according to the stream
    cli_session_id: str | None = None  # according to the stream
    api_key_source: str | None = None
    num_turns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    response: str | None = None  # the assistant's joined text
    tool_calls_seen: int = 0
    malformed_lines: int = 0
    permission_mode: str | None = None  # according to the init line
    stop_reason: str | None = None  # the last one in the stream
    cli_duration_ms: int | None = None  # as the CLI measures it
    cached_input_tokens: int | None = None
    reasoning_output_tokens: int | None = None
    tool_errors: int = 0  # calls whose result is an error
    api_retries: int = 0
    unknown_frames: int = 0
    last_assistant_text: str | None = None
    warnings: tuple[str, ...] = ()
    stderr_tail: str | None = None
    tool_ends: tuple[ToolEnd, ...] = ()
    refusals: tuple[CliRefusal, ...] = ()  # calls that the CLI itself refused
    events: tuple[NewEvent, ...] = ()  # what the engine itself noticed
    unbooked: tuple[CallState, ...] = ()  # model calls that could not be written to the database at the time
    stopped_for: DecisionReason | None = None  # why the daemon stopped it, where that is also the decision


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What follows from a session's end. ``next`` is the next tier's session, or (``session_failed``) a retry."""

    reason: DecisionReason
    next: NewSession | None = None
    events: tuple[NewEvent, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Suppressed:
    """A session that was asked for and not queued; the event that says so is already written."""

    reason: DecisionReason
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """What ``store.finish`` committed."""

    decision: Decision
    next_session_id: int | None = None
    audit_head: str = ""  # the hash of the last tool call; also logged, out of the database's reach
    audit_results: str | None = None  # the seal over the calls' results
    actions: tuple[tuple[str, bool], ...] = ()  # the kinds of those that it tried, and whether each succeeded
