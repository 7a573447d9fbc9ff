"""What becomes of sessions whose daemon died, by what their logs hold."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from claudeops.domain.chains.backfill import Backfilled, BackfillRejected
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.live import EventRaised, SessionEnded
from claudeops.domain.sessions import Ending, Finished, Outcome, Session
from claudeops.engine.cell.workspace import Workspace, workspace_name
from claudeops.engine.recovery.recovery import SessionRecovery, free_log_path, highest_log_number
from claudeops.engine.recovery.replay import read_log
from claudeops.errors import DatabaseUnavailableError, StoreError
from claudeops.formats.stream import Malformed, StreamEvent, StreamFrame, Transcript
from claudeops.harness import HARNESSES
from claudeops.harness.claude import ClaudeHarness
from claudeops.harness.protocol import FrameReader
from claudeops.store import recovery as store_recovery
from claudeops.store.queue import Queue
from claudeops.store.store import open_store
from claudeops.structs import replace
from support.estate import Estate, deliver, look, report
from support.replays import copy_database, line_of, ran, restore_database, result_line
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

EVENT = {"level": "warning", "service": "web", "message": "web is slow"}
HANDOFF = {
    "schema_version": 1,
    "recommended_tier": 2,
    "services_affected": ["web"],
    "check_results": [{"service": "web", "check_type": "http", "status": "down", "error": "502"}],
    "investigation_findings": "The upstream is gone.",
}


async def orphans(estate: Estate) -> Sequence[Session]:
    """Take over what runs, as the next daemon does after the first was killed."""
    estate.owner = replace(estate.owner, name=f"{estate.owner.name}+")
    now = estate.context.clock.now()
    return (await estate.store.recovery.reconcile(estate.owner, now=now, alive=lambda _: False)).sessions


async def restarted(estate: Estate) -> SessionRecovery:
    """Go through what a start does with dead sessions."""
    recovery = SessionRecovery(context=estate.context)
    await recovery.take_up(await orphans(estate))
    return recovery


def sessions(estate: Estate) -> list[tuple[object, object, object]]:
    rows = estate.rows("SELECT * FROM sessions ORDER BY id")
    return [(row["tier"], row["trigger"], row["outcome"] or row["status"]) for row in rows]


async def test_a_result_that_reached_the_log_is_in_the_database_once_with_its_decision(estate: Estate) -> None:
    await ran(estate, look(), deliver(report(needed=True, status="down")))

    await restarted(estate)
    await restarted(estate)

    assert sessions(estate) == [(1, "manual", "success"), (2, "escalation", "queued")]
    row = estate.row(1)
    assert (row["decision_reason"], row["cost_usd"], row["calls_ran"]) == ("escalated", 0.01, 1)
    for table in ("service_checks", "budget_entries"):
        assert len(estate.rows(f"SELECT * FROM {table}")) == 1  # noqa: S608 - our own names
    assert "session_recovered" in estate.logged.getvalue()


@pytest.mark.parametrize("cut", [1, 40])
async def test_a_result_line_that_was_cut_short_is_no_result(estate: Estate, cut: int) -> None:
    await ran(estate, look(), deliver(report()))
    path = Path(estate.log_path(1))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 1 - cut])

    await restarted(estate)

    assert sessions(estate) == [(1, "manual", "lost"), (1, "recovery", "queued")]
    (row, _) = estate.rows("SELECT * FROM sessions")
    assert (row["cost_usd"], row["summary"]) == (None, None)
    assert estate.rows("SELECT level FROM events") == [{"level": "warning"}]


async def test_a_whole_result_line_without_its_newline_is_a_result(estate: Estate) -> None:
    await ran(estate, look(), deliver(report()))
    path = Path(estate.log_path(1))
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))

    await restarted(estate)

    assert sessions(estate) == [(1, "manual", "success")]


@pytest.mark.parametrize("content", [None, b"", b"no frame at all\n"])
async def test_a_session_without_a_readable_log_is_lost_and_looked_after(estate: Estate, content: bytes | None) -> None:
    await estate.queue()
    session = await estate.claim()
    if content is not None:
        Path(session.log_path or "").write_bytes(content)

    await restarted(estate)

    assert sessions(estate) == [(1, "manual", "lost"), (1, "recovery", "queued")]


async def test_a_remediation_that_was_cut_off_is_followed_by_a_look_that_is_told_what_ran(estate: Estate) -> None:
    await ran(estate, look("toolu_1", "docker restart web"), look("toolu_2", "uptime"), {"exit": 1}, tier=3)
    path = Path(estate.log_path(1))
    kept = [line for line in path.read_bytes().splitlines(keepends=True) if b"toolu_2" not in line]
    path.write_bytes(b"".join(kept))

    await restarted(estate)

    assert sessions(estate) == [(3, "manual", "lost"), (1, "recovery", "queued")]
    context = json.loads(str(estate.row(2)["context"]))
    assert "session 1 was cut off" in context["reason"]
    first, second = context["findings"].splitlines()[-2:]
    assert first.endswith(": ran")
    assert "docker restart web" in first
    assert second.endswith("allowed; whether it ran, and with which result, is not known")


async def test_what_a_session_left_for_the_next_tier_is_heeded_when_its_daemon_has_died(estate: Estate) -> None:
    estate.with_context(repair_turn=False)
    await ran(estate, look(), {"result": {}}, {"await_eof": True})
    state = Workspace(estate.context.sessions_dir / workspace_name(1)).state_dir
    state.mkdir(parents=True)
    (state / "handoff.json").write_text(json.dumps(HANDOFF), encoding="utf-8")

    await restarted(estate)

    assert sessions(estate)[1:] == [(2, "escalation", "queued")]
    row = estate.row(1)
    assert (row["extraction_method"], row["decision_reason"]) == ("markers", "escalated")
    assert json.loads(str(estate.row(2)["context"]))["findings"] == "The upstream is gone."
    assert (state / "handoff.json").exists()  # until the start is through: it may be cut off before the end is written


async def test_who_listens_from_the_start_hears_what_became_of_dead_sessions(estate: Estate) -> None:
    await ran(estate, look(), deliver(report(events=[EVENT])))
    await estate.queue()
    await estate.claim()
    told = estate.context.hub.from_threads()
    await estate.store.close()
    estate.store = open_store(estate.url, raised=told)
    estate.with_context(store=estate.store)
    with estate.context.hub.subscribe() as reader:
        await restarted(estate)
        await anyio.wait_all_tasks_blocked()
        facts = list(iter(reader.take, None))

    ended = [(fact.session_id, fact.outcome) for fact in facts if isinstance(fact, SessionEnded)]
    assert ended == [(1, Outcome.SUCCESS), (2, Outcome.LOST)]
    raised = [fact.message for fact in facts if isinstance(fact, EventRaised)]
    assert raised[0] == EVENT["message"]
    assert "session 2 was lost" in raised[1]


async def test_a_log_of_another_session_goes_into_no_row(estate: Estate) -> None:
    await estate.queue()
    session = await estate.claim()
    stranger = replace(session, cli_session_id="somebody-else")
    Path(session.log_path or "").write_bytes(line_of(result_line(report()), stranger))

    await restarted(estate)

    row = estate.row(1)
    assert (row["outcome"], row["summary"], row["cost_usd"]) == ("lost", None, None)


async def test_an_end_that_the_database_refuses_for_good_does_not_keep_the_daemon_from_starting(
    estate: Estate,
) -> None:
    class Picky(Queue):
        """A queue whose database takes no report."""

        async def finish(self, ending: Ending, *, rules: EscalationRules) -> Finished:
            if ending.extraction.report is not None:
                raise StoreError("the database was asked wrongly.")
            return await super().finish(ending, rules=rules)

    await ran(estate, look(), deliver(report()))
    estate.with_context(store=replace(estate.store, queue=Picky(estate.store.database)))

    await restarted(estate)

    row = estate.row(1)
    assert (row["outcome"], row["cost_usd"], row["summary"]) == ("error", 0.01, None)
    assert "could not be written as it was" in str(row["error"])
    assert "session_end_refused" in estate.logged.getvalue()


# --- a log that cannot be digested --------------------------------------------------------------------


class Poisoned(ClaudeHarness):
    """Its reader fails on a word."""

    def __init__(self, failure: BaseException) -> None:
        super().__init__()
        self.failure = failure

    def reader(self) -> FrameReader:
        return FailsOnAWord(super().reader(), self.failure)


class FailsOnAWord:
    def __init__(self, reader: FrameReader, failure: BaseException) -> None:
        self._reader = reader
        self._failure = failure

    def feed(self, item: StreamFrame | Malformed | None) -> tuple[StreamEvent, ...]:
        if isinstance(item, StreamFrame) and item.body.get("says") == "poison":
            raise self._failure
        return self._reader.feed(item)

    def close(self) -> Transcript:
        return self._reader.close()


POISON = {"type": "system", "subtype": "noise", "says": "poison"}


@pytest.mark.parametrize(
    "failure", [ZeroDivisionError("division by zero"), MemoryError(), RecursionError("too deep")], ids=str
)
async def test_a_log_that_our_reader_fails_on_costs_its_own_session_and_no_other(
    estate: Estate, failure: BaseException
) -> None:
    await ran(estate, look(), deliver(report()))
    await ran(estate, look(), deliver(report()))
    await ran(estate, look(), deliver(report()))
    path = Path(estate.log_path(2))
    whole = path.read_bytes()
    path.write_bytes(json.dumps(POISON).encode() + b"\n" + whole)
    estate.with_context(harnesses={"claude": Poisoned(failure)})

    recovery = await restarted(estate)

    assert [row["outcome"] for row in estate.rows("SELECT outcome FROM sessions WHERE id <= 3 ORDER BY id")] == [
        "success",
        "lost",
        "success",
    ]
    messages = [str(row["message"]) for row in estate.rows("SELECT message FROM events WHERE session_id = 2")]
    assert len(messages) == 2
    assert messages[1] == (
        f"The log {path} of session 2 cannot be digested: our reader failed on it ({type(failure).__name__}). "
        "The session counts as lost; the file stays where it is."
    )
    assert estate.logged.getvalue().count('"session_log_undigested"') == 1
    assert path.read_bytes().endswith(whole)

    await recovery.look_again()  # every hour: the log is read once more, and nothing ends with it
    await recovery.look_again()  # as it has not changed, no more
    assert estate.logged.getvalue().count('"session_log_undigested"') == 2
    estate.with_context(harnesses=HARNESSES)
    await SessionRecovery(context=estate.context).look_again()  # by a version that can read it
    assert estate.row(2)["cost_usd"] == 0.01


@pytest.mark.parametrize("put", [Path.mkdir, os.mkfifo], ids=["a directory", "a pipe"])
async def test_a_log_that_is_no_file_is_told_by_its_name(estate: Estate, put: Callable[[Path], None]) -> None:
    await estate.queue()
    path = Path((await estate.claim()).log_path or "")
    put(path)

    await restarted(estate)

    assert estate.row(1)["outcome"] == "lost"
    messages = " ".join(str(row["message"]) for row in estate.rows("SELECT message FROM events"))
    assert f"The log {path} of session 1 cannot be read: not a regular file." in messages


async def test_a_log_whose_disk_hangs_costs_its_own_session_its_time_and_no_more(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ran(estate, look(), deliver(report()))
    await ran(estate, look(), deliver(report()))
    let_go, opened = threading.Event(), os.open

    def hanging(path: Path | str, flags: int, **named: int) -> int:
        if str(path) == estate.log_path(1):
            let_go.wait(PATIENCE_SECONDS)
        return opened(path, flags, **named)

    monkeypatch.setattr(os, "open", hanging)
    try:
        with anyio.fail_after(PATIENCE_SECONDS):
            await SessionRecovery(context=estate.context, read_seconds=0.3).take_up(await orphans(estate))
    finally:
        let_go.set()

    outcomes = estate.rows("SELECT outcome FROM sessions WHERE id <= 2 ORDER BY id")
    assert [row["outcome"] for row in outcomes] == ["lost", "success"]
    assert "cannot be read: reading it took longer than 0.3 s" in str(estate.rows("SELECT message FROM events"))


async def test_a_loss_that_the_database_refuses_keeps_no_other_session_from_its_end(estate: Estate) -> None:
    class Picky(store_recovery.Recovery):
        """Its database takes no loss of session 1, nor anything that is written late of session 3."""

        async def mark_lost(self, session: Session, **given: Any) -> Session:
            if session.id == 1:
                raise StoreError("the database was asked wrongly.")
            return await super().mark_lost(session, **given)

        async def backfill(self, ending: Ending) -> Backfilled | BackfillRejected:  # noqa: ARG002 - the port's
            raise StoreError("the database was asked wrongly.")

    for number in (1, 2, 3):
        await ran(estate, look(), deliver(report()))
        if number != 2:
            path = Path(estate.log_path(number))
            path.write_bytes(path.read_bytes()[:-40])
    estate.with_context(store=replace(estate.store, recovery=Picky(estate.store.database)))

    recovery = await restarted(estate)
    await recovery.look_again()

    rows = estate.rows("SELECT status, outcome FROM sessions WHERE id <= 3 ORDER BY id")
    assert [row["outcome"] or row["status"] for row in rows] == ["running", "success", "lost"]
    assert estate.logged.getvalue().count('"session_end_refused"') >= 2


async def test_a_database_that_goes_away_behind_a_loss_costs_nothing_of_what_the_log_shows(estate: Estate) -> None:
    class Away(store_recovery.Recovery):
        """Its database is away once, when a loss is written and what the log shows is not."""

        is_away = True

        async def backfill(self, ending: Ending) -> Backfilled | BackfillRejected:
            if self.is_away:
                self.is_away = False
                raise DatabaseUnavailableError("the database is away; the same call may work later.")
            return await super().backfill(ending)

    await ran(estate, look(), deliver(report()))
    path = Path(estate.log_path(1))
    path.write_bytes(path.read_bytes()[:-40])
    estate.with_context(store=replace(estate.store, recovery=Away(estate.store.database)))
    recovery, left = SessionRecovery(context=estate.context), await orphans(estate)

    with pytest.raises(DatabaseUnavailableError):
        await recovery.take_up(left)
    before = estate.row(1)
    await recovery.take_up(left)

    row = estate.row(1)
    assert (before["outcome"], row["outcome"]) == ("lost", "lost")
    assert {name for name in row if row[name] != before[name]} >= {"unknown_frames"}
    assert "session_end_refused" not in estate.logged.getvalue()
    assert len(estate.rows("SELECT id FROM sessions")) == 2  # and the same look once more


# --- the log turns up later ---------------------------------------------------------------------------


async def lost_without_log(estate: Estate) -> tuple[SessionRecovery, Path, bytes]:
    """Lose a session whose complete log is out of sight; return where it was, and what is in it."""
    await ran(estate, look(), deliver(report(needed=True, status="down")))
    path = Path(estate.log_path(1))
    content = path.read_bytes()
    path.unlink()
    return await restarted(estate), path, content


async def test_a_complete_log_that_turns_up_later_gives_report_and_cost_once_and_no_decision(estate: Estate) -> None:
    recovery, path, content = await lost_without_log(estate)
    await recovery.look_again()
    assert estate.row(1)["summary"] is None

    path.write_bytes(content)
    for _ in range(2):
        await recovery.look_again()
        recovery = SessionRecovery(context=estate.context)

    row = estate.row(1)
    assert (row["outcome"], row["decision_reason"]) == ("lost", "session_failed")
    assert (row["summary"], row["cost_usd"]) == ("Looked at every service of the estate.", 0.01)
    assert sessions(estate) == [(1, "manual", "lost"), (1, "recovery", "queued")]  # no next tier
    assert len(estate.rows("SELECT * FROM budget_entries")) == 1
    assert estate.logged.getvalue().count('"session_amended"') == 1


async def test_an_incomplete_log_is_not_read_again_until_it_has_changed(estate: Estate) -> None:
    recovery, path, content = await lost_without_log(estate)
    half, rest = content[: len(content) // 2], content[len(content) // 2 :]
    path.write_bytes(half)
    await recovery.look_again()
    written = path.stat().st_atime_ns
    os.utime(path, ns=(written, path.stat().st_mtime_ns))
    await recovery.look_again()
    assert estate.row(1)["cost_usd"] is None

    with path.open("ab") as log:
        log.write(rest)
    await recovery.look_again()

    assert estate.row(1)["cost_usd"] == 0.01


# --- a database that was restored ---------------------------------------------------------------------


async def test_after_a_restore_no_log_is_overwritten_and_each_goes_to_its_own_row(estate: Estate) -> None:
    waiting = await estate.queue()
    backup = copy_database(estate, estate.root / "backup.db")
    estate.script(look(), deliver(report()))
    results = Path(estate.log_path(1)).parent
    for _ in range(2):
        await ran(estate, look(), deliver(report()))
    logs = {path: path.read_bytes() for path in results.glob("*.ndjson")}
    restore_database(estate, backup)

    await estate.store.recovery.skip_ids(highest_log_number(results), now=estate.context.clock.now())
    await restarted(estate)
    new = await estate.queue()
    path = free_log_path(results, waiting.id)

    assert len(logs) == 2
    assert new.id == 3
    assert path.name == "session-000001.2.ndjson"
    assert free_log_path(results, new.id).name == "session-000003.ndjson"
    assert {path: path.read_bytes() for path in logs} == logs
    assert sessions(estate) == [(1, "manual", "queued"), (1, "manual", "queued")]


async def test_logs_that_are_older_than_the_database_are_missed_at_the_start(estate: Estate) -> None:
    for _ in range(3):
        await estate.store.queue.finish(await ran(estate, look(), deliver(report())), rules=estate.context.rules)
    Path(estate.log_path(2)).unlink()
    estate.execute("UPDATE sessions SET log_node = 'attic'")
    estate.execute("UPDATE sessions SET log_path = '/elsewhere/3.ndjson', log_node = 'cellar' WHERE id = 3")
    estate.with_context(node="attic")

    await SessionRecovery(context=estate.context).look_for_logs()

    (line,) = [json.loads(line) for line in estate.logged.getvalue().splitlines() if '"logs_missing"' in line]
    assert (line["missing"], line["session_id"], line["level"]) == (1, 2, "warning")


async def test_log_of_another_machine_is_named_with_its_place(estate: Estate) -> None:
    await ran(estate, look(), deliver(report()))
    estate.execute("UPDATE sessions SET log_path = '/elsewhere/session-000001.ndjson', log_node = 'cellar'")
    session = await estate.store.records.session(1)
    assert session is not None

    for node, said in (("attic", "is on node cellar, at /elsewhere/"), ("cellar", "does not exist")):
        estate.with_context(node=node)
        read = await read_log(session, estate.context)
        assert isinstance(read, BackfillRejected)
        assert said in read.message


def test_numbers_are_read_from_names_of_logs_only(tmp_path: Path) -> None:
    for name in ("session-000007.ndjson.zst", "session-000041.2.ndjson", "session-x.ndjson", "notes.txt"):
        (tmp_path / name).touch()

    assert highest_log_number(tmp_path) == 41
    assert highest_log_number(tmp_path / "not there") == 0
