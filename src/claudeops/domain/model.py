"""The vocabulary of the whole program: closed sets and frozen records that everything else passes around.

One file, although a long one, because it is read as a whole. Pure: no clock, no I/O. Times are timezone-aware UTC
``datetime``; money is ``float`` US dollars, ``None`` where unknown (never 0 for unknown); durations carry their unit in
the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from claudeops.domain.looks import Look, LookCall
from claudeops.domain.spending.tokens import CallState

if TYPE_CHECKING:
    from claudeops.domain.gate.granted import Grant

STRUCTURED_OUTPUT_TOOL: Final = "StructuredOutput"
"""The tool through which the CLI delivers the report (``--json-schema``)."""

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


class ExtractionMethod(StrEnum):
    """How the report was obtained."""

    STRUCTURED = "structured"  # validated ``structured_output`` of a result line
    SALVAGED = "salvaged"  # validated, but found in a StructuredOutput call or in the text
    MARKERS = "markers"  # legacy text markers; or none of them, where a structured output was refused
    NONE = "none"


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


class Level(StrEnum):
    """Weight of an event."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class ServiceStatus(StrEnum):
    """State of a service as a report or a probe saw it."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    DOWN = "down"
    UNREACHABLE = "unreachable"


class CheckSource(StrEnum):
    """Who looked: the daemon's own probe, or the model in its report."""

    PROBE = "probe"
    REPORT = "report"


class VerdictKind(StrEnum):
    """The gate's answers."""

    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


class SkipReason(StrEnum):
    """Why a due fire started no chain."""

    CHAIN_UNFINISHED = "chain_unfinished"
    SUPPRESSED = "suppressed"
    QUIET_HOURS = "quiet_hours"
    MISSED = "missed"
    JUST_DONE = "just_done"
    UNCHANGED = "unchanged"


class Held(StrEnum):
    """Whether what an action was for still held when somebody looked again."""

    HELD = "held"
    RELAPSED = "relapsed"
    UNKNOWN = "unknown"


class Trust(StrEnum):
    """Whose word a memory is, whatever its confidence."""

    OPERATOR = "operator"
    CONFIRMED = "confirmed"
    QUARANTINED = "quarantined"


# --- what a report says -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportedEvent:
    """One ``events[]`` entry of a report."""

    level: Level
    message: str
    service: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportedMemory:
    """One ``memories[]`` entry; ``service`` and ``category`` are the split key."""

    category: str
    observation: str
    service: str | None = None
    supersedes: int | None = None  # id of the memory that it replaces, according to the report


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceCheck:
    """One ``services_checked[]`` entry."""

    service: str
    status: ServiceStatus
    detail: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Escalation:
    """The report's wish to hand over to the next tier; what becomes of it is the daemon's decision."""

    needed: bool
    reason: str | None = None
    context: str | None = None  # what was found so far, in the model's words
    failed_checks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a session concluded, after validation."""

    summary: str
    escalation: Escalation
    events: tuple[ReportedEvent, ...] = ()
    memories: tuple[ReportedMemory, ...] = ()
    services_checked: tuple[ServiceCheck, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Extraction:
    """A report, how it was obtained, and what went wrong on the way.

    ``report`` is ``None`` with ``none``, and with ``markers`` where a refused structured output's texts held none.
    """

    method: ExtractionMethod
    report: Report | None
    warnings: tuple[str, ...] = ()


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A daemon process, told apart from a later one with the same pid."""

    name: str  # unique per daemon start
    pid: int
    process_started_at: float  # seconds since the epoch
    boot_id: str
    isolation: str | None = field(default=None, compare=False)  # of its sessions; not known of other daemons


@dataclass(frozen=True, kw_only=True, slots=True)
class NewEvent:
    """An event to be written; the same fingerprint again raises the count of the open one."""

    level: Level
    message: str
    service: str | None = None
    fingerprint: str = ""  # "" = derived from level, service and message


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """An active memory that was selected for a prompt."""

    id: int
    service: str | None
    category: str
    observation: str
    confidence: float  # 0 to 1
    updated_at: datetime
    trust: Trust = Trust.CONFIRMED


# --- the gate -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A tool call as the CLI asks for it, before it runs."""

    tool_use_id: str
    tool_name: str
    input: Mapping[str, object]
    agent_id: str | None = None  # set when a subagent asks
    cwd: str = field(default="", compare=False)  # where it would run, absolute; "": in the session's own directory


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """What a call would change: one entry of the cooldown ledger."""

    kind: str  # ``restart``, ``redeployment``
    service: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The gate's answer. An allowed call may carry several actions (``systemctl restart a b`` has two)."""

    kind: VerdictKind
    reason: str  # which the model and the operator read
    actions: tuple[Action, ...] = ()
    ran: Mapping[str, object] | None = None  # the input that runs instead of the given one; None: the given one
    look: Look | None = field(default=None, compare=False)  # what the call looks at; not part of the answer
    needed: int = 1  # how many people must say yes, where it asks
    services: tuple[str, ...] | None = None  # all that the call in question changes; None: not all of it is known
    looks_run: tuple[LookCall, ...] = ()  # what the daemon runs for it
    grants: tuple[Grant, ...] = ()  # what filters let through for it, where there are any


@dataclass(frozen=True, kw_only=True, slots=True)
class PastAction:
    """One ledger entry that still counts."""

    kind: str
    service: str
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionLimit:
    """At most ``count`` actions of a kind on one service within a sliding window."""

    count: int
    window_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolEnd:
    """The result of a tool call as the stream showed it."""

    tool_use_id: str
    ended_at: datetime
    is_error: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CliRefusal:
    """A call that the CLI itself refused: the gate was never asked, or had said yes."""

    call: ToolCall
    redacted_input: str  # redacted JSON
    reason: str  # in the CLI's words, redacted
    at: datetime


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
    looks: tuple[Look, ...] = ()  # those of these calls that looked at something and did not fail: the evidence
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
