"""Any store: what is on record about a session, for who reads its log."""

from __future__ import annotations

from functools import partial

import pytest

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.chains.chain_record import SessionPosition, TimedVerdict
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.sessions import Status
from claudeops.store.reading.calls import CallVerdict, verdicts
from claudeops.store.store import Store
from support.store_values import NOW, RULES, after, check, one_session, queued, report, started

pytest_plugins = ("support.store_fixtures",)


async def test_without_a_session_there_is_no_newest(store: Store) -> None:
    assert await store.records.newest() is None


@pytest.mark.dialect
async def test_newest_is_the_one_that_runs_even_if_others_were_queued_since(store: Store) -> None:
    await one_session(store, report(check("web")))
    running = await started(store, at=after(hours=1))
    await queued(store, at=after(hours=2))

    newest = await store.records.newest()

    assert newest is not None
    assert newest.id == running.id


async def test_newest_is_the_last_one_when_none_runs(store: Store) -> None:
    await one_session(store, report(check("web")))
    await one_session(store, report(check("web")), at=after(hours=1))

    newest = await store.records.newest()

    assert newest is not None
    assert newest.id == 2


@pytest.mark.dialect
async def test_an_account_has_the_verdicts_and_the_events_of_its_session_alone(store: Store) -> None:
    session = await started(store)
    for tool_use_id, kind in (("a", VerdictKind.ALLOW), ("b", VerdictKind.DENY)):
        await store.calls.record_call(
            session,
            ToolCall(tool_use_id=tool_use_id, tool_name="Bash", input={}),
            Verdict(kind=kind, reason=f"because of {tool_use_id}"),
            redacted_input="{}",
            rules=RULES,
            requested_at=NOW,
            now=NOW,
        )
    said = NewEvent(level=EventLevel.WARNING, message="db is slow", service="db")
    await one_session(store, report(check("db"), events=(said,)), at=after(hours=1))

    first, second = await store.records.session_record(session.id), await store.records.session_record(2)

    assert first.verdicts == {
        "a": (TimedVerdict(verdict=Verdict(kind=VerdictKind.ALLOW, reason="because of a"), at=NOW),),
        "b": (TimedVerdict(verdict=Verdict(kind=VerdictKind.DENY, reason="because of b"), at=NOW),),
    }
    assert first.events == ()
    assert not second.verdicts
    assert [(event.message, event.session_id) for event in second.events] == [("db is slow", 2)]


async def test_a_call_that_was_put_to_people_has_both_answers_in_their_order(store: Store) -> None:
    session = await started(store)
    said = [(VerdictKind.ASK, NOW), (VerdictKind.ALLOW, after(minutes=5))]
    for kind, at in said:
        await store.calls.record_call(
            session,
            ToolCall(tool_use_id="a", tool_name="Bash", input={}),
            Verdict(kind=kind, reason="x"),
            redacted_input="{}",
            rules=RULES,
            requested_at=at,
            now=at,
        )

    account = await store.records.session_record(session.id)

    assert [(judged.verdict.kind, judged.at) for judged in account.verdicts["a"]] == said


async def test_under_way_is_what_has_not_ended_and_whatever_came_later(store: Store) -> None:
    await one_session(store, report(check("web")))
    await started(store, at=after(hours=1))
    await queued(store, at=after(hours=2))
    later = [
        SessionPosition(session_id=2, chain=2, status=Status.RUNNING),
        SessionPosition(session_id=3, chain=3, status=Status.QUEUED),
    ]

    assert list(await store.records.under_way(3)) == later
    assert list(await store.records.under_way(0)) == [
        SessionPosition(session_id=1, chain=1, status=Status.ENDED),
        *later,
    ]


@pytest.mark.dialect
async def test_whoever_reads_the_lines_of_a_session_sees_the_last_word_on_each_call(store: Store) -> None:
    assert isinstance(store, Store)
    session, other = await started(store), await started(store, at=after(hours=1))
    given = (
        (session, "a", VerdictKind.DENY, 0),
        (session, "a", VerdictKind.ALLOW, 1),
        (other, "b", VerdictKind.DENY, 0),
    )
    for of, tool_use_id, kind, minutes in given:
        await store.calls.record_call(
            of,
            ToolCall(tool_use_id=tool_use_id, tool_name="Bash", input={}),
            Verdict(kind=kind, reason=f"{kind.value} it"),
            redacted_input="{}",
            rules=RULES,
            requested_at=after(minutes=minutes),
            now=after(minutes=minutes),
        )

    assert await store.database.read(partial(verdicts, session_id=session.id)) == {
        "a": CallVerdict(
            verdict=VerdictKind.ALLOW,
            reason="allow it",
            requested_at=NOW,
            decided_at=after(minutes=1),
            ended_at=None,
            is_error=None,
        )
    }
