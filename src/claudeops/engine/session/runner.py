"""Runs one session, from its claimed row to its ending, in a single straight line."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec

from claudeops.domain.calls import ToolCall, Verdict
from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.estate.estate import Estate
from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.domain.sessions import Ending, Session
from claudeops.domain.spending.tokens import CallState
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import BubblewrapCell, Mount
from claudeops.engine.cell.cgroups import ControlGroup
from claudeops.engine.cell.own_files import MemoryFiles, open_files
from claudeops.engine.cell.reach import Needs, ReachedPlace, open_reach
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.control import CliTranscript, Clocks, StopControl, waiting_for_people
from claudeops.engine.gate.approvals import ApprovalService
from claudeops.engine.gate.gate import Gate
from claudeops.engine.gate.judging import Judging, NotJudgedError
from claudeops.engine.gate.view import SessionView
from claudeops.engine.live.hub import COMMAND_CHARACTERS, Broadcast
from claudeops.engine.meter.account import MeterAccount
from claudeops.engine.process.bounds import BoundsWatch, bounded_by_kernel, open_group, watch_over
from claudeops.engine.process.channel import Channel
from claudeops.engine.process.leaders import Ahead, started_ahead
from claudeops.engine.process.looks import SessionLooks, open_looks
from claudeops.engine.session import files
from claudeops.engine.session.access import ModelWay, needs_of
from claudeops.engine.session.completion import Gathered, calls_that_ran, conclude, looked, never_started
from claudeops.engine.session.context import Clis, SessionContext, TierSetup
from claudeops.engine.session.conversation import Conversation
from claudeops.engine.session.files import take_handoff
from claudeops.engine.session.filters import Filters, cells_behind, clusters_of, files_below, open_filters
from claudeops.engine.session.keys import SessionKeys, keys_of, open_keys
from claudeops.engine.session.knowledge import read_anew
from claudeops.engine.session.launch import Launch, Launched
from claudeops.engine.session_log.writer import SessionLog
from claudeops.errors import ErrorKind, HarnessError
from claudeops.formats.report.markers import Handoff, HandoffError
from claudeops.harness.protocol import Harness, ModelAccess
from claudeops.logs import LogEvent, Logger, log_context
from claudeops.structs import replace
from claudeops.text.redact import Redactor
from claudeops.wording.live import Viewpoint

_LOOKS_SECONDS: Final = 30.0  # for judging all calls of an ended session; a thousand take three
_SEARCH_TOOL: Final = "WebSearch"  # a tool of the CLI that has the API search the web


class SessionRunner(msgspec.Struct, frozen=True, kw_only=True):
    """Runs claimed sessions. Holds no state of its own: everything of one session is local to `run`."""

    context: SessionContext

    async def run(self, session: Session, control: StopControl) -> Ending:
        """Do the same as `running`; when this returns, or is cancelled, the workspace is gone as well."""
        async with self.running(session, control) as ending:
            return ending

    @contextlib.asynccontextmanager
    async def running(self, session: Session, control: StopControl) -> AsyncIterator[Ending]:
        """Run one session to its end, and yield that; whatever goes wrong on the way is part of it, not an exception.

        No process of the session is left by then. Its workspace, its control group and the process that judged its
        calls go when the block is left, so that what follows from the end does not wait for that.
        """
        root = self.context.workspaces() / workspaces.workspace_name(session.id)
        async with contextlib.AsyncExitStack() as held:  # the user among them, until the workspace is gone too
            try:
                ahead = await held.enter_async_context(self._started_ahead())
                yield await self._run(session, control, root, held, ahead)
            finally:
                with anyio.CancelScope(shield=True):  # bounded by itself
                    if (left := await workspaces.remove(root)) is not None:
                        log = log_context(self.context.log, session)
                        log.error(LogEvent.WORKSPACE_NOT_REMOVED, path=str(root), error=str(left))

    def _started_ahead(self) -> contextlib.AbstractAsyncContextManager[Ahead | None]:
        if not isinstance(self.context.confinement.cell, BubblewrapCell):
            return contextlib.nullcontext()
        launchers, groups = self.context.launchers, self.context.confinement.groups
        return started_ahead(groups) if launchers is None else launchers.started_ahead(groups)

    async def _run(
        self, session: Session, control: StopControl, root: Path, held: contextlib.AsyncExitStack, ahead: Ahead | None
    ) -> Ending:
        context, confinement = self.context, self.context.confinement
        log = log_context(context.log, session)
        started = context.clock.monotonic()
        try:
            tier, harness = _tier_of(session, context), context.clis.harness_of(session)
            async with read_anew(context, log) as estate_read:  # while the workspace is made
                group = await held.enter_async_context(open_group(confinement.groups, ahead))
                await _admit(harness, context.clis)
                uid = await workspaces.enter(held, confinement.cell.acquire_user())
                keys = await keys_of(confinement.cell, tier)
                clusters = await clusters_of(tier)
                kept_back = frozenset() if keys is None else keys.files
                workspace = await workspaces.create(
                    root, template_home=tier.template_home, uid=uid, without=kept_back | files_below(tier, clusters)
                )
                bound = await bounded_by_kernel(
                    workspace,
                    group,
                    confinement.bounds,
                    memory_mb=confinement.session_memory_mb,
                    room_mb=confinement.files_room_mb,
                )
            (estate,) = estate_read
            async with (
                metered(context, session, harness, control) as access,
                open_filters(context, tier, workspace, clusters, log) as filters,
                open_keys(
                    confinement.cell,
                    tier,
                    (workspace, keys),
                    needs := needs_of(context, tier, (workspace, estate), access.way(harness), filters.endpoints),
                    log,
                ) as session_keys,
                _reached(context, needs, log) as reach,
                open_looks({**confinement.looks, **cells_behind(context, tier)}, workspace, log) as looks,
                open_files(bound, workspace) as memory,
                await _log_of(session) as sink,
            ):
                run = _Run(
                    context=context,
                    session=session,
                    tier=tier,
                    estate=estate,
                    harness=harness,
                    workspace=workspace,
                    access=access,
                    group=group,
                    looks=looks,
                    filters=filters,
                    reach=reach,
                    keys=session_keys,
                    memory=memory,
                    ahead=ahead,
                    sink=sink,
                    control=control,
                    log=log,
                )
                gathered = await run.converse(held)
            gathered = replace(
                gathered, unbooked=access.unbooked, metered=access.account is not None, stop_detail=access.refusal
            )
        except (OSError, HarnessError) as error:
            return never_started(
                session, context.redactor.text(str(error)), at=context.clock.now(), ms=self._ms(started)
            )
        finally:
            if context.availability is not None:
                context.availability.forget(session.id)
        return conclude(session, gathered, context.completion, at=context.clock.now(), ms=self._ms(started))

    def _ms(self, started: float) -> int:
        """Return the milliseconds since a reading of the monotonic clock."""
        return round((self.context.clock.monotonic() - started) * 1000)


class MeteredAccess(msgspec.Struct, frozen=True, kw_only=True):
    """A session's own access to the model API, and what is still unbooked when its process has gone."""

    access: ModelAccess
    redactor: Redactor  # knows the session's token, too
    account: MeterAccount | None = None  # None: the session's model calls do not go through the meter

    def way(self, harness: Harness) -> ModelWay:
        """Return which addresses lead the session to its model."""
        url = self.access.base_url
        if self.account is not None:
            return ModelWay(meter=url)
        return ModelWay(urls=(url,) if url else harness.capabilities.model_urls)

    @property
    def unbooked(self) -> tuple[CallState, ...]:
        """Return the calls whose end the database has not taken; complete once the account is closed."""
        return self.account.unbooked if self.account else ()

    @property
    def refusal(self) -> str | None:
        """Return the sentence with which a budget denied a call, if one did."""
        return self.account.refusal if self.account else None


