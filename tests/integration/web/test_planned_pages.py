"""Schedules and notices as pages: a look that was left out, and a notice that never arrived, have to show."""

from __future__ import annotations

import html
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from claudeops.domain.access.logins import Role
from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import DeliveryOutcome, Notice, Topic, encoded
from claudeops.domain.schedules import Cron, Interval, Schedule
from claudeops.domain.schedules.plan import Overlap, SchedulePlan
from support.listening import bearer
from support.lived_in import something_of_everything
from support.paged import SiteDoor, site_door
from support.store_values import NOW
from support.stores import Database

AT = "2026-03-01 12:00:00.000000"
NIGHTLY = SchedulePlan(
    schedule=Schedule(name="default", cadence=Cron(expr="0 3 * * *", timezone="Europe/Berlin")),
    tier=2,
    prompt="Look at the backups.",
    services=("nas",),
    overlap=Overlap.QUEUE,
    budget_usd=1.5,
    origin="schedules.toml, line 3",
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        made.door.clock.at = NOW
        await something_of_everything(made.store)
        yield made


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(f"sqlite:///{tmp_path / 'claudeops.db'}")


async def text_of(site: SiteDoor, path: str) -> str:
    answer = await site.get(path, bearer(2))
    assert answer.status == 200
    return html.unescape(answer.body.decode())


def fire(database: Database, due: str, *, session: int | None = None, skipped: str | None = None) -> None:
    database.execute(
        "INSERT INTO schedule_fires (schedule, due_at, fired_at, session_id, skipped_reason, saved_usd)"
        " VALUES ('default', :due, :due, :session, :skipped, :saved)",
        due=due,
        session=session,
        skipped=skipped,
        saved=0.25 if skipped else None,
    )


async def test_a_schedule_says_what_it_is_and_that_its_last_look_was_left_out_and_why(
    site: SiteDoor, database: Database
) -> None:
    site.site.plans = lambda: [NIGHTLY]
    fire(database, "2026-02-27 12:00:00.000000", session=1)
    fire(database, "2026-02-28 12:00:00.000000", skipped="unchanged")
    text = await text_of(site, "/schedule")
    for words in (
        "0 3 * * * (Europe/Berlin)",
        "tier 2, looks at nas",
        "Look at the backups.",
        "schedules.toml, line 3",
    ):
        assert words in text
    assert "every probe is up, and nothing has changed" in text
    assert "$0.25" in text


async def test_a_schedule_links_the_chain_of_its_last_fire_with_how_that_ended(
    site: SiteDoor, database: Database
) -> None:
    site.site.plans = lambda: [SchedulePlan(schedule=Schedule(name="default", cadence=Interval(seconds=5400)))]
    fire(database, AT, session=1)
    text = await text_of(site, "/schedule")
    assert "every 1h 30m" in text
    assert 'href="/chains/1"' in text
    assert "success" in text
    items = (await site.door.ask("GET", "/api/v1/schedule", headers=bearer(2))).json["items"]
    assert isinstance(items, list)
    (found,) = items
    assert (found["name"], found["last"]["chain"], found["last"]["outcome"]) == ("default", 1, "success")


def notice(database: Database, text: str, *, target: str, result: DeliveryOutcome | None, error: str | None) -> None:
    payload = encoded(Notice(topic=Topic.EVENT, level=EventLevel.CRITICAL, text=text, key=text))
    database.execute(
        "INSERT INTO outbox (target, payload, created_at, attempts, topic, result, error, delivered_at)"
        " VALUES (:target, :payload, :at, 3, 'event', :result, :error, :over)",
        target=target,
        payload=payload,
        at=AT,
        result=result,
        error=error,
        over=None if result is None else AT,
    )


async def test_a_notice_that_failed_says_at_which_target_and_why(site: SiteDoor, database: Database) -> None:
    notice(database, "the disk is full", target="phone", result=DeliveryOutcome.FAILED, error="401: no such bot")
    notice(database, "the proxy is down", target="mail", result=DeliveryOutcome.DELIVERED, error=None)
    notice(database, "the roof leaks", target="mail", result=None, error="connection refused")
    text = await text_of(site, "/notifications?target=phone")
    assert "the disk is full" in text
    assert "401: no such bot" in text
    assert "the proxy is down" not in text
    waiting = await text_of(site, "/notifications?waiting=true&target=mail")
    assert "the roof leaks" in waiting
    assert "the proxy is down" not in waiting


async def test_a_notice_that_nobody_gets_waits_for_no_target(site: SiteDoor, database: Database) -> None:
    database.execute("DELETE FROM outbox")
    notice(database, "the roof leaks", target="", result=DeliveryOutcome.SUPPRESSED, error="no target wants it")
    text = await text_of(site, "/notifications")
    assert "no target wants it" in text
    assert "not chosen yet" not in text


async def test_a_row_that_is_no_notice_hides_no_other(site: SiteDoor, database: Database) -> None:
    notice(database, "the disk is full", target="phone", result=DeliveryOutcome.FAILED, error="401")
    database.execute("UPDATE outbox SET payload = 'nonsense' WHERE target = ''")
    assert "the disk is full" in await text_of(site, "/notifications")
    items = (await site.door.ask("GET", "/api/v1/notifications", headers=bearer(2))).json["items"]
    assert isinstance(items, list)
    assert {one["text"] for one in items} == {"the disk is full", ""}


async def test_a_silence_that_is_over_is_shown_to_whoever_asks_for_all_and_to_nobody_else(
    site: SiteDoor,
) -> None:
    site.door.clock.at = NOW + timedelta(days=40_000)
    assert "No silence holds." in await text_of(site, "/silences")
    assert "over" in await text_of(site, "/silences?all=true")


async def test_a_silence_names_what_it_holds_back_and_leads_to_its_end(site: SiteDoor, database: Database) -> None:
    database.execute("UPDATE alerts SET decision = 'silenced'")
    assert "No alert that fires." in await text_of(site, "/silences/1")
    database.execute("UPDATE silences SET matchers = :of_shop, suppressed_count = 1", of_shop='["service=shop"]')
    page = await text_of(site, "/silences/1")
    held = page.partition("What it holds back now")[2]
    assert ('href="/services/shop"' in held, "Down" in held) == (True, True)
    assert "End it now" not in page
    cookie = await site.login(Role.OPERATOR)
    assert 'action="/silences/1/end"' in (await site.get("/silences/1", cookie)).body.decode()
    document = (await site.door.ask("GET", "/api/v1/silences/1", b"", headers=bearer(2))).json
    assert [one["name"] for one in document["holds"]] == ["Down"]  # type: ignore[attr-defined]
    assert (document["suppressed_count"], document["created_by"]) == (1, "ada")
    database.execute("UPDATE alerts SET decision = 'started'")
    assert "No alert that fires." in await text_of(site, "/silences/1")
    site.door.clock.at = NOW + timedelta(days=40_000)
    over = await text_of(site, "/silences/1")
    assert (">over<" in over, "holds back now" in over) == (True, False)


@pytest.mark.parametrize("path", ["/silences", "/incidents", "/why?service=web&within=2h"])
async def test_a_silence_is_a_click_away_from_where_it_is_named(site: SiteDoor, path: str) -> None:
    site.door.clock.at = NOW + timedelta(minutes=1)
    assert 'href="/silences/1"' in await text_of(site, path)


@pytest.mark.parametrize("path", ["/silences/99", "/api/v1/silences/99"])
async def test_a_silence_that_there_is_not_is_not_found(site: SiteDoor, path: str) -> None:
    assert (await site.get(path, bearer(2))).status == 404
