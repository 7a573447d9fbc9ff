"""Commands that change the database: they work with and without a running daemon, which sees the changes there.

They need its address alone: an operator must be able to pause or to acknowledge whatever else is wrong with the
settings, and at once. They log nothing: what fails is their answer.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import anyio

from claudeops.cli.answer import database_url, state_dir
from claudeops.cli.reply import LOOK_AGAIN, CommandResult, not_found, print_failure, print_result, refused
from claudeops.cli.text.screen import progress
from claudeops.errors import ClaudeopsError
from claudeops.store.acts import Refusal, RefusalKind
from claudeops.store.database import Database, open_database, waking


def run_on_database(
    command: str, work: Callable[[Database], Awaitable[CommandResult]], *, as_json: bool, target: str = ""
) -> int:
    """Open the operator's database, do the work on it, print the result and return the exit status."""

    async def on_database() -> CommandResult:
        database = open_database(database_url(), changed=waking(state_dir()))
        try:
            return await work(database)
        finally:
            await database.close()

    try:
        with progress("working on the database"):
            done = anyio.run(on_database)
    except ClaudeopsError as error:
        return print_failure(command, error, as_json=as_json, target=target or None)
    return print_result(command, done, as_json=as_json)


def not_done(operation: str, refusal: Refusal) -> CommandResult:
    """Return the result for an act that was not done."""
    if refusal.kind is RefusalKind.MISSING:
        return not_found(f"{refusal.subject}_not_found", refusal.name, refusal.sentence)
    return refused(operation, refusal.name, refusal.sentence, hint=refusal.hint or LOOK_AGAIN)


def operators_name() -> str:
    """Return the name of the user who asks, from the system: anybody can set environment variables."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as a user that has no name
        return f"uid {os.getuid()}"


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)
