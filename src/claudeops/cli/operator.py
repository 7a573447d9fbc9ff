"""What an operator's commands on the database have in common: settings, store, name, and how they answer.

``claudeops approve``, ``deny`` and ``list-approvals``: an operator's yes or no to a call that waits for one.

``claudeops pause`` and ``resume``: whether sessions are started at all. Works beside a daemon and without one.

``claudeops backup``: a copy of the database, one moment's state, made while everything goes on.
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
from claudeops.domain.gate import approval as approvals
from claudeops.domain.gate.approval import Approval, ApprovalStatus, Script, visible
from claudeops.domain.holds import Hold, HoldKind
from claudeops.engine.gate.approvals import read_key
from claudeops.errors import ClaudeopsError
from claudeops.settings import Settings, load_settings
from claudeops.store.database import parse_url
from claudeops.store.locks import is_claimed
from claudeops.store.migrate import back_up_to
from claudeops.store.store import SqlStore, open_store


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """What a command has to say, for people and for programs."""

    text: str
    body: dict[str, object] = field(default_factory=dict)
    exit_code: Exit = Exit.OK


def answer(
    command: str, work: Callable[[Settings, SqlStore], Awaitable[Answered]], *, as_json: bool, target: str = ""
) -> int:
    """Do the work on the operator's database, print what came of it, and return the exit status."""

    async def on_the_database() -> Answered:
        async with _opened() as (settings, store):
            return await work(settings, store)

    try:
        done = anyio.run(on_the_database)
    except ClaudeopsError as error:
        return print_failure(command, error, as_json=as_json, target=target or None)
    if not as_json:
        click.echo(done.text, err=done.exit_code is not Exit.OK)
        return done.exit_code
    return print_document(command, done.body, done.exit_code)


def not_found(kind: str, name: str, message: str) -> Answered:
    """Return the answer that something does not exist, which is no failure of ours."""
    error = {"kind": kind, "message": message, "retryable": False}
    return Answered(
        text=f"claudeops: {message}", body={"name": name, "found": False, "error": error}, exit_code=Exit.UNRESOLVED
    )


def refused(operation: str, target: str, message: str) -> Answered:
    """Return the answer that something is not done."""
    body = output.error_body(
        kind=output.ErrorKind.POLICY, operation=operation, target=target, retryable=False, message=message
    )
    return Answered(text=f"claudeops: {message}", body={"handled": False, **body}, exit_code=Exit.UNRESOLVED)


