"""What must hold after every trial, whoever was killed when. Each check yields sentences; none of them is the aim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from claudeops.cli.reply import Exit
from claudeops.domain.actions import NO_RESULT_SEEN
from claudeops.store.connection.engines import parse_url
from claudeops.store.verify import verify
from kill_matrix.course import Course
from kill_matrix.databases import Row
from kill_matrix.left import strays_at_last
from kill_matrix.plan import Blow, Cli
from kill_matrix.records import Records
from kill_matrix.world import BROKEN, HEARD, MODELS, PINGED_AT, WELL, World

_QUIET: Final = frozenset({"debug", "info", "warning"})
_NO_COST: Final = 1e-9  # US dollars, for sums of floating-point numbers

# Of what is logged as an error after a kill, this belongs to it.
_TO_BE_EXPECTED: Final = frozenset({"model_call_refused"})

_WHERE_OTHERS_WRITE: Final = frozenset({"database_unavailable", "tool_call_unrecorded", "status_not_written"})
"""Nodes wait 5 s for each other's turn to write: longer than one that stands still has it, and less than the writers of
a busy machine may take together. What is not recorded then is tried again, or was a no; and so for `daemon.json`, where
the disk has more to write than it does in 5 s."""

_WHERE_ONE_STANDS_STILL: Final = frozenset({"tool_call_not_judged", "schedule_fire_failed"})
"""The bound of a judgement, 10 s, goes on while its daemon stands still for 18 s; the call is then denied. A fire whose
transaction PostgreSQL has ended meanwhile, after 3 s, is tried again."""


def check(records: Records, course: Course) -> Iterator[str]:
    """Yield what does not hold after a trial, one sentence each."""
    world = records.world
    yield from _processes(world)
    yield from _daemons(records, course)
    if not world.database.exists():
        yield "there is no database"
        return
    if found := world.database.damage():
        yield f"the database file is damaged: {found}"
    for row in records.sessions:
        yield from _ended(row)
        yield from _result(records, row, hidden=Path(str(row["log_path"])).name in course.hidden)
        yield from _following(records, row)
        yield from _ledger(records, row)
        if world.plan.cli is Cli.STAND_IN:
            yield from _once(records, row)
    yield from _fires(records)
    yield from _probes(records)
    yield from _follow_ups(records)
    yield from _logs(records)
    yield from _audit(world)


def _processes(world: World) -> Iterator[str]:
    for machine in world.machines:
        for stray in strays_at_last(machine):
            yield f"stray: a process was left: {stray}"
    for machine in world.machines:
        for workspace in machine.sessions.glob("*"):
            yield f"stray: the workspace {workspace.name} was left"


def _daemons(records: Records, course: Course) -> Iterator[str]:
    said = list(records.told())
    excused = sum(line.get("event") == "sessions_left" for line in said) if records.world.plan.nodes > 1 else 0
    stood_still = any(strike.blow is Blow.PAUSE for strike in course.plan.strikes)
    refused = [line for line in said if stood_still and _is_refused_start(line)]
    excused += len(refused)
    for status in course.stops:
        if status == Exit.UNAVAILABLE and excused:
            excused -= 1  # it has said itself what it leaves, because others wrote for so long, or why it cannot start
        elif status != 0:
            yield f"a daemon that was asked to stop ended with status {status}"
    expected = _TO_BE_EXPECTED | (_WHERE_OTHERS_WRITE if records.world.plan.nodes > 1 else frozenset())
    if stood_still:
        expected |= _WHERE_ONE_STANDS_STILL
    for line in said:
        if line.get("level") not in _QUIET and line.get("event") not in expected and line not in refused:
            yield f"a daemon said {line.get('event') or line.get('text')}: {line.get('error') or ''}"


def _is_refused_start(line: Mapping[str, object]) -> bool:
    """Tell whether a start ended because PostgreSQL had ended its transaction; a service manager tries it again."""
    text = str(line.get("text") or "")
    return text.startswith("claudeops: the database ") and text.endswith("the same call may work later.")


def _ended(row: Row) -> Iterator[str]:
    if row["status"] != "ended" or row["outcome"] is None:
        yield f"session {row['id']} is {row['status']}, its outcome {row['outcome']}"


def _result(records: Records, row: Row, *, hidden: bool) -> Iterator[str]:
    """See to it that a complete result line is never lost, and that without one there is no success."""
    log = records.logs.get(row["id"])
    complete = log is not None and bool(log.results)
    if complete and row["outcome"] == "lost" and not hidden:  # what turns up later is amended: a report, no outcome
        yield f"lost: the log of session {row['id']} holds a complete result line"
    if log is not None and log.reports and row["summary"] is None:
        yield f"lost: the report of session {row['id']} is in its log and not in its row"
    if not complete and row["outcome"] == "success":
        yield f"session {row['id']} is a success without a result line"


def _once(records: Records, row: Row) -> Iterator[str]:
    """See to it that what a report says is there once, and nothing of a session that gave none."""
    log = records.logs.get(row["id"])
    reported = bool(log is not None and log.reports)
    name = str(row["cli_session_id"])
    events = [event for event in records.rows("events") if name in str(event["message"])]
    counted = sum(int(str(event["count"])) for event in events)
    checks = len(records.of_session("service_checks", row["id"]))
    if reported and row["summary"] != f"report of {name}":
        yield f"lost: the summary of session {row['id']} is {row['summary']!r}"
    for what, found in (("event", counted), ("check", checks)):
        if found != int(reported):
            yield f"{'twice' if found > 1 else 'lost'}: session {row['id']} left {found} {what}s of its report"


def _following(records: Records, row: Row) -> Iterator[str]:
    """See to it that what was decided is queued, once, and nothing else."""
    children = [(child["trigger"], child["tier"]) for child in records.children(row["id"])]
    possible = _possible_children(records, row)
    if children not in possible:
        expected = possible[-1]
        kind = "twice" if len(children) > len(expected) else "lost"
        yield (
            f"{kind}: after session {row['id']} (tier {row['tier']}, {row['trigger']}, {row['outcome']}, "
            f"{row['decision_reason']}) came {children}, not {expected}"
        )


def _possible_children(records: Records, row: Row) -> list[list[tuple[object, object]]]:
    """Return triggers and tiers of what must follow, more than one answer where the records leave that open."""
    if row["outcome"] != "lost" and row["decision_reason"] == "escalated":
        tier = int(str(row["tier"]))
        acted = sorted(tiers_that_relapsed(records, row))
        return [[("escalation", max(tier + 1, min(one + 1, max(MODELS))))] for one in acted]
    return [_expected_children(row)]


def _expected_children(row: Row) -> list[tuple[object, object]]:
    """Return trigger and tier of what must follow a session that has not escalated."""
    tier = int(str(row["tier"]))
    if row["outcome"] == "lost":
        # A tier that can change things is not repeated but looked after; the lowest one is, once.
        given_up = tier == 1 and row["trigger"] == "recovery"
        return [] if given_up else [("recovery", 1)]
    if row["outcome"] == "cancelled":  # it was a stop of ours
        return []
    if row["decision_reason"] == "session_failed" and tier == 1 and row["trigger"] != "retry":
        return [("retry", 1)]
    return []


def tiers_that_relapsed(records: Records, row: Row) -> set[int]:
    """Return the tier whose change of another chain a session has found undone, 0 where there is none, or both.

    All trials act on one service alone, of which a session that escalates says that it is down; and none lasts a day.
    Of two sessions that ended beside each other no row says whose end was written first: a row has the moment of the
    end, and the transaction may wait. What one of them did the other one may know or not. A follow-up finds undone what
    it was to look after, also where more was done since, from which alone a relapse would follow.
    """
    sessions = {each["id"]: each for each in records.sessions}
    known = [
        action
        for action in records.rows("cooldown_actions")
        if sessions[action["session_id"]]["root_session_id"] != row["root_session_id"]
        and (action["success"] or action["error"] == NO_RESULT_SEEN)
        and records.written_at(sessions[action["session_id"]]) <= records.written_at(row)
    ]
    # Its answer is written with the end of the session that found it, and once.
    found = [one for one in known if one["held"] == "relapsed" and one["held_checked_at"] == row["ended_at"]]
    latest = max(found, key=lambda action: str(action["timestamp"]), default=None)
    # What was done while the session looked says more than what it saw: then nothing has relapsed.
    if latest is None or str(latest["timestamp"]) >= str(row["started_at"]):
        return {0}
    # So does what was done later: it was known if that was written before the session began, else perhaps.
    later = [one for one in known if str(one["timestamp"]) > str(latest["timestamp"])]
    if any(records.written_at(sessions[one["session_id"]]) < str(row["started_at"]) for one in later):
        return {0}
    return {int(str(latest["tier"])), *([0] if later else [])}


def _ledger(records: Records, row: Row) -> Iterator[str]:
    """See to it that what was reserved is given back once, and what was spent is settled once."""
    entries = records.of_session("budget_entries", row["id"])
    by_kind = {kind: [e for e in entries if e["kind"] == kind] for kind in ("reserved", "released", "settled")}
    reserved, released = by_kind["reserved"], by_kind["released"]
    if [e["amount_usd"] for e in reserved] != [e["amount_usd"] for e in released] or len(reserved) > 1:
        yield f"session {row['id']} has {len(reserved)} reservations and {len(released)} releases"
    charged = [float(str(call["charged_usd"])) for call in records.of_session("model_calls", row["id"])]
    settled = [float(str(entry["amount_usd"])) for entry in by_kind["settled"]]
    if charged and (len(settled) != 1 or abs(settled[0] - sum(charged)) > _NO_COST):
        yield f"session {row['id']} settled {settled} for calls that are charged {sum(charged)}"
    allowed = sum(float(str(entry["amount_usd"])) for entry in reserved)
    if sum(charged[:-1]) > allowed + _NO_COST:
        yield f"session {row['id']} was allowed {allowed} USD and passed that by more than one request: {charged}"
    for call in records.of_session("model_calls", row["id"]):
        if call["ended_at"] is None:
            yield f"the model call {call['id']} of session {row['id']} is still open"
    for action in records.of_session("cooldown_actions", row["id"]):
        if action["success"] is None:
            yield f"the action {action['id']} of session {row['id']} was never settled"


def _fires(records: Records) -> Iterator[str]:
    """See to it that each due time queued one chain, or says why it queued none; and that no chain came of itself."""
    fired = [fire["session_id"] for fire in records.rows("schedule_fires") if fire["session_id"] is not None]
    skipped = [fire for fire in records.rows("schedule_fires") if fire["session_id"] is None]
    chains = [row["id"] for row in records.sessions if row["trigger"] == "scheduled"]
    if sorted(map(str, fired)) != sorted(map(str, chains)):
        yield f"twice: due times queued {fired}, and there are the chains {chains}"
    if any(fire["skipped_reason"] is None for fire in skipped):
        yield "lost: a due time queued nothing, and does not say why"
    due = [str(fire["due_at"])[:10] for fire in records.rows("schedule_fires")]
    began = min((str(row["created_at"])[:10] for row in records.sessions), default="")
    if records.world.plan.soon and not fires_once_a_day(due, began=began, today=str(datetime.now(UTC).date())):
        yield f"twice: daemons that came within the interval fired {len(due)} times, as if due on {due}"
    asked = sum(row["trigger"] == "api" for row in records.sessions)
    if asked != records.world.asked:
        yield f"lost: {records.world.asked} chains were asked for, and there are {asked}"


def fires_once_a_day(due: Sequence[str], *, began: str, today: str) -> bool:
    """Return whether a schedule of one fire a day fired for no day but those of its trial, and once for each.

    All are dates in UTC, as ISO 8601 writes them: a trial that runs into the next day has two.
    """
    return len(set(due)) == len(due) and all(began <= day <= today for day in due)


def _probes(records: Records) -> Iterator[str]:
    """See to it that each change of a probe is on record once, with one chain where it is one for the worse."""
    chains = [row["id"] for row in records.sessions if row["trigger"] == "alert"]
    if not records.world.plan.watched:
        return
    probes = {str(row["name"]): row for row in records.rows("probes")}
    if [probes[BROKEN]["session_id"]] != chains or not probes[BROKEN]["incident"]:
        kind = "twice" if len(chains) > 1 else "lost"
        yield f"{kind}: the probe {BROKEN} started {chains}, and its row is {probes[BROKEN]}"
    for name, state in ((WELL, "up"), (BROKEN, "down"), (HEARD, "up")):
        if probes[name]["state"] != state:
            yield f"the probe {name} is {probes[name]['state']}, not {state}"
        told = [row for row in records.rows("service_checks") if row["source"] == "probe" and row["service"] == name]
        if len(told) != 1:
            yield f"{'twice' if told else 'lost'}: the probe {name} changed once and left {len(told)} checks"
    alarms = [event for event in records.rows("events") if f"by its probe {BROKEN}" in str(event["message"])]
    if [(event["count"], event["resolved_at"]) for event in alarms] != [(1, None)]:
        yield f"{'twice' if alarms else 'lost'}: the probe {BROKEN} went down once, and of that tell {alarms}"
    if not str(probes[HEARD]["ping_success_at"]).startswith(f"{PINGED_AT:%Y-%m-%d %H:%M:%S}"):
        yield f"lost: the ping of {HEARD}, of which its row says {probes[HEARD]['ping_success_at']}"


def _follow_ups(records: Records) -> Iterator[str]:
    """See to it that what was changed is looked at again: once, and with an answer."""
    actions = records.rows("cooldown_actions")
    looks = {row["id"] for row in records.sessions if row["trigger"] == "follow_up"}
    wanted = {action["follow_up_id"] for action in actions if action["follow_up_id"] is not None}
    if looks != wanted:
        yield f"{'twice' if looks - wanted else 'lost'}: actions are followed by {wanted}, and there are {looks}"
    for action in actions:
        if action["follow_up_at"] is not None and action["held"] is None:
            yield f"lost: nobody has looked what became of the action {action['id']}"
        if (action["held"] is None) is not (action["held_checked_at"] is None):
            yield f"the action {action['id']} was found {action['held']} at {action['held_checked_at']}"
        changed = action["success"] or action["error"] == NO_RESULT_SEEN
        if records.world.plan.follows and changed and action["follow_up_at"] is None:
            yield f"lost: no look was planned at the action {action['id']}"


def _logs(records: Records) -> Iterator[str]:
    """See to it that a log belongs to one row, names its session and no other, and is whole but for its last line."""
    known = {str(row["log_path"]): row for row in records.sessions if row["log_path"]}
    for path in sorted(records.log_files - set(known)):
        yield f"the log {path} belongs to no session"
    for row in known.values():
        log = records.logs[row["id"]]
        if log.broken:
            yield f"the log of session {row['id']} has {log.broken} broken lines"
        if not log.sessions <= {row["cli_session_id"]}:
            yield f"the log of session {row['id']} is of {log.sessions}, not of {row['cli_session_id']}"


def _audit(world: World) -> Iterator[str]:
    engine = sa.create_engine(parse_url(world.database.url), poolclass=sa.NullPool)
    with engine.connect() as connection:
        for fault in verify(connection).faults:
            yield f"audit: {fault.message}"
