"""The audit chain as a page: what the browser hashes is what the daemon has hashed, and no call is left out."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import AsyncIterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest

from claudeops.web.listings import cursor
from support.listening import bearer
from support.paged import SiteDoor, site_door
from support.store_values import NOW, allow, recorded, restart, started
from support.stores import Database

LINK = re.compile(
    r'<li data-session="(\d+)" data-hash="(\w*)" data-previous="(\w*)"( data-head="\w*")?(?: data-content="([^"]*)")?>'
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        made.door.clock.at = NOW
        first, second = await started(made.store), await started(made.store)
        for session in (first, second, first):
            for place in range(2):
                await recorded(made.store, session, f"toolu_{session.id}_{place}", allow(restart()))
        yield made


async def links(site: SiteDoor, path: str) -> list[tuple[str, ...]]:
    answer = await site.get(path, bearer(2))
    assert answer.status == 200
    return LINK.findall(html.unescape(answer.body.decode()))


async def test_what_the_page_holds_hashes_to_the_chain_up_to_the_head(site: SiteDoor) -> None:
    found = await links(site, "/audit")
    assert len(found) == 6
    for session in ("1", "2"):
        chain = [link for link in found if link[0] == session]
        for newer, older in pairwise(chain):
            assert newer[2] == older[1]
        assert chain[-1][2] == ""
        assert chain[0][3] == f' data-head="{chain[0][1]}"'
    for _, digest, previous, _, content in found:
        hashed = base64.b64decode(content)
        assert sha256(hashed).hexdigest() == digest
        assert json.loads(hashed)[0] == previous


async def test_a_call_that_hides_something_is_hashed_as_it_is_and_shown_as_text(site: SiteDoor, tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'claudeops.db'}")
    database.execute("UPDATE tool_calls SET input = :text WHERE id = 1", text="\u202e<script>")
    body = (await site.get("/audit", bearer(2))).body.decode()
    assert "\u202e" not in body
    assert "\u202e<script>" in json.loads(base64.b64decode((await links(site, "/audit"))[-1][4]))


async def test_one_session_is_shown_alone_and_page_by_page(site: SiteDoor) -> None:
    assert {link[0] for link in await links(site, "/audit?session=2")} == {"2"}
    text = html.unescape((await site.get("/audit?session=1&limit=3", bearer(2))).body.decode())
    (path,) = re.findall(r'<a href="([^"]+)" rel="next"', text)
    last = await links(site, path)
    assert len(last) == 1
    assert last[0][3] == ""  # what stands on a later page is no head
    later = await links(site, f"/audit?session=1&limit=1&after={cursor(1)}")
    assert [(link[0], link[3]) for link in later] == [("1", "")]  # nor is what others have come after


async def test_a_call_of_a_megabyte_makes_no_page_of_one(site: SiteDoor, tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'claudeops.db'}")
    database.execute("UPDATE tool_calls SET input = :text", text="x" * 1_000_000)
    assert len((await site.get("/audit", bearer(2))).body) < 100_000
    assert all(link[4] == "" for link in await links(site, "/audit"))
