"""Any store: what was done is looked at again, once, and what was found stands beside it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import pytest

from claudeops.domain.actions import Action, Recheck
from claudeops.domain.calls import ToolEnd, VerdictKind
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.chains.follow_up import FollowedUp
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.report.report import Report, ServiceStatus
from claudeops.domain.sessions import DecisionReason, Outcome, Session, Trigger
from claudeops.store.store import Store
from claudeops.structs import replace
from support.probe_values import probe as a_probe
from support.probe_values import turned
from support.store_values import (
    OTHER_OWNER,
    OWNER,
    RULES,
    after,
    alarm,
    allow,
    check,
    claimed,
    ending,
    queued,
    recorded,
    report,
    restart,
    wanted,
)
from support.stores import Database, Row
from support.told import ABOUT, failed

pytest_plugins = ("support.store_fixtures",)

FOLLOWED: Final = replace(RULES, follow_up_seconds=900.0)
ENDED: Final = after(minutes=1)
DUE: Final = after(minutes=16)


def actions(database: Database) -> list[Row]:
    return database.rows("cooldown_actions")


def waiting(database: Database) -> list[Row]:
    return [row for row in database.rows("sessions") if row["status"] == "queued"]


async def acted(store: Store, *services: Action, tier: int = 2) -> Session:
    """Run a session that restarts something, until just before its end."""
    await queued(store, wanted(tier))
    session = await claimed(store)
    assert session is not None
    verdict = await recorded(store, session, "toolu_1", allow(*services))
    assert verdict.kind is VerdictKind.ALLOW
    return session


async def finished(
    store: Store, session: Session, said: Report | None, *, rules: EscalationRules = FOLLOWED, **changes: object
) -> None:
    end = ending(session, said, **changes)
    await store.queue.finish(end, rules=rules)


async def remedied(
    store: Store,
    *services: str,
    tier: int = 2,
    rules: EscalationRules = FOLLOWED,
    ends: tuple[ToolEnd, ...] = (ToolEnd(tool_use_id="toolu_1", ended_at=ENDED, is_error=False),),
) -> Session:
    session = await acted(store, *map(restart, services or ("web",)), tier=tier)
    checks = [check(service) for service in services or ("web",)]
    await finished(store, session, report(*checks), rules=rules, tool_ends=ends)
    return session


async def follow_up(store: Store, *, at: datetime = DUE) -> Session:
    session = await claimed(store, at=at, with_rules=FOLLOWED)
    assert session is not None
    assert session.trigger is Trigger.FOLLOW_UP
    return session


def probe(database: Database, service: str, state: str, *, looked_at: str = "2026-03-01 12:15:00.000000") -> None:
    """Put a probe on record, as its keeper would."""
    offset = "" if database.url.startswith("sqlite") else "+00"
    database.execute("DELETE FROM probes WHERE name = :service", service=service)
    database.execute(
        "INSERT INTO probes (name, service, kind, state, last_checked_at, detail, failures, successes,"
        " interval_seconds, explained_by, incident, counters)"
        " VALUES (:service, :service, 'http', :state, :looked_at, '', 0, 0, 30, '', '', '{}')",
        service=service,
        state=state,
        looked_at=f"{looked_at}{offset}",
    )


# --- a look is queued -------------------------------------------------------------------------------------


async def test_a_chain_that_changed_something_is_followed_by_a_look_at_exactly_that(
    store: Store, database: Database
) -> None:
    await remedied(store)

    (row,) = waiting(database)
    assert (row["trigger"], row["tier"], row["model"], row["not_before"]) == ("follow_up", 1, "haiku", DUE)
    assert row["root_session_id"] == row["id"]  # a chain of its own: the other one has ended
    assert "web" in str(row["prompt_text"])
    (action,) = actions(database)
    assert (action["follow_up_id"], action["follow_up_at"], action["held"]) == (row["id"], DUE, None)
    assert await claimed(store, at=after(minutes=15), with_rules=FOLLOWED) is None


async def test_an_action_of_which_nobody_saw_the_result_is_followed_too(store: Store, database: Database) -> None:
    await remedied(store, ends=())
    assert len(waiting(database)) == 1


async def test_what_failed_has_changed_nothing(store: Store, database: Database) -> None:
    await remedied(store, ends=(ToolEnd(tool_use_id="toolu_1", ended_at=ENDED, is_error=True),))
    assert waiting(database) == []


@pytest.mark.parametrize("rules", [RULES, replace(FOLLOWED, dry_run=True)], ids=["switched off", "dry run"])
async def test_nothing_is_queued_where_nobody_is_to_look(
    store: Store, database: Database, rules: EscalationRules
) -> None:
    await remedied(store, rules=rules)
    assert waiting(database) == []


async def test_a_chain_that_goes_on_is_not_followed_before_its_end(store: Store, database: Database) -> None:
    session = await acted(store, restart())
    ends = (ToolEnd(tool_use_id="toolu_1", ended_at=ENDED, is_error=False),)
    await finished(store, session, alarm(), tool_ends=ends)
    (row,) = waiting(database)
    assert row["trigger"] == "escalation"

    following = await claimed(store, at=after(minutes=2), with_rules=FOLLOWED)
    assert following is not None
    await finished(store, following, report(check("web")))
    (row,) = waiting(database)
    assert (row["trigger"], row["not_before"]) == ("follow_up", after(minutes=18))


async def test_a_look_that_changes_nothing_is_followed_by_none(store: Store, database: Database) -> None:
    await remedied(store)
    await finished(store, await follow_up(store), report(check("web")))
    assert waiting(database) == []


async def test_a_chain_whose_daemon_died_is_followed_all_the_same(store: Store, database: Database) -> None:
    session = await acted(store, restart())
    await store.recovery.reconcile(OTHER_OWNER, now=after(minutes=5), alive=lambda _: False)
    orphan = await store.records.session(session.id)
    assert orphan is not None
    await store.recovery.mark_lost(orphan, rules=FOLLOWED, now=after(minutes=5))
    (recovery,) = waiting(database)
    assert recovery["trigger"] == "recovery"

    look = await claimed(store, at=after(minutes=5), with_rules=FOLLOWED)
    assert look is not None
    await store.recovery.reconcile(replace(OTHER_OWNER, name="node-3"), now=after(minutes=6), alive=lambda _: False)
    lost = await store.records.session(look.id)
    assert lost is not None
    await store.recovery.mark_lost(lost, rules=FOLLOWED, now=after(minutes=6))

    (row,) = waiting(database)
    assert (row["trigger"], row["not_before"]) == ("follow_up", after(minutes=21))


async def test_a_chain_that_a_rule_ends_in_the_queue_is_followed_too(store: Store, database: Database) -> None:
    session = await acted(store, restart())
    ends = (ToolEnd(tool_use_id="toolu_1", ended_at=ENDED, is_error=False),)
    await finished(store, session, alarm(), tool_ends=ends)

    lowered = replace(FOLLOWED, max_tier=2)
    assert await claimed(store, at=after(minutes=2), with_rules=lowered) is None

    (row,) = waiting(database)
    assert row["trigger"] == "follow_up"


# --- a session answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "held"),
    [
        (report(check("web")), "held"),
        (report(check("db")), "unknown"),
        (report(check("web", ServiceStatus.DEGRADED)), "unknown"),
        (None, "unknown"),
    ],
    ids=["healthy", "another service", "degraded", "no report"],
)
async def test_the_answer_of_a_look_stands_beside_the_action(
    store: Store, database: Database, said: Report | None, held: str
) -> None:
    await remedied(store)
    await finished(store, await follow_up(store), said)

    (action,) = actions(database)
    assert (action["held"], action["held_checked_at"]) == (held, after(minutes=17))
    assert waiting(database) == []


async def test_healthy_without_a_look_behind_it_is_no_answer(store: Store, database: Database) -> None:
    await remedied(store)
    await finished(store, await follow_up(store), report(check("web")), calls_ran=0)
    assert actions(database)[0]["held"] == "unknown"


async def test_a_look_that_fails_is_made_once_more_before_it_counts_as_unknown(
    store: Store, database: Database
) -> None:
    await remedied(store)
    await finished(store, await follow_up(store), None, outcome=Outcome.TIMEOUT)
    assert actions(database)[0]["held"] is None

    retry = await claimed(store, at=after(minutes=18), with_rules=FOLLOWED)
    assert retry is not None
    assert retry.trigger is Trigger.RETRY
    await finished(store, retry, report(check("web")))
    assert actions(database)[0]["held"] == "held"


async def test_a_look_that_is_lost_twice_leaves_unknown(store: Store, database: Database) -> None:
    await remedied(store)
    for number in range(2):
        look = await claimed(store, at=DUE, with_rules=FOLLOWED)
        assert look is not None
        owner = replace(OTHER_OWNER, name=f"node-{number}")
        await store.recovery.reconcile(owner, now=DUE, alive=lambda _: False)
        lost = await store.records.session(look.id)
        assert lost is not None
        await store.recovery.mark_lost(lost, rules=FOLLOWED, now=DUE)
    assert (actions(database)[0]["held"], waiting(database)) == ("unknown", [])


async def test_a_relapse_escalates_at_once_past_the_tier_that_acted(store: Store, database: Database) -> None:
    await remedied(store)
    look = await follow_up(store)
    down = report(check("web", ServiceStatus.DOWN))  # the report asks for nobody
    await finished(store, look, down)

    assert actions(database)[0]["held"] == "relapsed"
    (row,) = waiting(database)
    assert (row["tier"], row["trigger"], row["parent_session_id"]) == (3, "escalation", look.id)
    assert "the restart did not hold: web" in str(row["context"])
    assert database.rows("sessions")[1]["decision_reason"] == DecisionReason.ESCALATED.value


async def test_the_next_tier_may_act_on_a_relapse_and_is_followed_itself(store: Store, database: Database) -> None:
    await remedied(store)
    await finished(store, await follow_up(store), report(check("web", ServiceStatus.DOWN)))
    third = await claimed(store, at=after(minutes=20), with_rules=FOLLOWED)
    assert third is not None
    assert (await recorded(store, third, "toolu_2", allow(restart()))).kind is VerdictKind.ALLOW
    ends = (ToolEnd(tool_use_id="toolu_2", ended_at=after(minutes=20), is_error=False),)
    await finished(store, third, report(check("web")), tool_ends=ends)

    (row,) = waiting(database)
    assert row["trigger"] == "follow_up"
    first, second = actions(database)
    assert (first["held"], second["held"], second["follow_up_id"]) == ("relapsed", None, row["id"])


async def test_a_request_of_ours_makes_no_service_unwell(store: Store) -> None:
    await remedied(store)
    look = await follow_up(store)
    await finished(store, look, alarm("db"))
    second = await claimed(store, at=after(minutes=20), with_rules=FOLLOWED)
    assert second is not None
    assert (await recorded(store, second, "toolu_2", allow(restart("web")))).kind is VerdictKind.DENY
    assert (await recorded(store, second, "toolu_3", allow(restart("db")))).kind is VerdictKind.ALLOW


async def test_another_round_that_finds_a_relapse_escalates_past_the_tier_that_acted(
    store: Store, database: Database
) -> None:
    await remedied(store)
    await finished(store, await follow_up(store), report(check("web")))
    await queued(store, wanted(trigger=Trigger.SCHEDULED), at=after(hours=5))
    hourly = await claimed(store, at=after(hours=5), with_rules=FOLLOWED)
    assert hourly is not None
    await finished(store, hourly, alarm())

    (row,) = waiting(database)
    assert row["tier"] == 3
    assert actions(database)[0]["held"] == "relapsed"


@pytest.mark.dialect
async def test_a_day_later_it_is_a_trouble_of_its_own(store: Store, database: Database) -> None:
    await remedied(store)
    await finished(store, await follow_up(store), report(check("web")))
    await queued(store, wanted(trigger=Trigger.SCHEDULED), at=after(hours=25))
    hourly = await claimed(store, at=after(hours=25), with_rules=FOLLOWED)
    assert hourly is not None
    await finished(store, hourly, alarm())

    (row,) = waiting(database)
    assert row["tier"] == 2
    assert actions(database)[0]["held"] == "held"


# --- probes answer ----------------------------------------------------------------------------------------


@pytest.mark.dialect
async def test_probes_answer_at_no_cost(store: Store, database: Database) -> None:
    probe(database, "web", "up")
    await remedied(store)
    assert waiting(database) == []

    early = await store.follow_ups.answer_due(rules=FOLLOWED, now=after(minutes=15))
    done = await store.follow_ups.answer_due(rules=FOLLOWED, now=DUE)
    again = await store.follow_ups.answer_due(rules=FOLLOWED, now=after(minutes=17))

    assert (early.answers, again.answers) == ({}, {})
    assert list(done.answers.values()) == [Recheck.HELD]
    (action,) = actions(database)
    assert (action["held"], action["held_checked_at"]) == ("held", DUE)
    assert waiting(database) == []


async def test_one_service_without_a_probe_has_a_session_look_at_all(store: Store, database: Database) -> None:
    probe(database, "web", "up")
    await remedied(store, "web", "db")
    (row,) = waiting(database)
    assert "web, db" in str(row["prompt_text"])


async def test_a_relapse_that_a_probe_sees_escalates_at_once(store: Store, database: Database) -> None:
    probe(database, "web", "down")
    await remedied(store)
    done = await store.follow_ups.answer_due(rules=FOLLOWED, now=DUE)

    assert list(done.answers.values()) == [Recheck.RELAPSED]
    (row,) = waiting(database)
    assert (row["tier"], row["trigger"], row["parent_session_id"]) == (3, "follow_up", None)
    assert "the restart did not hold: web" in str(row["context"])
    (told,) = [event for event in database.rows("events") if event["session_id"] is None]
    assert (told["service"], "did not hold" in str(told["message"])) == ("web", True)
    third = await claimed(store, at=DUE, with_rules=FOLLOWED)
    assert third is not None
    assert (await recorded(store, third, "toolu_2", allow(restart()))).kind is VerdictKind.ALLOW


async def test_a_relapse_that_an_alerts_chain_looks_at_is_left_to_it(store: Store, database: Database) -> None:
    probe(database, "web", "down")
    await remedied(store)
    await queued(store, wanted(trigger=Trigger.ALERT, prompt_text="web is down"), at=after(minutes=10))

    done = await store.follow_ups.answer_due(rules=FOLLOWED, now=DUE)
    assert (done.answers, done.queued) == ({}, ())
    alert = await claimed(store, at=DUE, with_rules=FOLLOWED)
    assert alert is not None
    await finished(store, alert, alarm())

    (row,) = waiting(database)
    assert row["tier"] == 3  # it is a relapse for that chain too
    assert (await store.follow_ups.answer_due(rules=FOLLOWED, now=after(hours=1))).answers == {}


async def fallen_back(store: Store, database: Database, **changes: object) -> FollowedUp:
    """Have a probe go down five minutes after a restart, ten minutes before its follow-up; look a minute later."""
    of_web = a_probe("web", **changes)
    await store.probes.enrol((of_web,), OWNER, now=ENDED)
    await remedied(store)
    fell = turned(of_web, ProbeState.DOWN, at=after(minutes=6))
    fell = replace(fell, standing=replace(fell.standing, is_quiet=not of_web.starts_chain))
    await store.probes.observed([fell], owner=OWNER, rules=FOLLOWED, now=after(minutes=6))
    assert actions(database)[0]["follow_up_at"] == DUE
    return await store.follow_ups.answer_due(rules=FOLLOWED, now=after(minutes=7))


async def test_a_relapse_before_the_follow_up_escalates_at_once_and_starts_one_chain(
    store: Store, database: Database
) -> None:
    done = await fallen_back(store, database)

    assert list(done.answers.values()) == [Recheck.RELAPSED]
    (row,) = waiting(database)
    assert (row["tier"], row["trigger"]) == (3, "follow_up")
    assert "the restart did not hold: web" in str(row["context"])
    assert actions(database)[0]["held_checked_at"] == after(minutes=7)
    again = await store.follow_ups.answer_due(rules=FOLLOWED, now=DUE)
    assert (again.answers, again.queued) == ({}, ())

    third = await claimed(store, at=after(minutes=8), with_rules=FOLLOWED)
    assert third is not None
    await finished(store, third, report(check("web", ServiceStatus.DOWN)))
    about = replace(ABOUT, escalation=FOLLOWED)
    later = await failed(store.alerts, ["web"], "probe:1", about=about, now=after(minutes=20))
    assert later.started == [], "of this failure a chain has known since it took its state"
    assert len(database.rows("sessions")) == 2


@pytest.mark.parametrize("status", ["running", "queued"])
async def test_a_relapse_that_others_may_find_is_left_to_them(store: Store, database: Database, status: str) -> None:
    await store.probes.enrol((a_probe("web"),), OWNER, now=ENDED)
    if status == "running":
        await queued(store, wanted(trigger=Trigger.SCHEDULED))
        assert await claimed(store) is not None
    else:
        await queued(store, wanted(trigger=Trigger.ALERT, not_before=after(hours=1)))
    done = await fallen_back(store, database)
    assert (done.answers, done.queued) == ({}, ())


async def test_a_probe_that_starts_no_chain_starts_none_by_a_relapse(store: Store, database: Database) -> None:
    done = await fallen_back(store, database, starts_chain=False)
    assert (done.answers, done.queued) == ({}, ())


async def test_an_alerts_chain_that_finds_a_relapse_need_not_ask_for_more(store: Store, database: Database) -> None:
    await remedied(store)
    await finished(store, await follow_up(store), report(check("web")))
    await queued(store, wanted(trigger=Trigger.ALERT), at=after(hours=5))
    alert = await claimed(store, at=after(hours=5), with_rules=FOLLOWED)
    assert alert is not None
    await finished(store, alert, report(check("web", ServiceStatus.DOWN)))

    (row,) = waiting(database)
    assert row["tier"] == 3
    assert actions(database)[0]["held"] == "relapsed"


async def test_a_forbidden_escalation_is_told_and_not_queued(store: Store, database: Database) -> None:
    probe(database, "web", "down")
    await remedied(store)
    done = await store.follow_ups.answer_due(rules=replace(FOLLOWED, dry_run=True), now=DUE)

    assert done.queued == ()
    assert waiting(database) == []
    told = [str(event["message"]) for event in database.rows("events") if event["session_id"] is None]
    assert ["did not hold" in each or "dry run" in each for each in told] == [True, True]


@pytest.mark.parametrize("state", ["unknown", "degraded", "silenced"])
async def test_a_probe_that_cannot_tell_has_a_session_look(store: Store, database: Database, state: str) -> None:
    probe(database, "web", "up")
    await remedied(store)
    probe(database, "web", state)
    done = await store.follow_ups.answer_due(rules=FOLLOWED, now=DUE)

    assert done.answers == {}
    (row,) = waiting(database)
    assert (row["tier"], row["trigger"]) == (1, "follow_up")
    assert actions(database)[0]["follow_up_id"] == row["id"]
    assert (await store.follow_ups.answer_due(rules=FOLLOWED, now=after(hours=1))).queued == ()


async def test_a_probe_that_was_removed_has_a_session_look(store: Store, database: Database) -> None:
    probe(database, "web", "up")
    await remedied(store)
    database.execute("DELETE FROM probes")
    assert len((await store.follow_ups.answer_due(rules=FOLLOWED, now=DUE)).queued) == 1
