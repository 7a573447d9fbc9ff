"""``exec-command`` as a stream: prompts come from stdin, and what sessions say goes to stdout while they say it.

Each prompt is one pass: a chain that begins at the tier, run here, or by the daemon that owns the database. Whatever
happens, the first line of ``stream-json`` is an init frame and the last one a result frame.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TextIO

import anyio
import anyio.to_thread
import click
import msgspec
from anyio.streams.memory import MemoryObjectSendStream

from claudeops.app.chain import open_foreground, run_chain, run_chain_beside
from claudeops.app.limits import tools_by_tier
from claudeops.app.node import Node
from claudeops.app.wiring import root_session
from claudeops.cli.on_database import operators_name
from claudeops.cli.reply import Exit, exit_for, json_line
from claudeops.cli.start import listening, start
from claudeops.cli.tail import LOOK_SECONDS
from claudeops.cli.tiers.outcomes import exit_of_refusal
from claudeops.clock import Clock
from claudeops.domain.commands import CommandName, StopTarget
from claudeops.domain.sessions import Session, Status, Suppressed, Trigger
from claudeops.engine.process.tree import become_subreaper
from claudeops.engine.session_log.tail import GrowingLog
from claudeops.engine.system import Shutdown
from claudeops.errors import AlreadyRunningError, ClaudeopsError, StoreError
from claudeops.formats.stream import Transcript, decode
from claudeops.formats.stream.exchange import (
    INPUT_BYTES,
    ExchangeVerdict,
    InputFault,
    InputFrame,
    InputReader,
    Interrupt,
    Totals,
    UserTurn,
    frames_of,
    init_frame,
    prompt_of,
    result_frame,
)
from claudeops.harness import HARNESSES
from claudeops.logs import Logger
from claudeops.settings import Settings
from claudeops.store.database import waking
from claudeops.store.sessions import Records
from claudeops.store.store import open_store
from claudeops.tasks import Threads, open_tasks
from claudeops.wording.live import status_line

STREAM: Final = "stream-json"
_CHUNK: Final = 64 * 1024
_LAST_FRAMES_SECONDS: Final = 5.0  # to print what an ended session's log still holds
_INTERRUPTED: Final = 130  # as a shell tells of a process that SIGINT has ended

Queued = Callable[[Session], None]


class Runner(Protocol):
    """Runs passes, one at a time."""

    async def run(self, text: str, queued: Queued) -> Sequence[Session] | Suppressed:
        """Run one pass to its end; ``queued`` is called with its first session."""

    async def interrupt(self) -> None:
        """Stop the pass that runs; nothing if none does."""


def run_exchange(
    tier: int,
    prompt: str | None,
    *,
    input_format: str = "text",
    output_format: str = STREAM,
    timeout_seconds: float = math.inf,
) -> int:
    """Run the passes that prompt and stdin ask for, print them, and return the exit status.

    ``prompt`` is that of the only pass; ``None`` and ``-``: it comes from stdin. With ``stream-json`` as input there is
    none. A pass that takes longer than ``timeout_seconds`` is stopped.
    """
    began = Clock().monotonic()
    printer = FramePrinter(as_frames=output_format == STREAM, tier=tier)
    verdict = ExchangeVerdict.refused("a fault of claudeops ended it", Exit.SOFTWARE)
    try:
        verdict = _run(prompt, input_format, printer, timeout_seconds)
    except ClaudeopsError as error:
        verdict = ExchangeVerdict.refused(str(error), exit_for(error))
    finally:  # also after a fault that nobody foresaw: whoever reads the stream waits for its last frame
        printer.end(verdict, duration_ms=round((Clock().monotonic() - began) * 1000))
    return verdict.exit_status


def _run(prompt: str | None, input_format: str, printer: FramePrinter, timeout_seconds: float) -> ExchangeVerdict:
    inline = None if prompt == "-" else prompt
    if input_format == STREAM and inline is not None:
        says = "A prompt on the command line and stream-json on stdin exclude each other."
        return ExchangeVerdict.refused(says, Exit.USAGE)
    settings, log = start(sys.stderr, quiet=True)
    printer.describe(settings)
    source = _read(input_format) if inline is None else _given(inline)
    return anyio.run(partial(_exchange, settings, log, printer, source, timeout_seconds))


@dataclass(kw_only=True)
class FramePrinter:
    """Prints frames, or in text mode the last words alone; a reader that is gone ends the printing, not the passes."""

    as_frames: bool
    tier: int
    model: str = ""
    tools: tuple[str, ...] = ()
    out: TextIO = field(default_factory=lambda: sys.stdout)
    totals: Totals = field(default_factory=Totals)
    _begun: bool = False
    _broken: bool = False

    def describe(self, settings: Settings) -> None:
        """Note what the init frame says of the tier."""
        chosen = next((known for known in settings.tiers if known.number == self.tier), None)
        if chosen is not None:
            provider = "anthropic" if chosen.harness == "claude" else chosen.harness
            self.model = f"{provider}/{chosen.model}"
            self.tools = tools_by_tier(settings).get(self.tier, ())

    def begin(self, session_id: int | None) -> None:
        """Print the init frame, unless that was done."""
        if not self._begun:
            self._begun = True
            cwd = str(Path.cwd())
            self.print(init_frame(session_id=session_id, model=self.model, tools=self.tools, cwd=cwd, tier=self.tier))

    def print(self, frame: dict[str, object]) -> None:
        """Print one frame."""
        if not self.as_frames or self._broken:
            return
        try:
            self.out.write(json_line(frame).decode())
            self.out.flush()
        except (OSError, ValueError):
            self._broken = True

    def end(self, verdict: ExchangeVerdict, *, duration_ms: int) -> None:
        """Print the result frame; in text mode the last words, or on stderr why there are none."""
        self.begin(None)
        self.print(result_frame(verdict, self.totals, duration_ms=duration_ms))
        if self.as_frames:
            return
        if verdict.text is not None:
            click.echo(verdict.text)
        elif self.totals.last_text:
            click.echo(self.totals.last_text)
        if verdict.subtype != "success":
            click.echo(f"claudeops: {verdict.error or verdict.subtype.replace('_', ' ')}", err=True)
        if sys.stderr.isatty():  # a person waits
            is_error, cost = verdict.subtype != "success", self.totals.cost_usd
            click.echo(status_line(is_error=is_error, cost_usd=cost, duration_ms=duration_ms), err=True, nl=False)


# --- the passes, one after the other ------------------------------------------------------------------


class _Turn(msgspec.Struct, frozen=True):
    """A user frame that waits, or runs."""

    text: str
    interrupted: anyio.Event = msgspec.field(default_factory=anyio.Event)


@dataclass(kw_only=True)
class Exchange:
    """Runs a pass for every user frame of an input, one after the other."""

    runner: Runner
    printer: FramePrinter
    print_chain: Callable[[Session], Awaitable[None]]  # prints a chain until it has ended
    timeout_seconds: float = math.inf  # of one pass
    stopped: anyio.Event = field(default_factory=anyio.Event)  # set: no further pass begins
    _unfinished: list[_Turn] = field(default_factory=list)

    async def run(self, frames: AsyncIterator[InputFrame]) -> ExchangeVerdict:
        """Return how the last pass ended, or what is wrong with the input."""
        send, receive = anyio.create_memory_object_stream[_Turn | InputFault](math.inf)  # the input itself is bounded
        verdict = ExchangeVerdict.refused("nothing was asked for", Exit.USAGE)
        with send, receive:
            async with open_tasks() as tasks:
                tasks.start_soon(self._read, frames, send)
                tasks.start_soon(self._close_when_stopped, send)
                async for turn in receive:
                    if isinstance(turn, InputFault):
                        verdict = ExchangeVerdict.refused(turn.says, turn.exit_status)
                        break
                    verdict = await self._take(turn)
                tasks.cancel_scope.cancel()
        return verdict

    async def interrupt(self) -> None:
        """Stop what runs, and what was asked for before and waits."""
        for turn in self._unfinished:
            turn.interrupted.set()

    async def _read(self, frames: AsyncIterator[InputFrame], send: MemoryObjectSendStream[_Turn | InputFault]) -> None:
        """Read while a pass runs, so that an interrupt stops it."""
        with contextlib.suppress(anyio.ClosedResourceError), send:
            async for frame in frames:
                if isinstance(frame, Interrupt):
                    await self.interrupt()
                elif isinstance(frame, UserTurn):
                    self._unfinished.append(turn := _Turn(frame.text))
                    await send.send(turn)
                else:
                    await send.send(frame)

    async def _close_when_stopped(self, send: MemoryObjectSendStream[_Turn | InputFault]) -> None:
        await self.stopped.wait()
        await self.interrupt()
        send.close()

    async def _take(self, turn: _Turn) -> ExchangeVerdict:
        try:
            return ExchangeVerdict.cancelled() if turn.interrupted.is_set() else await self._pass(turn)
        finally:
            self._unfinished.remove(turn)

    async def _pass(self, turn: _Turn) -> ExchangeVerdict:
        printed = anyio.Event()

        async def print_whole(root: Session) -> None:
            await self.print_chain(root)
            printed.set()

        async def stop_when_asked() -> None:
            with anyio.move_on_after(self.timeout_seconds):
                await turn.interrupted.wait()
            await self.runner.interrupt()

        async with open_tasks() as tasks:

            def queued(root: Session) -> None:
                self.printer.begin(root.id)
                tasks.start_soon(print_whole, root)

            tasks.start_soon(stop_when_asked)
            outcome = await self.runner.run(turn.text, queued)
            if not isinstance(outcome, Suppressed):
                with anyio.move_on_after(_LAST_FRAMES_SECONDS):
                    await printed.wait()
            tasks.cancel_scope.cancel()
        return _verdict(outcome, self.printer.totals)


def _verdict(outcome: Sequence[Session] | Suppressed, totals: Totals) -> ExchangeVerdict:
    if isinstance(outcome, Suppressed):
        return ExchangeVerdict.refused(outcome.message, exit_of_refusal(outcome.reason))
    if outcome[-1].status is not Status.ENDED:  # a hold keeps it in the queue
        return ExchangeVerdict.refused("It waits in the queue: sessions are held (`claudeops health`).", Exit.TRY_LATER)
    return ExchangeVerdict.of(outcome[-1], totals.last_text)


# --- who runs them ------------------------------------------------------------------------------------


async def _exchange(
    settings: Settings, log: Logger, printer: FramePrinter, source: AsyncIterator[InputFrame], timeout_seconds: float
) -> ExchangeVerdict:
    shutdown = Shutdown()
    with listening(shutdown, log):
        async with contextlib.AsyncExitStack() as stack:
            runner: Here | Beside
            try:
                node = await stack.enter_async_context(open_foreground(settings, log=log, shutdown=shutdown))
                become_subreaper()
                runner = Here(settings, node, printer.tier)
            except AlreadyRunningError:
                runner = Beside(settings, log, printer.tier)
            passes = Exchange(
                runner=runner,
                printer=printer,
                print_chain=partial(_print_chain, settings, printer),
                timeout_seconds=timeout_seconds,
                stopped=shutdown.requested,
            )
            verdict = ExchangeVerdict.refused("Interrupted twice, so nobody waited for the end.", _INTERRUPTED)
            async with open_tasks() as tasks:

                async def hurry() -> None:
                    await shutdown.hurried.wait()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(hurry)
                verdict = await passes.run(source)
                tasks.cancel_scope.cancel()
    return verdict


class Here:
    """Runs passes in this process."""

    def __init__(self, settings: Settings, node: Node, tier: int) -> None:
        self._settings, self._node, self._tier = settings, node, tier
        self._running: Shutdown | None = None

    async def run(self, text: str, queued: Queued) -> Sequence[Session] | Suppressed:
        """Run one chain on the node."""
        new = root_session(self._settings, self._tier, Trigger.MANUAL, text, by=operators_name())
        self._running = Shutdown()
        try:
            return await run_chain(self._node, new, self._running, lambda _: None, queued=queued)
        finally:
            self._running = None

    async def interrupt(self) -> None:
        """Stop the chain as a signal would."""
        if self._running is not None:
            self._running.requested.set()


class Beside:
    """Has the daemon run passes."""

    def __init__(self, settings: Settings, log: Logger, tier: int) -> None:
        self._settings, self._log, self._tier = settings, log, tier
        self._stop = anyio.Event()

    async def run(self, text: str, queued: Queued) -> Sequence[Session] | Suppressed:
        """Queue one chain for the daemon and wait for its end."""
        new = root_session(self._settings, self._tier, Trigger.MANUAL, text, by=operators_name())
        self._stop = anyio.Event()
        async with open_tasks() as tasks:

            def note(root: Session) -> None:
                tasks.start_soon(self._stop_when_asked, self._stop, root.id)
                queued(root)

            outcome = await run_chain_beside(self._settings, new, lambda _: None, queued=note, log=self._log)
            tasks.cancel_scope.cancel()
        return outcome

    async def interrupt(self) -> None:
        """Have the daemon asked to stop the chain; its end shows whether it did."""
        self._stop.set()

    async def _stop_when_asked(self, asked: anyio.Event, chain: int) -> None:
        await asked.wait()
        places = self._settings.places
        store = open_store(places.database_url, changed=waking(places.state_dir))
        try:
            by, now, target = operators_name(), Clock().now(), StopTarget(chain=chain)
            await store.commands.request(CommandName.STOP, by=by, now=now, arguments=target.arguments)
        finally:
            await store.close()


# --- what sessions say --------------------------------------------------------------------------------


async def _print_chain(settings: Settings, printer: FramePrinter, root: Session) -> None:
    """Print the frames of a chain's sessions until all of them have ended; a database that goes away ends it."""
    store = open_store(settings.places.database_url)
    try:
        with contextlib.suppress(StoreError):
            done = 0
            while (session := await _after(store.records, root.id, done)) is not None:
                ended, transcript = await _print_session(store.records, session, printer)
                printer.totals = printer.totals.with_session(ended, transcript)
                done = ended.id
    finally:
        await store.close()


