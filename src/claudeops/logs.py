"""The daemon's own log: a closed vocabulary of events, one JSON object a line, every text redacted.

orjson renders, or structlog for people on a terminal. Nothing is written before `configure`, because there is no
redactor yet. Logging never waits for the log's reader; see `log_writer`.
"""

from __future__ import annotations

import atexit
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from claudeops.closed_set import ClosedSet
from claudeops.log_values import JsonLine, PlainValues
from claudeops.log_writer import FileWriter, Stream, StreamWriter, descriptor_of

if TYPE_CHECKING:  # most commands never log a session
    from claudeops.domain.sessions import Session

FLUSH_SECONDS: Final = 2.0
"""How long the exit of the process waits, at most, for the log to be written."""

MethodName = Literal["debug", "info", "warning", "error", "critical"]

_LEVELS: Final[Mapping[str, int]] = logging.getLevelNamesMapping()
_OWN_FIELDS: Final = frozenset({"event", "level", "timestamp", "self"})  # "self": of lines that are there already
_CONTROL_CHARACTERS: Final = dict.fromkeys(
    set(range(0x20)) - {0x09, 0x0A} | set(range(0x7F, 0xA0)), "\N{REPLACEMENT CHARACTER}"
)


class LogEvent(ClosedSet):
    """Every event that can be logged. The value is its name, ``meaning`` its sentence in ``docs/reference/logs.md``."""

    # --- the daemon
    DAEMON_STARTING = "daemon_starting", "the settings are read; nothing is open yet"
    DAEMON_READY = "daemon_ready", "everything is open; sessions start once `looks_chosen` is there too"
    DAEMON_STOPPING = "daemon_stopping", "the ordered shutdown begins"
    DAEMON_STOPPED = "daemon_stopped", "everything is closed; the process ends next"
    DAEMON_CRASHED = "daemon_crashed", "an unexpected error ends the daemon"
    SERVICE_MANAGER_DEAF = "service_manager_deaf", "the service manager could not be sent the daemon's state"
    WAKE_SOCKET_UNUSABLE = (
        "wake_socket_unusable",
        "commands cannot wake the daemon, which finds what they write by looking, within a second",
    )
    STATUS_NOT_WRITTEN = (
        "status_not_written",
        "the daemon's status file could not be written; what it says is out of date",
    )
    ISOLATION_CHOSEN = "isolation_chosen", "what sessions will be locked into; `passed_over` says why nothing stronger"
    LOOKS_CHOSEN = (
        "looks_chosen",
        "the `programs` that run for sessions in cells of their own; `why` says for each other why it does not",
    )
    SESSIONS_COUNTED = "sessions_counted", "where the kernel counts what each session uses; `why` says why nowhere"
    FILES_PLACED = "files_placed", "where the files of sessions are: in memory, or on the disk, and then why"
    SLOTS_REDUCED = "slots_reduced", "the machine has memory for fewer sessions at once than the settings allow"
    CLI_FOUND = "cli_found", "the CLI that sessions will run, with its version"
    CLI_SELF_TEST_PASSED = "cli_self_test_passed", "the gate holds with a CLI that was not seen before; it may be used"
    CLI_SELF_TEST_FAILED = "cli_self_test_failed", "the gate does not hold with a CLI; no session is started with it"
    CLI_SELF_TEST_FORGOTTEN = (
        "cli_self_test_forgotten",
        "it could not be recorded that a CLI has passed; the next start tests it again",
    )
    SIGNAL_RECEIVED = "signal_received", "a signal arrived; a second one cuts the drain short"
    CONFIGURATION_WARNING = "configuration_warning", "a setting has no effect, or not the expected one"
    LIBRARY_MESSAGE = "library_message", "a library logged a warning or worse"
    LOG_LINES_LOST = (
        "log_lines_lost",
        "its reader stood still or its disk was full for a while: `count` lines of this log are missing",
    )
    # --- the database
    DATABASE_MIGRATED = "database_migrated", "the tables were migrated to this version"
    DATABASE_BACKED_UP = "database_backed_up", "a copy was made before the migration"
    DATABASE_UNAVAILABLE = "database_unavailable", "the database did not answer; the call is tried again"
    DATABASE_FULL = "database_full", "the disk of the database's server is full; everything that waits is tried again"
    DATABASE_HAS_ROOM = "database_has_room", "the disk of the database's server has room again; all is written"
    DATABASE_RECOVERED = "database_recovered", "the database answers again"
    DATABASE_REFUSED = "database_refused", "the database refuses a call for good; it is tried again all the same"
    ANNOUNCEMENT_FAILED = (
        "announcement_failed",
        "`count` sessions were queued and could not be announced to other nodes, which find them by looking",
    )
    LISTENER_FAILED = "listener_failed", "a listener failed after something was written; it stays written"
    UNDO_GIVEN_UP = "undo_given_up", "what was written too late for its caller could not be undone, and stays"
    STALE_ATTEMPT = (
        "stale_attempt",
        "a write came from an attempt that is no longer the current one; nothing was written",
    )
    LOCK_LOST = "lock_lost", "another daemon has taken over the database; this one stops"
    LEASE_OVER = (
        "lease_over",
        "this daemon could not show that it lives; it stops its `sessions` before another one takes them over",
    )
    ROLE_TAKEN = "role_taken", "this daemon does some work of the fleet from now on: `roles` names it"
    ROLE_LOST = "role_lost", "this daemon no longer does some work of the fleet, and writes nothing more of it"
    SCHEMA_NEWER = "schema_newer", "a newer claudeops has migrated the database; this daemon drains and stops"
    CLOCK_OFF = "clock_off", "this machine's clock is too far from the database's, so no schedule fires"
    CLOCK_RIGHT = "clock_right", "this machine's clock is that of the database again, so schedules fire"
    NODES_DIFFER = "nodes_differ", "nodes that share the database do not decide by the same files or settings"
    NODES_AGREE = "nodes_agree", "nodes that share the database decide by the same again"
    SITE_UNSERVED = "site_unserved", "sessions wait for a site of which no node runs"
    SITE_SERVED = "site_served", "no session waits any more for a site of which no node runs"
    NODE_ABSENT = "node_absent", "sessions wait for a machine on which no node runs"
    NODE_PRESENT = "node_present", "no session waits any more for a machine on which no node runs"
    NODE_DEAD = "node_dead", "a `node` of the fleet has stopped showing life without departing"
    NODE_BACK = "node_back", "this `node` counted as dead for the others, and is back"
    NODE_FORGOTTEN = "node_forgotten", "a node that died a week ago has not come back, and is no condition any more"
    LOGS_NEWER = (
        "logs_newer",
        "there are logs of sessions, up to `highest`, and the database knows none after `known`: it was restored",
    )
    LOGS_MISSING = (
        "logs_missing",
        "`missing` of the latest sessions have no log here, though this machine has written it; `session_id` is one",
    )
    SESSIONS_RECONCILED = "sessions_reconciled", "running sessions of dead daemons were taken over"
    SESSION_RECOVERED = "session_recovered", "the log of a dead daemon's session holds its result, which was recovered"
    SESSION_LOST = (
        "session_lost",
        "a session has no result in its log, and its daemon is dead or was cut off; what follows is queued",
    )
    SESSION_LOG_UNDIGESTED = (
        "session_log_undigested",
        "our own reader failed on a session's log; the session counts as lost, the log stays where it is",
    )
    SESSION_AMENDED = "session_amended", "the log of a lost session turned up; its report and cost are written now"
    SESSION_END_REFUSED = (
        "session_end_refused",
        "the database refuses the end of a session; it is written without its texts",
    )
    # --- the schedule
    SCHEDULE_KEPT = (
        "schedule_kept",
        "the schedule is active; its next fire is counted from the last one on record",
    )
    SCHEDULE_FIRED = "schedule_fired", "a due time came and queued a chain"
    SCHEDULE_SKIPPED = "schedule_skipped", "a due time came and queued nothing"
    SCHEDULE_FIRE_FAILED = "schedule_fire_failed", "a due time came, but the database did not take its chain"
    SCHEDULES_CHANGED = "schedules_changed", "the file of schedules was edited; what it says now is in force"
    SCHEDULES_REFUSED = "schedules_refused", "the file of schedules is wrong or unreadable; the last good ones serve"
    ACTION_FOLLOWED_UP = "action_followed_up", "probes say whether what was done to a service still holds"
    # --- sessions, from queue to spawn
    CHAIN_WAITS = "chain_waits", "a chain in the foreground begins when the one of another process has ended"
    SESSION_QUEUED = "session_queued", "a session waits for its turn"
    SESSION_SUPPRESSED = "session_suppressed", "a session was requested, but the rules forbid it"
    SESSION_CLAIMED = "session_claimed", "this daemon took a queued session"
    SESSION_SPAWNED = "session_spawned", "the session's process runs; `trace_id` and `span_id` are what it was handed"
    SESSION_INITIALISED = "session_initialised", "the init line came; `api_key_source` says what pays"
    INIT_MISMATCH = "init_mismatch", "the init line grants more than was asked for; the session is stopped"
    MCP_SERVERS_AWAY = "mcp_servers_away", "MCP servers are not connected when the session begins"
    # --- its stream
    MALFORMED_LINE = "malformed_line", "a line was not JSON; it is kept and counted"
    RESULT_RECEIVED = "result_received", "the result line came"
    REPAIR_REQUESTED = "repair_requested", "the report was missing or invalid and is asked for once more"
    LOG_WRITE_FAILED = "log_write_failed", "a line could not be written to the session's log"
    # --- the gate
    TOOL_CALL_JUDGED = "tool_call_judged", "the gate answered a tool call"
    NETWORK_OPENED = "network_opened", "a session has a network of its own; `unknown` names have no address for it"
    NETWORK_CLOSED = "network_closed", "what a session's network has carried; `missing` places could not be made here"
    CONNECTION_FAILED = (
        "connection_failed",
        "a session connected to what is listed and does not answer; `error` says why",
    )
    KEYS_IN_AGENT = (
        "keys_in_agent",
        "an agent has the ssh keys of a session, for so many `hosts`; the keys of `unknown` ones are not known",
    )
    KEY_NOT_IN_AGENT = "key_not_in_agent", "an ssh key of a tier is not in its sessions' agent; `reason` says why"
    HEADER_NOT_ADDED = (
        "header_not_added",
        "a request to which a header with a secret would have been added went nowhere; `error` says why",
    )
    CHANGE_PASSED_ON = "change_passed_on", "a filter before an `engine` made a change that the gate allowed"
    CONTEXT_NOT_SERVED = "context_not_served", "a context of a kubeconfig is not in a session's; `reason` says why"
    FILTER_CONNECTION_BROKEN = "filter_connection_broken", "a filter failed at one connection of a session"
    FILTER_ENDED = "filter_ended", "a filter's process has ended; the next connection starts another"
    PARAMETERS_DROPPED = "parameters_dropped", "a filter left parameters out that it does not know"
    REQUEST_REFUSED = "request_refused", "a filter before an `engine` did not send a request on"
    LOOK_RAN = "look_ran", "the daemon ran a look that the gate allowed, in a cell of its own"
    LOOK_NOT_RUN = "look_not_run", "a look that the gate allowed could not be run in its cell"
    TOOL_CALL_NOT_JUDGED = "tool_call_not_judged", "a tool call could not be judged (`error` says why), and is denied"
    TOOL_CALL_UNRECORDED = "tool_call_unrecorded", "a verdict could not be written, so the call is denied"
    TOOL_CALL_UNGATED = (
        "tool_call_ungated",
        "the stream shows what the gate did not allow, or cannot be the CLI's; the session is stopped",
    )
    SESSION_REPEATS = "session_repeats", "a session repeats what has failed, and is stopped"
    APPROVAL_REQUESTED = "approval_requested", "a tool call waits for a person's yes or no"
    APPROVAL_GIVEN = "approval_given", "a person said yes, and the proof of it was checked"
    APPROVAL_REFUSED = "approval_refused", "a person said no, or nobody answered, or the answer does not count"
    CONTROL_REQUEST_UNKNOWN = "control_request_unknown", "the CLI asks what the daemon does not know; it gets an error"
    GATE_REQUEST_CANCELLED = "gate_request_cancelled", "the CLI no longer waits for an answer; the call does not run"
    # --- the meter
    METER_OFF = "meter_off", "model calls bypass the daemon: they are neither counted one by one nor limited by budgets"
    MODEL_CALL_ENDED = "model_call_ended", "a model call is over and booked"
    MODEL_CALL_REFUSED = "model_call_refused", "a model call was not made, because a budget is spent"
    MODEL_REQUEST_REFUSED = (
        "model_request_refused",
        "a session sent the model API a request that the meter does not pass on",
    )
    MODEL_WITHOUT_PRICE = "model_without_price", "a model is not in the price table: what it costs is unknown"
    # --- its end
    MEMORY_LIMIT_EXCEEDED = "memory_limit_exceeded", "a session's processes outgrew their memory; it is stopped"
    BOUND_REACHED = "bound_reached", "a session reached a bound of processes, disk space or file size; it is stopped"
    STOP_REQUESTED = "stop_requested", "a session is asked to stop"
    STRAY_PROCESSES = "stray_processes", "processes outlived their session and were killed"
    SESSION_ENDED = "session_ended", "a session ended, and its row says how"
    SESSION_CRASHED = "session_crashed", "our own code failed while it ran a session"
    ESTATE_NOT_READ = "estate_not_read", "the repositories did not answer; the estate as last understood serves"
    PROMPT_FILE_READ = (
        "prompt_file_read",
        "a prompt file was edited, or can be used again; it counts from this session on",
    )
    PROMPT_FILE_BROKEN = "prompt_file_broken", "a prompt file cannot be used; its last good text serves"
    LIBRARY_NOT_READ = "library_not_read", "the repositories did not answer; the library as last read serves"
    LIBRARY_FAULTY = "library_faulty", "texts of the library cannot be used as they are written; `faults` says why"
    ESTATE_FAULTY = (
        "estate_faulty",
        "something in the repositories could not be used; `faults` says what and where, `claudeops doctor` all of it",
    )
    ACCESS_NOT_KNOWN = (
        "access_not_known",
        "what a session can reach could not be found out; it is told nothing",
    )
    WORKSPACE_NOT_REMOVED = "workspace_not_removed", "a session's directories could not be removed"
    DECISION_MADE = "decision_made", "what follows from a session's end, with the reason"
    ESCALATION_QUEUED = "escalation_queued", "the next tier waits for its turn"
    RETRY_QUEUED = "retry_queued", "a session failed and waits to be tried once more"
    # --- the model API
    MODEL_API_REFUSED = "model_api_refused", "the model API refused a call, so other sessions wait for a trial session"
    HOLD_RELEASED = "hold_released", "the model API serves us again, so sessions may start"
    # --- the supervisor
    ORDER_TAKEN = "order_taken", "an operator sent the running daemon a command"
    ORDER_LOST = "order_lost", "a command was meant for a daemon that has ended, and is not carried out by this one"
    SESSIONS_LEFT = (
        "sessions_left",
        "the database did not take their ends before a stop; the next daemon does it",
    )
    SUPERVISOR_DRAINING = "supervisor_draining", "no more claims; the daemon waits for running sessions"
    # --- the upkeep
    UPKEEP_DONE = "upkeep_done", "what was too old was compressed or removed: how many of each"
    UPKEEP_FAILED = "upkeep_failed", "something could not be compressed, removed or examined; it is tried again"
    DISK_LOW = "disk_low", "a disk has less free space than the floor; no session is started"
    DISK_NEARLY_FULL = "disk_nearly_full", "a disk is far below the floor; running sessions are stopped"
    DISK_RECOVERED = "disk_recovered", "there is enough free space again; sessions may start"
    PROBES_WATCHED = "probes_watched", "what is declared was read; these probes are looked at from now on"
    PROBES_REFUSED = "probes_refused", "the probes file was changed and is wrong; what it said before serves"
    PROBE_CHANGED = "probe_changed", "a probe has changed its state"
    ALERTS_REFUSED = "alerts_refused", "the file of alerts was changed and is wrong; what it said before serves"
    ALERTS_STARTED_CHAIN = "alerts_started_chain", "alerts queued a chain"
    ALERT_UNREADABLE = "alert_unreadable", "what a monitoring system sent could not be read; it is on record"
    ALERT_UNDECIDED = "alert_undecided", "our own code failed about a body of alerts; its raw text is on record"
    ALERTS_BEHIND = "alerts_behind", "decisions about alerts come late; all that came is on record"
    ALERTS_CAUGHT_UP = "alerts_caught_up", "every alert that came is decided about"
    INCIDENT_OPENED = "incident_opened", "a trouble began, or has come back"
    INCIDENT_RESOLVED = "incident_resolved", "a trouble is over, as two witnesses say, or a person"
    PROBES_STARTED_CHAIN = "probes_started_chain", "the failure of some probes queued a chain"
    PROBE_CHANGES_DROPPED = (
        "probe_changes_dropped",
        "the database was away for so long that `count` changes of probes were not kept; how they stand now is",
    )
    PROBES_LATE = "probes_late", "looks of probes began more than a second late: this machine is too busy for them"
    PROBE_LOOK_CRASHED = "probe_look_crashed", "our own code failed while it looked at a service; the look saw nothing"
    TARGETS_CHANGED = "targets_changed", "the file of targets was changed, and people are told and asked by it"
    TARGETS_REFUSED = "targets_refused", "the file of targets was changed and is wrong; what it said before serves"
    NOTIFICATION_FAILED = "notification_failed", "a target could not be told something; it is tried again"
    ADDRESS_REFUSED = "address_refused", "Apprise does not understand the address of a target; `error` says why"
    APPROVAL_TAPPED = (
        "approval_tapped",
        "an approver's tap in a chat was taken as an answer; `answered` says what came of it",
    )
    APPROVAL_TAP_REFUSED = "approval_tap_refused", "a tap in a chat changed nothing; `reason` says why"
    CHAT_UNREACHABLE = "chat_unreachable", "a chat's server does not do `what`; it is tried again"
    CHAT_REACHABLE = "chat_reachable", "a chat's server does `what` again"
    CHAT_MESSAGE_STALE = (
        "chat_message_stale",
        "a message about an approval that is over cannot be edited; its buttons do nothing",
    )
    CHAT_CRASHED = "chat_crashed", "our own code failed while it spoke to a chat; it begins anew"
    SLACK_CONNECTED = "slack_connected", "what people press in Slack is heard"
    SLACK_LOST = "slack_lost", "what people press in Slack is not heard over Socket Mode; it is tried again"
    HEARTBEAT_SENT = (
        "heartbeat_sent",
        "the outside health check was told what `verb` says: a whole cycle ended healthy, began, or failed",
    )
    WEB_READY = "web_ready", "the listener takes requests, at the address of the field `url`"
    WEB_NOT_LISTENING = (
        "web_not_listening",
        "nothing listens, because the address cannot be used; it is tried again",
    )
    CALLER_REFUSED = (
        "caller_refused",
        "a call without a good token, login, password or secret of the proxy; `count` since the line before",
    )
    PROVIDER_LOGIN_FAILED = (
        "provider_login_failed",
        "a person could not log in at the identity provider, for the reason in `error`; `count` since the line before",
    )
    REQUEST_CRASHED = "request_crashed", "our own code failed while it answered a request; the sender was told so"
    HEARTBEAT_FAILED = "heartbeat_failed", "the outside health check could not be pinged, after several tries"


