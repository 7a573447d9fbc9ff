"""``list-sessions`` and ``load-session``: what is on record of sessions."""

from __future__ import annotations

import os
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.cli.answer import AnswerShape, Body, CommandAnswer, database_url, missing, more, present
from claudeops.cli.sessions.table import NOT_FOUND, find, sessions_table
from claudeops.cli.text.layout import Column, Layout, Style, pairs, table
from claudeops.domain.answers import plain
from claudeops.domain.listing import Listing, Page
from claudeops.settings.where import results_dir
from claudeops.store.reading import opened
from claudeops.store.reading.session_rows import ListedSession, WholeSession, listed, whole
from claudeops.text.escapes import visible

_LIST: Final = "list-sessions"
_LOAD: Final = "load-session"
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
