"""The database, and whether somebody works on it already."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio.to_thread

from claudeops.cli.doctor.values import Finding, doubtful, failed, failed_with, fine
from claudeops.cli.envelope import ErrorKind
from claudeops.cli.exit_codes import Exit
from claudeops.engine.liveness import look
from claudeops.engine.system import alive
from claudeops.errors import ClaudeopsError, DatabaseUnavailableError
from claudeops.store.locks import is_claimed
from claudeops.store.probe import probe

if TYPE_CHECKING:
    from claudeops.cli.doctor.values import Case
    from claudeops.settings import Settings


async def database(_case: Case, settings: Settings) -> Finding:
    """Try to write, without leaving anything; compare the tables with what this version expects."""
    try:
        found = await anyio.to_thread.run_sync(probe, settings.database_url, settings.state_dir, abandon_on_cancel=True)
    except DatabaseUnavailableError as error:
        return failed(
            _sentence(error),
            "See who else works on it, whether its disk is full, and whether its server runs.",
            sysexit=Exit.UNAVAILABLE,
            kind=ErrorKind.RUNTIME,
        )
    except ClaudeopsError as error:
        return failed_with(_sentence(error), kind=ErrorKind.RUNTIME)
    if found.revision is None:
        return fine("It is not there yet, or empty; the daemon sets it up at its first start.")
    if found.revision != found.head:
        return fine(f"Revision {found.revision}; the daemon backs it up and brings it to {found.head} when it starts.")
    return fine(f"Writable, at revision {found.head}.")


async def daemon(_case: Case, settings: Settings) -> Finding:
    """Say whether a daemon runs here, and whether one from elsewhere holds the database."""
    found = look(settings.state_dir / "daemon.json", alive=alive, monotonic=time.monotonic())
    if found.lives:
        return fine(found.says)
    if found.status is not None:
        return doubtful(found.says, "Look into its log, then restart it.")
    try:
        taken = await anyio.to_thread.run_sync(is_claimed, settings.database_url)
    except DatabaseUnavailableError:
        taken = False  # the check of the database says so
    if taken:
        return failed(
            "A daemon with another state directory works on this database.",
            "Stop it, or give this one its own CLAUDEOPS_DATABASE_URL and CLAUDEOPS_STATE_DIR.",
            sysexit=Exit.TRY_LATER,
            kind=ErrorKind.RUNTIME,
        )
    return fine("None runs here.")


def _sentence(error: ClaudeopsError) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}"