@contextlib.asynccontextmanager
async def _reached(context: SessionContext, needs: Needs, log: Logger) -> AsyncIterator[ReachedPlace | None]:
    """Hold the session's own network for the length of the block, where its cell has one; raises `OSError`."""
    if not context.confinement.cell.has_network:
        yield None
        return
    async with open_reach(needs, context.names, log) as reach:
        try:
            yield reach
        finally:
            context.counts.connected(reach.tally.connected, failed=reach.tally.failed)
            relayed = reach.relayed
            context.counts.relayed(relayed.added, refused=relayed.refused, failed=relayed.failed)


@contextlib.asynccontextmanager
async def metered(
    context: SessionContext, session: Session, harness: Harness, control: StopControl
) -> AsyncIterator[MeteredAccess]:
    """Open a session's account for the length of the block, if there is a meter and the CLI can be sent there."""
    if context.meter is None or not harness.capabilities.metered:
        yield MeteredAccess(access=context.access, redactor=context.redactor)
        return

    def stop() -> None:
        control.stop(StopCause.BUDGET_EXCEEDED)

    searches = _SEARCH_TOOL in context.tiers[session.tier].policy.tools
    async with context.meter.account(
        session, over_budget=stop, availability=context.availability, searches=searches
    ) as account:
        yield MeteredAccess(access=context.meter.access_of(account), redactor=account.redactor, account=account)


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """One session with everything that it runs with."""

    context: SessionContext
    session: Session
    tier: TierSetup
    estate: Estate
    harness: Harness
    workspace: Workspace
    access: MeteredAccess
    group: ControlGroup | None
    looks: SessionLooks | None
    filters: Filters
    reach: ReachedPlace | None
    keys: SessionKeys
    memory: MemoryFiles | None
    ahead: Ahead | None
    sink: SessionLog
    control: StopControl
    log: Logger

    async def converse(self, held: contextlib.AsyncExitStack) -> Gathered:
        """Start the CLI, talk to it until it ends, and return the results; raises `OSError` and `HarnessError`.

        ``held`` keeps what judges its calls.
        """
        watch = await watch_over(
            self.workspace,
            bounds=self.context.confinement.bounds,
            memory_mb=self.context.confinement.session_memory_mb,
            group=self.group,
            control=self.control,
            log=self.log,
        )
        launched = await self._launch(watch)
        # Taken once the session runs: one that does not start would lose them.
        watch.events += (*self.context.prompts.notices.take(), *self.context.libraries.notices.take())
        if self.context.meter is not None:
            self.context.meter.prepare()  # for the next session, while this one's CLI starts
        judging = self.context.judging(self.tier.judge_in(self.workspace, self.estate, launched.mounts))
        judge = await held.enter_async_context(judging)
        conversation = self._conversation(launched, watch, judge)
        exit_code = await conversation.run()
        gathered = await self._gathered(launched, conversation, exit_code)
        return await self._looked(gathered, judge)

    async def _gathered(self, launched: Launched, conversation: Conversation, exit_code: int | None) -> Gathered:
        transcript = conversation.transcript()
        if (path := launched.command.last_message) is not None:
            left = await files.last_message(path if self.memory is None else str(self.memory.outside(Path(path))))
            transcript = self.harness.with_last_message(transcript, self.access.redactor.text(left or ""))
        return Gathered(
            harness=self.harness,
            transcript=transcript,
            exit_code=exit_code,
            stop=self.control.cause,
            allowed=conversation.watch.ran,
            tool_ends=tuple(conversation.watch.ends),
            refusals=tuple(conversation.watch.refusals),
            events=tuple(conversation.events),
            stderr_tail=conversation.stderr_tail,
            handoff=await self._handoff(),
        )

    async def _looked(self, gathered: Gathered, judge: Judging) -> Gathered:
        """Return it with its looks; a call that is not judged in time is no evidence."""
        verdicts = {}
        if not gathered.succeeded_in_log:
            self.sink.close_later()  # nothing is read of it, and the disk takes it meanwhile
        with anyio.move_on_after(_LOOKS_SECONDS):
            for call in calls_that_ran(gathered):
                with contextlib.suppress(NotJudgedError):
                    verdicts[call.tool_use_id] = await judge(call)
            if gathered.succeeded_in_log:
                await self.sink.sync()
                inputs = files.LoggedInputs(self.sink.path, self.harness, self.access.redactor)
                for observed in gathered.succeeded_in_log:
                    if (found := await inputs.find(observed)) is not None:
                        with contextlib.suppress(NotJudgedError):
                            verdicts[found.tool_use_id] = replace(await judge(found), ran=None)  # only the look
        return looked(gathered, verdicts)

    @property
    def _held(self) -> Workspace:
        """Return where the daemon reaches the running session's files."""
        return self.workspace if self.memory is None else self.memory.reached

    async def _move_in(self, watch: BoundsWatch) -> None:
        if self.memory is not None:
            await self.memory.move_in()
            await watch.move_to(self.memory.reached.root, self.memory.descriptor)

    async def _launch(self, watch: BoundsWatch) -> Launched:
        launch = Launch(
            context=self.context,
            session=self.session,
            tier=self.tier,
            harness=self.harness,
            workspace=self.workspace,
            access=self.access.access,
            group=self.group,
            look_socket=None if self.looks is None else self.looks.socket,
            filters=self.filters,
            reach=self.reach,
            keys=self.keys,
            memory=self.memory,
            ahead=self.ahead,
            estate=self.estate,
            log=self.log,
        )
        launched = await launch.start(partial(self._move_in, watch))
        self.log.info(
            LogEvent.SESSION_SPAWNED,
            pid=launched.child.pid,
            cli_session_id=self.session.cli_session_id,
            trace_id=launched.place.trace_id,
            span_id=launched.place.span_id,
            files="disk" if self.memory is None else "memory",
        )
        return launched

    def _conversation(self, launched: Launched, watch: BoundsWatch, judge: Judging) -> Conversation:
        context, redactor = self.context, self.access.redactor
        view = Viewpoint(root=str(self.workspace.workdir), redact=redactor.text, command_chars=COMMAND_CHARACTERS)
        live = Broadcast(session=self.session, view=view, asks=self.harness.capabilities.gate, hub=context.hub)
        clocks = Clocks(
            limits=context.timeouts,
            monotonic=context.clock.monotonic,
            transcript_size=CliTranscript(self._held.home, self.session.cli_session_id or "").size,
        )
        return Conversation(
            child=launched.child,
            channel=Channel(launched.child.stdin),
            harness=self.harness,
            spec=launched.spec,
            gate=self._gate(judge, clocks, live, launched.mounts),
            sink=self.sink,
            clocks=clocks,
            control=self.control,
            context=context,
            redactor=redactor,
            live=live,
            bounds=watch,
            log=self.log,
            events=watch.events,
        )

    def _gate(self, judge: Judging, clocks: Clocks, live: Broadcast, mounts: tuple[Mount, ...] | None) -> Gate:
        context = self.context
        return Gate(
            session=self.session,
            judge=judge,
            rules=context.rules.within(self.estate),
            calls=context.store.calls,
            clock=context.clock,
            display_input=partial(_display, self.access.redactor),
            looks=self.looks,
            grants=self.filters.grants,
            approvals=self._approvals(clocks, mounts),
            is_report=lambda call: not context.completion.schema.errors(call.input),
            stopping=lambda: self.control.cause is not None,
            on_verdict=partial(self._judged, live),
            on_decided=context.counts.call_decided,
            log=self.log,
        )

    def _judged(self, live: Broadcast, call: ToolCall, verdict: Verdict) -> None:
        """Publish and count an answer of the gate, before it goes out."""
        if call.tool_name != STRUCTURED_OUTPUT_TOOL:
            self.context.counts.call_judged(self.session, verdict.kind)
            if self.reach is not None:
                self.reach.listen_again()
        live.judged(call, verdict, self.context.clock.now())

    def _approvals(self, clocks: Clocks, mounts: tuple[Mount, ...] | None) -> ApprovalService | None:
        """Return what asks people; ``None`` without a key, because then nobody can prove to be an operator."""
        terms = self.context.approvals
        if terms.approval_key is None:
            return None
        return ApprovalService(
            session=self.session,
            approvals=self.context.store.approvals,
            clock=self.context.clock,
            key=terms.approval_key,
            timeout_seconds=terms.approval_seconds,
            workdir=str(self.workspace.workdir),
            own=(str(self.workspace.root),),
            view=SessionView(mounts=mounts),
            redact=self.access.redactor.text,
            hides=partial(_hides, self.access.redactor),
            waiting=lambda: waiting_for_people(clocks, self.control),
            waker=terms.waker,
            log=self.log,
            passkey=self.session.tier in terms.passkey_tiers,
            over=self.context.counts.approval_over,
        )

    async def _handoff(self) -> Handoff | HandoffError | None:
        """Take what the session left for the next tier, after its process has ended and before its workspace goes."""
        if not self.context.completion.legacy_markers:
            return None
        return await take_handoff(
            self._held.state_dir,
            current_tier=self.session.tier,
            max_tier=self.context.rules.max_tier,
            redactor=self.access.redactor,
        )


