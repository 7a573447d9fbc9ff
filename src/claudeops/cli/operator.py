"""The operator's commands on the database: approvals, ``pause``, ``resume`` and ``backup``.

All of them work with and without a running daemon, which sees the changes in the database.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import click
import msgspec

from claudeops.cli import output
from claudeops.cli.output import Exit, print_document, print_failure
from claudeops.cli.start import read_settings
from claudeops.domain.commands import CommandName
from claudeops.domain.gate.approval import Approval, ApprovalStatus, Script, answer, visible
from claudeops.domain.holds import Hold, HoldKind
from claudeops.engine.gate.approvals import read_key
from claudeops.errors import ClaudeopsError
from claudeops.settings import Settings, load_settings
from claudeops.store.database import parse_url
from claudeops.store.locks import is_claimed
from claudeops.store.migrate import back_up_to
from claudeops.store.store import SqlStore, open_store

_VERBS: Final = {ApprovalStatus.APPROVED: "approve", ApprovalStatus.DENIED: "deny"}

_BACKUP: Final = "backup"


# --- approvals ----------------------------------------------------------------------------------------


def decide(approval_id: int, status: ApprovalStatus, *, as_json: bool) -> int:
    """Approve or deny a tool call that waits for a person; return the exit status."""
    command = _VERBS[status]
    work = partial(_decide, approval_id, status)
    return run_on_database(command, work, as_json=as_json, target=str(approval_id))


def print_approvals(*, everything: bool, as_json: bool) -> int:
    """Print the approvals that wait for an answer, or all of them; return the exit status."""
    return run_on_database("list-approvals", partial(_listed, everything), as_json=as_json)


async def _decide(approval_id: int, status: ApprovalStatus, settings: Settings, store: SqlStore) -> CommandResult:
    key = read_key(settings.state_dir)
    approval = await store.verdicts.approval(approval_id)
    if approval is None:
        return not_found("approval_not_found", str(approval_id), f"There is no approval {approval_id}.")
    proof = answer(key, approval, status=status, decided_by=operators_name(), at=now())
    if await store.verdicts.answer_approval(approval_id, proof):
        body: dict[str, object] = {"approval_id": approval_id, "handled": True, "status": status.value}
        answered = replace(approval, status=status, decided_by=proof.decided_by, decided_at=proof.decided_at)
        return CommandResult(
            text=f"approval {approval_id}: {status.value} by {proof.decided_by}\n{_text(answered)}",
            body={**body, "session_id": approval.session_id, "decided_by": proof.decided_by},
        )
    latest = await store.verdicts.approval(approval_id) or approval
    why = "it has expired" if latest.status is ApprovalStatus.PENDING else f"it is {latest.status.value} already"
    return refused(_VERBS[status], str(approval_id), f"Approval {approval_id} no longer takes an answer: {why}.")


async def _listed(everything: bool, _settings: Settings, store: SqlStore) -> CommandResult:  # noqa: FBT001 - bound by name
    found = await store.verdicts.approvals(everything=everything)
    text = "\n\n".join(map(_text, found)) or "no call waits for an answer"
    return CommandResult(
        text=text, body={"approvals_count": len(found), "approvals": [_document(approval) for approval in found]}
    )


def _text(approval: Approval) -> str:
    """Return an approval for people to read: in full, without control characters that a terminal would obey."""
    lines = [
        (
            f"approval {approval.id} · {approval.status.value} · "
            f"session {approval.session_id} (tier {approval.tier}) · {visible(approval.tool_name or '')} · "
            f"until {approval.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        ),
        f"  why: {visible(approval.reason or '')}",
        f"  in:  {visible(approval.workdir or '')}",
        *(_field(name, value) for name, value in _input(approval).items()),
    ]
    for script in _scripts(approval):
        lines += [f"  script {visible(script.path)} (sha256 {script.sha256}):", _indented(visible(script.text))]
    if approval.agent_id is not None:
        lines.append(f"  asked by the subagent {visible(approval.agent_id)}")
    if approval.decided_by is not None:
        lines.append(f"  answered by {visible(approval.decided_by)}")
    return "\n".join(lines)


def _field(name: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"  {visible(name)}:\n{_indented(visible(text))}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _input(approval: Approval) -> dict[str, object]:
    try:
        given = json.loads(approval.input or "{}")
    except ValueError:
        given = None
    return given if isinstance(given, dict) else {"input": approval.input or ""}


def _scripts(approval: Approval) -> tuple[Script, ...]:
    try:
        return msgspec.json.decode(approval.scripts or "[]", type=tuple[Script, ...])
    except msgspec.MsgspecError:
        return ()


def _document(approval: Approval) -> dict[str, object]:
    return {
        "approval_id": approval.id,
        "session_id": approval.session_id,
        "tier": approval.tier,
        "status": approval.status.value,
        "tool_use_id": approval.tool_use_id,
        "tool_name": visible(approval.tool_name or ""),
        "agent_id": approval.agent_id,
        "workdir": visible(approval.workdir or ""),
        "input": {
            visible(name): visible(value) if isinstance(value, str) else value
            for name, value in _input(approval).items()
        },
        "scripts": [
            {"path": visible(script.path), "sha256": script.sha256, "text": visible(script.text)}
            for script in _scripts(approval)
        ],
        "reason": visible(approval.reason or ""),
        "call_hash": approval.call_hash,
        "requested_at": approval.requested_at,
        "expires_at": approval.expires_at,
        "decided_at": approval.decided_at,
        "decided_by": approval.decided_by,
    }


# --- pause and resume ---------------------------------------------------------------------------------


def pause_sessions(*, reason: str | None, stop: bool, as_json: bool) -> int:
    """Start no sessions from now on; running ones finish, or are stopped with ``stop``. Return the exit status."""
    return run_on_database("pause", partial(_pause, reason, stop), as_json=as_json)


def resume_sessions(*, as_json: bool) -> int:
    """Start sessions again; return the exit status."""
    return run_on_database("resume", _resume, as_json=as_json)


async def _pause(reason: str | None, stop: bool, settings: Settings, store: SqlStore) -> CommandResult:  # noqa: FBT001 - bound
    at, who = now(), operators_name()
    why = f"paused by {who}: {' '.join(reason.split())}" if reason and reason.strip() else f"paused by {who}"
    await store.holds.hold(Hold(kind=HoldKind.PAUSED, reason=why, since=at, by=who), now=at)
    running = is_claimed(settings.database_url)
    # Without a daemon no session runs, and the command would stop those of the next daemon.
    stopping = stop and running
    if stopping:
        await store.queue.request_command(CommandName.STOP_SESSIONS, by=who, now=at)
    if stopping:
        after = "running sessions are stopped"
    elif running:
        after = "running sessions finish"
    else:
        after = "no daemon runs"
    return CommandResult(
        text=f"{why}; {after}",
        body={"paused": True, "reason": why, "stopping": stopping, "daemon_running": running, "handled": True},
    )


async def _resume(_settings: Settings, store: SqlStore) -> CommandResult:
    released = await store.holds.release(HoldKind.PAUSED, now=now())
    left = [hold for hold in await store.holds.standing(now()) if hold.kind is not HoldKind.PAUSED]
    lines = ["sessions are started again" if released else "it was not paused"]
    lines += [f"still held ({hold.kind.value}): {hold.reason}" for hold in left]
    return CommandResult(
        text="\n".join(lines),
        body={
            "paused": False,
            "handled": released,
            "holds": [{"kind": hold.kind.value, "reason": hold.reason, "until": hold.until} for hold in left],
        },
    )


# --- backup -------------------------------------------------------------------------------------------


def back_up(file: Path, *, as_json: bool) -> int:
    """Copy the database, as of one moment, to ``file`` while everything goes on; return the exit status."""
    target = file.absolute()
    try:
        size = back_up_to(parse_url(read_settings().database_url), target)
    except ClaudeopsError as error:
        return print_failure(_BACKUP, error, as_json=as_json, target=str(target))
    if as_json:
        return print_document(_BACKUP, {"path": str(target), "bytes": size}, Exit.OK)
    click.echo(f"{target}: {size} bytes")
    return Exit.OK


# --- what the commands share --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandResult:
    """What a command prints, for people and for programs, and its exit status."""

    text: str
    body: dict[str, object] = field(default_factory=dict)
    exit_code: Exit = Exit.OK


def run_on_database(
    command: str, work: Callable[[Settings, SqlStore], Awaitable[CommandResult]], *, as_json: bool, target: str = ""
) -> int:
    """Open the operator's database, do the work on it, print the result and return the exit status."""

    async def on_database() -> CommandResult:
        async with _opened() as (settings, store):
            return await work(settings, store)

    try:
        done = anyio.run(on_database)
    except ClaudeopsError as error:
        return print_failure(command, error, as_json=as_json, target=target or None)
    if not as_json:
        click.echo(done.text, err=done.exit_code is not Exit.OK)
        return done.exit_code
    return print_document(command, done.body, done.exit_code)


def not_found(kind: str, name: str, message: str) -> CommandResult:
    """Return the result for something that does not exist."""
    error = {"kind": kind, "message": message, "retryable": False}
    return CommandResult(
        text=f"claudeops: {message}", body={"name": name, "found": False, "error": error}, exit_code=Exit.UNRESOLVED
    )


def refused(operation: str, target: str, message: str) -> CommandResult:
    """Return the result for something that is not allowed, or no longer possible."""
    body = output.error_body(
        kind=output.ErrorKind.POLICY, operation=operation, target=target, retryable=False, message=message
    )
    return CommandResult(text=f"claudeops: {message}", body={"handled": False, **body}, exit_code=Exit.UNRESOLVED)


def operators_name() -> str:
    """Return the name of the user who asks, from the system: anybody can set environment variables."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as a user that has no name
        return f"uid {os.getuid()}"


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


@asynccontextmanager
async def _opened() -> AsyncIterator[tuple[Settings, SqlStore]]:
    settings = load_settings(os.environ, cwd=Path.cwd()).settings
    store = open_store(settings.database_url)
    try:
        yield settings, store
    finally:
        await store.close()
