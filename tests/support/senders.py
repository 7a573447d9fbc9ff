"""Monitoring systems for tests: bodies as Alertmanager posts them, and their way into a daemon that is a process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio

from support.loopback_http import Answer, ask
from support.operating import Daemon, Operator
from support.waiting import PATIENCE_SECONDS

SCHEDULES: Final = '[[schedule]]\nname = "never"\ninterval = "1d"\nenabled = false\n'
SOURCES: Final = '[[source]]\nname = "am"\nkind = "alertmanager"\n'


def listens(root: Path, rules: str = SOURCES) -> dict[str, str]:
    """Return the settings of a daemon that listens, knows these rules of alerts, and starts nothing by itself."""
    file = root / "alerts.toml"
    file.write_text(rules, encoding="utf-8")
    listening = {"CLAUDEOPS_LISTENER": "on", "CLAUDEOPS_DASHBOARD_PORT": "0", "CLAUDEOPS_ALERTS_PATH": str(file)}
    return listening | starts_nothing(root)


def starts_nothing(root: Path) -> dict[str, str]:
    """Return the setting of a daemon that starts nothing by itself, not even the first chain of a new one."""
    file = root / "schedules.toml"
    file.write_text(SCHEDULES, encoding="utf-8")
    return {"CLAUDEOPS_SCHEDULES_PATH": str(file)}


def one(name: str = "Down", service: str = "shop", *, resolved: bool = False, **labels: str) -> dict[str, object]:
    """Return an alert as Alertmanager writes it."""
    stamp = datetime.now(UTC).isoformat()
    return {
        "status": "resolved" if resolved else "firing",
        "labels": {"alertname": name, "service": service, "severity": "critical", **labels},
        "annotations": {"summary": f"{service} does not answer"},
        "startsAt": "2026-03-01T11:00:00Z",
        "endsAt": stamp if resolved else "0001-01-01T00:00:00Z",
        "generatorURL": "http://127.0.0.1:9090/graph",
    }


def body(*alerts: Mapping[str, object], group: str = "{}:{service=shop}") -> bytes:
    """Return a webhook of version 4."""
    return json.dumps({"version": "4", "groupKey": group, "receiver": "claudeops", "alerts": alerts}).encode()


async def url_of(daemon: Daemon) -> str:
    """Return where a daemon listens."""
    await daemon.until_logged("web_ready")
    lines = [json.loads(line) for line in daemon.output.read_text().splitlines() if line.startswith("{")]
    return str(next(line["url"] for line in lines if line["event"] == "web_ready"))


async def token(node: Operator, *scopes: str, **environment: str) -> tuple[int, dict[str, str]]:
    """Make a token in the shell; return its number, and the header with it."""
    wanted = [part for scope in scopes for part in ("--scope", scope)]
    environment["CLAUDEOPS_LISTENER"] = "on"
    done = await node.run("token", "create", "--name", "test", *wanted, "-o", "json", **environment)
    assert done.code == 0, done.stderr
    document = done.document
    return int(str(document["token_id"])), {"authorization": f"Bearer {document['token']}"}


async def post(url: str, header: Mapping[str, str], content: bytes, source: str = "am") -> Answer:
    """Post one body, once."""
    with anyio.fail_after(PATIENCE_SECONDS):
        return await ask(f"{url}/api/v1/alerts/{source}", raw=content, headers=header)
