"""Replays a session's log: makes from it what the session wrote to the database, or would have written.

It uses the same reader, the same extraction and the same judgement as a running session. What a log cannot say (exit
status, stderr, why we stopped the session, what its workspace held) is not made up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from claudeops.domain.calls import ToolCall, ToolEnd
from claudeops.domain.chains.backfill import BackfillRejected, RejectionReason
from claudeops.domain.events import NewEvent
from claudeops.domain.sessions import Ending, Session, log_elsewhere
from claudeops.engine.cell.workspace import Workspace, workspace_name
from claudeops.engine.session.completion import Gathered, calls_that_ran, conclude, looked
from claudeops.engine.session.context import SessionContext
from claudeops.engine.session.files import LoggedInputs
from claudeops.engine.session.mcp_servers import CliWarnings
from claudeops.engine.session_log.reader import LogIndexReader, log_size, open_log
from claudeops.formats.report.markers import Handoff, HandoffError
from claudeops.formats.stream import (
    LINE_BYTES,
    CliWarned,
    StreamEvent,
    StreamFrame,
    ToolEnded,
    Transcript,
    decode_abridged,
    dropped_line,
)
from claudeops.formats.stream.framing import as_text
from claudeops.formats.stream.tallies import MOST_CALLS
from claudeops.harness.protocol import Harness
from claudeops.logs import LogEvent
from claudeops.structs import replace
from claudeops.tasks import Threads, check_abandoned

READ_SECONDS: Final = 240.0
"""How long reading one log may take: a GB takes half a minute. A disk that hangs takes all of it."""

_ID_CHARACTERS: Final = 80  # length to which a message cuts another session's id
_LONGEST_BYTES: Final = 2 * LINE_BYTES  # a mask may be longer than what it covers
_NAMED_WITHIN: Final = 100  # lines of a log in which its session is named
_SKIPPED_BYTES: Final = 1024 * 1024
_READERS: Final = Threads(most=4)


class LogRead(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says about its session."""

    ending: Ending  # ``ended_at``: when the last line arrived, as far as that is known
    frames: int
    complete: bool  # the log has a result line


async def read_log(
    session: Session,
    context: SessionContext,
    *,
    handoff: Handoff | HandoffError | None = None,
    seconds: float = READ_SECONDS,
) -> LogRead | BackfillRejected:
    """Return what the log of a session says, whatever end its row has; writes nothing.

    The log's session id must be the row's. ``handoff``: the session's handoff file, if it is still there. A log that
    our reader fails on, or cannot read within ``seconds``, is rejected like one that cannot be opened. Raises
    `DatabaseUnavailableError`.
    """
    if session.log_path is None:
        message = f"Session {session.id} was never started, so it has no log."
        return BackfillRejected(reason=RejectionReason.NO_LOG, message=message)
    allowed = await context.store.calls.allowed_calls(session.id)
    return await _read(session, context, Path(session.log_path), allowed=allowed, handoff=handoff, seconds=seconds)


async def replay_log(session: Session, context: SessionContext, log: Path) -> LogRead | BackfillRejected:
    """Return what any log says, as that of ``session``, which need not be on record; writes nothing.

    Every call that has a result counts as allowed: who knows what a gate said elsewhere? ``session`` must have the id
    that `named_session` finds in the log.
    """
    return await _read(session, context, log, allowed=None)


async def named_session(log: Path, context: SessionContext) -> str | None:
    """Return the id that a log gives its session; ``None``: none among its first lines. Raises `OSError`."""

    def look() -> str | None:
        with open_log(log) as lines:
            for _ in range(_NAMED_WITHIN):
                line, length = _next_line(lines)
                if length == 0:
                    return None
                item = decode_abridged(context.redactor.line(line.removesuffix(b"\n")))
                if isinstance(item, StreamFrame) and (found := _session_in(item)) is not None:
                    return found
        return None

    return await _READERS.run(look, seconds=READ_SECONDS, what="reading it")


def _session_in(frame: StreamFrame) -> str | None:
    return as_text(frame.body.get("session_id")) or as_text(frame.body.get("thread_id"))


async def _read(
    session: Session,
    context: SessionContext,
    log: Path,
    *,
    allowed: frozenset[str] | None,
    handoff: Handoff | HandoffError | None = None,
    seconds: float = READ_SECONDS,
) -> LogRead | BackfillRejected:
    harness = context.clis.harnesses.get(session.harness)
    if harness is None:
        message = f"Session {session.id} ran on {session.harness}, a harness that is not known here."
        return BackfillRejected(reason=RejectionReason.UNKNOWN_HARNESS, message=message)
    reading = _Reading(session=session, context=context, harness=harness, allowed=allowed, path=log, handoff=handoff)
    try:
        return await _READERS.run(reading.run, seconds=seconds, what="reading it")
    except TimeoutError as error:
        return reading.refused(RejectionReason.LOG_UNREADABLE, f"cannot be read: {error.strerror}")


