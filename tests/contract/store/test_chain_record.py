"""Any store: what is told of a chain is what its sessions did, in order, and nothing of other chains."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import ToolEnd, Verdict, VerdictKind
from claudeops.domain.chains.chain_record import ChainRecord, JudgedCall
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.live import EventRaised
from claudeops.store.store import Store
from support.store_values import RULES, after, allow, ending, one_session, recorded, report, restart, started, wanted

pytest_plugins = ("support.store_fixtures",)

DENY = Verdict(kind=VerdictKind.DENY, reason="not for this tier")


@pytest.mark.dialect
async def test_record_of_a_chain_holds_its_calls_actions_and_events_in_order(store: Store) -> None:
    await one_session(store, report(events=(NewEvent(level=EventLevel.INFO, message="of another chain"),)))
    session = await started(store, wanted(2))
    await recorded(store, session, "toolu_1", DENY)
    await recorded(store, session, "toolu_2", allow(restart()))
    ended = ToolEnd(tool_use_id="toolu_2", ended_at=after(minutes=1), is_error=False)
    said = report(
        events=(
            NewEvent(level=EventLevel.WARNING, message="first", service="web"),
            NewEvent(level=EventLevel.INFO, message="second"),
        )
    )
    await store.queue.finish(ending(session, said, tool_ends=(ended,)), rules=RULES)

    record = await store.records.chain_record(session.id)

    assert record.calls == (
        JudgedCall(
            session_id=session.id,
            tool_name="Bash",
            redacted_input="{}",
            verdict=VerdictKind.DENY,
            reason="not for this tier",
            is_error=None,
        ),
        JudgedCall(
            session_id=session.id,
            tool_name="Bash",
            redacted_input="{}",
            verdict=VerdictKind.ALLOW,
            reason="granted by the policy",
            is_error=False,
        ),
    )
    (action,) = record.actions
    assert (action.session_id, action.kind, action.service) == (session.id, "restart", "web")
    assert (action.tier, action.tool_use_id, action.success, action.error) == (2, "toolu_2", True, None)
    assert record.events[:2] == (
        EventRaised(
            at=after(minutes=1), session_id=session.id, level=EventLevel.WARNING, service="web", message="first"
        ),
        EventRaised(at=after(minutes=1), session_id=session.id, level=EventLevel.INFO, service=None, message="second"),
    )


async def test_record_of_a_chain_that_does_not_exist_is_empty(store: Store) -> None:
    assert await store.records.chain_record(4711) == ChainRecord()
