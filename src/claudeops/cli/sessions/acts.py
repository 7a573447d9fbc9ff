"""``stop`` and ``delete-session``: what is done to a session by hand.

Both work with and without a running daemon, which sees the changes in the database.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.app.limits import escalation_rules
from claudeops.cli.on_database import not_done, now, operators_name
from claudeops.cli.on_store import run_on_store
from claudeops.cli.reply import CommandResult, Exit, not_found, refused
from claudeops.cli.sessions.table import NOT_FOUND, find_in
from claudeops.domain.answers import document
from claudeops.domain.listing import Reference
from claudeops.engine.session_log.reader import remove
from claudeops.settings import Settings
from claudeops.store.acts import Refusal
from claudeops.store.acts.commands import served_by_another
from claudeops.store.acts.deletion import Deletion, NotDeleted
from claudeops.store.acts.sessions import MARGIN_SECONDS, stop_session
from claudeops.store.reading import session_ids
from claudeops.store.store import Store
from claudeops.structs import replace

_DELETE: Final = "delete-session"
_STOP: Final = "stop"


# --- stop -------------------------------------------------------------------------------------------------


def stop_sessions(wanted: Reference, *, written: str, chain: bool, wait: bool, as_json: bool) -> int:
    """Stop a session, or all of its chain; return the exit status."""
    work = partial(_stop, wanted=wanted, written=written, chain=chain, wait=wait)
    return run_on_store(_STOP, work, as_json=as_json, target=written)


async def _stop(
    settings: Settings, store: Store, *, wanted: Reference, written: str, chain: bool, wait: bool
) -> CommandResult:
    found = await store.database.read(partial(session_ids, wanted=wanted))
    session = await store.records.session(found[0]) if len(found) == 1 else None
    if session is None:
        several = f"{written} fits several sessions ({', '.join(map(str, found))}): write more of it."
        message = several if found else f"There is no session {written}."
        return not_found(NOT_FOUND, written, message)
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


# --- delete -----------------------------------------------------------------------------------------------


def delete_session(written: str, *, chain: bool, as_json: bool) -> int:
    """Delete a session and its log, or its whole chain; return the exit status."""
    return run_on_store(_DELETE, partial(_deleted, written, chain), as_json=as_json, target=written)


async def _deleted(written: str, chain: bool, settings: Settings, store: Store) -> CommandResult:  # noqa: FBT001 - bound
    number = await find_in(store.database, written)
    if isinstance(number, CommandResult):
        return number
    at = now()
    longest = max((limit.window_seconds for limit in settings.policy.limits.values()), default=0.0)
    done = await store.deletion.delete(number, chain=chain, counted_since=at - timedelta(seconds=longest), now=at)
    if done.kept is not None:
        return _kept(written, number, done, longest)
    logs, here = zip(done.log_paths, done.log_nodes, strict=True), settings.node.name
    warnings = [sentence for path, node in logs if (sentence := _remove(Path(path), node, here=here)) is not None]
    gone = " and ".join(filter(None, (", ".join(map(str, done.session_ids)), "their logs" if chain else "its log")))
    return CommandResult(
        text="\n".join([f"deleted session {gone}", *warnings]),
        body={
            "session_id": str(number),
            "deleted": True,
            "directory": str(settings.places.results_dir),
            "deleted_ids": list(done.session_ids),
            "paths": list(done.log_paths),
            "warnings": warnings,
        },
    )


def _kept(written: str, number: int, done: Deletion, longest: float) -> CommandResult:
    others = ", ".join(map(str, done.session_ids))
    match done.kept:
        case NotDeleted.UNDER_WAY:
            says = f"Session {others} has not ended."
            hint = "Wait for its end, or stop it first."
        case NotDeleted.FOLLOWED:
            says = f"From session {number} followed {others}."
            hint = f"Delete them together: `claudeops delete-session {number} --chain`."
        case NotDeleted.COUNTS:
            says = f"The actions of session {others} still count towards a limit, and would be allowed once more."
            hint = f"Wait until they are over: the longest limit looks back {timedelta(seconds=longest)}."
        case _:
            return not_found(NOT_FOUND, written, f"Session {number} has gone.")
    answer = refused(_DELETE, str(number), says, hint=hint)
    return answer._replace(body={"session_id": str(number), "deleted": False, **answer.body})


def _remove(log: Path, node: str | None, *, here: str) -> str | None:
    """Remove a log; return the sentence for one that stays. Upkeep of its machine removes it when its time has come."""
    try:
        if not remove(log) and node not in {None, here}:
            return f"the log {log} stays on node {node}, and this is node {here}: remove it there"
    except OSError as error:
        return f"the log {log} stays: {error.strerror}"
    return None
