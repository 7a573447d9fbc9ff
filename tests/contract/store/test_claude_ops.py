"""Any store: what Claude Ops had on record is taken over once, and what is not is said."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from claudeops.errors import ConfigurationError, DatabaseUnavailableError, MissingInputError
from claudeops.store.claude_ops.source import opened
from claudeops.store.claude_ops.takeover import Takeover, TakeoverResult
from claudeops.store.store import Store
from claudeops.text.redact import Redactor
from support.claude_ops import ROWS, old_database
from support.store_values import NOW, OWNER, RULES, after, check, ending, report, started
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio


async def take(store: Store, path: Path, *, now: datetime = NOW) -> TakeoverResult:
    with opened(path) as source:
        redact = Redactor(["planted-secret-value"]).text
        return await Takeover(store.database).take(source, by="ada", path=str(path), redact=redact, now=now)


@pytest.mark.dialect
async def test_sessions_keep_their_chains_and_what_is_known_of_them(
    store: Store, database: Database, tmp_path: Path
) -> None:
    done = await take(store, old_database(tmp_path / "old.db"))
    rows = database.rows("sessions")

    assert done.taken["sessions"] == 5
    assert [(row["tier"], row["outcome"], row["decision_reason"], row["trigger"]) for row in rows] == [
        (1, "success", None, "scheduled"),
        (1, "success", "escalated", "manual"),
        (2, "error", None, "escalation"),
        (2, "timeout", None, "escalation"),
        (1, "error", None, "alert"),
    ]
    first, second, third, fourth, fifth = (row["id"] for row in rows)
    assert [row["root_session_id"] for row in rows] == [first, second, second, second, fifth]
    assert [row["parent_session_id"] for row in rows] == [None, None, second, second, None]
    assert [row["error"] for row in rows][2:] == [
        "Claude Ops recorded it as failed",
        "Claude Ops recorded it as timed_out",
        "Claude Ops recorded no end of this session",
    ]
    one = rows[0]
    assert (one["model"], float(str(one["cost_usd"])), one["num_turns"], one["summary"]) == (
        "haiku",
        0.02,
        4,
        "All is well.",
    )
    assert (one["started_at"], one["ended_at"]) == (
        datetime(2026, 2, 1, 8, 0, tzinfo=UTC),
        datetime(2026, 2, 1, 8, 1, tzinfo=UTC),
    )
    assert rows[1]["prompt_text"] == "the key is [redacted]"
    assert [session.id for session in await store.records.chain(int(str(second)))] == [second, third, fourth]


@pytest.mark.dialect
async def test_events_memories_actions_and_checks_follow_their_sessions(
    store: Store, database: Database, tmp_path: Path
) -> None:
    done = await take(store, old_database(tmp_path / "old.db"))

    assert dict(done.taken) == {
        "sessions": 5,
        "events": 2,
        "memories": 2,
        "cooldown_actions": 1,
        "service_checks": 2,
    }
    assert [(row["level"], row["service"], row["session_id"]) for row in database.rows("events")] == [
        ("critical", "web", 2),
        ("info", None, None),
    ]
    assert all(row["resolved_at"] is not None for row in database.rows("events"))
    assert [
        (row["service"], row["category"], row["confidence"], row["active"], row["trust"], row["session_id"])
        for row in database.rows("memories")
    ] == [("web", "timing", 0.9, True, "confirmed", 1), ("db", "behaviour", 0.2, False, "quarantined", 3)]
    (action,) = database.rows("cooldown_actions")
    assert (action["service"], action["action_type"], action["success"], action["held"]) == (
        "web",
        "restart",
        True,
        "unknown",
    )
    assert [(row["status"], row["detail"]) for row in database.rows("service_checks")] == [
        ("healthy", "http, 40 ms"),
        ("down", "http, 502"),
    ]


async def test_an_action_that_failed_there_has_failed_here(store: Store, database: Database, tmp_path: Path) -> None:
    failed = "UPDATE cooldown_actions SET success = 0, error = 'no image' WHERE session_id IS NOT NULL;"
    await take(store, old_database(tmp_path / "old.db", rows=ROWS + failed))

    (action,) = database.rows("cooldown_actions")
    assert (action["success"], action["error"]) == (False, "no image")


async def test_what_is_left_is_counted_by_its_reason(store: Store, tmp_path: Path) -> None:
    done = await take(store, old_database(tmp_path / "old.db"))

    assert dict(done.left) == {
        "sessions without a readable time or tier": 1,
        "events without a readable time or text": 1,
        "memories that read like an order, or hold a secret or markup": 1,
        "cooldown actions without a readable time, service or session": 1,
        "health checks without a readable time, service or status": 1,
        "counts of healthy checks in a row: claudeops counts anew": 1,
        "set CLAUDEOPS_INTERVAL yourself (its dashboard had changed it)": 1,
        "settings of its dashboard without a name here": 1,
    }


@pytest.mark.dialect
async def test_a_second_time_takes_nothing_even_from_a_copy(store: Store, database: Database, tmp_path: Path) -> None:
    old = old_database(tmp_path / "old.db")
    await take(store, old)
    (tmp_path / "copy.db").write_bytes(old.read_bytes())
    again = await take(store, tmp_path / "copy.db", now=after(days=1))

    assert (again.done_at, dict(again.taken)) == (NOW, {})
    assert len(database.rows("sessions")) == 5
    assert await store.commands.take(OWNER.name, now=after(days=2), again=True) == ()


async def test_what_was_seen_here_is_newer_than_what_is_taken_over(
    store: Store, database: Database, tmp_path: Path
) -> None:
    session = await started(store)
    await store.queue.finish(ending(session, report(check("web"))), rules=RULES)
    done = await take(store, old_database(tmp_path / "old.db"))

    assert done.left["health checks of services that were looked at here already"] == 2
    assert [row["service"] for row in database.rows("service_checks")] == ["web"]


async def test_a_file_of_its_first_release_has_fewer_columns_and_tables(store: Store, tmp_path: Path) -> None:
    old = old_database(tmp_path / "old.db", later=False)
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute(
            "INSERT INTO sessions (tier, model, prompt_file, status, started_at)"
            " VALUES (1, 'haiku', 'p', 'completed', '2026-01-05T08:00:00Z')"
        )
    done = await take(store, old)
    assert (dict(done.taken), dict(done.left)) == ({"sessions": 1}, {})


async def test_another_programs_file_is_refused(store: Store, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE sessions (id)")
    with pytest.raises(ConfigurationError, match="is not the database of Claude Ops"):
        await take(store, tmp_path / "other.db")
    with pytest.raises(MissingInputError, match=r"state is not a file: name the claudeops\.db"):
        await take(store, tmp_path / "state")
    (tmp_path / "text.db").write_text("no database at all, but long enough to be one " * 10, encoding="utf-8")
    with pytest.raises(DatabaseUnavailableError, match="cannot be read"):
        await take(store, tmp_path / "text.db")


async def test_a_directory_is_as_good_as_its_file(store: Store, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    old_database(tmp_path / "state" / "claudeops.db")
    assert (await take(store, tmp_path / "state")).taken["sessions"] == 5
