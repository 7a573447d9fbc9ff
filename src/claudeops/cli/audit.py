"""``claudeops audit verify``: checks that the record of tool calls is as it was written."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TextIO

from claudeops.cli.on_database import run_on_database
from claudeops.cli.reply import CommandResult, Exit, not_found
from claudeops.cli.text.screen import progress_line
from claudeops.engine.gate.approval_key import read_key
from claudeops.errors import ClaudeopsError, MissingInputError
from claudeops.logs import LogEvent
from claudeops.settings.where import state_dir
from claudeops.store.database import Database
from claudeops.store.verify import AuditTrail, Logged


def verify_trail(*, session_id: int | None, log: Path | None, as_json: bool) -> int:
    """Check the trail of one session or of all, also against the daemon's log if given; return the exit status."""
    return run_on_database(
        "audit verify", partial(_verify, session_id, log), as_json=as_json, target=str(session_id or "all")
    )


async def _verify(session_id: int | None, log: Path | None, database: Database) -> CommandResult:
    logged = {} if log is None else heads(log)
    key, keyless = approval_key()
    found = await AuditTrail(database).verify(
        session_id=session_id, logged=logged, key=key, progress=printed_progress()
    )
    if session_id is not None and not found.sessions and not found.faults:
        return not_found("session_not_found", str(session_id), f"There is no session {session_id}.")
    looked_at = f"{found.sessions} sessions, {found.calls} tool calls, {found.tombstones} tombstones"
    if log is not None:
        looked_at += f", {len(logged)} heads of the log"
    lines = [f"{fault.kind.value}: {fault.message}" for fault in found.faults]
    verdict = f"{len(lines)} faults in {looked_at}" if lines else f"as it was written: {looked_at}"
    unproven = f"not checked: whether signatures of passkeys are those that were given: {keyless}"
    return CommandResult(
        text="\n".join([*lines, *([unproven] if found.unproven else []), verdict]),
        body={
            "verified": not lines,
            "sessions": found.sessions,
            "calls": found.calls,
            "tombstones": found.tombstones,
            "unproven": found.unproven,
            "faults": [
                {
                    "kind": fault.kind.value,
                    "session_id": fault.session_id,
                    "call_id": fault.call_id,
                    "message": fault.message,
                }
                for fault in found.faults
            ],
        },
        exit_code=Exit.UNRESOLVED if lines else Exit.OK,
    )


def printed_progress(
    stream: TextIO | None = None, *, monotonic: Callable[[], float] = time.monotonic
) -> Callable[[int, int], None]:
    """Return what prints how far a verification is, on a terminal alone; the line is gone at the end."""
    show_line = progress_line(stream, monotonic=monotonic)
    return lambda sessions, calls: show_line(f"checked: {sessions:,} sessions, {calls:,} tool calls")


def approval_key() -> tuple[bytes | None, str]:
    """Return the key by which answers are proven, or why there is none at hand."""
    try:
        return read_key(state_dir(os.environ, cwd=Path.cwd())), ""
    except ClaudeopsError as error:
        return None, str(error)


def heads(log: Path) -> dict[int, Logged]:
    """Return the audit heads in a daemon's log, by session; other lines are skipped."""
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            return _heads(lines)
    except OSError as error:
        raise MissingInputError(f"the log {log} cannot be read: {error.strerror}.") from error


def _heads(lines: Iterable[str]) -> dict[int, Logged]:
    found: dict[int, Logged] = {}
    for line in lines:
        if LogEvent.SESSION_ENDED.value not in line:
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("event") == LogEvent.SESSION_ENDED.value and "audit_head" in entry:
            results = entry.get("audit_results")
            found[int(entry["session_id"])] = Logged(
                audit_head=str(entry["audit_head"]), audit_results=None if results is None else str(results)
            )
    return found