def operators_name() -> str:
    """Return who asks, by the system's word: the environment is anybody's."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as a user that has no name
        return f"uid {os.getuid()}"


def now() -> datetime:
    """Return the wall clock."""
    return datetime.now(UTC)


@asynccontextmanager
async def _opened() -> AsyncIterator[tuple[Settings, SqlStore]]:
    settings = load_settings(os.environ, cwd=Path.cwd()).settings
    store = open_store(settings.database_url)
    try:
        yield settings, store
    finally:
        await store.close()


_SAID: Final = {ApprovalStatus.APPROVED: "approve", ApprovalStatus.DENIED: "deny"}


def give(approval_id: int, status: ApprovalStatus, *, as_json: bool) -> int:
    """Answer one question."""
    command = _SAID[status]
    work = partial(_give, approval_id, status)
    return answer(command, work, as_json=as_json, target=str(approval_id))


def show_all(*, everything: bool, as_json: bool) -> int:
    """Print the questions that wait, or all of them."""
    return answer("list-approvals", partial(_listed, everything), as_json=as_json)


async def _give(approval_id: int, status: ApprovalStatus, settings: Settings, store: SqlStore) -> Answered:
    key = read_key(settings.state_dir)
    asked = await store.verdicts.approval(approval_id)
    if asked is None:
        return not_found("approval_not_found", str(approval_id), f"There is no approval {approval_id}.")
    said = approvals.answer(key, asked, status=status, decided_by=operators_name(), at=now())
    if await store.verdicts.answer_approval(approval_id, said):
        body: dict[str, object] = {"approval_id": approval_id, "handled": True, "status": status.value}
        answered = replace(asked, status=status, decided_by=said.decided_by, decided_at=said.decided_at)
        return Answered(
            text=f"approval {approval_id}: {status.value} by {said.decided_by}\n{_told(answered)}",
            body={**body, "session_id": asked.session_id, "decided_by": said.decided_by},
        )
    latest = await store.verdicts.approval(approval_id) or asked
    why = "its time is over" if latest.status is ApprovalStatus.PENDING else f"it is {latest.status.value} already"
    return refused(_SAID[status], str(approval_id), f"Approval {approval_id} takes no answer any more: {why}.")


async def _listed(everything: bool, _settings: Settings, store: SqlStore) -> Answered:  # noqa: FBT001 - bound by name
    found = await store.verdicts.approvals(everything=everything)
    text = "\n\n".join(map(_told, found)) or "no call waits for an answer"
    return Answered(text=text, body={"approvals_count": len(found), "approvals": [_document(asked) for asked in found]})


def _told(asked: Approval) -> str:
    """Return a question as people read it: whole, and with nothing that a terminal would obey."""
    lines = [
        (
            f"approval {asked.id} · {asked.status.value} · session {asked.session_id} (tier {asked.tier}) · "
            f"{visible(asked.tool_name or '')} · until {asked.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        ),
        f"  why: {visible(asked.reason or '')}",
        f"  in:  {visible(asked.workdir or '')}",
        *(_field(name, value) for name, value in _input(asked).items()),
    ]
    for script in _scripts(asked):
        lines += [f"  script {visible(script.path)} (sha256 {script.sha256}):", _indented(visible(script.text))]
    if asked.agent_id is not None:
        lines.append(f"  asked by the subagent {visible(asked.agent_id)}")
    if asked.decided_by is not None:
        lines.append(f"  answered by {visible(asked.decided_by)}")
    return "\n".join(lines)


def _field(name: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"  {visible(name)}:\n{_indented(visible(text))}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _input(asked: Approval) -> dict[str, object]:
    try:
        given = json.loads(asked.input or "{}")
    except ValueError:
        given = None
    return given if isinstance(given, dict) else {"input": asked.input or ""}


def _scripts(asked: Approval) -> tuple[Script, ...]:
    try:
        return msgspec.json.decode(asked.scripts or "[]", type=tuple[Script, ...])
    except msgspec.MsgspecError:
        return ()


def _document(asked: Approval) -> dict[str, object]:
    return {
        "approval_id": asked.id,
        "session_id": asked.session_id,
        "tier": asked.tier,
        "status": asked.status.value,
        "tool_use_id": asked.tool_use_id,
        "tool_name": visible(asked.tool_name or ""),
        "agent_id": asked.agent_id,
        "workdir": visible(asked.workdir or ""),
        "input": {
            visible(name): visible(value) if isinstance(value, str) else value for name, value in _input(asked).items()
        },
        "scripts": [
            {"path": visible(script.path), "sha256": script.sha256, "text": visible(script.text)}
            for script in _scripts(asked)
        ],
        "reason": visible(asked.reason or ""),
        "call_hash": asked.call_hash,
        "requested_at": asked.requested_at,
        "expires_at": asked.expires_at,
        "decided_at": asked.decided_at,
        "decided_by": asked.decided_by,
    }


def pause(*, reason: str | None, stop: bool, as_json: bool) -> int:
    """Start nothing from now on; running sessions end by themselves, or are stopped."""
    return answer("pause", partial(_pause, reason, stop), as_json=as_json)


def resume(*, as_json: bool) -> int:
    """Go on."""
    return answer("resume", _resume, as_json=as_json)


async def _pause(reason: str | None, stop: bool, settings: Settings, store: SqlStore) -> Answered:  # noqa: FBT001 - bound
    at, who = now(), operators_name()
    told = f"paused by {who}: {' '.join(reason.split())}" if reason and reason.strip() else f"paused by {who}"
    await store.holds.hold(Hold(kind=HoldKind.PAUSED, reason=told, since=at, by=who), now=at)
    running = is_claimed(settings.database_url)
    # Without a daemon there is no session to stop, and an order would meet the next daemon's.
    stopping = stop and running
    if stopping:
        await store.queue.request_command(CommandName.STOP_SESSIONS, by=who, now=at)
    if stopping:
        after = "running sessions are stopped"
    elif running:
        after = "running sessions end by themselves"
    else:
        after = "no daemon runs"
    return Answered(
        text=f"{told}; {after}",
        body={"paused": True, "reason": told, "stopping": stopping, "daemon_running": running, "handled": True},
    )


async def _resume(_settings: Settings, store: SqlStore) -> Answered:
    released = await store.holds.release(HoldKind.PAUSED, now=now())
    left = [hold for hold in await store.holds.standing(now()) if hold.kind is not HoldKind.PAUSED]
    lines = ["sessions are started again" if released else "it was not paused"]
    lines += [f"still held ({hold.kind.value}): {hold.reason}" for hold in left]
    return Answered(
        text="\n".join(lines),
        body={
            "paused": False,
            "handled": released,
            "holds": [{"kind": hold.kind.value, "reason": hold.reason, "until": hold.until} for hold in left],
        },
    )


_NAME: Final = "backup"


def back_up(file: Path, *, as_json: bool) -> int:
    """Copy the database to ``file`` and return the exit status."""
    target = file.absolute()
    try:
        size = back_up_to(parse_url(read_settings().database_url), target)
    except ClaudeopsError as error:
        return print_failure(_NAME, error, as_json=as_json, target=str(target))
    if as_json:
        return print_document(_NAME, {"path": str(target), "bytes": size}, Exit.OK)
    click.echo(f"{target}: {size} bytes")
    return Exit.OK