class Logger:
    """Logs events of the vocabulary, and no others. Immutable; cheap to make; safe from any thread.

    The fields ``event``, ``level`` and ``timestamp`` are the log's own: a caller's field of such a name gets an
    underscore at its end. ``exc_info=True`` adds the current exception. A stream that cannot be written raises nothing;
    the event is lost.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = dict(fields)

    def bind(self, /, **fields: object) -> Logger:
        """Return a logger that adds these fields to every event."""
        return Logger({**self._fields, **fields})

    def debug(self, event: LogEvent, /, **fields: object) -> None:
        """Log a detail for somebody who searches for a cause."""
        self._log("debug", event, fields)

    def info(self, event: LogEvent, /, **fields: object) -> None:
        """Log what is as it should be."""
        self._log("info", event, fields)

    def warning(self, event: LogEvent, /, **fields: object) -> None:
        """Log what is not as it should be, but was dealt with."""
        self._log("warning", event, fields)

    def error(self, event: LogEvent, /, **fields: object) -> None:
        """Log what failed."""
        self._log("error", event, fields)

    def critical(self, event: LogEvent, /, **fields: object) -> None:
        """Log what somebody must look at now."""
        self._log("critical", event, fields)

    def _log(self, method: MethodName, event: LogEvent, fields: Mapping[str, object]) -> None:
        if (write := _Target.current) is None or _LEVELS[method.upper()] < _Target.least:
            return
        named = {
            f"{name}_" if name in _OWN_FIELDS else name: value for name, value in {**self._fields, **fields}.items()
        }
        write(method, event, named)


class _Target:
    """Where every `Logger` writes: one for the whole process, as the stream is. ``None`` until `configure`."""

    current: Callable[[MethodName, LogEvent, Mapping[str, object]], None] | None = None
    least: int = logging.NOTSET  # the level below which nothing is written
    writer: FileWriter | StreamWriter | None = None
    flushed_at_exit = False


def get_logger(**fields: object) -> Logger:
    """Return a logger that adds ``fields``; it may be made before `configure` is called."""
    return Logger(fields)


def configure(
    *,
    level: str,
    fmt: str,
    stream: Stream | None,
    redact: Callable[[str], str],
    redact_line: Callable[[bytes], bytes] | None = None,
    line_start: str = "",
) -> None:
    """Write events of ``level`` and above to ``stream``; may be called again, and the last call counts.

    ``fmt`` is ``json``, ``console``, or ``auto`` (console when the stream is a terminal). ``redact`` is applied to
    every text: names, values, nested values, tracebacks. ``redact_line`` does the same to a whole line of JSON: where
    it changes nothing, no text of the line is looked at by itself. What libraries log through ``logging`` arrives as
    `LogEvent.LIBRARY_MESSAGE`, from level warning up. ``line_start`` is put before each line. Nothing is written to a
    ``stream`` that was closed before the start, which is ``None``.
    """
    is_terminal = stream is not None and stream.isatty()
    console = fmt == "console" or (fmt == "auto" and is_terminal)
    renderer = _Renderer(_for_people(redact, colours=is_terminal) if console else JsonLine(redact, redact_line))

    def lost(count: int) -> str:
        return renderer.line("warning", LogEvent.LOG_LINES_LOST, {"count": count})

    encoding = (getattr(stream, "encoding", None) if console else None) or "utf-8"
    before, descriptor = _Target.writer, descriptor_of(stream)
    writer: FileWriter | StreamWriter = (
        StreamWriter(stream, line_start) if descriptor is None else FileWriter(descriptor, encoding, line_start, lost)
    )
    _Target.writer, _Target.least = writer, _LEVELS[level.upper()]
    _Target.current = lambda *event: writer.write(renderer.line(*event))
    if before is not None:
        before.close()
    if not _Target.flushed_at_exit:
        _Target.flushed_at_exit = True
        atexit.register(flush)
    _listen_to_libraries()


def flush(seconds: float = FLUSH_SECONDS) -> bool:
    """Wait until what was logged is written, at most ``seconds``; return whether it is. Runs at the process's exit."""
    return _Target.writer is None or _Target.writer.flush(seconds)


