"""Sessions as values: how one is queued, how it stands, how it ended, and what was decided then.

Here as in the whole domain times are timezone-aware UTC ``datetime``; money is ``float`` US dollars, ``None`` where
unknown (never 0 for unknown); durations carry their unit in the name.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from claudeops.closed_set import ClosedSet
from claudeops.domain.calls import CliRefusal, ToolEnd
from claudeops.domain.events import NewEvent
from claudeops.domain.looks import EvidenceLook
from claudeops.domain.report.report import Extraction, ExtractionMethod, ServiceCheck
from claudeops.domain.spending.tokens import CallState

LOWEST_TIER: Final = 1
"""The tier that only looks: always allowed. Dry run and cooldowns hold back those above, which are never repeated."""


class Trigger(ClosedSet):
    """Why a session exists."""

    SCHEDULED = "scheduled", "a schedule was due"
    MANUAL = "manual", "requested at the command line"
    API = "api", "requested over HTTP"
    ALERT = "alert", "a monitoring system sent an alert"
    ESCALATION = "escalation", "the session before it handed over"
    FOLLOW_UP = "follow_up", "a look, some time after a remediation, at whether it held"
    RETRY = "retry", "the session before it failed for a reason that may have passed"
    RECOVERY = "recovery", "a daemon died in mid-session; this session takes up the work"


_YIELDS: Final = {Trigger.ALERT: 0, Trigger.MANUAL: 30, Trigger.API: 30, Trigger.FOLLOW_UP: 90, Trigger.SCHEDULED: 120}
_YIELDS_USUALLY: Final = 60  # seconds: what goes on with a chain


def turn_of(trigger: Trigger, due_at: datetime) -> datetime:
    """Return by when the queue orders a session that is due from then on: those of less haste let others go first.

    An alert comes before what became due up to half a minute before it at a person's wish, and up to two minutes before
    it by a schedule; a chain that goes on and a follow-up are between these. Nothing waits for what comes later still.
    """
    return due_at + timedelta(seconds=_YIELDS.get(trigger, _YIELDS_USUALLY))


class Status(ClosedSet):
    """Where a session row stands; it only ever moves forward."""

    QUEUED = "queued", "waits to be claimed"
    RUNNING = "running", "claimed; a process exists or is about to"
    ENDED = "ended", "over; the outcome says how"


class Outcome(ClosedSet):
    """How a session ended. An exit status of 0 proves nothing; the result line does."""

    SUCCESS = "success", "the result line says so"
    ERROR = "error", "the result line reports an error, or the process failed"
    MAX_TURNS = "max_turns", "the limit of turns was reached"
    BUDGET_EXCEEDED = "budget_exceeded", "the limit of money was reached"
    MAX_TOKENS = "max_tokens", "the limit of tokens was reached"
    TIMEOUT = "timeout", "the session timeout ran out"
    STARTUP_TIMEOUT = "startup_timeout", "no first frame came in time"
    STALLED = "stalled", "frames stopped coming"
    CANCELLED = "cancelled", "the daemon or an operator stopped it"
    BLOCKED = "blocked", "a rule stopped it before its first turn"
    NO_OUTPUT = "no_output", "the process ended without one line"
    NO_RESULT = "no_result", "there were lines, but no result line"
    OUT_OF_MEMORY = "out_of_memory", "its processes together outgrew the memory that a session may use"
    OUT_OF_PROCESSES = "out_of_processes", "it reached the number of processes that a session may have"
    OUT_OF_DISK = (
        "out_of_disk",
        "its files outgrew the disk that a session may use, or the machine's disk was nearly full",
    )
    FILE_TOO_LARGE = "file_too_large", "one of its files reached the size that a file of a session may have"
    SPAWN_FAILED = "spawn_failed", "the process could not be started"
    UNGATED_CALL = "ungated_call", "a tool ran without the gate's yes; the session is ended at once"
    LOST = "lost", "its daemon died, and its log holds no result"


class ErrorCategory(ClosedSet):
    """What kind of error a session's stream reported; the first match in this order counts."""

    RATE_LIMIT = "rate_limit", "the API refused because of too many requests"
    AUTH = "auth", "the API refused the credentials"
    API = "api", "any other error of the API"
    INTERACTIVE = "interactive", "the session ended with a question that no person was there to answer"
    BACKGROUND_TASK = "background-task", "the session ended while work that it had started in the background went on"
    SUBPROCESS = "subprocess", "declared by the contract for failures of the process itself; never given"
    TIMEOUT = "timeout", "one of the clocks ran out"


