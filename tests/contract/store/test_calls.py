"""Any store: no call is answered that is not written down, and the ledger counts before it grants."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256

import pytest

from claudeops.domain.actions import Action
from claudeops.domain.calls import ToolCall, ToolEnd, Verdict, VerdictKind
from claudeops.domain.sessions import Outcome, Session
from claudeops.errors import StaleAttemptError
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import (
    NOW,
    RULES,
    after,
    alarm,
    allow,
    call,
    check,
    claimed,
    ending,
    recorded,
    report,
    restart,
    started,
    wanted,
)
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

ALLOW = Verdict(kind=VerdictKind.ALLOW, reason="only looks")
DENY = Verdict(kind=VerdictKind.DENY, reason="not for this tier")


async def test_call_is_written_with_its_verdict(store: Store, database: Database) -> None:
    session = await started(store)
    asked = ToolCall(tool_use_id="toolu_9", tool_name="Bash", input={"command": "ls"}, agent_id="agent-1")

    verdict = await store.calls.record_call(
        session, asked, DENY, redacted_input='{"command":"ls"}', rules=RULES, requested_at=NOW, now=after(minutes=1)
    )

    assert verdict == DENY
    (row,) = database.rows("tool_calls")
    assert row == {
        "id": row["id"],
        "session_id": session.id,
        "tool_use_id": "toolu_9",
        "agent_id": "agent-1",
        "tool_name": "Bash",
        "input": '{"command":"ls"}',
        "ran": None,
        "verdict": "deny",
        "reason": "not for this tier",
        "requested_at": NOW,
        "decided_at": after(minutes=1),
        "ended_at": None,
        "is_error": None,
        "previous_hash": "",
        "hash": row["hash"],
        "held_service": None,
    }


HASHED = ("previous_hash", "session_id", "tool_use_id", "agent_id", "tool_name", "input", "verdict", "reason")


def hash_of(row: dict[str, object]) -> str:
    """Compute a row's hash as the reference tells it, with nothing of ours."""
    times = [row["requested_at"], row["decided_at"]]
    assert all(isinstance(time, datetime) for time in times)
    moments = [time.isoformat(timespec="microseconds") for time in times if isinstance(time, datetime)]
    ran = [] if row["ran"] is None else [row["ran"]]
    content = json.dumps([*(row[name] for name in HASHED), *ran, *moments], ensure_ascii=False, separators=(",", ":"))
    return sha256(content.encode()).hexdigest()


async def test_what_was_asked_and_what_ran_are_both_kept(store: Store, database: Database) -> None:
    session = await started(store)
    verdicts = (ALLOW, Verdict(kind=VerdictKind.ASK, reason="restarts the database"), DENY)
    for number, verdict in enumerate(verdicts):
        await store.calls.record_call(
            session,
            call(f"toolu_{number}"),
            verdict,
            redacted_input='{"command":"ls"}',
            redacted_ran='{"command":"/usr/bin/ls"}\x00',
            rules=RULES,
            requested_at=after(minutes=number),
            now=after(minutes=number),
        )

    rows = database.rows("tool_calls")
    assert [row["input"] for row in rows] == ['{"command":"ls"}'] * 3
    assert [row["ran"] for row in rows[:2]] == ['{"command":"/usr/bin/ls"}\ufffd'] * 2
    assert rows[2]["ran"] is None  # nothing ran
    assert [row["hash"] for row in rows] == [hash_of({**row, **_utc(row)}) for row in rows]


@pytest.mark.dialect
async def test_calls_of_a_session_form_a_chain_that_anybody_can_compute_again(store: Store, database: Database) -> None:
    session = await started(store)
    for number in range(3):
        await store.calls.record_call(
            session,
            replace(call(f"toolu_{number}"), agent_id=None if number else "agent-1"),
            DENY,
            redacted_input='{"command":"gr\u00fc\u00df \\u0000 \\"x\\""}\x00',
            rules=RULES,
            requested_at=after(minutes=number).astimezone(timezone(timedelta(hours=5, minutes=45))),
            now=after(minutes=number + 0.0001),
        )

    rows = database.rows("tool_calls")
    assert [row["hash"] for row in rows] == [hash_of({**row, **_utc(row)}) for row in rows]
    assert [row["previous_hash"] for row in rows] == ["", rows[0]["hash"], rows[1]["hash"]]
    (session_row,) = database.rows("sessions")
    assert session_row["audit_head"] == rows[2]["hash"]


def _utc(row: dict[str, object]) -> dict[str, object]:
    return {name: at.astimezone(UTC) for name, at in row.items() if isinstance(at, datetime)}


