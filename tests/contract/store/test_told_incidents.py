"""Any store: an incident is one message for one fact, whoever has seen it, and nothing ends without a word."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.holds import ApiRefusal, Hold, HoldKind
from claudeops.domain.notices.notice import UNROUTED, Notice, Target, Topic, decoded
from claudeops.domain.probes.probe import HeartbeatLook, ProbeState
from claudeops.domain.probes.record import Telling, fingerprint_of
from claudeops.domain.sessions import ErrorCategory, FailureKind, Outcome, Session, Trigger
from claudeops.store.store import Store
from claudeops.structs import replace
from support.alerts import alert, over
from support.probe_values import observed, probe, turned
from support.store_values import (
    NOW,
    OWNER,
    RULES,
    after,
    alarm,
    allow,
    check,
    claimed,
    ending,
    recorded,
    report,
    restart,
    rules,
    started,
    wanted,
)
from support.stores import Database
from support.told import ABOUT, chain_of, failed, taken

pytest_plugins = ("support.store_fixtures",)

PHONE: Final = Target(name="phone", min_level=EventLevel.INFO)
PAGER: Final = Target(name="pager", min_level=EventLevel.CRITICAL)


async def run(store: Store, minutes: float) -> Session:
    session = await claimed(store, at=after(minutes=minutes))
    assert session is not None
    return session


def told(database: Database) -> list[Notice]:
    """Return what waits to be told, and has been told to no target yet."""
    found = [decoded(str(row["payload"])) for row in database.rows("outbox") if row["delivered_at"] is None]
    return [notice for notice in found if notice is not None]


async def heard_by(store: Store, target: Target, *, at: datetime) -> list[str]:
    """Return what a target is told, in order, when everything is routed at a moment."""
    await store.outbox.route([target], now=at, most=1000)
    claimed = await store.outbox.claim(target.name, now=at, until=at + timedelta(seconds=60), most=1000)
    return [each.notice.text for each in claimed]


async def fails(store: Store, name: str = "web", *, minutes: float = 0, **declared: object) -> None:
    """Have a probe see its service down."""
    web = probe(name, **declared)
    await store.probes.enrol((web,), OWNER, now=after(minutes=minutes))
    await store.probes.observed(
        [turned(web, ProbeState.DOWN, at=after(minutes=minutes))], owner=OWNER, rules=RULES, now=after(minutes=minutes)
    )


# --- one incident, one event, one notice ------------------------------------------------------------------


@pytest.mark.dialect
async def test_an_alert_is_one_incident_one_event_and_one_notice(store: Store, database: Database) -> None:
    await taken(store, alert(annotations={"summary": "HTTP 502"}))

    assert len(database.rows("incidents")) == len(database.rows("events")) == 1
    (notice,) = told(database)
    assert notice.text == "incident 1: Down of shop: HTTP 502; tier 1 looks into it."
    assert (notice.topic, notice.level, notice.service) == (Topic.INCIDENT, EventLevel.CRITICAL, "shop")
    assert (notice.incident, notice.session_id) == (1, 1)
    (row,) = database.rows("outbox")
    assert row["incident_id"] == 1


async def test_what_only_a_probe_sees_is_one_incident_one_event_and_one_notice(
    store: Store, database: Database
) -> None:
    await fails(store)
    await failed(store.alerts, ["web"], "probe:1", now=after(minutes=0.1))

    (event,) = database.rows("events")
    assert (event["fingerprint"], event["incident_id"]) == (fingerprint_of("web"), 1)
    assert len(database.rows("incidents")) == 1
    assert await heard_by(store, PHONE, at=after(minutes=5)) == [
        "incident 1: web is down, by its probe web; tier 1 looks into it."
    ]


async def test_what_a_session_finds_is_one_incident_one_event_and_one_notice(store: Store, database: Database) -> None:
    session = await started(store, wanted(trigger=Trigger.SCHEDULED))
    seen = NewEvent(level=EventLevel.CRITICAL, service="web", message="web answers 502 to everybody")
    await store.queue.finish(ending(session, replace(alarm(), events=(seen,)), cost_usd=0.25), rules=RULES)

    (event,) = database.rows("events")
    assert event["incident_id"] == 1
    (notice,) = told(database)
    assert notice.text == "incident 1: web answers 502; tier 2 looks into it."
    assert (notice.level, notice.service, notice.cost_usd, notice.tier) == (EventLevel.CRITICAL, "web", 0.25, 1)


async def test_a_finding_without_any_event_has_one_of_its_incident(store: Store, database: Database) -> None:
    session = await started(store, wanted(trigger=Trigger.SCHEDULED))
    await store.queue.finish(ending(session, alarm()), rules=RULES)

    (event,) = database.rows("events")
    assert (event["incident_id"], event["service"]) == (1, "web")
    assert len(told(database)) == 1


async def test_a_failure_that_is_over_before_anybody_decides_is_not_told(store: Store, database: Database) -> None:
    await fails(store)
    up = turned(probe("web"), ProbeState.UP, at=after(minutes=0.2))
    await store.probes.observed([up], owner=OWNER, rules=RULES, now=after(minutes=0.2))

    assert await heard_by(store, PHONE, at=after(minutes=1)) == []
    assert [row["result"] for row in database.rows("outbox")] == ["suppressed"]


async def test_a_failure_that_nobody_decides_about_is_told_all_the_same(store: Store) -> None:
    await fails(store)

    assert await heard_by(store, PHONE, at=after(minutes=0.4)) == []  # it may become an incident
    assert await heard_by(store, PHONE, at=after(minutes=0.6)) == ["web is down"]


async def test_a_failure_of_which_no_session_is_to_look_is_told_at_once(store: Store) -> None:
    await fails(store, starts_chain=False)

    assert await heard_by(store, PHONE, at=NOW) == ["web is down"]


async def test_the_shops_that_a_broken_database_explains_are_not_told_one_by_one(
    store: Store, database: Database
) -> None:
    shops = [probe(f"shop{number}") for number in range(20)]
    await store.probes.enrol(shops, OWNER, now=NOW)
    for shop in shops:
        event = NewEvent(
            level=EventLevel.WARNING, message=f"{shop.name} is down, which db explains", service=shop.service
        )
        explained = Telling(at=NOW, events=(event,), is_explained=True)
        seen = observed(shop, ProbeState.DOWN, tellings=(explained,))
        await store.probes.observed([seen], owner=OWNER, rules=RULES, now=NOW)

    assert len(database.rows("events")) == 20
    assert await heard_by(store, PHONE, at=after(hours=1)) == []


# --- its life ---------------------------------------------------------------------------------------------


async def test_its_beginning_its_owner_its_end_and_its_return_are_told_once_each(store: Store) -> None:
    await taken(store, alert())
    first = await run(store, 1)
    await taken(store, alert(), minutes=2, key="b")
    for minutes in (3, 4):
        await store.incidents.acknowledge(1, by="alice", now=after(minutes=minutes))
    healthy = ending(first, report(check("shop")), ended_at=after(minutes=6), cost_usd=0.5)
    await store.queue.finish(healthy, rules=RULES)
    await taken(store, over(), minutes=10, key="c")
    await taken(store, alert(), minutes=20, key="d")
    await store.incidents.resolve(1, by="bob", now=after(minutes=30))

    said = await heard_by(store, PHONE, at=after(minutes=31))
    assert said == [
        "incident 1: Down of shop; tier 1 looks into it.",
        "incident 1: alice is on it.",
        "incident 1 is resolved after 10 min, says session 1, am.",
        "incident 1 is open again: Down of shop; tier 1 looks into it.",
        "incident 1 is resolved after 30 min, says bob.",
    ]


@pytest.mark.dialect
async def test_the_end_says_what_it_has_cost_and_what_was_done(store: Store, database: Database) -> None:
    await taken(store, alert())
    first = await run(store, 1)
    await recorded(store, first, "t1", allow(restart("shop")), at=after(minutes=2))
    await store.queue.finish(ending(first, report(check("shop")), cost_usd=0.5), rules=RULES)
    database.execute("UPDATE cooldown_actions SET success = true")
    await store.incidents.resolve(1, by="bob", now=after(minutes=30))

    (notice,) = [notice for notice in told(database) if "is resolved" in notice.text]
    assert (notice.cost_usd, notice.done, notice.level) == (0.5, ("restart shop",), EventLevel.CRITICAL)


async def test_whoever_is_paged_for_critical_ones_alone_hears_of_one_that_becomes_critical(store: Store) -> None:
    await taken(store, alert(severity=EventLevel.WARNING))
    assert await heard_by(store, PAGER, at=NOW) == []

    await taken(store, alert(), minutes=1, key="b")
    await taken(store, alert(), minutes=2, key="c")

    (said,) = await heard_by(store, PAGER, at=after(minutes=3))
    assert said.startswith("incident 1 is critical now: Down of shop")


async def test_a_sessions_events_about_its_incident_are_not_told_beside_it_and_graver_ones_are(
    store: Store, database: Database
) -> None:
    await taken(store, alert(severity=EventLevel.WARNING))
    first = await run(store, 1)
    seen = [
        NewEvent(level=EventLevel.WARNING, service="SHOP", message="shop is slow"),
        NewEvent(level=EventLevel.CRITICAL, service="shop", message="shop loses orders"),
        NewEvent(level=EventLevel.WARNING, service="db", message="db is nearly full"),
    ]
    await store.queue.finish(ending(first, report(check("db"), events=tuple(seen))), rules=RULES)

    texts = [notice.text for notice in told(database)]
    assert "shop is slow" not in texts
    assert {"shop loses orders", "db is nearly full"} <= set(texts)
    assert {row["message"] for row in database.rows("events")} >= {"shop is slow", "shop loses orders"}


async def test_each_tier_that_takes_over_is_told_with_its_incident(store: Store, database: Database) -> None:
    await taken(store, alert())
    first = await run(store, 1)
    await store.queue.finish(ending(first, alarm("shop"), cost_usd=0.25), rules=RULES)

    (notice,) = [notice for notice in told(database) if notice.key == f"escalated:{first.id}"]
    assert (notice.incident, notice.cost_usd) == (1, 0.25)
    assert notice.text.startswith("tier 2 looks into it")


# --- left unresolved --------------------------------------------------------------------------------------

UNRESOLVED: Final[dict[str, dict[str, Any]]] = {
    "max_tier": {"said": alarm("shop")},
    "session_failed": {"outcome": Outcome.CANCELLED, "error": "killed"},
    "no_report": {"said": None},
    "no_evidence": {"said": report(check("shop")), "calls_ran": 0},
    "the gate was passed by": {"outcome": Outcome.UNGATED_CALL, "error": "ended: a tool ran without the gate's yes"},
}


@pytest.mark.parametrize("why", UNRESOLVED)
async def test_a_chain_that_nobody_follows_leaves_its_incident_with_a_word(
    store: Store, database: Database, why: str
) -> None:
    await taken(store, alert())
    first = await run(store, 1)
    end = dict(UNRESOLVED[why])
    await store.queue.finish(ending(first, end.pop("said", None), cost_usd=0.25, **end), rules=rules(max_tier=1))

    (notice,) = [notice for notice in told(database) if "unresolved" in notice.key]
    assert notice.text.startswith("incident 1 is unresolved: ")
    assert (notice.topic, notice.level, notice.service) == (Topic.INCIDENT, EventLevel.CRITICAL, "shop")
    assert (notice.cost_usd, notice.tier, notice.session_id) == (0.25, 1, first.root_session_id)
    assert len(told(database)) == 2  # with its beginning


async def test_a_gate_that_does_not_hold_with_a_new_cli_is_told_once_it_was_tried_twice(
    store: Store, database: Database
) -> None:
    await taken(store, alert())
    for minutes in (1, 3):
        refused = {"outcome": Outcome.SPAWN_FAILED, "error": "The gate does not hold with the claude CLI (9.9.9): x"}
        await store.queue.finish(ending(await run(store, minutes), None, calls_ran=0, **refused), rules=RULES)

    notices = told(database)
    assert [notice.level for notice in notices] == [EventLevel.CRITICAL, EventLevel.WARNING, EventLevel.CRITICAL]
    assert "it is tried once more" in notices[1].text
    assert notices[2].text.startswith("incident 1 is unresolved: the tier 1 session failed (spawn_failed): The gate")
    assert (notices[2].service, notices[2].tier) == ("shop", 1)


@pytest.mark.parametrize("why", [why for why in UNRESOLVED if why != "no_evidence"])
async def test_a_chain_that_nobody_follows_is_told_without_an_incident_too(
    store: Store, database: Database, why: str
) -> None:
    session = await started(store, wanted(trigger=Trigger.SCHEDULED))
    end = dict(UNRESOLVED[why])
    await store.queue.finish(ending(session, end.pop("said", None), cost_usd=0.25, **end), rules=rules(max_tier=1))

    (notice,) = told(database)
    assert (notice.topic, notice.cost_usd, notice.tier) == (Topic.INCIDENT, 0.25, 1)
    assert notice.level in {EventLevel.WARNING, EventLevel.CRITICAL}
    assert notice.text


async def test_what_is_left_unresolved_once_more_is_not_told_once_more(store: Store) -> None:
    await taken(store, alert())
    for round_ in range(2):
        session = await run(store, 1 + 300 * round_)
        await store.queue.finish(ending(session), rules=RULES)
        await store.alerts.tick(ABOUT, chain_of, now=after(minutes=299))

    said = await heard_by(store, PHONE, at=after(minutes=310))
    assert sum("unresolved" in text for text in said) == 1


async def test_a_session_that_may_not_start_leaves_its_incident_with_a_word(store: Store, database: Database) -> None:
    await taken(store, alert())
    first = await run(store, 1)
    await store.queue.finish(ending(first, alarm("shop"), cost_usd=0.25), rules=RULES)
    assert await claimed(store, at=after(minutes=3), with_rules=rules(max_tier=1)) is None

    (notice,) = [notice for notice in told(database) if "unresolved" in notice.key]
    assert (notice.tier, notice.cost_usd, notice.service) == (2, 0.25, "shop")


async def test_a_session_that_is_lost_for_good_leaves_its_incident_with_a_word(
    store: Store, database: Database
) -> None:
    await taken(store, alert())
    for minutes in (1, 2):
        session = await run(store, minutes)
        await store.recovery.mark_lost(session, rules=RULES, now=after(minutes=minutes))

    (notice,) = [notice for notice in told(database) if "unresolved" in notice.key]
    assert "for the second time" in notice.text


@pytest.mark.parametrize("kind", [HoldKind.BUDGET, HoldKind.DISK, HoldKind.BREAKER], ids=str)
async def test_a_hold_says_what_it_leaves_alone_and_what_that_has_cost(
    store: Store, database: Database, kind: HoldKind
) -> None:
    await taken(store, alert())
    first = await run(store, 1)
    await store.queue.finish(ending(first, alarm("shop"), cost_usd=0.25), rules=RULES)
    hold = Hold(kind=kind, reason="no session is started.", since=after(minutes=3))
    for _ in range(2):
        await store.holds.hold(hold, now=after(minutes=3))

    (notice,) = [notice for notice in told(database) if notice.text == hold.reason]
    assert (notice.topic, notice.also, notice.level) == (Topic.SELF, Topic.INCIDENT, EventLevel.CRITICAL)
    assert (notice.service, notice.cost_usd, notice.tier) == ("shop", 0.25, 2)


async def test_a_refused_key_is_told_once_with_the_session_that_met_it(store: Store, database: Database) -> None:
    session = await started(store, wanted(trigger=Trigger.SCHEDULED))
    refused = ApiRefusal(kind=FailureKind.AUTH, message="invalid x-api-key", session_id=session.id)
    await store.holds.refused(refused, now=after(minutes=0.5))
    failed = ending(
        session,
        outcome=Outcome.ERROR,
        error="invalid x-api-key",
        error_category=ErrorCategory.AUTH,
        failure_kind=FailureKind.AUTH,
    )
    await store.queue.finish(failed, rules=RULES)

    (notice,) = told(database)
    assert (notice.level, notice.tier) == (EventLevel.CRITICAL, 1)
    assert "refuses our credentials" in notice.text


# --- heartbeats -------------------------------------------------------------------------------------------


async def test_a_heartbeat_that_falls_silent_is_an_incident_without_a_session_until_it_comes_again(
    store: Store, database: Database
) -> None:
    silent: dict[str, Any] = {"look": HeartbeatLook(every=60, grace=10), "starts_chain": False}
    await fails(store, "watchdog", **silent)

    (incident,) = database.rows("incidents")
    assert (incident["service"], incident["status"], incident["severity"]) == ("watchdog", "open", "critical")
    assert len(database.rows("events")) == 1
    assert database.rows("sessions") == []

    back = turned(probe("watchdog", **silent), ProbeState.UP, at=after(minutes=5))
    await store.probes.observed([back], owner=OWNER, rules=RULES, now=after(minutes=5))

    (incident,) = database.rows("incidents")
    assert incident["status"] == "resolved"
    said = await heard_by(store, PHONE, at=after(minutes=6))
    assert said == ["incident 1: watchdog is down", "incident 1 is resolved after 5 min, says watchdog."]
    assert all(row["target"] != UNROUTED for row in database.rows("outbox"))


async def test_a_heartbeat_that_nobody_declares_any_more_leaves_no_incident_open(
    store: Store, database: Database
) -> None:
    await fails(store, "watchdog", look=HeartbeatLook(every=60, grace=10), starts_chain=False)
    await store.probes.enrol((), OWNER, now=after(minutes=1))

    assert [row["status"] for row in database.rows("incidents")] == ["resolved"]
