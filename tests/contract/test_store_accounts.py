"""Any store: what is on record about a session, for who reads its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claudeops.domain.model import Level, ReportedEvent, ToolCall, Verdict, VerdictKind
from support.store_values import NOW, RULES, after, check, one_session, queued, report, started

if TYPE_CHECKING:
    from claudeops.engine.ports import Store

pytest_plugins = ("support.store_fixtures",)


async def test_without_a_session_there_is_no_newest(store: Store) -> None:
    assert await store.newest() is None


async def test_newest_is_the_one_that_runs_even_if_others_were_queued_since(store: Store) -> None:
    await one_session(store, report(check("web")))
    running = await started(store, at=after(hours=1))
    await queued(store, at=after(hours=2))

    newest = await store.newest()

    assert newest is not None
    assert newest.id == running.id


async def test_newest_is_the_last_one_when_none_runs(store: Store) -> None:
    await one_session(store, report(check("web")))
    await one_session(store, report(check("web")), at=after(hours=1))

    newest = await store.newest()

    assert newest is not None
    assert newest.id == 2


async def test_an_account_has_the_verdicts_and_the_events_of_its_session_alone(store: Store) -> None:
    session = await started(store)
    for tool_use_id, kind in (("a", VerdictKind.ALLOW), ("b", VerdictKind.DENY)):
        await store.record_call(
            session,
            ToolCall(tool_use_id=tool_use_id, tool_name="Bash", input={}),
            Verdict(kind=kind, reason=f"because of {tool_use_id}"),
            shown_input="{}",
            rules=RULES,
            requested_at=NOW,
            now=NOW,
        )
    said = ReportedEvent(level=Level.WARNING, message="db is slow", service="db")
    await one_session(store, report(check("db"), events=(said,)), at=after(hours=1))

    first, second = await store.account(session.id), await store.account(2)

    assert first.verdicts == {
        "a": Verdict(kind=VerdictKind.ALLOW, reason="because of a"),
        "b": Verdict(kind=VerdictKind.DENY, reason="because of b"),
    }
    assert first.events == ()
    assert not second.verdicts
    assert [(event.message, event.session_id) for event in second.events] == [("db is slow", 2)]
