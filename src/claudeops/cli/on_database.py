"""Commands that change the database: they work with and without a running daemon, which sees the changes there."""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import anyio
import click

from claudeops.cli import reply
from claudeops.cli.reply import Exit, print_document, print_failure
from claudeops.cli.start import read_settings
from claudeops.cli.text.screen import progress
from claudeops.errors import ClaudeopsError
from claudeops.settings import Settings
from claudeops.store.acts import Refusal, RefusalKind
from claudeops.store.store import Store, open_store

_LOOK_AGAIN: Final = "Look at how it stands now; the message says what is in the way."


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandResult:
    """What a command prints, for people and for programs, and its exit status."""

    text: str
    body: dict[str, object] = field(default_factory=dict)
    exit_code: Exit = Exit.OK
    envelope_code: int | None = None  # the document's; None: 0 or 1, as `exit_code` says


def run_on_database(
    command: str, work: Callable[[Settings, Store], Awaitable[CommandResult]], *, as_json: bool, target: str = ""
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
    body = reply.not_found_body(kind, name, message)
    return CommandResult(text=f"claudeops: {message}", body=body, exit_code=Exit.UNRESOLVED)


def refused(operation: str, target: str, message: str, *, hint: str = _LOOK_AGAIN) -> CommandResult:
    """Return the result for something that is not allowed, or no longer possible."""
    body = reply.error_body(
        kind=reply.ErrorKind.POLICY, operation=operation, target=target, retryable=False, message=message, hint=hint
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
async def _opened() -> AsyncIterator[tuple[Settings, Store]]:
    settings = read_settings()
    store = open_store(settings.places.database_url)
    try:
        yield settings, store
    finally:
        await store.close()
