"""Any store: alerts and decisions are written as one, chains are queued once, incidents end by two witnesses."""

from __future__ import annotations

from typing import Final

import pytest

from claudeops.domain.alerts.alert import Alert, AlertDecision, SenderBody, Silence, Unparsed
from claudeops.domain.alerts.matchers import read_matchers
from claudeops.domain.alerts.register import AlertResult, ReceivedBody
from claudeops.domain.alerts.rules import AlertSource
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.probes.dependencies import connected
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.retention import Aged, cutoffs
from claudeops.domain.sessions import Handover, NewSession, Session, Trigger
from claudeops.store.store import Store
from support.alerts import AT_ONCE, SOURCE, alert, bring, over, rules_of
from support.probe_values import probe, turned
from support.store_values import (
    NOW,
    OWNER,
    RULES,
    after,
    alarm,
    check,
    claimed,
    ending,
    report,
    wanted,
)
from support.stores import Database, opened
from support.told import failed

pytest_plugins = ("support.store_fixtures",)

ABOUT: Final = AlertFiles(alerts=rules_of(), escalation=RULES)


def chain_of(tier: int, told: Handover) -> NewSession:
    return wanted(tier, trigger=Trigger.ALERT, context=told)


def said(*alerts: Alert, key: str = "a", group: str = "g") -> ReceivedBody:
    delivery = SenderBody(source=SOURCE, key=key, alerts=alerts, group_key=group)
    return ReceivedBody(content=delivery, received_at=NOW, raw="{}")


async def take(store: Store, *posts: ReceivedBody, minutes: float = 0, about: AlertFiles = ABOUT) -> AlertResult:
    return await bring(store.alerts, posts, about, chain_of, now=after(minutes=minutes))


async def tick(store: Store, minutes: float, about: AlertFiles = ABOUT) -> AlertResult:
    return await store.alerts.tick(about, chain_of, now=after(minutes=minutes))


def decisions(database: Database) -> list[object]:
    return [row["decision"] for row in database.rows("alert_decisions")]


async def run(store: Store, minutes: float) -> Session:
    session = await claimed(store, at=after(minutes=minutes))
    assert session is not None
    return session


@pytest.mark.dialect
async def test_a_body_its_alert_its_decision_and_its_chain_are_written_as_one(store: Store, database: Database) -> None:
    done = await take(store, said(alert()))

    ((started, start),) = done.started
    assert (started.trigger, started.tier, start.incident) == (Trigger.ALERT, 1, 1)
    assert started.context is not None
    assert "Down of shop" in started.context.findings
    assert decisions(database) == ["started"]
    assert [row["session_id"] for row in database.rows("alert_decisions")] == [started.id]
    assert [row["incident_id"] for row in database.rows("sessions")] == [1]
    (incident,) = database.rows("incidents")
    assert (incident["status"], incident["root_session_id"], incident["service"]) == ("open", started.id, "shop")
    (event,) = database.rows("events")
    assert event["incident_id"] == 1
    assert [ruling.decision for ruling in done.rulings] == [AlertDecision.STARTED]


@pytest.mark.dialect
async def test_the_same_body_a_hundred_times_is_one_row_one_chain_and_a_hundred_decisions(
    store: Store, database: Database
) -> None:
    for number in range(10):
        await take(store, *[said(alert())] * 10, minutes=number / 100)

    assert [row["repeats"] for row in database.rows("alert_deliveries")] == [99]
    assert [row["count"] for row in database.rows("alerts")] == [100]
    assert decisions(database) == ["started", *["duplicate"] * 99]
    assert len(database.rows("sessions")) == 1


async def test_a_body_that_comes_again_changes_nothing_and_is_answered_the_same(
    store: Store, database: Database
) -> None:
    first, again = await take(store, said(alert())), await take(store, said(alert()), minutes=1)
    incident, sessions, events = (database.rows(name) for name in ("incidents", "sessions", "events"))

    assert [ruling.incident for ruling in first.rulings] == [ruling.incident for ruling in again.rulings] == [1]
    assert [ruling.decision for ruling in again.rulings] == [AlertDecision.DUPLICATE]
    assert decisions(database) == ["started", "duplicate"]
    assert (len(incident), len(sessions), len(events)) == (1, 1, 1)
    assert (again.started, again.opened, again.resolved) == ([], [], [])


