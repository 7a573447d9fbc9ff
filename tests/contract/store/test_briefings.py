"""Any store: what a session was given to read is on record with it."""

from __future__ import annotations

import pytest

from claudeops.domain.briefing import BriefingText, TextKind
from claudeops.domain.report.report import Report, ReportedMemory
from claudeops.domain.retention import Aged, cutoffs
from claudeops.errors import StaleAttemptError
from claudeops.store.store import Store
from support.store_values import RULES, after, check, ending, one_session, report, started
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

LATER = after(days=100)
CHECK = BriefingText(kind=TextKind.CHECK, name="http", origin="built in", digest="ab" * 32)
MANIFEST = BriefingText(kind=TextKind.MANIFEST, name="media", origin="media/CLAUDE-OPS.md", digest="cd" * 32)


def remembered(observation: str) -> Report:
    return report(check("web"), memories=(ReportedMemory(category="timing", observation=observation, service="web"),))


async def test_what_a_session_is_given_is_on_record(store: Store, database: Database) -> None:
    await one_session(store, remembered("starts within 30 s"), at=after(days=-2))
    await one_session(store, remembered("answers at once"), at=after(days=-1))
    session = await started(store)

    await store.briefings.record(session.id, attempt=session.attempt, memory_ids=[2, 1, 2, 77], texts=(CHECK, MANIFEST))

    shown = [(row["session_id"], row["memory_id"]) for row in database.rows("session_memories")]
    assert sorted(shown, key=str) == [(session.id, 1), (session.id, 2)]
    assert database.rows("session_texts") == [
        {"id": 1, "session_id": session.id, "kind": "check", "name": "http", "origin": "built in", "digest": "ab" * 32},
        {
            "id": 2,
            "session_id": session.id,
            "kind": "manifest",
            "name": "media",
            "origin": "media/CLAUDE-OPS.md",
            "digest": "cd" * 32,
        },
    ]


@pytest.mark.dialect
async def test_a_second_record_replaces_the_first(store: Store, database: Database) -> None:
    await one_session(store, remembered("starts within 30 s"), at=after(days=-2))
    session = await started(store)
    await store.briefings.record(session.id, attempt=session.attempt, memory_ids=[1], texts=(CHECK,))

    await store.briefings.record(session.id, attempt=session.attempt, memory_ids=[], texts=(MANIFEST,))

    assert database.rows("session_memories") == []
    assert [row["kind"] for row in database.rows("session_texts")] == ["manifest"]


async def test_only_the_attempt_that_runs_is_recorded(store: Store, database: Database) -> None:
    session = await started(store)

    with pytest.raises(StaleAttemptError, match="attempt 2"):
        await store.briefings.record(session.id, attempt=2, memory_ids=[], texts=(CHECK,))

    assert database.rows("session_texts") == []


async def test_an_ended_session_is_given_nothing(store: Store) -> None:
    end = await one_session(store, report(check("web")))

    with pytest.raises(StaleAttemptError):
        await store.briefings.record(end.session_id, attempt=end.attempt, memory_ids=[], texts=())


async def test_records_go_with_their_session_and_memories_stay(store: Store, database: Database) -> None:
    await one_session(store, remembered("starts within 30 s"), at=after(days=-1))
    session = await started(store)
    await store.briefings.record(session.id, attempt=session.attempt, memory_ids=[1], texts=(CHECK,))
    await store.queue.finish(ending(session, report(check("web"))), rules=RULES)

    old = cutoffs(LATER, retention_days=30)
    while (await store.retention.expire(Aged.CHAINS, old, now=LATER, rows=500)).more:
        pass

    assert database.rows("sessions") == []
    assert (database.rows("session_memories"), database.rows("session_texts")) == ([], [])
    assert [(row["observation"], row["session_id"]) for row in database.rows("memories")] == [
        ("starts within 30 s", None)
    ]
