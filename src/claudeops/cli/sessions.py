"""``list-sessions``, ``load-session`` and ``delete-session``: what is on record of sessions."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.cli.answer import AnswerShape, Body, CommandAnswer, database_url, missing, more, present
from claudeops.cli.on_database import CommandResult, not_found, now, refused, run_on_database
from claudeops.cli.session_list import NOT_FOUND, find, find_in, sessions_table
from claudeops.cli.text.layout import Column, Layout, Style, pairs, table
from claudeops.domain.answers import plain
from claudeops.domain.listing import Listing, Page
from claudeops.engine.session_log.reader import remove
from claudeops.settings import Settings
from claudeops.settings.where import results_dir
from claudeops.store.deletion import Deletion, NotDeleted
from claudeops.store.reading import opened
from claudeops.store.reading.session_rows import ListedSession, WholeSession, listed, whole
from claudeops.store.store import Store
from claudeops.text.escapes import visible

_LIST: Final = "list-sessions"
_LOAD: Final = "load-session"
_DELETE: Final = "delete-session"
_ERROR_CHARACTERS: Final = 1000
_CUT: Final = " ... (truncated; see the log)"

_PARTS: Final = ("events", "memories", "told", "texts", "checks", "actions", "calls", "approvals", "model_calls")
_TABLES: Final = {
    "events": ("level", "service", "message", "count", "last_seen"),
    "checks": ("service", "status", "detail"),
    "actions": ("action_type", "service", "success", "error", "timestamp"),
    "calls": ("verdict", "tool_name", "input", "reason"),
    "approvals": ("id", "status", "tool_name", "reason"),
    "memories": ("id", "service", "category", "observation", "trust"),
    "texts": ("kind", "name", "origin"),
}
"""What else is shown to people, and which columns of it; a document has all."""
_LONG: Final = frozenset({"message", "detail", "error", "input", "reason", "observation"})

_HELPS: Final = {
    "rate_limit": "The model API refused for its limits: wait, or run fewer sessions.",
    "auth": "The model API refused the credentials: `claudeops doctor` tries them.",
    "api": "The model API failed: the log says with what; it may work later.",
    "interactive": "The session asked a person, and nobody answers: say in the prompt what to do then.",
    "background-task": "The session left work in the background, which ended with it.",
    "timeout": "It ran out of time: CLAUDEOPS_SESSION_TIMEOUT bounds a session.",
}
"""What helps, by the category of a session's error."""


# --- list -------------------------------------------------------------------------------------------------


def list_sessions(wanted: Listing, *, shape: AnswerShape) -> int:
    """Print a page of sessions, newest first; return the exit status."""

    def ask(_: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = listed(connection, wanted)
        body: Body = {
            "directory": _directory(),
            "sessions_count": len(found.items),
            "sessions": plain(found.items),
            "before": found.before,
        }
        return CommandAnswer(body=body, draw=partial(_drawn, found))

    return present(_LIST, ask, shape)


def _drawn(found: Page[ListedSession], looks: Layout) -> list[str]:
    return [*(sessions_table(found.items, looks) or ["no sessions"]), *more(_LIST, found.before, looks)]


def _directory() -> str:
    return str(results_dir(os.environ, cwd=Path.cwd()))


# --- one with everything ----------------------------------------------------------------------------------


def load_session(written: str, *, shape: AnswerShape) -> int:
    """Print everything that is on record about a session; return the exit status."""

    def ask(_: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            number = find(connection, written)
            found = None if isinstance(number, str) else whole(connection, number)
        if found is None:
            return missing(NOT_FOUND, written, number if isinstance(number, str) else f"Session {number} has gone.")
        body: Body = {
            "session_id": str(number),
            "loaded": True,
            "directory": _directory(),
            "path": found.columns["log_path"] or "",
            "session": plain({**found.columns, "warnings": found.warnings, "services": list(found.services)}),
            "chain": plain(found.chain),
            **{name: plain(getattr(found, name)) for name in _PARTS},
        }
        return CommandAnswer(body=body, draw=partial(_whole, found))

    return present(_LOAD, ask, shape, target=written)


def _whole(found: WholeSession, looks: Layout) -> list[str]:
    columns = {name: value for name, value in found.columns.items() if value is not None and name != "error"}
    lines = pairs([(name, _value(value, looks)) for name, value in columns.items()], looks)
    lines += pairs(_error(found), looks)
    lines += ["", looks.styled("chain", Style.HEAD), *sessions_table(found.chain, looks, indent=2)]
    for name, heads in _TABLES.items():
        rows = [[_value(row[head], looks) for head in heads] for row in getattr(found, name)]
        if rows:
            shown = [Column(head.upper(), shrinks=head in _LONG) for head in heads]
            lines += ["", looks.styled(name.replace("_", " "), Style.HEAD), *table(shown, rows, looks, indent=2)]
    return lines


def _error(found: WholeSession) -> list[tuple[str, str]]:
    """Return what went wrong, what helps, and the first warning."""
    error = found.columns["error"]
    if error is None:
        return []
    text = visible(str(error))
    facts = [("error", text if len(text) <= _ERROR_CHARACTERS else text[:_ERROR_CHARACTERS] + _CUT)]
    if (helps := _HELPS.get(str(found.columns["error_category"]))) is not None:
        facts.append(("hint", helps))
    if found.warnings:
        facts.append(("first warning", visible(found.warnings[0])))
    return facts


def _value(value: object, looks: Layout) -> str:
    if value is None:
        return ""
    return looks.time(value) if isinstance(value, datetime) else visible(" ".join(str(value).split()))


# --- delete -----------------------------------------------------------------------------------------------


def delete_session(written: str, *, chain: bool, as_json: bool) -> int:
    """Delete a session and its log, or its whole chain; return the exit status."""
    return run_on_database(_DELETE, partial(_deleted, written, chain), as_json=as_json, target=written)


async def _deleted(written: str, chain: bool, settings: Settings, store: Store) -> CommandResult:  # noqa: FBT001 - bound
    number = await find_in(store, written)
    if isinstance(number, CommandResult):
        return number
    at = now()
    longest = max((limit.window_seconds for limit in settings.policy.limits.values()), default=0.0)
    done = await store.deletion.delete(number, chain=chain, counted_since=at - timedelta(seconds=longest), now=at)
    if done.kept is not None:
        return _kept(written, number, done, longest)
    warnings = [sentence for path in done.log_paths if (sentence := _remove(Path(path))) is not None]
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
    return replace(answer, body={"session_id": str(number), "deleted": False, **answer.body})


def _remove(log: Path) -> str | None:
    """Remove a log; return the sentence for one that stays. Upkeep removes it when its time has come."""
    try:
        remove(log)
    except OSError as error:
        return f"the log {log} stays: {error.strerror}"
    return None
