"""The daemon's own probes: from a service's death to the session that looks at it, and what people ask of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from support.estate import deliver, look, report
from support.ports import kept_port
from support.stand_in_daemon import StandInNode, seconds, stand_in_node, told
from support.waiting import until

pytestmark = pytest.mark.anyio

KEY = "sk-ant-" + "a" * 30
PROBES = "SELECT * FROM probes ORDER BY name"
ALERTS = "SELECT * FROM sessions WHERE \"trigger\" = 'alert' ORDER BY id"


ENDLESS_ALERT = """
CREATE TRIGGER endless_alert AFTER INSERT ON sessions WHEN NEW."trigger" = 'alert' BEGIN
  UPDATE sessions SET summary = (
    WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1e12)
    SELECT max(n) FROM number
  ) WHERE id = NEW.id;
END
"""


@pytest.fixture
def port() -> Iterator[int]:
    with kept_port() as port:
        yield port


@asynccontextmanager
async def service(port: int) -> AsyncIterator[Process]:
    """Run a small web server as a process of its own, until the block or the test ends it."""
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    process = await anyio.open_process(command, stdout=None, stderr=None)
    try:
        await until(lambda: answers(port))
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
            await process.aclose()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def declare(root: Path, port: int, more: str = "") -> Path:
    file = root / "probes.toml"
    file.write_text(
        f"""
[defaults]
interval = "1s"
retry_interval = "500ms"
timeout = "1s"
failures = 2

