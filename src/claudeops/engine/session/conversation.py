"""A running session's conversation with its CLI: reads every line, answers every question, ends the session in time.

The path of a line: bytes → line → redacted → log → frame → transcript. The gate judges what was really asked;
everything that is kept is made from the redacted line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from claudeops.domain.chains.escalation import has_retry
from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.engine.control import Clocks, StopControl
from claudeops.engine.gate.gate import CallWatch, Gate
from claudeops.engine.live.hub import Broadcast
from claudeops.engine.meter.availability import SessionAvailability
from claudeops.engine.process import child as process
from claudeops.engine.process.bounds import BoundsWatch
from claudeops.engine.process.channel import Channel
from claudeops.engine.session import mcp_servers
from claudeops.engine.session.context import SessionContext
from claudeops.engine.session.mcp_servers import CliWarnings
from claudeops.engine.session_log.writer import CHUNK_BYTES, DecodedLine, OutputReader, SessionLog
from claudeops.errors import DatabaseUnavailableError, StaleAttemptError
from claudeops.formats.report.extraction import asks_for_next_tier, shortcomings
from claudeops.formats.stream import (
    ApiRetried,
    CliWarned,
    Control,
    LineMalformed,
    LineSplitter,
    Other,
    ResultRead,
    SessionStarted,
    StreamEvent,
    StreamFrame,
    TextStreamed,
    ToolDenied,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    Transcript,
)
from claudeops.harness.protocol import (
    ExecutedCall,
    FrameReader,
    GateCancelled,
    GateRequest,
    Harness,
    InitMismatch,
    Spec,
)
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import log_unavailable
from claudeops.text.redact import Redactor

DRAIN_SECONDS: Final = 5.0
"""How long output is still read after the CLI has gone; a grandchild may hold the stream open for ever."""

STDERR_SECONDS: Final = 1.0
"""How long stderr is still read after the exit; it says why a CLI refused to start."""

SINK_LOOK_SECONDS: Final = 1.0
"""How soon a log that cannot be written stops a session that is silent."""

_LINES_A_TURN: Final = 250
"""Lines that are taken in one turn of the event loop, in about two milliseconds: others wait for their turn."""

STDERR_LINE_BYTES: Final = 1024 * 1024
STDERR_TAIL_CHARACTERS: Final = 8192
_AUTH_STATUSES: Final = (401, 403)
_UNNOTED: Final = frozenset({Other, Control, TextStreamed, ToolProgress})
"""Facts that change nothing here. A stream may be made of them, so they are left out before anything looks at them."""


@dataclass(kw_only=True)
class Conversation:
    """One session's stream, from the opening to the exit."""

    child: process.Child
    channel: Channel
    harness: Harness
    spec: Spec
    gate: Gate
    sink: SessionLog
    clocks: Clocks
    control: StopControl
    context: SessionContext
    redactor: Redactor
    live: Broadcast
    bounds: BoundsWatch
    log: Logger
    events: list[NewEvent]
    stderr_tail: str = ""
    watch: CallWatch = field(init=False)
    _reader: FrameReader = field(init=False)
    _warnings: CliWarnings = field(init=False)
    _availability: SessionAvailability = field(init=False)
    _repaired: bool = False
    _left: int = 0  # processes that the CLI left when it ended
    _stderr_ended: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.watch = CallWatch(gate=self.gate)
        self._reader = self.harness.reader()
        self._warnings = CliWarnings(self.harness.name)
        self._availability = SessionAvailability(self.context.availability, self.gate.session)

    async def run(self) -> int | None:
        """Talk to the child until it has gone; return its exit status (negative: a signal).

        Whatever happens, the child and its tree are gone when this returns or raises.
        """
        try:
            async with anyio.create_task_group() as tasks:
                # First, so that it gets the channel's lock first and nothing is sent before the opening.
                tasks.start_soon(self._open)
                tasks.start_soon(self._keep_stderr)
                tasks.start_soon(self.child.note_namespace)
                tasks.start_soon(self.clocks.watch, self.control)
                tasks.start_soon(self._stop_when_asked)
                tasks.start_soon(self._watch_sink)
                tasks.start_soon(self._kill_when_hurried)
                tasks.start_soon(self.bounds.run, self.child.pid)
                await self._read(tasks)
                await self._await_exit()
                tasks.cancel_scope.cancel()
        finally:
            await self._clean_up()
        await self.bounds.last_look(self._left)
        return self.child.process.returncode

    def transcript(self) -> Transcript:
        """Return what the stream has said so far."""
        return self._reader.close()

    async def _open(self) -> None:
        await self.channel.send(self.harness.opening(self.spec))
        if not self.harness.capabilities.talks:
            # Such a CLI reads its input to the end before it begins.
            await self.channel.close()

    # --- reading --------------------------------------------------------------------------------------

    async def _read(self, tasks: TaskGroup) -> None:
        with OutputReader(redactor=self.redactor, sink=self.sink, clock=self.context.clock) as output:
            with anyio.CancelScope() as reading:
                tasks.start_soon(self._bound_reading, reading)
                try:
                    while True:
                        await self.sink.room()  # otherwise lines that wait for a slow disk would fill the memory
                        await self._take(await output.take(await self.child.stdout.receive(CHUNK_BYTES)), tasks)
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    pass  # the child may also break off in the middle of a line
            await self._take(output.flush(), tasks)

    async def _bound_reading(self, reading: anyio.CancelScope) -> None:
        await self.child.process.wait()
        reading.deadline = anyio.current_time() + DRAIN_SECONDS

    async def _take(self, lines: Iterable[DecodedLine], tasks: TaskGroup) -> None:
        """Take lines that arrived together, and let others on the event loop have their turns meanwhile."""
        self._check_sink()
        for number, line in enumerate(lines):
            if number % _LINES_A_TURN == 0:
                self.clocks.frame()
                if number:
                    await anyio.lowlevel.checkpoint()
            is_result = False
            for fact in self._reader.feed(line.kept):
                kind = type(fact)
                if kind not in _UNNOTED:
                    self._note_everywhere(fact, line.arrived_at, tasks)
                    is_result = is_result or kind is ResultRead
            if isinstance(line.asked, StreamFrame):
                self._handle(line.asked, tasks)
            if is_result:
                await self._after_result(line.arrived_at)

    def _note_everywhere(self, fact: StreamEvent, at: datetime, tasks: TaskGroup) -> None:
        self.clocks.note(fact)
        self._note(fact, at)
        self.live.note(fact, at)
        if isinstance(fact, SessionStarted) and fact.session_id and not self.harness.capabilities.own_session_id:
            tasks.start_soon(self._identify, fact.session_id)

    def _note(self, fact: StreamEvent, now: datetime) -> None:
        self._availability.handle(fact)
        match fact:
            case SessionStarted():
                self.log.info(LogEvent.SESSION_INITIALISED, api_key_source=fact.api_key_source, model=fact.model)
                if self.spec.mcp_config is not None and (missed := mcp_servers.missed(fact.mcp_servers, self.log)):
                    self.events.append(missed)
                    # Otherwise (a retry, or a tier that is not repeated) go on: a look that sees less beats none.
                    if has_retry(self.gate.session):
                        self.control.stop(StopCause.SERVERS_AWAY)
            case ToolStarted() | ToolDenied() | ToolEnded() | ResultRead():
                self._watch(fact, now)
            case ApiRetried() if fact.status in _AUTH_STATUSES:
                # The CLI would go on for minutes with a key that was refused.
                self.control.stop(StopCause.AUTH_REFUSED)
            case LineMalformed():
                self.log.warning(LogEvent.MALFORMED_LINE, line=fact.line, error=fact.reason)
            case CliWarned():
                if (event := self._warnings.event(fact)) is not None:
                    self.events.append(event)
            case _:
                pass

    def _watch(self, fact: ToolStarted | ToolDenied | ToolEnded | ResultRead, now: datetime) -> None:
        match fact:
            case ToolStarted():
                self.watch.started(fact)
            case ToolDenied():
                self.watch.denied(fact, now)
            case ToolEnded():
                self._note_tool_end(fact, now)
            case ResultRead():
                self._suspect(self.watch.result(fact))

    def _note_tool_end(self, fact: ToolEnded, now: datetime) -> None:
        self._suspect(self.watch.ended(fact, now, stopping=self.control.cause is not None))
        if (exhausted_reason := self.gate.repetition.exhausted_reason) is not None and self.control.cause is None:
            self.log.error(LogEvent.SESSION_REPEATS, detail=exhausted_reason)
            self.events.append(
                NewEvent(
                    level=EventLevel.WARNING, message=f"Session stopped: {exhausted_reason}.", fingerprint="repetition"
                )
            )
            self.control.stop(StopCause.REPETITION)

    def _suspect(self, why: str | None) -> None:
        """Stop the session if the stream shows something that the gate did not allow, where the CLI has a gate."""
        if why is not None and self.harness.capabilities.gate and self.control.cause is None:
            self.log.critical(LogEvent.TOOL_CALL_UNGATED, detail=why)
            self._distrust(why)

    async def _identify(self, cli_session_id: str) -> None:
        """Write to the row the session id that the CLI chose; after a crash a log is matched to its row by that id."""
        try:
            await self.context.store.queue.identify(self.gate.session, cli_session_id)
        except DatabaseUnavailableError as error:
            log_unavailable(self.log, "identify", error)
        except StaleAttemptError as error:
            self.log.error(LogEvent.STALE_ATTEMPT, error=str(error))

    def _handle(self, frame: StreamFrame, tasks: TaskGroup) -> None:
        signal = self.harness.signal(frame.body, self.spec)
        if signal is None:  # so are nearly all
            if (refusal := self.harness.refuse(frame.body)) is not None:
                self.log.warning(LogEvent.CONTROL_REQUEST_UNKNOWN, request_id=str(frame.body.get("request_id")))
                tasks.start_soon(self.channel.send, refusal)
            return
        match signal:
            case GateRequest():
                # At once, so that it is noted before the stream says anything more about the call.
                self.gate.asked.add(signal.call.tool_use_id)
                tasks.start_soon(self._answer, signal)
            case GateCancelled():
                self.gate.withdraw(signal.request_id)
                self.log.warning(LogEvent.GATE_REQUEST_CANCELLED, request_id=signal.request_id)
            case InitMismatch():
                self.log.critical(LogEvent.INIT_MISMATCH, detail=signal.detail)
                self._distrust(f"the CLI started with {signal.detail}")
            case ExecutedCall():
                self._suspect(self.watch.ran_with(signal))
                tasks.start_soon(self.channel.send, self.harness.acknowledge(signal))

    async def _answer(self, request: GateRequest) -> None:
        await self.gate.answer(request, harness=self.harness, channel=self.channel)

    def _distrust(self, why: str) -> None:
        self.events.append(
            NewEvent(level=EventLevel.CRITICAL, message=f"Session stopped: {why}.", fingerprint="ungated_call")
        )
        self.control.stop(StopCause.UNGATED_CALL)

    async def _watch_sink(self) -> None:
        """Stop the session if its log cannot be written, even if no further line comes."""
        while True:
            await anyio.sleep(SINK_LOOK_SECONDS)
            self._check_sink()

    def _check_sink(self) -> None:
        if self.sink.failed is not None and self.control.cause is None:
            self.log.critical(LogEvent.LOG_WRITE_FAILED, path=str(self.sink.path), error=str(self.sink.failed))
            self.events.append(
                NewEvent(
                    level=EventLevel.CRITICAL,
                    message=f"Session stopped: its log could not be written ({self.sink.failed.strerror}).",
                    fingerprint="log_write_failed",
                )
            )
            self.control.stop(StopCause.DISK_FULL)

    # --- the result line ------------------------------------------------------------------------------

    async def _after_result(self, now: datetime) -> None:
        """Ask once more if the report is missing or invalid; otherwise close stdin, or the CLI would wait for ever."""
        self.clocks.result()
        transcript = self.transcript()
        self.live.result(transcript, now)
        self.log.info(
            LogEvent.RESULT_RECEIVED,
            subtype=transcript.subtype,
            is_error=transcript.is_error,
            cost_usd=transcript.cost_usd,
            num_turns=transcript.num_turns,
        )
        # First to the disk, then go on: a report that is on disk can be recovered after a crash.
        await self.sink.sync()
        wrong = () if self._final(transcript) else shortcomings(transcript, self.context.completion.schema)
        if not wrong:
            await self.channel.close()
            launchers, is_last = self.context.launchers, self.gate.session.tier >= self.context.rules.max_tier
            if launchers is not None and not is_last and asks_for_next_tier(transcript):
                launchers.expect(self.context.confinement.groups)  # it starts while this CLI ends
            return
        self._repaired = True
        self.clocks.another_turn()
        self.log.warning(LogEvent.REPAIR_REQUESTED, errors=list(wrong))
        message = self.harness.repair(wrong)
        if message is None or not await self.channel.send(message):
            self.clocks.result()

    def _final(self, transcript: Transcript) -> bool:
        possible = self.context.repair_turn and self.harness.capabilities.repairs and not self._repaired
        return not possible or transcript.is_error or transcript.refused or self.control.cause is not None

    # --- the end --------------------------------------------------------------------------------------

    async def _await_exit(self) -> None:
        """Wait for the exit of a child whose stream has ended."""
        await self.channel.close()
        if not await process.exited_within(self.child, self.context.timeouts.result_grace):
            self.control.stop(StopCause.RESULT_GRACE)
            # The stop ladder ends with SIGKILL; a process that outlives it is stuck in the kernel.
            await process.exited_within(self.child, self.context.timeouts.stop_grace + 2 * process.REAP_SECONDS)
        with anyio.move_on_after(STDERR_SECONDS):
            await self._stderr_ended.wait()

    async def _stop_when_asked(self) -> None:
        await self.control.asked()
        self.log.warning(LogEvent.STOP_REQUESTED, cause=str(self.control.cause))
        with anyio.CancelScope(shield=True):
            await process.stop(
                self.child,
                self.channel,
                interrupt=self.harness.interrupt(),
                grace_seconds=self.context.timeouts.stop_grace,
                # A result line that our stop brings about would be read as the session's own by whoever takes it over.
                is_quiet=self.control.cause is StopCause.LEASE_OVER,
            )

    async def _kill_when_hurried(self) -> None:
        await self.control.hurried()
        with anyio.CancelScope(shield=True):  # bounded: see `process.kill`
            await process.kill(self.child)

    async def _clean_up(self) -> None:
        with anyio.CancelScope(shield=True):
            if not self.child.exited:
                await process.kill(self.child)
            self._left = await process.sweep(self.child)
            if self._left:
                self.log.warning(LogEvent.STRAY_PROCESSES, count=self._left)
                self.context.counts.strays_killed(self._left)
            await self.channel.close()
            await self.child.aclose()

    async def _keep_stderr(self) -> None:
        splitter = LineSplitter(STDERR_LINE_BYTES)
        try:
            while True:
                await self.sink.room()
                for line in splitter.push(await self.child.stderr.receive()):
                    self._take_stderr(line)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass
        finally:
            if (rest := splitter.flush()) is not None:
                self._take_stderr(rest)
            self._stderr_ended.set()

    def _take_stderr(self, line: bytes) -> None:
        text = self.redactor.text(self.harness.kept_stderr(line.decode("utf-8", "replace")))
        self.sink.append_stderr(text.encode("utf-8", "replace") + b"\n")
        self.stderr_tail = f"{self.stderr_tail}{text}\n"[-STDERR_TAIL_CHARACTERS:]
