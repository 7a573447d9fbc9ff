"""``pause`` and ``resume``, whether sessions start; and ``backup``.

All of them work with and without a running daemon, which sees the changes in the database.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from claudeops.cli.answer import database_url
from claudeops.cli.on_database import now, operators_name, run_on_database
from claudeops.cli.reply import CommandResult, Exit, print_failure, print_result
from claudeops.cli.text.screen import progress
from claudeops.domain.answers import document
from claudeops.errors import ClaudeopsError
from claudeops.store.acts import holds
from claudeops.store.acts.commands import served_by_another
from claudeops.store.commands import Commands
from claudeops.store.connection.engines import parse_url
from claudeops.store.database import Database
from claudeops.store.holds import Holds
from claudeops.store.migrate import back_up_to

_BACKUP: Final = "backup"
_STOP: Final = "stop"


# --- pause and resume ---------------------------------------------------------------------------------


def pause_sessions(*, reason: str | None, stop: bool, as_json: bool) -> int:
    """Start no sessions from now on; running ones finish, or are stopped with ``stop``. Return the exit status."""
    return run_on_database("pause", partial(_pause, reason, stop), as_json=as_json)


def resume_sessions(*, as_json: bool) -> int:
    """Start sessions again; return the exit status."""
    return run_on_database("resume", _resume, as_json=as_json)


async def _pause(reason: str | None, stop: bool, database: Database) -> CommandResult:  # noqa: FBT001 - bound
    async with served_by_another(database_url()) as served:
        done = await holds.pause(
            Holds(database),
            Commands(database),
            reason=reason or "",
            stop=stop,
            by=operators_name(),
            served=served,
            now=now,
        )
    after = "running sessions finish" if done.daemon_running else "no daemon runs"
    if done.result is not None:
        stopped = "running sessions are stopped"
        after = stopped if done.acknowledged else f"running sessions were not stopped: {done.result}"
    # Paused all the same: what runs goes on, and asking again may reach the daemon.
    code = Exit.TRY_LATER if done.acknowledged is False else Exit.OK
    return CommandResult(text=f"{done.reason}; {after}", body=document(done), exit_code=code)


async def _resume(database: Database) -> CommandResult:
    done = await holds.resume(Holds(database), now=now())
    lines = ["sessions are started again" if done.handled else "it was not paused"]
    lines += [f"still held ({hold.kind.value}): {hold.reason}" for hold in done.holds]
    return CommandResult(text="\n".join(lines), body=document(done))


# --- backup -------------------------------------------------------------------------------------------


def back_up(file: Path, *, as_json: bool) -> int:
    """Copy the database, as of one moment, to ``file`` while everything goes on; return the exit status."""
    target = file.absolute()
    try:
        with progress("copying the database"):
            size = back_up_to(parse_url(database_url()), target)
    except ClaudeopsError as error:
        return print_failure(_BACKUP, error, as_json=as_json, target=str(target))
    done = CommandResult(text=f"{target}: {size} bytes", body={"path": str(target), "bytes": size})
    return print_result(_BACKUP, done, as_json=as_json)
