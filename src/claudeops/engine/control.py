"""Control of a running session: how it is asked to stop, the clocks that may ask, and the sessions that run here.

While a session says nothing, its clocks look at the file in which the CLI keeps its own transcript: while that grows,
the CLI is at work.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

import anyio
import msgspec

from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.sessions import Session
from claudeops.formats.stream import AssistantText, StreamEvent, ToolEnded, ToolStarted, TurnStarted
from claudeops.policy.repetition import ToolTime, tool_time
from claudeops.tasks import Threads

LOOK_SECONDS: Final = 1.0
"""Pause between two looks at the CLI's own transcript, while there is no other sign of life."""

_TRANSCRIPT_SECONDS: Final = 1.0  # for one of these looks
_LOOKED_AT: Final = 100  # directories; the CLI makes one, but a session could make any number


class StopControl:
    """The stop request of one session. The first cause wins: it is what the outcome will say."""

    def __init__(self) -> None:
        self.cause: StopCause | None = None
        self.awaiting_approval = 0  # calls that wait for a person's answer: meanwhile the session holds no slot
        self._asked = anyio.Event()
        self._hurried = anyio.Event()

    def stop(self, cause: StopCause) -> None:
        """Ask the session to stop; later causes are ignored."""
        if self.cause is None:
            self.cause = cause
            self._asked.set()

    async def asked(self) -> None:
        """Return once a stop was requested. The waiter's task group bounds the wait."""
        await self._asked.wait()

    def hurry(self) -> None:
        """Have the session killed at once, after it was asked to stop."""
        self._hurried.set()

    async def hurried(self) -> None:
        """Return once the session is to be killed. The waiter's task group bounds the wait."""
        await self._hurried.wait()


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The clocks of a session, in seconds."""

    session: float  # wall clock, from spawn to exit
    startup: float  # until the first frame
    silence: float  # between signs of life while no tool call is open; every call may take at least this long
    result_grace: float  # between the result line and the exit
    stop_grace: float  # the whole stop ladder
    tool_margin: float = 30.0  # after the CLI should have ended a call itself; then it counts as hung


async def _no_transcript() -> int:
    return 0


@dataclass(slots=True, kw_only=True)
class Clocks:
    """Which clock of a running session is due next.

    While a tool call is open, the silence clock stands still, because a tool may be silent for long, and the call's own
    deadline runs instead. ``tool_progress`` does not move that deadline: it shows that the CLI lives, not the tool.
    While a call waits for approval (`pause`), every clock stands still.
    """

    limits: Timeouts
    monotonic: Callable[[], float]
    transcript_size: Callable[[], Awaitable[int]] = _no_transcript  # of the CLI's own file; growing is a sign of life
    _started: float = field(init=False)  # this and all the following: seconds of `_now`
    _last_sign: float | None = field(init=False, default=None)  # of life; None: no frame yet
    _size: int | None = field(init=False, default=None)  # of the transcript at the last look
    _result: float | None = field(init=False, default=None)
    _open: dict[str, _OpenCall] = field(init=False, default_factory=dict)
    _pauses: int = field(init=False, default=0)  # calls that wait for approval
    _paused_at: float = field(init=False, default=0.0)  # monotonic seconds
    _stood_still: float = field(init=False, default=0.0)  # seconds in all
    _changed: anyio.Event = field(init=False, default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self._started = self._now()

    # --- what happens -----------------------------------------------------------------------------------

    def frame(self) -> None:
        """Note that a frame has arrived."""
        first = self._last_sign is None
        self._last_sign = self._now()
        if first:
            self._wake()

    def note(self, fact: StreamEvent) -> None:
        """Note what the stream shows: tool calls that begin and end, text, another turn."""
        match fact:
            case ToolStarted() if fact.tool_use_id:  # without an id its result can never be matched
                self._open[fact.tool_use_id] = _OpenCall(tool_time(fact.name, fact.input), self._now())
                self._wake()
            case ToolEnded():
                self._open.pop(fact.tool_use_id, None)
                self._restart(self._open.values())  # they may have waited for this one
            case AssistantText(from_subagent=False) if self._open:
                self._restart(self._open.values())  # even if a result was lost, text shows that the CLI is not hung
            case TurnStarted():
                self.another_turn()
            case _:
                pass
        if isinstance(fact, ToolStarted | ToolEnded | AssistantText) and fact.from_subagent:
            self._restart(call for call in self._open.values() if call.time.delegates)

    def result(self) -> None:
        """Start the grace period after a result line; no call is open any more."""
        self._result = self._now()
        self._open.clear()
        self._wake()

    def another_turn(self) -> None:
        """Forget the result line: the session goes on."""
        self._result = None
        self._wake()

    def pause(self) -> None:
        """Stop all clocks while a call waits for approval; each `pause` needs its own `resume`."""
        if self._pauses == 0:
            self._paused_at = self.monotonic()
        self._pauses += 1
        self._wake()

    def resume(self) -> None:
        """Let the clocks run again once no call waits for approval."""
        self._pauses -= 1
        if self._pauses == 0:
            self._stood_still += self.monotonic() - self._paused_at
        self._wake()

    # --- what is due ------------------------------------------------------------------------------------

    def next_due(self) -> tuple[float, StopCause] | None:
        """Return the earliest deadline (monotonic seconds) and its cause; ``None`` while a call waits for approval."""
        if self._pauses:
            return None
        candidates = [(self._started + self.limits.session, StopCause.TIMEOUT)]
        if self._last_sign is None:
            candidates.append((self._started + self.limits.startup, StopCause.STARTUP_TIMEOUT))
        elif self._result is not None:
            candidates.append((self._result + self.limits.result_grace, StopCause.RESULT_GRACE))
        elif self._open:
            candidates += [(deadline, StopCause.TOOL_STALLED) for deadline in self._tool_deadlines()]
        else:
            candidates.append((self._last_sign + self.limits.silence, StopCause.STALLED))
        deadline, cause = min(candidates)
        return deadline + self._stood_still, cause

    def look(self, size: int) -> None:
        """Note the size of the CLI's own transcript, in bytes; the first look only sets the baseline."""
        if self._size is not None and size != self._size and self._last_sign is not None:
            self._last_sign = self._now()
        self._size = size

    async def watch(self, control: StopControl) -> None:
        """Stop the session when a clock runs out. Ends then, or with its task group."""
        while True:
            self._changed = anyio.Event()
            due = self.next_due()
            if due is not None and due[1] is StopCause.STALLED:
                self.look(await self.transcript_size())
                due = self.next_due()
            if due is None:
                await self._changed.wait()
                continue
            deadline, cause = due
            remaining = deadline - self.monotonic()
            if remaining <= 0:
                control.stop(cause)
                return
            with anyio.move_on_after(min(remaining, LOOK_SECONDS) if cause is StopCause.STALLED else remaining):
                await self._changed.wait()

    def _restart(self, calls: Iterable[_OpenCall]) -> None:
        now = self._now()
        for call in calls:
            call.since = now
        self._wake()

    def _tool_deadlines(self) -> Iterator[float]:
        """Yield the deadlines of open calls; a call that waits for a subagent has none while another tool is open."""
        own = [call for call in self._open.values() if not call.time.delegates]
        for call in own or self._open.values():
            allotted = min(call.time.own_seconds or 0.0, self.limits.session)
            yield call.since + max(allotted, self.limits.silence) + self.limits.tool_margin

    def _now(self) -> float:
        """Return monotonic seconds, less the time spent waiting for approval."""
        now = self._paused_at if self._pauses else self.monotonic()
        return now - self._stood_still

    def _wake(self) -> None:
        """Make the watch look again: there may be an earlier deadline than the one it waits for."""
        self._changed.set()