class _Reading(msgspec.Struct, kw_only=True):
    """One walk through a log, on a thread of its own; line by line, so its size does not matter."""

    session: Session
    context: SessionContext
    harness: Harness
    allowed: frozenset[str] | None  # tool_use_ids that got the gate's yes; None: all that have a result
    path: Path
    handoff: Handoff | HandoffError | None = None
    _tool_ends: list[tuple[ToolEnded, datetime | None]] = msgspec.field(default_factory=list)
    _events: list[NewEvent] = msgspec.field(default_factory=list)

    def run(self) -> LogRead | BackfillRejected:
        """Read the log; ends with `AbandonedError` when nobody waits any more. Raises nothing else."""
        try:
            with open_log(self.path) as log, closing(LogIndexReader(self.path)) as arrivals:
                transcript = self._read(log, arrivals)
                return (
                    transcript
                    if isinstance(transcript, BackfillRejected)
                    else self._concluded(transcript, arrivals.latest)
                )
        except FileNotFoundError:
            if where := log_elsewhere(self.session, self.context.node):
                return BackfillRejected(reason=RejectionReason.LOG_MISSING, message=where)
            return self.refused(RejectionReason.LOG_MISSING, "does not exist")
        except OSError as error:
            return self.refused(RejectionReason.LOG_UNREADABLE, f"cannot be read: {error.strerror or error}")
        except Exception as error:
            # What our code fails on, memory included, costs this session its log, and not the daemon its start.
            kind = type(error).__name__
            self.context.log.critical(LogEvent.SESSION_LOG_UNDIGESTED, path=str(self.path), error=kind, exc_info=True)
            return self.refused(RejectionReason.LOG_UNDIGESTED, f"cannot be digested: our reader failed on it ({kind})")

    def _read(self, log: BinaryIO, arrivals: LogIndexReader) -> Transcript | BackfillRejected:
        size = log_size(log)
        reader, warnings = self.harness.reader(), CliWarnings(self.harness.name)
        number = offset = 0
        while size is None or offset < size:
            line, length = _next_line(log)
            if length == 0:
                break
            number += 1
            arrived = arrivals.next(number, offset)
            offset += length
            # Redacted once more, because there may be secrets now that were not known when the line was written.
            item = decode_abridged(self.context.redactor.line(line.removesuffix(b"\n")))
            if isinstance(item, StreamFrame) and (foreign := self._foreign(as_text(item.body.get("session_id")))):
                return foreign
            for fact in reader.feed(item):
                self._note(fact, arrived, warnings)
        return self._checked(reader.close(), offset)

    def _note(self, fact: StreamEvent, arrived: datetime | None, warnings: CliWarnings) -> None:
        if isinstance(fact, ToolEnded):
            if len(self._tool_ends) < MOST_CALLS or fact.tool_use_id in (self.allowed or ()):
                self._tool_ends.append((replace(fact, text=None), arrived))  # what the tool printed is of no use here
        elif isinstance(fact, CliWarned) and (event := warnings.event(fact)) is not None:
            self._events.append(event)

    def _checked(self, transcript: Transcript, size: int) -> Transcript | BackfillRejected:
        if size == 0:
            return self.refused(RejectionReason.LOG_EMPTY, "is empty")
        if not transcript.first_frame_seen:
            return self.refused(RejectionReason.LOG_UNINTELLIGIBLE, "holds not one frame")
        if transcript.session_id is None:
            return self.refused(RejectionReason.UNNAMED_SESSION, "does not say of which session it is")
        return self._foreign(transcript.session_id) or transcript

    def _foreign(self, found: str | None) -> BackfillRejected | None:
        """Reject a log that names a session other than the row's, even in a single frame."""
        known = self.session.cli_session_id
        if found is None or found == known:
            return None
        return self.refused(
            RejectionReason.OTHER_SESSION, f"is of the CLI session {found[:_ID_CHARACTERS]}, not of {known}"
        )

    def refused(self, reason: RejectionReason, why: str) -> BackfillRejected:
        """Return the rejection of this log."""
        return BackfillRejected(reason=reason, message=f"The log {self.path} of session {self.session.id} {why}.")

    def _concluded(self, transcript: Transcript, latest: datetime | None) -> LogRead:
        session, context = self.session, self.context
        said_at = latest or session.ended_at or context.clock.now()
        gathered = Gathered(
            harness=self.harness,
            transcript=transcript,
            exit_code=None,
            stop=None,
            allowed=frozenset(end.tool_use_id for end, _ in self._tool_ends) if self.allowed is None else self.allowed,
            tool_ends=tuple(
                ToolEnd(tool_use_id=end.tool_use_id, ended_at=arrived or said_at, is_error=end.is_error)
                for end, arrived in self._tool_ends
            ),
            events=tuple(self._events),
            stderr_tail="",
            handoff=self.handoff,
        )
        if (tier := context.tiers.get(session.tier)) is not None:  # otherwise its calls cannot be judged
            workspace = Workspace(context.workspaces() / workspace_name(session.id))
            judge = tier.judge_in(workspace, context.estates.latest)
            gathered = looked(gathered, {call.tool_use_id: judge(call) for call in self._calls(gathered)})
        ran = said_at - (session.started_at or said_at)
        ms = max(0, ran // timedelta(milliseconds=1))
        ending = conclude(session, gathered, context.completion, at=said_at, ms=ms)
        return LogRead(ending=ending, frames=transcript.frames, complete=transcript.result_seen)

    def _calls(self, gathered: Gathered) -> Iterator[ToolCall]:
        """Yield the calls that ran, one by one: of many large ones the inputs are read in the log again."""
        yield from calls_that_ran(gathered)
        if in_log := gathered.succeeded_in_log:
            with suppress(OSError), closing(LoggedInputs(self.path, self.harness, self.context.redactor)) as inputs:
                yield from filter(None, map(inputs.read, in_log))


def _next_line(log: BinaryIO) -> tuple[bytes, int]:
    """Return the next line, or the replacement of one that is too long, and its length in the log.

    A packed log of a few MB may unpack to an endless line.
    """
    check_abandoned()
    line = log.readline(_LONGEST_BYTES)
    length = len(line)
    if length < _LONGEST_BYTES or line.endswith(b"\n"):
        return line, length
    while not line.endswith(b"\n") and (line := log.readline(_SKIPPED_BYTES)):
        check_abandoned()
        length += len(line)
    return dropped_line(length), length
