"""Any store: whether what a session did, and what its chain left before it, is weighed against its report."""

from __future__ import annotations

import pytest

from claudeops.domain.actions import TOO_LATE
from claudeops.domain.calls import ToolEnd
from claudeops.domain.events import EventLevel
from claudeops.domain.looks import EvidenceLook, address_of
from claudeops.domain.report.report import Escalation, Report, ServiceCheck, ServiceStatus
from claudeops.domain.sessions import Decision, DecisionReason, Ending, Outcome, Session, Trigger
from claudeops.store.calls import deny_late
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
    gone,
    recorded,
    report,
    restart,
    started,
    wanted,
)
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)

URL = "http://127.0.0.1:3000/"
UNSEEN = "no look at web came back after the last action"


def end(*, failed: bool = False) -> ToolEnd:
    return ToolEnd(tool_use_id="toolu_1", ended_at=after(minutes=1), is_error=failed)


def at(*names: str) -> EvidenceLook:
    return EvidenceLook(names=frozenset(names), results_before=1)


def asking(url: str) -> EvidenceLook:
    address = address_of(url)
    assert address is not None
    return EvidenceLook(addresses=frozenset({address}), results_before=1)


def goes_on(*checks: ServiceCheck) -> Report:
    """Return a report that asks for the next tier because of something else."""
    return report(*checks, escalation=Escalation(needed=True, reason="db does not answer"))


async def acting(store: Store, service: str = "web", tier: int = 2) -> Session:
    """Return a session that has restarted a service."""
    session = await started(store, wanted(tier))
    await recorded(store, session, "toolu_1", allow(restart(service)))
    return session


async def ended(
    store: Store, session: Session, said: Report | None, *looks: EvidenceLook, **changes: object
) -> Decision:
    given = {"tool_ends": (end(),), "looks": looks, **changes}
    return (await store.queue.finish(ending(session, said, **given), rules=RULES)).decision


async def following(store: Store, minutes: int = 5) -> Session:
    session = await claimed(store, at=after(minutes=minutes))
    assert session is not None
    return session


async def test_a_failed_restart_and_a_healthy_report_contradict_each_other(store: Store, database: Database) -> None:
    await ended(store, await started(store), alarm())
    session = await following(store)
    await recorded(store, session, "toolu_1", allow(restart()))
    decision = await ended(store, session, report(check("web")), at("db"), tool_ends=(end(failed=True),))

    assert decision.reason is DecisionReason.NO_EVIDENCE
    (event,) = decision.events
    assert (event.level, event.service) == (EventLevel.WARNING, "web")
    assert f"the restart of web ended in an error; {UNSEEN}" in event.message
    assert [row["success"] for row in database.rows("cooldown_actions")] == [False]
    assert [row["status"] for row in database.rows("service_checks")] == ["down"]


async def test_what_was_looked_at_afterwards_is_healthy_and_on_record(store: Store, database: Database) -> None:
    decision = await ended(store, await acting(store), report(check("web")), at("web"))

    assert decision.reason is DecisionReason.HEALTHY
    assert [row["status"] for row in database.rows("service_checks")] == ["healthy"]


async def test_a_healthy_check_that_nothing_shows_resolves_no_event(store: Store, database: Database) -> None:
    await ended(store, await started(store, at=after(minutes=-9)), alarm())
    session = await following(store, 0)
    await recorded(store, session, "toolu_1", allow(restart()))
    await ended(store, session, report(check("web"), check("db")), at("db"))

    checks = {(row["service"], row["status"]) for row in database.rows("service_checks")}
    assert checks == {("web", "down"), ("db", "healthy")}
    assert "unproven-health: 1 healthy checks were not recorded" in str(database.rows("sessions")[1]["warnings"])


async def test_another_name_of_the_service_is_the_service(store: Store) -> None:
    session = await acting(store)
    given = ending(session, report(check("Webserver")), tool_ends=(end(),), looks=(at("webserver"),))
    rules = replace(RULES, other_names={"webserver": "web"})

    assert (await store.queue.finish(given, rules=rules)).decision.reason is DecisionReason.HEALTHY