def _display(redactor: Redactor, call: ToolCall) -> str:
    """Return a call's input as redacted JSON."""
    return redactor.line(_input_of(call)).decode()


def _hides(redactor: Redactor, call: ToolCall) -> bool:
    """Tell whether `_display` hides more of a call's input than the secrets that are known."""
    return redactor.hides_unknown(_input_of(call))


def _input_of(call: ToolCall) -> bytes:
    return json.dumps(dict(call.input), default=str).encode()


def _tier_of(session: Session, context: SessionContext) -> TierSetup:
    """Return a row's tier; raises `HarnessError` if there is none, since the row may be older than the settings."""
    tier = context.tiers.get(session.tier)
    if tier is None:
        raise HarnessError(f"tier {session.tier} is not configured")
    return tier


async def _admit(harness: Harness, clis: Clis) -> None:
    """Raise `HarnessError` unless the CLI exists and its gate is known to hold; it may have updated itself.

    Raises `OSError` if the disk does not answer.
    """
    binary = clis.binaries[harness.name]
    if not await workspaces.SESSION_FILES.run(binary.exists, seconds=workspaces.LOOK_SECONDS, what=f"finding {binary}"):
        raise HarnessError(
            f"{harness.name.capitalize()} CLI not found: {binary}",
            kind=ErrorKind.FILESYSTEM,
            operation="spawn",
            target=str(binary),
            hint="Install the CLI, or name it in the variable of its binary; `claudeops doctor` looks for it.",
        )
    if harness.capabilities.gate and (refusal := await clis.refusal(binary)) is not None:
        raise HarnessError(refusal)


async def _log_of(session: Session) -> SessionLog:
    """Open a session's log; raises `OSError`."""
    path = Path(session.log_path or "")
    return await workspaces.SESSION_FILES.run(
        lambda: SessionLog(path),
        seconds=workspaces.LOOK_SECONDS,
        what=f"opening the log {path}",
        undo=SessionLog.close_later,
    )
