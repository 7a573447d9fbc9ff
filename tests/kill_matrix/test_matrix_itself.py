"""The kill matrix itself: it strikes where it says, it sees what is wrong, it remembers what failed."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol, cast

import pytest

from claudeops.app.start.trial import surroundings
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.scripted_api.requests import Traffic
from claudeops.settings import load_settings
from claudeops.structs import replace
from kill_matrix.command import REFERENCE
from kill_matrix.course import Course
from kill_matrix.databases import DatabaseKind, SqliteDatabase, Templates, templates
from kill_matrix.figures import Figures, add_to
from kill_matrix.forks import Zygote, zygote
from kill_matrix.invariants import check, fires_once_a_day, tiers_that_relapsed
from kill_matrix.left import left_behind, left_beside
from kill_matrix.matrix import Verdict, keep, known_plans
from kill_matrix.plan import (
    POLITE_ROUND,
    POLITE_ROUNDS,
    Blow,
    Cli,
    Plan,
    Strike,
    fleet_plan_of,
    plan_of,
    polite_plan_of,
)
from kill_matrix.points import PLACES, POINTS, Place, claim, dealt, find
from kill_matrix.records import Records
from kill_matrix.suite import ATTEMPTS, until_struck
from kill_matrix.tokens import Sums, check_tokens
from kill_matrix.trial import run_trial
from kill_matrix.tried import Found, Knowing, Tried
from kill_matrix.victims import Victims
from kill_matrix.world import STAND_IN, World
from support.levels import PATH, needs


class RunTrial(Protocol):
    async def __call__(
        self, *strikes: Strike, watched: bool = False, follows: bool = False
    ) -> tuple[Course, Records, Traffic]: ...


@pytest.fixture(scope="module")
async def daemons() -> AsyncIterator[Zygote]:
    """Return the zygote of all trials here."""
    async with zygote() as running:
        yield running


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Templates]:
    with templates(tmp_path_factory.mktemp("template"), [DatabaseKind.SQLITE]) as made:
        yield made


@pytest.fixture
def trial(tmp_path: Path, daemons: Zygote, template: Templates) -> RunTrial:
    async def run(*strikes: Strike, watched: bool = False, follows: bool = False) -> tuple[Course, Records, Traffic]:
        plan = Plan(
            seed=0,
            cli=Cli.STAND_IN,
            isolation="none",
            tiers=2,
            looks=1,
            usage=7,
            from_empty=False,
            watched=watched,
            follows=follows,
            strikes=strikes,
        )
        course, world, traffic = await run_trial(plan, tmp_path / "trial", daemons, template)
        return course, Records(world), traffic

    return run


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.label)
def test_every_place_is_a_call_that_exists(place: Place) -> None:
    owner, name = find(place.target)
    assert callable(getattr(owner, name))


@pytest.mark.parametrize("level", [IsolationLevel.NONE, IsolationLevel.BUBBLEWRAP])
def test_what_was_tried_for_one_daemon_is_what_another_one_finds(tmp_path: Path, level: IsolationLevel) -> None:
    needs(level)
    (tmp_path / "repos" / "estate").mkdir(parents=True)
    one, other = (
        {
            "PATH": PATH,
            "CLAUDEOPS_STATE_DIR": str(tmp_path / name),
            "CLAUDEOPS_REPOS_DIR": str(tmp_path / "repos"),
            "CLAUDEOPS_CLAUDE_BIN": str(STAND_IN),
            "CLAUDEOPS_ISOLATION": level.value,
        }
        for name in ("one", "other")
    )
    asking = surroundings(load_settings(other, cwd=Path.cwd()).settings)
    assert Tried().of(one).seen_from(asking) == Tried().of(other)


def test_three_hundred_seeds_in_a_row_strike_at_every_point() -> None:
    labels = {strike.label for seed in range(300) for strike in plan_of(seed).strikes}
    assert labels >= {point.label for point in POINTS}


@pytest.mark.parametrize("which", range(POLITE_ROUNDS))
def test_every_polite_blow_strikes_at_every_point(which: int) -> None:
    plans = [polite_plan_of(which * POLITE_ROUND + number) for number in range(POLITE_ROUND)]
    strikes = [strike for plan in plans for strike in plan.strikes if strike.blow.is_polite]
    assert {strike.label for strike in strikes} == {point.label for point in POINTS} | {None}
    assert len({strike.blow for strike in strikes}) == 1
    assert plans == [plan_of(plan.seed) for plan in plans], "below zero"


def test_a_seed_is_the_same_trial_every_time_and_a_plan_can_be_kept() -> None:
    for seed in range(-POLITE_ROUND * POLITE_ROUNDS, 200):
        plan = plan_of(seed)
        assert plan == plan_of(seed)
        for each in (plan, fleet_plan_of(seed, 2)):
            assert Plan.from_document(json.loads(json.dumps(each.document()))) == each


def test_the_plans_that_failed_once_can_still_be_run() -> None:
    labels = {strike.label for plan in known_plans() for strike in plan.strikes if strike.label is not None}
    assert labels <= {point.label for point in POINTS}


async def test_a_daemon_is_struck_at_the_visit_that_was_planned_and_nowhere_else(trial: RunTrial) -> None:
    strike = Strike(victims=Victims.DAEMON, label="after model call opened", visit=2)
    course, records, _ = await trial(strike)
    assert course.struck == [strike]
    assert course.stops == [0], "the first daemon was killed, the second one asked to stop"
    calls = records.of_session("model_calls", 1)
    assert [call["http_status"] for call in calls] == [200, None], "opened, and not sent any more"
    assert [(row["outcome"], row["trigger"]) for row in records.sessions][:2] == [
        ("lost", "scheduled"),
        ("success", "recovery"),
    ]


async def test_a_daemon_that_is_asked_to_stop_is_struck_where_that_was_planned_and_ends(
    trial: RunTrial,
) -> None:
    strike = Strike(victims=Victims.DAEMON, blow=Blow.TERM, label="after model call opened")
    course, records, _ = await trial(strike)
    assert (course.struck, course.stops, course.faults) == ([strike], [0, 0], [])
    assert records.sessions[0]["outcome"] == "success", "it had the time for that"


LEFT = {
    "left: session 1 runs by its row": "UPDATE sessions SET status = 'running', outcome = NULL WHERE id = 1",
    "left: money is reserved for session 1": "DELETE FROM budget_entries WHERE kind = 'released' AND session_id = 1",
    "left: a model call of session 1 is open": "UPDATE model_calls SET ended_at = NULL WHERE id = 1",
    "left: an action of session 2 is not settled": "UPDATE cooldown_actions SET success = NULL",
    "left: the daemon node is on record": "INSERT INTO instances (owner, pid, process_started_at, boot_id, heartbeat)"
    " VALUES ('node', 1, 1.0, 'boot', '2026-01-01 00:00:00.000000')",
    "left: the lease alerts has an owner": "UPDATE leases SET owner = 'node'",
    "left: the lease service:a has an owner": "INSERT INTO leases VALUES ('service:a', '1', 1, '2099-01-01 00:00:00')",
}


async def test_what_a_daemon_leaves_that_stopped_in_good_order_is_seen(trial: RunTrial) -> None:
    _, records, _ = await trial()
    world, nothing = records.world, frozenset[tuple[int, int]]()
    (machine,) = world.machines
    assert list(left_behind(world, machine, 4711, nothing)) == []
    whole = _file(records).read_bytes()
    for sentence, damage in LEFT.items():
        with closing(sqlite3.connect(_file(records))) as connection:
            connection.execute(damage)
            connection.commit()
        found = list(left_behind(world, machine, 4711, nothing))
        assert any(fault.startswith(sentence) for fault in found), f"{damage}: {found}"
        _file(records).write_bytes(whole)
    (machine.state / "daemon.json").write_text('{"pid": 4711}', encoding="utf-8")
    (machine.sessions / "session-1").mkdir(parents=True)
    told = [fault.partition(",")[0] for fault in left_behind(world, machine, 4711, nothing)]
    assert told == ["left: daemon.json", "left: the workspace session-1"]
    assert len(list(left_behind(world, machine, 4712, nothing))) == 1, "that of a daemon that was killed before"


async def test_what_a_node_leaves_while_others_live_is_seen(trial: RunTrial) -> None:
    _, records, _ = await trial()
    world = records.world
    (machine,) = world.machines
    assert list(left_beside(world, machine, 1)) == []
    whole = _file(records).read_bytes()
    for sentence, damage in LEFT.items():
        world.database.execute(damage)
        found = list(left_beside(world, machine, 1))
        # A service is a chain's, whichever daemon runs that.
        assert any(fault.startswith(sentence) for fault in found) is ("service:" not in sentence), f"{damage}: {found}"
        _file(records).write_bytes(whole)
    world.database.execute(LEFT["left: the daemon node is on record"])
    world.database.execute("UPDATE leases SET owner = 'node'")
    world.database.execute("UPDATE sessions SET owner = 'node', status = 'running', outcome = NULL, ended_at = NULL")
    assert list(left_beside(world, machine, 2)) == [], "it is another one's, which lives or is to be taken over from"


@pytest.mark.postgres
async def test_strike_is_dealt_once_whichever_daemon_comes_by_and_the_other_one_goes_on(
    tmp_path: Path, daemons: Zygote
) -> None:
    strike = Strike(victims=Victims.DAEMON, label="after gate's answer")
    plan = replace(fleet_plan_of(0, 2), cli=Cli.STAND_IN, isolation="none", strikes=(strike,), returns=False)
    with templates(tmp_path, [DatabaseKind.POSTGRESQL]) as made:
        course, world, traffic = await run_trial(plan, tmp_path / "trial", daemons, made)
        records = Records(world)
        assert _faults(course, records, traffic) == []
        assert (course.struck, course.daemons, course.stops) == ([strike], 3, [0, 0])
        assert [row["trigger"] for row in records.sessions if row["outcome"] == "lost"] != []
        assert len({Path(str(row["log_path"])).parent for row in records.sessions}) == 2, "each has logs of its own"
        world.database.remove()


def test_a_daemon_that_is_stopped_early_waits_twice_for_what_has_tried() -> None:
    trying = Knowing(cast("Found", None))  # it gets no order
    with ThreadPoolExecutor(2) as threads:
        waits = [threads.submit(trying.wait) for _ in range(2)]
        trying.stdin.close()
        assert [each.result() for each in waits] == [None, None]
    trying.stdout.close()


def test_the_end_of_a_session_that_was_recovered_was_written_later_than_it_says(tmp_path: Path) -> None:
    line = {"timestamp": "2026-11-30T22:41:13.217693Z", "event": "session_recovered", "session_id": 4}
    (tmp_path / "daemon-3.log").write_text(json.dumps(line), encoding="utf-8")
    records = Records(cast("World", SimpleNamespace(root=tmp_path)))
    ended = "2026-11-30 22:41:10.979000+00:00"
    assert records.written_at({"id": 4, "ended_at": ended}) == "2026-11-30 22:41:13.217693"
    assert records.written_at({"id": 5, "ended_at": ended}) == ended


@pytest.mark.parametrize(
    ("due", "is_right"),
    [
        ([], True),
        (["2026-12-01"], True),
        (["2026-12-01", "2026-11-30"], True),  # it began before midnight
        (["2026-11-30", "2026-11-30"], False),
        (["2026-11-30", "2026-11-29"], False),
        (["2026-12-01", "2026-12-02"], False),
    ],
)
def test_a_trial_that_runs_into_the_next_day_fires_once_for_each(due: list[str], is_right: bool) -> None:
    assert fires_once_a_day(due, began="2026-11-30", today="2026-12-01") is is_right


@pytest.mark.parametrize(
    ("second", "tiers"),
    [
        ({"started_at": "10:02", "ended_at": "10:08"}, {0, 2}),  # ended beside it, and was perhaps written later
        ({"started_at": "10:02", "ended_at": "10:04"}, {0}),  # was known, and says more
        ({"started_at": "10:02", "ended_at": "10:12"}, {2}),  # ended later
    ],
)
def test_what_a_session_did_that_ended_beside_another_one_may_be_known_to_it_or_not(
    second: dict[str, str], tiers: set[int]
) -> None:
    """The trials of seeds 30083, where it was not known, and 50044, where it was, to a follow-up of what tier 2 did."""
    sessions = [
        {"id": 2, "root_session_id": 1, "started_at": "10:00", "ended_at": "10:01"},
        {"id": 4, "root_session_id": 1, **second},
    ]
    row = {"id": 3, "root_session_id": 3, "started_at": "10:05", "ended_at": "10:09"}
    action = {"success": True, "error": None, "held": None, "held_checked_at": None}
    undone = {**action, "held": "relapsed", "held_checked_at": "10:09"}
    actions = [
        {**undone, "session_id": 2, "tier": 2, "timestamp": "10:00"},
        {**action, "session_id": 4, "tier": 3, "timestamp": "10:03"},
    ]
    records = SimpleNamespace(
        sessions=[*sessions, row], rows=lambda _: actions, written_at=lambda session: session["ended_at"]
    )

    assert tiers_that_relapsed(cast("Records", records), row) == tiers


def test_of_those_that_come_by_at_once_one_is_struck(tmp_path: Path) -> None:
    claims = [claim(tmp_path, number, word) for number, word in ((0, "here"), (0, "there"), (2, "later"), (1, "next"))]
    assert (claims, dealt(tmp_path)) == ([True, False, False, True], ["here", "next"])


DAMAGE = {
    "lost: the log of session 1": "UPDATE sessions SET outcome = 'lost', decision_reason = NULL WHERE id = 1",
    "lost: the report of session 1": "UPDATE sessions SET summary = NULL WHERE id = 1",
    "lost: session 1 left 0 events": "DELETE FROM events WHERE message LIKE 'seen by %' AND session_id = 1",
    "twice: session 1 left 2 events": "UPDATE events SET count = 2 WHERE session_id = 1 AND message LIKE 'seen by %'",
    "lost: after session 1": "UPDATE sessions SET parent_session_id = NULL WHERE id = 2",
    "session 2 is running": "UPDATE sessions SET status = 'running', outcome = NULL WHERE id = 2",
    "session 1 has 1 reservations and 0": "DELETE FROM budget_entries WHERE kind = 'released' AND session_id = 1",
    "session 1 was allowed 0.0 USD": "UPDATE budget_entries SET amount_usd = 0 WHERE session_id = 1",
    "session 1 settled []": "DELETE FROM budget_entries WHERE kind = 'settled' AND session_id = 1",
    "the model call 1 of session 1 is still open": "UPDATE model_calls SET ended_at = NULL WHERE id = 1",
    "audit: session 1": "DELETE FROM tool_calls WHERE session_id = 1",
    "tokens: call 1 is booked": "UPDATE model_calls SET output_tokens = output_tokens - 1 WHERE id = 1",
    "tokens: the API served": "DELETE FROM model_calls WHERE session_id = 1",
    "tokens: call 1 (cancelled)": "UPDATE model_calls SET error = 'cancelled', charged_usd = 0 WHERE id = 1",
}


async def test_what_is_wrong_afterwards_is_seen(trial: RunTrial) -> None:
    course, records, traffic = await trial()
    assert _faults(course, records, traffic) == []
    whole = _file(records).read_bytes()
    for sentence, damage in DAMAGE.items():
        with closing(sqlite3.connect(_file(records))) as connection:
            connection.execute(damage)
            connection.commit()
        found = _faults(course, Records(records.world), traffic)
        assert any(fault.startswith(sentence) for fault in found), f"{damage}: {found}"
        _file(records).write_bytes(whole)


PROBING_DAMAGE = {
    "twice: the probe shop started": "UPDATE sessions SET trigger = 'alert' WHERE id = 1",
    "lost: the probe shop started": "DELETE FROM sessions WHERE trigger = 'alert'",
    "the probe web is down": "UPDATE probes SET state = 'down' WHERE name = 'web'",
    "twice: the probe web changed once": "INSERT INTO service_checks (service, status, source, checked_at)"
    " VALUES ('web', 'healthy', 'probe', '2026-03-01 12:00:00.000000')",
    "twice: the probe shop went down once": "UPDATE events SET count = 2 WHERE message LIKE '%by its probe shop%'",
    "lost: the ping of backup": "UPDATE probes SET ping_success_at = NULL",
    # Whether a look of another session came first, and none was queued, is a matter of time.
    "lost: actions are followed by": "DELETE FROM sessions WHERE trigger = 'follow_up';"
    " UPDATE cooldown_actions SET follow_up_id = 4711",
    "lost: nobody has looked": "UPDATE cooldown_actions SET held = NULL",
    "lost: no look was planned": "UPDATE cooldown_actions SET follow_up_at = NULL",
    "the action 1 was found": "UPDATE cooldown_actions SET held_checked_at = NULL WHERE id = 1",
}


async def test_what_is_wrong_with_probes_and_follow_ups_afterwards_is_seen(trial: RunTrial) -> None:
    course, records, traffic = await trial(watched=True, follows=True)
    assert _faults(course, records, traffic) == []
    whole = _file(records).read_bytes()
    for sentence, damage in PROBING_DAMAGE.items():
        with closing(sqlite3.connect(_file(records))) as connection:
            connection.executescript(damage)
        found = _faults(course, Records(records.world), traffic)
        assert any(fault.startswith(sentence) for fault in found), f"{damage}: {found}"
        _file(records).write_bytes(whole)


@pytest.mark.parametrize("misses", range(ATTEMPTS))
async def test_a_point_that_was_passed_by_is_tried_again(tmp_path: Path, misses: int) -> None:
    plans = [polite_plan_of(number) for number in range(3)]
    ran = await _all_struck_after(misses, tmp_path, plans)
    assert ran == [plans, *[plans[1:2]] * misses], "those alone that were passed by"


async def test_a_point_that_nobody_comes_by_any_more_is_seen(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"nobody came by: .*before last fire looked up"):
        await _all_struck_after(ATTEMPTS, tmp_path, [polite_plan_of(4), polite_plan_of(5)])


async def _all_struck_after(misses: int, directory: Path, plans: Sequence[Plan]) -> list[Sequence[Plan]]:
    """Run trials of which the second one is passed by so often; return what was run each time."""
    ran: list[Sequence[Plan]] = []

    async def run(_: Path, wanted: Sequence[Plan]) -> list[Verdict]:
        ran.append(wanted)
        missed = plans[1] if len(ran) <= misses else None
        return [replace(_verdict(), plan=plan, struck=() if plan is missed else plan.strikes) for plan in wanted]

    await until_struck(directory, plans, run)
    return ran


def test_figures_are_added_to_the_page_that_there_is(tmp_path: Path) -> None:
    page = tmp_path / "kill-matrix.md"
    page.write_bytes(REFERENCE.read_bytes())
    add_to(page, Figures.of([_verdict()], seconds=1.0))
    table = page.read_text(encoding="utf-8").rpartition("\n\n")[2].splitlines()
    assert {line.count("|") for line in table} == {table[0].count("|")}
    assert "| 1 (0 real CLI) |" in table[-1]
    assert page.read_bytes().startswith(REFERENCE.read_bytes().rstrip(b"\n"))


def test_a_trial_that_failed_is_kept_once(tmp_path: Path) -> None:
    known = tmp_path / "known.jsonl"
    known.touch()
    for _ in range(2):
        keep(_verdict("lost: something"), known)
    assert known_plans(known) == [plan_of(7)]


def _verdict(*faults: str) -> Verdict:
    return Verdict(plan=plan_of(7), struck=(), faults=faults, outcomes=Counter(), daemons=1, tokens=Sums(), seconds=1.0)


def _file(records: Records) -> Path:
    assert isinstance(records.world.database, SqliteDatabase)
    return records.world.database.file


def _faults(course: Course, records: Records, traffic: Traffic) -> list[str]:
    return [*course.faults, *check(records, course), *check_tokens(records, traffic)]
