"""``claudeops bootstrap``: one whole chain in the foreground, with or without a running daemon."""

from __future__ import annotations

import contextlib
import difflib
import platform
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio
import click

from claudeops.app.chain import open_foreground, queue_for_daemon, resumed_session, run_chain, run_chain_beside
from claudeops.app.wiring import root_session
from claudeops.cli import reply
from claudeops.cli.on_database import operators_name
from claudeops.cli.reply import Exit, print_document, print_failure
from claudeops.cli.start import listening, start
from claudeops.cli.tail import follow
from claudeops.cli.text.terminal import LAST_WORDS_SECONDS, LivePrinter, beside_progress, live_printer
from claudeops.cli.tiers.inventory import routed_matches
from claudeops.cli.tiers.outcomes import TIMEOUTS, error_of, exit_of_refusal, turn
from claudeops.cli.with_settings import read_settings
from claudeops.domain.sessions import DecisionReason, NewSession, Outcome, Session, Status, Suppressed, Trigger
from claudeops.engine.estate import read_estate
from claudeops.engine.process.tree import become_subreaper
from claudeops.engine.system import Shutdown
from claudeops.errors import AlreadyRunningError, ClaudeopsError
from claudeops.logs import Logger
from claudeops.settings import Settings
from claudeops.structs import replace
from claudeops.tasks import open_tasks
from claudeops.text import casefold_key, one_line, unique
from claudeops.text.escapes import visible
from claudeops.text.redact import Redactor

NAME: Final = "bootstrap"
_MOST_LIKE: Final = 3  # names in a hint
_UNRESOLVED: Final = "`claudeops chain {id}` shows what was found and done, and why it ended so."


def run_in_foreground(
    *,
    tier: int,
    prompt_text: str | None,
    services: Sequence[str] = (),
    resume: int | None = None,
    site: str | None = None,
    as_json: bool,
    live: bool | None = None,
) -> int:
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
        warn_of_strangers(services, settings)
        new = wanted_session(settings, tier=tier, prompt_text=prompt_text, services=services, resume=resume, site=site)
        result = anyio.run(partial(run_anywhere, settings, new, on_ended, log, live=live))
    except ClaudeopsError as error:
        return print_failed_start(error, as_json=as_json)
    finally:
        for line in lines:
            click.echo(line)
    if isinstance(result, Suppressed):
        return print_suppressed(result, new, as_json=as_json)
    return _print_document(result, new, settings) if as_json else _exit(result)


async def run_anywhere(
    settings: Settings, new: NewSession, on_ended: Callable[[Session], None], log: Logger, *, live: bool
) -> Sequence[Session] | Suppressed:
    """Run a chain to its end, here or by the daemon that owns the database; return its sessions."""
    shutdown = Shutdown()
    with listening(shutdown, log):
        try:
            async with open_foreground(settings, log=log, shutdown=shutdown) as node:
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
            redact, node = Redactor(settings.secrets).text, settings.node.name
            await follow(settings.places.database_url, root, printer, redact=redact, node=node)
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


def print_suppressed(result: Suppressed, new: NewSession, *, as_json: bool) -> int:
    """Print why no chain was started, and return the exit status."""
    sysexit = exit_of_refusal(result.reason)
    if as_json:
        return print_document(NAME, _suppressed_body(result, new), sysexit)
    click.echo(f"not started: {result.message}")
    return sysexit


def wanted_session(
    settings: Settings,
    *,
    tier: int,
    prompt_text: str | None,
    services: Sequence[str],
    resume: int | None,
    site: str | None = None,
) -> NewSession:
    """Return the first session of the chain; with ``resume`` one that goes on with that session's conversation."""
    if resume is None:
        new = root_session(settings, tier, Trigger.MANUAL, prompt_text)
    else:
        new = anyio.run(resumed_session, settings, resume, prompt_text)
    new = replace(new, services=unique(map(one_line, services)), started_by=operators_name())
    return new if site is None else replace(new, site=site)


def print_failed_start(error: ClaudeopsError, *, as_json: bool) -> int:
    """Print why nothing was started, and return the exit status."""
    sysexit = Exit.NO_INPUT if error.operation == "resume" else None
    return print_failure(NAME, error, as_json=as_json, operation="start", sysexit=sysexit)


def warn_of_strangers(services: Sequence[str], settings: Settings) -> None:
    """Say of which services no manifest knows, where manifests describe any: a session looks for them all the same."""
    try:
        estate = read_estate(settings.places.repos_dir) if services else None
    except OSError:
        return
    if estate is None or not estate.expected:
        return
    known = tuple(map(casefold_key, (*estate.expected, *estate.other_names, *estate.hosts)))
    for service in services:
        if casefold_key(service) not in known:
            near = dict.fromkeys(difflib.get_close_matches(casefold_key(service), known, n=_MOST_LIKE))
            hint = f" (did you mean {visible(', '.join(near))}?)" if near else ""
            click.echo(f"claudeops: no manifest describes a service {visible(service)}{hint}.", err=True)


