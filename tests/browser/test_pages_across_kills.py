"""A browser watches a session while its daemon is killed, again and again: each line of the log is on the page once.

A trial kills the daemon when the page shows a drawn number of lines, some again while the page comes back. Then a
daemon lives until the page has been given the session's end, and the page is compared with the log.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from playwright.async_api import BrowserContext, Page, async_playwright

from claudeops.engine.session_log.reader import open_log
from support.doses import SEED_VARIABLE
from support.operating import Daemon
from support.ports import kept_port
from support.stand_in_daemon import StandInNode, stand_in_node
from support.waiting import PATIENCE_SECONDS

CHROMIUM: Final = shutil.which("chromium") or ""
DAILY_KILLS: Final = 3
LONG_KILLS: Final = 50

_MOST_LINES: Final = 60  # on the page, before a kill
_SAID: Final = re.compile(rb"this is number \d+")
_COUNTING: Final = {"count_to": 1_000_000, "every": 0.01}
_NOTES: Final = """() => {
  let opened = 0;
  document.addEventListener("htmx:sse:after:connection", () => { document.documentElement.dataset.opened = ++opened; });
  document.addEventListener("htmx:sse:close", (event) => {
    document.documentElement.dataset.closed = event.detail.reason;
  });
}"""
"""Has a page say at its root how often its stream was opened, and why it was closed for good."""

_SHOWN: Final = """() => [...document.querySelectorAll("#log > li")].map((line) => [line.id, line.innerText])"""

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not CHROMIUM, reason="there is no chromium on PATH: install chromium (Debian)."),
]


class Moment(StrEnum):
    """When a daemon is killed that was started while the page waited for one."""

    READY = "it listens"
    BACK = "the page reads its stream"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """When the daemons of one session are killed."""

    lines: int  # that the page shows by then; 0: it may not even have a stream yet
    again: tuple[Moment, ...]  # the daemons after the first one

    @property
    def kills(self) -> int:
        return 1 + len(self.again)


def trials(kills: int, *, seed: str) -> list[Trial]:
    """Return trials that kill so often altogether."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    drawn: list[Trial] = []
    while (left := kills - sum(trial.kills for trial in drawn)) > 0:
        again = dice.choices(list(Moment), k=min(dice.choice((0, 0, 1, 2)), left - 1))
        lines = dice.choice((0, *(dice.randrange(1, _MOST_LINES) for _ in range(3))))
        drawn.append(Trial(lines=lines, again=tuple(again)))
    return drawn


@dataclass
class Watching:
    """An operator's daemons, one after the other at one port, and a browser that is logged in."""

    node: StandInNode
    port: int
    daemons: AsyncExitStack
    _daemon: Daemon | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> Mapping[str, str]:
        return {"CLAUDEOPS_LISTENER": "on", "CLAUDEOPS_DASHBOARD_PORT": str(self.port)}

    async def start(self) -> None:
        """Kill the daemon, if there is one, and start the next."""
        if self._daemon is not None:
            self._daemon.process.kill()
            await self._daemon.process.wait()
        self._daemon = await self.daemons.enter_async_context(self.node.daemon(**self.settings))
        await self._daemon.until_logged("web_ready")

    async def log_in(self, context: BrowserContext) -> None:
        """Log a browser in by a link, as a person does."""
        link = (await self.node.operator.run("login-link", **self.settings)).stdout.splitlines()[0]
        page = await context.new_page()
        await page.goto(f"{self.url}{urlsplit(link).path}")
        await page.get_by_role("button", name="Log in").click()
        await page.locator("nav").wait_for()
        await page.close()

    async def faults(self, trial: Trial, context: BrowserContext) -> list[str]:
        """Kill the daemons of a trial; return what is wrong with the page after it, as sentences."""
        session = await self._running()
        page = await context.new_page()
        await page.add_init_script(f"({_NOTES})()")
        await page.goto(f"{self.url}/sessions/{session}", wait_until="load")
        if trial.lines:
            await _seen(page, f"#L{trial.lines}")
        opened = await _opened(page)
        await self.start()
        for moment in trial.again:
            if moment is Moment.BACK and not await _closed(page):
                await _seen(page, f"html[data-opened]:not([data-opened='{opened}'])")
                opened = await _opened(page)
            await self.start()
        await _seen(page, "html[data-closed]")
        shown, reason = await page.evaluate(_SHOWN), await _closed(page)
        await page.close()
        return [*self._differences(session, shown), *([] if reason == "message" else [f"closed for: {reason}"])]

    async def _running(self) -> int:
        """Return the session that runs, once one does: the one that looks after the last, or a new one."""
        if self.node.is_idle():
            await self.node.queue(1)
        query = "SELECT id FROM sessions WHERE status = 'running'"
        await self.node.operator.until(query, lambda rows: len(rows) == 1)
        return int(str(self.node.operator.rows(query)[0]["id"]))

    def _differences(self, session: int, shown: Sequence[tuple[str, str]]) -> list[str]:
        (row,) = (row for row in self.node.operator.sessions() if row["id"] == session)
        with open_log(Path(str(row["log_path"]))) as log:
            logged = log.read().splitlines()
        ids = [line_id for line_id, _ in shown]
        if ids != [f"L{number}" for number in range(1, len(logged) + 1)]:
            return [f"session {session} has {len(logged)} lines, and the page {len(ids)}: {' '.join(ids)}"]
        said = [_SAID.search(line) for line in logged]
        return [
            f"line {number} of session {session} is shown as {text!r}"
            for number, (found, (_, text)) in enumerate(zip(said, shown, strict=True), 1)
            if found is not None and found[0].decode() not in text
        ]


async def _seen(page: Page, selector: str) -> None:
    await page.locator(selector).wait_for(state="attached", timeout=PATIENCE_SECONDS * 1000)


async def _opened(page: Page) -> str:
    return await page.locator("html").get_attribute("data-opened") or ""


async def _closed(page: Page) -> str | None:
    return await page.locator("html").get_attribute("data-closed")


async def watched(root: Path, kills: int, *, part: int = 0) -> None:
    """Kill so often; fails with what was wrong with which trial."""
    seed = f"{os.environ[SEED_VARIABLE]} {part}"
    told = []
    with kept_port() as port:
        async with stand_in_node(root) as node, AsyncExitStack() as daemons, async_playwright() as playwright:
            node.script(_COUNTING)
            world = Watching(node=node, port=port, daemons=daemons)
            await world.start()
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            context = await browser.new_context()
            await world.log_in(context)
            for number, trial in enumerate(trials(kills, seed=seed)):
                faults = await world.faults(trial, context)
                told += [f"number {number} of seed {seed!r}, {trial}: {fault}" for fault in faults]
            await browser.close()
    assert not told, "\n".join(told)


async def test_a_daemon_that_is_killed_under_a_watching_browser_costs_no_line_and_gives_none_twice(
    tmp_path: Path,
) -> None:
    await watched(tmp_path, DAILY_KILLS)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(1, 5))
async def test_of_many_kills_under_a_watching_browser_none_costs_a_line(part: int, tmp_path: Path) -> None:
    await watched(tmp_path, LONG_KILLS, part=part)
