"""Sessions while the database or the disk is away: they go on, or they are stopped politely, and nothing is lost."""

from __future__ import annotations

import json
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import anyio
import pytest

from claudeops.domain.sessions import Ending, Outcome
from claudeops.engine.control import StopControl
from claudeops.engine.daemon.lease import LeaseRenewal
from claudeops.engine.daemon.status import StatusFile, StatusWriter
from claudeops.engine.session.completion import commit_result
from claudeops.store.store import open_store
from support.estate import Estate, deliver, look, report
from support.replays import database_file
from support.waiting import until

pytestmark = pytest.mark.anyio

MEBIBYTE = 1024 * 1024


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond ``size`` bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def locked(estate: Estate) -> Iterator[None]:
    """Keep everybody else from writing to the database."""
    with closing(sqlite3.connect(database_file(estate), isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


async def impatient(estate: Estate) -> None:
    """Have the store wait for a lock for a moment only."""
    await estate.store.close()
    estate.store = open_store(estate.url, busy_seconds=0.1)
    estate.with_context(store=estate.store)


@pytest.mark.parametrize("then", [{"hang": True}, {"line_of": MEBIBYTE}], ids=["silence", "more lines"])
async def test_a_full_results_disk_stops_the_session_politely_and_says_why(
    estate: Estate, then: dict[str, object]
) -> None:
    with files_end_at(4 * MEBIBYTE):
        ending = await estate.run(*[{"line_of": MEBIBYTE}] * 6, then, {"hang": True})
    await estate.store.queue.finish(ending, rules=estate.context.rules)

    assert ending.outcome is Outcome.ERROR
    assert ending.cost_usd == 0.01  # asked politely, the CLI said what it had cost
    row = estate.row(1)
    assert row["status"] == "ended"
    (event,) = estate.rows("SELECT * FROM events WHERE level = 'critical'")
    assert "its log could not be written (File too large)" in str(event["message"])
    told = [json.loads(line) for line in estate.logged.getvalue().splitlines()]
    assert [line["level"] for line in told if line["event"] == "log_write_failed"] == ["critical"]


async def test_a_session_streams_on_under_a_locked_database_and_its_result_waits(estate: Estate) -> None:
    await impatient(estate)
    estate.script(look("toolu_1"), look("toolu_2"), deliver(report()))
    await estate.queue()
    session = await estate.claim()
    supervisor = estate.supervisor()
    with locked(estate):
        async with supervisor.run_session(session, StopControl()) as ended:
            ending = ended
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_write, estate, ending)
            await until(lambda: '"while_doing":"finish"' in estate.logged.getvalue())
            tasks.cancel_scope.cancel()
        assert estate.row(1)["status"] == "running"
    await _write(estate, ending)

    row = estate.row(1)
    assert (row["status"], row["outcome"], row["summary"]) == (
        "ended",
        "success",
        "Looked at every service of the estate.",
    )
    assert row["decision_reason"] == "no_evidence"  # no call could be recorded, so none ran
    results = [json.dumps(frame) for frame in estate.frames() if frame["type"] == "user"]
    assert [("denied" in result, '"is_error": true' in result) for result in results] == [(True, True)] * 2
    assert estate.logged.getvalue().count("database unavailable: a call that cannot be recorded") == 2
    assert estate.rows("SELECT * FROM tool_calls WHERE verdict = 'allow'") == []


async def test_daemon_json_says_not_ready_while_the_database_takes_no_writes(estate: Estate) -> None:
    await impatient(estate)
    pulse = LeaseRenewal(
        recovery=estate.store.recovery,
        owner=estate.owner,
        clock=estate.context.clock,
        running={},
        check_lock=lambda: None,
        lost=lambda: None,
        log=estate.context.log,
    )
    keeper = StatusWriter(
        file=StatusFile(estate.root / "daemon.json", estate.owner, estate.context.clock.now()),
        holds=estate.store.holds,
        clock=estate.context.clock,
        running=list,
        log=estate.context.log,
        trouble=lambda: pulse.trouble,
    )

    async def ready() -> tuple[bool, str | None]:
        await pulse.renew()
        await keeper.refresh()
        said = json.loads((estate.root / "daemon.json").read_text())
        return said["ready"], said["reason"]

    assert await ready() == (True, None)
    with locked(estate):
        is_ready, reason = await ready()
        assert not is_ready
        assert "locked" in str(reason)
    assert await ready() == (True, None)


async def _write(estate: Estate, ending: Ending) -> None:
    await commit_result(ending, queue=estate.store.queue, rules=estate.context.rules, log=estate.context.log)