def setup_body() -> dict[str, object]:
    """Return what a document says of the place where it was made."""
    return {
        "python_version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform_name": platform.system(),
        "test_command": "make test",
    }


def _exit(sessions: Sequence[Session]) -> Exit:
    if sessions[-1].status is Status.QUEUED:  # a hold keeps it there
        return Exit.TRY_LATER
    return Exit.OK if sessions[-1].decision_reason is DecisionReason.HEALTHY else Exit.UNRESOLVED


def _line(session: Session) -> str:
    cost = "unknown cost" if session.cost_usd is None else f"${session.cost_usd:.4f}"
    parts = [
        f"tier {session.tier} ({session.model}) session {session.id}: {session.outcome or 'not run'}",
        str(session.decision_reason or "no decision"),
        cost,
        session.summary or session.error or "no summary",
    ]
    return " · ".join(parts)


def _print_document(sessions: Sequence[Session], new: NewSession, settings: Settings) -> int:
    sysexit, last = _exit(sessions), sessions[-1]
    exit_code = 2 if last.outcome in TIMEOUTS else min(int(sysexit), 1)
    body = _chain_body(sessions, new, settings)
    if exit_code == 1:
        body |= _error(last)
    return print_document(NAME, body, sysexit, exit_code=exit_code)


def _error(last: Session) -> dict[str, object]:
    """Return the error part of a document for a chain that did not end well."""
    target = f"tier{last.tier}"
    if last.status is Status.ENDED and last.outcome is not Outcome.SUCCESS:
        return error_of(last, target)
    queued = last.status is Status.QUEUED
    says = "waits in the queue: sessions are held" if queued else f"ended with {last.decision_reason}"
    return reply.error_body(
        kind=reply.ErrorKind.POLICY,
        operation="claim" if queued else "escalate",
        target=target,
        retryable=queued,
        message=f"Session {last.id} {says}.",
        hint="`claudeops status` shows what holds it." if queued else _UNRESOLVED.format(id=last.id),
    )


def _suppressed_body(result: Suppressed, new: NewSession) -> dict[str, object]:
    error = reply.error_body(
        kind=reply.ErrorKind.POLICY,
        operation="escalate",
        target=f"tier{new.tier}",
        retryable=False,
        message=result.message,
        hint="`claudeops list-actions` shows what is left of the limits, `claudeops config` those of the tiers.",
    )
    return {"prompt": new.prompt_text or "", "handled": False, "decision": result.reason.value, **error}


def _chain_body(sessions: Sequence[Session], new: NewSession, settings: Settings) -> dict[str, object]:
    last = sessions[-1]
    prompt = new.prompt_text or ""
    known = [session.cost_usd for session in sessions if session.cost_usd is not None]
    return {
        "prompt": prompt,
        "setup": setup_body(),
        "routed_matches": anyio.run(routed_matches, prompt, settings) if prompt else [],
        "turn": turn(last, prompt),
        "persisted_session_path": last.log_path,
        "decision": last.decision_reason,
        "total_cost_usd": sum(known) if known else None,
        "sessions": [session_body(session) for session in sessions],
    }


def session_body(session: Session) -> dict[str, object]:
    """Return one session of a chain that was run."""
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


def queue_and_leave(
    *,
    tier: int,
    prompt_text: str | None,
    services: Sequence[str] = (),
    resume: int | None = None,
    site: str | None = None,
    as_json: bool,
) -> int:
    """Queue one chain for the daemon, print the id of its first session, and return the exit status."""
    try:
        settings = read_settings()
        warn_of_strangers(services, settings)
        new = wanted_session(settings, tier=tier, prompt_text=prompt_text, services=services, resume=resume, site=site)
        queued = anyio.run(queue_for_daemon, settings, new)
    except ClaudeopsError as error:
        return print_failed_start(error, as_json=as_json)
    if isinstance(queued, Suppressed):
        return print_suppressed(queued, new, as_json=as_json)
    if as_json:
        return print_document(NAME, _body(queued, new), Exit.OK)
    click.echo(queued.id)  # alone on its line, for scripts; people find the rest on stderr
    click.echo(f"claudeops: queued; `claudeops tail {queued.id}` follows it.", err=True)
    return Exit.OK


def _body(queued: Session, new: NewSession) -> dict[str, object]:
    prompt = new.prompt_text or ""
    return {
        "prompt": prompt,
        "setup": setup_body(),
        "routed_matches": [],
        # The daemon has it: no reason to stop is known yet.
        "turn": {"prompt": prompt, "output": "", "stop_reason": None, "cancel_observed": False},
        "persisted_session_path": None,
        "detached": True,
        "session_id": queued.id,
        "tier": queued.tier,
        "model": queued.model,
    }
