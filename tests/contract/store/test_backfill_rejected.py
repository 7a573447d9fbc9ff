"""Any store: nothing is written into a row that is not the log's, or whose end is still to come."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import ToolEnd
from claudeops.domain.chains.backfill import BackfillRejected, RejectionReason
from claudeops.domain.sessions import Session, Status
from claudeops.errors import StaleAttemptError
from claudeops.store.store import Store
from claudeops.structs import replace
from support.late_reports import FULL, all_rows, amended, lost, read
from support.store_values import (
    RULES,
    after,
    claimed,
    gone,
    queued,
    started,
    wanted,
)
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

ENDS = (ToolEnd(tool_use_id="toolu_1", ended_at=after(minutes=1), is_error=False),)


async def test_nothing_is_written_for_a_session_that_has_not_ended(store: Store, database: Database) -> None:
    running = await started(store)
    waiting = await queued(store)
    before = all_rows(database)

    for session in (running, waiting):
        refused = await store.recovery.backfill(read(session))
        assert isinstance(refused, BackfillRejected)
        assert refused.reason is RejectionReason.NOT_ENDED
        assert refused.message == f"Session {session.id} is {session.status.value}: wait until it has ended."

    assert all_rows(database) == before
    assert running.status is Status.RUNNING


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"session_id": 99}, RejectionReason.UNKNOWN_SESSION, id="no such row"),
        pytest.param({"cli_session_id": "another-id"}, RejectionReason.OTHER_SESSION, id="another session's log"),
        pytest.param({"cli_session_id": None}, RejectionReason.OTHER_SESSION, id="nobody's log"),
    ],
)
async def test_nothing_is_written_into_the_wrong_row(
    store: Store, database: Database, changes: dict[str, object], reason: RejectionReason
) -> None:
    session = await lost(store, tier=2, calls=True)
    before = all_rows(database)

    refused = await store.recovery.backfill(read(session, FULL, tool_ends=ENDS, **changes))

    assert isinstance(refused, BackfillRejected)
    assert refused.reason is reason
    assert all_rows(database) == before


async def test_row_that_never_had_a_cli_session_takes_no_log(store: Store, database: Database) -> None:
    await queued(store, wanted(3))
    blocked = await claimed(store, with_rules=replace(RULES, max_tier=2))
    assert blocked is None
    session = await store.records.session(1)
    assert session is not None
    before = all_rows(database)

    refused = await store.recovery.backfill(read(session))

    assert isinstance(refused, BackfillRejected)
    assert refused.reason is RejectionReason.OTHER_SESSION
    assert all_rows(database) == before


async def test_another_attempt_is_stale(store: Store, database: Database) -> None:
    session = await lost(store)
    before = all_rows(database)

    with pytest.raises(StaleAttemptError):
        await store.recovery.backfill(read(session, attempt=session.attempt + 1))

    assert all_rows(database) == before


# --- which CLI session a row is -------------------------------------------------------------------------


@pytest.mark.dialect
async def test_id_that_the_cli_chose_itself_is_the_rows_from_then_on(store: Store, database: Database) -> None:
    session = await started(store)

    await store.queue.identify(session, "thread-1")

    assert database.rows("sessions")[0]["cli_session_id"] == "thread-1"
    gone = await lost_as_it_is(store)
    assert isinstance(await store.recovery.backfill(read(session)), BackfillRejected)
    assert (await amended(store, read(gone))).session.cli_session_id == "thread-1"


async def lost_as_it_is(store: Store) -> Session:
    """End the running session as lost."""
    (row,) = await gone(store, at=after(hours=1))
    return row


async def test_id_for_a_session_that_does_not_run_is_stale(store: Store, database: Database) -> None:
    session = await started(store)
    await queued(store)
    ended = await first_ended(store)
    waiting = await queued(store)
    before = all_rows(database)

    for other in (ended, waiting, replace(session, attempt=2)):
        with pytest.raises(StaleAttemptError):
            await store.queue.identify(other, "thread-1")

    assert all_rows(database) == before


async def first_ended(store: Store) -> Session:
    """Run the session that waits; return it as it was claimed."""
    session = await claimed(store)
    assert session is not None
    await store.queue.finish(read(session), rules=RULES)
    return session