class FailureKind(ClosedSet):
    """What a supervisor should do about a failure: park, back off, stop all, ask another model, or nothing special."""

    RATE_LIMIT = "rate_limit", "wait until the limit is over"
    OVERLOADED = "overloaded", "the API is overloaded: come back later, and later still"
    AUTH = "auth", "stop: no session will succeed until somebody mends the credentials"
    BILLING = "billing", "stop: no session will succeed until somebody pays"
    REFUSAL = "refusal", "the model declined: the next tier's model goes on, never the same one again"
    OTHER = "other", "nothing special"


class DecisionReason(ClosedSet):
    """What the daemon concluded when a session ended. Every reason but the first two leaves an event."""

    HEALTHY = "healthy", "nothing to do, and there is evidence for it"
    ESCALATED = "escalated", "the next tier's session was queued"
    MAX_TIER = "max_tier", "the report asks for a tier that does not exist or is not allowed; somebody has to look"
    DRY_RUN = "dry_run", "it would have gone on, and dry run forbids it"
    COOLDOWN = "cooldown", "it would have gone on, and every action that the next tier could take is used up"
    BUDGET = "budget", "there is no money left for going on"
    NO_REPORT = "no_report", "the session succeeded and reported nothing usable"
    NO_EVIDENCE = (
        "no_evidence",
        (
            "the report says healthy, and nothing shows it: no look came back, no service was checked, or no check is "
            "about what was acted upon or what the chain was started for"
        ),
    )
    SESSION_FAILED = "session_failed", "the session itself failed; nothing is known about the services"
    PAUSED = "paused", "an operator has paused the daemon, or stopped this session"
    MAINTENANCE = "maintenance", "it would have gone on, and every service in question is in its maintenance window"


# --- what a report says -------------------------------------------------------------------------------


# --- sessions -----------------------------------------------------------------------------------------


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """What the next tier is told; stored as JSON in ``sessions.context``."""

    reason: str
    findings: str
    failed_checks: tuple[str, ...] = ()
    service_status: tuple[ServiceCheck, ...] = ()
    started_for: tuple[str, ...] = ()  # services that the chain must still report on


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
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
    site: str | None = None  # whose nodes alone may run it; None: its parent's, and without one any node may
    for_node: str | None = None  # the machine that alone may run it; None: any of its site


class Session(msgspec.Struct, frozen=True, kw_only=True):
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
    log_node: str | None = None  # the machine that writes it; None: not known, as for sessions of older versions
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
    site: str | None = None  # whose nodes alone may run it; None: any node may
    for_node: str | None = None  # as in `NewSession`
    allowance_usd: float | None = None  # what was reserved for it; set by its claim alone. None: nothing limits it

    @property
    def resumes(self) -> int | None:
        """The id of the session with whose conversation this one goes on; ``None``: it begins its own.

        A person's request that has a parent is one: nothing else hangs a session of that trigger below another.
        """
        return self.parent_session_id if self.trigger is Trigger.MANUAL else None


def log_elsewhere(session: Session, node: str) -> str:
    """Return where the log of a session is that is not found on machine ``node``; empty: it should be here."""
    if session.log_node in {None, node} or session.log_path is None:
        return ""
    return (
        f"The log of session {session.id} is on node {session.log_node}, at {session.log_path}, and this is node {node}"
        ": look there, or have both use one results directory."
    )


# --- the gate -----------------------------------------------------------------------------------------


# --- endings and decisions ----------------------------------------------------------------------------


class Ending(msgspec.Struct, frozen=True, kw_only=True):
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
    response: str | None = None  # the assistant's joined text, of a long one both ends; so is its last text below
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


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a session's end. ``next`` is the next tier's session, or (``session_failed``) a retry."""

    reason: DecisionReason
    next: NewSession | None = None
    events: tuple[NewEvent, ...] = ()


class Suppressed(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was asked for and not queued; the event that says so is already written."""

    reason: DecisionReason
    message: str


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What ``store.finish`` committed."""

    decision: Decision
    next_session_id: int | None = None
    audit_head: str = ""  # the hash of the last tool call; also logged, out of the database's reach
    audit_results: str | None = None  # the seal over the calls' results
    actions: tuple[tuple[str, bool], ...] = ()  # the kinds of those that it tried, and whether each succeeded
