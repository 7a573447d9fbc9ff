"""The real Prometheus and the real Alertmanager, as processes on loopback, with what docs/how-to says they need."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import pytest

from support.checkout import ROOT
from support.loopback_http import ask
from support.ports import kept_port
from support.waiting import LOOK_SECONDS, PATIENCE_SECONDS

HOW_TO: Final = ROOT / "docs" / "how-to" / "connect-alertmanager.md"

_COUNT: Final = re.compile(r"^(\w+)\{([^}]*)\} ([0-9.e+]+)$", re.MULTILINE)


def block(language: str, number: int = 0, *, how_to: Path = HOW_TO) -> str:
    """Return one of the code blocks of a how-to."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", how_to.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(found[number])


def program(name: str, package: str) -> str:
    """Return the path of a program; the test is skipped where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: install the Debian package '{package}'")
    return found


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """One of the two, running."""

    url: str
    output: Path

    async def count(self, name: str, **labels: str) -> float:
        """Return the sum of a counter of its own metrics over all that have these labels."""
        answer = await ask(f"{self.url}/metrics", method="GET")
        return sum(
            float(value)
            for found, told, value in _COUNT.findall(answer.body.decode())
            if found == name and all(f'{label}="{wanted}"' in told for label, wanted in labels.items())
        )


@asynccontextmanager
async def alertmanager(root: Path, *, listener: str, token: str) -> AsyncIterator[Watcher]:
    """Run Alertmanager with the how-to's configuration, whose groups do not wait here as long as they usually do."""
    path = program("prometheus-alertmanager", "prometheus-alertmanager")
    credentials = root / "claudeops-token"
    credentials.write_text(f"{token}\n", encoding="utf-8")
    config = _with(
        block("yaml"),
        {
            "http://127.0.0.1:8080": listener,
            "/etc/alertmanager/claudeops-token": str(credentials),
            "  receiver: claudeops\n": "  receiver: claudeops\n  group_wait: 1s\n  group_interval: 1s\n",
        },
    )
    (root / "alertmanager.yml").write_text(config, encoding="utf-8")
    arguments = [f"--config.file={root}/alertmanager.yml", f"--storage.path={root}/alertmanager"]
    async with _running(root, "alertmanager", [path, *arguments, "--cluster.listen-address="]) as watcher:
        yield watcher


@asynccontextmanager
async def prometheus(root: Path, *, target: str, alerts_to: str) -> AsyncIterator[Watcher]:
    """Run Prometheus, which looks at a service every second, with the how-to's rule."""
    path = program("prometheus", "prometheus")
    (root / "rules.yml").write_text(_with(block("yaml", 1), {"for: 1m": "for: 1s"}), encoding="utf-8")
    (root / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{root}/rules.yml]\n"
        "scrape_configs:\n"
        "  - job_name: shop\n"
        f"    static_configs: [{{targets: ['{target}']}}]\n"
        "alerting:\n"
        "  alertmanagers:\n"
        f"    - static_configs: [{{targets: ['{alerts_to.removeprefix('http://')}']}}]\n",
        encoding="utf-8",
    )
    arguments = [f"--config.file={root}/prometheus.yml", f"--storage.tsdb.path={root}/prometheus"]
    async with _running(root, "prometheus", [path, *arguments]) as watcher:
        yield watcher


@asynccontextmanager
async def scraping(root: Path, *, target: str, token: str, rules: Path) -> AsyncIterator[Watcher]:
    """Run Prometheus as the how-to sets it up, which scrapes a daemon every second, under these rules."""
    path = program("prometheus", "prometheus")
    (root / "scrape-token").write_text(f"{token}\n", encoding="utf-8")
    how_to = HOW_TO.with_name("watch-with-prometheus.md")
    config = _with(
        block("yaml", how_to=how_to),
        {
            "/etc/prometheus/claudeops.rules.yaml": str(rules),
            "/etc/prometheus/claudeops-token": str(root / "scrape-token"),
            "127.0.0.1:8080": target,
        },
    )
    often = "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
    (root / "scraping.yml").write_text(often + config, encoding="utf-8")
    arguments = [f"--config.file={root}/scraping.yml", f"--storage.tsdb.path={root}/scraped"]
    async with _running(root, "scraping", [path, *arguments]) as watcher:
        yield watcher


def _with(text: str, changes: Mapping[str, str]) -> str:
    for before, after in changes.items():
        assert before in text, f"the how-to says {before!r} no more"
        text = text.replace(before, after)
    return text


@asynccontextmanager
async def _running(root: Path, name: str, command: list[str]) -> AsyncIterator[Watcher]:
    output = root / f"{name}.log"
    with kept_port() as port:
        address = f"127.0.0.1:{port}"
        with output.open("wb") as sink:
            process = await anyio.open_process(
                [*command, f"--web.listen-address={address}"], stdout=sink, stderr=subprocess.STDOUT, cwd=root, env={}
            )
        watcher = Watcher(url=f"http://{address}", output=output)
        try:
            with anyio.fail_after(PATIENCE_SECONDS):
                while not await _is_ready(watcher):
                    assert process.returncode is None, output.read_text()
                    await anyio.sleep(LOOK_SECONDS)
            yield watcher
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()  # what it has on disk goes with the test
                await process.wait()
                await process.aclose()


async def _is_ready(watcher: Watcher) -> bool:
    try:
        return (await ask(f"{watcher.url}/-/ready", method="GET")).status == 200
    except OSError:
        return False