async def test_a_silenced_body_that_comes_again_is_silenced_again_and_counted_once(
    store: Store, database: Database
) -> None:
    silence = Silence(
        id=0, matchers=read_matchers(['service="shop"']), starts_at=NOW, ends_at=after(hours=1), created_by="alice"
    )
    await store.silences.add(silence)
    for minutes in (1, 2):
        await take(store, said(alert()), minutes=minutes)

    assert decisions(database) == ["silenced", "silenced"]
    assert [row["suppressed_count"] for row in database.rows("silences")] == [1]
    assert [row["repeats"] for row in database.rows("alert_deliveries")] == [1]


async def test_the_next_daemon_goes_on_where_the_last_one_stopped(store: Store, database: Database) -> None:
    await take(store, said(alert()))
    async with opened(database) as other:
        done = await take(other, said(alert(), key="b"), minutes=1)
        await take(other, said(alert("Slow", "web"), key="c", group="h"), minutes=2)

    assert done.started == []
    assert decisions(database) == ["started", "duplicate", "started"]
    assert [row["number"] for row in database.rows("incidents")] == [1, 2]


async def test_a_body_that_cannot_be_read_is_on_record(store: Store, database: Database) -> None:
    unread = Unparsed(source=SOURCE, key="x", why="it is not JSON")
    done = await take(store, ReceivedBody(content=unread, received_at=NOW, raw="nonsense"))

    assert done.rulings == []
    assert [row["because"] for row in database.rows("alert_decisions")] == [
        "the body could not be read: it is not JSON"
    ]
    assert decisions(database) == ["unparsed"]
    assert [(row["status"], row["raw"]) for row in database.rows("alert_deliveries")] == [("unparsed", "nonsense")]


async def test_what_comes_later_joins_the_running_chain_and_the_next_tier_is_told(
    store: Store, database: Database
) -> None:
    await take(store, said(alert()))
    first = await run(store, 1)
    await take(store, said(alert("Slow", "shop"), key="b", group="h"), minutes=2)
    finished = await store.queue.finish(ending(first, alarm("shop"), ended_at=after(minutes=3)), rules=RULES)

    assert decisions(database) == ["started", "joined"]
    assert finished.next_session_id is not None
    following = await run(store, 4)
    assert following.context is not None
    assert "Slow of shop" in following.context.findings
    assert [row["incident_id"] for row in database.rows("sessions")] == [1, 1]


@pytest.mark.dialect
@pytest.mark.parametrize("together", [True, False], ids=["one body", "two bodies"])
async def test_what_joins_a_chain_in_the_round_that_starts_it_is_told_to_its_first_session_and_the_next(
    store: Store, database: Database, *, together: bool
) -> None:
    about = AlertFiles(
        alerts=rules_of(
            sources=(AlertSource(name=SOURCE, grouping=AT_ONCE), AlertSource(name="other", grouping=AT_ONCE))
        ),
        escalation=RULES,
    )
    late = SenderBody(source="other", key="b", alerts=(alert("Slow"), alert("Full"), over("Gone")), group_key="h")
    posts = [said(alert()), ReceivedBody(content=late, received_at=NOW, raw="{}")]
    for post in [posts] if together else [posts[:1], posts[1:]]:
        await take(store, *post, about=about)

    rows = database.rows("alert_decisions")
    ids = [row["session_id"] for row in rows if row["decision"] == "joined"]
    first = await run(store, 1)
    assert [row["decision"] for row in rows] == ["started", "joined", "joined", "resolved_first"]
    assert ids == [first.id, first.id]
    if together:
        assert first.context is not None
        assert "3 alerts about 1 service" in first.context.findings
        assert all(f"{name} of shop" in first.context.findings for name in ("Down", "Slow", "Full"))
    finished = await store.queue.finish(ending(first, alarm("shop"), ended_at=after(minutes=3)), rules=RULES)
    assert finished.next_session_id is not None
    following = await run(store, 4)
    assert following.context is not None
    assert all(f"{name} of shop" in following.context.findings for name in ("Slow", "Full"))


