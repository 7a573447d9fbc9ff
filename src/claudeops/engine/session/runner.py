"""One session, from its claimed row to its ending: a single straight line."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread

from claudeops.domain.live import Viewpoint
from claudeops.domain.model import Ending, Session, ToolCall
from claudeops.domain.report.markers import Handoff, HandoffError
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.cgroups import Group
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.control import CliTranscript, Clocks, Control, waiting_for_people
from claudeops.engine.gate.gate import Gate
from claudeops.engine.live.hub import COMMAND_CHARACTERS, Broadcast
from claudeops.engine.process.bounds import watch_over
from claudeops.engine.process.channel import Channel
from claudeops.engine.session import files
from claudeops.engine.session.completion import Gathered, conclude, looked, never_started
from claudeops.engine.session.context import SessionContext, TierSetup, approval_service, metered
from claudeops.engine.session.conversation import Conversation
from claudeops.engine.session.files import take_handoff
from claudeops.engine.session.launch import Launch
from claudeops.engine.session_log.writer import SessionLog
from claudeops.errors import HarnessError
from claudeops.harness import ungated_refusal
from claudeops.harness.protocol import Harness
from claudeops.logs import LogEvent, Logger


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRunner:
    """Runs claimed sessions. Holds no state of its own: everything of one session is local to `run`."""

    context: SessionContext

    async def run(self, session: Session, control: Control) -> Ending:
        """Run one session to its end; what goes wrong on the way is part of the ending, not an exception.

        When this returns, or is cancelled, no process of the session is left and its workspace is gone.
        """
        with contextlib.ExitStack() as held:  # to the last, when also its workspace is gone
            return await self._run(session, control, held)

    async def _run(self, session: Session, control: Control, held: contextlib.ExitStack) -> Ending:
        context = self.context
        log = context.log.bind(session_id=session.id, chain=session.root_session_id, tier=session.tier)
        started = context.clock.monotonic()
        root = context.cell.workspaces(context.sessions_dir) / workspaces.workspace_name(session.id)
        try:
            tier, harness = _chosen(session, context)
            await _found(harness, context)
            await _admit(harness, context)
            uid = await workspaces.enter(held, context.cell.acquire_user())
            workspace = await workspaces.create(root, template_home=tier.template_home, uid=uid)
            async with (
                _group(session, context) as group,
                metered(context, session, harness, control) as own,
                await _log_of(session) as sink,
            ):
                runner = SessionRunner(context=own.context)
                gathered = await runner._converse(
                    session, tier, harness, workspace, group=group, sink=sink, control=control, log=log
                )
            gathered = replace(
                gathered, unbooked=own.unbooked, metered=own.account is not None, stop_detail=own.refusal
            )
        except (OSError, HarnessError) as error:
            return never_started(session, str(error), context, started)
        finally:
            with anyio.CancelScope(shield=True):  # bounded by itself
                if (left := await workspaces.remove(root)) is not None:
                    log.error(LogEvent.WORKSPACE_NOT_REMOVED, path=str(root), error=str(left))
        return conclude(session, gathered, context, started)

    async def _converse(
        self,
        session: Session,
        tier: TierSetup,
        harness: Harness,
        workspace: Workspace,
        *,
        group: Group | None,
        sink: SessionLog,
        control: Control,
        log: Logger,
    ) -> Gathered:
        context = self.context
        watch = await watch_over(
            workspace,
            bounds=context.bounds,
            memory_mb=context.session_memory_mb,
            group=group,
            control=control,
            log=log,
        )
        launch = Launch(context=context, session=session, tier=tier, harness=harness, workspace=workspace, group=group)
        launched = await launch.start()
        log.info(
            LogEvent.SESSION_SPAWNED,
            pid=launched.child.pid,
            cli_session_id=session.cli_session_id,
            trace_id=launched.place.trace_id,
            span_id=launched.place.span_id,
        )
        view = Viewpoint(root=str(workspace.workdir), redact=context.redactor.text, command_chars=COMMAND_CHARACTERS)
        live = Broadcast(session=session, view=view, asks=harness.capabilities.gate, hub=context.hub)
        clocks = Clocks(
            limits=context.timeouts,
            monotonic=context.clock.monotonic,
            transcript_size=CliTranscript(workspace.home, session.cli_session_id or "").size,
        )
        gate = self._gate(session, tier, workspace, clocks=clocks, control=control, live=live, log=log)
        conversation = Conversation(
            child=launched.child,
            channel=Channel(launched.child.stdin),
            harness=harness,
            spec=launched.spec,
            gate=gate,
            sink=sink,
            clocks=clocks,
            control=control,
            context=context,
            live=live,
            bounds=watch,
            log=log,
            events=watch.events,
        )
        exit_code = await conversation.run()
        transcript = conversation.transcript()
        if (path := launched.command.last_message) is not None:
            left = await files.last_message(path)
            transcript = harness.with_last_message(transcript, context.redactor.text(left or ""))
        gathered = Gathered(
            harness=harness,
            transcript=transcript,
            exit_code=exit_code,
            stop=control.cause,
            allowed=conversation.watch.ran,
            tool_ends=tuple(conversation.watch.ends),
            refusals=tuple(conversation.watch.refusals),
            events=tuple(conversation.events),
            stderr_tail=conversation.stderr_tail,
            handoff=await self._handoff(session, workspace),
        )
        return await anyio.to_thread.run_sync(looked, gathered, lambda call: tier.judge(call, workspace))

    def _gate(
        self,
        session: Session,
        tier: TierSetup,
        workspace: Workspace,
        *,
        clocks: Clocks,
        control: Control,
        live: Broadcast,
        log: Logger,
    ) -> Gate:
        context = self.context
        return Gate(
            session=session,
            judge=lambda call: tier.judge(call, workspace),
            threads=context.judging,
            rules=context.rules,
            verdicts=context.store.verdicts,
            clock=context.clock,
            display_input=self._shown,
            desk=approval_service(
                session, context, workspace, waiting=lambda: waiting_for_people(clocks, control), log=log
            ),
            is_report=self._is_report,
            stopping=lambda: control.cause is not None,
            told=lambda call, verdict: live.judged(call, verdict, context.clock.now()),
            log=log,
        )

    def _is_report(self, call: ToolCall) -> bool:
        return not self.context.schema.errors(call.input)

    async def _handoff(self, session: Session, workspace: Workspace) -> Handoff | HandoffError | None:
        """Take what the session left for the next tier; its process has ended, its workspace is still there."""
        context = self.context
        if not context.legacy_markers:
            return None
        return await take_handoff(
            workspace.state_dir, current_tier=session.tier, max_tier=context.rules.max_tier, redactor=context.redactor
        )

    def _shown(self, call: ToolCall) -> str:
        return self.context.redactor.line(json.dumps(dict(call.input), default=str).encode()).decode()


def _group(session: Session, context: SessionContext) -> contextlib.AbstractAsyncContextManager[Group | None]:
    """Return where the kernel will count what a session uses; raises `OSError` when it is entered."""
    if context.groups is None:
        return contextlib.nullcontext(None)
    return context.groups.lent(f"{session.id}.{session.attempt}", context.bounds, context.session_memory_mb)


def _chosen(session: Session, context: SessionContext) -> tuple[TierSetup, Harness]:
    """Return what the row asks for; raises `HarnessError`. The row may be older than the settings."""
    tier, harness = context.tiers.get(session.tier), context.harnesses.get(session.harness)
    if tier is None:
        raise HarnessError(f"tier {session.tier} is not configured")
    if harness is None or session.harness not in context.binaries:
        raise HarnessError(f"no tier is configured to run on {session.harness}, so no such CLI was looked for")
    if tier.needs_gate and (refusal := ungated_refusal(harness, allowed=context.allow_ungated, tier=session.tier)):
        raise HarnessError(refusal)
    return tier, harness


async def _found(harness: Harness, context: SessionContext) -> None:
    """Raise `HarnessError` unless the CLI is where it was, and `OSError` for a disk that does not say."""
    binary = context.binaries[harness.name]
    if not await workspaces.SESSION_FILES.run(binary.exists, seconds=workspaces.LOOK_SECONDS, what=f"finding {binary}"):
        raise HarnessError(f"{harness.name.capitalize()} CLI not found: {binary}")


async def _log_of(session: Session) -> SessionLog:
    """Open a session's log; raises `OSError`."""
    path = Path(session.log_path or "")
    return await workspaces.SESSION_FILES.run(
        lambda: SessionLog(path),
        seconds=workspaces.LOOK_SECONDS,
        what=f"opening the log {path}",
        undo=SessionLog.close_later,
    )


async def _admit(harness: Harness, context: SessionContext) -> None:
    """Raise `HarnessError` unless the gate is known to hold with the CLI as it is now: it updates itself."""
    if harness.capabilities.gate and (refusal := await context.cli_refusal(context.binaries[harness.name])) is not None:
        raise HarnessError(refusal)
