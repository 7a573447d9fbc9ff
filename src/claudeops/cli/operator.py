"""The operator's commands on what runs: ``pause``, ``resume`` and ``stop``; and ``backup``.

All of them work with and without a running daemon, which sees the changes in the database.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import click

from claudeops.app.wiring import escalation_rules
from claudeops.cli.on_database import CommandResult, not_done, not_found, now, operators_name, run_on_database
from claudeops.cli.reply import Exit, print_document, print_failure
from claudeops.cli.start import read_settings
from claudeops.cli.text.screen import progress
from claudeops.domain.answers import document
from claudeops.domain.listing import Reference
from claudeops.errors import ClaudeopsError
from claudeops.settings import Settings
from claudeops.store.acts import Refusal, holds
from claudeops.store.acts.asking import served_by_another
from claudeops.store.acts.sessions import MARGIN_SECONDS, stop_session
from claudeops.store.connection.engines import parse_url
from claudeops.store.migrate import back_up_to
from claudeops.store.reading import session_ids
from claudeops.store.store import Store

_BACKUP: Final = "backup"
_STOP: Final = "stop"


# --- pause and resume ---------------------------------------------------------------------------------


def pause_sessions(*, reason: str | None, stop: bool, as_json: bool) -> int:
    """Start no sessions from now on; running ones finish, or are stopped with ``stop``. Return the exit status."""
    return run_on_database("pause", partial(_pause, reason, stop), as_json=as_json)


def resume_sessions(*, as_json: bool) -> int:
    """Start sessions again; return the exit status."""
    return run_on_database("resume", _resume, as_json=as_json)


async def _pause(reason: str | None, stop: bool, settings: Settings, store: Store) -> CommandResult:  # noqa: FBT001 - bound
    async with served_by_another(settings.places.database_url) as served:
        done = await holds.pause(store, reason=reason or "", stop=stop, by=operators_name(), served=served, now=now)
    after = "running sessions finish" if done.daemon_running else "no daemon runs"
    if done.result is not None:
        stopped = "running sessions are stopped"
        after = stopped if done.acknowledged else f"running sessions were not stopped: {done.result}"
    # Paused all the same: what runs goes on, and asking again may reach the daemon.
    code = Exit.TRY_LATER if done.acknowledged is False else Exit.OK
    return CommandResult(text=f"{done.reason}; {after}", body=document(done), exit_code=code)


async def _resume(_settings: Settings, store: Store) -> CommandResult:
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
            size = back_up_to(parse_url(read_settings().places.database_url), target)
    except ClaudeopsError as error:
        return print_failure(_BACKUP, error, as_json=as_json, target=str(target))
    if as_json:
        return print_document(_BACKUP, {"path": str(target), "bytes": size}, Exit.OK)
    click.echo(f"{target}: {size} bytes")
    return Exit.OK


# --- stop ---------------------------------------------------------------------------------------------


def stop_sessions(wanted: Reference, *, written: str, chain: bool, wait: bool, as_json: bool) -> int:
    """Stop a session, or all of its chain; return the exit status."""
    work = partial(_stop, wanted=wanted, written=written, chain=chain, wait=wait)
    return run_on_database(_STOP, work, as_json=as_json, target=written)


async def _stop(
    settings: Settings, store: Store, *, wanted: Reference, written: str, chain: bool, wait: bool
) -> CommandResult:
    found = await store.database.read(partial(session_ids, wanted=wanted))
    session = await store.records.session(found[0]) if len(found) == 1 else None
    if session is None:
        several = f"{written} fits several sessions ({', '.join(map(str, found))}): write more of it."
        message = several if found else f"There is no session {written}."
        return not_found("session_not_found", written, message)
    async with served_by_another(settings.places.database_url) as served:
        done = await stop_session(
            store,
            session,
            chain=chain,
            by=operators_name(),
            rules=escalation_rules(settings),
            served=served,
            now=now,
            seconds=settings.timeouts.stop_grace_seconds + MARGIN_SECONDS if wait else 0.0,
        )
    if isinstance(done, Refusal):
        return not_done(_STOP, replace(done, name=written))
    lines = [f"session {number}: ended, as asked" for number in done.stopped]
    lines += [f"session {number}: not ended yet" for number in done.stopping]
    if done.result is not None and (done.stopping or not done.acknowledged):
        lines.append(done.result)
    code = Exit.TRY_LATER if done.acknowledged is False else Exit.OK
    return CommandResult(text="\n".join(lines), body=document(done), exit_code=code)