async def _after(records: Records, root: int, done: int) -> Session | None:
    return next((session for session in await records.chain(root) if session.id > done), None)


async def _print_session(
    records: Records, session: Session, printer: FramePrinter
) -> tuple[Session, Transcript | None]:
    reader = HARNESSES[session.harness].reader()
    with contextlib.ExitStack() as opened:
        log = None
        while True:
            # Asked before the look, so that the log of a session that has ended is read to its end.
            session = await records.session(session.id) or session
            if log is None and session.log_path is not None:
                with contextlib.suppress(OSError):  # the claim names it, and it is opened a moment later
                    log = opened.enter_context(await anyio.to_thread.run_sync(GrowingLog, Path(session.log_path)))
            more = log is not None
            while log is not None and more:
                lines, more = await anyio.to_thread.run_sync(log.look)
                for event in (event for line in lines for event in reader.feed(decode(line))):
                    for frame in frames_of(event, session_id=session.id):
                        printer.print(frame)
            if session.status is Status.ENDED:
                if log is not None and (rest := log.rest()) is not None:
                    reader.feed(decode(rest))  # half a line: counted, and shown as nothing
                return session, None if log is None else reader.close()
            await anyio.sleep(LOOK_SECONDS)


# --- the input ----------------------------------------------------------------------------------------