@pytest.mark.dialect
async def test_an_address_is_the_services_that_an_earlier_report_gave_it(store: Store) -> None:
    for told, reason in ((f"GET {URL} refused", DecisionReason.HEALTHY), ("refused", DecisionReason.NO_EVIDENCE)):
        alarmed = replace(alarm(), services_checked=(check("web", ServiceStatus.DOWN, told),))
        await ended(store, await started(store), alarmed)
        session = await following(store)
        await recorded(store, session, "toolu_1", allow(restart()))

        assert (await ended(store, session, report(check("web")), asking(URL))).reason is reason, told


async def test_the_last_session_answers_for_what_an_earlier_one_only_said_to_have_mended(store: Store) -> None:
    """Tier 2 restarts web, calls it healthy without a look, and goes on about db; tier 3 mends db and stands down."""
    await ended(store, await acting(store), goes_on(check("web"), check("db", ServiceStatus.DOWN)), at("db"))
    third = await following(store)
    decision = await ended(store, third, report(check("db")), at("db"))

    assert decision.reason is DecisionReason.NO_EVIDENCE
    assert "web was acted upon or found down, and is left out" in decision.events[0].message


async def test_what_an_earlier_session_has_shown_to_be_well_is_settled(store: Store) -> None:
    await ended(store, await acting(store), goes_on(check("web"), check("db", ServiceStatus.DOWN)), at("web"))
    third = await following(store)

    assert (await ended(store, third, report(check("db")), at("db"))).reason is DecisionReason.HEALTHY


async def test_a_look_after_what_a_lost_session_did_must_look_at_that(store: Store, database: Database) -> None:
    for look, reason in ((at("db"), DecisionReason.NO_EVIDENCE), (at("web"), DecisionReason.HEALTHY)):
        await acting(store)
        await gone(store, at=after(minutes=3))
        looking = await following(store, 60)
        assert looking.trigger is Trigger.RECOVERY

        assert (await ended(store, looking, report(check("web")), look)).reason is reason
    assert "healthy" in {row["status"] for row in database.rows("service_checks")}


async def test_an_action_that_was_denied_after_all_needs_no_look(database: Database) -> None:
    """The yes was written, and nobody heard it: whoever had asked was gone by then."""
    async with opened(database) as store:
        for said, goes in ((report(check("db")), DecisionReason.HEALTHY), (goes_on(), DecisionReason.ESCALATED)):
            session = await acting(store)
            with database.connect() as connection:
                deny_late(connection, session, call(), redacted_input="{}", requested_at=NOW, now=after(minutes=1))
                connection.commit()

            assert (await ended(store, session, said, at("db"), tool_ends=(end(failed=True),))).reason is goes
        third = await following(store)
        assert (await ended(store, third, report(check("db")), at("db"))).reason is DecisionReason.HEALTHY
    assert {row["error"] for row in database.rows("cooldown_actions")} == {TOO_LATE}


async def test_another_chains_actions_are_not_this_ones(store: Store) -> None:
    await ended(store, await acting(store), report(), outcome=Outcome.TIMEOUT)
    later = await started(store, at=after(minutes=10))

    assert (await ended(store, later, report(check("db")), at())).reason is DecisionReason.HEALTHY


async def test_a_report_that_is_found_late_shows_no_more_than_one_in_time(store: Store, database: Database) -> None:
    session = await acting(store)
    await gone(store, at=after(hours=1))
    said = report(check("web"), check("db"))
    late: Ending = ending(
        session, said, attempt=2, cli_session_id=session.cli_session_id, tool_ends=(end(),), looks=(at("db"),)
    )
    await store.recovery.backfill(late)

    assert [row["service"] for row in database.rows("service_checks")] == ["db"]


@pytest.mark.parametrize("said", [report(check("web")), report(check("db"))], ids=["named", "left out"])
async def test_nobody_looked_at_anything(store: Store, said: Report) -> None:
    decision = await ended(store, await acting(store), said)

    assert decision.reason is DecisionReason.NO_EVIDENCE
    assert "no call looked at anything and came back without an error" in decision.events[0].message
