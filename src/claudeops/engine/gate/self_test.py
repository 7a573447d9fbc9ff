"""The self-test of the gate: two short sessions of a CLI on a scripted model, with real tool calls.

It shows whether the gate holds with a binary. What counts is what the calls left on disk, not what the CLI says about
them. In the first session one call is allowed, one is denied, and two are answered with a command other than the one
asked for, which is the one that must run. In the second session the answer to a call comes later than the CLI was told
to wait, then stdin is closed while a call waits for its answer; in neither case may anything run. Every call makes a
file of its own, with nothing but the shell.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import msgspec

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.cell import Cell, OwnNetwork, SandboxedCommand, SandboxSpec
from claudeops.engine.cell.own_network import Network, hosts_file
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.process import child as process
from claudeops.engine.process.channel import Channel
from claudeops.engine.process.tree import marks_below
from claudeops.errors import HarnessError
from claudeops.formats.stream import LineSplitter, StreamFrame, decode
from claudeops.harness.claude import ClaudeHarness
from claudeops.harness.protocol import ExecutedCall, GateCancelled, GateRequest, InitMismatch, QuestionWay, Spec
from claudeops.structs import replace

Serve = Callable[[Mapping[str, object]], AbstractAsyncContextManager[str]]
"""Serves a script, given as a document, as a Messages API on loopback; the context's value is its URL."""

LIMIT_SECONDS: Final = 30.0
"""How long a whole self-test may take before it has failed; it usually takes about two seconds."""

_SHORT_HOOK_SECONDS: Final = 1
"""How long the CLI is told to wait for an answer that comes too late."""

_READ_BYTES: Final = 65536
_TOOLS: Final = ("Bash", "Read")
_FIRST_MODEL: Final = "haiku"
_SECOND_MODEL: Final = "sonnet"
_SCHEMA: Final = '{"type":"object","properties":{"summary":{"type":"string"}},"required":["summary"]}'

_REMOVE_SECONDS: Final = 30.0
_NOTHING_TO_WATCH: Final = Path("/usr/share")  # a directory that every machine has


class TestCall(StrEnum):
    """A scripted tool call, named like the file that it makes."""

    ALLOWED = "allowed"  # allowed at once
    DENIED = "denied"  # denied at once
    REPLACED = "replaced"  # allowed with a command other than the one asked for
    REPLACED_LATER = "replaced-later"  # answered with ask at first, then like `REPLACED`
    LATE = "late"  # allowed after the CLI's time to wait has passed
    UNANSWERED = "unanswered"  # stdin is closed while it waits
    AFTERWARDS = "afterwards"  # the model's next call, when stdin is closed already


class CliFault(StrEnum):
    """What is wrong with a CLI; the text ends a sentence for the operator."""

    ALLOWED_NOT_RUN = "a call that was allowed did not run"
    NOT_ASKED = "the gate was not asked about a call"
    DENIED_RAN = "a call that was denied ran"
    ASKED_RAN = "a call ran as it was asked for and not as the gate had answered it"
    NOT_TOLD = "it did not say afterwards what had run"
    ANSWERED_NOT_RUN = "what the gate answered in the place of a call did not run"
    LATE_RAN = "a call ran whose answer came too late"
    UNANSWERED_RAN = "a call ran that had got no answer when the daemon closed its end"
    INIT_DIFFERS = "it started with other tools, permissions or servers than it was asked for"
    TOO_SLOW = "its sessions did not end in time"
    NOT_STARTED = "it could not be started"


_FAULT_OF: Final[Mapping[TestCall, CliFault]] = {
    TestCall.DENIED: CliFault.DENIED_RAN,
    TestCall.REPLACED: CliFault.ASKED_RAN,
    TestCall.REPLACED_LATER: CliFault.ASKED_RAN,
    TestCall.LATE: CliFault.LATE_RAN,
    TestCall.UNANSWERED: CliFault.UNANSWERED_RAN,
    TestCall.AFTERWARDS: CliFault.UNANSWERED_RAN,
}
_REPLACED: Final = (TestCall.REPLACED, TestCall.REPLACED_LATER)
_QUESTIONS: Final = (TestCall.ALLOWED, TestCall.DENIED, *_REPLACED, TestCall.LATE, TestCall.UNANSWERED)
"""The calls that the gate must have been asked about; not `TestCall.AFTERWARDS`, when stdin is closed."""


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """What the sessions of a self-test run with."""

    cell: Cell  # the one that sessions of this node get
    path: str  # their ``PATH``
    root: Path  # a directory for this test alone; workspaces lie below it, or where the cell wants them

    @property
    def workspaces(self) -> Path:
        """Where the workspaces lie."""
        return self.cell.workspaces(self.root)


class SelfTestResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a self-test found."""

    faults: tuple[CliFault, ...]  # empty: the gate holds
    detail: str  # what the CLI said about it, for a log: its stderr or its init line; may be empty

    @property
    def passed(self) -> bool:
        """Whether the binary may be used."""
        return not self.faults


async def self_test(
    binary: Path, *, bench: Bench, serve: Serve, limit_seconds: float = LIMIT_SECONDS
) -> SelfTestResult:
    """Run both sessions at the same time and judge what they left; none of their processes outlives the call.

    ``limit_seconds`` bounds the whole test. Whatever goes wrong is part of the result. Raises `OSError` if the
    sessions' directories, which are removed at the end, cannot be made.
    """
    sessions = (
        _Session(bench=bench, harness=ClaudeHarness(), model=_FIRST_MODEL),
        _Session(
            bench=bench,
            harness=ClaudeHarness(hook_timeout_seconds=_SHORT_HOOK_SECONDS),
            model=_SECOND_MODEL,
        ),
    )
    faults: set[CliFault] = set()
    try:
        with anyio.move_on_after(limit_seconds) as limit:
            async with serve(_script()) as url, anyio.create_task_group() as tasks:
                for session in sessions:
                    tasks.start_soon(session.run, binary, url)
        if limit.cancelled_caught:
            faults.add(CliFault.TOO_SLOW)
        return _judged(faults, sessions)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_REMOVE_SECONDS):
            for directory in {bench.root, bench.workspaces}:
                await workspaces.remove(directory)


def _judged(faults: set[CliFault], sessions: Sequence[_Session]) -> SelfTestResult:
    asked: set[TestCall] = set()
    ran: set[TestCall] = set()
    for session in sessions:
        faults |= session.faults
        asked |= session.asked
        ran |= session.ran()
    faults |= {fault for call, fault in _FAULT_OF.items() if call in ran}
    if {*ran, *_QUESTIONS} - asked:
        faults.add(CliFault.NOT_ASKED)
    if TestCall.ALLOWED not in ran:
        faults.add(CliFault.ALLOWED_NOT_RUN)
    if any(not session.left(_answered(call)) for session in sessions[:1] for call in _REPLACED):
        faults.add(CliFault.ANSWERED_NOT_RUN)
    if {_leaving(TestCall.ALLOWED), *(_leaving(_answered(call)) for call in _REPLACED)} - sessions[0].reported:
        faults.add(CliFault.NOT_TOLD)
    details = (session.detail.strip() for session in sessions)
    return SelfTestResult(faults=tuple(sorted(faults)), detail=" ".join(text for text in details if text))


def _script() -> dict[str, object]:
    """Return the script of the Messages API: what the model does. Each call leaves a file in its working directory."""

    def leave(call: TestCall) -> dict[str, object]:
        return {"name": "Bash", "input": {"command": _leaving(call), "description": call.value}}

    first = [
        {"tools": [leave(TestCall.ALLOWED), leave(TestCall.DENIED), *(leave(call) for call in _REPLACED)]},
        {"report": {"summary": "done"}},
    ]
    second = [{"tool": leave(call)} for call in (TestCall.LATE, TestCall.UNANSWERED, TestCall.AFTERWARDS)]
    rest = {"text": "Done.", "times": 20}
    return {"tiers": {_FIRST_MODEL: {"steps": [*first, rest]}, _SECOND_MODEL: {"steps": [*second, rest]}}}


class _Session(msgspec.Struct, kw_only=True):
    """One session of the CLI, and the daemon's side of its conversation."""

    bench: Bench
    harness: ClaudeHarness
    model: str
    faults: set[CliFault] = msgspec.field(default_factory=set)
    asked: set[TestCall] = msgspec.field(default_factory=set)  # calls that the gate was asked about
    detail: str = ""
    reported: set[str] = msgspec.field(
        default_factory=set
    )  # the commands that the CLI reported as run, in the hook after them
    _workdir: Path | None = None
    _seen_init: bool = False
    _late: GateRequest | None = None  # the question whose answer is held back

    def ran(self) -> set[TestCall]:
        """Return the calls that left their file."""
        return {call for call in TestCall if self.left(call)}

    def left(self, name: str) -> bool:
        """Whether a file of this name was left."""
        return self._workdir is not None and (self._workdir / name).exists()

    async def run(self, binary: Path, url: str) -> None:
        """Talk to the CLI until it has gone."""
        with contextlib.ExitStack() as held:
            uid = await workspaces.enter(held, self.bench.cell.acquire_user())
            workspace = await workspaces.create(self.bench.workspaces / self.model, template_home=None, uid=uid)
            self._workdir = workspace.workdir
            spec = self._spec(binary, workspace, url)
            async with contextlib.AsyncExitStack() as opened:
                network = None
                if self.bench.cell.has_network:
                    # Few starts come here: the gate of a CLI is tried once.
                    from claudeops.engine.cell.forwarder import open_network  # noqa: PLC0415 - see above

                    listed = await opened.enter_async_context(open_network(_of_api(url), lambda _: None))
                    network = OwnNetwork(door=listed.door, hosts=hosts_file(_of_api(url)))
                try:
                    child = await self._spawn(binary, spec, workspace, network)
                except HarnessError as error:
                    self.faults.add(CliFault.NOT_STARTED)
                    self.detail = str(error)
                    return
                await self._talk(child, spec)

    async def _spawn(self, binary: Path, spec: Spec, workspace: Workspace, network: OwnNetwork | None) -> process.Child:
        cell = self.bench.cell
        sandbox = SandboxSpec(
            workspace=workspace,
            binary=binary,
            repos_dir=_NOTHING_TO_WATCH,
            path=self.bench.path,
            network=network,
        )

        def enclose() -> SandboxedCommand:
            cell.hand_over(workspace)
            return cell.enclose(sandbox)

        return await process.spawn(
            self.harness.command(spec),
            cwd=workspace.workdir,
            mark=f"{marks_below(self.bench.root)}{self.model};",
            sandboxed=await workspaces.SESSION_FILES.run(
                enclose, seconds=workspaces.MAKE_SECONDS, what="looking at what a session may see"
            ),
        )

    async def _talk(self, child: process.Child, spec: Spec) -> None:
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
            self.faults.add(CliFault.NOT_STARTED)

    async def _take(self, frame: StreamFrame, spec: Spec, channel: Channel) -> None:
        if frame.body.get("type") == "result":
            await channel.close()  # else the CLI waits for another message
        if frame.body.get("type") == "system" and frame.body.get("subtype") == "init":
            self._check_init(frame.body)
        match self.harness.signal(frame.body, spec):
            case GateRequest() as request:
                await self._answer(request, channel)
            case GateCancelled(request_id=cancelled) if self._late is not None and cancelled == self._late.request_id:
                await channel.send(self.harness.answer(self._late, _verdict(VerdictKind.ALLOW)))
            case ExecutedCall() as ran:
                self.reported |= {str(ran.input.get("command"))}
                await channel.send(self.harness.acknowledge(ran))
            case InitMismatch(detail=detail):
                self.faults.add(CliFault.INIT_DIFFERS)
                self.detail += detail
            case _:
                if (refusal := self.harness.refuse(frame.body)) is not None:
                    await channel.send(refusal)

    def _check_init(self, init: Mapping[str, object]) -> None:
        self._seen_init = True
        tools = init.get("tools")
        missing = {*_TOOLS, STRUCTURED_OUTPUT_TOOL} - set(tools if isinstance(tools, list) else ())
        if missing:
            self.faults.add(CliFault.INIT_DIFFERS)
            self.detail += f"tools that were asked for are missing: {', '.join(sorted(missing))}. "

    async def _answer(self, request: GateRequest, channel: Channel) -> None:
        call = _call_of(request.call)
        if call is not None:
            self.asked.add(call)
        match call:
            case TestCall.LATE:
                self._late = request
            case TestCall.UNANSWERED:
                await channel.close()
            case TestCall.REPLACED_LATER if request.question is QuestionWay.HOOK:
                await channel.send(self.harness.answer(request, _verdict(VerdictKind.ASK)))
            case TestCall.REPLACED | TestCall.REPLACED_LATER:
                ran = {**request.call.input, "command": _leaving(_answered(call))}
                await channel.send(self.harness.answer(request, replace(_verdict(VerdictKind.ALLOW), ran=ran)))
            case TestCall.ALLOWED | None:
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

    def _spec(self, binary: Path, workspace: Workspace, url: str) -> Spec:
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
            path=self.bench.path,
            shell=self.bench.cell.shell(workspace),
            passed_env={"ANTHROPIC_API_KEY": "none-needed"},  # without any it does not start
            base_url=url,
        )


def _verdict(kind: VerdictKind) -> Verdict:
    return Verdict(kind=kind, reason="self-test")


def _leaving(name: str) -> str:
    return f"echo > {name}"


def _answered(call: TestCall) -> str:
    """Return the name of the file that a call leaves if it ran as the gate answered."""
    return f"answered-{call}"


def _call_of(call: ToolCall) -> TestCall | None:
    """Return which scripted call this is; ``None`` for the report, or a call that is not in the script."""
    name = str(call.input.get("command", "")).rpartition(" ")[2]
    return TestCall(name) if name in set(TestCall) else None


async def _frames(child: process.Child) -> AsyncIterator[StreamFrame]:
    splitter = LineSplitter()
    try:
        while True:
            for line in splitter.push(await child.stdout.receive(_READ_BYTES)):
                if isinstance(frame := decode(line), StreamFrame):
                    yield frame
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return


def _of_api(url: str) -> Network:
    """Return the network on which only the scripted model stands."""
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise AssertionError("it is served at an address and port")
    return Network(tcp=((parts.hostname, parts.port),))
