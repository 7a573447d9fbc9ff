"""Any store: how probes stand survives, what changes leads to is written once, and news start one chain."""

from __future__ import annotations

import pytest

from claudeops.domain.alerts.alert import SenderBody
from claudeops.domain.alerts.register import ReceivedBody
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.probes.history import BUCKET, HOUR, Bucket
from claudeops.domain.probes.probe import JobRun, Pings, PingVerb, ProbeState, Standing
from claudeops.domain.probes.record import Observed, Stretch, Telling
from claudeops.domain.retention import Aged, cutoffs
from claudeops.domain.sessions import Handover, NewSession, Session, Trigger
from claudeops.store.store import Store
from claudeops.structs import replace
from support.alerts import SOURCE, alert
from support.probe_values import heartbeat, observed, probe, standing, turned
from support.store_values import (
    NOW,
    OTHER_OWNER,
    OWNER,
    RULES,
    after,
    allow,
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
from support.told import ABOUT, chain_of, failed

pytest_plugins = ("support.store_fixtures",)

WEB, DB = probe("web"), probe("db")
INCIDENT = "probe:1"


async def enrolled(store: Store, *probes_declared: object) -> None:
    await store.probes.enrol(probes_declared or (WEB, DB), OWNER, now=NOW)  # type: ignore[arg-type]


async def went_down(store: Store, *names: str, minutes: float = 1) -> None:
    at = after(minutes=minutes)
    batch = [turned(probe(name), ProbeState.DOWN, at=at) for name in names]
    await store.probes.observed(batch, owner=OWNER, rules=RULES, now=at)


async def alerted(store: Store, *names: str, minutes: float = 2, incident: str = INCIDENT) -> Session | None:
    done = await failed(store.alerts, names, incident, now=after(minutes=minutes))
    return next((session for session, _ in done.started), None)


async def came_back(store: Store, *names: str, minutes: float) -> None:
    at = after(minutes=minutes)
    batch = [turned(probe(name), ProbeState.UP, at=at) for name in names]
    await store.probes.observed(batch, owner=OWNER, rules=RULES, now=at)
    for later in (1, 2):  # an alert is over when a probe has seen its service up for a while
        await store.alerts.tick(ABOUT, chain_of, now=after(minutes=minutes + later))


# --- what is on record ------------------------------------------------------------------------------------


async def test_a_declared_probe_is_unknown_until_it_was_looked_at(store: Store, database: Database) -> None:
    kept = await store.probes.enrol((WEB, DB), OWNER, now=NOW)

    assert set(kept) == {"web", "db"}
    assert kept["web"].standing.state is ProbeState.UNKNOWN
    assert (kept["web"].service, kept["web"].kind, kept["web"].interval) == ("web", "http", 30.0)
    assert {row["owner"] for row in database.rows("probes")} == {OWNER.name}


@pytest.mark.dialect
async def test_how_a_probe_stands_survives_a_restart_whole(store: Store) -> None:
    await enrolled(store)
    stands = replace(
        standing(ProbeState.DEGRADED, at=after(minutes=3)),
        detail="slow: 2.1 s",
        latency_ms=2100.5,
        changes=(NOW, after(minutes=1)),
        beneath=ProbeState.DEGRADED,
        degradations=4,
        incident="probe:1",
        explained_by="db",
    )
    seen = replace(observed(WEB, at=after(minutes=3)), standing=stands, healthy_since=NOW)
    await store.probes.observed([seen], owner=OWNER, rules=RULES, now=after(minutes=3))

    kept = await store.probes.enrol((WEB, DB), OTHER_OWNER, now=after(minutes=4))

    assert kept["web"].standing == stands
    assert kept["web"].healthy_since == NOW
    assert kept == await store.probes.kept()


async def test_a_probe_that_is_no_longer_declared_goes_with_its_event_and_leaves_its_history(
    store: Store, database: Database
) -> None:
    await enrolled(store)
    await went_down(store, "web")
    await store.probes.add_history([stretch("web")])

    kept = await store.probes.enrol((DB,), OWNER, now=after(minutes=5))

    assert set(kept) == {"db"}
    (event,) = database.rows("events")
    assert event["resolved_at"] == after(minutes=5)
    assert len(database.rows("probe_history")) == 2


async def test_another_question_under_the_same_name_begins_anew(store: Store) -> None:
    await enrolled(store)
    await went_down(store, "web")

    kept = await store.probes.enrol((heartbeat("web"), DB), OWNER, now=after(minutes=5))

    assert kept["web"].standing == Standing(since=after(minutes=5))


async def test_a_look_at_a_probe_that_is_gone_is_passed_over(store: Store, database: Database) -> None:
    await enrolled(store, DB)
    await store.probes.observed([observed(WEB), observed(DB)], owner=OWNER, rules=RULES, now=NOW)
    assert [row["name"] for row in database.rows("probes")] == ["db"]


@pytest.mark.dialect
async def test_a_name_of_any_length_and_kind_is_found_again(store: Store) -> None:
    long = probe("w" * 300 + "\x00")
    await enrolled(store, long)
    await store.probes.observed([observed(long)], owner=OWNER, rules=RULES, now=NOW)
    (kept,) = (await store.probes.kept()).values()
    assert kept.standing.state is ProbeState.UP


# --- changes ----------------------------------------------------------------------------------------------


async def test_a_change_writes_row_event_and_check_and_the_way_back_ends_the_event(
    store: Store, database: Database
) -> None:
    await enrolled(store)
    await went_down(store, "web")
    (event,) = database.rows("events")
    (row,) = database.rows("service_checks")
    assert (event["service"], event["level"], event["resolved_at"]) == ("web", "critical", None)
    assert (row["service"], row["status"], row["source"], row["session_id"]) == ("web", "down", "probe", None)

    back = turned(WEB, ProbeState.UP, at=after(minutes=2))
    await store.probes.observed([back], owner=OWNER, rules=RULES, now=after(minutes=2))

    (event,) = database.rows("events")
    assert event["resolved_at"] == after(minutes=2)
    assert [row["status"] for row in database.rows("service_checks")] == ["down", "healthy"]


async def test_looks_that_change_nothing_write_no_check_and_no_event(store: Store, database: Database) -> None:
    await enrolled(store)
    for minute in range(5):
        batch = [observed(WEB, at=after(minutes=minute)), observed(DB, at=after(minutes=minute))]
        await store.probes.observed(batch, owner=OWNER, rules=RULES, now=after(minutes=minute))
    assert database.rows("service_checks") == database.rows("events") == []
    assert (await store.probes.kept())["db"].standing.last_checked_at == after(minutes=4)


async def test_a_service_is_as_well_as_the_worst_of_its_probes(store: Store, database: Database) -> None:
    page, port = probe("web page", service="web"), probe("web port", service="web")
    await enrolled(store, page, port)
    down = [turned(each, ProbeState.DOWN, at=NOW) for each in (page, port)]
    await store.probes.observed(down, owner=OWNER, rules=RULES, now=NOW)

    await store.probes.observed([turned(port, ProbeState.UP, at=after(minutes=1))], owner=OWNER, rules=RULES, now=NOW)

    assert [row["status"] for row in database.rows("service_checks")] == ["down", "down", "down"]


@pytest.mark.dialect
async def test_turns_that_waited_for_the_database_are_written_in_their_order(store: Store, database: Database) -> None:
    await enrolled(store)
    down, up = turned(WEB, ProbeState.DOWN, at=after(minutes=1)), turned(WEB, ProbeState.UP, at=after(minutes=2))
    other = turned(DB, ProbeState.DOWN, at=after(minutes=1.5))
    both = replace(up, tellings=(*down.tellings, *up.tellings))

    await store.probes.observed([both, other], owner=OWNER, rules=RULES, now=after(minutes=9))

    assert [row["checked_at"] for row in database.rows("service_checks")] == [
        after(minutes=1),
        after(minutes=1.5),
        after(minutes=2),
    ]
    assert [row["resolved_at"] for row in database.rows("events")] == [after(minutes=2), None]


async def test_a_telling_is_written_once_though_its_write_was_given_up(store: Store, database: Database) -> None:
    await enrolled(store)
    down = turned(WEB, ProbeState.DOWN, at=after(minutes=1))
    first = replace(down.tellings[0], number=1)
    down = replace(down, standing=replace(down.standing, tellings=1), tellings=(first,))
    up = turned(WEB, ProbeState.UP, at=after(minutes=2))
    both = (first, replace(up.tellings[0], number=2))
    for batch in ([down], [down], [replace(up, standing=replace(up.standing, tellings=2), tellings=both)]):
        await store.probes.observed(batch, owner=OWNER, rules=RULES, now=after(minutes=2))

    assert [row["status"] for row in database.rows("service_checks")] == ["down", "healthy"]
    assert [(row["count"], row["resolved_at"]) for row in database.rows("events")] == [(1, after(minutes=2))]


def numbered(seen: Observed, number: int) -> Observed:
    told = replace(seen.tellings[0], number=number)
    return replace(seen, standing=replace(seen.standing, tellings=number), tellings=(told,))


@pytest.mark.dialect
async def test_what_another_daemon_has_counted_keeps_no_failure_unsaid(store: Store, database: Database) -> None:
    await enrolled(store)
    other = turned(WEB, ProbeState.UP, at=after(minutes=0.5))
    other = numbered(other, 9)
    await store.probes.observed([other], owner=OTHER_OWNER, rules=RULES, now=after(minutes=0.5))
    down = numbered(turned(WEB, ProbeState.DOWN, at=after(minutes=1)), 1)
    for _ in range(2):
        await store.probes.observed([down], owner=OWNER, rules=RULES, now=after(minutes=1))

    assert [row["status"] for row in database.rows("service_checks")] == ["healthy", "down"]
    assert [(row["count"], row["resolved_at"]) for row in database.rows("events")][-1] == (1, None)


async def test_a_probe_that_is_gone_leaves_no_event_open(store: Store, database: Database) -> None:
    await enrolled(store, DB)
    down = turned(WEB, ProbeState.DOWN, at=after(minutes=1))
    await store.probes.observed([down], owner=OWNER, rules=RULES, now=after(minutes=1))
    assert database.rows("events") == []


# --- chains -----------------------------------------------------------------------------------------------


@pytest.mark.dialect
async def test_a_failure_waits_behind_no_body_of_a_sender(store: Store) -> None:
    await enrolled(store)
    await went_down(store, "web")
    bodies = [
        ReceivedBody(
            content=SenderBody(source=SOURCE, key=f"{number}", alerts=(alert(service=f"s{number}"),)),
            received_at=NOW,
            raw="{}",
        )
        for number in range(3)
    ]
    await store.alerts.receive(bodies, now=NOW)
    await store.alerts.queue_failures(["web"], INCIDENT, now=after(minutes=2))

    first = await store.alerts.decide(ABOUT, chain_of, now=after(minutes=2), most=1)
    assert first is not None
    assert [ruling.alert for ruling in first.rulings] == [("probes", "web")]


@pytest.mark.dialect
async def test_a_failure_that_is_over_when_it_is_decided_about_starts_nothing_and_leaves_a_note(
    store: Store, database: Database
) -> None:
    await enrolled(store)
    await went_down(store, "web", "db")
    assert await store.alerts.queue_failures(["web", "db"], INCIDENT, now=after(minutes=1.1))
    back = turned(WEB, ProbeState.UP, at=after(minutes=2))
    await store.probes.observed([back], owner=OWNER, rules=RULES, now=after(minutes=2))

    done = await store.alerts.decide(ABOUT, chain_of, now=after(minutes=3))
    assert done is not None
    assert [ruling.alert for ruling in done.rulings] == [("probes", "db")]
    assert sorted(str(row["decision"]) for row in database.rows("alert_decisions")) == ["resolved_first", "started"]
    notes = [row["message"] for row in database.rows("events") if row["level"] == "info"]
    assert notes == ["web was down for 60 s and recovered by itself; no session was started"]
    assert {row["name"]: row["handled_state"] for row in database.rows("probes")} == {"db": "down", "web": None}


async def test_a_failure_is_in_the_queue_once_however_often_it_is_put_there(store: Store, database: Database) -> None:
    await enrolled(store)
    await went_down(store, "web")
    assert await store.alerts.queue_failures(["web"], INCIDENT, now=after(minutes=2))
    assert not await store.alerts.queue_failures(["web"], INCIDENT, now=after(minutes=2))
    (row,) = database.rows("alert_queue")
    assert row["priority"] == 0


async def test_a_failure_starts_one_chain_however_often_it_is_told(store: Store, database: Database) -> None:
    await enrolled(store)
    await went_down(store, "web", "db")

    first = await alerted(store, "web", "db")

    assert isinstance(first, Session)
    assert (first.trigger, first.tier, first.root_session_id) == (Trigger.ALERT, 1, first.id)
    assert await alerted(store, "web", "db") is None
    assert len(database.rows("sessions")) == 1
    kept = await store.probes.kept()
    assert {(each.session_id, each.standing.incident, each.chain_at) for each in kept.values()} == {
        (first.id, INCIDENT, after(minutes=2))
    }


async def test_what_nobody_knows_starts_no_chain(store: Store, database: Database) -> None:
    await enrolled(store)
    assert await alerted(store, "nobody") is None
    assert database.rows("sessions") == []


async def test_while_its_chain_is_under_way_a_probe_starts_no_other(store: Store, database: Database) -> None:
    await enrolled(store)
    await went_down(store, "web")
    assert isinstance(await alerted(store, "web"), Session)

    await went_down(store, "web", minutes=3)
    assert await alerted(store, "web", minutes=4) is None
    assert (await store.probes.kept())["web"].standing.incident == INCIDENT

    session = await claimed(store, at=after(minutes=5))
    assert session is not None
    await store.queue.finish(ending(session, report(check("web"))), rules=RULES)
    await came_back(store, "web", minutes=10)
    await went_down(store, "web", minutes=30)
    assert isinstance(await alerted(store, "web", minutes=31), Session)
    assert len(database.rows("sessions")) == 2


async def test_a_failure_of_which_a_chain_knew_starts_no_other_though_its_row_has_forgotten(
    store: Store, database: Database
) -> None:
    await enrolled(store)
    await went_down(store, "web")
    session = await claimed(store, at=after(minutes=5)) if await alerted(store, "web") else None
    assert session is not None
    await store.queue.finish(ending(session, report(check("web"))), rules=RULES)
    same = observed(WEB, ProbeState.DOWN, at=after(minutes=1))  # as a daemon writes it that was not told of its chain
    await store.probes.observed([same], owner=OWNER, rules=RULES, now=after(minutes=6))
    assert (await store.probes.kept())["web"].standing.incident == INCIDENT

    database.execute("UPDATE probes SET incident = ''")
    assert await alerted(store, "web", minutes=30) is None
    database.execute("UPDATE probes SET incident = ''")
    # The clock has been set back: the chain is of the future.
    done = await failed(store.alerts, ["web"], INCIDENT, now=after(minutes=1.5))
    assert len(done.rulings) == 1


async def test_the_chain_of_one_probe_holds_up_no_chain_of_another(store: Store, database: Database) -> None:
    await enrolled(store)
    await went_down(store, "web")
    await alerted(store, "web")
    await went_down(store, "db", minutes=3)
    second = await alerted(store, "web", "db", minutes=4, incident="probe:2")
    assert isinstance(second, Session)
    assert (await store.probes.kept())["db"].session_id == second.id
    assert len(database.rows("sessions")) == 2


async def test_what_the_rules_forbid_is_said_once_and_not_asked_again(store: Store, database: Database) -> None:
    await enrolled(store)
    await went_down(store, "web")

    def too_high(_: int, context: Handover) -> NewSession:
        return wanted(4, trigger=Trigger.ALERT, context=context)

    done = await failed(store.alerts, ["web"], INCIDENT, new_chain=too_high, now=NOW)
    again = await failed(store.alerts, ["web"], INCIDENT, new_chain=too_high, now=NOW)
    assert [len(each.rulings) for each in (done, again)] == [1, 0]
    assert database.rows("sessions") == []


async def test_a_failure_that_was_over_before_its_chain_belongs_to_none(store: Store) -> None:
    await enrolled(store)
    await store.probes.observed([turned(WEB, ProbeState.UP)], owner=OWNER, rules=RULES, now=NOW)
    assert await alerted(store, "web") is None
    assert (await store.probes.kept())["web"].standing.incident == ""


async def test_a_note_is_over_as_soon_as_it_is_written(store: Store, database: Database) -> None:
    await enrolled(store)
    note = NewEvent(level=EventLevel.INFO, message="web was down for 3 s", service="web", fingerprint="probe:note:web")
    for minute in (1, 2):
        told = Telling(at=after(minutes=minute), notes=(note,))
        seen = observed(WEB, at=after(minutes=minute), tellings=(told,))
        await store.probes.observed([seen], owner=OWNER, rules=RULES, now=after(minutes=minute))
    assert [(row["level"], row["resolved_at"]) for row in database.rows("events")] == [
        ("info", after(minutes=1)),
        ("info", after(minutes=2)),
    ]


async def test_the_row_outlives_the_chain_that_it_names(store: Store, database: Database) -> None:
    await enrolled(store)
    await went_down(store, "web")
    await alerted(store, "web")
    session = await claimed(store, at=after(minutes=5))
    assert session is not None
    await store.queue.finish(ending(session, report(check("web"))), rules=RULES)

    old = cutoffs(after(days=400), retention_days=30)
    while (await store.retention.expire(Aged.CHAINS, old, now=after(days=400), rows=500)).more:
        pass

    assert database.rows("sessions") == []
    assert (await store.probes.kept())["web"].session_id is None


# --- counters of cooldowns --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since_minutes", "until_minutes", "successes", "cleared"),
    [
        pytest.param(2, 20, 9, True, id="up since"),
        pytest.param(-60, 20, 99, True, id="it never noticed the restart"),
        pytest.param(2, 4, 9, False, id="not yet for long: a service may die once a minute"),
        pytest.param(2, 20, 1, False, id="one look is not two"),
    ],
)
async def test_counters_clear_once_a_probe_has_seen_the_service_up_for_long_enough(
    store: Store, database: Database, since_minutes: float, until_minutes: float, successes: int, *, cleared: bool
) -> None:
    await enrolled(store)
    await recorded(store, await started(store, wanted(2)), "toolu_1", allow(restart("Web")))
    at = after(minutes=until_minutes)
    stands = standing(ProbeState.UP, at=at, since=after(minutes=since_minutes), ups=successes)
    seen = observed(WEB, at=at, standing=stands, healthy_since=after(minutes=since_minutes))

    await store.probes.observed([seen, observed(DB, at=at)], owner=OWNER, rules=RULES, now=at)

    (action,) = database.rows("cooldown_actions")
    assert action["cleared_at"] == (at if cleared else None)


