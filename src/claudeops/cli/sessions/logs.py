"""``flush-transcript``, which takes a session's log in again, and ``replay``, which says what a log would lead to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread

from claudeops import logs
from claudeops.app.limits import escalation_rules
from claudeops.app.wiring import build_context
from claudeops.cli import reply
from claudeops.cli.on_database import now
from claudeops.cli.on_store import run_on_store
from claudeops.cli.reply import CommandResult, ErrorKind, Exit, print_failure
from claudeops.cli.sessions.table import find_in
from claudeops.clock import Clock
from claudeops.domain.answers import plain
from claudeops.domain.chains.backfill import BackfillRejected, RejectionReason
from claudeops.domain.chains.consequences import Consequences, conclude
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.sessions import Ending, NewSession, Session, Status, Trigger
from claudeops.engine.daemon.housekeeping import log_id
from claudeops.engine.live.hub import Hub
from claudeops.engine.recovery.replay import LogRead, named_session, read_log, replay_log
from claudeops.engine.session.context import SessionContext
from claudeops.engine.session_log.reader import open_log
from claudeops.errors import MissingInputError, OutputError
from claudeops.settings import Settings
from claudeops.store.finish import end_facts
from claudeops.store.store import Store
from claudeops.structs import replace
from claudeops.text.escapes import visible

_FLUSH: Final = "flush-transcript"
_REPLAY: Final = "replay"
_READING: Final = "read_log"
_PRIVATE: Final = 0o600
_LINE_BYTES: Final = 64 << 20  # of a line of the log that is copied; a longer one is cut

_FILE_TROUBLE: Final = frozenset({RejectionReason.NO_LOG, RejectionReason.LOG_MISSING, RejectionReason.LOG_UNREADABLE})
_OF_THE_ROW: Final = frozenset(
    {RejectionReason.UNKNOWN_SESSION, RejectionReason.NOT_ENDED, RejectionReason.UNKNOWN_HARNESS}
)


# --- flush-transcript -------------------------------------------------------------------------------------


def flush_transcript(written: str, *, target: Path | None, as_json: bool) -> int:
    """Take the log of a session in again, and copy it to ``target`` if given; return the exit status."""
    if target is not None and (fault := _unwritable(target)) is not None:  # before any work is done
        return print_failure(_FLUSH, fault, as_json=as_json)
    return run_on_store(_FLUSH, partial(_flushed, written, target), as_json=as_json, target=written)


async def _flushed(written: str, target: Path | None, settings: Settings, store: Store) -> CommandResult:
    number = await find_in(store.database, written)
    if isinstance(number, CommandResult):
        return number
    session = await store.records.session(number)
    if session is None or session.status is not Status.ENDED:
        message = f"Session {number} has not ended: its log is taken in with its end."
        return _rejected(written, BackfillRejected(reason=RejectionReason.NOT_ENDED, message=message))
    context = await _context(settings, store)
    read = await read_log(session, context)
    if isinstance(read, BackfillRejected):
        return _rejected(written, read)
    done = await store.recovery.backfill(read.ending)
    if isinstance(done, BackfillRejected):
        return _rejected(written, done)
    if target is not None:
        await anyio.to_thread.run_sync(partial(_copy, Path(session.log_path or ""), target, context))
    parts = sorted(part.value for part in done.parts)
    ending = read.ending
    return CommandResult(
        text=(
            f"session {number}: {read.frames} messages, {ending.input_tokens or 0} tokens in and "
            f"{ending.output_tokens or 0} out; added to the record: {', '.join(parts) or 'nothing, it was complete'}"
        ),
        body={
            "session_id": str(number),
            "path": str(target or session.log_path),
            "flushed": True,
            "messages_count": read.frames,
            "input_tokens": ending.input_tokens or 0,
            "output_tokens": ending.output_tokens or 0,
            "log_path": session.log_path,
            "complete": read.complete,
            "added": parts,
        },
    )


def _rejected(target: str, why: BackfillRejected) -> CommandResult:
    """Return the answer for a log from which nothing was taken."""
    if why.reason in _FILE_TROUBLE:
        kind, hint = ErrorKind.FILESYSTEM, "Bring the file back, or look at its disk; logs expire after some time."
    elif why.reason in _OF_THE_ROW:
        kind, hint = ErrorKind.SESSION, "Call again when the session has ended; `claudeops list-sessions` shows it."
    else:
        kind, hint = ErrorKind.PARSE, "The log holds no session that can be read: look at the file itself."
    body = reply.error_body(
        kind=kind,
        operation=_READING,
        target=target,
        retryable=why.reason is RejectionReason.NOT_ENDED,
        message=why.message,
        hint=hint,
    )
    return CommandResult(text=f"claudeops: {why.message}\n  hint: {hint}", body=body, exit_code=Exit.UNRESOLVED)


def _unwritable(target: Path) -> OutputError | None:
    """Return why a file cannot be written, as far as that is known before."""
    parent = target.absolute().parent
    if not parent.is_dir():
        message = f"{target} cannot be written: No such file or directory ({parent})."
        return OutputError(message, target=str(target), hint=f"mkdir -p {parent}")
    if target.is_dir():
        return OutputError(f"{target} cannot be written: Is a directory.", target=str(target), hint="Name a file.")
    if not os.access(parent, os.W_OK):
        return OutputError(f"{target} cannot be written: Permission denied.", target=str(target))
    return None


def _copy(log: Path, target: Path, context: SessionContext) -> None:
    """Copy a log, unpacked and redacted once more; the copy appears whole or not at all."""
    beside = target.with_name(f"{target.name}.partial")
    try:
        beside.unlink(missing_ok=True)
        with (
            open_log(log) as lines,
            os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "wb") as copy,
        ):
            while line := lines.readline(_LINE_BYTES):
                copy.write(context.redactor.line(line.removesuffix(b"\n")) + b"\n")
        beside.replace(target)
    except OSError as error:
        message = f"{target} cannot be written: {error.strerror or error}."
        raise OutputError(message, target=str(target)) from error
    finally:
        beside.unlink(missing_ok=True)


# --- replay -----------------------------------------------------------------------------------------------


def replay(log: Path, *, tier: int | None, as_json: bool) -> int:
    """Print what a log would lead to now; return the exit status. Nothing is written."""
    return run_on_store(_REPLAY, partial(_replayed, log.absolute(), tier), as_json=as_json, target=str(log))


async def _replayed(log: Path, tier: int | None, settings: Settings, store: Store) -> CommandResult:
    context = await _context(settings, store)
    try:
        named = await named_session(log, context)
    except FileNotFoundError:
        raise MissingInputError(f"there is no log {log}.", operation=_READING, target=str(log)) from None
    except OSError as error:
        message = f"the log {log} cannot be read: {error.strerror or error}."
        raise MissingInputError(message, operation=_READING, target=str(log)) from error
    known = await _on_record(log, named, store)
    session = known or _stranger(log, named, tier or 1, settings)
    if tier is not None:
        session = replace(session, tier=tier)
    read = await replay_log(session, context, log)
    if isinstance(read, BackfillRejected):
        return _rejected(str(log), read)
    rules = context.current_rules()
    spent = read.ending.cost_usd
    facts = await store.database.read(
        lambda connection: end_facts(connection, session, read.ending, rules, spent=spent)
    )
    return _told(log, read, session, conclude(read.ending, facts, rules=rules), known)


async def _on_record(log: Path, named: str | None, store: Store) -> Session | None:
    """Return the row of the session that wrote a log; ``None``: it is not of this database."""
    number = log_id(log.name)
    session = None if number is None else await store.records.session(number)
    return session if session is not None and session.cli_session_id == named else None


def _stranger(log: Path, named: str | None, tier: int, settings: Settings) -> Session:
    """Return a session for a log that is not of this database: the first of its chain, at a tier that was asked for."""
    chosen = next((one for one in settings.tiers if one.number == tier), settings.tiers[0])
    at = now()
    return Session(
        id=0,  # no row has it
        root_session_id=0,
        parent_session_id=None,
        tier=chosen.number,
        ordinal=0,
        harness=chosen.harness,
        model=chosen.model,
        trigger=Trigger.MANUAL,
        prompt_text=None,
        context=None,
        status=Status.RUNNING,
        attempt=1,
        created_at=at,
        cli_session_id=named,
        log_path=str(log),
    )


def _told(log: Path, read: LogRead, session: Session, outcome: Consequences, known: Session | None) -> CommandResult:
    ending, decision = read.ending, outcome.decision
    report = ending.extraction.report
    body: dict[str, object] = {
        "path": str(log),
        "session_id": "" if known is None else str(known.id),
        "tier": session.tier,
        "harness": session.harness,
        "complete": read.complete,
        "messages_count": read.frames,
        "outcome": ending.outcome.value,
        "extraction_method": ending.extraction.method.value,
        "summary": None if report is None else visible(report.summary),
        "decision": decision.reason.value,
        "next": None if decision.next is None else _next(decision.next),
        "events": [
            {"level": one.level.value, "service": plain(one.service), "message": visible(one.message)}
            for one in outcome.events
        ],
        "checks": [
            {"service": visible(one.service), "status": one.status.value, "detail": plain(one.detail)}
            for one in outcome.checks
        ],
        "memories_count": len(outcome.memories),
        "warnings": plain(outcome.warnings),
        **_figures(ending),
        "on_record": None if known is None else {"outcome": known.outcome, "decision": known.decision_reason},
    }
    return CommandResult(text="\n".join(_lines(body)), body=body)


def _next(new: NewSession) -> dict[str, object]:
    reason = None if new.context is None else visible(new.context.reason)
    return {"tier": new.tier, "model": new.model, "trigger": new.trigger.value, "reason": reason}


def _figures(ending: Ending) -> dict[str, object]:
    return {
        "num_turns": ending.num_turns,
        "input_tokens": ending.input_tokens,
        "output_tokens": ending.output_tokens,
        "cost_usd": ending.cost_usd,
        "tool_calls_seen": ending.tool_calls_seen,
        "session_error": plain(ending.error),
    }


def _lines(body: dict[str, object]) -> Iterable[str]:
    for name, value in body.items():
        if isinstance(value, list):
            yield from (f"{name}: {_in_one_line(one)}" for one in value)
        elif value is not None:
            yield f"{name}: {_in_one_line(value)}"


def _in_one_line(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_one_line(inner)}" for name, inner in value.items() if inner is not None)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return " ".join(str(value).split())


async def _context(settings: Settings, store: Store) -> SessionContext:
    """Return what a session works with, here only to read logs as one would: with the estate as it is now."""
    log = logs.get_logger()
    rules: EscalationRules = escalation_rules(settings)
    context = build_context(settings, store=store, rules=rules, clock=Clock(), hub=Hub(), log=log)
    await context.estates.look(log)
    return context
