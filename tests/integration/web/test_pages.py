"""Pages over a database in which something of everything has happened, and over one that attackers have filled."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

from claudeops.domain.access.logins import Role
from claudeops.text.escapes import visible
from support.hostile import MARK, TEXTS, fill
from support.lived_in import log_of, something_of_everything, with_log
from support.paged import SiteDoor, site_door
from support.store_values import NOW
from support.stores import Database

PAGES: Final = {
    "/": ("approval", "shop"),
    "/incidents": ("web", "critical"),
    "/incidents?all=true&level=warning&service=web": ("web",),
    "/incidents/1": ("What happened", "web"),
    "/sessions": ("session 1", "chain 1"),
    "/sessions?outcome=success&tier=1&since=400d&service=&limit=2": ("session 1",),
    "/sessions/1": ("tier 1", "restart"),
    "/sessions/1/film": ("SHA-256", "starts"),
    "/sessions/1/film.html": ("SHA-256",),
    "/chains/1": ("Session 1", "restart"),
    "/chains/1/diff/2": ("Chain 1 beside chain 2", "they part here"),
    "/services": ("No probe",),
    "/services/web": ("restart", "degraded", "the proxy restarts at noon", "web answers 502", "Earlier cases"),
    "/events": ("critical", "over"),
    "/events?open=true&level=critical": ("critical",),
    "/actions": ("restart", "web", "1 of"),
    "/api": ("/api/v1/openapi.json", "/api/v1/sessions"),
    "/approvals": ("docker restart web", "claudeops approve"),
    "/approvals?all=true": ("docker restart web",),
    "/approvals/1": ("restarts the database", "docker restart web", "What it reaches", "Silence"),
    "/why": ("From", "session"),
    "/why?service=web&at=2026-03-01T12:30Z&within=2h": ("web",),
    "/memories": ("the proxy restarts at noon", "operator", "in use", "memory 2"),
    "/memories?all=true&service=WEB": ("forgotten by ada",),
    "/memories/3": ("the disk of nas is slow", "by hand by ada", "It supersedes no other"),
    "/silences": ("service=", "web", "holds", "ada"),
    "/silences?all=true&limit=1": ("holds",),
    "/silences/1": ("service=", "web", "holds", "ada", "0 alerts so far", "What it holds back now"),
    "/schedule": ("default", "it has not fired yet"),
    "/notifications": ("waits", "incident 1", "not chosen yet"),
    "/notifications?waiting=true&target=phone": ("No notice waits.",),
    "/settings": ("No setting fits.",),
    "/audit": ("head of session", "claudeops audit verify"),
    "/audit?session=1&limit=1": ("session 1",),
    "/policy": ("These pages know no policy",),
    "/more": ("Memories", "API"),
    "/passkeys": ("You have no passkey.", "claudeops user add"),
    "/spend": ("By day", "$25.00"),
    "/spend?since=30d": ("By day",),
}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        made.door.clock.at = NOW
        session = await something_of_everything(made.store)
        said = " ".join(TEXTS)
        await with_log(made.store, session, tmp_path / "session-000001.ndjson", log_of(session, says=said))
        yield made


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_says_what_is_on_record(site: SiteDoor, path: str) -> None:
    answer = await site.get(path, await site.login())
    text = html.unescape(answer.body.decode())
    assert answer.status == 200
    assert [words for words in PAGES[path] if words not in text] == []


async def test_every_page_is_looked_at_here(site: SiteDoor) -> None:
    rows = [row.path for row in site.door.listener.table.rows if row.page and row.method == "GET" and row.scope]
    patterns = [re.compile(re.sub(r"\{\w+\}", "[^/?]+", path) + r"(\?.*)?") for path in rows]
    assert [pattern.pattern for pattern in patterns if not any(map(pattern.fullmatch, PAGES))] == []


@pytest.mark.parametrize(
    "path",
    [
        *("/incidents/99", "/incidents/x", "/incidents/0", "/sessions/99", "/chains/2147483648", "/chains/99"),
        *("/services/nothing", "/sessions/1%27", "/nothing"),
    ],
)
async def test_what_is_not_there_is_a_page_that_says_so(site: SiteDoor, path: str) -> None:
    answer = await site.get(path, await site.login())
    assert (answer.status, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")


@pytest.mark.parametrize(
    "query",
    [
        *("colour=red", "limit=0", "limit=201", "limit=x", "before=x", "before=MA", "before=LTE", "since=soon"),
        *("since=9999999999999d", "tier=0", "level=bad", "open=perhaps", f"service={'x' * 301}", "limit=1&limit=2"),
    ],
)
async def test_a_query_that_means_nothing_is_refused_in_one_sentence(site: SiteDoor, query: str) -> None:
    answer = await site.get(f"/events?{query}", await site.login())
    assert answer.status == 422
    assert "request_crashed" not in site.door.log.getvalue()


async def test_older_entries_follow_one_after_the_other(site: SiteDoor) -> None:
    cookie, path, seen = await site.login(), "/sessions?limit=1&since=", list[str]()
    while path:
        text = (await site.get(path, cookie)).body.decode()
        seen += re.findall(r'<td data-label="Session"><a href="/sessions/(\d+)"', text)
        path = html.unescape("".join(re.findall(r'<a href="([^"]+)" rel="next"', text)))
    assert seen == sorted(seen, key=int, reverse=True)
    assert len(seen) == len(set(seen)) == 6


class Found(HTMLParser):
    """What a browser would make of a page: elements with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def strange(text: str) -> list[str]:
    """Return the elements that are none of ours, or carry what none of ours does."""
    found = []
    for tag, attributes in Found(text).elements:
        ours = tag not in {"iframe", "object", "embed", "base", "style", "template", "video", "audio", "img", "math"}
        ours &= not any(name.startswith(("on", "style", "xlink", "srcdoc", "ping")) for name in attributes)
        ours &= tag != "script" or str(attributes.get("src")).startswith("/static/")
        ours &= all(str(attributes.get(name, "/")).startswith(("/", "#")) for name in ("href", "src", "action"))
        ours &= tag != "meta" or attributes.get("http-equiv") is None
        if not ours:
            found.append(f"{tag} {attributes}")
    return found


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
async def test_no_text_on_record_is_ever_more_than_text(site: SiteDoor, tmp_path: Path, text: str) -> None:
    cookie = await site.login(Role.ADMIN)
    assert fill(Database(f"sqlite:///{tmp_path / 'claudeops.db'}"), text) > 20
    shown = 0
    for path in PAGES:
        answer = await site.get(path, cookie)
        page = answer.body.decode()
        assert answer.status in {200, 404}, path
        ours = ["meta", "style", "script"] if path.endswith(".html") else []  # what a film that is one file has in it
        assert [one.split()[0] for one in strange(page)] == ours, path
        assert not set(page) & {"\x1b", "\u202e", "\u200b", "\u2028", "\x07", "\ufeff"}
        shown += visible(text.replace("\x00", ""))[:40] in html.unescape(page)
    assert shown, "nobody could read it"
    assert "request_crashed" not in site.door.log.getvalue()


def test_the_corpus_is_large_and_does_something() -> None:
    assert len(TEXTS) >= 60
    assert sum(MARK in text for text in TEXTS) > 45
    assert strange(TEXTS[0])
