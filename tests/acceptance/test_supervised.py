"""The daemon under somebody's supervision: systemd's protocol, and a container's health check."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from support.operating import conclude, look, operator
from support.senders import starts_nothing
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_systemd_hears_when_the_daemon_is_ready_lives_and_stops(tmp_path: Path) -> None:
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(0)

        def hears(word: str) -> bool:
            try:
                while True:
                    heard.append(manager.recv(256).decode())
            except BlockingIOError:
                return word in heard

        async with operator(tmp_path, haiku=[look(), conclude()]) as node:
            surroundings = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}
            async with node.daemon(**surroundings, **starts_nothing(tmp_path)) as daemon:
                await until(lambda: hears("WATCHDOG=1"))
                heard.append("---")
                await until(lambda: hears("WATCHDOG=1") and "WATCHDOG=1" in heard[heard.index("---") :])
                assert await daemon.stop() == 0
            assert hears("STOPPING=1")
    assert heard[0] == "READY=1"


async def test_a_manager_that_does_not_listen_ends_nothing(tmp_path: Path) -> None:
    async with (
        operator(tmp_path, haiku=[look(), conclude()]) as node,
        node.daemon(NOTIFY_SOCKET="@nobody-listens-here", **starts_nothing(tmp_path)) as daemon,
    ):
        await daemon.until_logged("service_manager_deaf")
        await daemon.until_logged("daemon_ready")
        assert await daemon.stop() == 0


async def test_health_follows_the_daemon_that_runs_hangs_or_has_died_and_not_its_database(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        before = await node.run("health")
        async with node.daemon(**starts_nothing(tmp_path)) as daemon:
            await daemon.until_logged("daemon_ready")
            ready = await node.run("health", "--output-format", "json")
            with node.connect() as connection:
                connection.exec_driver_sql("BEGIN EXCLUSIVE")
                locked = await node.run("health")
            daemon.signal(signal.SIGSTOP)
            # As if it had stood still for long already: it cannot write this away again.
            file = tmp_path / "state" / "daemon.json"
            status = json.loads(file.read_text())
            file.write_text(json.dumps({**status, "written_monotonic": status["written_monotonic"] - 600}))
            hung = await node.run("health")
            daemon.process.kill()
            await daemon.process.wait()
        dead = await node.run("health", "--output-format", "json")
    assert (before.code, ready.code, locked.code, hung.code, dead.code) == (1, 0, 0, 1, 1)
    assert "No daemon runs here" in before.stdout
    assert (ready.document["lives"], ready.document["pid"]) == (True, daemon.process.pid)
    assert "has done nothing" in hung.stdout
    assert dead.document["lives"] is False
    assert "has died" in str(dead.document["error"])
