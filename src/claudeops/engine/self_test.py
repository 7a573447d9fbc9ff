"""Whether the gate holds with a CLI's binary: two short sessions of it on a scripted model, with real tool calls.

What counts is what the calls left on disk, not what the CLI says about them. In the first session one call is allowed
and one denied. In the second one the answer to a call comes later than the CLI was told to wait, then stdin is closed
while a call waits for its answer; both times nothing may run. Every call makes a file of its own,
with nothing but the shell.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from claudeops.domain.model import STRUCTURED_OUTPUT_TOOL, ToolCall, Verdict, VerdictKind
from claudeops.domain.stream import Frame, LineSplitter, decode
from claudeops.engine import process
from claudeops.engine import workspace as workspaces
from claudeops.engine.channel import Channel
from claudeops.engine.tree import marks_below
from claudeops.errors import HarnessError
from claudeops.harness.claude import ClaudeHarness
from claudeops.harness.protocol import GateCancelled, GateRequest, InitMismatch, Spec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from claudeops.engine.workspace import Workspace

    Serve = Callable[[Mapping[str, object]], AbstractAsyncContextManager[str]]
    """Serves a script, given as a document, as a Messages API on loopback; gives its URL."""

LIMIT_SECONDS: Final = 30.0
"""A whole self-test; it takes about two seconds. What has not ended by then has failed."""

_SHORT_HOOK_SECONDS: Final = 1
"""How long the CLI is told to wait for an answer that comes later."""

_READ_BYTES: Final = 65536
_TOOLS: Final = ("Bash", "Read")
_FIRST_MODEL: Final = "haiku"
_SECOND_MODEL: Final = "sonnet"
_SCHEMA: Final = '{"type":"object","properties":{"summary":{"type":"string"}},"required":["summary"]}'


class Call(StrEnum):
    """A scripted tool call; its file has its name."""

    ALLOWED = "allowed"  # answered with a yes, at once
    DENIED = "denied"  # answered with a no, at once
    LATE = "late"  # answered with a yes after the CLI's patience had ended
    UNANSWERED = "unanswered"  # stdin is closed while it waits
    AFTERWARDS = "afterwards"  # the model's next one, when nobody is left to ask


class Fault(StrEnum):
    """What is wrong with a CLI; the text is a sentence's end for the operator."""

    ALLOWED_NOT_RUN = "a call that was allowed did not run"
    NOT_ASKED = "the gate was not asked about a call"
    DENIED_RAN = "a call that was denied ran"
    LATE_RAN = "a call ran whose answer came too late"
    UNANSWERED_RAN = "a call ran that had got no answer when the daemon closed its end"
    INIT_DIFFERS = "it started with other tools, permissions or servers than it was asked for"
    TOO_SLOW = "its sessions did not end in time"
    NOT_STARTED = "it could not be started"


_FAULT_OF: Final[Mapping[Call, Fault]] = {
    Call.DENIED: Fault.DENIED_RAN,
    Call.LATE: Fault.LATE_RAN,
    Call.UNANSWERED: Fault.UNANSWERED_RAN,
    Call.AFTERWARDS: Fault.UNANSWERED_RAN,
}

