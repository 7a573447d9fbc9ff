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

from claudeops.app.asking import Answer, ask_daemon
from claudeops.cli import output
from claudeops.cli.output import Exit, print_document, print_failure
from claudeops.cli.start import read_settings
from claudeops.cli.text.screen import progress
from claudeops.cli.views.approvals import UNSEEN, approval_text, progress_of
from claudeops.domain.commands import CommandName
from claudeops.domain.gate.approval import Answered, Approval, ApprovalStatus
from claudeops.domain.holds import Hold, HoldKind
from claudeops.engine.gate.answering import answer_question
from claudeops.engine.gate.approvals import read_key
from claudeops.errors import ClaudeopsError
from claudeops.settings import Settings
from claudeops.store.database import parse_url
from claudeops.store.locks import is_claimed
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
    key = read_key(settings.state_dir)
    who, at = operators_name(), now()
    asked = await store.verdicts.approval(approval_id)
    if asked is not None and status is ApprovalStatus.APPROVED and not unseen and _is_hidden(asked, at):
        return _not_whole(asked, at)
    result = await answer_question(store.verdicts, key, approval_id, status=status, decided_by=who, at=at)
    approval = result.approval
    if approval is None:
        return not_found("approval_not_found", str(approval_id), f"There is no approval {approval_id}.")
    if result.answered in {Answered.DECIDED, Answered.COUNTED}:
        counted = result.answered is Answered.COUNTED
        stands = ApprovalStatus.PENDING if counted else status
        said = f"{progress_of(approval)} people have said yes" if counted else f"{stands.value} by {who}"
        # The call may have used the answer by now: what is told is what the answer did.
        shown = replace(approval, status=stands)
        return CommandResult(
            text=f"approval {approval_id}: {said}\n{approval_text(shown, at)}",
            body={
                "approval_id": approval_id,
                "handled": True,
                "status": stands.value,
                "session_id": approval.session_id,
                "decided_by": who,
                "answers": len(approval.agreed),
                "needed": approval.needed,
            },
        )
    return refused(_VERBS[status], str(approval_id), _not_taken(approval, result.answered))


def _is_hidden(asked: Approval, at: datetime) -> bool:
    return asked.hidden and asked.status is ApprovalStatus.PENDING and asked.expires_at > at


def _not_whole(asked: Approval, at: datetime) -> CommandResult:
    """Return the refusal of a yes to what the operator cannot have seen, with what there is to see."""
    message = f"Approval {asked.id} was not given: the call is not shown whole, because {UNSEEN}."
    hint = f"Deny it, and the session is told why; or run `claudeops approve {asked.id} --unseen`."
    result = refused(_VERBS[ApprovalStatus.APPROVED], str(asked.id), message, hint=hint)
    return replace(result, text=f"{result.text}\n{approval_text(asked, at)}")


def _not_taken(approval: Approval, answered: Answered) -> str:
    """Return why an answer counts for nothing."""
    if answered is Answered.SAME_PERSON:
        return (
            f"Approval {approval.id} has a yes of yours already ({progress_of(approval)}): "
            "somebody else must say yes too."
        )
    why = "it has expired" if approval.status is ApprovalStatus.PENDING else f"it is {approval.status.value} already"
    return f"Approval {approval.id} no longer takes an answer: {why}."


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
    if not (stop and running):
        after = "running sessions finish" if running else "no daemon runs"
        body: dict[str, object] = {"stopping": False, "daemon_running": running}
        return CommandResult(
            text=f"{why}; {after}", body={"paused": True, "reason": why, **body, "acknowledged": None, "handled": True}
        )
    asked = await ask_daemon(store.commands, settings.database_url, CommandName.STOP_SESSIONS, by=who)
    after = "running sessions are stopped" if asked.acknowledged else f"running sessions were not stopped: {asked.says}"
    return CommandResult(
        text=f"{why}; {after}",
        body={
            "paused": True,
            "reason": why,
            "stopping": asked.acknowledged,
            "daemon_running": asked.answer is not Answer.NO_DAEMON,
            "acknowledged": asked.acknowledged,
            "result": asked.says,
            "handled": True,
        },
        # Paused all the same: what runs goes on, and asking again may reach the daemon.
        exit_code=Exit.OK if asked.acknowledged else Exit.TRY_LATER,
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
