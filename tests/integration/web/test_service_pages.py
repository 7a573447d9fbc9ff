"""Limits and earlier cases as pages: whoever asks why nothing is restarted has to see what is used up, and of what."""

from __future__ import annotations

import html
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from claudeops.domain.memories.operator_changes import Declined
from claudeops.domain.report.report import ReportedMemory
from support.listening import bearer
from support.lived_in import something_of_everything
from support.paged import SiteDoor, site_door
from support.store_values import NOW


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        made.door.clock.at = NOW
        await something_of_everything(made.store)
        yield made


async def text_of(site: SiteDoor, path: str) -> str:
    answer = await site.get(path, bearer(2))
    assert answer.status == 200
    return html.unescape(answer.body.decode())


async def test_the_page_of_actions_has_the_limits_that_the_api_gives(site: SiteDoor) -> None:
    items = (await site.door.ask("GET", "/api/v1/cooldowns", headers=bearer(2))).json["items"]
    assert isinstance(items, list)
    (left,) = items
    text = await text_of(site, "/actions")
    assert f"{left['used']} of {left['count']}" in text
    assert "No limit is touched" in await text_of(site, "/actions?service=nas")


async def test_a_limit_that_has_become_free_again_is_not_shown_as_used_up(site: SiteDoor) -> None:
    site.door.clock.at = NOW + timedelta(days=300)
    assert "No limit is touched" in await text_of(site, "/actions")


async def test_a_case_says_what_was_done_and_what_came_of_it(site: SiteDoor) -> None:
    cases = (await text_of(site, "/services/web")).partition("Earlier cases")[2].partition("Memories")[0]
    assert 'href="/chains/1"' in cases
    assert "restart" in cases
    assert "slow" in cases
    assert "did not help" in cases


async def test_a_service_of_which_there_is_a_memory_alone_has_a_page(site: SiteDoor) -> None:
    memory = ReportedMemory(category="timing", observation="backs up at three", service="nas")
    assert not isinstance(await site.store.memories.add(memory, by="ada", now=NOW), Declined)
    text = await text_of(site, "/services/NAS")
    assert "backs up at three" in text
    assert "No chain on record has dealt with it." in text
