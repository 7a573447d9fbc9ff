"""How SQLite would find what a statement asks for, looked up beside every statement that the product executes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

# Tables that grow with the time that a daemon runs, or with what is sent to it. The others hold what an operator
# declares or does (probes, tokens, users, flags), or what is over within minutes (logins, links, instances).
BIG: Final = frozenset(
    {
        *("events", "sessions", "tool_calls", "model_calls", "service_checks", "cooldown_actions", "budget_entries"),
        "settled_sums",
        *("audit_tombstones", "approvals", "approval_answers", "approval_messages", "passkey_assertions", "outbox"),
        *("alerts", "alert_deliveries", "alert_decisions", "incidents", "memories", "session_memories"),
        *("session_texts", "probe_history", "schedule_fires", "idempotency_keys", "commands"),
    }
)

EXCEPTIONS: Final = (
    # A page in the order of the key: the limit bounds it.
    r"^SELECT (?:(?! WHERE ).)* ORDER BY \w+\.(id|number)( DESC)? LIMIT \S+ OFFSET \S+$",
    r"^SELECT (?:(?! FROM sessions WHERE ).)* FROM sessions ORDER BY sessions\.id( DESC)? LIMIT \S+ OFFSET \S+$",
    # The newest session that has begun: by the key from its end, where few wait.
    r"^SELECT sessions\..* FROM sessions WHERE sessions\.started_at IS NOT NULL ORDER BY sessions\.id DESC LIMIT",
    # Whether people have signed at all, which they do a few times a day; and all memories, which are listed.
    r"^SELECT approval_answers\.id FROM approval_answers WHERE approval_answers\.assertion IS NOT NULL LIMIT",
    r"^SELECT memories\.(?:(?! WHERE ).)* FROM memories( ORDER BY memories\.id)?$",
    # Sums over all time, which `/api/v1/stats` promises.
    r"^SELECT count\(\*\) AS count_1, count\(sessions\.parent_session_id\)",
    r"^SELECT count\(\*\) AS count_1 FROM cooldown_actions WHERE cooldown_actions\.success = 1$",
    # Once, when another program's database is taken over.
    r"^SELECT memories\.service, memories\.category, memories\.observation FROM memories$",
    r"^SELECT commands\..* FROM commands WHERE commands\.name = \?",
    # Every row, in the order of its key, when the database is copied.
    r'^SELECT ("\w+"(, )?)+ FROM "\w+" ORDER BY ("\w+"(, )?)+ LIMIT \? OFFSET \?$',
    # Migrations, which change every row.
    r"^INSERT INTO (alert_sources|settled_sums|_alembic_tmp_\w+) ",
    r"^UPDATE sessions SET failure_kind=\?",
    # The tests' own.
    r"^DELETE FROM sessions$",
    r"^SELECT (?P<whole>events|idempotency_keys|passkey_assertions)\.(?:(?! WHERE ).)* FROM (?P=whole)$",
    r"^UPDATE idempotency_keys SET status = NULL, answer = NULL$",
    r"^UPDATE (approvals|approval_answers|passkey_assertions) SET (?:(?! WHERE ).)*$",  # forged answers of people
    r"^DELETE FROM passkey_assertions$",
)
_EXCEPTIONS: Final = re.compile("|".join(EXCEPTIONS))
_SCAN: Final = re.compile(r"SCAN (\w+)")
_KEYWORDS: Final = ("SELECT", "UPDATE", "DELETE", "INSERT", "WITH")

_seen: set[str] = set()  # by the whole process: a plan follows from the text alone, as the files have no statistics


@contextmanager
def watched_plans() -> Iterator[list[str]]:
    """Yield a list of the statements by which the block reads a big table as a whole, each with its plan."""
    scans: list[str] = []

    def look(connection: sa.Connection, _: object, statement: str, parameters: Any, __: object, many: bool) -> None:
        text = " ".join(statement.split())
        if text in _seen or connection.dialect.name != "sqlite" or isinstance(connection.engine.pool, NullPool):
            return  # connections without a pool are the tests' own
        _seen.add(text)
        if not text.startswith(_KEYWORDS) or _EXCEPTIONS.match(text):
            return
        cursor = connection.connection.cursor()
        cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters[0] if many else parameters)
        steps = [step for *_, step in cursor.fetchall()]
        cursor.close()
        scanned = {found[1] for step in steps if (found := _SCAN.match(step))}
        if scanned & BIG:
            scans.append("\n  ".join([text, *steps]))

    sa.event.listen(sa.Engine, "before_cursor_execute", look)
    try:
        yield scans
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", look)