async def test_allowed_actions_are_reserved_and_the_one_over_the_limit_is_denied(
    store: Store, database: Database
) -> None:
    session = await started(store, wanted(2))

    verdicts = [
        await recorded(store, session, f"toolu_{number}", allow(restart()), at=after(minutes=number))
        for number in range(3)
    ]

    assert [verdict.kind for verdict in verdicts] == [VerdictKind.ALLOW, VerdictKind.ALLOW, VerdictKind.DENY]
    assert verdicts[2].reason.startswith("restart of web refused: 2 of 2 allowed within 4 h are used")
    assert verdicts[2].actions == ()
    assert [row["verdict"] for row in database.rows("tool_calls")] == ["allow", "allow", "deny"]
    assert [row["reason"] for row in database.rows("tool_calls")][2] == verdicts[2].reason
    actions = database.rows("cooldown_actions")
    assert [(row["service"], row["action_type"], row["success"], row["tier"]) for row in actions] == [
        ("web", "restart", None, 2)
    ] * 2
    (event,) = database.rows("events")
    assert (event["level"], event["service"], event["session_id"]) == ("warning", "web", session.id)


async def test_actions_of_one_call_are_counted_together_and_granted_all_or_none(
    store: Store, database: Database
) -> None:
    session = await started(store, wanted(2))

    verdict = await recorded(store, session, "toolu_1", allow(restart("db"), restart(), restart(), restart()))

    assert verdict.kind is VerdictKind.DENY
    assert database.rows("cooldown_actions") == []


@pytest.mark.dialect
@pytest.mark.parametrize(
    ("at", "kind"),
    [
        pytest.param(after(hours=3.9), VerdictKind.DENY, id="inside the window"),
        pytest.param(after(hours=4), VerdictKind.ALLOW, id="the first has left the window"),
    ],
)
async def test_window_slides(store: Store, at: datetime, kind: VerdictKind) -> None:
    session = await started(store, wanted(2))
    await recorded(store, session, "toolu_1", allow(restart()))
    await recorded(store, session, "toolu_2", allow(restart()), at=after(minutes=30))

    verdict = await recorded(store, session, "toolu_3", allow(restart()), at=at)

    assert verdict.kind is kind


@pytest.mark.dialect
async def test_services_and_kinds_are_counted_apart_and_case_is_no_way_around(store: Store) -> None:
    session = await started(store, wanted(3))
    redeploy = Action(kind="redeployment", service="web")
    for number in range(2):
        await recorded(store, session, f"toolu_{number}", allow(restart()))

    assert (await recorded(store, session, "toolu_3", allow(restart("db")))).kind is VerdictKind.ALLOW
    assert (await recorded(store, session, "toolu_4", allow(redeploy))).kind is VerdictKind.ALLOW
    assert (await recorded(store, session, "toolu_5", allow(redeploy))).kind is VerdictKind.DENY
    assert (await recorded(store, session, "toolu_6", allow(restart("Web ")))).kind is VerdictKind.DENY


@pytest.mark.dialect
async def test_overlong_names_are_counted_like_any_other(store: Store) -> None:
    name = "w" * 300
    session = await started(store, wanted(2, prompt_text=f"{name[:255]} is down"))

    verdicts = [await recorded(store, session, f"toolu_{number}", allow(restart(name))) for number in range(3)]

    assert [verdict.kind for verdict in verdicts] == [VerdictKind.ALLOW, VerdictKind.ALLOW, VerdictKind.DENY]


@pytest.mark.parametrize("kind", [VerdictKind.DENY, VerdictKind.ASK])
async def test_only_an_allow_reserves_actions(store: Store, database: Database, kind: VerdictKind) -> None:
    session = await started(store, wanted(2))

    verdict = await recorded(store, session, "toolu_1", Verdict(kind=kind, reason="no", actions=(restart(),)))

    assert verdict.kind is kind
    assert database.rows("cooldown_actions") == []


async def test_call_of_an_attempt_that_is_over_is_not_answered_and_writes_nothing(
    store: Store, database: Database
) -> None:
    session = await started(store, wanted(2))
    await store.queue.finish(ending(session, outcome=Outcome.TIMEOUT), rules=RULES)
    events = database.rows("events")

    with pytest.raises(StaleAttemptError):
        await recorded(store, session, "toolu_1", allow(restart()))

    assert database.rows("tool_calls") == []
    assert database.rows("cooldown_actions") == []
    assert database.rows("events") == events