_QUESTIONS: Final = (Call.ALLOWED, Call.DENIED, Call.LATE, Call.UNANSWERED)
"""The calls that the gate must have been asked about. For the last one nobody is there any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfTestResult:
    """What a self-test found."""

    faults: tuple[Fault, ...]  # empty: the gate holds
    detail: str  # what the CLI said about it, for a log: its stderr or its init line; may be empty

    @property
    def passed(self) -> bool:
        """Whether the binary may be used."""
        return not self.faults


async def self_test(binary: Path, *, path: str, serve: Serve, limit_seconds: float = LIMIT_SECONDS) -> SelfTestResult:
    """Run both sessions at the same time and look at what they left; no process of them outlives the call.

    ``path`` is the ``PATH`` of the sessions, ``limit_seconds`` bounds the whole. What goes wrong is part of the
    answer. Raises `OSError` when there is no room for temporary files.
    """
    root = Path(await anyio.to_thread.run_sync(partial(tempfile.mkdtemp, prefix="claudeops-self-test-")))
    try:
        return await _tested(binary, root, path=path, serve=serve, limit_seconds=limit_seconds)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(shutil.rmtree, root, ignore_errors=True))


async def _tested(binary: Path, root: Path, *, path: str, serve: Serve, limit_seconds: float) -> SelfTestResult:
    calls = root / "calls"
    calls.mkdir()
    first = _Session(harness=ClaudeHarness(), model=_FIRST_MODEL)
    second = _Session(harness=ClaudeHarness(hook_timeout_seconds=_SHORT_HOOK_SECONDS), model=_SECOND_MODEL)
    faults: set[Fault] = set()
    with anyio.move_on_after(limit_seconds) as limit:
        async with serve(_script(calls)) as url, anyio.create_task_group() as tasks:
            for session in (first, second):
                tasks.start_soon(partial(session.run, binary, root, path=path, url=url))
    if limit.cancelled_caught:
        faults.add(Fault.TOO_SLOW)
    for session in (first, second):
        faults |= session.faults
    ran = {call for call in Call if (calls / call).exists()}
    faults |= {fault for call, fault in _FAULT_OF.items() if call in ran}
    if {*ran, *_QUESTIONS} - first.asked - second.asked:
        faults.add(Fault.NOT_ASKED)
    if Call.ALLOWED not in ran:
        faults.add(Fault.ALLOWED_NOT_RUN)
    told = (session.detail.strip() for session in (first, second))
    return SelfTestResult(faults=tuple(sorted(faults)), detail=" ".join(text for text in told if text))


def _script(calls: Path) -> dict[str, object]:
    """Return what the model does, as a script of the Messages API; ``calls`` is where the calls leave their files."""

    def touch(call: Call) -> dict[str, object]:
        return {"name": "Bash", "input": {"command": f"echo > {calls / call}", "description": call.value}}

    first = [{"tools": [touch(Call.ALLOWED), touch(Call.DENIED)]}, {"report": {"summary": "done"}}]
    second = [{"tool": touch(call)} for call in (Call.LATE, Call.UNANSWERED, Call.AFTERWARDS)]
    rest = {"text": "Done.", "times": 20}
    return {"tiers": {_FIRST_MODEL: {"steps": [*first, rest]}, _SECOND_MODEL: {"steps": [*second, rest]}}}


@dataclass(kw_only=True, slots=True)
class _Session:
    """One session of the CLI, and the daemon's side of its conversation."""

    harness: ClaudeHarness
    model: str
    faults: set[Fault] = field(default_factory=set)
    asked: set[Call] = field(default_factory=set)  # calls that the gate was asked about
    detail: str = ""
    _seen_init: bool = False
    _late: GateRequest | None = None  # the question whose answer is held back

    async def run(self, binary: Path, root: Path, *, path: str, url: str) -> None:
        """Talk with the CLI until it has gone."""
        workspace = await workspaces.create(root / self.model, template_home=None)
        spec = self._spec(binary, workspace, path=path, url=url)
        try:
            child = await process.spawn(
                self.harness.command(spec), cwd=workspace.workdir, mark=f"{marks_below(root)}{self.model};"
            )
        except HarnessError as error:
            self.faults.add(Fault.NOT_STARTED)
            self.detail = str(error)
            return
        channel = Channel(child.stdin)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_stderr, child)
                await channel.send(self.harness.opening(spec))
                async for frame in _frames(child):
                    await self._take(frame, spec, channel)
                await channel.close()
                await child.process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await process.kill(child)
                await process.sweep(child)
                await channel.close()
                await child.aclose()
        if not self._seen_init:
            self.faults.add(Fault.NOT_STARTED)

    async def _take(self, frame: Frame, spec: Spec, channel: Channel) -> None:
        if frame.body.get("type") == "result":
            await channel.close()  # else the CLI waits for another message
        if frame.body.get("type") == "system" and frame.body.get("subtype") == "init":
            self._check_init(frame.body)
        match self.harness.signal(frame.body, spec):
            case GateRequest() as request:
                await self._answer(request, channel)
            case GateCancelled(request_id=cancelled) if self._late is not None and cancelled == self._late.request_id:
                await channel.send(self.harness.answer(self._late, _verdict(VerdictKind.ALLOW)))
            case InitMismatch(detail=detail):
                self.faults.add(Fault.INIT_DIFFERS)
                self.detail += detail
            case _:
                pass

    def _check_init(self, init: Mapping[str, object]) -> None:
        self._seen_init = True
        tools = init.get("tools")
        missing = {*_TOOLS, STRUCTURED_OUTPUT_TOOL} - set(tools if isinstance(tools, list) else ())
        if missing:
            self.faults.add(Fault.INIT_DIFFERS)
            self.detail += f"tools that were asked for are missing: {', '.join(sorted(missing))}. "

    async def _answer(self, request: GateRequest, channel: Channel) -> None:
        call = _call_of(request.call)
        if call is not None:
            self.asked.add(call)
        match call:
            case Call.LATE:
                self._late = request
            case Call.UNANSWERED:
                await channel.close()
            case Call.ALLOWED | None:
                allowed = call is not None or request.call.tool_name == STRUCTURED_OUTPUT_TOOL
                kind = VerdictKind.ALLOW if allowed else VerdictKind.DENY
                await channel.send(self.harness.answer(request, _verdict(kind)))
            case _:
                await channel.send(self.harness.answer(request, _verdict(VerdictKind.DENY)))

    async def _keep_stderr(self, child: process.Child) -> None:
        try:
            async for chunk in child.stderr:
                self.detail = (self.detail + chunk.decode("utf-8", "replace"))[-_READ_BYTES:]
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    def _spec(self, binary: Path, workspace: Workspace, *, path: str, url: str) -> Spec:
        return Spec(
            binary=str(binary),
            model=self.model,
            cli_session_id=str(uuid.uuid4()),
            schema_text=_SCHEMA,
            task="Do what the script says.",
            system="This is a self-test.",
            tools=_TOOLS,
            max_turns=20,
            max_budget_usd=1.0,
            home=str(workspace.home),
            workdir=str(workspace.workdir),
            tmpdir=str(workspace.tmpdir),
            state_dir=str(workspace.state_dir),
            path=path,
            passed_env={"ANTHROPIC_API_KEY": "none-needed"},  # without any it does not start
            base_url=url,
        )


def _verdict(kind: VerdictKind) -> Verdict:
    return Verdict(kind=kind, reason="self-test")


def _call_of(call: ToolCall) -> Call | None:
    """Return which scripted call this is; ``None``: the report, or something that nobody scripted."""
    name = Path(str(call.input.get("command", ""))).name
    return Call(name) if name in set(Call) else None


async def _frames(child: process.Child) -> AsyncIterator[Frame]:
    splitter = LineSplitter()
    try:
        while True:
            for line in splitter.push(await child.stdout.receive(_READ_BYTES)):
                if isinstance(frame := decode(line), Frame):
                    yield frame
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return