async def test_whom_an_alert_is_about_is_on_record_with_what_says_so(store: Store, database: Database) -> None:
    cart = alert("Down", "shop/cart", service_by="its labels deployment and namespace")
    await take(store, said(cart, group="g"))
    async with opened(database) as other:
        await take(other, said(over("Down", "shop/cart", service_by=cart.service_by), key="b"), minutes=1)

    assert next(row["because"] for row in database.rows("alert_decisions")) == (
        "a chain starts at tier 1: incident 1; it is about shop/cart by its labels deployment and namespace"
    )
    (row,) = database.rows("alerts")
    assert (row["service_by"], row["sender_group"]) == (cart.service_by, "g")


async def test_a_service_that_its_probes_see_up_explains_nothing_whatever_a_source_says(
    store: Store, database: Database
) -> None:
    about = AlertFiles(
        alerts=rules_of(), escalation=RULES, dependencies=connected({"shop": ["db"], "cart": ["db"], "db": []})
    )
    db = probe("db")
    await store.probes.enrol((db,), OWNER, now=NOW)
    await take(store, said(alert("Down", "db")), about=about)
    await take(store, said(alert("Down", "shop"), key="b", group="h"), minutes=1, about=about)
    await tick(store, 2, about)
    assert decisions(database) == ["started", "inhibited"]

    up = turned(db, ProbeState.UP, at=after(minutes=3))
    await store.probes.observed([up], owner=OWNER, rules=RULES, now=after(minutes=3))
    await tick(store, 4, about)
    await tick(store, 5, about)
    assert decisions(database) == ["started", "inhibited", "grouped", "started"]

    down = turned(db, ProbeState.DOWN, at=after(minutes=6))
    await store.probes.observed([down], owner=OWNER, rules=RULES, now=after(minutes=6))
    await take(store, said(alert("Down", "cart"), key="c", group="i"), minutes=7, about=about)
    assert decisions(database)[-1] == "inhibited"


async def test_a_person_who_ends_an_incident_ends_what_its_alert_explains(store: Store, database: Database) -> None:
    about = AlertFiles(alerts=rules_of(), escalation=RULES, dependencies=connected({"shop": ["db"], "db": []}))
    await take(store, said(alert("Down", "db")), about=about)
    await take(store, said(alert("Down", "shop"), key="b", group="h"), minutes=1, about=about)
    await store.incidents.resolve(1, by="alice", now=after(minutes=2))
    await tick(store, 3, about)
    await tick(store, 4, about)

    assert decisions(database) == ["started", "inhibited", "grouped", "started"]


async def test_an_incident_ends_by_its_source_and_a_look(store: Store, database: Database) -> None:
    await take(store, said(alert()))
    first = await run(store, 1)
    await store.queue.finish(ending(first, report(check("shop")), ended_at=after(minutes=3)), rules=RULES)
    assert [row["status"] for row in database.rows("incidents")] == ["open"]

    done = await take(store, said(over(), key="b"), minutes=4)

    assert [incident.number for incident in done.resolved] == [1]
    assert [row["status"] for row in database.rows("incidents")] == ["resolved"]
    assert all(row["resolved_at"] is not None for row in database.rows("events"))


async def test_what_comes_back_within_the_hour_reopens_it(store: Store, database: Database) -> None:
    await take(store, said(alert()))
    first = await run(store, 1)
    await store.queue.finish(ending(first, report(check("shop")), ended_at=after(minutes=3)), rules=RULES)
    await take(store, said(over(), key="b"), minutes=4)
    await take(store, said(alert(), key="c"), minutes=20)
    await tick(store, 21)

    (incident,) = database.rows("incidents")
    assert (incident["status"], incident["reopened"]) == ("open", 1)
    assert len(database.rows("sessions")) == 2


async def test_what_a_session_finds_opens_an_incident(store: Store, database: Database) -> None:
    await store.queue.enqueue(wanted(trigger=Trigger.SCHEDULED), rules=RULES, now=NOW)
    first = await run(store, 1)
    await store.queue.finish(ending(first, alarm(), ended_at=after(minutes=2)), rules=RULES)

    (incident,) = database.rows("incidents")
    assert (incident["service"], incident["severity"], incident["root_session_id"]) == ("web", "critical", first.id)
    assert [row["incident_id"] for row in database.rows("sessions")] == [1, 1]