[[probe]]
name = "web"
kind = "http"
url = "http://127.0.0.1:{port}/"
{more}
""",
        encoding="utf-8",
    )
    return file


def states(node: StandInNode) -> dict[str, str]:
    return {str(row["name"]): str(row["state"]) for row in node.operator.rows(PROBES)}


async def test_a_service_that_dies_is_looked_at_by_a_session(tmp_path: Path, port: int) -> None:
    async with stand_in_node(tmp_path) as node:
        node.script(look(), deliver(report()))
        file = declare(tmp_path, port)
        async with service(port) as web, node.daemon(CLAUDEOPS_PROBES_PATH=str(file)) as daemon:
            await node.operator.until(PROBES, lambda rows: [row["state"] for row in rows] == ["up"])
            await node.until_idle()  # the schedule's own first chain
            web.kill()
            await node.operator.until(ALERTS, lambda rows: len(rows) == 1 and rows[0]["status"] == "ended")
            (started,) = told(daemon, "probes_started_chain")
            (spawned,) = [
                line for line in told(daemon, "session_spawned") if line["session_id"] == started["session_id"]
            ]
        (alert,) = node.operator.rows(ALERTS)
        (event,) = node.operator.rows("SELECT * FROM events WHERE message LIKE 'web is down%'")
        checks = node.operator.rows("SELECT status FROM service_checks WHERE source = 'probe' ORDER BY id")

    context = json.loads(str(alert["context"]))
    assert alert["prompt_text"] is None
    assert [(each["service"], each["status"]) for each in context["service_status"]] == [("web", "down")]
    assert (event["level"], event["resolved_at"]) == ("critical", None)
    assert [row["status"] for row in checks] == ["healthy", "down"]
    assert seconds(started["timestamp"]) <= seconds(spawned["timestamp"]), "the daemon says first why"


async def test_a_daemon_that_is_killed_before_the_chain_starts_it_once_after_its_restart(
    tmp_path: Path, port: int
) -> None:
    async with stand_in_node(tmp_path) as node:
        node.script(look(), deliver(report()))
        file = str(declare(tmp_path, port))
        async with service(port) as web:
            async with node.daemon(CLAUDEOPS_PROBES_PATH=file) as daemon:
                await node.operator.until(PROBES, lambda rows: [row["state"] for row in rows] == ["up"])
                await node.until_idle()
                with node.operator.connect() as connection:
                    connection.exec_driver_sql(ENDLESS_ALERT)
                web.kill()
                await node.operator.until(PROBES, lambda rows: [row["state"] for row in rows] == ["down"])
                os.kill(daemon.process.pid, signal.SIGKILL)
                await daemon.process.wait()
            with node.operator.connect() as connection:
                connection.exec_driver_sql("DROP TRIGGER endless_alert")
            assert node.operator.rows(ALERTS) == []
            for _ in range(2):
                async with node.daemon(CLAUDEOPS_PROBES_PATH=file):
                    await node.operator.until(ALERTS, lambda rows: len(rows) > 0)
                    await node.until_idle()
        assert len(node.operator.rows(ALERTS)) == 1


async def test_what_people_ask_of_probes_works_with_and_without_a_daemon(tmp_path: Path, port: int) -> None:
    beat = '[[probe]]\nname = "backup"\nkind = "heartbeat"\nevery = "1h"\n'
    async with stand_in_node(tmp_path) as node, service(port):
        node.script(look(), deliver(report()))
        settings = node.settings(CLAUDEOPS_PROBES_PATH=str(declare(tmp_path, port, beat)))
        before = await node.operator.run("probe", **settings)
        unknown = await node.operator.run("ping", "backup", **settings)
        async with node.operator.daemon(**settings):
            await node.operator.until(PROBES, lambda rows: [row["state"] for row in rows] == ["unknown", "up"])
            pinged = await node.operator.run("ping", "backup", "--log", f"17 files \x1b[1m {KEY}", **settings)
            noted = await node.operator.run("ping", "backup", **settings)
            await node.operator.until(PROBES, lambda rows: [row["state"] for row in rows] == ["up", "up"])
            nobody = await node.operator.run("ping", "nobody", "--output-format", "json", **settings)
        shown = await node.operator.run("probe", "--output-format", "json", **settings)
        one = await node.operator.run("probe", "web", **settings)
        none = await node.operator.run("probe", "nobody", "--output-format", "json", **settings)

    assert (before.code, before.stdout.count("not looked yet")) == (0, 2)
    assert unknown.code != 0
    assert (pinged.code, noted.code) == (0, 0)
    said = [row["ping_text"] for row in node.operator.rows("SELECT ping_text FROM probes WHERE name = 'backup'")]
    assert said == ["17 files \\u001b[1m [redacted]"]
    assert (nobody.code, nobody.document["handled"]) == (1, False)
    probes = shown.document["probes"]
    assert isinstance(probes, list)
    assert [(each["name"], each["kind"], each["state"]) for each in probes] == [
        ("web", "http", "up"),
        ("backup", "heartbeat", "up"),
    ]
    assert (one.code, "web · http http://127.0.0.1" in one.stdout, "up" in one.stdout) == (0, True, True)
    assert (none.code, none.document["found"]) == (1, False)


async def test_a_wrong_edit_is_an_event_and_a_wrong_file_at_the_start_is_a_sentence(tmp_path: Path, port: int) -> None:
    async with stand_in_node(tmp_path) as node, service(port):
        node.script(look(), deliver(report()))
        file = declare(tmp_path, port)
        settings = node.settings(CLAUDEOPS_PROBES_PATH=str(file))
        async with node.operator.daemon(**settings) as daemon:
            await node.operator.until(PROBES, lambda rows: [row["state"] for row in rows] == ["up"])
            declare(tmp_path, port, '[[probe]]\nname = "db"\nkind = "tpc"\n')
            await daemon.until_logged("probes_refused")
            await node.operator.until(
                "SELECT * FROM events WHERE message LIKE '%tpc%' AND resolved_at IS NULL", lambda rows: len(rows) == 1
            )
            assert states(node) == {"web": "up"}
        refused = await node.operator.run("run", **settings)
        doctor = await node.operator.run("doctor", **settings)

    assert refused.code == 78
    assert "CLAUDEOPS_PROBES_PATH" in refused.stderr
    assert "did you mean 'tcp'?" in refused.stderr
    assert "FAILED   probes" in doctor.stdout