class _Renderer:
    """Makes a line of an event."""

    def __init__(self, render: Callable[[dict[str, object]], str]) -> None:
        self._render = render  # and redacts: after everything that adds text, above all the traceback

    def line(self, level: MethodName, event: LogEvent, fields: Mapping[str, object]) -> str:
        moment = f"{datetime.now(UTC).replace(tzinfo=None).isoformat()}Z"
        complete = {"timestamp": moment, "level": level, "event": event.value, **fields}
        if error := complete.pop("exc_info", None):
            complete["exception"] = _trace(error)
        return self._render(complete)


def _trace(error: object) -> str:
    """Return the traceback of an exception, of what `sys.exc_info` returned, or of the current exception."""
    if isinstance(error, BaseException):
        lines = traceback.format_exception(error)
    else:
        lines = traceback.format_exception(*(error if isinstance(error, tuple) else sys.exc_info()))
    return "".join(lines).removesuffix("\n")


def _for_people(redact: Callable[[str], str], *, colours: bool) -> Callable[[dict[str, object]], str]:
    def shown(text: str) -> str:
        # A model's text must not move the cursor of a terminal; in JSON the renderer escapes control characters.
        return redact(text).translate(_CONTROL_CHARACTERS)

    values = PlainValues(shown)

    def render(fields: dict[str, object]) -> str:
        return _console(colours=colours)(None, str(fields["level"]), values(fields))

    return render


