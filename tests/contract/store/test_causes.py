"""Any store: a chain has looked at what it was started for, or its end is no proof of health and people are told."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import pytest

from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.events import EventLevel
from claudeops.domain.looks import EvidenceLook, address_of
from claudeops.domain.notices.notice import Target
from claudeops.domain.report.report import Extraction, ExtractionMethod, Report, ServiceStatus
from claudeops.domain.sessions import DecisionReason, Finished, Outcome, Session, Trigger
from claudeops.store.store import Store
from claudeops.structs import replace
from support.alerts import AT_ONCE, alert, over, rules_of
from support.store_values import (
    RULES,
    after,
    alarm,
    check,
    claimed,
    ending,
    queued,
    report,
    wanted,
)
from support.stores import Database
from support.told import taken

pytest_plugins = ("support.store_fixtures",)

AROUND: Final = EvidenceLook()
PHONE: Final = Target(name="phone", min_level=EventLevel.INFO)
NO_EVIDENCE: Final = DecisionReason.NO_EVIDENCE


def at(*names: str) -> EvidenceLook:
    return EvidenceLook(names=frozenset(names))


async def run(store: Store, minutes: float) -> Session:
    session = await claimed(store, at=after(minutes=minutes))
    assert session is not None
    return session


async def ended(
    store: Store, session: Session, said: Report | None, *looks: EvidenceLook, **changes: object
) -> Finished:
    return await store.queue.finish(ending(session, said, looks=(AROUND, *looks), **changes), rules=RULES)


async def told_by(store: Store, *, at: datetime) -> list[str]:
    """Return what people are told, in order, when everything is routed at a moment."""
    await store.outbox.route([PHONE], now=at, most=1000)
    claims = await store.outbox.claim(PHONE.name, now=at, until=at + timedelta(seconds=60), most=1000)
    return [each.notice.text for each in claims]


@pytest.mark.dialect
@pytest.mark.parametrize(
    ("said", "what"),
    [
        pytest.param(
            report(check("web")), "the chain is about shop, which the report leaves out", id="another service"
        ),
        pytest.param(
            report(check("web"), check("shop")), "no look at shop came back without an error", id="by its word"
        ),
        pytest.param(
            report(check("web"), check("shop", ServiceStatus.DEGRADED)),
            "shop is reported degraded, yet the report does not escalate",
            id="degraded",
        ),
    ],
)
async def test_an_alert_about_a_service_that_nobody_looked_at_is_told_and_has_no_witness(
    store: Store, database: Database, said: Report, what: str
) -> None:
    await taken(store, alert())
    finished = await ended(store, await run(store, 1), said, at("web"))
    await taken(store, over(), minutes=10, key="b")

    assert finished.decision.reason is NO_EVIDENCE
    (event,) = finished.decision.events
    assert (event.level, event.service) == (EventLevel.WARNING, "shop")
    assert what in event.message
    told = await told_by(store, at=after(minutes=11))
    assert told[-1] == f"incident 1 is unresolved: {event.message}"
    (incident,) = database.rows("incidents")
    assert incident["status"] == "open"
    assert "look" not in str(incident["witnesses"])
    assert [row["service"] for row in database.rows("service_checks") if row["status"] == "healthy"] == ["web"]


async def test_an_alert_about_a_service_that_was_looked_at_ends(store: Store, database: Database) -> None:
    await taken(store, alert())
    finished = await ended(store, await run(store, 1), report(check("shop")), at("shop"))
    await taken(store, over(), minutes=10, key="b")

    assert finished.decision.reason is DecisionReason.HEALTHY
    (incident,) = database.rows("incidents")
    assert incident["status"] == "resolved"


async def test_the_address_in_an_alert_is_where_its_service_answers(store: Store) -> None:
    spoken = replace(alert(), labels={"instance": "http://10.0.0.5:3000/", "job": "blackbox"})
    await taken(store, spoken)
    address = address_of("http://10.0.0.5:3000/health")
    assert address is not None
    asked = EvidenceLook(addresses=frozenset({address}))
    finished = await ended(store, await run(store, 1), report(check("shop")), asked)
    assert finished.decision.reason is DecisionReason.HEALTHY


async def test_a_service_whose_alert_joined_while_the_session_ran_must_be_looked_at_too(
    store: Store, database: Database
) -> None:
    # One incident about several services is what an operator's `group_by` makes.
    by_name = AlertFiles(alerts=rules_of(replace(AT_ONCE, by=("alertname",))), escalation=RULES)
    await taken(store, alert(service="shop"), group="g", about=by_name)
    session = await run(store, 1)
    await taken(store, alert(service="db"), group="g", minutes=1.1, key="b", about=by_name)
    (incident,) = database.rows("incidents")
    assert incident["services"] == '["shop","db"]'

    finished = await ended(store, session, report(check("shop")), at("shop"))
    assert finished.decision.reason is NO_EVIDENCE
    assert "db" in finished.decision.events[0].message


@pytest.mark.dialect
@pytest.mark.parametrize(("look", "status"), [(AROUND, "open"), (at("shop"), "resolved")])
async def test_another_chain_is_a_witness_only_with_a_look_at_the_service(
    store: Store, database: Database, look: EvidenceLook, status: str
) -> None:
    await taken(store, alert())
    own = await run(store, 1)
    await ended(store, own, None, outcome=Outcome.CANCELLED)
    await taken(store, over(), minutes=10, key="b")
    await queued(store, wanted(trigger=Trigger.SCHEDULED), at=after(minutes=11))
    await ended(store, await run(store, 12), report(check("shop"), check("web")), look)

    (incident,) = database.rows("incidents")
    assert incident["status"] == status


# --- the chain goes on --------------------------------------------------------------------------------------


async def test_the_next_tier_is_told_what_it_must_report_on_and_held_to_it(store: Store) -> None:
    await taken(store, alert())
    first = await ended(store, await run(store, 1), alarm(), at("web"))
    second = await run(store, 3)

    assert first.decision.reason is DecisionReason.ESCALATED
    assert second.context is not None
    assert second.context.started_for == ("shop",)
    finished = await ended(store, second, report(check("web")), at("web"))
    assert finished.decision.reason is NO_EVIDENCE
    assert "shop" in finished.decision.events[0].message


async def test_what_the_first_tier_has_shown_healthy_the_next_one_may_leave_out(store: Store) -> None:
    await taken(store, alert())
    found = replace(alarm(), services_checked=(check("shop"), check("web", ServiceStatus.DOWN)))
    await ended(store, await run(store, 1), found, at("shop"), at("web"))
    second = await run(store, 3)
    assert second.context is not None
    assert second.context.started_for == ()
    finished = await ended(store, second, report(check("web")), at("web"))
    assert finished.decision.reason is DecisionReason.HEALTHY


async def test_a_retry_is_held_to_the_same(store: Store) -> None:
    await taken(store, alert())
    await ended(store, await run(store, 1), None, outcome=Outcome.TIMEOUT)
    retry = await run(store, 5)
    assert retry.trigger is Trigger.RETRY
    finished = await ended(store, retry, report(check("web")), at("web"))
    assert finished.decision.reason is NO_EVIDENCE


# --- a request ----------------------------------------------------------------------------------------------


@pytest.mark.dialect
@pytest.mark.parametrize("trigger", [Trigger.MANUAL, Trigger.API, Trigger.SCHEDULED, Trigger.FOLLOW_UP])
async def test_a_request_for_services_is_held_to_them(store: Store, trigger: Trigger) -> None:
    async def asked(*looks: EvidenceLook, minutes: float) -> DecisionReason:
        new = wanted(trigger=trigger, prompt_text="Look at shop and db.", services=("shop", "db"))
        await queued(store, new, at=after(minutes=minutes))
        session = await run(store, minutes)
        assert session.services == ("shop", "db")
        return (await ended(store, session, report(check("shop"), check("db")), *looks)).decision.reason

    assert await asked(minutes=1) is NO_EVIDENCE
    assert await asked(at("shop"), minutes=11) is NO_EVIDENCE
    assert await asked(at("shop"), at("db"), minutes=21) is DecisionReason.HEALTHY


async def test_a_request_that_names_no_service_and_a_round_are_held_to_none(store: Store) -> None:
    for minutes, prompt in ((1, None), (11, "How is the shop?")):
        await queued(store, wanted(prompt_text=prompt), at=after(minutes=minutes))
        finished = await ended(store, await run(store, minutes), report(check("shop")))
        assert finished.decision.reason is DecisionReason.HEALTHY


async def test_who_goes_on_with_a_chain_may_ask_for_something_else(store: Store) -> None:
    await queued(store, wanted(services=("shop",)))
    first = await run(store, 1)
    await ended(store, first, report(check("shop")))
    other = wanted(services=("db",), prompt_text="And the database?", parent_session_id=first.id)
    await queued(store, other, at=after(minutes=5))
    finished = await ended(store, await run(store, 5), report(check("db")), at("db"))
    assert finished.decision.reason is DecisionReason.HEALTHY


async def test_a_salvaged_report_is_held_to_the_same(store: Store) -> None:
    await taken(store, alert())
    said = Extraction(method=ExtractionMethod.SALVAGED, report=report(check("shop")))
    finished = await ended(store, await run(store, 1), None, extraction=said)
    assert finished.decision.reason is NO_EVIDENCE


async def test_what_a_chain_has_found_itself_is_nothing_that_it_was_started_for(
    store: Store, database: Database
) -> None:
    await queued(store, wanted())
    first = await ended(store, await run(store, 1), alarm())
    (incident,) = database.rows("incidents")
    second = await run(store, 3)
    assert first.decision.reason is DecisionReason.ESCALATED
    assert [row["incident_id"] for row in database.rows("sessions")] == [incident["number"]] * 2
    assert second.context is not None
    assert second.context.started_for == ()
    finished = await ended(store, second, report(check("web")))
    assert finished.decision.reason is DecisionReason.HEALTHY


async def test_an_alert_that_joins_what_a_chain_has_found_is_looked_at_too(store: Store) -> None:
    await queued(store, wanted())
    await ended(store, await run(store, 1), alarm())
    await taken(store, alert(service="web"), minutes=2)
    finished = await ended(store, await run(store, 3), report(check("web")))
    assert finished.decision.reason is NO_EVIDENCE


@pytest.mark.parametrize(
    ("key", "links"),
    [
        ("instance", True),
        ("target", True),
        ("url", True),
        ("URL", True),
        ("summary", True),
        ("docker_host", True),
        ("uplink", True),
        ("runbook_url", False),
        ("runbook", False),
        ("dashboardURL", False),
        ("__dashboard__", False),
        ("panelURL", False),
        ("generatorURL", False),
        ("silenceURL", False),
        ("grafana_dashboard", False),
        ("docs", False),
        ("wiki_page", False),
        ("image_url", False),
        ("externalURL", False),
    ],
)
async def test_the_address_of_a_page_about_an_alert_is_not_where_its_service_answers(
    store: Store, key: str, *, links: bool
) -> None:
    await taken(store, replace(alert(), annotations={key: "http://grafana:3000/d/abc"}))
    address = address_of("http://grafana:3000/api/health")
    assert address is not None
    asked = EvidenceLook(addresses=frozenset({address}))
    finished = await ended(store, await run(store, 1), report(check("shop")), asked)
    assert finished.decision.reason is (DecisionReason.HEALTHY if links else NO_EVIDENCE)


async def test_an_alert_about_a_host_is_answered_by_a_look_that_ran_there(store: Store, database: Database) -> None:
    await taken(store, alert(service="nas"))
    looked = EvidenceLook(hosts=frozenset({"nas"}))
    finished = await ended(store, await run(store, 1), report(check("nas")), looked)
    await taken(store, over(service="nas"), minutes=10, key="b")
    assert finished.decision.reason is DecisionReason.HEALTHY
    (incident,) = database.rows("incidents")
    assert incident["status"] == "resolved"
