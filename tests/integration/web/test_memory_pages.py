"""The page of one memory: an operator who corrects what the agents believe has to see on what grounds they do."""

from __future__ import annotations

import html
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from claudeops.domain.memories.operator_changes import Declined
from claudeops.domain.report.report import ReportedMemory
from claudeops.store.reading.memories import MemoryStory
from support.listening import bearer
from support.paged import SiteDoor, site_door
from support.store_values import NOW
from support.stores import Database


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        made.door.clock.at = NOW
        for text, before in (("web starts within 30 s", None), ("web starts within 90 s", 1)):
            memory = ReportedMemory(category="timing", observation=text, service="web", supersedes=before)
            assert not isinstance(await made.store.memories.add(memory, by="ada", now=NOW), Declined)
        database = Database(f"sqlite:///{tmp_path / 'claudeops.db'}")
        database.execute(
            "INSERT INTO sessions (id, tier, ordinal, harness, model, trigger, status, created_at, attempt, audit_head)"
            " VALUES (7, 1, 0, 'claude', 'haiku', 'manual', 'queued', '2026-03-01 12:00:00.000000', 1, '')"
        )
        database.execute("INSERT INTO session_memories (session_id, memory_id) VALUES (7, 1)")
        yield made


async def text_of(site: SiteDoor, path: str) -> str:
    answer = await site.get(path, bearer(2))
    assert answer.status == 200
    return html.unescape(answer.body.decode())


async def test_a_memory_that_was_superseded_names_the_one_in_its_place_and_who_was_shown_it(site: SiteDoor) -> None:
    old = await text_of(site, "/memories/1")
    assert "Superseded by" in old
    assert "web starts within 90 s" in old
    assert "out of use" in old
    assert 'href="/sessions/7"' in old


async def test_a_memory_names_the_one_that_it_supersedes(site: SiteDoor) -> None:
    new = await text_of(site, "/memories/2")
    assert "web starts within 30 s" in new
    assert "Superseded by" not in new
    assert "No session was shown it." in new


async def test_the_api_gives_a_memory_with_both(site: SiteDoor) -> None:
    found = (await site.door.ask("GET", "/api/v1/memories/1", headers=bearer(2))).json
    assert (found["replaced_by"][0]["memory_id"], found["shown_to"], found["in_place_of"]) == (2, [7], None)  # type: ignore[index]
    assert set(found) >= {field for field in MemoryStory.__struct_fields__ if field != "operation"}


async def test_a_list_of_one_service_has_it_under_every_spelling_and_no_other(site: SiteDoor) -> None:
    for spelling in ("web", "WEB", "%20Web%20"):
        assert "web starts within 90 s" in await text_of(site, f"/memories?service={spelling}")
    assert "web starts" not in await text_of(site, "/memories?service=we")