@pytest.mark.parametrize(
    ("ends", "settled"),
    [
        pytest.param((ToolEnd(tool_use_id="toolu_1", ended_at=NOW, is_error=False),), (True, None), id="it worked"),
        pytest.param(
            (ToolEnd(tool_use_id="toolu_1", ended_at=NOW, is_error=True),),
            (False, "the call ended with an error"),
            id="it failed",
        ),
        pytest.param(
            (ToolEnd(tool_use_id="toolu_2", ended_at=NOW, is_error=False),),
            (False, "no result seen"),
            id="nobody saw it end",
        ),
    ],
)
async def test_reserved_action_is_settled_by_its_own_result(
    store: Store, database: Database, ends: tuple[ToolEnd, ...], settled: tuple[bool, str | None]
) -> None:
    session = await started(store, wanted(2))
    await recorded(store, session, "toolu_1", allow(restart()))

    finished = await store.queue.finish(ending(session, alarm(), tool_ends=ends), rules=RULES)

    (action,) = database.rows("cooldown_actions")
    assert (action["success"], action["error"]) == settled
    assert finished.actions == (("restart", settled[0]),)


async def test_tool_ends_reach_the_rows_of_their_calls(store: Store, database: Database) -> None:
    session = await started(store)
    for name in ("toolu_1", "toolu_2"):
        await recorded(store, session, name, allow())
    ends = (
        ToolEnd(tool_use_id="toolu_2", ended_at=after(minutes=1), is_error=True),
        ToolEnd(tool_use_id="toolu_7", ended_at=after(minutes=1), is_error=False),
    )

    await store.queue.finish(ending(session, alarm(), tool_ends=ends), rules=RULES)

    assert [(row["tool_use_id"], row["ended_at"], row["is_error"]) for row in database.rows("tool_calls")] == [
        ("toolu_1", None, None),
        ("toolu_2", after(minutes=1), True),
    ]


async def _healthy(store: Store, at: datetime) -> None:
    session = await started(store, at=at)
    await store.queue.finish(ending(session, report(check("web"))), rules=RULES)


async def _restarted_twice(store: Store) -> Session:
    session = await started(store, wanted(3))
    for number in range(2):
        await recorded(store, session, f"toolu_{number}", allow(restart()))
    return session


async def _restart_again(store: Store, at: datetime) -> VerdictKind:
    session = await started(store, wanted(3), at=at)
    return (await recorded(store, session, "toolu_again", allow(restart()), at=at)).kind


async def test_counters_clear_after_two_healthy_checks_in_a_row(store: Store) -> None:
    await store.queue.finish(ending(await _restarted_twice(store), alarm()), rules=RULES)
    escalated = await claimed(store, at=after(minutes=2))
    assert escalated is None  # tier 3 is the last one

    await _healthy(store, after(minutes=10))
    after_one = await _restart_again(store, after(minutes=20))
    await _healthy(store, after(minutes=30))
    await _healthy(store, after(minutes=40))
    after_more = await _restart_again(store, after(minutes=50))

    assert (after_one, after_more) == (VerdictKind.DENY, VerdictKind.ALLOW)


async def test_session_that_acted_is_no_witness_of_its_success(store: Store) -> None:
    await store.queue.finish(ending(await _restarted_twice(store), report(check("web"))), rules=RULES)
    await _healthy(store, after(minutes=10))

    assert await _restart_again(store, after(minutes=20)) is VerdictKind.DENY


async def test_session_that_acted_does_not_second_the_health_that_another_saw(store: Store) -> None:
    acting = await _restarted_twice(store)
    await _healthy(store, after(minutes=10))
    await store.queue.finish(ending(acting, report(check("web")), ended_at=after(minutes=15)), rules=RULES)

    assert await _restart_again(store, after(minutes=20)) is VerdictKind.DENY


async def test_health_from_before_the_action_does_not_clear_its_counter(store: Store) -> None:
    await _healthy(store, after(minutes=-30))
    await store.queue.finish(ending(await _restarted_twice(store), report()), rules=RULES)
    await _healthy(store, after(minutes=10))

    assert await _restart_again(store, after(minutes=20)) is VerdictKind.DENY


async def test_health_without_a_call_that_ran_clears_no_counter(store: Store) -> None:
    await store.queue.finish(ending(await _restarted_twice(store), alarm()), rules=RULES)
    for minutes in (10, 20):
        session = await started(store, at=after(minutes=minutes))
        await store.queue.finish(ending(session, report(check("web")), calls_ran=0), rules=RULES)

    assert await _restart_again(store, after(minutes=30)) is VerdictKind.DENY
