"""Names for completion, asked of the database directly: a shell waits for them at every press of a key.

No toolkit is imported, because that takes longer than the question. Reads only, for a moment, and finds nothing rather
than failing: whoever writes a command line is helped, or not.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

_SQLITE: Final = "sqlite:///"
_SECONDS: Final = 0.1  # for a lock
_MOST: Final = 50

SESSIONS: Final = "SELECT id, tier || ' · ' || coalesce(outcome, status) FROM sessions ORDER BY id DESC LIMIT ?"
APPROVALS: Final = (
    "SELECT id, 'session ' || session_id || ' · ' || coalesce(tool_name, '')"
    " FROM approvals WHERE status = 'pending' ORDER BY id DESC LIMIT ?"
)
MEMORIES: Final = "SELECT 'm' || id, coalesce(service, category) FROM memories ORDER BY id DESC LIMIT ?"
SERVICES: Final = "SELECT DISTINCT service, '' FROM service_checks ORDER BY service LIMIT ?"
PROBES: Final = "SELECT name, state FROM probes ORDER BY name LIMIT ?"


def found(url: str, question: str) -> list[tuple[str, str]]:
    """Return names with what they stand for; nothing where the database is away, locked, or of another version."""
    try:
        return _sqlite(url, question) if url.startswith(_SQLITE) else _postgresql(url, question)
    except Exception:  # noqa: BLE001 - of two drivers; a shell that completes has no place for an error
        return []


def _sqlite(url: str, question: str) -> list[tuple[str, str]]:
    file = Path(url.removeprefix(_SQLITE).partition("?")[0])
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=_SECONDS)) as connection:
        return [(str(name), str(says)) for name, says in connection.execute(question, (_MOST,))]


def _postgresql(url: str, question: str) -> list[tuple[str, str]]:
    import psycopg  # noqa: PLC0415 - most databases are files

    address = url.replace("postgresql+psycopg://", "postgresql://", 1)
    with psycopg.connect(address, connect_timeout=2) as connection:
        rows = connection.execute(question.replace("?", "%s").encode(), (_MOST,)).fetchall()
        return [(str(name), str(says)) for name, says in rows]
