"""Judging in a process that can be killed: what a session's calls cost, and whatever they do to it, is its own.

Each session has a process, which is started for its first call and judges one call at a time. One that does not answer
in time is killed, and so is one whose answer is no longer wanted; the next call starts another. A session that keeps
judging busy uses up its own time: its calls are denied from then on, and nobody else waits.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Generic, TypeVar

import anyio
import msgspec
from anyio.abc import Process, UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from claudeops.domain.calls import ToolCall, Verdict
from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.engine.gate.judge_process import HEADER_BYTES, message, read_answer
from claudeops.engine.process.leaders import end_leader, open_leader
from claudeops.policy.tiers import PolicyJudgement

CALL_SECONDS: Final = 10.0
"""How long judging a call may take, the wait for earlier calls of its session included. The CLI waits for a minute."""

SESSION_SECONDS: Final = 120.0
"""How long judging all calls of a session may take. A usual call takes one to five milliseconds."""

TOO_SLOW: Final = "this call could not be judged in time: write it more plainly, in smaller steps"
USED_UP: Final = (
    "judging the calls of this session has taken too long altogether: nothing more runs, deliver the report"
)

_MOST_ANSWER_BYTES: Final = 64 * 1024 * 1024

A = TypeVar("A", Verdict, PolicyJudgement)

SessionJudge = Callable[[ToolCall], Verdict]
"""The policy as it applies to the calls of one session."""

Judging = Callable[[ToolCall], Awaitable[Verdict]]
"""Judges a call, off the event loop and within a bound; raises `NotJudgedError`."""


class NotJudgedError(Exception):
    """A call has no verdict; ``str()`` is the reason for the log."""

    def __init__(self, reason: str, *, answer: str = TOO_SLOW) -> None:
        super().__init__(reason)
        self.answer = answer  # what the model reads


@contextlib.asynccontextmanager
async def judge_in_process(judge: SessionJudge) -> AsyncIterator[Judging]:
    """Judge the calls of one session in a process of its own, for the length of the block; leaves no process.

    The judge is pickled: it and the functions that it holds must be importable by name.
    """
    judging = JudgeProcess(judge=judge, answers=Verdict)
    try:
        yield judging.judge_call
    finally:
        await judging.end()


class JudgeProcess(msgspec.Struct, Generic[A], kw_only=True):
    """The process that judges the calls of one session."""

    judge: Callable[[ToolCall], A]
    answers: type[A]  # a verdict, or that with all that it is based on
    call_seconds: float = CALL_SECONDS
    session_seconds: float = SESSION_SECONDS
    _spent_seconds: float = 0.0
    _running: _Running | None = None
    _turn: anyio.Lock = msgspec.field(default_factory=anyio.Lock)

    @property
    def pid(self) -> int | None:
        """The pid of the process, if one runs."""
        return None if self._running is None else self._running.process.pid

    async def judge_call(self, call: ToolCall) -> A:
        """Return the verdict on a call within ``call_seconds``; raises `NotJudgedError`."""
        if call.tool_name == STRUCTURED_OUTPUT_TOOL:
            return self.judge(call)  # no rule looks into a report, and a session whose judging fails still delivers it
        try:
            with anyio.fail_after(self.call_seconds):
                async with self._turn:
                    return await self._judged(call)
        except TimeoutError:
            raise NotJudgedError(f"judging took longer than {self.call_seconds:g} s") from None

    async def end(self) -> None:
        """Kill the process, if one runs."""
        running, self._running = self._running, None
        if running is not None:
            await running.end()

    async def _judged(self, call: ToolCall) -> A:
        if self._spent_seconds >= self.session_seconds:
            raise NotJudgedError(f"the session has used up its {self.session_seconds:g} s of judging", answer=USED_UP)
        began, answer = anyio.current_time(), None
        try:
            if self._running is None:
                self._running = await _start(self.judge, self.call_seconds)
            answer = await self._running.ask(call)
        except (pickle.PicklingError, RecursionError) as error:
            raise NotJudgedError(f"the call cannot be passed on: {error!r}") from error
        except (OSError, anyio.BrokenResourceError, anyio.IncompleteRead) as error:
            raise NotJudgedError(f"the process that judges ended: {error!r}") from error
        finally:
            self._spent_seconds += anyio.current_time() - began
            if not isinstance(
                answer, self.answers
            ):  # cancelled, too: an answer that comes late would be the next call's
                await self.end()
        if isinstance(answer, self.answers):
            return answer
        raise NotJudgedError(answer if isinstance(answer, str) else f"its answer is a {type(answer).__name__}")


class _Running(msgspec.Struct, frozen=True, kw_only=True):
    """A process that judges, and our end of the socket."""

    process: Process
    stream: UNIXSocketStream
    answers: BufferedByteReceiveStream

    async def ask(self, call: ToolCall) -> Verdict | PolicyJudgement | str:
        """Return its answer, or why there is none."""
        await self.stream.send(message(call))
        length = int.from_bytes(await self.answers.receive_exactly(HEADER_BYTES), "big")
        if length > _MOST_ANSWER_BYTES:
            return f"its answer has {length} bytes"
        return read_answer(await self.answers.receive_exactly(length))

    async def end(self) -> None:
        await end_leader(self.process)
        await self.stream.aclose()


async def _start(judge: Callable[[ToolCall], Verdict | PolicyJudgement], call_seconds: float) -> _Running:
    """Start a process; raises `OSError`. It imports the policy while its first call is on the way."""
    given = message(judge)
    ours, theirs = socket.socketpair()  # not pipes: through /proc a session could open those of its own user
    with theirs:
        stream = await UNIXSocketStream.from_socket(ours)
        try:
            command = [sys.executable, "-I", "-m", "claudeops.engine.gate.judge_process", str(call_seconds)]
            process = await open_leader(command, connection=theirs)
        except BaseException:
            await stream.aclose()
            raise
    running = _Running(process=process, stream=stream, answers=BufferedByteReceiveStream(stream))
    try:
        await stream.send(given)
    except BaseException:
        await running.end()
        raise
    return running
