"""The database of Claude Ops, opened for reading only: what its rows mean, in our words.

Its tables are those of its seven migrations; an older file lacks columns, which then read as null. Times are RFC 3339,
or SQLite's own with a blank, and always UTC.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from claudeops.domain.events import EventLevel
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.sessions import Outcome, Trigger
from claudeops.errors import ConfigurationError, DatabaseUnavailableError, ErrorKind, MissingInputError
from claudeops.store.migrate import CLAUDE_OPS_TABLES

Row = Mapping[str, object]

NAMES: Final = ("claude-ops.db", "claudeops.db")
"""What its file may be called in a directory: as the message about it says, else as it was."""

_COLUMNS: Final = {
    "sessions": "id tier model status started_at ended_at exit_code response cost_usd num_turns duration_ms trigger "
    "prompt_text parent_session_id summary",
    "events": "id session_id level service message created_at",
    "memories": "id service category observation confidence active created_at updated_at session_id tier",
    "cooldown_actions": "id session_id service action_type timestamp success tier error",
    "health_checks": "id session_id service check_type status response_time_ms error_detail checked_at",
    "service_health_streak": "service",
    "config": "key",
}
_ORDER: Final = {"service_health_streak": "service", "config": "key"}
_OUTCOMES: Final = {
    "completed": Outcome.SUCCESS,
    "escalated": Outcome.SUCCESS,
    "timed_out": Outcome.TIMEOUT,
    "failed": Outcome.ERROR,
}
_TRIGGERS: Final = {trigger.value: trigger for trigger in Trigger} | {"webhook": Trigger.ALERT}
_LEVELS: Final = {level.value: level for level in EventLevel}
_BUSY_SECONDS: Final = 10.0


class ClaudeOpsFile:
    """One file, for as long as `opened` keeps it open: one moment of it, whoever writes to it meanwhile."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    @property
    def origin(self) -> str:
        """Which installation's it is, whatever the file is called by now: a digest of when its tables were made."""
        made = self._connection.execute(
            "SELECT version_id, tstamp FROM goose_db_version ORDER BY id LIMIT 3"
        ).fetchall()
        first = self._connection.execute("SELECT id, tier, started_at FROM sessions ORDER BY id LIMIT 1").fetchall()
        return hashlib.sha256(repr((made, first)).encode()).hexdigest()[:32]

    def rows(self, table: str) -> Iterator[Row]:
        """Yield the rows of one of its tables, the oldest first; none if it has no such table yet."""
        if table not in self.tables:
            return
        there = {row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")}
        wanted = _COLUMNS[table].split()
        listed = ", ".join(name if name in there else f"NULL AS {name}" for name in wanted)
        # Names of ours alone; nothing of the file goes into the statement.
        statement = f"SELECT {listed} FROM {table} ORDER BY {_ORDER.get(table, 'id')}"  # noqa: S608 - see above
        for row in self._connection.execute(statement):
            yield dict(zip(wanted, row, strict=True))


@contextmanager
def opened(path: Path) -> Iterator[ClaudeOpsFile]:
    """Open the file, or the one in the directory.

    Raises `MissingInputError`, `ConfigurationError` for another program's file, or `DatabaseUnavailableError` for one
    that is locked or damaged.
    """
    file = _file(path)
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as there:
            there.text_factory = lambda raw: raw.decode("utf-8", "replace")
            there.execute("BEGIN")  # one moment for all tables
            source = ClaudeOpsFile(there)
            if not source.tables >= CLAUDE_OPS_TABLES:
                raise ConfigurationError(
                    f"{file} is not the database of Claude Ops: name the claudeops.db of its state directory.",
                    operation="migrate_from",
                    target=str(file),
                )
            yield source
    except sqlite3.Error as error:
        raise DatabaseUnavailableError(
            f"{file} cannot be read ({error}): stop Claude Ops, or copy the file with its -wal and -shm.",
            kind=ErrorKind.FILESYSTEM,
            operation="migrate_from",
            target=str(file),
        ) from error


def moment(value: object) -> datetime | None:
    """Return a time; ``None`` for what is none."""
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def outcome(status: object) -> tuple[Outcome, str | None]:
    """Return how a session ended, and what is to be said of it."""
    found = _OUTCOMES.get(str(status))
    if found is None:  # `running`: it recorded no end
        return Outcome.ERROR, "Claude Ops recorded no end of this session"
    return found, None if found is Outcome.SUCCESS else f"Claude Ops recorded it as {status}"


def trigger(value: object, *, has_parent: bool) -> Trigger:
    """Return why a session was started."""
    return Trigger.ESCALATION if has_parent else _TRIGGERS.get(str(value), Trigger.MANUAL)


def level(value: object) -> EventLevel:
    """Return an event's level."""
    return _LEVELS.get(str(value).lower(), EventLevel.INFO)


def service_status(value: object) -> ServiceStatus | None:
    """Return how a service was found; ``None`` for a word that says nothing."""
    try:
        return ServiceStatus(str(value).lower())
    except ValueError:
        return None


def whole(value: object) -> int | None:
    """Return a number as SQLite's loose types have it."""
    return int(value) if isinstance(value, int | float) else None


def text(value: object) -> str | None:
    """Return a text; blank is none."""
    return str(value) if value is not None and str(value).strip() else None


def _file(path: Path) -> Path:
    candidates = [path / name for name in NAMES] if path.is_dir() else [path]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise MissingInputError(
        f"{candidates[0]} is not a file: name the claudeops.db of Claude Ops.",
        operation="migrate_from",
        target=str(path),
    )
