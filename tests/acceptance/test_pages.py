"""A user's afternoon: everything that happens to a service is seen and answered on pages, without any script."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

import pytest

from support.loopback_http import ask
from support.operating import Operator, conclude, look, operator
from support.ports import kept_port
from support.senders import body, listens, one, post, token
from support.waiting import until_it

pytestmark = pytest.mark.anyio

UNCLEAR: Final = "python3 -c 'print(6*7)'"
"""At tier 3 a person is asked about it: it is not known what inline code does."""

BROWSER: Final[Mapping[str, str]] = {
    "sec-fetch-site": "same-origin",
    "sec-fetch-mode": "navigate",
    "accept": "text/html",
}


@dataclass
class Browser:
    """One that runs no script: it follows links, sends forms, and keeps its cookie."""

    url: str
    cookie: str = ""

    async def open(self, path: str) -> str:
        """Return the page at an address, as its reader sees it."""
        return await self._send("GET", path)

    async def send(self, path: str, **fields: str) -> str:
        """Send a form; return the page that follows."""
        return await self._send("POST", path, urlencode(fields).encode())

    async def _send(self, method: str, path: str, content: bytes = b"") -> str:
        headers = {**BROWSER, **({"cookie": self.cookie} if self.cookie else {})}
        answer = await ask(f"{self.url}{path}", method=method, raw=content, headers=headers)
        if kept := answer.headers.get("set-cookie"):
            self.cookie = kept.partition(";")[0]
        if answer.status == 303:
            return await self.open(answer.headers["location"])
        assert answer.status == 200, (path, answer)
        return html.unescape(answer.body.decode())

    async def until(self, path: str, words: str) -> str:
        """Look at a page until it says something; return it."""
        seen = [""]

        async def says() -> bool:
            seen[0] = await self.open(path)
            return words in seen[0]

        await until_it(says)
        return seen[0]


async def logged_in(node: Operator, port: int, **environment: str) -> Browser:
    """Log a browser in by the link that the command prints."""
    done = await node.run("login-link", CLAUDEOPS_DASHBOARD_PORT=str(port), **environment)
    link = urlsplit(done.stdout.splitlines()[0])
    browser = Browser(f"http://127.0.0.1:{port}")
    assert "Log in" in await browser.open(link.path)
    await browser.send(link.path, next="/")
    return browser


async def test_an_afternoon_at_the_pages(tmp_path: Path) -> None:
    ill = conclude(needed=True, status="down", services_checked=[{"name": "shop", "status": "down", "detail": "502"}])
    well = [{"name": "shop", "status": "healthy", "detail": "its log shows no error"}]
    steps = {"haiku": [look(), ill], "sonnet": [look(), ill], "opus": [look(UNCLEAR), conclude(services_checked=well)]}
    with kept_port() as port:
        settings = {**listens(tmp_path), "CLAUDEOPS_DASHBOARD_PORT": str(port), "CLAUDEOPS_MAX_TIER": "3"}
        async with operator(tmp_path, **steps) as node, node.daemon(**settings) as daemon:
            await daemon.until_logged("web_ready")
            browser = await logged_in(node, port, CLAUDEOPS_LISTENER="on")
            assert "No incident is open." in await browser.open("/")

            _, header = await token(node, "alerts:am")
            assert (await post(browser.url, header, body(one()))).status == 202
            assert "shop" in await browser.until("/incidents", 'href="/incidents/1"')
            incident = await browser.open("/incidents/1")
            assert "Down of" in incident
            assert "no person" in incident
            assert "no person has acknowledged it" in await browser.until("/", "no person has")
            assert ", since" in await browser.send("/incidents/1/ack")

            asking = await browser.until("/approvals", UNCLEAR)
            (number,) = re.findall(r"/approvals/(\d+)/answer", asking)[:1]
            (call_hash,) = re.findall(r'name="call_hash" value="([0-9a-f]{64})"', asking)[:1]
            (session,) = re.findall(r'href="/sessions/(\d+)">session', asking)[:1]
            watched = await browser.open(f"/sessions/{session}")
            assert "tier 3" in watched
            assert "print(6*7)" in watched
            after = await browser.send(f"/approvals/{number}/answer", answer="approve", call_hash=call_hash)
            assert UNCLEAR not in after

            await node.until("SELECT * FROM sessions", lambda rows: {row["status"] for row in rows} == {"ended"})
            assert "42" in await browser.open(f"/sessions/{session}")
            assert (await post(browser.url, header, body(one(resolved=True)))).status == 202
            ended = await browser.until("/incidents/1", "resolved")
            assert "approval" in ended

            film = await browser.open(f"/sessions/{session}/film")
            assert "print(6*7)" in film
            (chain,) = re.findall(r'href="/chains/(\d+)"', ended)[:1]
            assert f"/chains/{chain}" in await browser.open("/spend")
            assert "tier 3" in await browser.open(f"/chains/{chain}")
            assert "Log in" in await browser.send("/logout")
            assert await daemon.stop() == 0
    (answered,) = node.rows("SELECT status, decided_by FROM approvals")
    assert (answered["status"], str(answered["decided_by"]).partition(":")[0]) == ("used", "web")