async def test_counters_stay_while_another_probe_of_the_service_is_not_up(store: Store, database: Database) -> None:
    page, port = probe("page", service="web"), probe("port", service="web")
    await enrolled(store, page, port)
    await recorded(store, await started(store, wanted(2)), "toolu_1", allow(restart("web")))
    at = after(minutes=30)
    await store.probes.observed([observed(port, ProbeState.DOWN, at=at)], owner=OWNER, rules=RULES, now=at)

    up = observed(page, at=at, healthy_since=after(minutes=1))
    await store.probes.observed([up], owner=OWNER, rules=RULES, now=at)

    assert database.rows("cooldown_actions")[0]["cleared_at"] is None


# --- heartbeats -------------------------------------------------------------------------------------------


async def test_a_ping_is_heard_and_a_line_of_log_is_none(store: Store) -> None:
    await enrolled(store, heartbeat("backup"), heartbeat("quiet"), WEB)

    assert await store.probes.ping("backup", PingVerb.START, at=NOW)
    assert await store.probes.ping("backup", PingVerb.SUCCESS, text="17 files", at=after(minutes=2))
    assert await store.probes.ping("backup", None, text="tidying up", at=after(minutes=3))
    assert await store.probes.ping("quiet", None, text="hello", at=NOW)

    heard = await store.probes.pings()
    assert heard == {"backup": Pings(start=NOW, success=after(minutes=2)), "quiet": Pings()}
    assert (await store.probes.kept())["backup"].ping_text == "tidying up"