async def _given(prompt: str) -> AsyncIterator[InputFrame]:
    yield prompt_of(prompt.encode("utf-8", "replace"))


def _read(input_format: str) -> AsyncIterator[InputFrame]:
    chunks = _chunks(sys.stdin.fileno())
    return read_frames(chunks) if input_format == STREAM else read_prompt(chunks)


async def read_frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[InputFrame]:
    """Yield what a ``stream-json`` input asks for, as it comes."""
    reader = InputReader()
    async for chunk in chunks:
        for frame in reader.push(chunk):
            yield frame
            if isinstance(frame, InputFault):
                return
    for frame in reader.close():
        yield frame


async def read_prompt(chunks: AsyncIterator[bytes]) -> AsyncIterator[InputFrame]:
    """Yield a whole input as one thing to be done."""
    data = bytearray()
    async for chunk in chunks:
        data += chunk
        if len(data) > INPUT_BYTES:
            break
    yield prompt_of(bytes(data))


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what comes on stdin; the thread that waits for it keeps no process from exiting."""
    waiting = Threads(most=1)
    # Not through `sys.stdin`: whoever waits in it holds its lock, which the interpreter wants when it exits.
    read = partial(os.read, descriptor, _CHUNK)
    while chunk := await waiting.run(read, seconds=math.inf, what="reading stdin"):
        yield chunk