@cache
def _console(*, colours: bool) -> Callable[[None, str, dict[str, object]], str]:
    # It takes rich along: a tenth of a second and 9 MiB, which a log that no person reads does without.
    import structlog.dev  # noqa: PLC0415 - see above

    return structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)


class _Bridge(logging.Handler):
    """Passes what libraries log on to our own log."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):  # arguments that do not fit the library's format
            message = str(record.msg)
        method: MethodName = "warning"
        if record.levelno >= logging.CRITICAL:
            method = "critical"
        elif record.levelno >= logging.ERROR:
            method = "error"
        fields = {"library": record.name, "message": message}
        if record.exc_info is not None and record.exc_info[0] is not None:
            fields["exc_info"] = record.exc_info  # type: ignore[assignment]
        getattr(get_logger(), method)(LogEvent.LIBRARY_MESSAGE, **fields)


def _listen_to_libraries() -> None:
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Bridge)]:
        root.removeHandler(handler)
    root.addHandler(_Bridge(level=logging.WARNING))
    root.setLevel(logging.WARNING)
    # Otherwise the interpreter prints warnings itself, unredacted and not as JSON.
    logging.captureWarnings(capture=True)
    # Nor may errors inside ``logging`` itself be printed past our log.
    logging.raiseExceptions = False


def log_context(log: Logger, session: Session) -> Logger:
    """Return the log that names a session in every line: its id, chain and tier."""
    return log.bind(session_id=session.id, chain=session.root_session_id, tier=session.tier)