async def test_the_runs_of_a_job_are_kept_apart_until_each_has_ended(store: Store) -> None:
    await enrolled(store, heartbeat("backup"))

    await store.probes.ping("backup", PingVerb.START, at=NOW, run="a")
    await store.probes.ping("backup", PingVerb.START, at=after(minutes=1), run="b")
    await store.probes.ping("backup", PingVerb.SUCCESS, at=after(minutes=2), run="a")

    (pings,) = (await store.probes.pings()).values()
    assert pings == Pings(success=after(minutes=2), runs=(JobRun(id="b", at=after(minutes=1)),))
    await store.probes.ping("backup", PingVerb.SUCCESS, at=after(minutes=3), run="b")
    (pings,) = (await store.probes.pings()).values()
    assert pings.runs == ()


@pytest.mark.parametrize("name", ["nobody", "web"])
async def test_only_a_heartbeat_takes_a_ping(store: Store, name: str) -> None:
    await enrolled(store, heartbeat("backup"), WEB)
    assert not await store.probes.ping(name, PingVerb.SUCCESS, at=NOW)
    assert await store.probes.pings() == {"backup": Pings()}


@pytest.mark.dialect
async def test_a_ping_is_not_lost_to_a_look_that_is_written_later(store: Store) -> None:
    await enrolled(store, heartbeat("backup"))
    await store.probes.ping("backup", PingVerb.FAIL, at=after(minutes=1))
    await store.probes.observed([observed(heartbeat("backup"))], owner=OWNER, rules=RULES, now=NOW)
    assert (await store.probes.kept())["backup"].pings.fail == after(minutes=1)