@contextmanager
def waiting_for_people(clocks: Clocks, control: StopControl) -> Iterator[None]:
    """Stop the session's clocks, and give its slot away, while the block waits."""
    clocks.pause()
    control.awaiting_approval += 1
    try:
        yield
    finally:
        control.awaiting_approval -= 1
        clocks.resume()


class CliTranscript:
    """The CLI's ``<home>/.claude/projects/<project>/<session id>.jsonl``; the CLI chooses the project's name."""

    def __init__(self, home: Path, cli_session_id: str) -> None:
        self._projects = home / ".claude" / "projects"
        self._name = f"{cli_session_id}.jsonl"
        self._found: Path | None = None
        self._known = 0
        self._one_look = Threads(most=1)

    async def size(self) -> int:
        """Return the file's size in bytes; 0 while there is no file, the last known size while its disk hangs."""
        with suppress(TimeoutError):
            self._known = await self._one_look.run(
                self._size, seconds=_TRANSCRIPT_SECONDS, what="a look at the transcript"
            )
        return self._known

    def _size(self) -> int:
        try:
            if self._found is None:
                self._found = self._look()
            return 0 if self._found is None else self._found.lstat().st_size
        except OSError:
            self._found = None
            return 0

    def _look(self) -> Path | None:
        with os.scandir(self._projects) as entries:
            for entry in islice(entries, _LOOKED_AT):
                candidate = self._projects / entry.name / self._name
                if entry.is_dir(follow_symlinks=False) and candidate.is_file():
                    return candidate
        return None


class RunningSessions(dict[int, tuple[Session, StopControl]]):
    """The sessions that run in this process, by id. Only the supervisor adds and removes them."""

    def sessions(self) -> list[Session]:
        """Return the rows of the sessions, as they were when claimed."""
        return [session for session, _ in self.values()]

    def stop_all(self, cause: StopCause) -> int:
        """Ask every session to stop now; return how many run."""
        for _, control in self.values():
            control.stop(cause)
        return len(self)

    def stop(self, session_ids: Iterable[int], cause: StopCause) -> None:
        """Ask those of the sessions to stop that run here."""
        for session_id in session_ids:
            if session_id in self:
                self[session_id][1].stop(cause)

    def kill_all(self) -> None:
        """Have every session killed at once, after it was asked to stop."""
        for _, control in self.values():
            control.hurry()


class _OpenCall(msgspec.Struct):
    """A tool call that has no result yet."""

    time: ToolTime
    since: float  # the latest time at which it can have begun: calls of one message may run one after the other
