"""``claudeops bootstrap``: one whole chain in the foreground, with or without a running daemon."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio
import click

from claudeops.app.chain import run_chain, run_chain_beside
from claudeops.app.node import open_node
from claudeops.app.wiring import root_session
from claudeops.cli import output
from claudeops.cli.output import Exit, print_document, print_failure
from claudeops.cli.start import listening, start
from claudeops.cli.tail import follow
from claudeops.cli.terminal import LAST_WORDS_SECONDS, LivePrinter, beside_progress, live_printer
from claudeops.domain.model import DecisionReason, NewSession, Outcome, Session, Status, Suppressed, Trigger
from claudeops.domain.redact import Redactor
from claudeops.engine.process.tree import become_subreaper
from claudeops.engine.system import Shutdown
from claudeops.errors import AlreadyRunningError, ClaudeopsError
from claudeops.logs import Logger
from claudeops.settings import Settings
from claudeops.tasks import open_tasks

_NAME: Final = "bootstrap"
_TIMEOUTS: Final = frozenset({Outcome.TIMEOUT, Outcome.STARTUP_TIMEOUT, Outcome.STALLED})


def run_in_foreground(*, tier: int, prompt_text: str | None, as_json: bool, live: bool | None = None) -> int:
    """Run one chain, print what came of it, and return the exit status.

    ``live`` prints on stderr what the sessions do; ``None`` does so where stderr is a terminal.
    """
    live = sys.stderr.isatty() if live is None else live
    lines: list[str] = []

    def on_ended(session: Session) -> None:
        if as_json:
            return
        if live:  # stdout and stderr may be the same terminal: the results follow when the live printer has finished
            lines.append(_line(session))
        else:
            click.echo(_line(session))

    try:
        settings, log = start(sys.stderr, quiet=live, line_start=beside_progress(sys.stderr) if live else "")
        new = root_session(settings, tier, Trigger.MANUAL, prompt_text)
        result = anyio.run(partial(_chain, settings, new, on_ended, log, live=live))
    except ClaudeopsError as error:
        return print_failure(_NAME, error, as_json=as_json, operation="start")
    finally:
        for line in lines:
            click.echo(line)
    if as_json:
        return _print_document(result, new)
    if isinstance(result, Suppressed):
        click.echo(f"not started: {result.message}")
    return _exit(result)


async def _chain(
    settings: Settings, new: NewSession, on_ended: Callable[[Session], None], log: Logger, *, live: bool
) -> Sequence[Session] | Suppressed:
    shutdown = Shutdown()
    with listening(shutdown, log):
        try:
            async with open_node(settings, log=log, shutdown=shutdown) as node:
                become_subreaper()
                with live_printer(node.context.hub, sys.stderr) if live else contextlib.nullcontext():
                    return await run_chain(node, new, shutdown, on_ended)
        except AlreadyRunningError:
            async with shutdown.stoppable(otherwise="stopped following; the daemon goes on with what was queued."):
                result = await _beside(settings, new, on_ended, log, live=live)
    return result


async def _beside(
    settings: Settings, new: NewSession, on_ended: Callable[[Session], None], log: Logger, *, live: bool
) -> Sequence[Session] | Suppressed:
    """Queue the chain for the running daemon, and print what it does from the logs that it writes.

    When cancelled, it leaves the chain to the daemon.
    """
    printed = anyio.Event()

    async def print_live(root: Session) -> None:
        printer = LivePrinter(sys.stderr)
        try:
            await follow(settings.database_url, root, printer, redact=Redactor(settings.secrets).text)
        finally:
            printer.close()
            printed.set()

    async with open_tasks() as tasks:

        def queued(root: Session) -> None:
            if live:
                tasks.start_soon(print_live, root)

        outcome = await run_chain_beside(settings, new, on_ended, queued=queued, log=log)
        if live and not isinstance(outcome, Suppressed):
            with anyio.move_on_after(LAST_WORDS_SECONDS):
                await printed.wait()
        tasks.cancel_scope.cancel()
    return outcome


# --- output -------------------------------------------------------------------------------------------


def _exit(result: Sequence[Session] | Suppressed) -> Exit:
    if isinstance(result, Suppressed):
        return Exit.TRY_LATER if result.reason is DecisionReason.PAUSED else Exit.UNRESOLVED
    if result[-1].status is Status.QUEUED:  # a hold keeps it there
        return Exit.TRY_LATER
    return Exit.OK if result[-1].decision_reason is DecisionReason.HEALTHY else Exit.UNRESOLVED


def _line(session: Session) -> str:
    cost = "unknown cost" if session.cost_usd is None else f"${session.cost_usd:.4f}"
    parts = [
        f"tier {session.tier} ({session.model}) session {session.id}: {session.outcome or 'not run'}",
        str(session.decision_reason or "no decision"),
        cost,
        session.summary or session.error or "no summary",
    ]
    return " · ".join(parts)


def _print_document(result: Sequence[Session] | Suppressed, new: NewSession) -> int:
    sysexit = _exit(result)
    body = _suppressed_body(result, new) if isinstance(result, Suppressed) else _chain_body(result, new)
    exit_code = min(int(sysexit), 1)
    if not isinstance(result, Suppressed) and result[-1].outcome in _TIMEOUTS:
        exit_code = 2
    return print_document(_NAME, body, sysexit, exit_code=exit_code)


def _suppressed_body(result: Suppressed, new: NewSession) -> dict[str, object]:
    error = output.error_body(
        kind=output.ErrorKind.POLICY,
        operation="escalate",
        target=f"tier{new.tier}",
        retryable=False,
        message=result.message,
    )
    return {"prompt": new.prompt_text or "", "handled": False, "decision": result.reason.value, **error}


def _chain_body(sessions: Sequence[Session], new: NewSession) -> dict[str, object]:
    last = sessions[-1]
    prompt = new.prompt_text or ""
    known = [session.cost_usd for session in sessions if session.cost_usd is not None]
    return {
        "prompt": prompt,
        "setup": {
            "python_version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "platform_name": platform.system(),
            "test_command": "make test",
        },
        "routed_matches": [],
        "turn": {
            "prompt": prompt,
            "output": last.summary or last.error or "",
            "stop_reason": _stop_reason(last.outcome).value,
            "cancel_observed": last.outcome is Outcome.CANCELLED,
        },
        "persisted_session_path": last.log_path,
        "decision": last.decision_reason,
        "total_cost_usd": sum(known) if known else None,
        "sessions": [_session_body(session) for session in sessions],
    }


def _session_body(session: Session) -> dict[str, object]:
    return {
        "session_id": session.id,
        "tier": session.tier,
        "model": session.model,
        "outcome": session.outcome,
        "decision": session.decision_reason,
        "extraction_method": session.extraction_method,
        "cost_usd": session.cost_usd,
        "num_turns": session.num_turns,
        "summary": session.summary,
        "error": session.error,
        "path": session.log_path,
    }


def _stop_reason(outcome: Outcome | None) -> output.StopReason:
    match outcome:
        case Outcome.MAX_TURNS:
            return output.StopReason.MAX_TURNS_REACHED
        case Outcome.BUDGET_EXCEEDED:
            return output.StopReason.MAX_BUDGET_REACHED
        case Outcome.CANCELLED:
            return output.StopReason.CANCELLED
        case Outcome.TIMEOUT | Outcome.STARTUP_TIMEOUT | Outcome.STALLED:
            return output.StopReason.TIMEOUT
        case _:
            return output.StopReason.COMPLETED