@pytest.mark.dialect
async def test_counters_that_nobody_can_read_begin_anew(store: Store, database: Database) -> None:
    await enrolled(store)
    await went_down(store, "web")
    database.execute("UPDATE probes SET counters = :text", text="{]")
    kept = (await store.probes.kept())["web"]
    assert (kept.standing.state, kept.standing.since) == (ProbeState.DOWN, after(minutes=1))


# --- history and what concerns all ------------------------------------------------------------------------


def stretch(name: str, *, minutes: float = 0, checks: int = 10) -> Stretch:
    return Stretch(
        probe=name, start=after(minutes=minutes), bucket=Bucket(checks=checks, failures=1, latencies={20: checks - 1})
    )


async def test_a_stretch_that_a_restart_cut_in_two_is_one_and_adds_to_its_hour(store: Store) -> None:
    await store.probes.add_history([stretch("web"), stretch("web", minutes=55), stretch("db")])
    await store.probes.add_history([stretch("web", checks=5), stretch("web", minutes=60)])

    fine = await store.probes.history("web", width=BUCKET, since=NOW)
    hours = await store.probes.history("web", width=HOUR, since=NOW)

    assert [(each.start, each.bucket.checks) for each in fine] == [
        (NOW, 15),
        (after(minutes=55), 10),
        (after(minutes=60), 10),
    ]
    assert [(each.start, each.bucket.checks, each.bucket.failures) for each in hours] == [
        (NOW, 25, 3),
        (after(hours=1), 10, 1),
    ]
    assert hours[0].bucket.latencies == {20: 22}
    assert len(await store.probes.history("web", width=BUCKET, since=after(minutes=1))) == 2


