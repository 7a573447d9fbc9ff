"""The operator's commands on the database: approvals, ``pause``, ``resume`` and ``backup``.

All of them work with and without a running daemon, which sees the changes in the database.
"""

from __future__ import annotations

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

from claudeops.cli import output
from claudeops.cli.output import Exit, print_document, print_failure
from claudeops.cli.start import read_settings
from claudeops.cli.text.screen import progress
from claudeops.cli.views.approvals import approval_text, pages_url
from claudeops.domain.answers import document
from claudeops.domain.gate.approval import UNSEEN, Approval, ApprovalStatus
from claudeops.engine.gate.approvals import read_key
from claudeops.errors import ClaudeopsError
from claudeops.settings import Settings
from claudeops.store.acts import Refusal, RefusalKind, holds
from claudeops.store.acts.approvals import Unseen, answer_approval
from claudeops.store.acts.asking import served_by_another
from claudeops.store.database import parse_url
from claudeops.store.migrate import back_up_to
from claudeops.store.store import SqlStore, open_store

_VERBS: Final = {ApprovalStatus.APPROVED: "approve", ApprovalStatus.DENIED: "deny"}

_BACKUP: Final = "backup"
_LOOK_AGAIN: Final = "Look at how it stands now; the message says what is in the way."


# --- approvals ----------------------------------------------------------------------------------------


def decide(approval_id: int, status: ApprovalStatus, *, as_json: bool, unseen: bool = False) -> int:
    """Approve or deny a tool call that waits for a person; return the exit status.

    ``unseen``: approve it though parts of it are hidden.
    """
    command = _VERBS[status]
    work = partial(_decide, approval_id, status, unseen)
    return run_on_database(command, work, as_json=as_json, target=str(approval_id))


async def _decide(
    approval_id: int,
    status: ApprovalStatus,
    unseen: bool,  # noqa: FBT001 - bound
    settings: Settings,
    store: SqlStore,
) -> CommandResult:
    key, who, at = read_key(settings.state_dir), operators_name(), now()
    done = await answer_approval(store, key, approval_id, status=status, by=who, now=at, unseen=unseen)
    if isinstance(done, Refusal):
        return not_done(_VERBS[status], done)
    if isinstance(done, Unseen):
        return _not_whole(done.approval, at)
    found = await store.verdicts.approval(approval_id)
    counted = done.status is ApprovalStatus.PENDING
    base = pages_url(() if found is None else (found,))
    said = f"{done.answers} of {done.needed} people have said yes" if counted else f"{done.status.value} by {who}"
    shown = "" if found is None else f"\n{approval_text(replace(found, status=done.status), at, base=base)}"
    return CommandResult(text=f"approval {approval_id}: {said}{shown}", body=document(done))


def _not_whole(asked: Approval, at: datetime) -> CommandResult:
    """Return the refusal of a yes to what the operator cannot have seen, with what there is to see."""
    message = f"Approval {asked.id} was not given: the call is not shown whole, because {UNSEEN}."
    hint = f"Deny it, and the session is told why; or run `claudeops approve {asked.id} --unseen`."
    result = refused(_VERBS[ApprovalStatus.APPROVED], str(asked.id), message, hint=hint)
    return replace(result, text=f"{result.text}\n{approval_text(asked, at)}")


# --- pause and resume ---------------------------------------------------------------------------------


def pause_sessions(*, reason: str | None, stop: bool, as_json: bool) -> int:
    """Start no sessions from now on; running ones finish, or are stopped with ``stop``. Return the exit status."""
    return run_on_database("pause", partial(_pause, reason, stop), as_json=as_json)


def resume_sessions(*, as_json: bool) -> int:
    """Start sessions again; return the exit status."""
    return run_on_database("resume", _resume, as_json=as_json)


async def _pause(reason: str | None, stop: bool, settings: Settings, store: SqlStore) -> CommandResult:  # noqa: FBT001 - bound
    async with served_by_another(settings.database_url) as served:
        done = await holds.pause(store, reason=reason or "", stop=stop, by=operators_name(), served=served, now=now)
    after = "running sessions finish" if done.daemon_running else "no daemon runs"
    if done.result is not None:
        stopped = "running sessions are stopped"
        after = stopped if done.acknowledged else f"running sessions were not stopped: {done.result}"
    # Paused all the same: what runs goes on, and asking again may reach the daemon.
    code = Exit.TRY_LATER if done.acknowledged is False else Exit.OK
    return CommandResult(text=f"{done.reason}; {after}", body=document(done), exit_code=code)


async def _resume(_settings: Settings, store: SqlStore) -> CommandResult:
    done = await holds.resume(store, now=now())
    lines = ["sessions are started again" if done.handled else "it was not paused"]
    lines += [f"still held ({hold.kind.value}): {hold.reason}" for hold in done.holds]
    return CommandResult(text="\n".join(lines), body=document(done))


# --- backup -------------------------------------------------------------------------------------------


def back_up(file: Path, *, as_json: bool) -> int:
    """Copy the database, as of one moment, to ``file`` while everything goes on; return the exit status."""
    target = file.absolute()
    try:
        with progress("copying the database"):
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
    envelope_code: int | None = None  # the document's; None: 0 or 1, as `exit_code` says


def run_on_database(
    command: str, work: Callable[[Settings, SqlStore], Awaitable[CommandResult]], *, as_json: bool, target: str = ""
) -> int:
    """Open the operator's database, do the work on it, print the result and return the exit status."""

    async def on_database() -> CommandResult:
        async with _opened() as (settings, store):
            return await work(settings, store)

    try:
        with progress("working on the database"):
            done = anyio.run(on_database)
    except ClaudeopsError as error:
        return print_failure(command, error, as_json=as_json, target=target or None)
    if not as_json:
        click.echo(done.text, err=done.exit_code is not Exit.OK)
        return done.exit_code
    return print_document(command, done.body, done.exit_code, exit_code=done.envelope_code)


def not_done(operation: str, refusal: Refusal) -> CommandResult:
    """Return the result for an act that was not done."""
    if refusal.kind is RefusalKind.MISSING:
        return not_found(f"{refusal.subject}_not_found", refusal.name, refusal.sentence)
    return refused(operation, refusal.name, refusal.sentence, hint=refusal.hint or _LOOK_AGAIN)


def not_found(kind: str, name: str, message: str) -> CommandResult:
    """Return the result for something that does not exist."""
    body = output.not_found_body(kind, name, message)
    return CommandResult(text=f"claudeops: {message}", body=body, exit_code=Exit.UNRESOLVED)


def refused(operation: str, target: str, message: str, *, hint: str = _LOOK_AGAIN) -> CommandResult:
    """Return the result for something that is not allowed, or no longer possible."""
    body = output.error_body(
        kind=output.ErrorKind.POLICY, operation=operation, target=target, retryable=False, message=message, hint=hint
    )
    text = f"claudeops: {message}" if hint == _LOOK_AGAIN else f"claudeops: {message}\n  hint: {hint}"
    return CommandResult(text=text, body={"handled": False, **body}, exit_code=Exit.UNRESOLVED)


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
    settings = read_settings()
    store = open_store(settings.database_url)
    try:
        yield settings, store
    finally:
        await store.close()
