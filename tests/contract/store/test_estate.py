"""Any store: what the manifests say counts in every decision, by whichever name a service is called."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.domain.chains.consequences import is_whole_round
from claudeops.domain.estate.estate import Estate, Manifest, Service, StatementSource
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.sessions import DecisionReason, Handover, Outcome, Session, Suppressed, Trigger
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import (
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
    running,
    started,
    wanted,
)
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

HERE = StatementSource(path="media/CLAUDE-OPS.md")
ESTATE = Estate(
    manifests=(
        Manifest(
            repository="media",
            services=(
                Service(name="web", aliases=("media-web-1",), host="web1", source=HERE),
                Service(name="db", source=HERE),
            ),
        ),
    ),
    other_names={"media-web-1": "web"},
)
OURS = RULES.within(ESTATE)
NAMES = ("web", "WEB", "media-web-1", "Media-Web-1", "web1/web", "WEB1/media-web-1")


async def acted(store: Store, session: Session, service: str, name: str, *, hours: float = 0) -> VerdictKind:
    verdict = await store.calls.record_call(
        session,
        call(name),
        allow(restart(service)),
        redacted_input="{}",
        rules=OURS,
        requested_at=after(hours=hours),
        now=after(hours=hours),
    )
    return verdict.kind


async def round_of(store: Store, *names: str, at: float = 0, status: ServiceStatus = ServiceStatus.HEALTHY) -> None:
    """End a session that was asked about these services alone."""
    session = await started(store, wanted(prompt_text="look"), at=after(hours=at))
    await store.queue.finish(ending(session, report(*(check(name, status) for name in names))), rules=OURS)


@pytest.mark.dialect
async def test_actions_count_once_whatever_the_service_is_called(store: Store, database: Database) -> None:
    session = await started(store, wanted(2, prompt_text="media-web-1 is down"))
    given = [await acted(store, session, name, f"toolu_{place}") for place, name in enumerate(NAMES)]
    allowed = RULES.limits["restart"].count
    assert given == [VerdictKind.ALLOW] * allowed + [VerdictKind.DENY] * (len(NAMES) - allowed)
    assert {row["service"] for row in database.rows("cooldown_actions")} == {"web"}


@pytest.mark.parametrize("name", NAMES)
async def test_what_was_found_by_one_name_may_be_acted_on_by_another(store: Store, name: str) -> None:
    await store.queue.finish(ending(await started(store), alarm(name)), rules=OURS)
    second = await claimed(store, at=after(minutes=2), with_rules=OURS)
    assert second is not None
    for number, other in enumerate(("web2/web", "db")):
        assert await acted(store, second, other, f"toolu_{number}") is VerdictKind.DENY
    assert await acted(store, second, "web1/media-web-1", "toolu_9") is VerdictKind.ALLOW


async def test_actions_on_record_count_by_the_name_given_since(store: Store, database: Database) -> None:
    session = await started(store, wanted(2, prompt_text="web and media-web-1 and web1/web are down"))
    for number, name in enumerate(("media-web-1", "web1/web")):
        assert (await recorded(store, session, f"toolu_{number}", allow(restart(name)))).kind is VerdictKind.ALLOW
    assert {row["service"] for row in database.rows("cooldown_actions")} == {"media-web-1", "web1/web"}
    assert await acted(store, session, "web", "toolu_9") is VerdictKind.DENY


async def admitted(store: Store) -> Session | Suppressed:
    return await store.queue.enqueue(wanted(2), rules=replace(OURS, max_tier=2), now=after(hours=2))


async def test_a_start_is_held_back_by_actions_on_the_same_service_by_other_names(store: Store) -> None:
    session = await started(store, wanted(2, prompt_text="web is down"))
    for number in range(2):
        assert await acted(store, session, "web", f"toolu_{number}") is VerdictKind.ALLOW
    await store.queue.finish(ending(session, report(check("WEB1/Media-Web-1", ServiceStatus.DOWN))), rules=OURS)

    suppressed = await admitted(store)
    assert isinstance(suppressed, Suppressed)
    assert (suppressed.reason, "granted for web is used up" in suppressed.message) == (DecisionReason.COOLDOWN, True)


@pytest.mark.dialect
async def test_the_newest_check_by_any_name_says_how_a_service_is(store: Store) -> None:
    session = await started(store, wanted(2, prompt_text="web is down"))
    for number in range(2):
        await acted(store, session, "web", f"toolu_{number}")
    await store.queue.finish(ending(session, report(check("media-web-1", ServiceStatus.DOWN))), rules=OURS)
    await round_of(store, "WEB", at=1)

    assert isinstance(await admitted(store), Session)


async def test_two_healthy_looks_by_different_names_clear_the_counter(store: Store, database: Database) -> None:
    session = await started(store, wanted(2, prompt_text="web and db are down"))
    await acted(store, session, "media-web-1", "toolu_1")
    await recorded(store, session, "toolu_2", allow(restart("db")))
    await store.queue.finish(ending(session, report()), rules=OURS)
    await round_of(store, "web1/web", at=1)
    assert [row["cleared_at"] for row in database.rows("cooldown_actions")] == [None, None]
    await round_of(store, "Media-Web-1", at=2)

    cleared = {row["service"]: row["cleared_at"] is not None for row in database.rows("cooldown_actions")}
    assert cleared == {"web": True, "db": False}


async def test_a_healthy_service_resolves_its_events_by_any_name(store: Store, database: Database) -> None:
    told = tuple(
        NewEvent(level=EventLevel.WARNING, service=name, message="slow") for name in (*NAMES, "web2/web", "db")
    )
    session = await started(store, wanted(prompt_text="look"))
    await store.queue.finish(ending(session, report(check("db"), events=told)), rules=OURS)
    await round_of(store, "web1/media-web-1", at=1)

    still_open = {row["service"] for row in database.rows("events") if row["resolved_at"] is None}
    assert still_open == {"web2/web", "db"}


async def test_a_chain_is_held_back_by_whichever_name_its_report_uses(store: Store) -> None:
    session = await started(store, wanted(3, prompt_text="web is down"))
    for number, name in enumerate(("web", "media-web-1", "web1/web")):
        await acted(store, session, name, f"toolu_{number}")
    said = report(check("web1/Media-Web-1", ServiceStatus.DEGRADED))
    decision = (await store.queue.finish(ending(session, said), rules=OURS)).decision

    assert decision.reason is DecisionReason.COOLDOWN
    assert [event.service for event in decision.events] == ["web"]


async def test_a_service_that_a_report_lists_by_two_names_is_recorded_once_as_the_worse(
    store: Store, database: Database
) -> None:
    session = await started(store, wanted(prompt_text="look"))
    said = report(check("web"), check("media-web-1", ServiceStatus.DEGRADED), check("db"))
    await store.queue.finish(ending(session, said), rules=OURS)

    recorded_checks = [(row["service"], row["status"]) for row in database.rows("service_checks")]
    assert recorded_checks == [("media-web-1", "degraded"), ("db", "healthy")]


# --- a whole round looks at every service -----------------------------------------------------------------


async def without_a_service(store: Store, database: Database) -> None:
    """Open an event that belongs to no service."""
    session = await started(store, wanted(prompt_text="look"), at=after(hours=-1))
    told = (NewEvent(level=EventLevel.WARNING, message="the clock is off"),)
    await store.queue.finish(ending(session, report(check("db", ServiceStatus.DEGRADED), events=told)), rules=OURS)
    assert [row["resolved_at"] for row in database.rows("events") if row["service"] is None] == [None]


async def test_a_round_that_leaves_out_a_service_is_no_evidence(store: Store, database: Database) -> None:
    await without_a_service(store, database)
    session = await started(store)
    decision = (await store.queue.finish(ending(session, report(check("db"))), rules=OURS)).decision

    assert decision.reason is DecisionReason.NO_EVIDENCE
    (event,) = decision.events
    assert (event.service, event.level) == ("web", EventLevel.WARNING)
    assert event.message == "the tier 1 report is no proof of health: web is expected and left out."
    assert ("db", "healthy") in {(row["service"], row["status"]) for row in database.rows("service_checks")}
    assert [row["resolved_at"] for row in database.rows("events") if row["service"] is None] == [None]


@pytest.mark.parametrize("name", NAMES)
async def test_a_round_that_looks_at_all_is_healthy(store: Store, database: Database, name: str) -> None:
    await without_a_service(store, database)
    session = await started(store)
    decision = (await store.queue.finish(ending(session, report(check(name), check("db"))), rules=OURS)).decision

    assert decision.reason is DecisionReason.HEALTHY
    assert [row["resolved_at"] is None for row in database.rows("events") if row["service"] is None] == [False]


TOLD = Handover(reason="x", findings="")


@pytest.mark.parametrize(
    ("changes", "whole"),
    [
        ({"trigger": Trigger.SCHEDULED}, True),
        ({"trigger": Trigger.MANUAL}, True),
        ({"trigger": Trigger.API, "prompt_text": " "}, True),
        ({"trigger": Trigger.RETRY}, True),
        ({"trigger": Trigger.RECOVERY}, True),
        ({"trigger": Trigger.MANUAL, "prompt_text": "is the db well?"}, False),
        ({"trigger": Trigger.RETRY, "prompt_text": "is the db well?"}, False),
        ({"trigger": Trigger.RECOVERY, "context": TOLD}, False),
        ({"trigger": Trigger.ALERT}, False),
        ({"trigger": Trigger.FOLLOW_UP}, False),
        ({"trigger": Trigger.ESCALATION, "tier": 2, "context": TOLD}, False),
        ({"trigger": Trigger.MANUAL, "tier": 2}, False),
    ],
)
def test_whole_rounds(changes: dict[str, object], whole: bool) -> None:
    assert is_whole_round(running(**changes)) is whole  # type: ignore[arg-type]  # a table names the fields


async def test_a_round_that_asks_for_the_next_tier_may_leave_out_the_rest(store: Store) -> None:
    decision = (await store.queue.finish(ending(await started(store), alarm("db")), rules=OURS)).decision
    assert decision.reason is DecisionReason.ESCALATED


async def test_without_a_manifest_nothing_is_expected(store: Store) -> None:
    end = ending(await started(store), report(check("db")), outcome=Outcome.SUCCESS)
    assert (await store.queue.finish(end, rules=RULES)).decision.reason is DecisionReason.HEALTHY