@pytest.mark.dialect
async def test_history_is_kept_for_ninety_days_and_its_hours_for_a_year(store: Store, database: Database) -> None:
    await store.probes.add_history([stretch("web", minutes=24 * 60 * day) for day in (0, 20, 100)])

    async def removed(days: float, aged: Aged) -> int:
        old = cutoffs(after(days=days), retention_days=30)
        return (await store.retention.expire(aged, old, now=after(days=days), rows=500)).done

    assert (await removed(89, Aged.STRETCHES), await removed(365, Aged.HOURS)) == (0, 0)
    assert (await removed(105, Aged.STRETCHES), await removed(380, Aged.HOURS)) == (1, 1)
    assert len(database.rows("probe_history")) == 4


async def test_a_failure_that_joins_an_incident_is_told_with_it(store: Store) -> None:
    await enrolled(store)
    await went_down(store, "web")
    await store.probes.join({"web": INCIDENT, "db": INCIDENT})
    kept = await store.probes.kept()
    assert (kept["web"].standing.incident, kept["db"].standing.incident) == (INCIDENT, "")
    assert await alerted(store, "web") is None


async def test_what_is_wrong_with_all_probes_is_an_event_until_it_is_over(store: Store, database: Database) -> None:
    wrong = NewEvent(level=EventLevel.WARNING, message="line 3: no such kind", fingerprint="probes:file")
    await store.probes.note(wrong, over=False, now=NOW)
    await store.probes.note(wrong, over=False, now=after(minutes=1))
    await store.probes.note(wrong, over=True, now=after(minutes=2))
    (event,) = database.rows("events")
    assert (event["count"], event["resolved_at"]) == (2, after(minutes=2))
