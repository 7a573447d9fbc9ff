"""What an operator's commands on the database have in common: settings, store, name, and how they answer."""

from __future__ import annotations

import os
import pwd
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from claudeops.cli import envelope
from claudeops.cli.answers import print_document, print_failure
from claudeops.cli.exit_codes import Exit
from claudeops.errors import ClaudeopsError
from claudeops.settings import load_settings
from claudeops.store.store import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from claudeops.settings import Settings
    from claudeops.store.store import SqlStore


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
    body = envelope.error_body(
        kind=envelope.ErrorKind.POLICY, operation=operation, target=target, retryable=False, message=message
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
