"""What pages cost: bytes of a first load, until something is seen, what the web holds, and a hundred who watch."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import anyio
from playwright.sync_api import sync_playwright

from benchmarks.table import Setup, Table, percentile, shown, spread, verdict
from claudeops.domain.access.logins import COOKIE
from support.estate import deliver, look, report
from support.held import held_mib
from support.listening import secret_of
from support.loopback_http import ask
from support.served_pages import Served, served_pages
from support.stand_in_daemon import stand_in_node, told

FIRST_LOAD: Final = 60 * 1024  # bytes, as sent
WARM_LOAD: Final = 15 * 1024
PAINT_MILLISECONDS: Final = 500.0
WEB_MIB: Final = 8.0
WATCHED_MILLISECONDS: Final = 100.0
WATCHED_SHARE: Final = 0.10  # of a core

_CONTEXTS: Final = 15
_WATCHERS: Final = 100
_RATE: Final = 10.0  # facts a second
_FED: Final = Path(__file__).with_name("fed.py")
_PAINT: Final = """() => new Promise((painted) => new PerformanceObserver((found) => {
  for (const one of found.getEntriesByName('first-contentful-paint')) painted(one.startTime);
}).observe({ type: 'paint', buffered: true }))"""


def loads(setup: Setup) -> Table:
    """Measure the first page: its bytes, and when a browser shows something of it."""
    with served_pages(setup.directory) as served:
        page, files = anyio.run(_weight, served)
        paints = _paints(served)
    first, paint = page + files, sorted(paints)[len(paints) // 2]
    return Table(
        title="Pages: the first one, in a browser that has nothing of it yet",
        columns=("", "", "target"),
        rows=[
            (
                "first load, as sent",
                f"{first / 1024:.1f} KiB",
                _target("60 KiB", first <= FIRST_LOAD),
            ),
            ("later, as sent", f"{page / 1024:.1f} KiB", _target("15 KiB", page <= WARM_LOAD)),
            ("first contentful paint, ms", shown(paints), _target("500", paint <= PAINT_MILLISECONDS)),
        ],
        notes=(f"{_CONTEXTS} cold contexts of Chromium.",),
    )


def watched(setup: Setup) -> Table:
    """Measure a hundred who read what all sessions do."""
    seconds = min(setup.alert_seconds, 60.0)
    late, share, lost = _watched(seconds)
    p99 = percentile(late, 0.99)
    return Table(
        title=f"Pages: {_WATCHERS} who watch, {_RATE:g} facts a second, for {seconds:g} s",
        columns=("", "facts", "median ms", "p99 ms", "longest ms", "target"),
        rows=[
            ("published → read", str(len(late)), *spread(late, 1), _target("100", p99 <= WATCHED_MILLISECONDS)),
            ("lost", str(lost), "", "", "", _target("0", lost == 0)),
            ("of a core", "", f"{share * 100:.1f} %", "", "", _target("10 %", share <= WATCHED_SHARE)),
        ],
        notes=("All readers are one process, which is busier than the one that serves.",),
    )


def memory(setup: Setup) -> Table:
    """Measure what a daemon holds with pages, and without."""
    found = {switch: anyio.run(_held, setup, switch) for switch in ("off", "on")}
    more = sorted(found["on"])[len(found["on"]) // 2] - sorted(found["off"])[len(found["off"]) // 2]
    return Table(
        title="Pages: what a daemon holds with them, nothing to do (its share, PSS)",
        columns=("", "MiB", "target"),
        rows=[
            ("CLAUDEOPS_DASHBOARD=off", shown(found["off"], 1), ""),
            ("CLAUDEOPS_DASHBOARD=on", shown(found["on"], 1), ""),
            ("more", f"{more:.1f}", _target(f"{WEB_MIB:g}", more <= WEB_MIB)),
        ],
        notes=("Each has answered its first page.",),
    )


def _target(text: str, met: bool) -> str:
    return f"{text} ({verdict(met=met)})"


async def _weight(served: Served) -> tuple[int, int]:
    """Return the bytes of the first page, and of all that it loads."""
    headers = {"cookie": f"{COOKIE}={served.secret}", "accept-encoding": "gzip"}
    page = (await ask(f"{served.url}/", method="GET", headers=headers)).body
    files = 0
    for address in set(re.findall(r'(?:src|href)="(/static/[^"]*)"', gzip.decompress(page).decode())):
        files += len((await ask(f"{served.url}{address}", method="GET", headers=headers)).body)
    return len(page), files


def _paints(served: Served) -> list[float]:
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for _ in range(_CONTEXTS):
            context = browser.new_context()
            context.add_cookies([{"name": COOKIE, "value": served.secret, "url": served.url}])
            page = context.new_page()
            page.goto(f"{served.url}/", wait_until="load")
            found.append(float(page.evaluate(_PAINT)))  # the page's policy forbids what asks again and again
            context.close()
        browser.close()
    return found


def _watched(seconds: float) -> tuple[list[float], float, int]:
    """Return how late facts were, in milliseconds, the share of a core, and how many facts were lost."""
    with subprocess.Popen(
        [sys.executable, str(_FED), str(_RATE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(Path(__file__).parents[1])},
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        began = time.monotonic()
        late, lost = anyio.run(_watch_all, server.stdout.readline().strip(), seconds)
        took = time.monotonic() - began
        server.stdin.close()
        return late, float(server.stdout.readline()) / took, lost


async def _watch_all(url: str, seconds: float) -> tuple[list[float], int]:
    late: list[float] = []
    lost = [0]
    async with anyio.create_task_group() as tasks:
        for number in range(_WATCHERS):
            tasks.start_soon(_watch, url, number % 10 + 1, late, lost)
        await anyio.sleep(seconds)
        tasks.cancel_scope.cancel()
    return late, lost[0]


async def _watch(url: str, token: int, late: list[float], lost: list[int]) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        proof = f"Authorization: Bearer {secret_of(token)}"
        request = f"GET /stream?format=json HTTP/1.1\r\nHost: {host}:{port}\r\n{proof}\r\n\r\n"
        await stream.send(request.encode())
        rest = b""
        while True:
            rest += await stream.receive()
            *whole, rest = rest.split(b"\n")
            now = time.monotonic()
            for line in whole:
                if line.startswith(b"event: lost"):
                    lost[0] += 1
                elif found := re.search(rb'"text":"([0-9.]+) x', line):
                    late.append((now - float(found[1])) * 1000)


async def _held(setup: Setup, switch: str) -> list[float]:
    found = []
    for _ in range(setup.repeats):
        with tempfile.TemporaryDirectory(dir=setup.directory) as name:
            async with stand_in_node(Path(name), is_new=True) as node:
                node.script(look(), deliver(report()))
                given = {"CLAUDEOPS_DASHBOARD": switch, "CLAUDEOPS_DASHBOARD_PORT": "0"}
                async with node.daemon(CLAUDEOPS_LISTENER="on", **given) as daemon:
                    await daemon.until_logged("session_ended")
                    await daemon.until_logged("web_ready")
                    url = told(daemon, "web_ready")[0]["url"]
                    await ask(f"{url}/login", method="GET")
                    found.append(held_mib(daemon.process.pid)[1])
    return found