@pytest.mark.dialect
async def test_a_silence_holds_back_counts_and_passes(store: Store, database: Database) -> None:
    silence = Silence(
        id=0,
        matchers=read_matchers(['service="shop"']),
        starts_at=NOW,
        ends_at=after(minutes=30),
        created_by="alice",
        comment="moving",
    )
    kept = await store.silences.add(silence)
    done = await take(store, said(alert()), minutes=1)

    assert done.started == []
    assert decisions(database) == ["silenced"]
    assert [(row["id"], row["suppressed_count"]) for row in database.rows("silences")] == [(kept.id, 1)]

    later = await tick(store, 31)
    assert len(later.started) == 1


async def test_people_acknowledge_and_resolve(store: Store, database: Database) -> None:
    await take(store, said(alert()))
    acked = await store.incidents.acknowledge(1, by="alice", now=after(minutes=1))
    ended = await store.incidents.resolve(1, by="alice", now=after(minutes=2))

    assert acked is not None
    assert (acked.status, acked.acked_by) == ("acknowledged", "alice")
    assert ended is not None
    assert ended.status == "resolved"
    assert await store.incidents.acknowledge(7, by="alice", now=NOW) is None
    assert all(row["resolved_at"] is not None for row in database.rows("events"))


async def test_a_failing_probe_takes_the_same_door_and_its_return_is_heard(store: Store, database: Database) -> None:
    web = probe("web")
    await store.probes.enrol((web,), OWNER, now=NOW)
    down = turned(web, ProbeState.DOWN, at=after(minutes=1))
    await store.probes.observed([down], owner=OWNER, rules=RULES, now=after(minutes=1))
    done = await failed(store.alerts, ["web"], "probe:1", now=after(minutes=1))
    again = await failed(store.alerts, ["web"], "probe:1", now=after(minutes=2))

    ((started, _),) = done.started
    assert (again.started, again.rulings) == ([], [])
    assert [(row["session_id"], row["incident"]) for row in database.rows("probes")] == [(started.id, "probe:1")]
    assert decisions(database) == ["started"]

    up = turned(web, ProbeState.UP, at=after(minutes=5))
    await store.probes.observed([up], owner=OWNER, rules=RULES, now=after(minutes=5))
    await tick(store, 6)
    await tick(store, 7)

    assert decisions(database) == ["started", "joined"]
    assert [row["status"] for row in database.rows("alerts")] == ["resolved"]


@pytest.mark.dialect
async def test_a_round_that_fails_leaves_nothing_and_the_next_one_begins_anew(store: Store, database: Database) -> None:
    def broken(tier: int, told: Handover) -> NewSession:
        raise RuntimeError(f"tier {tier}: {told.reason}")

    with pytest.raises(RuntimeError):
        await bring(store.alerts, [said(alert())], ABOUT, broken, now=NOW)
    assert (len(database.rows("alert_queue")), database.rows("alerts"), database.rows("incidents")) == (1, [], [])

    done = await take(store)
    assert [start.incident for _, start in done.started] == [1]


async def test_a_storm_starts_few_chains_and_decides_about_everything(store: Store, database: Database) -> None:
    posts = [
        said(*[alert(f"A{number}", f"s{number}-{one}") for one in range(10)], key=str(number), group=str(number))
        for number in range(50)
    ]
    await take(store, *posts)
    for minute in range(1, 4):
        await tick(store, minute)

    assert len(database.rows("sessions")) <= 5
    assert len({row["alert_id"] for row in database.rows("alert_decisions")}) == 500


async def test_old_decisions_go_and_then_their_bodies(store: Store, database: Database) -> None:
    await take(store, said(alert()))
    late = after(days=60)
    bounds = cutoffs(late, retention_days=30)

    assert not (await store.retention.expire(Aged.BODIES, bounds, now=late, rows=100)).done
    await store.retention.expire(Aged.DECISIONS, bounds, now=late, rows=100)
    await store.retention.expire(Aged.BODIES, bounds, now=late, rows=100)

    assert (database.rows("alert_decisions"), database.rows("alert_deliveries")) == ([], [])
    assert len(database.rows("alerts")) == 1
